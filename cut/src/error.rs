//! Why a trace cannot be cut.

use std::io;
use std::path::{Path, PathBuf};

/// Why a trace cannot be cut, or nothing can be extracted from it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What was asked for cannot be done.
    #[error("{0}")]
    Unusable(String),
    /// A file cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the operating system reported.
        source: io::Error,
    },
    /// The trace is damaged.
    #[error(transparent)]
    Trace(#[from] cutape_format::Error),
}

impl Error {
    /// An error about a file that cannot be read.
    pub(crate) fn unreadable(path: &Path, error: &io::Error) -> Self {
        Self::Unusable(format!("{}: {error}", path.display()))
    }
}
