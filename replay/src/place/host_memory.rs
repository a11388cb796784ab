//! Host memory that the device reads without a copy: what the recorder saw there is put there
//! before the call that used it.
//!
//! A note says what changed, so only bytes that differ from what earlier notes of the allocation
//! said are written: bytes that a kernel still in flight was about to write, here and in the
//! recording, are left to it.

use std::sync::Arc;
use std::time::Duration;

use cutape_format::layout::{HostChangedNote, HostSkippedNote, host_skip};
use cutape_format::{Call, Note, Snapshot};
use cutape_model::PendingWrite;
use cutape_registry::Waits;

use crate::buffer::Buffer;
use crate::compare::payload::Payload;
use crate::compare::received::{holds, read_memory};
use crate::issue::player::{Job, Player};
use crate::issue::skip::Skip;
use crate::measure::timing::Measure;
use crate::place::address::{Found, Range, Way};
use crate::place::late_writes::{self, Write};
use crate::place::launch_marks::Seen;
use crate::plan::pending_writes::looked;
use crate::report::PutDuringWait;

/// The recorder looks at no longer range.
const LONGEST: u64 = 64 << 20;
/// Of so many looks behind calls it is known when they were, the last ones.
const MOST_FOUND: usize = 64;
/// Among more changed bytes no flags are looked for.
const LONGEST_WITH_FLAGS: u64 = 64 << 10;
/// Bytes that are first compared as a whole.
const COMPARED_AT_ONCE: usize = 256;

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
                self.late_writes_of(note, &bytes, &mut writes);
            }
        }
        if writes.is_empty() {
            return false;
        }
        let is_shared = writes.iter().any(|write| write.is_shared);
        let others = self.options.peers.clone().filter(|_| is_shared);
        let returned = Measure::returned_at(self.call);
        let writers: Vec<PendingWrite> = self.inexact_writers().collect();
        // The wait may be for other work.
        let recorded = self
            .between(self.call.ticks, returned)
            .max(self.longest_of(&writers, returned));
        let mut watch = self.lent.launch_marks.watch(&writers, recorded, others);
        let api = Arc::clone(&self.api);
        let mut has_entered = false;
        let look = move || {
            if !std::mem::replace(&mut has_entered, true) {
                watch.enter_context(&api);
            }
            watch.look(&api)
        };
        self.player.lent.late_writes.expect(writes, Box::new(look));
        true
    }

    /// Work in flight at the entry of the recorded call that may write anywhere in memory of which
    /// the call has notes.
    fn inexact_writers(&self) -> impl Iterator<Item = PendingWrite> {
        let writes = self.plan.pending_writes.at_entry(self.call.index);
        writes.iter().filter(|write| !write.is_exact).cloned()
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
        let (player, call) = (&mut *self.player, self.call.index);
        let room = PutDuringWait::KEPT.saturating_sub(player.report.put_during_waits.len());
        for write in written.into_iter().take(room) {
            let live = write.address;
            let mut ranges = player.ranges.all_live();
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
            player.report.put_during_waits.push(put);
        }
    }

    /// Remembers which kernels were seen waiting, for this replay and the next.
    fn learn_waiting(&mut self) {
        let player = &mut *self.player;
        let learned = player.lent.launch_marks.learn();
        player.report.waiting_launches.extend(learned);
    }

    fn late_writes_of(
        &mut self,
        note: HostChangedNote,
        snapshot: &Snapshot<'t>,
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
        let Payload::Here(new) = self.payload(snapshot) else {
            return;
        };
        let Found::Live(range, _) = self.ranges.find(note.address) else {
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
        let pending = self.plan.pending_writes.at_entry(self.call.index);
        runs.retain(|&(at, length)| {
            let bytes = note.address + at as u64..note.address + (at + length) as u64;
            let is_in = |write: &PendingWrite| {
                write.bytes.start < bytes.end && bytes.start < write.bytes.end
            };
            !pending.iter().any(|write| write.is_exact && is_in(write))
        });
        if is_shared || late_writes::may_be_flags(&runs) {
            let live = range.live.wrapping_add(offset as u64);
            writes.extend(writes_of(&runs, live, old, &new, is_shared));
        }
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
        let offset = (note.address - range.start) as usize;
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
                // be.
                let zeros = Buffer::zeroed(length);
                let live_end = range.live.saturating_add(range.length);
                let is_written = self.plan.pending_writes.at_entry(self.call.index);
                let is_written = is_written.iter().any(|write| {
                    write.bytes.start < range.start.saturating_add(range.length)
                        && range.start < write.bytes.end
                });
                // Shared memory begins as zeros, and other ranks may have written there.
                if !is_shared && !is_written && !self.readbacks.any_in(range.live, live_end) {
                    self.store_host(range.live, zeros.bytes());
                }
                zeros
            }
        };
        let Some(old) = shadow.bytes_mut().get_mut(offset..offset + bytes.len()) else {
            return;
        };
        let mut bytes = bytes.into_owned();
        let looked = self.looked(note.is_after != 0);
        self.keep_newer(note.address, looked, old, &mut bytes);
        if note.is_after != 0 {
            self.found_after(note.address, looked, bytes.len());
        }
        let runs = differing_runs(old, &bytes);
        let live = range.live.wrapping_add(offset as u64);
        let at = self.call.index;
        self.player
            .lent
            .host_signals
            .look(at, note.address, old, &bytes);
        if is_shared {
            let writes: Vec<_> = writes_of(&runs, live, old, &bytes, true).collect();
            self.put_shared(&range, &writes);
        } else {
            let words = whole_words(&runs, note.address, bytes.len());
            let pending = self.pending(note.is_after != 0);
            let signals = &self.lent.host_signals;
            let is_over = |write: &PendingWrite| {
                let known = write.known_since;
                known.is_some_and(|call| signals.is_seen(call, at + 1))
            };
            let divided =
                |runs: &[(usize, usize)]| divide(runs, note.address, pending, false, is_over);
            let mut parts = divided(&words);
            // Work that is complete may have changed bytes since an earlier note, and the program may
            // have written the same ones again.
            let others = gaps(words.iter().map(|&(at, run)| (at, at + run)), bytes.len());
            let others: Vec<_> = others.iter().map(|&(at, end)| (at, end - at)).collect();
            let others = divided(&others).into_iter();
            parts.extend(others.filter(|part| part.2 == Writer::Program));
            self.put_parts(
                &parts,
                old,
                &bytes,
                (note.address, live),
                note.is_after != 0,
            );
        }
        old.copy_from_slice(&bytes);
        self.report.host_bytes_put += bytes.len() as u64;
        self.lent.shadows.insert(range.start, (range.made, shadow));
    }
}

