//! The snapshots of device memory that a trace has.

use std::collections::{BTreeMap, HashSet};

use crate::layout::{MemorySnapshotNote, memory_snapshot};
use crate::read::call::Call;
use crate::read::error::Error;
use crate::read::note::Note;
use crate::read::trace::Trace;

/// The fact that says that there may be some.
const MEMORY: &str = "memory";

impl Trace {
    /// The snapshots that were taken and count: when their calls were entered, in ticks, by number.
    ///
    /// # Errors
    /// Damage of the trace.
    pub fn memory_snapshots(&self) -> Result<BTreeMap<u64, u64>, Error> {
        let mut taken = BTreeMap::new();
        let mut void = HashSet::new();
        if self.meta_value(MEMORY).is_none() {
            return Ok(taken);
        }
        self.walk().run(|call| {
            for note in snapshot_notes(call) {
                match note.state {
                    memory_snapshot::TAKEN => _ = taken.insert(note.number, call.ticks),
                    memory_snapshot::VOID => _ = void.insert(note.number),
                    _ => {}
                }
            }
            Ok::<_, Error>(())
        })?;
        taken.retain(|number, _| !void.contains(number));
        Ok(taken)
    }
}

/// What a call says about snapshots of memory.
pub(crate) fn snapshot_notes(call: &Call<'_>) -> impl Iterator<Item = MemorySnapshotNote> {
    call.notes().filter_map(|note| match note {
        Note::MemorySnapshot(note) => Some(note),
        _ => None,
    })
}
