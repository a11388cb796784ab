//! Finds the call that other input data come from.

use std::ops::Range;

use cutape_analyzer::decode::function_of;
use cutape_diff::{Aligned, Kind};
use cutape_format::Trace;
use cutape_model::Operands;
use cutape_registry::Family;

/// Kinds in which a copy or a memset that writes something else differs.
const GIVEN: [Kind; 2] = [Kind::Data, Kind::Argument];

/// The call of A whose data reached one of these addresses before a call, and differ from those of
/// B. Copies are followed, launches are not: those before the first difference write the same.
pub(crate) fn origin(
    trace: &Trace,
    aligned: &Aligned,
    (wanted, before): (&[Range<u64>], u64),
) -> Option<(u64, Vec<Kind>)> {
    let mut differing: Vec<(Range<u64>, u64)> = Vec::new();
    for call in trace.calls().take_while(|call| call.index < before) {
        let Some(function) = function_of(call.signature) else {
            continue;
        };
        if !matches!(function.family, Family::Copy(_) | Family::Memset) || !call.succeeded() {
            continue;
        }
        let operands = Operands::of(function, &call);
        let kinds = aligned.kinds.get(&call.index);
        let is_other = kinds.is_some_and(|kinds| kinds.iter().any(|kind| GIVEN.contains(kind)));
        let own = is_other.then_some(call.index);
        let from = own.or_else(|| operands.reads().find_map(|read| last(&differing, &read)));
        for written in operands.writes() {
            let is_covered =
                |range: &Range<u64>| written.start <= range.start && range.end <= written.end;
            differing.retain(|(range, _)| !is_covered(range));
            differing.extend(from.map(|from| (written, from)));
        }
    }
    let call = wanted.iter().find_map(|range| last(&differing, range))?;
    Some((call, aligned.kinds.get(&call).cloned().unwrap_or_default()))
}

/// The last of these that overlaps a range.
fn last(differing: &[(Range<u64>, u64)], range: &Range<u64>) -> Option<u64> {
    let overlaps = |other: &Range<u64>| other.start < range.end && range.start < other.end;
    let mut last = differing.iter().rev();
    last.find(|(other, _)| overlaps(other))
        .map(|&(_, call)| call)
}
