//! The program's own ranges around the calls that findings are about.

use std::collections::{BTreeMap, BTreeSet};

use cutape_analyzer::Finding;
use cutape_format::{MarkedRange, Trace};

use crate::call_set::Markers;
use crate::failure::Failure;

/// Sets the ranges in findings of a trace. Reads its calls again if there are both.
pub(super) fn set_ranges(trace: &Trace, findings: &mut [Finding]) -> Result<(), Failure> {
    if findings.is_empty() || !trace.has_markers() {
        return Ok(());
    }
    let ranges = Markers::of(trace).ranges;
    let mut wanted = BTreeSet::new();
    for finding in &*findings {
        wanted.extend(finding.call.as_ref().map(|call| call.index));
        wanted.extend(finding.objects.iter().map(|object| object.created_call));
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
        if let Some(call) = &mut finding.call {
            call.ranges = names_of(call.index);
        }
        for object in &mut finding.objects {
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
