//! Opens the trace that a verb reads.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use cutape_format::{Damage, Trace, recorded_process};

use crate::clock;
use crate::failure::Failure;
use crate::output;

/// How long a call that was entered may take until it is in the trace.
const SETTLE: Duration = Duration::from_millis(20);
/// How long to look for what a process has written until now.
const PATIENCE: Duration = Duration::from_secs(10);

/// Opens an undamaged trace and checks that every call's function is in its signature table.
pub(crate) fn open(path: &Path) -> Result<Trace, Failure> {
    let trace = open_with(path, Trace::open)?;
    known_functions(&trace, trace.unknown_function().as_ref())?;
    Ok(trace)
}

/// Opens a trace that a process is recording, as it is now; `None` if no process is.
pub(crate) fn open_growing(path: &Path) -> Result<Option<Trace>, Failure> {
    let Some(process) = recorded_process(path).filter(|process| has_mapped(*process, path)) else {
        return Ok(None);
    };
    let now = clock::ticks();
    let mut trace = Trace::follow(path)?;
    if trace.head().clock != 0 {
        // The order of threads is known only at the end.
        return Err(still_written(path, process));
    }
    let deadline = Instant::now() + PATIENCE;
    loop {
        // Also the time in which a thread writes the record of a call that it has entered.
        thread::sleep(SETTLE);
        let found = trace.refresh_before(now);
        if found.map_err(|error| Failure::unusable(format!("{}: {error}", path.display())))? >= now
        {
            return Ok(Some(trace));
        }
        if Instant::now() > deadline {
            return Err(still_written(path, process));
        }
    }
}

/// Opens a trace for a walk over all calls, after which the caller uses [`known_functions`].
pub(crate) fn open_for_walk(path: &Path) -> Result<Trace, Failure> {
    open_with(path, Trace::open)
}

/// Like [`open_for_walk`], in constant time for a packed trace.
pub(crate) fn open_indexed(path: &Path) -> Result<Trace, Failure> {
    open_with(path, Trace::open_indexed)
}

/// The traces of a folder, by name.
pub(crate) fn traces_of(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let cannot = |error: io::Error| Failure::unusable(format!("{}: {error}", folder.display()));
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(cannot)? {
        let file = entry.map_err(cannot)?.path();
        if file.extension().is_some_and(|ending| ending == "cutape") {
            files.push(file);
        }
    }
    if files.is_empty() {
        return Err(Failure::unusable(format!(
            "{}: not a regular file but a folder without traces (*.cutape); give a trace, or a \
             folder that contains traces",
            folder.display()
        )));
    }
    files.sort();
    Ok(files)
}

fn open_with(
    path: &Path,
    open: fn(&Path) -> Result<Trace, cutape_format::Error>,
) -> Result<Trace, Failure> {
    open(path).map_err(|error| match error {
        cutape_format::Error::NotATrace { .. } if is_program(path) => Failure::unusable(format!(
            "not a trace but a program: {0}; record it with `cutape record -- {0}`",
            path.display()
        )),
        error => error.into(),
    })
}

/// Fails if a call's function is missing from the trace's signature table.
pub(crate) fn known_functions(trace: &Trace, unknown: Option<&Damage>) -> Result<(), Failure> {
    match unknown {
        None => Ok(()),
        Some(damage) => Err(Failure::unusable(format!(
            "{}: damaged at byte {}: {}; record again, or use the cutape version that recorded it",
            trace.path().display(),
            damage.position,
            damage.what
        ))),
    }
}

/// Whether the trace was repaired: it lists its losses itself.
pub(crate) fn is_repaired(trace: &Trace) -> bool {
    trace.meta_value("repair.0").is_some()
}

/// Fails at the first damage, unless the trace was repaired.
pub(crate) fn expect_undamaged(trace: &Trace, damage: &[Damage]) -> Result<(), Failure> {
    match damage.first().filter(|_| !is_repaired(trace)) {
        None => Ok(()),
        Some(damage) => Err(Failure::unusable(format!(
            "{}: damaged at byte {}: {}; `cutape repair {0} -o FILE` keeps the readable part",
            trace.path().display(),
            damage.position,
            damage.what
        ))),
    }
}

/// Whether a file is executable and starts like a program or script.
fn is_program(path: &Path) -> bool {
    let mut begin = [0; 2];
    let read = fs::File::open(path).and_then(|mut file| file.read_exact(&mut begin));
    let executable = path.metadata().is_ok_and(|file| file.mode() & 0o111 != 0);
    executable && read.is_ok() && matches!(&begin, b"\x7fE" | b"#!")
}

/// The process that is still writing a trace: it has the file mapped.
pub(crate) fn writer(trace: &Trace) -> Option<u32> {
    let process = trace.head().process;
    has_mapped(process, trace.path()).then_some(process)
}

fn has_mapped(process: u32, path: &Path) -> bool {
    let maps = fs::read(format!("/proc/{process}/maps"));
    let (Ok(file), Ok(maps)) = (fs::metadata(path), maps) else {
        return false;
    };
    let inode = file.ino().to_string();
    // address, permissions, offset, device, inode, path
    let maps = String::from_utf8_lossy(&maps);
    let maps_file = |line: &str| line.split_ascii_whitespace().nth(4) == Some(&inode);
    maps.lines().any(maps_file)
}

/// The trace cannot be packed yet.
pub(crate) fn still_written(path: &Path, process: u32) -> Failure {
    Failure::unusable(format!(
        "{0}: process {process} is still recording to it; run `cutape pack {0}` after it ends",
        output::shown(path)
    ))
}
