//! The kernel that digests memory: contexts that are prepared for it, and digests on their way.
//!
//! Digests run on a stream of the replay's own, which is ordered with the program's streams by
//! events: a digest sees what the calls before it have done and nothing of what follows, and no
//! thread waits for it. The recorder does the same (`interposer/src/digests/prepared.rs`). A kernel
//! may wait for something that a later call does, so waiting for its digest could last for ever.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

use cutape_driver::digest;
use cutape_registry::id;

use crate::api::{Api, Code, NOT_READY};
use crate::compare::consequences::CauseNumber;
use crate::place::address::Range;

/// As the recorder has: a replay makes the same calls, so that the driver does the same.
const SLOT_BYTES: u64 = 16;
const SLOTS: u64 = 1 << 16;
const NON_BLOCKING: u64 = 1;
const NO_TIMING: u64 = 2;
const PORTABLE_MAPPED: u64 = 3;
/// CUDA_ERROR_UNKNOWN.
const UNKNOWN: Code = 999;
/// How long digests are waited for that nothing proves complete.
const PATIENCE: Duration = Duration::from_secs(5);

/// What digests need of a context.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prepared {
    /// The live context.
    pub context: u64,
    function: u64,
    /// Page-locked memory where the kernel puts digests and their marks.
    slots: u64,
    stream: u64,
    /// Where memory is set to zeros.
    pub zeroing: u64,
    /// Recorded on a stream of the program, for `stream` to wait for.
    join: u64,
    /// Recorded on `stream` behind the last digest.
    done: u64,
}

/// What a digest is for.
#[derive(Debug)]
pub(crate) enum Awaited {
    /// One that the recorder kept.
    Recorded(Box<Recorded>),
    /// The memory that a launch reaches: the call, address and length as recorded.
    OfLaunch(u64, (u64, u64)),
    /// A piece of such memory: which piece of which memory.
    Piece(usize, usize),
    /// One memory of a launch, and whether before the launch.
    Memory(usize, bool),
}

/// A digest that the recorder kept, and where.
#[derive(Debug)]
pub(crate) struct Recorded {
    pub number: u64,
    /// The call, its function, and whether it is a launch.
    pub call: u64,
    pub function: &'static str,
    pub is_launch: bool,
    /// A number of `digest_reach`.
    pub reach: u8,
    /// Address and length.
    pub range: (u64, u64),
    /// The memory that it lies in.
    pub memory: Range,
    /// No memory lay elsewhere than recorded.
    pub is_in_place: bool,
    /// From what a difference may follow.
    pub follows: Option<CauseNumber>,
}

/// A digest on its way.
#[derive(Debug)]
struct Pending {
    slot: u64,
    mark: u64,
    awaited: Awaited,
}

/// A prepared context, and its digests on their way.
#[derive(Debug)]
struct Context {
    prepared: Prepared,
    pending: VecDeque<Pending>,
    /// The mark of the last digest; the slot follows from it.
    mark: u64,
    /// Streams wait for values in memory. If all work were ordered, they could wait for ever.
    waits_for_memory: bool,
}

/// The contexts that are prepared for digests.
#[derive(Debug, Default)]
pub(crate) struct Digests {
    /// By live handle.
    contexts: HashMap<u64, Context>,
    /// Recorded handles of contexts that the recorder had prepared, and the live ones.
    recorded: HashMap<u64, u64>,
    /// Starts of ranges of which a digest has differed: what follows from that is not listed.
    pub differing: HashSet<u64>,
    /// Digests whose context ended before they were taken out.
    lost: Vec<Awaited>,
}

