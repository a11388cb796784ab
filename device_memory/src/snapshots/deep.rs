//! Launches of which a trace has the inputs and digests of the outputs: `record --deep`.
//!
//! One launch in so many is given to the driver when no other thread is in a call that changes memory
//! and all work is complete. The memory that its parameters point into is read before it (notes
//! MEMORY), and digested after it, when it is complete, too (notes DIGEST, DIGEST_VALUES). Until then
//! the gate stays closed. Where one of these does not happen in a short time, the launch is made as
//! always, and it is tried again later: its work may wait for another call of the program.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use cutape_driver::digest::digest_of_piece;
use cutape_format::layout::{DigestNote, DigestVoidNote, digest_reach, note_kind};

use super::memory::{Memory, lock, note_piece, read_range, wait_for_all_work};
use super::pieces::{Divider, Piece};
use crate::digest_notes::{MOST_IN_NOTE, write_ranges, write_values};
use crate::recorder::{Call, Recorder};

/// Of longer memory, so many bytes from each address on are looked at.
pub(super) const LONG: u64 = 64 << 20;
/// For how long, in nanoseconds, calls are kept waiting until work is complete: before the launch, and
/// after it.
const WORK: u64 = 500_000_000;
/// How soon it is tried again, in nanoseconds; each time without success doubles that.
const AGAIN: u64 = 1_000_000_000;
const MOST_DOUBLED: u32 = 10;

/// Memory by context: addresses and lengths.
type Ranges = BTreeMap<u64, Vec<(u64, u64)>>;

#[derive(Debug)]
pub(super) struct Deep {
    /// One launch in so many, on average.
    every: u64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Launches until the next one that is looked at.
    left: u64,
    /// A pseudo-random number: a loop of the program must not meet the same kernel each time.
    random: u64,
    /// Not before.
    retry_at: u64,
    /// How often in a row it was not possible.
    failures: u32,
    /// The thread whose launch is looked at, and the memory whose contents are noted.
    looked: Option<(u64, Ranges)>,
    /// The number of the next digest.
    next: u64,
}

