//! Why an export failed.

use std::io;

/// The trace cannot be read, or the output not be written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The trace.
    #[error(transparent)]
    Trace(#[from] cutape_format::Error),
    /// The profile is not of this trace.
    #[error(transparent)]
    OtherTrace(#[from] cutape_profile::OtherTrace),
    /// The output.
    #[error("{0}")]
    Write(io::Error),
}