impl Job<'_, '_> {
    /// When the recorder looked, before the call or behind it, as far as that is known.
    fn looked(&self, is_after: bool) -> u64 {
        let call = self.call;
        let leave = call.leave.map_or(call.ticks, |leave| leave.ticks);
        match is_after {
            true => looked(call).unwrap_or(leave),
            false => call.ticks,
        }
    }

    /// The recorder has found bytes at a recorded address behind the call.
    fn found_after(&mut self, address: u64, looked: u64, length: usize) {
        let found = &mut self.player.lent.found;
        if found.len() >= MOST_FOUND {
            found.remove(0);
        }
        found.push((address..address.saturating_add(length as u64), looked));
    }

    /// What was found at a recorded address then is older than what overlapping calls have found
    /// later: there, the old bytes stay.
    fn keep_newer(&mut self, address: u64, looked: u64, old: &[u8], bytes: &mut [u8]) {
        let parts = self.not_newer(address, looked, bytes.len());
        for (from, end) in gaps(parts.into_iter(), bytes.len()) {
            if let (Some(newer), Some(old)) = (bytes.get_mut(from..end), old.get(from..end)) {
                newer.copy_from_slice(old);
            }
        }
    }

    /// The parts (offset of the first byte, behind the last) of so many bytes at a recorded address
    /// of which calls have found none behind themselves that are newer than that moment.
    fn not_newer(&self, address: u64, looked: u64, length: usize) -> Vec<(usize, usize)> {
        let newer = self.lent.found.iter().filter(|found| found.1 > looked);
        let offset = |of: u64| (of.saturating_sub(address) as usize).min(length);
        let newer = newer.map(|(found, _)| (offset(found.start), offset(found.end)));
        let mut newer: Vec<(usize, usize)> = newer.filter(|(from, end)| from < end).collect();
        newer.sort_unstable();
        gaps(newer.into_iter(), length)
    }
}

/// What is left of so many bytes between these parts, in ascending order: offset of the first, behind
/// the last.
fn gaps(parts: impl Iterator<Item = (usize, usize)>, length: usize) -> Vec<(usize, usize)> {
    let mut gaps = Vec::new();
    let mut at = 0;
    for (from, end) in parts {
        if at < from {
            gaps.push((at, from));
        }
        at = at.max(end);
    }
    if at < length {
        gaps.push((at, length));
    }
    gaps
}

