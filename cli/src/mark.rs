//! `cutape mark`: puts a mark into a recording, from outside the program.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::process::ExitCode;

use cutape_format::{LONGEST_MARK, Trace, append_mark, recorded_process};
use cutape_registry::RecorderSetting;

use cutape_maps::mappings;
use cutape_terminal::clock;
use cutape_terminal::failure::Failure;

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
    if text.is_empty() || text.len() > LONGEST_MARK {
        return Err(Failure::unusable(format!(
            "the text of a mark has 1 to {LONGEST_MARK} bytes, this one {}",
            text.len()
        )));
    }
    let path = match arguments.pid {
        Some(process) => trace_of(process, &format!("--pid {process}"))?,
        None => own_trace()?,
    };
    let trace = Trace::follow(&path)?;
    let process = trace.writer().ok_or_else(|| {
        Failure::unusable(format!(
            "{}: no process is recording to it any more",
            path.display()
        ))
    })?;
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
        Some(_) => Ok(ExitCode::SUCCESS),
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

/// The trace that a process has mapped to write it; `given` is how the user names it.
pub(crate) fn trace_of(process: u32, given: &str) -> Result<PathBuf, Failure> {
    let maps = fs::read(format!("/proc/{process}/maps")).map_err(|error| {
        Failure::unusable(match error.kind() {
            io::ErrorKind::NotFound => format!("{given}: no such process"),
            _ => format!("{given}: {error}"),
        })
    })?;
    let mut traces: Vec<(PathBuf, u32)> = Vec::new();
    let paths = mappings(&maps).map(|mapping| mapping.path);
    for path in paths.filter(|path| path.starts_with(b"/")) {
        // In a container the path is the container's.
        let root = format!("/proc/{process}/root");
        let inside = PathBuf::from(OsString::from_vec([root.as_bytes(), path].concat()));
        for path in [PathBuf::from(OsStr::from_bytes(path)), inside] {
            if let Some(recorded) = recorded_process(&path) {
                if traces.iter().all(|(known, _)| *known != path) {
                    traces.push((path, recorded));
                }
                break;
            }
        }
    }
    let numbers = numbers_of(process);
    // A forked process keeps its parent's trace mapped.
    let own = traces
        .iter()
        .find(|(_, recorded)| numbers.contains(recorded));
    own.map(|(path, _)| path.clone()).ok_or_else(|| {
        Failure::unusable(format!(
            "{given}: the process is not being recorded, or has not called the driver yet"
        ))
    })
}

/// The numbers of a process: here, and in the namespaces that it is in.
fn numbers_of(process: u32) -> Vec<u32> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let inner = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    let inner = inner.unwrap_or_default().split_whitespace();
    inner
        .filter_map(|number| number.parse().ok())
        .chain([process])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_have_their_numbers() {
        assert!(numbers_of(std::process::id()).contains(&std::process::id()));
        assert_eq!(numbers_of(u32::MAX), [u32::MAX]);
    }
}
