//! Traces that processes are recording now.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use cutape_format::recorded_process;
use cutape_maps::mappings;
use cutape_terminal::failure::Failure;

/// The trace that a process has mapped to write it.
pub(crate) fn trace_of(process: u32) -> Result<PathBuf, Failure> {
    let maps = fs::read(format!("/proc/{process}/maps")).map_err(|error| {
        Failure::unusable(match error.kind() {
            io::ErrorKind::NotFound => format!("--pid {process}: no such process"),
            _ => format!("--pid {process}: {error}"),
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
            "--pid {process}: the process is not being recorded, or has not called the driver yet"
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

/// No process writes to that trace.
pub(crate) fn not_recorded(path: &Path) -> Failure {
    Failure::unusable(format!(
        "{}: no process is recording to it any more",
        path.display()
    ))
}

/// A process and all that descend from it.
pub(crate) fn descendants(process: u32) -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let parents: Vec<(u32, u32)> = numbers
        .filter_map(|number| Some((number, parent_of(number)?)))
        .collect();
    let mut all = vec![process];
    let mut at = 0;
    while let Some(&parent) = all.get(at) {
        let children = parents.iter().filter(|(_, of)| *of == parent);
        let new: Vec<u32> = children
            .map(|(child, _)| *child)
            .filter(|child| !all.contains(child))
            .collect();
        all.extend(new);
        at += 1;
    }
    all
}

fn parent_of(process: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
    line.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_descend_from_their_parents() {
        let own = std::process::id();
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let found = descendants(std::os::unix::process::parent_id());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(found.contains(&own) && found.contains(&child.id()));
        assert_eq!(descendants(u32::MAX), [u32::MAX]);
    }

    #[test]
    fn processes_have_their_numbers() {
        assert!(numbers_of(std::process::id()).contains(&std::process::id()));
        assert_eq!(numbers_of(u32::MAX), [u32::MAX]);
    }
}
