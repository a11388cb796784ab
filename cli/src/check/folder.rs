//! `cutape check FOLDER`: each trace by itself, then the processes against each other.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use cutape_analyzer::ranks::{CheckedProcess, ProcessEnd, RankCheck, RankTraces};
use cutape_analyzer::{RecordedProcess, TraceContext};
use cutape_format::{Call, Cursor, Trace};
use cutape_model::ExchangeBuilder;

use super::check_file;
use super::filter::FindingFilter;
use super::ranges::set_ranges;
use crate::merged::{Merged, have_common_clock};
use cutape_symbols::Resolver;
use cutape_symbols::SymbolContext;
use cutape_terminal::failure::Failure;
use cutape_terminal::input;
use cutape_terminal::message;
use cutape_terminal::progress::Progress;

/// A trace of the folder.
struct Found {
    path: PathBuf,
    name: RecordedProcess,
}

/// Checks the traces of a folder; false if one of them could not be checked.
pub(super) fn check_folder(folder: &Path, filter: &mut FindingFilter) -> Result<bool, Failure> {
    if filter.proven.is_some() {
        let folder = folder.display();
        return Err(Failure::unusable(format!(
            "--proven is about one trace, and {folder} is a folder: check its traces one by one"
        )));
    }
    let mut is_complete = true;
    let mut traces = Vec::new();
    let mut processes = Vec::new();
    for Found { path, name } in found(folder)? {
        let mut exchanges = ExchangeBuilder::default();
        filter.set_process(Some(name.clone()));
        match check_file(&path, filter, &mut |call| exchanges.observe(call)) {
            Ok(trace) => {
                processes.push(CheckedProcess {
                    name: name.clone(),
                    end: end_of(&trace),
                    exchanges: exchanges.finish(),
                });
                traces.push((trace, name));
            }
            // The others are checked all the same.
            Err(failure) => {
                filter.discard();
                message!("{}", failure.message);
                is_complete = false;
            }
        }
    }
    filter.set_process(None);
    check_together(&traces, processes, filter)?;
    Ok(is_complete)
}

/// The traces of a folder, by rank.
fn found(folder: &Path) -> Result<Vec<Found>, Failure> {
    let mut found = Vec::new();
    for path in input::traces_of(folder)? {
        // What is wrong with it is found again when it is checked.
        let rank = Trace::open_indexed(&path).ok().and_then(|trace| {
            let mut keys = ["rank", "rank.local"].into_iter();
            keys.find_map(|key| trace.meta_value(key)?.parse().ok())
        });
        let trace = path.file_name().unwrap_or(path.as_os_str());
        let trace = trace.to_string_lossy().into_owned();
        let name = RecordedProcess { trace, rank };
        found.push(Found { path, name });
    }
    found.sort_by_key(|found| (found.name.rank.unwrap_or(u64::MAX), found.path.clone()));
    // Children of a rank inherit its number.
    let ranks: Vec<Option<u64>> = found.iter().map(|found| found.name.rank).collect();
    for found in &mut found {
        let same = ranks.iter().filter(|rank| **rank == found.name.rank);
        found.name.rank = found.name.rank.filter(|_| same.count() == 1);
    }
    Ok(found)
}

/// Checks processes against each other, with their calls in the order of their common clock.
fn check_together(
    traces: &[(Trace, RecordedProcess)],
    processes: Vec<CheckedProcess>,
    filter: &mut FindingFilter,
) -> Result<(), Failure> {
    let mut check = RankCheck::new(processes);
    if !check.is_needed() {
        return Ok(());
    }
    if !have_common_clock(traces.iter().map(|(trace, _)| trace)) {
        message!(
            "not checked: what these processes do to each other's objects; their traces \
             do not share a clock, as those of several machines"
        );
        return Ok(());
    }
    let resolvers: Vec<Resolver> = traces.iter().map(|_| Resolver::default()).collect();
    let contexts: Vec<SymbolContext<'_>> = traces
        .iter()
        .zip(&resolvers)
        .map(|((trace, _), resolver)| SymbolContext::new(trace, resolver))
        .collect();
    let all = traces.iter().map(|(trace, _)| trace);
    let mut progress = Progress::over_calls("checking ranks together", all);
    let mut merged = Merged::of(traces.iter().map(|(trace, _)| trace));
    while let Some((process, call)) = merged.next() {
        if let Some(context) = contexts.get(process) {
            check.push(process, context, &call);
        }
        progress.step();
    }
    drop(progress);
    let mut findings = check.finish(&Traces {
        traces,
        contexts: &contexts,
    });
    for (trace, name) in traces {
        set_ranges(trace, &mut findings, Some(name))?;
    }
    filter.add(findings);
    filter.settle(HashMap::new());
    Ok(())
}

/// How a process ended, unless its trace is a part of a recording or still grows.
fn end_of(trace: &Trace) -> ProcessEnd {
    let number = |key| trace.meta_value(key)?.parse::<i64>().ok();
    let is_part = input::is_repaired(trace)
        || trace.meta().iter().any(|(key, _)| key.starts_with("cut."))
        || trace.writer().is_some()
        // Of what a launcher starts, `record` sees only how the launcher ended.
        || number("exit.process") != Some(i64::from(trace.head().process));
    match (number("exit.signal"), number("exit.status")) {
        _ if is_part => ProcessEnd::Unknown,
        (Some(signal), _) => ProcessEnd::Killed(signal),
        (None, Some(status)) => ProcessEnd::Exited(status),
        (None, None) => ProcessEnd::Unknown,
    }
}

/// The traces, for a second look.
struct Traces<'t> {
    traces: &'t [(Trace, RecordedProcess)],
    contexts: &'t [SymbolContext<'t>],
}

impl RankTraces for Traces<'_> {
    fn context(&self, process: usize) -> Option<&dyn TraceContext> {
        Some(self.contexts.get(process)?)
    }

    fn each_call(&self, process: usize, each: &mut dyn FnMut(&Call<'_>) -> bool) {
        let Some((trace, _)) = self.traces.get(process) else {
            return;
        };
        let mut cursor = Cursor::new();
        while cursor.next(trace).is_some_and(|call| each(&call)) {}
    }
}