/// Who has written bytes that changed in the recording. Of several, the last one counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Writer {
    /// The program: no work could.
    Program,
    /// One kernel may have, and the program after it.
    KernelOrProgram,
    /// Work that was enqueued may have.
    Unknown,
    /// The program, after work that writes there: it would not use the bytes otherwise.
    ProgramLater,
    /// Work that was enqueued writes all of them, and the program may have written there after it.
    WorkOrProgram,
    /// Several of these, and the program may have after each: the memory may hold what the first of
    /// them have written.
    Unclear,
    /// Work that was enqueued writes all of them, and overwrites the program's.
    Device,
}

impl Writer {
    /// Beside work that may write the same bytes; the call reads them itself, or may. `is_over`: the
    /// recorder had seen that the work was complete.
    fn beside<'w>(
        pending: impl Iterator<Item = &'w PendingWrite> + Clone,
        is_read: bool,
        is_over: impl Fn(&PendingWrite) -> bool,
    ) -> Self {
        // What may write them without an order does not, if anything before the call does.
        let has_order = is_read && pending.clone().any(|write| write.is_before);
        let pending = pending.filter(|write| !has_order || write.is_before || write.is_exact);
        let mut writers = pending
            .clone()
            .filter(|write| !is_over(write))
            .map(
                |write| match (write.is_exact, write.known_since.is_some()) {
                    _ if is_read && !write.is_before => Self::ProgramLater,
                    (false, true) => Self::KernelOrProgram,
                    (false, false) => Self::Unknown,
                    (true, true) if write.hides_others => Self::Unclear,
                    (true, true) => Self::WorkOrProgram,
                    (true, false) => Self::Device,
                },
            );
        let Some(first) = writers.next() else {
            return match pending.count() {
                0 => Self::Program,
                _ => Self::ProgramLater,
            };
        };
        let may_be_known = |one: Self| {
            matches!(
                one,
                Self::KernelOrProgram | Self::WorkOrProgram | Self::Unclear
            )
        };
        let last = |one: Self, other: Self| match (one, other) {
            (Self::WorkOrProgram, Self::WorkOrProgram) => one,
            _ if may_be_known(one) && may_be_known(other) => Self::Unclear,
            (Self::WorkOrProgram, Self::Unknown) | (Self::Unknown, Self::WorkOrProgram) => {
                Self::Device
            }
            (Self::Unclear, Self::Unknown) | (Self::Unknown, Self::Unclear) => Self::Unknown,
            _ => one.max(other),
        };
        writers.fold(first, last)
    }

    /// It may write some of the bytes.
    fn is_inexact(self) -> bool {
        matches!(self, Self::Unknown | Self::KernelOrProgram)
    }
}

/// Bytes that are told apart by who has written them: a single byte is often what it was before.
const WORD: usize = 4;

/// Runs (offset, length) of bytes at an address, of which there are so many, in whole words.
fn whole_words(runs: &[(usize, usize)], address: u64, length: usize) -> Vec<(usize, usize)> {
    let skew = (address % WORD as u64) as usize;
    let mut words: Vec<(usize, usize)> = Vec::new();
    for &(at, run) in runs {
        let from = ((at + skew) / WORD * WORD).saturating_sub(skew);
        let end = ((at + run + skew).next_multiple_of(WORD) - skew).min(length);
        match words.last_mut() {
            Some(last) if last.0 + last.1 >= from => last.1 = end - last.0,
            _ => words.push((from, end - from)),
        }
    }
    words
}

/// Changed bytes, by offset in a note's: first, behind the last.
type Part = (usize, usize, Writer);

impl Job<'_, '_> {
    /// Work that may have been writing when the recorder looked, before the call or behind it.
    fn pending(&self, is_after: bool) -> &[PendingWrite] {
        match is_after {
            // What was complete then has written what the recording shows, in the replay as well.
            true => self.plan.pending_writes.behind(self.call.index),
            false => self.plan.pending_writes.at_entry(self.call.index),
        }
    }

