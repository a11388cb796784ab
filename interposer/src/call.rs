//! A call in progress, and whether this process records any.

use core::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use cutape_format::PayloadPolicy;
use cutape_registry::FUNCTIONS;

use crate::plan::{self, MOST_PARAMETERS, Plan};
use crate::settings::Settings;
use crate::thread::{self, Thread};
use crate::{
    clock, cost, driver, entry, errno, fork, host_memory, identity, layouts, log, maps, trace_file,
};

/// A call in progress, on its thread's stack, where its entry has made it. What every call needs is first, where an instruction
/// reaches it by a distance of one byte.
#[repr(C, align(16))]
pub(crate) struct Frame {
    pub(crate) thread: *const Thread,
    pub(crate) plan: *const Plan,
    /// By which the thread knows that this is still the frame of its call in progress.
    pub(crate) mark: u64,
    /// Ticks when it was entered, as its record says.
    pub(crate) entered: u64,
    /// What the driver returned.
    pub(crate) result: u64,
    /// A position in `FUNCTIONS`; see `index`.
    pub(crate) function: u16,
    /// `entry::shape` of the function.
    pub(crate) shape: u16,
    /// The arguments in the order of the prototype; the entry puts the integer registers first.
    pub(crate) words: [u64; MOST_PARAMETERS],
    /// The arguments that are not in registers; set where there are any.
    pub(crate) stack: *const u64,
    /// What a function's override keeps from before the call to after it.
    pub(crate) kept: [u64; 3],
    /// The argument registers, if the function's entry says `entry::SCATTERED`: only then `words` is not the same.
    pub(crate) registers: [u64; 6],
    pub(crate) vectors: [[u64; 2]; 8],
    /// The caller's rbp, which the entry pushes, and where the caller goes on.
    pub(crate) base: u64,
    pub(crate) caller: u64,
}

impl Frame {
    /// The function's position in `FUNCTIONS`.
    #[inline(always)]
    pub(crate) fn index(&self) -> usize {
        let index = usize::from(self.function);
        // SAFETY: entries put their function's own number there, and nobody else makes frames, except tests, which do so, too.
        unsafe { core::hint::assert_unchecked(index < FUNCTIONS.len()) };
        index
    }
}

const NOT_STARTED: u8 = 0;
const STARTING: u8 = 1;
pub(crate) const RECORDING: u8 = 2;
/// The calls go to the driver unseen.
const PASSING: u8 = 3;
/// As `RECORDING`, and what that costs is measured.
pub(crate) const MEASURING: u8 = 4;
/// As `RECORDING`, where the clock is not the processor's counter.
const COUNTING: u8 = 5;

/// What becomes of calls: one of the values above.
pub(crate) static STATE: AtomicU8 = AtomicU8::new(NOT_STARTED);
static THREADS: AtomicU32 = AtomicU32::new(0);
static PAYLOADS: AtomicU8 = AtomicU8::new(PayloadPolicy::All as u8);
static OUTPUTS: AtomicU8 = AtomicU8::new(PayloadPolicy::All as u8);

/// What is kept of bytes that go to devices, and of bytes that come back.
pub(crate) fn payload_policy() -> (PayloadPolicy, PayloadPolicy) {
    let policy = |kept: &AtomicU8| {
        let kept = usize::from(kept.load(Ordering::Relaxed));
        PayloadPolicy::EVERY
            .get(kept)
            .copied()
            .unwrap_or(PayloadPolicy::None)
    };
    (policy(&PAYLOADS), policy(&OUTPUTS))
}

/// The ordinal of a thread that makes its first call.
pub(crate) fn next_thread() -> u32 {
    THREADS.fetch_add(1, Ordering::Relaxed)
}

/// Whether this process records.
pub(crate) fn is_recording() -> bool {
    records(STATE.load(Ordering::Relaxed))
}

fn records(state: u8) -> bool {
    matches!(state, RECORDING | MEASURING | COUNTING)
}

/// Stops recording in this process; true for the one caller that did it.
pub(crate) fn stop() -> bool {
    let ends = |state| records(state).then_some(PASSING);
    STATE
        .fetch_update(Ordering::AcqRel, Ordering::Relaxed, ends)
        .is_ok()
}

/// The process ends in order.
pub(crate) fn at_exit() {
    let state = STATE.load(Ordering::Acquire);
    if records(state) {
        let _errno = errno::Errno::keep();
        if state == MEASURING {
            identity::write_cost(cost::total());
        }
        maps::write_if_changed();
    }
}

/// In a forked child: nothing has been recorded here yet.
pub(crate) fn forget() {
    // Also if another thread was about to start the recording: that thread is not here.
    if STATE.load(Ordering::Relaxed) != PASSING {
        STATE.store(NOT_STARTED, Ordering::Relaxed);
    }
    THREADS.store(0, Ordering::Relaxed);
}

/// Starts recording if that is still to be done.
pub(crate) fn begin(state: &Thread) {
    if STATE.load(Ordering::Acquire) != RECORDING {
        started(state);
    }
}

/// Starts recording if that is still to be done; whether this process records.
#[cold]
pub(crate) fn started(state: &Thread) -> bool {
    loop {
        match STATE.load(Ordering::Acquire) {
            RECORDING | MEASURING | COUNTING => return true,
            PASSING => return false,
            NOT_STARTED => {
                let _errno = errno::Errno::keep();
                // Every thread that comes here loads the driver: who waited for another one would wait for ever if the other
                // waited for the loader, which this thread may hold, as the constructor of a library.
                let next = if state.during_start(load) {
                    STARTING
                } else {
                    PASSING
                };
                let won =
                    STATE.compare_exchange(NOT_STARTED, next, Ordering::AcqRel, Ordering::Relaxed);
                if won.is_ok() && next == STARTING {
                    let records = state.during_start(start);
                    STATE.store(records, Ordering::Release);
                }
            }
            // Another thread is at it, and needs no lock of the loader's that is held for long.
            // SAFETY: no memory is involved.
            _ => unsafe {
                libc::sched_yield();
            },
        }
    }
}

/// Loads the driver before anybody calls it; whether there is one.
#[cfg(feature = "gum")]
pub(crate) fn load_early() -> bool {
    // SAFETY: the state lives as long as its thread, which is this one.
    unsafe { &*thread::current() }.during_start(load)
}

/// Loads the driver; whether there is one.
fn load() -> bool {
    fork::watch();
    log::begin();
    let loaded = driver::is_loaded() || driver::load(Settings::read().driver.as_deref());
    if !loaded {
        log::line(&[b"there is no CUDA driver to pass the calls on to"]);
    }
    loaded
}

/// Creates the trace. What becomes of the calls from now on: a value of `STATE`.
fn start() -> u8 {
    let settings = Settings::read();
    let Some(trace) = settings.trace else {
        return PASSING;
    };
    plan::prepare();
    thread::watch_ends();
    layouts::forget_notes();
    PAYLOADS.store(settings.payloads as u8, Ordering::Relaxed);
    OUTPUTS.store(settings.outputs as u8, Ordering::Relaxed);
    host_memory::configure(settings.host_memory);
    trace_file::close();
    let clock = clock::choose();
    if !trace_file::create(&trace, clock) {
        return PASSING;
    }
    identity::write_program();
    maps::write();
    debug_assert_eq!(FUNCTIONS.len(), entry::count());
    cost::forget();
    match clock {
        _ if settings.measures_cost => MEASURING,
        clock::PROCESSOR => RECORDING,
        _ => COUNTING,
    }
}
