//! Opening the trace that a verb reads.

use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use cutape_format::Trace;

use crate::failure::Failure;

/// Opens a sound trace all of whose calls are known by name.
pub(crate) fn open(path: &Path) -> Result<Trace, Failure> {
    let trace = Trace::open(path).map_err(|error| match error {
        cutape_format::Error::NotATrace { .. } if is_program(path) => Failure::unusable(format!(
            "{0}: that is a program, not a trace; `cutape record -- {0}` makes a trace of it",
            path.display()
        )),
        error => error.into(),
    })?;
    match trace.unknown_function() {
        None => Ok(trace),
        Some(damage) => Err(Failure::unusable(format!(
            "{}: damaged at byte {}: {}; record anew, or use the cutape that recorded it",
            path.display(),
            damage.position,
            damage.what
        ))),
    }
}

/// Whether a file could be run: it is executable, and begins as programs or scripts do.
fn is_program(path: &Path) -> bool {
    let mut begin = [0; 2];
    let read = fs::File::open(path).and_then(|mut file| file.read_exact(&mut begin));
    let executable = path.metadata().is_ok_and(|file| file.mode() & 0o111 != 0);
    executable && read.is_ok() && matches!(&begin, b"\x7fE" | b"#!")
}
