//! A context that is prepared for digests: the kernel, where it puts its results, and a stream
//! that is ordered with the streams of the program.
//!
//! The digests of a context are taken on a stream of the recorder. It waits for the work that the
//! program has enqueued, and the program's next work waits for it, by events on the device: a
//! digest sees what the calls before it have done and nothing of what follows, and no thread waits.

use core::sync::atomic::{Ordering, compiler_fence};
use std::collections::VecDeque;

use cutape_driver::digest;

use crate::recorder::Recorder;
use crate::work::Outcome;

/// Digests that can be on their way. A driver keeps some thousand launches of a stream waiting.
const SLOTS: u64 = 1 << 16;
/// A digest and its mark.
const SLOT_BYTES: u64 = 16;
/// The answer of our own for a kernel that computes something else: CUDA_ERROR_UNKNOWN.
const UNKNOWN: i32 = 999;

/// A context that is prepared.
#[derive(Debug)]
pub(super) struct Prepared {
    kernel: u64,
    /// Page-locked memory with the slots.
    slots: u64,
    /// Where digests run.
    pub(super) stream: u64,
    /// Where new memory is set to zeros, independent of the program's work.
    pub(super) zeroing: u64,
    /// Recorded on a stream of the program, for `stream` to wait for.
    join: u64,
    /// Recorded on `stream` after the last digest.
    pub(super) done: u64,
    /// Numbers of digests whose value was not read, and their slots.
    pending: VecDeque<(u64, u64)>,
    next_slot: u64,
    /// Work was enqueued since all memory was digested.
    pub(super) is_changed: bool,
    /// Streams wait for values in memory. If all work were ordered, they could wait forever.
    pub(super) waits_for_memory: bool,
}

impl Prepared {
    /// Prepares the current context. Every replay repeats these calls.
    pub(super) fn new(recorder: &dyn Recorder) -> Outcome<Self> {
        let prepared = Self {
            kernel: recorder.load_digest_kernel()?,
            slots: recorder.allocate_on_host(SLOTS * SLOT_BYTES)?,
            stream: recorder.create_stream()?,
            zeroing: recorder.create_stream()?,
            join: recorder.create_event()?,
            done: recorder.create_event()?,
            pending: VecDeque::new(),
            next_slot: 0,
            is_changed: false,
            waits_for_memory: false,
        };
        prepared.attempt(recorder)?;
        Ok(prepared)
    }

    /// Digests known bytes in the slots, past the first. Also loads the kernel, which a driver
    /// may otherwise do at its first launch.
    fn attempt(&self, recorder: &dyn Recorder) -> Outcome {
        // Of no digest.
        const MARK: u64 = u64::MAX;
        let bytes = digest::trial();
        let place = self.slots + 4096;
        // SAFETY: the slots are longer, ours, and not used yet.
        unsafe {
            core::ptr::write_bytes(self.slots as *mut u8, 0, (SLOTS * SLOT_BYTES) as usize);
            core::ptr::copy_nonoverlapping(bytes.as_ptr(), place as *mut u8, bytes.len());
        }
        let range = (place, bytes.len() as u64);
        recorder.launch_digest(self.kernel, range, self.slots, MARK, self.stream)?;
        recorder.wait_for_stream(self.stream)?;
        match self.value(0, MARK) {
            Some(value) if value == digest::digest(&bytes) => Ok(()),
            _ => Err(UNKNOWN),
        }
    }

    /// The digest in a slot, if it has that mark.
    fn value(&self, slot: u64, mark: u64) -> Option<u64> {
        let place = (self.slots + slot * SLOT_BYTES) as *const u64;
        // SAFETY: inside the slots, which live as long as the context. The device writes the mark
        // last.
        unsafe {
            let found = place.add(1).read_volatile();
            compiler_fence(Ordering::SeqCst);
            (found == mark).then(|| place.read_volatile())
        }
    }

    /// Whether a digest may still be running.
    pub(super) fn is_pending(&self) -> bool {
        let last = self.pending.back();
        last.is_some_and(|&(number, slot)| self.value(slot, number + 1).is_none())
    }

    /// Lets a stream of the program wait for the digests.
    pub(super) fn hold_back(&self, recorder: &dyn Recorder, stream: u64) {
        if self.is_pending() {
            // A stream that cannot wait cannot take the program's work either.
            let _ = recorder.order_after(stream, self.done);
        }
    }

    /// Lets later digests wait for the work of a stream.
    pub(super) fn follow(&self, recorder: &dyn Recorder, stream: u64) -> Outcome {
        recorder.record(self.join, stream)?;
        recorder.order_after(self.stream, self.join)
    }

    /// How many digests were not read.
    pub(super) fn awaited(&self) -> usize {
        self.pending.len()
    }

    /// How many digests fit.
    pub(super) fn free(&self) -> usize {
        SLOTS as usize - self.pending.len()
    }

    /// Enqueues the digests of ranges, the first of which has that number. They must fit.
    pub(super) fn enqueue(
        &mut self,
        recorder: &dyn Recorder,
        first: u64,
        ranges: &[(u64, u64)],
    ) -> Outcome {
        for (number, &range) in (first..).zip(ranges) {
            let slot = self.next_slot;
            let place = self.slots + slot * SLOT_BYTES;
            recorder.launch_digest(self.kernel, range, place, number + 1, self.stream)?;
            self.pending.push_back((number, slot));
            self.next_slot = (slot + 1) % SLOTS;
        }
        recorder.record(self.done, self.stream)
    }

    /// Takes the digests that are complete, with their numbers.
    pub(super) fn take_complete(&mut self) -> Vec<(u64, u64)> {
        let mut complete = Vec::new();
        while let Some(&(number, slot)) = self.pending.front()
            && let Some(value) = self.value(slot, number + 1)
        {
            complete.push((number, value));
            self.pending.pop_front();
        }
        complete
    }
}
