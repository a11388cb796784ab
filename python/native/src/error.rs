//! Errors of Rust as exceptions of Python.

use cutape_format::{Damage, Error as TraceError};
use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyOSError, PyRuntimeError};
use pyo3::prelude::*;

create_exception!(
    cutape,
    Error,
    PyException,
    "What cutape cannot do, and why."
);
create_exception!(
    cutape,
    NotATrace,
    Error,
    "The file is not a trace of cutape."
);
create_exception!(
    cutape,
    NewerVersion,
    Error,
    "A later cutape wrote the trace, in a format that this one does not know."
);
create_exception!(
    cutape,
    DamagedTrace,
    Error,
    "The file was cut or changed, or names a function that its table lacks."
);

/// Why a trace could not be read.
pub(crate) fn of_trace(error: TraceError) -> PyErr {
    match error {
        TraceError::Io { path, source } => {
            let name = path.display().to_string();
            match source.raw_os_error() {
                // Python makes a FileNotFoundError or PermissionError of it.
                Some(number) => PyOSError::new_err((number, message_of(&source), name)),
                None => PyOSError::new_err(format!("{name}: {source}")),
            }
        }
        TraceError::NotATrace { .. } => NotATrace::new_err(error.to_string()),
        TraceError::NewerVersion { .. } => NewerVersion::new_err(error.to_string()),
        TraceError::Damaged { .. } => DamagedTrace::new_err(error.to_string()),
        error => Error::new_err(error.to_string()),
    }
}

/// A call's function is missing from the trace's signature table.
pub(crate) fn unknown_function(path: &str, damage: &Damage) -> PyErr {
    DamagedTrace::new_err(format!(
        "{path}: damaged at byte {}: {}; record again, or use the cutape version that recorded it",
        damage.position, damage.what
    ))
}

/// A thread that read the trace panicked; its message is on stderr.
pub(crate) fn bug() -> PyErr {
    PyRuntimeError::new_err("bug in cutape; please report the trace and the lines on stderr")
}

/// The operating system's text without the number that Rust adds.
fn message_of(error: &std::io::Error) -> String {
    let text = error.to_string();
    match text.rsplit_once(" (os error ") {
        Some((message, _)) => message.to_owned(),
        None => text,
    }
}
