//! The error that ends a verb: its message and exit status.

use std::fmt;
use std::io;
use std::path::Path;

/// Findings or a divergence.
pub(crate) const FOUND: u8 = 1;
/// Unusable input or machine.
pub(crate) const UNUSABLE: u8 = 2;
/// A bug in cutape.
pub(crate) const BUG: u8 = 3;
/// Not an error: the reader of our output closed the pipe.
pub(crate) const QUIET: u8 = 255;

/// An error with its exit status; the message is one line.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) message: String,
    pub(crate) status: u8,
}

impl Failure {
    /// The input or the machine is unusable.
    pub(crate) fn unusable(message: impl fmt::Display) -> Self {
        Self {
            message: message.to_string(),
            status: UNUSABLE,
        }
    }

    /// A file could not be written from a trace. Names the target once; errors of the trace itself
    /// name the trace.
    pub(crate) fn cannot_write(path: &Path, io_error: &io::Error) -> Self {
        let (path, error) = (path.display().to_string(), io_error.to_string());
        let of_the_target =
            io_error.raw_os_error().is_some() || io_error.kind() == io::ErrorKind::AlreadyExists;
        if !of_the_target {
            return Self::unusable(error);
        }
        let why = error.strip_prefix(&format!("{path}: ")).unwrap_or(&error);
        Self::unusable(format!(
            "cannot write {path}: {why}; choose another place with -o"
        ))
    }
}

impl From<cutape_format::Error> for Failure {
    fn from(error: cutape_format::Error) -> Self {
        Self::unusable(error)
    }
}

impl From<io::Error> for Failure {
    /// Writing a result failed.
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self {
                message: String::new(),
                status: QUIET,
            };
        }
        Self::unusable(format!("cannot write the result: {error}"))
    }
}
