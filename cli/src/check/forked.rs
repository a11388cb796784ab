//! Traces of children that a process forked after it had initialized the driver: what such a child
//! calls is a mistake of its parent, whose own trace shows nothing of it.

use std::path::{Path, PathBuf};

use cutape_analyzer::RecordedProcess;
use cutape_format::Trace;

use super::check_file;
use super::filter::FindingFilter;
use cutape_terminal::failure::Failure;
use cutape_terminal::input;

/// Checks the traces of the forked children of a trace that lie beside it.
pub(super) fn check_children(
    path: &Path,
    parent: &Trace,
    filter: &mut FindingFilter,
) -> Result<(), Failure> {
    for child in children(path, parent) {
        let trace = child.file_name().unwrap_or(child.as_os_str());
        let trace = trace.to_string_lossy().into_owned();
        filter.set_process(Some(RecordedProcess { trace, rank: None }));
        check_file(&child, filter, &mut |_| {})?;
    }
    filter.set_process(None);
    Ok(())
}

/// `record` names them `STEM.PID.cutape` beside `STEM.cutape`.
fn children(path: &Path, parent: &Trace) -> Vec<PathBuf> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let stem = path.file_stem().map(|stem| stem.to_string_lossy());
    let Some((traces, stem)) = input::traces_of(folder.unwrap_or(Path::new(".")))
        .ok()
        .zip(stem)
    else {
        return Vec::new();
    };
    let process = parent.head().process.to_string();
    let beside = traces.into_iter().filter(|other| {
        let name = other.file_stem().map(|name| name.to_string_lossy());
        name.is_some_and(|name| {
            let rest = name
                .strip_prefix(&*stem)
                .and_then(|rest| rest.strip_prefix('.'));
            rest.is_some_and(|number| number.bytes().all(|digit| digit.is_ascii_digit()))
        })
    });
    let is_child = |trace: &Trace| {
        trace.meta_value("fork.after-init").is_some()
            && trace.meta_value("parent") == Some(&*process)
    };
    beside
        .filter(|other| Trace::open_indexed(other).is_ok_and(|trace| is_child(&trace)))
        .collect()
}
