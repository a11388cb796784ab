//! The program's own ranges around the calls that findings are about.

use std::collections::{BTreeMap, BTreeSet};

use cutape_analyzer::{Finding, RecordedProcess};
use cutape_format::{MarkedRange, Trace};

use cutape_calls::Markers;
use cutape_terminal::failure::Failure;

/// Sets the ranges in findings of a trace; in those about several processes, of the calls and
/// objects of `process`. Reads the trace's calls again if there are both.
pub(super) fn set_ranges(
    trace: &Trace,
    findings: &mut [Finding],
    process: Option<&RecordedProcess>,
) -> Result<(), Failure> {
    if findings.is_empty() || !trace.has_markers() {
        return Ok(());
    }
    let ranges = Markers::of(trace).ranges;
    let is_of_trace = |of: &Option<RecordedProcess>| process.is_none() || of.as_ref() == process;
    let mut wanted = BTreeSet::new();
    for finding in &mut *findings {
        let calls = finding
            .calls_mut()
            .filter(|call| is_of_trace(&call.process));
        wanted.extend(calls.map(|call| call.index));
        let objects = finding.objects.iter();
        let objects = objects.filter(|object| is_of_trace(&object.process));
        wanted.extend(objects.map(|object| object.created_call));
    }
    let mut names = BTreeMap::new();
    trace.walk().run(|call| {
        if wanted.contains(&call.index) {
            names.insert(call.index, names_at(&ranges, call.ticks));
        }
        Ok::<_, Failure>(())
    })?;
    let names_of = |call: u64| names.get(&call).cloned().unwrap_or_default();
    for finding in findings {
        for call in finding
            .calls_mut()
            .filter(|call| is_of_trace(&call.process))
        {
            call.ranges = names_of(call.index);
        }
        let objects = finding.objects.iter_mut();
        for object in objects.filter(|object| is_of_trace(&object.process)) {
            object.created_ranges = names_of(object.created_call);
        }
    }
    Ok(())
}

/// The names of the ranges at a moment, of all threads, in the order of their begin.
fn names_at(ranges: &[MarkedRange], ticks: u64) -> Vec<String> {
    let around = ranges.iter().filter(|range| range.contains(ticks));
    around.map(|range| range.name.clone()).collect()
}