impl Digests {
    /// True if any context is prepared.
    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        !self.contexts.is_empty()
    }

    /// A context is prepared; with its recorded handle if the recorder had prepared it.
    pub(crate) fn insert(&mut self, recorded: Option<u64>, prepared: Prepared) {
        let context = Context {
            prepared,
            pending: VecDeque::new(),
            mark: 0,
            waits_for_memory: false,
        };
        self.contexts.insert(prepared.context, context);
        if let Some(recorded) = recorded {
            self.recorded.insert(recorded, prepared.context);
        }
    }

    /// The recorder had prepared this context, the replay could not.
    pub(crate) fn refused(&mut self, recorded: u64) {
        self.recorded.remove(&recorded);
    }

    /// A live context has ended, and with it the slots.
    pub(crate) fn end_context(&mut self, context: u64) {
        let ended = self.contexts.remove(&context);
        let pending = ended.into_iter().flat_map(|ended| ended.pending);
        self.lost.extend(pending.map(|pending| pending.awaited));
        self.recorded.retain(|_, live| *live != context);
    }

    /// What is prepared in a live context.
    pub(crate) fn of(&self, context: u64) -> Option<Prepared> {
        self.contexts.get(&context).map(|found| found.prepared)
    }

    /// As [`Self::of`], for a recorded handle that the recorder had prepared.
    pub(crate) fn of_recorded(&self, context: u64) -> Option<Prepared> {
        self.of(*self.recorded.get(&context)?)
    }

    /// From here on, work of a context is neither ordered nor digested.
    pub(crate) fn waits_for_memory(&mut self, context: u64) {
        if let Some(known) = self.contexts.get_mut(&context) {
            known.waits_for_memory = true;
        }
    }

    /// What is prepared in a live context whose work is ordered.
    pub(crate) fn ordered(&self, context: u64) -> Option<Prepared> {
        let found = self.contexts.get(&context)?;
        (!found.waits_for_memory).then_some(found.prepared)
    }

    /// Whether digests of a context may still be running.
    pub(crate) fn is_pending(&self, context: u64) -> bool {
        let last = |found: &Context| {
            let last = found.pending.back()?;
            Some(found.prepared.value(last.slot, last.mark).is_none())
        };
        self.contexts.get(&context).and_then(last).unwrap_or(false)
    }

    /// The contexts with digests that were not taken out.
    pub(crate) fn awaiting(&self) -> Vec<Prepared> {
        let awaiting = |found: &&Context| !found.pending.is_empty();
        let contexts = self.contexts.values().filter(awaiting);
        contexts.map(|found| found.prepared).collect()
    }

    /// Whether there are slots for so many digests of a context.
    pub(crate) fn can_reserve(&self, context: u64, count: usize) -> bool {
        let fits = |found: &Context| found.pending.len() + count <= SLOTS as usize;
        self.contexts.get(&context).is_some_and(fits)
    }

    /// Reserves slots for digests of a context, of which there are enough: slot and mark of the
    /// first.
    pub(crate) fn reserve(&mut self, context: u64, awaited: Vec<Awaited>) -> Option<(u64, u64)> {
        let found = self.contexts.get_mut(&context)?;
        let first = found.mark + 1;
        for awaited in awaited {
            found.mark += 1;
            let (slot, mark) = (found.mark % SLOTS, found.mark);
            found.pending.push_back(Pending {
                slot,
                mark,
                awaited,
            });
        }
        Some((first % SLOTS, first))
    }

    /// The driver refused digests: those from a mark on were not enqueued.
    pub(crate) fn withdraw(&mut self, context: u64, first: u64) -> Vec<Awaited> {
        let Some(found) = self.contexts.get_mut(&context) else {
            return Vec::new();
        };
        let at = found.pending.partition_point(|known| known.mark < first);
        let withdrawn = found.pending.split_off(at);
        withdrawn.into_iter().map(|known| known.awaited).collect()
    }

    /// Takes out the digests that are complete, in the order in which they were enqueued.
    pub(crate) fn take_complete(&mut self) -> Vec<(Awaited, u64)> {
        let mut complete = Vec::new();
        for found in self.contexts.values_mut() {
            while let Some(first) = found.pending.front()
                && let Some(value) = found.prepared.value(first.slot, first.mark)
                && let Some(first) = found.pending.pop_front()
            {
                complete.push((first.awaited, value));
            }
        }
        complete
    }

    /// Takes out the digests whose context has ended.
    pub(crate) fn take_lost(&mut self) -> Vec<Awaited> {
        std::mem::take(&mut self.lost)
    }

    /// Takes out the digests that are not complete and will not be looked at again.
    pub(crate) fn give_up(&mut self) -> Vec<Awaited> {
        let pending = self.contexts.values_mut();
        let pending = pending.flat_map(|found| found.pending.drain(..));
        pending.map(|pending| pending.awaited).collect()
    }
}