impl Deep {
    pub(super) fn new(every: u64) -> Self {
        let state = State {
            left: 0,
            random: 0x9e37_79b9_7f4a_7c15,
            retry_at: 0,
            failures: 0,
            looked: None,
            next: 0,
        };
        Self {
            every,
            state: Mutex::new(state),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Counts a launch; whether it is to be looked at.
    pub(super) fn is_due(&self, recorder: &dyn Recorder) -> bool {
        if recorder.pauses().is_none() {
            return false;
        }
        let mut state = self.lock();
        state.left = state.left.saturating_sub(1);
        state.left == 0
            && state.looked.is_none()
            && recorder.nanoseconds() >= state.retry_at
            && !recorder.is_any_captured()
    }

    /// That thread has closed the gate for it.
    pub(super) fn begin(&self, thread: u64) {
        self.lock().looked = Some((thread, Ranges::new()));
    }

    /// Whether the gate is closed for a launch of that thread.
    pub(super) fn is_of(&self, thread: u64) -> bool {
        self.lock().looked.as_ref().is_some_and(|of| of.0 == thread)
    }

    /// The launch is not looked at any more.
    pub(super) fn end(&self) -> Option<Ranges> {
        Some(self.lock().looked.take()?.1)
    }

    /// It was not possible.
    pub(super) fn failed(&self, recorder: &dyn Recorder) {
        let mut state = self.lock();
        let again = AGAIN << state.failures.min(MOST_DOUBLED);
        state.failures = state.failures.saturating_add(1);
        state.retry_at = recorder.nanoseconds().saturating_add(again);
    }

    fn succeeded(&self) {
        let mut state = self.lock();
        state.failures = 0;
        // xorshift64
        state.random ^= state.random << 13;
        state.random ^= state.random >> 7;
        state.random ^= state.random << 17;
        let most = self.every.saturating_mul(2).saturating_sub(1).max(1);
        state.left = 1 + state.random % most;
    }

    /// Before the driver: notes what the memory holds that the launch's parameters point into. The
    /// gate is closed by this thread, and stays so if that was possible.
    #[cold]
    pub(super) fn before(&self, memory: &Memory, call: &Call<'_>, thread: u64) {
        let ranges = inputs(memory, call);
        match ranges.filter(|ranges| read_inputs(memory, call.recorder, ranges)) {
            Some(ranges) => self.lock().looked = Some((thread, ranges)),
            None => {
                self.end();
                self.failed(call.recorder);
                memory.gate.open(thread);
            }
        }
    }

    /// After the driver: digests the memory, once the launch is complete, and opens the gate.
    #[cold]
    pub(super) fn after(&self, memory: &Memory, call: &Call<'_>, thread: u64) {
        let recorder = call.recorder;
        let ranges = self.end().filter(|_| call.has_succeeded);
        let contexts: Vec<u64> = memory.live().contexts.iter().copied().collect();
        let ranges = ranges.filter(|_| wait_for_all_work(recorder, &contexts, WORK).is_ok());
        let Some(ranges) = ranges else {
            self.failed(recorder);
            memory.gate.open(thread);
            return;
        };
        let first = self.lock().next;
        for (context, ranges) in &ranges {
            self.digest(memory, recorder, *context, ranges);
        }
        self.succeeded();
        let count = self.lock().next - first;
        if !memory.gate.open(thread) && count != 0 {
            let void = DigestVoidNote { first, count };
            recorder.note(note_kind::DIGEST_VOID, &mut |record| {
                record.put_encoded(void)
            });
        }
    }

    fn digest(
        &self,
        memory: &Memory,
        recorder: &dyn Recorder,
        context: u64,
        ranges: &[(u64, u64)],
    ) {
        let Some(staging) = memory.staging(recorder, context) else {
            return;
        };
        let mut values = BTreeMap::<u64, u64>::new();
        let mut is_whole = false;
        recorder.in_context(context, || {
            is_whole = each(recorder, ranges, staging, |start, at, bytes| {
                let value = values.entry(start).or_default();
                *value = value.wrapping_add(digest_of_piece(bytes, at / 8));
            });
        });
        if !is_whole {
            return;
        }
        for ranges in ranges.chunks(MOST_IN_NOTE) {
            let first = {
                let mut state = self.lock();
                let first = state.next;
                state.next += ranges.len() as u64;
                first
            };
            let note = DigestNote {
                first,
                context,
                is_before: 0,
                reach: digest_reach::PARAMETERS,
            };
            write_ranges(recorder, note, ranges);
            let value = |address| values.get(address).copied().unwrap_or(0);
            let numbered = (first..).zip(ranges);
            let values: Vec<(u64, u64)> = numbered
                .map(|(number, (address, _))| (number, value(address)))
                .collect();
            write_values(recorder, &values);
        }
    }
}

/// The memory; `None` if the parameters are not known, or work is not complete in time.
fn inputs(memory: &Memory, call: &Call<'_>) -> Option<Ranges> {
    let words = call.recorder.kernel_words()?;
    let (contexts, ranges) = {
        let live = memory.live();
        let contexts: Vec<u64> = live.contexts.iter().copied().collect();
        (contexts, live.reached(&words, LONG))
    };
    wait_for_all_work(call.recorder, &contexts, WORK).ok()?;
    Some(ranges)
}

/// Notes what they hold; whether all could be read.
fn read_inputs(memory: &Memory, recorder: &dyn Recorder, ranges: &Ranges) -> bool {
    let Some(&first) = ranges.keys().next() else {
        return true;
    };
    let Some(staging) = memory.staging(recorder, first) else {
        return false;
    };
    // What was noted before a read fails is true, too.
    let mut is_whole = true;
    for (&context, ranges) in ranges {
        recorder.in_context(context, || {
            is_whole &= each(recorder, ranges, staging, |start, at, bytes| {
                let mut divider = Divider::default();
                let mut put = |piece: Piece<'_>| {
                    let piece = Piece {
                        at: piece.at + at,
                        ..piece
                    };
                    note_piece(recorder, start, &piece);
                };
                divider.add(0, bytes, &mut put);
                divider.finish(&mut put);
            });
        });
    }
    is_whole
}

/// Reads ranges of memory of the current context, a part at a time: start of the range, offset,
/// bytes. Whether all could be read.
fn each(
    recorder: &dyn Recorder,
    ranges: &[(u64, u64)],
    staging: u64,
    mut take: impl FnMut(u64, u64, &[u8]),
) -> bool {
    let Ok(stream) = recorder.create_stream() else {
        return false;
    };
    let is_whole = ranges.iter().all(|&(start, length)| {
        let take = &mut |at, bytes: &[u8]| take(start, at, bytes);
        read_range(recorder, (start, length), (staging, stream), take) == length
    });
    recorder.destroy_stream(stream);
    is_whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_launch_in_so_many() {
        for every in [1, 2, 10, 1000] {
            let deep = Deep::new(every);
            let mut launches = 0;
            for _ in 0..1000 {
                deep.succeeded();
                let left = deep.lock().left;
                assert!((1..2 * every).contains(&left), "{left} of {every}");
                launches += left;
            }
            let average = launches as f64 / 1000.0;
            let expected = every as f64;
            assert!((average - expected).abs() <= expected / 10.0, "{average}");
        }
    }
}
