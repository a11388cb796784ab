//! Opens the trace that a verb reads.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use cutape_format::{Damage, Trace, writer};
use quick_junit::{NonSuccessKind, TestCaseStatus};
use serde::Serialize;

pub use cutape_render::Completeness;

use crate::failure::Failure;
use crate::output;
use crate::private_folder::PrivateFolder;

/// Opens an undamaged trace and checks that every call's function is in its signature table.
pub fn open(path: &Path) -> Result<Trace, Failure> {
    let trace = open_with(path, Trace::open)?;
    known_functions(&trace, trace.unknown_function().as_ref())?;
    Ok(trace)
}

/// Opens a trace for a walk over all calls, after which the caller uses [`known_functions`].
pub fn open_for_walk(path: &Path) -> Result<Trace, Failure> {
    open_with(path, Trace::open)
}

/// Like [`open_for_walk`], in constant time for a packed trace.
pub fn open_indexed(path: &Path) -> Result<Trace, Failure> {
    open_with(path, Trace::open_indexed)
}

/// The traces of a folder, by name.
pub fn traces_of(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
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
    let trace = open(path).map_err(|error| match error {
        cutape_format::Error::NotATrace { .. } if is_program(path) => Failure::unusable(format!(
            "not a trace but a program: {0}; record it with `cutape record -- {0}`",
            path.display()
        )),
        error => error.into(),
    })?;
    say_what_is_missing(&trace);
    Ok(trace)
}

/// Says first if the program is still running, or the recording lacks something.
pub fn say_what_is_missing(trace: &Trace) {
    let state = Completeness::of(trace);
    for line in state.lines() {
        message!("{}: {}", trace.path().display(), output::printable(&line));
    }
}

/// The test case of JUnit reports that a recording which ended early does not pass.
pub const RECORDING_IS_COMPLETE: &str = "recording-is-complete";

/// That the recording ended early, as the result of the test case [`RECORDING_IS_COMPLETE`].
pub fn junit_status(state: &Completeness, is_allowed: bool) -> Option<TestCaseStatus> {
    let line = state.end_line()?;
    let mut status = match is_allowed {
        true => TestCaseStatus::skipped(),
        false => TestCaseStatus::non_success(NonSuccessKind::Error),
    };
    status.set_message(line);
    Some(status)
}

/// A report in JSON, and whether its trace has all calls.
#[derive(Serialize)]
pub struct WithState<'a, R> {
    #[serde(flatten)]
    report: &'a R,
    #[serde(flatten)]
    state: &'a Completeness,
}

impl<'a, R> WithState<'a, R> {
    /// A report with the state of its trace.
    pub fn new(report: &'a R, state: &'a Completeness) -> Self {
        Self { report, state }
    }
}

/// A packed copy of a trace that a program is still recording to, as it was at one moment, for
/// verbs whose child processes read it as well. Deleted when it is dropped.
#[derive(Debug)]
pub struct FrozenTrace {
    /// The copy.
    pub path: PathBuf,
    _folder: PrivateFolder,
}

impl FrozenTrace {
    /// `None` if no process is recording to the trace.
    pub fn of(path: &Path) -> Result<Option<Self>, Failure> {
        if writer(path).is_none() {
            return Ok(None);
        }
        let trace = open_with(path, Trace::open)?;
        let folder = PrivateFolder::create("frozen")?;
        let frozen = folder.path(path.file_name().unwrap_or(path.as_os_str()));
        cutape_format::pack(&trace, &frozen, &[], &[]).map_err(|error| {
            Failure::unusable(format!(
                "cannot copy the trace, which is still being recorded, to {}: {error}; set TMPDIR",
                frozen.display()
            ))
        })?;
        Ok(Some(Self {
            path: frozen,
            _folder: folder,
        }))
    }
}

/// Fails if a call's function is missing from the trace's signature table.
pub fn known_functions(trace: &Trace, unknown: Option<&Damage>) -> Result<(), Failure> {
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
pub fn is_repaired(trace: &Trace) -> bool {
    trace.meta_value("repair.0").is_some()
}

/// Fails at the first damage, unless the trace was repaired.
pub fn expect_undamaged(trace: &Trace, damage: &[Damage]) -> Result<(), Failure> {
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
    let is_executable = |file: &fs::Metadata| file.is_file() && file.mode() & 0o111 != 0;
    let mut begin = [0; 2];
    path.metadata().is_ok_and(|file| is_executable(&file))
        && fs::File::open(path).is_ok_and(|mut file| file.read_exact(&mut begin).is_ok())
        && matches!(&begin, b"\x7fE" | b"#!")
}

/// The trace cannot be packed yet.
pub fn still_written(path: &Path, process: u32) -> Failure {
    Failure::unusable(format!(
        "{0}: process {process} is still recording to it; run `cutape pack {0}` after it ends",
        output::shown(path)
    ))
}
