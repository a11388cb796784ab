//! Host memory that the device reads without a copy: what the recorder saw there is put there
//! before the call that used it.
//!
//! A note says what changed, so only bytes that differ from what earlier notes of the allocation
//! said are written: bytes that a kernel still in flight was about to write, here and in the
//! recording, are left to it.

use std::sync::Arc;
use std::time::Duration;

use cutape_format::layout::{HostChangedNote, HostSkippedNote, host_skip};
use cutape_format::{Error, Note, Snapshot};
use cutape_model::PendingWrite;
use cutape_registry::Waits;

use crate::api::buffer::Buffer;
use crate::compare::payload::Payload;
use crate::lent::late_writes::{self, Write};
use crate::measure::timing::Measure;
use crate::objects::skip::Skip;
use crate::place::address::{Found, Range};
use crate::player::{Job, Player};
use crate::report::PutDuringWait;
use crate::restore::found::gaps;
use crate::restore::writer::{WORD, Writer, divide, whole_words};

/// The recorder looks at no longer range.
const LONGEST: u64 = 64 << 20;
/// Among more changed bytes no flags are looked for.
const LONGEST_WITH_FLAGS: u64 = 64 << 10;
/// So many calls after a launch are looked at for what host memory held then.
const AHEAD: u64 = 128;
/// Bytes that are first compared as a whole.
const COMPARED_AT_ONCE: usize = 256;

/// A walk over calls need not go on, or cannot.
struct Ended;

impl From<Error> for Ended {
    fn from(_: Error) -> Self {
        Self
    }
}