    /// Puts what a copy of the call read, by the recording, at a live address of pinned or registered
    /// memory.
    pub(crate) fn store_source(&mut self, recorded: u64, live: u64, bytes: &[u8]) {
        let older = self.not_newer(recorded, self.call.ticks, bytes.len());
        let older: Vec<(usize, usize)> = older.iter().map(|&(at, end)| (at, end - at)).collect();
        let pending = self.plan.pending_writes.at_entry(self.call.index);
        if pending.is_empty() && older == [(0, bytes.len())] {
            return self.store_host(live, bytes);
        }
        // What the call reads was recorded before the recorder looked at anything.
        let (at, signals) = (self.call.index, &self.lent.host_signals);
        let is_over = |write: &PendingWrite| {
            let known = write.known_since;
            known.is_some_and(|call| signals.is_seen(call, at))
        };
        let mut parts = divide(&older, recorded, pending, true, is_over);
        // From granules, which the driver does not take for memory of the host, it may read before
        // the earlier work of the default stream, for which the recorded call waited.
        let is_in_granules = matches!(
            self.ranges.find(recorded),
            Found::Live(range, _) if range.way == Way::PinnedGranules
        );
        if is_in_granules
            && !self.traits.is_asynchronous
            && !self.current.is_captured
            && let Err(code) = self.wait_for_device()
        {
            tracing::debug!("call {}: waiting before it: result {code}", self.call.index);
        }
        // What comes later must be awaited, also if the bytes are the same now.
        let is_later = |part: &Part| part.2 == Writer::ProgramLater;
        if holds(live, bytes) && !parts.iter().any(is_later) {
            return;
        }
        // A captured copy reads nothing yet.
        if self.current.is_captured {
            return;
        }
        let old = self.known_bytes(recorded, bytes.len());
        let unknown = parts.iter_mut().filter(|part| part.2.is_inexact());
        if old.is_none() {
            // Without what the memory held before, what work has written cannot be told.
            unknown.for_each(|part| part.2 = Writer::Program);
        } else if is_noted(self.call, recorded, bytes.len()) {
            // The recorder looked there again for the note, which has been put.
            unknown.for_each(|part| part.2 = Writer::Device);
        }
        self.put_parts(
            &parts,
            &old.unwrap_or_default(),
            bytes,
            (recorded, live),
            false,
        );
    }

    /// What the notes of the trace say that host memory holds.
    fn known_bytes(&self, address: u64, length: usize) -> Option<Vec<u8>> {
        let Found::Live(range, offset) = self.ranges.find(address) else {
            return None;
        };
        let (made, shadow) = self.lent.shadows.get(&range.start)?;
        let from = usize::try_from(offset).ok()?;
        let bytes = shadow.bytes().get(from..from.checked_add(length)?)?;
        (*made == range.made).then(|| bytes.to_vec())
    }

    /// Puts the parts that the program has written, or may have and work has not. `at` are the
    /// recorded and the live address of the first byte.
    fn put_parts(
        &mut self,
        parts: &[Part],
        old: &[u8],
        new: &[u8],
        at: (u64, u64),
        is_after: bool,
    ) {
        let is_certain = |part: &Part| matches!(part.2, Writer::Program | Writer::Device);
        if !parts.iter().all(is_certain) {
            let pending = self.plan.pending_writes.at_entry(self.call.index);
            let is_marked = |write: &&PendingWrite| self.plan.pending_writes.is_marked(write.call);
            let writers: Vec<PendingWrite> = pending.iter().filter(is_marked).cloned().collect();
            let recorded = self.longest_of(&writers, self.call.ticks);
            if self.player.await_launches(&writers, recorded) == Seen::Waiting {
                self.report.note(
                    "work that seems to wait for host memory, which was put before it was complete",
                );
                self.learn_waiting();
            }
        }
        let calls: Vec<u64> = self.pending(is_after).iter().map(|one| one.call).collect();
        for &(from, end, writer) in parts {
            let [recorded, live] = [at.0, at.1].map(|at| at.wrapping_add(from as u64));
            let Some(new) = new.get(from..end) else {
                continue;
            };
            match writer {
                Writer::Program | Writer::ProgramLater => self.store_host(live, new),
                Writer::Device => {}
                Writer::Unknown | Writer::KernelOrProgram => {
                    let old = old.get(from..end).unwrap_or_default();
                    let may_be_later = writer == Writer::KernelOrProgram;
                    self.store_unwritten((recorded, live), old, new, may_be_later);
                }
                Writer::WorkOrProgram => self.store_later((recorded, live), new, &calls),
                Writer::Unclear if !holds(live, new) => self.writer_is_unknown(recorded, new.len()),
                Writer::Unclear => {}
            }
        }
    }

