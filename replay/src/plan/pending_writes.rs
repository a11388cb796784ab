//! Host memory that enqueued work may have been writing when the recorder looked at it, or when a call
//! read it: there, it is not certain that the program wrote what the recording says.

use std::ops::Range;

use cutape_format::layout::field;
use cutape_format::{Call, Note, Trace};
use cutape_model::{HostWrites, PendingWrite, described_sources, function_of};
use cutape_registry::{CopyOp, Family, GraphOp, Param, Role};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::plan::host_ranges::host_ranges;
use crate::plan::length::length_of;

/// What work may have been writing at the calls that matter.
#[derive(Clone, Debug, Default)]
pub(crate) struct PendingWrites {
    /// By call: at its entry, in memory that it reads or has notes of.
    at_entry: FxHashMap<u64, Vec<PendingWrite>>,
    /// By call that waits: what may still be written when it has returned.
    behind: FxHashMap<u64, Vec<PendingWrite>>,
    /// Calls of work whose end matters.
    marked: FxHashSet<u64>,
    /// By call of work whose end the program may have learned: what it writes. What was there before
    /// matters.
    unproven: FxHashMap<u64, Vec<PendingWrite>>,
    /// By the call that recorded what a copy has written, and the copy: the call since which the
    /// program may have changed it.
    known_since: FxHashMap<(u64, (u32, u64)), u64>,
}

impl PendingWrites {
    /// Reads a trace for it.
    pub(crate) fn of(trace: &Trace) -> Self {
        let mut found = Self::default();
        let mut writes = HostWrites::default();
        for call in trace.calls() {
            writes.enter(&call);
            for bytes in read_before(&call, &writes) {
                found.add_at_entry(&mut writes, &call, bytes, true);
            }
            let noted = noted(&call);
            for (bytes, _) in &noted {
                found.add_at_entry(&mut writes, &call, bytes.clone(), false);
            }
            writes.apply(&call);
            let before = noted.iter().filter(|(_, is_after)| !is_after);
            before.for_each(|(bytes, _)| writes.ask_later(&call, bytes.clone()));
            let brought = brought(&call);
            for &(copy, _) in &brought {
                writes.ask_since(&call, copy);
            }
            let behind = noted.into_iter().filter(|(_, is_after)| *is_after);
            let behind = behind.map(|(bytes, _)| bytes.start);
            for address in behind.chain(brought.iter().map(|&(_, address)| address)) {
                writes.ask_behind(&call, address);
            }
        }
        let answers = writes.answers();
        found.known_since = answers.known;
        for (call, write) in answers.later {
            // No call can know yet that it is complete.
            let write = PendingWrite {
                known_since: None,
                ..write
            };
            found.at_entry.entry(call).or_default().push(write);
        }
        for (call, write) in answers.pending {
            found.mark_known(&write);
            let known = found.behind.entry(call).or_default();
            if !known.contains(&write) {
                known.push(write);
            }
        }
        found
    }

    fn add_at_entry(
        &mut self,
        writes: &mut HostWrites,
        call: &Call<'_>,
        bytes: Range<u64>,
        is_read: bool,
    ) {
        for write in writes.pending_for(call, &bytes) {
            if !write.is_exact || (is_read && !write.is_before) {
                self.marked.insert(write.call);
            }
            self.mark_known(&write);
            let known = self.at_entry.entry(call.index).or_default();
            known.push(within(write, &bytes));
        }
    }

    /// The end of work matters if the program may know of it, and what was there before if the work
    /// writes all bytes.
    fn mark_known(&mut self, write: &PendingWrite) {
        if write.known_since.is_none() {
            return;
        }
        self.marked.insert(write.call);
        if write.is_exact {
            let known = self.unproven.entry(write.call).or_default();
            if !known.iter().any(|known| known.bytes == write.bytes) {
                known.push(write.clone());
            }
        }
    }

    /// What work may have been writing at the entry of a call.
    pub(crate) fn at_entry(&self, call: u64) -> &[PendingWrite] {
        self.at_entry.get(&call).map_or(&[], Vec::as_slice)
    }

