//! Opening the trace that a verb reads.

use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use cutape_format::{Damage, Trace};

use crate::failure::Failure;

/// Opens a sound trace all of whose calls are known by name.
pub(crate) fn open(path: &Path) -> Result<Trace, Failure> {
    let trace = open_with(path, Trace::open)?;
    known_functions(&trace, trace.unknown_function().as_ref())?;
    Ok(trace)
}

/// Opens a trace whose calls are looked at one by one before anything is said of them; their functions are for
/// [`known_functions`].
pub(crate) fn open_for_walk(path: &Path) -> Result<Trace, Failure> {
    open_with(path, Trace::open)
}

/// As [`open_for_walk`], in a time that does not depend on the length of a packed trace.
pub(crate) fn open_indexed(path: &Path) -> Result<Trace, Failure> {
    open_with(path, Trace::open_indexed)
}

fn open_with(
    path: &Path,
    open: fn(&Path) -> Result<Trace, cutape_format::Error>,
) -> Result<Trace, Failure> {
    open(path).map_err(|error| match error {
        cutape_format::Error::NotATrace { .. } if is_program(path) => Failure::unusable(format!(
            "{0}: that is a program, not a trace; `cutape record -- {0}` makes a trace of it",
            path.display()
        )),
        error => error.into(),
    })
}

/// An error if a call of a function was found that the trace's signature table does not have.
pub(crate) fn known_functions(trace: &Trace, unknown: Option<&Damage>) -> Result<(), Failure> {
    match unknown {
        None => Ok(()),
        Some(damage) => Err(Failure::unusable(format!(
            "{}: damaged at byte {}: {}; record anew, or use the cutape that recorded it",
            trace.path().display(),
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