impl<'t> Job<'_, 't> {
    /// Puts into place what host memory held before a call, or what it holds `after` one that
    /// waited for the device.
    pub(crate) fn put_host_memory(&mut self, after: bool) {
        for note in self.call.notes() {
            match note {
                Note::HostChanged(note, bytes) if (note.is_after != 0) == after => {
                    self.put_changed(note, &bytes);
                }
                Note::HostSkipped(note) if !after => self.report_skipped(note),
                _ => {}
            }
        }
    }

    /// Before a call that waits for the device: gets ready what host memory held after the wait. In
    /// lockstep only, where nothing frees the memory meanwhile. False if there is nothing.
    pub(crate) fn expect_late_writes(&mut self) -> bool {
        let waits = self.function.waits != Waits::No && self.call.succeeded();
        if !waits || self.lease.is_some() {
            return false;
        }
        let mut writes = Vec::new();
        for note in self.call.notes() {
            if let Note::HostChanged(note, bytes) = note
                && note.is_after != 0
            {
                self.late_writes_of(self.call.index, note, &bytes, &mut writes);
            }
        }
        if writes.is_empty() {
            return false;
        }
        let writers = self.inexact_writers(self.call.index);
        let returned = Measure::returned_at(self.call);
        // The wait may be for other work.
        let recorded = self
            .between(self.call.ticks, returned)
            .max(self.longest_of(&writers, returned));
        self.expect_writes(writes, &writers, recorded);
        true
    }

    /// Before a wait for the work of a call which the program did not wait for then: gets ready what
    /// host memory held that the work can write when the program looked at it next. False if that is
    /// not known.
    pub(crate) fn expect_coming_writes(&mut self) -> bool {
        if self.lease.is_some() {
            return false;
        }
        let own = self.call.index;
        let mut writes = Vec::new();
        let mut found = None;
        let coming = self.trace.walk().calls(own + 1..own + 1 + AHEAD);
        let walked = coming.without_earlier().run(|call| {
            let writers = self.inexact_writers(call.index);
            if call.index <= own || writers.iter().all(|write| write.call != own) {
                return Ok(());
            }
            for note in call.notes() {
                if let Note::HostChanged(note, bytes) = note {
                    self.late_writes_of(call.index, note, &bytes, &mut writes);
                }
            }
            if writes.is_empty() {
                return Ok(());
            }
            found = Some((writers, Measure::returned_at(call)));
            Err(Ended)
        });
        let (Err(Ended), Some((writers, returned))) = (walked, found) else {
            return false;
        };
        let recorded = self.longest_of(&writers, returned);
        self.expect_writes(writes, &writers, recorded);
        true
    }

    /// Has bytes written once these launches stand still, which took at most that long.
    fn expect_writes(&mut self, writes: Vec<Write>, writers: &[PendingWrite], recorded: Duration) {
        let is_shared = writes.iter().any(|write| write.is_shared);
        let others = self.options.peers.clone().filter(|_| is_shared);
        let mut watch = self.lent.launch_marks.watch(writers, recorded, others);
        let api = Arc::clone(&self.api);
        let mut has_entered = false;
        let look = move || {
            if !std::mem::replace(&mut has_entered, true) {
                watch.enter_context(&api);
            }
            watch.look(&api)
        };
        self.player.lent.late_writes.expect(writes, Box::new(look));
    }

    /// Work in flight at the entry of a recorded call that may write anywhere in memory of which
    /// the call has notes.
    fn inexact_writers(&self, call: u64) -> Vec<PendingWrite> {
        let writes = self.plan.pending_writes.at_entry(call).iter();
        writes.filter(|write| !write.is_exact).cloned().collect()
    }

    /// The longest that these launches took at most, if they were complete at that time.
    pub(crate) fn longest_of(&self, writers: &[PendingWrite], end: u64) -> Duration {
        let first = writers
            .iter()
            .map(|write| write.entered)
            .min()
            .unwrap_or(end);
        self.between(first, end)
    }

    fn between(&self, first: u64, end: u64) -> Duration {
        let [first, end] = [first, end].map(|ticks| self.trace.nanoseconds(ticks));
        Duration::from_nanos(end.saturating_sub(first))
    }

    /// After the call: reports what was put while it waited.
    pub(crate) fn withdraw_late_writes(&mut self) {
        let written = self.lent.late_writes.withdraw();
        if written.is_empty() {
            return;
        }
        self.report
            .note("waits for kernels that waited for bytes of host memory, which were put then");
        self.learn_waiting();
        let (state, call) = (&mut **self.player, self.call.index);
        let room = PutDuringWait::KEPT.saturating_sub(state.report.put_during_waits.len());
        for write in written.into_iter().take(room) {
            let live = write.address;
            let mut ranges = state.ranges.all_live();
            let range = ranges.find(|range| {
                range.is_host_memory() && live.wrapping_sub(range.live) < range.length
            });
            let Some(range) = range else { continue };
            let put = PutDuringWait {
                call,
                made: range.made,
                made_by: range.made_by.name.to_owned(),
                offset: live - range.live,
                length: write.new.len() as u64,
                is_shared: write.is_shared,
            };
            state.report.put_during_waits.push(put);
        }
    }

    /// Remembers which kernels were seen waiting, for this replay and the next.
    pub(crate) fn learn_waiting(&mut self) {
        let player = &mut *self.player;
        let learned = player.lent.launch_marks.learn();
        player.report.waiting_launches.extend(learned);
    }

    /// Adds what a note of a call says that host memory held.
    fn late_writes_of(
        &self,
        call: u64,
        note: HostChangedNote,
        snapshot: &Snapshot<'_>,
        writes: &mut Vec<Write>,
    ) {
        let Found::Live(range, _) = self.ranges.find(note.address) else {
            return;
        };
        // What ranks share is only put where no kernel has made it, so it may be long.
        let is_shared = self.sharers(range).is_some();
        let longest = match is_shared {
            true => LONGEST,
            false => LONGEST_WITH_FLAGS,
        };
        // Other long changes are results of kernels.
        if snapshot
            .bytes
            .length()
            .is_none_or(|length| length > longest)
        {
            return;
        }
        let Payload::Here(new) = Payload::of(self.trace, snapshot) else {
            return;
        };
        let known = self.lent.shadows.get(&range.start);
        let Some((_, shadow)) =
            known.filter(|known| range.is_host_memory() && known.0 == range.made)
        else {
            return;
        };
        let offset = (note.address - range.start) as usize;
        let Some(old) = shadow.bytes().get(offset..offset + new.len()) else {
            return;
        };
        let mut runs = differing_runs(old, &new);
        // What a memset or copy in flight writes is the device's.
        let pending = self.plan.pending_writes.at_entry(call);
        runs.retain(|&(at, length)| {
            let bytes = note.address + at as u64..note.address + (at + length) as u64;
            !pending
                .iter()
                .any(|write| write.is_exact && write.overlaps(&bytes))
        });
        if is_shared || late_writes::may_be_flags(&runs) {
            let live = range.live.wrapping_add(offset as u64);
            writes.extend(writes_of(&runs, live, old, &new, is_shared));
        }
    }

    /// The bytes of a range that notes of the call name: offset of the first, behind the last, in
    /// ascending order.
    fn named(&self, range: &Range) -> Vec<(usize, usize)> {
        let named = |note| match note {
            Note::HostChanged(note, snapshot) => {
                let offset = note.address.checked_sub(range.start)?;
                let end = offset.checked_add(snapshot.bytes.length()?)?;
                Some((offset as usize, end as usize))
            }
            _ => None,
        };
        let mut named: Vec<(usize, usize)> = self.call.notes().filter_map(named).collect();
        named.sort_unstable();
        named
    }

    fn put_changed(&mut self, note: HostChangedNote, snapshot: &Snapshot<'t>) {
        let bytes = match self.payload(snapshot) {
            Payload::Here(bytes) => bytes,
            Payload::Left(_, hash) => return self.bytes_are_missing(hash),
            Payload::Unreadable => {
                self.comparer.bytes_comparable = false;
                self.report
                    .note("changes of host memory that the trace has lost: bytes are not compared");
                return;
            }
        };
        let range = match self.ranges.find(note.address) {
            Found::Live(range, _) if is_for_the_host(range) && range.length <= LONGEST => {
                range.clone()
            }
            _ => {
                self.report.note(
                    "changes of host memory that the replay does not have: they were left out",
                );
                return;
            }
        };
        let length = range.length as usize;
        if !self.ranges.covers(note.address, bytes.len() as u64) {
            self.report
                .note("changes of host memory longer than the memory: they were left out");
            return;
        }
        self.look_for_stale(&bytes);
        let is_shared = self.sharers(&range).is_some();
        let known = self.lent.shadows.remove(&range.start);
        let known = known.filter(|(made, _)| *made == range.made);
        let mut shadow = match known {
            Some((_, shadow)) => shadow,
            None => {
                // All that the first notes do not name was zero; memory in shared granules may not
                // be. What they name, a copy in flight may be reading.
                let zeros = Buffer::zeroed(length);
                let live_end = range.live.saturating_add(range.length);
                let is_written = self.plan.pending_writes.at_entry(self.call.index);
                let bytes = range.start..range.start.saturating_add(range.length);
                let is_written = is_written.iter().any(|write| write.overlaps(&bytes));
                // Shared memory begins as zeros, and other ranks may have written there.
                if !is_shared && !is_written && !self.readbacks.any_in(range.live, live_end) {
                    for (from, end) in gaps(self.named(&range).into_iter(), length) {
                        let zeros = zeros.bytes().get(from..end).unwrap_or_default();
                        self.store_host(range.live.wrapping_add(from as u64), zeros);
                    }
                }
                zeros
            }
        };
        let looked = self.looked(note.is_after != 0);
        let noted = bytes.len();
        let (address, mut bytes) = in_words(note.address, &bytes, range.start, shadow.bytes());
        let offset = (address - range.start) as usize;
        let Some(old) = shadow.bytes_mut().get_mut(offset..offset + bytes.len()) else {
            return;
        };
        self.keep_newer(address, looked, old, &mut bytes);
        if note.is_after != 0 {
            self.found_after(note.address, looked, noted);
        }
        let runs = differing_runs(old, &bytes);
        let live = range.live.wrapping_add(offset as u64);
        let at = self.call.index;
        self.player.lent.host_signals.look(at, address, old, &bytes);
        if is_shared {
            let writes: Vec<_> = writes_of(&runs, live, old, &bytes, true).collect();
            self.put_shared(&range, &writes);
        } else {
            let words = whole_words(&runs, address, bytes.len());
            let pending = self.pending(note.is_after != 0);
            let signals = &self.lent.host_signals;
            let is_over = |write: &PendingWrite| signals.is_over(write, at + 1);
            let divided =
                |parts: &[(usize, usize)]| divide(parts, address, pending, false, is_over);
            let mut parts = divided(&words);
            // Work that is complete may have changed bytes since an earlier note, and the program may
            // have written the same ones again.
            let others = divided(&gaps(words.into_iter(), bytes.len())).into_iter();
            parts.extend(others.filter(|part| part.2 == Writer::Program));
            self.put_parts(&parts, old, &bytes, (address, live), note.is_after != 0);
        }
        old.copy_from_slice(&bytes);
        self.report.host_bytes_put += noted as u64;
        self.lent.shadows.insert(range.start, (range.made, shadow));
    }
}

