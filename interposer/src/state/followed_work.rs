//! Work of the device whose end the recorder has to know: it writes host memory whose bytes are
//! recorded, or reads memory that must not change meanwhile.
//!
//! `cutape-order` says which of it is complete. The recorder asks nothing and waits for nothing, so it
//! knows only what the program's own calls prove. While no work is followed, no lock is taken.

use core::sync::atomic::{AtomicUsize, Ordering};
use std::collections::{HashMap, HashSet};

use cutape_driver::types::CUlaunchConfig;
use cutape_order::{Clock, Doubt, Moment, Order, StreamKey, StreamKind};
use cutape_registry::{
    Family, Function, Kind, LaunchOp, STREAM_LEGACY, STREAM_PER_THREAD, Waits, canonical_stream, id,
};

use crate::call_order::Tells;
use crate::described_copy::is_within_device;
use crate::driver::ask;
use crate::hot::clock;
use crate::hot::frame::Frame;
use crate::hot::thread::Thread;
use crate::process::errno::Errno;
use crate::process::memory;
use crate::process::process_lock::ProcessLock;
use crate::queries::{current_context, is_capturing, is_of_device, is_shared_with_host};
use crate::state::captures;

/// CU_STREAM_NON_BLOCKING of cuda.h.
const NON_BLOCKING: u32 = 1;

/// Enqueued work: its stream, and when it had been enqueued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Work {
    stream: u32,
    /// While its call is in progress, `in_progress` of the thread: then no wait proves it complete.
    enqueued: Moment,
}

/// A moment that is never reached, one for each thread.
fn in_progress(thread: u32) -> Moment {
    Moment::MAX - Moment::from(thread)
}

impl Work {
    /// Whether this is complete only if the other is: it is later in the same stream.
    pub(crate) fn is_behind(self, other: Self) -> bool {
        let is_enqueued = other.enqueued < in_progress(u32::MAX);
        self.stream == other.stream && is_enqueued && self.enqueued >= other.enqueued
    }
}

/// A record of an event.
struct Recorded {
    /// What was before it.
    before: Clock,
    /// When the call had returned.
    returned: Moment,
}

struct Followed {
    order: Order,
    /// The last record of each event.
    events: HashMap<u64, Recorded>,
    /// Events that other processes may record.
    shared: HashSet<u64>,
    /// How much work is followed.
    count: usize,
}

impl Default for Followed {
    fn default() -> Self {
        Self {
            order: Order::new(Doubt::Running),
            events: HashMap::new(),
            shared: HashSet::new(),
            count: 0,
        }
    }
}

static FOLLOWED: ProcessLock<Followed> = ProcessLock::new();
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Whether any work is followed.
#[inline]
pub(crate) fn any() -> bool {
    COUNT.load(Ordering::Acquire) != 0
}

/// In a forked child: the parent's work is not this process's.
pub(crate) fn forget() {
    COUNT.store(0, Ordering::Relaxed);
    FOLLOWED.forget();
}

/// Begins to follow work that a call has enqueued on a stream, now. Each must be released once.
pub(crate) fn follow(thread: &Thread, frame: &Frame, handle: u64) -> Work {
    let enqueued = clock::ticks();
    share(1);
    let stream = stream(thread, frame.description(), handle);
    let mut followed = FOLLOWED.lock();
    followed.order.submit(stream, frame.start, enqueued);
    Work { stream, enqueued }
}

/// The same before the call's driver function runs. Once that has returned, `enqueued` has to be
/// called for it.
pub(crate) fn begin(thread: &Thread, frame: &Frame, handle: u64) -> Work {
    share(1);
    Work {
        stream: stream(thread, frame.description(), handle),
        enqueued: in_progress(thread.ordinal.get()),
    }
}

/// A call of a thread, entered then, has returned: its work among this had been enqueued now.
pub(crate) fn enqueued<'w>(
    works: impl Iterator<Item = &'w mut Work>,
    thread: u32,
    entered: Moment,
    now: Moment,
) {
    let mut followed = FOLLOWED.lock();
    for work in works.filter(|work| work.enqueued == in_progress(thread)) {
        work.enqueued = now;
        followed.order.submit(work.stream, entered, now);
    }
}

/// Followed work has so many more owners, each of which releases it.
pub(crate) fn share(more: usize) {
    let mut followed = FOLLOWED.lock();
    followed.count += more;
    COUNT.store(followed.count, Ordering::Release);
}

/// So much work is not followed any more.
pub(crate) fn release(count: usize) {
    if count == 0 {
        return;
    }
    let mut followed = FOLLOWED.lock();
    followed.count = followed.count.saturating_sub(count);
    if followed.count == 0 {
        *followed = Followed {
            shared: core::mem::take(&mut followed.shared),
            ..Followed::default()
        };
    }
    COUNT.store(followed.count, Ordering::Release);
}

