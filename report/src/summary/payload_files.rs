//! The files of the program's data that a trace refers to instead of holding their bytes.

use cutape_format::PayloadFile;
use serde::Serialize;

/// A file that has payloads of a trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PayloadFileFacts {
    /// Its path.
    pub path: String,
    /// How many different parts of it the trace refers to.
    pub parts: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Why it is not as it was: missing, or of another length or time; `null` if it is.
    pub changed: Option<String>,
}

impl PayloadFileFacts {
    pub(super) fn of(file: PayloadFile) -> Self {
        Self {
            path: file.path.display().to_string(),
            parts: file.parts,
            bytes: file.bytes,
            changed: file.changed,
        }
    }
}
