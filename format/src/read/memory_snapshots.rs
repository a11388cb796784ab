//! The snapshots of device memory that a trace has.

use std::collections::{BTreeMap, HashSet};

use crate::layout::{MemorySnapshotNote, memory_snapshot};
use crate::read::call::Call;
use crate::read::error::Error;
use crate::read::note::Note;
use crate::read::trace::Trace;

/// The fact that says that there may be some.
const MEMORY: &str = "memory";

/// When device memory was read. Times are those at which calls were entered, in ticks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemorySnapshots {
    /// The snapshots that were taken and count, by number.
    pub taken: BTreeMap<u64, u64>,
    /// When one was last due and could not be taken; 0: never.
    pub missed: u64,
}

impl Trace {
    /// Whether its recorder was asked for snapshots of device memory.
    pub fn may_have_memory_snapshots(&self) -> bool {
        self.meta_value(MEMORY).is_some()
    }

    /// The snapshots of device memory.
    ///
    /// # Errors
    /// Damage of the trace.
    pub fn memory_snapshots(&self) -> Result<MemorySnapshots, Error> {
        let mut snapshots = MemorySnapshots::default();
        let mut void = HashSet::new();
        if !self.may_have_memory_snapshots() {
            return Ok(snapshots);
        }
        self.walk().run(|call| {
            for note in snapshot_notes(call) {
                match note.state {
                    memory_snapshot::TAKEN => {
                        snapshots.taken.insert(note.number, call.ticks);
                    }
                    memory_snapshot::VOID => _ = void.insert(note.number),
                    _ => snapshots.missed = snapshots.missed.max(call.ticks),
                }
            }
            Ok::<_, Error>(())
        })?;
        let counts = |number: &u64, _: &mut u64| !void.contains(number);
        snapshots.taken.retain(counts);
        Ok(snapshots)
    }
}

/// What a call says about snapshots of memory.
pub(crate) fn snapshot_notes(call: &Call<'_>) -> impl Iterator<Item = MemorySnapshotNote> {
    call.notes().filter_map(|note| match note {
        Note::MemorySnapshot(note) => Some(note),
        _ => None,
    })
}