impl Api {
    /// Prepares the current context with the calls of the recorder, in its order.
    pub(crate) fn prepare_digests(&self, context: u64) -> Result<Prepared, Code> {
        let module: u64 = self.get(id::cuModuleLoadData, &[digest::PTX.as_ptr() as u64])?;
        let function = self.function(module, digest::NAME, false)?;
        let slots = self.get(id::cuMemHostAlloc, &[SLOTS * SLOT_BYTES, PORTABLE_MAPPED])?;
        let prepared = Prepared {
            context,
            function,
            slots,
            stream: self.get(id::cuStreamCreate, &[NON_BLOCKING])?,
            zeroing: self.get(id::cuStreamCreate, &[NON_BLOCKING])?,
            join: self.get(id::cuEventCreate, &[NO_TIMING])?,
            done: self.get(id::cuEventCreate, &[NO_TIMING])?,
        };
        let (bytes, place) = (digest::trial(), slots + 4096);
        // SAFETY: the driver has just allocated that much host memory, which nothing else uses.
        unsafe {
            std::ptr::write_bytes(slots as *mut u8, 0, (SLOTS * SLOT_BYTES) as usize);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), place as *mut u8, bytes.len());
        }
        self.launch_digest(prepared, (place, bytes.len() as u64), 0, u64::MAX)?;
        self.synchronize_stream(prepared.stream, false)?;
        match prepared.value(0, u64::MAX) {
            Some(value) if value == digest::digest(&bytes) => Ok(prepared),
            _ => Err(UNKNOWN),
        }
    }

    fn launch_digest(
        &self,
        prepared: Prepared,
        (address, length): (u64, u64),
        slot: u64,
        mark: u64,
    ) -> Result<(), Code> {
        let place = prepared.slots + slot % SLOTS * SLOT_BYTES;
        let parameters = [address, length, place, mark];
        let pointers = parameters
            .each_ref()
            .map(|parameter| std::ptr::from_ref(parameter) as u64);
        let (blocks, threads) = (digest::blocks(length), digest::THREADS);
        self.own(
            id::cuLaunchKernel,
            &[
                prepared.function,
                blocks.into(),
                1,
                1,
                threads.into(),
                1,
                1,
                0,
                prepared.stream,
                pointers.as_ptr() as u64,
                0,
            ],
        )
    }

    /// Enqueues the digests of live ranges in the current context. `Err` has the mark of the first
    /// that was not enqueued.
    pub(crate) fn enqueue_digests(
        &self,
        prepared: Prepared,
        ranges: &[(u64, u64)],
        (slot, mark): (u64, u64),
    ) -> Result<(), (u64, Code)> {
        for (at, &range) in (0..).zip(ranges) {
            self.launch_digest(prepared, range, slot + at, mark + at)
                .map_err(|code| (mark + at, code))?;
        }
        self.own(id::cuEventRecord, &[prepared.done, prepared.stream])
            .map_err(|code| (mark, code))
    }

    /// Lets a live stream wait for the digests of the current context.
    pub(crate) fn hold_back(
        &self,
        prepared: Prepared,
        (stream, per_thread): (u64, bool),
    ) -> Result<(), Code> {
        let id = match per_thread {
            true => id::cuStreamWaitEvent_ptsz,
            false => id::cuStreamWaitEvent,
        };
        self.own(id, &[stream, prepared.done, 0])
    }

    /// Lets later digests of the current context wait for the work of a live stream.
    pub(crate) fn follow(
        &self,
        prepared: Prepared,
        (stream, per_thread): (u64, bool),
    ) -> Result<(), Code> {
        let id = match per_thread {
            true => id::cuEventRecord_ptsz,
            false => id::cuEventRecord,
        };
        self.own(id, &[prepared.join, stream])?;
        self.own(id::cuStreamWaitEvent, &[prepared.stream, prepared.join, 0])
    }

    /// Waits until the digests of a context are complete, its work has failed, or some seconds have
    /// passed: a kernel may wait for something that the program does later.
    pub(crate) fn wait_for_digests(&self, prepared: Prepared) {
        let since = Instant::now();
        let is_running = || {
            let query = |api: &Self| api.own(id::cuStreamQuery, &[prepared.stream]);
            self.in_context(prepared.context, query) == Err(NOT_READY)
        };
        while is_running() && since.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// Does something while a live context is current.
    pub(crate) fn in_context<T>(
        &self,
        context: u64,
        act: impl FnOnce(&Self) -> Result<T, Code>,
    ) -> Result<T, Code> {
        if self.current_context() == Ok(context) {
            return act(self);
        }
        self.own(id::cuCtxPushCurrent_v2, &[context])?;
        let result = act(self);
        self.get::<u64>(id::cuCtxPopCurrent_v2, &[])?;
        result
    }
}

