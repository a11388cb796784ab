//! What is known of memory, contexts, and the calls in progress: whether a digest is unambiguous.

use std::collections::{HashMap, HashSet, VecDeque};

use cutape_format::layout::{
    DigestNote, DigestSkippedNote, DigestVoidNote, digest_skip, note_kind,
};

use cutape_order::Latest;

use super::prepared::Prepared;
use super::ranges::{Range, Ranges};
use crate::digest_notes::{MOST_IN_NOTE, write_ranges, write_values};
use crate::recorder::{Call, Recorder};

/// Digests that a call of another thread can still make void.
const RECENT: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) ranges: Ranges,
    pub(super) contexts: HashMap<u64, Prepared>,
    /// Contexts in which something that digests need was refused.
    pub(super) refused: HashSet<u64>,
    /// Number of the next range that is digested.
    next: u64,
    /// By thread: calls in progress that enqueue work, wait for it, or end a context.
    inside: HashMap<u32, Inside>,
    /// The entries of calls that enqueue work.
    latest: Latest,
    /// The digests that were taken last.
    recent: VecDeque<Taken>,
    /// The latest moment of one of these.
    last_taken: u64,
    /// Memory that calls in progress free, by thread.
    ending: HashMap<u32, (u64, Range)>,
}

#[derive(Clone, Copy, Debug)]
struct Inside {
    /// Ticks of its entry, as in the trace.
    start: u64,
    enqueues: bool,
}

/// Digests of one call.
#[derive(Clone, Copy, Debug)]
struct Taken {
    /// Ticks: what was entered before, a replay issues before it takes them.
    moment: u64,
    thread: u32,
    first: u64,
    count: u64,
}

impl Table {
    /// A call is about to go to the driver. If it enqueues work, digests of other threads that a
    /// replay takes after it are void: in calls that were entered later, or returned later from
    /// waiting.
    pub(super) fn enter(&mut self, call: &Call<'_>, enqueues: bool) {
        let (own, start) = (call.thread, call.start);
        self.inside.insert(own, Inside { start, enqueues });
        if !enqueues {
            return;
        }
        self.latest.note(own, start);
        if start > self.last_taken {
            return;
        }
        self.recent.retain(|taken| {
            let is_void = taken.moment > start && taken.thread != own;
            if is_void {
                let (first, count) = (taken.first, taken.count);
                let note = DigestVoidNote { first, count };
                call.recorder.note(note_kind::DIGEST_VOID, &mut |record| {
                    record.put_encoded(note)
                });
            }
            !is_void
        });
    }

    /// A thread's call has returned. Whether no other thread has entered a call that enqueues work
    /// since this one was entered, or still is in one.
    pub(super) fn leave(&mut self, thread: u32) -> bool {
        let own = self.inside.remove(&thread);
        own.is_some_and(|own| self.is_alone(thread, own.start))
    }

    pub(super) fn is_alone(&self, thread: u32, start: u64) -> bool {
        let is_last = self.latest.of_others(thread) < start;
        let mut others = self.inside.iter().filter(|other| *other.0 != thread);
        is_last && !others.any(|(_, other)| other.enqueues)
    }

    /// The events after digests that may be running.
    pub(super) fn running(&self) -> Vec<u64> {
        let running = self.contexts.values().filter(|found| found.is_pending());
        running.map(|found| found.done).collect()
    }

    /// Takes out memory that a call is about to free; the event to wait for before that.
    pub(super) fn begin_free(&mut self, thread: u32, start: u64) -> Option<u64> {
        let range = self.ranges.take(start)?;
        self.ending.insert(thread, (start, range));
        let prepared = self.contexts.get(&range.context)?;
        prepared.is_pending().then_some(prepared.done)
    }

    pub(super) fn end_free(&mut self, thread: u32, succeeded: bool) {
        let taken = self.ending.remove(&thread);
        if let Some((start, range)) = taken.filter(|_| !succeeded) {
            self.ranges.insert(start, range);
        }
    }

    pub(super) fn end_context(&mut self, context: u64) {
        self.contexts.remove(&context);
        self.refused.remove(&context);
        self.ranges.end_context(context);
    }

    /// Enqueues digests in the current context, or notes why there are none. What other threads
    /// enter before `moment`, in ticks, comes before them in a replay.
    pub(super) fn digest(
        &mut self,
        call: &Call<'_>,
        moment: u64,
        context: u64,
        ranges: &[(u64, u64)],
        is_before: bool,
        reach: u8,
    ) {
        let recorder = call.recorder;
        let Some(prepared) = self.contexts.get_mut(&context) else {
            return skipped(recorder, digest_skip::UNPREPARED);
        };
        if prepared.free() < ranges.len() {
            return skipped(recorder, digest_skip::REFUSED);
        }
        for ranges in ranges.chunks(MOST_IN_NOTE) {
            let first = self.next;
            if prepared.enqueue(recorder, first, ranges).is_err() {
                self.contexts.remove(&context);
                self.refused.insert(context);
                return skipped(recorder, digest_skip::REFUSED);
            }
            let count = ranges.len() as u64;
            self.next += count;
            if self.recent.len() == RECENT {
                self.recent.pop_front();
            }
            self.last_taken = self.last_taken.max(moment);
            self.recent.push_back(Taken {
                moment,
                thread: call.thread,
                first,
                count,
            });
            let note = DigestNote {
                first,
                context,
                is_before: is_before.into(),
                reach,
            };
            write_ranges(recorder, note, ranges);
        }
    }

    /// Writes the digests that are complete, of all contexts.
    pub(super) fn collect(&mut self, recorder: &dyn Recorder) {
        for prepared in self.contexts.values_mut() {
            write_values(recorder, &prepared.take_complete());
        }
    }
}

pub(super) fn skipped(recorder: &dyn Recorder, reason: u8) {
    recorder.note(note_kind::DIGEST_SKIPPED, &mut |record| {
        record.put_encoded(DigestSkippedNote { reason })
    });
}
