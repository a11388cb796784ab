//! Puts what the program has written into host memory, where work may have written as well.

use cutape_format::{Call, Note};
use cutape_model::PendingWrite;

use crate::compare::received::{holds, read_memory};
use crate::lent::launch_marks::Seen;
use crate::place::address::{Found, Way};
use crate::player::Job;
use crate::restore::writer::{Part, WORD, Writer, divide};

impl Job<'_, '_> {
    /// Work that may have been writing when the recorder looked, before the call or behind it.
    pub(crate) fn pending(&self, is_after: bool) -> &[PendingWrite] {
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
        let pending = self.plan.pending_writes.at_entry(self.call.index);
        if pending.is_empty() && older == [(0, bytes.len())] {
            return self.store_host(live, bytes);
        }
        // What the call reads was recorded before the recorder looked at anything.
        let (at, signals) = (self.call.index, &self.lent.host_signals);
        let is_over = |write: &PendingWrite| signals.is_over(write, at);
        let mut parts = divide(&older, recorded, pending, true, is_over);
        // From granules, which the driver does not take for memory of the host, it may read before
        // the earlier work of the default stream, for which the recorded call waited.
        let is_in_granules = matches!(
            self.ranges.find(recorded),
            Found::Live(range, _) if range.way == Way::PinnedGranules
        );
        if is_in_granules && !self.traits.is_asynchronous && !self.current.is_captured {
            self.wait_for_own_stream();
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
    pub(crate) fn put_parts(
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
                Writer::Unclear => {
                    let old = old.get(from..end).unwrap_or_default();
                    self.store_over_values((recorded, live), old, new, &calls);
                }
            }
        }
    }

    /// Puts words that hold neither what was there before the work that writes there nor what it
    /// has written: the program has written them after it. `at` are the recorded and the live
    /// address, `calls` those of the work.
    fn store_later(&mut self, at: (u64, u64), new: &[u8], calls: &[u64]) {
        let (recorded, live) = at;
        let now = read_memory(live, new.len());
        let marks = &self.lent.launch_marks;
        let is_kept = marks.held(recorded, calls).next().is_some();
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
            let is_known = marks.held(address(at), calls).all(|(_, known)| known);
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

    /// Puts words where the value of a stream still is, if the recording has something else there that
    /// is neither what was there before the value nor what earlier notes have: then only the program
    /// can have written it. Who has written other words is not known. `at` are the recorded and the
    /// live address, `calls` those of the work.
    fn store_over_values(&mut self, at: (u64, u64), old: &[u8], new: &[u8], calls: &[u64]) {
        let (recorded, live) = at;
        for (offset, value) in self.lent.host_signals.values_in(recorded, new.len()) {
            let address = recorded.wrapping_add(offset as u64);
            let (live, end) = (live.wrapping_add(offset as u64), offset + value.len());
            let Some(word) = new.get(offset..end) else {
                continue;
            };
            let marks = &self.lent.launch_marks;
            let is_later = (address..).zip(word).any(|(address, byte)| {
                let mut held = marks.held(address, calls).peekable();
                held.peek().is_some() && held.all(|(held, _)| held != *byte)
            });
            if is_later && old.get(offset..end) != Some(word) && holds(live, &value) {
                self.store_host(live, word);
            }
        }
        if !holds(live, new) {
            self.writer_is_unknown(recorded, new.len());
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