impl<'t> Player<'t> {
    /// Whether the trace says what a range holds, or will when the graph that is being captured is
    /// launched.
    pub(crate) fn has_host_memory(&self, range: &Range) -> bool {
        let known = &self.lent.shadows;
        let is_recorded = known
            .get(&range.start)
            .is_some_and(|known| known.0 == range.made);
        is_recorded || (self.current.is_captured && !known.is_empty())
    }

    /// Where host memory lies that a copy in a graph reads or writes: pinned memory where it was
    /// put back, pageable memory in a copy that stays.
    pub(crate) fn graph_host(&mut self, address: u64, length: u64) -> Result<u64, Skip> {
        if let Some(live) = self.live_host(address, length) {
            return Ok(live);
        }
        self.captures.memory.place(address, length).ok_or_else(|| {
            Skip::because("copies of more host memory in graphs than replay provides")
        })
    }

    /// The same for rows of host memory: the distance from recorded to live addresses is one for
    /// all.
    pub(crate) fn graph_rows(&mut self, rows: &[(u64, usize)]) -> Result<Vec<(u64, usize)>, Skip> {
        let start = rows.iter().map(|row| row.0).min().unwrap_or(0);
        let end = rows
            .iter()
            .map(|row| row.0.saturating_add(row.1 as u64))
            .max()
            .unwrap_or(0);
        let live = self.graph_host(start, end - start)?;
        let moved = |&(row, length): &(u64, usize)| (live.wrapping_add(row - start), length);
        Ok(rows.iter().map(moved).collect())
    }