/// Answers for the duration of the closure whether work is complete.
pub(crate) fn asking<T>(ask: impl FnOnce(&dyn Fn(Work) -> bool) -> T) -> T {
    let followed = FOLLOWED.lock();
    ask(&|work| followed.order.is_done(work.stream, work.enqueued))
}

/// Answers for the duration of the closure which context work is of; 0 if that is not known.
pub(crate) fn asking_contexts<T>(ask: impl FnOnce(&dyn Fn(Work) -> u64) -> T) -> T {
    let followed = FOLLOWED.lock();
    ask(&|work| followed.order.context_of(work.stream))
}

/// Answers for the duration of the closure whether work is before what a call has enqueued in a stream
/// that was entered then.
pub(crate) fn asking_before<T>(
    stream: StreamKey,
    entered: Moment,
    ask: impl FnOnce(&dyn Fn(Work) -> bool) -> T,
) -> T {
    let mut followed = FOLLOWED.lock();
    let order = &mut followed.order;
    let before = order
        .known(stream)
        .map(|stream| order.clock(stream, entered));
    ask(&|work| {
        let before = before.as_ref();
        before.is_some_and(|before| order.has(before, work.stream, work.enqueued))
    })
}

/// What tells the stream that a handle means in a call from others, and its context if that is a part
/// of it.
pub(crate) fn key(thread: &Thread, function: &Function, handle: u64) -> (StreamKey, u64) {
    let handle = canonical_stream(handle, function.per_thread);
    match handle {
        STREAM_LEGACY => {
            let context = current_context();
            ((STREAM_LEGACY, context), context)
        }
        STREAM_PER_THREAD => {
            let context = current_context();
            let thread = u64::from(thread.ordinal.get());
            ((STREAM_PER_THREAD | thread << 8, context), context)
        }
        _ => ((handle, 0), 0),
    }
}

/// The number of the stream that a handle means in a call.
fn stream(thread: &Thread, function: &Function, handle: u64) -> u32 {
    let (key, context) = key(thread, function, handle);
    let handle = canonical_stream(handle, function.per_thread);
    if let Some(known) = FOLLOWED.lock().order.known(key) {
        return known;
    }
    // The driver is asked without the lock.
    let (context, kind) = match handle {
        STREAM_LEGACY => (context, StreamKind::Legacy),
        STREAM_PER_THREAD => (context, StreamKind::Blocking),
        _ => (context_of(handle), kind_of(handle)),
    };
    FOLLOWED.lock().order.stream(key, context, kind)
}

fn context_of(stream: u64) -> u64 {
    // SAFETY: it writes a handle.
    unsafe { ask(id::cuStreamGetCtx, |place| [stream, place, 0, 0]) }.unwrap_or(0)
}

fn kind_of(stream: u64) -> StreamKind {
    // SAFETY: it writes an unsigned int.
    let flags: Option<u32> = unsafe { ask(id::cuStreamGetFlags, |place| [stream, place, 0, 0]) };
    match flags {
        Some(flags) if flags & NON_BLOCKING != 0 => StreamKind::NonBlocking,
        Some(_) => StreamKind::Blocking,
        None => StreamKind::Unknown,
    }
}

