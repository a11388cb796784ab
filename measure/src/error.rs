//! Why nothing can be measured.

use std::fmt;

/// What is wrong with the options, the trace or the measurement, in one line.
#[derive(Debug)]
pub struct Error(pub(crate) String);

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

impl From<cutape_calls::Error> for Error {
    fn from(error: cutape_calls::Error) -> Self {
        Self(error.to_string())
    }
}
