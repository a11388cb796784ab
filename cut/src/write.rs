//! Writing a part of a trace.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use cutape_format::{CallChange, CallSelection, PackSummary, Trace, pack_calls};
use cutape_model::Needs;

use crate::part::Part;
use crate::provenance::Provenance;

/// Writes a part of a trace to `target`, which must not exist; some of its calls may change.
///
/// # Errors
/// As [`pack_calls`].
pub fn write(
    trace: &Trace,
    needs: &Needs,
    part: &Part,
    provenance: &Provenance,
    target: &Path,
    changes: &BTreeMap<u64, CallChange>,
) -> io::Result<PackSummary> {
    let keeps = |index: u64| part.calls.get(index as usize) == Some(&true);
    let selection = CallSelection {
        keeps: &keeps,
        keeps_host_memory: &|call, address| needs.host_memory(call, address).is_some_and(keeps),
        changes,
    };
    pack_calls(trace, target, &provenance.entries(), &selection)
}
