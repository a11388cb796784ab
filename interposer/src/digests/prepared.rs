//! A context that is prepared for digests: the kernel, where it puts its results, and a stream
//! that is ordered with the streams of the program.
//!
//! The digests of a context are taken on a stream of the recorder. It waits for the work that the
//! program has enqueued, and the program's next work waits for it, by events on the device: a
//! digest sees what the calls before it have done and nothing of what follows, and no thread waits.

use core::sync::atomic::{Ordering, compiler_fence};
use std::collections::VecDeque;

use cutape_driver::digest;
use cutape_registry::id;

use crate::driver;

/// Digests that can be on their way. A driver keeps some thousand launches of a stream waiting.
const SLOTS: u64 = 1 << 16;
/// A digest and its mark.
const SLOT_BYTES: u64 = 16;
/// CU_STREAM_NON_BLOCKING, CU_EVENT_DISABLE_TIMING, CU_MEMHOSTALLOC_PORTABLE and _DEVICEMAP.
const NON_BLOCKING: u64 = 1;
const NO_TIMING: u64 = 2;
const PORTABLE_MAPPED: u64 = 3;
/// Answers of our own where the driver has none: CUDA_ERROR_NOT_SUPPORTED, CUDA_ERROR_UNKNOWN.
const NOT_SUPPORTED: i32 = 801;
const UNKNOWN: i32 = 999;

/// A context that is prepared.
#[derive(Debug)]
pub(super) struct Prepared {
    function: u64,
    /// Page-locked memory with the slots.
    slots: u64,
    /// Where digests run.
    pub(super) stream: u64,
    /// Where new memory is set to zeros, independent of the program's work.
    pub(super) zeroing: u64,
    /// Recorded on a stream of the program, for `stream` to wait for.
    join: u64,
    /// Recorded on `stream` behind the last digest.
    pub(super) done: u64,
    /// Numbers of digests whose value was not read, and their slots.
    pending: VecDeque<(u64, u64)>,
    next_slot: u64,
    /// Work was enqueued since all memory was digested.
    pub(super) is_changed: bool,
    /// Streams wait for values in memory. If all work were ordered, they could wait forever.
    pub(super) waits_for_memory: bool,
}

/// Calls the driver; the result as an error unless it is success.
fn call(function: u16, arguments: [u64; 4]) -> Result<(), i32> {
    // SAFETY: the callers below give what the driver's functions take: handles of the driver's, and
    // addresses of memory of ours.
    match unsafe { driver::call(function, arguments) } {
        Some(0) => Ok(()),
        Some(result) => Err(result),
        None => Err(NOT_SUPPORTED),
    }
}

/// The number that the driver writes behind the first argument.
fn made(function: u16, rest: [u64; 3]) -> Result<u64, i32> {
    let mut made = 0_u64;
    let [first, second, third] = rest;
    call(function, [(&raw mut made) as u64, first, second, third])?;
    Ok(made)
}

impl Prepared {
    /// Prepares the current context. Every replay repeats these calls.
    pub(super) fn new() -> Result<Self, i32> {
        let module = made(id::cuModuleLoadData, [digest::PTX.as_ptr() as u64, 0, 0])?;
        let name = digest::NAME.as_ptr() as u64;
        let prepared = Self {
            function: made(id::cuModuleGetFunction, [module, name, 0])?,
            slots: made(id::cuMemHostAlloc, [SLOTS * SLOT_BYTES, PORTABLE_MAPPED, 0])?,
            stream: made(id::cuStreamCreate, [NON_BLOCKING, 0, 0])?,
            zeroing: made(id::cuStreamCreate, [NON_BLOCKING, 0, 0])?,
            join: made(id::cuEventCreate, [NO_TIMING, 0, 0])?,
            done: made(id::cuEventCreate, [NO_TIMING, 0, 0])?,
            pending: VecDeque::new(),
            next_slot: 0,
            is_changed: false,
            waits_for_memory: false,
        };
        prepared.attempt()?;
        Ok(prepared)
    }

    /// Digests known bytes in the slots, behind the first. Also loads the kernel, which a driver
    /// may otherwise do at its first launch.
    fn attempt(&self) -> Result<(), i32> {
        // Of no digest.
        const MARK: u64 = u64::MAX;
        let bytes = digest::trial();
        let place = self.slots + 4096;
        // SAFETY: the slots are longer, ours, and not used yet.
        unsafe {
            core::ptr::write_bytes(self.slots as *mut u8, 0, (SLOTS * SLOT_BYTES) as usize);
            core::ptr::copy_nonoverlapping(bytes.as_ptr(), place as *mut u8, bytes.len());
        }
        self.launch((place, bytes.len() as u64), self.slots, MARK)?;
        call(id::cuStreamSynchronize, [self.stream, 0, 0, 0])?;
        match self.value(0, MARK) {
            Some(value) if value == digest::digest(&bytes) => Ok(()),
            _ => Err(UNKNOWN),
        }
    }

    fn launch(&self, (address, length): (u64, u64), slot: u64, mark: u64) -> Result<(), i32> {
        let parameters = [address, length, slot, mark];
        let pointers = parameters
            .each_ref()
            .map(|parameter| &raw const *parameter as u64);
        let blocks = u64::from(digest::blocks(length));
        let threads = u64::from(digest::THREADS);
        let (stream, pointers) = (self.stream, pointers.as_ptr() as u64);
        let arguments = [
            self.function,
            blocks,
            1,
            1,
            threads,
            1,
            1,
            0,
            stream,
            pointers,
            0,
        ];
        // SAFETY: the arguments of cuLaunchKernel; the kernel has four parameters of 8 bytes. The
        // memory is alive: see the callers.
        match unsafe { driver::launch(arguments) } {
            Some(0) => Ok(()),
            Some(result) => Err(result),
            None => Err(NOT_SUPPORTED),
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
    pub(super) fn hold_back(&self, stream: u64) {
        if self.is_pending() {
            // A stream that cannot wait cannot take the program's work either.
            let _ = call(id::cuStreamWaitEvent, [stream, self.done, 0, 0]);
        }
    }

    /// Lets later digests wait for the work of a stream.
    pub(super) fn follow(&self, stream: u64) -> Result<(), i32> {
        call(id::cuEventRecord, [self.join, stream, 0, 0])?;
        call(id::cuStreamWaitEvent, [self.stream, self.join, 0, 0])
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
    pub(super) fn enqueue(&mut self, first: u64, ranges: &[(u64, u64)]) -> Result<(), i32> {
        for (number, &range) in (first..).zip(ranges) {
            let slot = self.next_slot;
            self.launch(range, self.slots + slot * SLOT_BYTES, number + 1)?;
            self.pending.push_back((number, slot));
            self.next_slot = (slot + 1) % SLOTS;
        }
        call(id::cuEventRecord, [self.done, self.stream, 0, 0])
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

/// Sets memory to zeros on a stream; waits for it if the stream is ours.
pub(super) fn zero(address: u64, length: u64, stream: u64, waits: bool) -> bool {
    let cleared = call(id::cuMemsetD8Async, [address, 0, length, stream]);
    let waited = match waits {
        true => cleared.and_then(|()| call(id::cuStreamSynchronize, [stream, 0, 0, 0])),
        false => cleared,
    };
    waited.is_ok()
}