    /// Where the rows that a launched graph copies are, if any of its nodes was re-issued with
    /// them.
    pub(crate) fn find_graph_rows(&self, rows: &[(u64, usize)]) -> Option<Vec<(u64, usize)>> {
        let start = rows.iter().map(|row| row.0).min()?;
        let end = rows
            .iter()
            .map(|row| row.0.saturating_add(row.1 as u64))
            .max()?;
        let live = self
            .live_host(start, end - start)
            .or_else(|| self.captures.memory.find(start, end - start))?;
        let moved = |&(row, length): &(u64, usize)| (live.wrapping_add(row - start), length);
        Some(rows.iter().map(moved).collect())
    }

    fn report_skipped(&mut self, note: HostSkippedNote) {
        let why = match note.reason {
            host_skip::LONG => "it is longer than 64 MiB",
            host_skip::FULL => "there was more than 1 GiB of such memory",
            host_skip::EXCLUSIVE => "the host must not touch it while the device works",
            host_skip::UNREADABLE => "its pages could not be read",
            _ => "of a reason that this build does not know",
        };
        self.report.note(format!(
            "host memory at {:#x}, {} bytes, is read by the device, but what the program wrote there was not recorded: {why}",
            note.address, note.length
        ));
    }
}

/// Changed runs of bytes that begin at an address of this process.
fn writes_of(
    runs: &[(usize, usize)],
    live: u64,
    old: &[u8],
    new: &[u8],
    is_shared: bool,
) -> impl Iterator<Item = Write> {
    runs.iter().map(move |&(at, length)| Write {
        address: live.wrapping_add(at as u64),
        old: old.get(at..at + length).unwrap_or_default().to_vec(),
        new: new.get(at..at + length).unwrap_or_default().to_vec(),
        is_shared,
    })
}

/// Whether both the host and the device use a range.
fn is_for_the_host(range: &Range) -> bool {
    range.is_of_host()
}

/// The bytes that a note has of an address, with those beside them in the same words: work may have
/// written there since, and the program may have written a byte again that was there before.
/// `known` is what the notes before have of the memory that begins at `start`.
fn in_words(address: u64, noted: &[u8], start: u64, known: &[u8]) -> (u64, Vec<u8>) {
    let word = WORD as u64;
    let from = (address / word * word).max(start);
    let end = address.saturating_add(noted.len() as u64);
    let end = end.checked_next_multiple_of(word).unwrap_or(end) - start;
    let end = (end as usize).min(known.len());
    let at = (address - from) as usize;
    let mut bytes = known
        .get((from - start) as usize..end)
        .unwrap_or_default()
        .to_vec();
    if let Some(own) = bytes.get_mut(at..at + noted.len()) {
        own.copy_from_slice(noted);
    }
    (from, bytes)
}

/// Where new bytes differ from old ones: (offset, length) of each run. Both are equally long.
fn differing_runs(old: &[u8], new: &[u8]) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    let pieces = old
        .chunks(COMPARED_AT_ONCE)
        .zip(new.chunks(COMPARED_AT_ONCE));
    // Bytes are looked at one by one only where a piece differs.
    let differing = pieces.zip(0..).filter(|((old, new), _)| old != new);
    for ((old, new), piece) in differing {
        for (at, (old, new)) in (piece * COMPARED_AT_ONCE..).zip(old.iter().zip(new)) {
            match runs.last_mut() {
                _ if old == new => {}
                Some(run) if run.0 + run.1 == at => run.1 += 1,
                _ => runs.push((at, 1)),
            }
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_where_bytes_differ() {
        type Case = (&'static [u8], &'static [u8], &'static [(usize, usize)]);
        let table: [Case; 5] = [
            (b"", b"", &[]),
            (b"same", b"same", &[]),
            (b"abcdef", b"xbcyzf", &[(0, 1), (3, 2)]),
            (b"ab", b"xy", &[(0, 2)]),
            (b"abc", b"abx", &[(2, 1)]),
        ];
        for (old, new, expected) in table {
            assert_eq!(differing_runs(old, new), expected);
        }
        let old = [0; 3 * COMPARED_AT_ONCE + 5];
        let mut new = old;
        for at in [COMPARED_AT_ONCE - 1, COMPARED_AT_ONCE, new.len() - 1] {
            new[at] = 1;
        }
        let expected = [(COMPARED_AT_ONCE - 1, 2), (new.len() - 1, 1)];
        assert_eq!(differing_runs(&old, &new), expected);
    }
}
