//! Why a file cannot be used as a trace, or not all of it.

use std::io;
use std::path::PathBuf;

use crate::layout::MAJOR;

/// Why a file cannot be used as a trace.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file cannot be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// What the operating system reported.
        source: io::Error,
    },
    /// Something else than a trace.
    #[error("{}: not a cutape trace: {why}", path.display())]
    NotATrace {
        /// Which file.
        path: PathBuf,
        /// What is there instead.
        why: String,
    },
    /// Written by a later cutape.
    #[error(
        "{}: trace format {found}, this cutape reads up to {MAJOR}; use a later cutape",
        path.display()
    )]
    NewerVersion {
        /// Which file.
        path: PathBuf,
        /// The file's major version.
        found: u32,
    },
    /// Cut or changed.
    #[error(
        "{}: damaged at byte {}: {}{}; `cutape repair {0} -o FILE` keeps the readable part",
        path.display(), first.position, first.what,
        if *more == 0 { String::new() } else { format!(" (and {more} more)") }
    )]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// The first damage.
        first: Damage,
        /// How many further ones.
        more: usize,
    },
}

/// A part of the file that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Byte in the file.
    pub position: u64,
    /// What is wrong there.
    pub what: String,
}

impl Damage {
    pub(crate) fn new(position: u64, what: impl Into<String>) -> Self {
        Self {
            position,
            what: what.into(),
        }
    }
}
