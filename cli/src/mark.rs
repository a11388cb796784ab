//! `cutape mark`: puts a mark into a recording, from outside the program.

use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use cutape_format::{LONGEST_MARK, Trace, append_mark};
use cutape_registry::RecorderSetting;
use cutape_terminal::clock;
use cutape_terminal::failure::Failure;

use crate::live;

/// What `mark` takes.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The process that is being recorded.
    ///
    /// Default: the program that `cutape record` started, for a script that
    /// runs in it.
    #[arg(long, value_name = "PID", verbatim_doc_comment)]
    pid: Option<u32>,
    /// What to say at this moment; `dump`, `info` and --calls show it.
    text: String,
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    // The moment of the mark is when it was asked for.
    let ticks = clock::ticks();
    let text = &arguments.text;
    check(text)?;
    let path = match arguments.pid {
        Some(process) => live::trace_of(process)?,
        None => own_trace()?,
    };
    put(&path, ticks, text)?;
    Ok(ExitCode::SUCCESS)
}

/// Refuses a text that is no mark's.
pub(crate) fn check(text: &str) -> Result<(), Failure> {
    match text.len() {
        1..=LONGEST_MARK => Ok(()),
        length => Err(Failure::unusable(format!(
            "the text of a mark has 1 to {LONGEST_MARK} bytes, this one {length}"
        ))),
    }
}

/// Puts a mark of that moment into a trace that a process is recording.
pub(crate) fn put(path: &Path, ticks: u64, text: &str) -> Result<(), Failure> {
    let trace = Trace::follow(path)?;
    let process = trace.writer().ok_or_else(|| live::not_recorded(path))?;
    if trace.head().clock != 0 {
        return Err(Failure::unusable(format!(
            "{}: this machine has no clock that processes share, so a mark has no place among the \
             calls; let the program mark itself, through NVTX or cutape_mark",
            path.display()
        )));
    }
    append_mark(&trace, ticks, text)
        .map_err(|error| Failure::unusable(format!("{}: {error}", path.display())))?;
    match trace.writer() {
        Some(_) => Ok(()),
        None => Err(Failure::unusable(format!(
            "process {process} has ended meanwhile; the mark may be missing in {}",
            path.display()
        ))),
    }
}

/// The trace of the recording that this process runs in.
fn own_trace() -> Result<PathBuf, Failure> {
    let path = env::var_os(RecorderSetting::Trace.name()).filter(|path| !path.is_empty());
    let path = PathBuf::from(path.ok_or_else(|| {
        Failure::unusable(
            "no recording: this is not run by a program that `cutape record` started; give --pid \
             PID",
        )
    })?);
    match path.exists() {
        true => Ok(path),
        false => Err(Failure::unusable(format!(
            "{}: no such trace: the program has not called the driver yet, or has a rank; give \
             --pid PID",
            path.display()
        ))),
    }
}
