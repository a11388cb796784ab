//! Writing a part of a trace.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use cutape_format::{
    AddedMemory, CallChange, CallSelection, PackSummary, Provenance, Ranges, Trace, pack_calls,
};
use cutape_model::Needs;

use crate::part::Part;
use crate::state::MemoryState;

/// Writes a part of a trace to `target`, which must not exist; some of its calls may change. With a
/// `state`, memory holds that where the part begins. Calls `progress` for each call of the trace.
///
/// # Errors
/// As [`pack_calls`]; errors of reading the state.
pub fn write(
    trace: &Trace,
    (part, needs): (&Part, &Needs),
    provenance: &Provenance,
    state: Option<&MemoryState>,
    target: &Path,
    changes: &BTreeMap<u64, CallChange>,
    progress: &dyn Fn(),
) -> io::Result<PackSummary> {
    let is_kept = |index: u64| part.contains(index);
    let keeps = |index: u64| {
        progress();
        is_kept(index)
    };
    let keeps_noted = |call: u64, place: u64| needs.noted_memory(call, place).is_some_and(is_kept);
    // A state tells anew what earlier notes told, unless calls before it need those.
    let is_superseded = state.is_some() && !part.reads_memory_before_start(needs);
    let selection = CallSelection {
        keeps: &keeps,
        keeps_host_memory: &keeps_noted,
        keeps_memory: &|call, note| {
            let place = match note.owner {
                0 => note.address,
                owner => owner,
            };
            !(is_superseded && call <= part.start) && keeps_noted(call, place)
        },
        changes,
        gap: None,
    };
    let pieces = state.map(MemoryState::pieces).transpose()?;
    let state = state.zip(pieces.as_ref());
    let read = |position| match state {
        Some((state, pieces)) => state.bytes(pieces, position),
        None => Ok(Vec::new()),
    };
    let memory = state.map(|(_, pieces)| AddedMemory {
        call: part.first(),
        pieces: &pieces.list,
        read: &read,
    });
    let meta = provenance.entries();
    pack_calls(trace, target, &meta, &selection, memory.as_ref())
}

/// What a part says about its source. `calls` are the indices of its calls there, `of` is their
/// number in the source.
pub(crate) fn provenance(
    source: &Trace,
    hash: String,
    choice: String,
    (calls, of): (Ranges, u64),
) -> Provenance {
    let path = source.path();
    let name = path.file_name().unwrap_or(path.as_os_str());
    Provenance {
        source: name.to_string_lossy().into_owned(),
        hash,
        choice,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        calls,
        of,
        changed: Ranges::default(),
        // The contents of memory that the source has are still there.
        state: Provenance::of(source).and_then(|source| source.state),
    }
}