    /// What work may still write when a call has returned.
    pub(crate) fn behind(&self, call: u64) -> &[PendingWrite] {
        self.behind.get(&call).map_or(&[], Vec::as_slice)
    }

    /// The call since which the program may have changed what a copy has written, which the call
    /// `recorded` recorded; the copy by its thread, and its number there.
    pub(crate) fn known_since(&self, recorded: u64, copy: (u32, u64)) -> Option<u64> {
        self.known_since.get(&(recorded, copy)).copied()
    }

    /// Whether a call enqueues work whose end matters: it may write anywhere in memory, or the
    /// program may know that it is complete.
    pub(crate) fn is_marked(&self, call: u64) -> bool {
        self.marked.contains(&call)
    }

    /// What the work of a call writes where it matters what was there before.
    pub(crate) fn unproven(&self, call: u64) -> &[PendingWrite] {
        self.unproven.get(&call).map_or(&[], Vec::as_slice)
    }
}

/// The part of a write in some bytes.
fn within(write: PendingWrite, bytes: &Range<u64>) -> PendingWrite {
    let start = write.bytes.start.max(bytes.start);
    let end = write.bytes.end.min(bytes.end);
    PendingWrite {
        bytes: start..end,
        ..write
    }
}

/// The bytes that notes of a call have, and whether they are of after the call.
fn noted(call: &Call<'_>) -> Vec<(Range<u64>, bool)> {
    if !call.has_notes() {
        return Vec::new();
    }
    let bytes = |note| match note {
        Note::HostChanged(note, snapshot) => {
            let length = snapshot.bytes.length().unwrap_or(0);
            let end = note.address.saturating_add(length);
            Some((note.address..end, note.is_after != 0))
        }
        _ => None,
    };
    call.notes().filter_map(bytes).collect()
}

/// The copies whose bytes were recorded when this call had returned, each by thread and number, and
/// where they have written.
fn brought(call: &Call<'_>) -> Vec<((u32, u64), u64)> {
    if !call.has_notes() {
        return Vec::new();
    }
    let address = |note| match note {
        Note::Readback(note, _) => Some(((note.thread, note.number), note.address)),
        _ => None,
    };
    call.notes().filter_map(address).collect()
}

/// The host memory that copies of a call read, or that has what they read; its bytes were recorded
/// before the call.
fn read_before(call: &Call<'_>, writes: &HostWrites) -> Vec<Range<u64>> {
    let Some(function) = function_of(call.signature) else {
        return Vec::new();
    };
    let bytes = |start: u64, length: u64| start..start.saturating_add(length);
    let read = |(position, param): (usize, &Param)| match param.role {
        Role::HostRead(length) => Some(bytes(
            call.argument(position),
            length_of(call, function, length),
        )),
        _ => None,
    };
    let params = function.params.iter().enumerate();
    let mut all: Vec<Range<u64>> = params.filter_map(read).collect();
    match function.family {
        Family::Copy(CopyOp::Unified(copy)) => {
            let source = usize::from(copy.source);
            if call.snapshot(source, field::HOST_BYTES).is_some() {
                let length = call.argument(usize::from(copy.bytes));
                all.push(bytes(call.argument(source), length));
            }
        }
        Family::Graph(GraphOp::Launch) => {
            let ranges = call.snapshot(0, field::HOST_RANGES);
            let ranges = ranges.and_then(|snapshot| snapshot.bytes.inline());
            for range in host_ranges(ranges.unwrap_or_default()) {
                let ends = range.rows.iter().map(|&(row, length)| row + length as u64);
                if range.is_source {
                    let end = ends.max().unwrap_or(range.address);
                    all.push(range.address..end);
                }
            }
        }
        _ => {
            let described = described_sources(function, call).into_iter();
            all.extend(described.filter_map(|source| writes.shared_around(source)));
            all.sort_unstable_by_key(|bytes| (bytes.start, bytes.end));
            all.dedup();
        }
    }
    all.retain(|bytes| !bytes.is_empty());
    all
}