    /// Puts words that hold neither what was there before the work that writes there nor what it
    /// has written: the program has written them after it. `at` are the recorded and the live
    /// address, `calls` those of the work.
    fn store_later(&mut self, at: (u64, u64), new: &[u8], calls: &[u64]) {
        let (recorded, live) = at;
        let now = read_memory(live, new.len());
        let mut held = self.lent.launch_marks.held(recorded, calls);
        let is_kept = held.next().is_some();
        drop(held);
        if now != new && !is_kept {
            return self.writer_is_unknown(recorded, new.len());
        }
        let mut at = 0;
        while at < new.len() {
            let end = at + WORD - (recorded.wrapping_add(at as u64) as usize) % WORD;
            let end = end.min(new.len());
            let address = |at: usize| recorded.wrapping_add(at as u64);
            let marks = &self.lent.launch_marks;
            let is_programs = |at: usize| {
                let byte = new.get(at).copied();
                let mut held = marks.held(address(at), calls);
                byte != now.get(at).copied() && held.all(|(held, _)| Some(held) != byte)
            };
            let mut held = marks.held(address(at), calls);
            let is_known = held.all(|(_, is_known)| is_known);
            drop(held);
            if (at..end).any(is_programs)
                && let Some(word) = new.get(at..end)
            {
                self.store_host(live.wrapping_add(at as u64), word);
                if !is_known {
                    self.writer_is_unknown(address(at), word.len());
                }
            }
            at = end;
        }
    }

    /// The recording does not tell who wrote these bytes last: differences may follow.
    fn writer_is_unknown(&mut self, recorded: u64, length: usize) {
        let what = "host memory that the program may have written after the device: the \
                    recording does not say which of them wrote it last";
        let consequences = &mut self.player.consequences;
        let cause = consequences.unknown(what, self.call.index);
        let end = recorded.saturating_add(length as u64);
        consequences.changed.overwrite(&(recorded..end), cause);
        self.report.note(what);
    }

    /// Puts new bytes in the words where the old ones still are: work has written the others, but for
    /// those that it has made something else of and the program `may_be_later`. In words, since work
    /// may write a byte that was there before. `at` are the recorded and the live address.
    fn store_unwritten(&mut self, at: (u64, u64), old: &[u8], new: &[u8], may_be_later: bool) {
        let (recorded, live) = at;
        let now = read_memory(live, old.len());
        let mut at = 0;
        while at < old.len() {
            let address = recorded.wrapping_add(at as u64);
            let end = (at + WORD - address as usize % WORD).min(old.len());
            let is_old = now.get(at..end) == old.get(at..end);
            if let Some(word) = new.get(at..end)
                && now.get(at..end) != Some(word)
                && (is_old || old.get(at..end) != Some(word))
            {
                if is_old || may_be_later {
                    self.store_host(live.wrapping_add(at as u64), word);
                }
                if !is_old {
                    self.writer_is_unknown(address, word.len());
                }
            }
            at = end;
        }
    }
}

/// Whether a call has notes of what memory there held before it.
fn is_noted(call: &Call<'_>, address: u64, length: usize) -> bool {
    let end = address.saturating_add(length as u64);
    call.notes().any(|note| {
        let Note::HostChanged(note, snapshot) = note else {
            return false;
        };
        let noted = note
            .address
            .saturating_add(snapshot.bytes.length().unwrap_or(0));
        note.is_after == 0 && note.address < end && address < noted
    })
}

/// Divides runs of changed bytes, (offset, length) each, by which work may have been writing them.
/// `is_read`: the call reads the bytes, so that it matters what they are. `is_over`: as in
/// [`Writer::beside`].
fn divide(
    runs: &[(usize, usize)],
    address: u64,
    pending: &[PendingWrite],
    is_read: bool,
    is_over: impl Fn(&PendingWrite) -> bool,
) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    for &(at, length) in runs {
        let (first, end) = (at, at + length);
        // Where the writer may change.
        let mut borders = vec![first, end];
        for write in pending {
            let inside = [write.bytes.start, write.bytes.end]
                .map(|border| border.saturating_sub(address) as usize);
            borders.extend(
                inside
                    .into_iter()
                    .filter(|border| (first..end).contains(border)),
            );
        }
        borders.sort_unstable();
        borders.dedup();
        for pair in borders.windows(2) {
            let &[from, to] = pair else { continue };
            let byte = address.wrapping_add(from as u64);
            let here = pending.iter().filter(|write| write.bytes.contains(&byte));
            let mut here: Vec<&PendingWrite> = here.collect();
            // A graph may write the same bytes in several nodes.
            here.sort_by_key(|write| (write.call, write.is_exact));
            here.dedup_by_key(|write| (write.call, write.is_exact));
            let writer = Writer::beside(here.into_iter(), is_read, &is_over);
            match parts.last_mut() {
                Some(last) if last.1 == from && last.2 == writer => last.1 = to,
                _ => parts.push((from, to, writer)),
            }
        }
    }
    parts
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
