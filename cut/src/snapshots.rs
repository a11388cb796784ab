//! Where a window of a recording begins so that it has what memory held there.

use std::collections::{BTreeMap, BTreeSet};

use cutape_format::layout::memory_snapshot;
use cutape_format::{Call, MemorySnapshots, Note};
use cutape_model::{MemoryGaps, gap_of};

/// When a window begins that has the calls from `from` to `last`: at the latest snapshot of memory
/// before. If later ones could not be taken, that makes it no more than twice as long. All are ticks.
pub fn start_at_snapshot(snapshots: &MemorySnapshots, from: u64, last: u64) -> u64 {
    let before = snapshots.taken.values().copied();
    let Some(taken) = before.filter(|&taken| taken <= from).max() else {
        return from;
    };
    let is_near = from - taken <= last.saturating_sub(from);
    match is_near || snapshots.missed <= taken {
        true => taken,
        false => from,
    }
}

/// The calls of a window whose snapshots of memory a replay needs: the first, and the first after
/// other gaps.
#[derive(Debug)]
pub(crate) struct NeededSnapshots {
    gaps: MemoryGaps,
    /// Call indices by number.
    calls: BTreeMap<u64, u64>,
    /// Launches that have what they reach.
    deep: BTreeSet<u64>,
}

impl NeededSnapshots {
    /// Of a window before which calls are missing.
    pub(crate) fn new() -> Self {
        let mut gaps = MemoryGaps::default();
        gaps.apply(&Default::default());
        Self {
            gaps,
            calls: BTreeMap::new(),
            deep: BTreeSet::new(),
        }
    }

    /// Takes the next call of the window.
    pub(crate) fn push(&mut self, call: &Call<'_>) {
        if !call.has_notes() {
            return;
        }
        if let Some(gap) = gap_of(call) {
            self.gaps.apply(&gap);
        }
        let mut has_memory = false;
        let mut is_of_all = false;
        for note in call.notes() {
            has_memory |= matches!(note, Note::Memory(..));
            let Note::MemorySnapshot(note) = note else {
                continue;
            };
            is_of_all = true;
            match note.state {
                memory_snapshot::TAKEN if self.gaps.lack_memory() => {
                    self.calls.insert(note.number, call.index);
                    self.gaps.know_memory(call.ticks);
                }
                memory_snapshot::VOID if self.calls.remove(&note.number).is_some() => {
                    self.gaps = Self::new().gaps;
                }
                _ => {}
            }
        }
        if has_memory && !is_of_all {
            self.deep.insert(call.index);
        }
    }

    pub(crate) fn contains(&self, call: u64) -> bool {
        self.calls.values().any(|&needed| needed == call) || self.deep.contains(&call)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cutape_format::layout::{GapNote, MemorySnapshotNote, note_kind};
    use cutape_format::{NewCall, TraceBuilder};
    use cutape_render::test_trace;

    #[test]
    fn windows_begin_at_snapshots_that_are_not_too_old() {
        let snapshots = |missed| MemorySnapshots {
            taken: BTreeMap::from([(1, 100), (2, 200), (4, 300)]),
            missed,
            nanoseconds: 0,
        };
        for (missed, from, last, expected) in [
            (0, 50, 1000, 50),
            (0, 100, 1000, 100),
            (0, 299, 1000, 200),
            (0, 350, 399, 300),
            (0, 9000, 9001, 300),
            (250, 350, 399, 300),
            (340, 350, 400, 300),
            (340, 350, 399, 350),
        ] {
            let start = start_at_snapshot(&snapshots(missed), from, last);
            assert_eq!(start, expected, "{missed}: {from}..{last}");
        }
        assert_eq!(start_at_snapshot(&MemorySnapshots::default(), 7, 9), 7);
    }

    #[test]
    fn snapshots_are_needed_where_calls_are_missing() {
        let snapshot = |state, number| MemorySnapshotNote {
            number,
            state,
            ..MemorySnapshotNote::default()
        };
        let taken = |number| snapshot(memory_snapshot::TAKEN, number);
        let void = |number| snapshot(memory_snapshot::VOID, number);
        // Ticks of a gap's end, and a snapshot, of each call; its own ticks are 100, 200 and so on.
        let calls: [(Option<u64>, Option<MemorySnapshotNote>); 9] = [
            (None, Some(taken(1))),
            (None, Some(taken(2))),
            (Some(250), None),
            (None, Some(taken(3))),
            // Another thread, in the same pause.
            (Some(250), None),
            (None, Some(taken(4))),
            (Some(650), Some(taken(5))),
            (None, Some(void(5))),
            (None, Some(taken(6))),
        ];
        let mut builder = TraceBuilder::new(cutape_registry::SIGNATURE_TEXT);
        for (index, (resumed, snapshot)) in (1..).zip(calls) {
            builder.at(index * 100).call(NewCall {
                name: "cuInit",
                arguments: &[0],
                ..NewCall::default()
            });
            if let Some(resumed) = resumed {
                let gap = GapNote {
                    calls: 1,
                    resumed,
                    ..GapNote::default()
                };
                builder.note(0, note_kind::GAP, gap, &[]);
            }
            if let Some(snapshot) = snapshot {
                builder.note(0, note_kind::MEMORY_SNAPSHOT, snapshot, &[]);
            }
            builder.leave(0, 0, &[]);
        }
        let trace = test_trace::open(&builder, "cut-needed-snapshots");
        let mut needed = NeededSnapshots::new();
        trace.calls().for_each(|call| needed.push(&call));
        let found: Vec<u64> = (0..9).filter(|&call| needed.contains(call)).collect();
        assert_eq!(found, [0, 3, 8]);
    }
}