impl Prepared {
    /// The digest in a slot, if it has that mark.
    fn value(&self, slot: u64, mark: u64) -> Option<u64> {
        let place = (self.slots + slot % SLOTS * SLOT_BYTES) as *const u64;
        // SAFETY: inside the slots, which live as long as the context. The kernel writes the mark
        // last.
        unsafe {
            let found = place.add(1).read_volatile();
            std::sync::atomic::fence(std::sync::atomic::Ordering::Acquire);
            (found == mark).then(|| place.read_volatile())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A context whose slots are ordinary memory.
    fn prepared(slots: &[u64]) -> Prepared {
        Prepared {
            context: 7,
            function: 0,
            slots: slots.as_ptr().expose_provenance() as u64,
            stream: 0,
            zeroing: 0,
            join: 0,
            done: 0,
        }
    }

    fn numbers(awaited: impl IntoIterator<Item = Awaited>) -> Vec<usize> {
        let number = |awaited| match awaited {
            Awaited::Piece(0, number) => Some(number),
            _ => None,
        };
        awaited.into_iter().filter_map(number).collect()
    }

    #[test]
    fn digests_are_taken_out_in_order_when_their_marks_are_there() {
        let slots = vec![0u64; 2 * SLOTS as usize];
        let base = slots.as_ptr().expose_provenance() as u64;
        // SAFETY: the vector lives until the end of the test.
        let complete = |slot: u64, mark: u64| unsafe {
            let place = (base + slot * SLOT_BYTES) as *mut u64;
            place.write_volatile(mark * 10);
            place.add(1).write_volatile(mark);
        };
        let pieces = |range: std::ops::Range<usize>| {
            let pieces = range.map(|number| Awaited::Piece(0, number));
            pieces.collect::<Vec<_>>()
        };
        let mut digests = Digests::default();
        assert!(!digests.is_active() && !digests.can_reserve(7, 1));
        digests.insert(Some(70), prepared(&slots));
        assert!(digests.is_active() && digests.of_recorded(70).is_some());
        assert_eq!(digests.reserve(7, pieces(0..3)), Some((1, 1)));
        complete(2, 2);
        assert!(digests.take_complete().is_empty(), "the first is not");
        complete(1, 1);
        let taken = digests.take_complete();
        assert_eq!(
            taken.iter().map(|taken| taken.1).collect::<Vec<_>>(),
            [10, 20]
        );
        assert_eq!(numbers(taken.into_iter().map(|taken| taken.0)), [0, 1]);
        assert!(digests.is_pending(7) && digests.awaiting().len() == 1);
        // The driver refused the second of two more.
        assert_eq!(digests.reserve(7, pieces(3..5)), Some((4, 4)));
        assert_eq!(numbers(digests.withdraw(7, 5)), [4]);
        let room = SLOTS as usize - 2;
        assert!(digests.can_reserve(7, room) && !digests.can_reserve(7, room + 1));
        assert_eq!(numbers(digests.give_up()), [2, 3]);
        assert!(!digests.is_pending(7));
        digests.waits_for_memory(7);
        assert!(digests.of(7).is_some() && digests.ordered(7).is_none());
        digests.reserve(7, pieces(8..9));
        digests.end_context(7);
        assert_eq!(numbers(digests.take_lost()), [8]);
        assert!(!digests.is_active() && digests.of_recorded(70).is_none());
    }
}
