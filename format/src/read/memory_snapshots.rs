//! The snapshots of device memory that a trace has.

use std::collections::{BTreeMap, HashSet};

use crate::layout::{MemorySnapshotNote, memory_snapshot, record_kind};
use crate::read::call::Call;
use crate::read::note::Note;
use crate::read::record::{Enter, records};
use crate::read::trace::Trace;

/// The fact that says that there may be some.
const MEMORY: &str = "memory";
/// The fact that says that launches may have what their memory held.
const DEEP: &str = "deep";

/// When device memory was read. Times are those at which calls were entered, in ticks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemorySnapshots {
    /// The snapshots that were taken and count, by number.
    pub taken: BTreeMap<u64, u64>,
    /// When one was last due and could not be taken; 0: never.
    pub missed: u64,
    /// For how long calls were kept waiting for them in all.
    pub nanoseconds: u64,
}

impl Trace {
    /// Whether its recorder was asked for snapshots of device memory.
    pub fn may_have_memory_snapshots(&self) -> bool {
        self.meta_value(MEMORY).is_some()
    }

    /// Whether its recorder was asked for inputs and outputs of some launches: the MEMORY and DIGEST
    /// notes of a call are then about the memory that it reaches.
    pub fn has_deep_launches(&self) -> bool {
        self.meta_value(DEEP).is_some()
    }

    /// The snapshots of device memory, found without reading the calls. What a damaged chunk had is
    /// missing.
    pub fn memory_snapshots(&self) -> MemorySnapshots {
        let mut snapshots = MemorySnapshots::default();
        if !self.may_have_memory_snapshots() {
            return snapshots;
        }
        let mut void = HashSet::new();
        for thread in 0..self.thread_count() as u32 {
            let mut entered = 0;
            for &chunk in self.thread_chunks(thread) {
                let Ok(body) = self.load(chunk) else { continue };
                for (_, head, record) in records(&body) {
                    if record_kind::is_enter(head.kind) {
                        let function = self.signatures.function(head.function);
                        let enter = Enter::read(function, self.head().start_ticks, head, record);
                        entered = enter.map_or(entered, |enter| enter.head.ticks);
                    } else if head.is_note()
                        && let Note::MemorySnapshot(note) = Note::read(head.function, record)
                    {
                        snapshots.nanoseconds += note.nanoseconds;
                        match note.state {
                            memory_snapshot::TAKEN => {
                                _ = snapshots.taken.insert(note.number, entered)
                            }
                            memory_snapshot::VOID => _ = void.insert(note.number),
                            _ => snapshots.missed = snapshots.missed.max(entered),
                        }
                    }
                }
            }
        }
        snapshots.taken.retain(|number, _| !void.contains(number));
        snapshots
    }
}

/// What a call says about snapshots of memory.
pub(crate) fn snapshot_notes(call: &Call<'_>) -> impl Iterator<Item = MemorySnapshotNote> {
    call.notes().filter_map(|note| match note {
        Note::MemorySnapshot(note) => Some(note),
        _ => None,
    })
}