/// After a successful call of such a function, while work is followed.
#[cold]
pub(crate) fn observe(thread: &Thread, frame: &Frame) {
    let function = frame.description();
    // When it was entered: what was enqueued since is not behind the call.
    let now = frame.start;
    match Tells::of(function) {
        Tells::Nothing => {}
        Tells::Waits => wait(thread, frame, now),
        Tells::Fills(at) if !is_shared_with_host(frame.word(at)) => enqueued_beside(thread, frame),
        Tells::Copies(operands) if operands.iter().all(|&at| is_of_device(frame.word(at))) => {
            enqueued_beside(thread, frame);
        }
        Tells::CopiesDescribed(shape) if is_within_device(frame, shape) => {
            enqueued_beside(thread, frame);
        }
        Tells::WaitsForDefault | Tells::Fills(_) | Tells::Copies(_) | Tells::CopiesDescribed(_) => {
            let stream = stream(thread, function, 0);
            FOLLOWED.lock().order.complete_with_work(stream, now);
        }
        Tells::WaitsImplicitly => {
            let context = current_context();
            FOLLOWED.lock().order.complete_context(context, now);
        }
        Tells::FreesMemory => {
            let context = frame.waits_for_context();
            FOLLOWED.lock().order.complete_context(context, now);
        }
        Tells::Records { event, stream: at } => {
            let handle = frame.word(at);
            let stream =
                (!is_capturing(function, handle)).then(|| stream(thread, function, handle));
            let returned = clock::ticks();
            let mut followed = FOLLOWED.lock();
            let Followed {
                order,
                events,
                shared,
                ..
            } = &mut *followed;
            let event = frame.word(event);
            let old = events.remove(&event);
            if let Some(stream) = stream.filter(|_| !shared.contains(&event)) {
                // Which of two records that overlap is the last is not known.
                let before = match old.is_some_and(|old| old.returned > now) {
                    true => Clock::new(),
                    false => order.clock(stream, now),
                };
                order.marked(stream, now, returned);
                events.insert(event, Recorded { before, returned });
            }
        }
        Tells::WaitsForEvent { event, stream: at } => {
            let handle = frame.word(at);
            if is_capturing(function, handle) {
                return;
            }
            let stream = stream(thread, function, handle);
            let mut followed = FOLLOWED.lock();
            let Followed { order, events, .. } = &mut *followed;
            if let Some(recorded) = recorded_before(events, frame.word(event), now) {
                order.wait(stream, recorded, (now, clock::ticks()));
            }
        }
        Tells::UsesEvent(event) => {
            FOLLOWED.lock().events.remove(&frame.word(event));
        }
        Tells::Makes(kind, at) => {
            if let Some(handle) = memory::word(frame.word(at)) {
                let mut followed = FOLLOWED.lock();
                match kind {
                    Kind::Event => {
                        followed.events.remove(&handle);
                        followed.shared.remove(&handle);
                    }
                    _ => followed.order.destroyed((handle, 0)),
                }
            }
        }
    }
}

/// After a call that enqueues work, while other work is followed: the work of this one may pass the
/// order of the default stream on.
#[cold]
pub(crate) fn enqueued_beside(thread: &Thread, frame: &Frame) {
    if frame.result as i32 != 0 {
        return;
    }
    let _errno = Errno::keep();
    let function = frame.description();
    let handle = match (function.family, function.stream) {
        (Family::Launch(LaunchOp::Config(launch)), _) => {
            let config = frame.word(launch.config) as *const CUlaunchConfig;
            // SAFETY: the driver has read it in this call, and launched with it.
            unsafe { (&raw const (*config).hStream).read_unaligned() as u64 }
        }
        (_, at) => at.map_or(0, |at| frame.word(at)),
    };
    let stream = stream(thread, function, handle);
    let passes_on = FOLLOWED.lock().order.passes_order_on(stream);
    // The driver is asked without the lock.
    if passes_on && !(captures::any() && is_capturing(function, handle)) {
        let mut followed = FOLLOWED.lock();
        followed.order.submit(stream, frame.start, clock::ticks());
    }
}

/// Before calls that may record events in other ways than `Tells::Records`: what was before earlier
/// records is no more behind them.
pub(crate) fn forget_events(records: &[u64]) {
    let mut followed = FOLLOWED.lock();
    followed.events.retain(|event, _| !records.contains(event));
}

/// An event whose records other processes make, too.
pub(crate) fn shares_event(event: u64) {
    let mut followed = FOLLOWED.lock();
    followed.events.remove(&event);
    followed.shared.insert(event);
}

/// A call has waited for the earlier work of a stream.
pub(crate) fn has_waited_for(thread: &Thread, frame: &Frame, handle: u64) {
    let stream = stream(thread, frame.description(), handle);
    FOLLOWED
        .lock()
        .order
        .complete_with_work(stream, frame.start);
}

fn wait(thread: &Thread, frame: &Frame, now: Moment) {
    let function = frame.description();
    match function.waits {
        Waits::No => {}
        Waits::Context => {
            let named = (!function.params.is_empty()).then(|| frame.word(0));
            let named = named.filter(|&context| context != 0);
            let context = named.unwrap_or_else(current_context);
            FOLLOWED.lock().order.complete_context(context, now);
        }
        Waits::Stream(at) => {
            let stream = stream(thread, function, frame.word(at));
            FOLLOWED.lock().order.complete_stream(stream, now);
        }
        Waits::Event(at) => {
            let mut followed = FOLLOWED.lock();
            let Followed { order, events, .. } = &mut *followed;
            if let Some(recorded) = recorded_before(events, frame.word(at), now) {
                order.complete(recorded);
            }
        }
    }
}

/// What was before the last record of an event, if a call that was entered then waits for that
/// record and not for an earlier one.
fn recorded_before(events: &HashMap<u64, Recorded>, event: u64, now: Moment) -> Option<&Clock> {
    let recorded = events.get(&event)?;
    (recorded.returned <= now).then_some(&recorded.before)
}
