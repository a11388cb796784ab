//! Whether this process records calls, and which payloads it keeps.
//!
//! `start` moves the state from `NOT_STARTED` to one of the others; `stop` ends the recording.
//!
//! Recording can be paused, by other processes too: that is said in the control chunk of the trace
//! (`cutape_format::control`). The fast path compares the word there with the one that its thread
//! has seen, and so takes notice of both the beginning and the end of a pause.

use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, Ordering};

use cutape_format::PayloadPolicy;
use cutape_format::control::{Control, Pausing};

pub(crate) const NOT_STARTED: u8 = 0;
/// One thread creates the trace; the others wait.
pub(crate) const STARTING: u8 = 1;
/// Calls are recorded with the time stamp counter as the clock: the state that the fast path
/// handles.
pub(crate) const RECORDING: u8 = 2;
/// Calls go to the driver unrecorded.
pub(crate) const PASSING: u8 = 3;
/// As `RECORDING`; the cost of recording is measured as well.
pub(crate) const MEASURING: u8 = 4;
/// As `RECORDING`, with a shared counter as the clock.
pub(crate) const COUNTING: u8 = 5;
/// As `RECORDING`; calls may have call stacks.
pub(crate) const WITH_STACKS: u8 = 6;

/// One of the values above.
pub(crate) static STATE: AtomicU8 = AtomicU8::new(NOT_STARTED);
static THREADS: AtomicU32 = AtomicU32::new(0);
static PAYLOADS: AtomicU8 = AtomicU8::new(PayloadPolicy::All as u8);
static OUTPUTS: AtomicU8 = AtomicU8::new(PayloadPolicy::All as u8);

/// The control chunk of no trace.
static NO_CONTROL: Control = Control::of_no_file();
/// The control chunk of the trace while this process records.
static CONTROL: AtomicPtr<Control> = AtomicPtr::new((&raw const NO_CONTROL).cast_mut());

/// The control chunk; one in which nothing changes if this process does not record.
#[inline(always)]
pub(crate) fn control() -> &'static Control {
    // SAFETY: the static, or mapped for good.
    unsafe { &*CONTROL.load(Ordering::Acquire) }
}

/// Whether recording is paused.
#[inline(always)]
pub(crate) fn pausing() -> Pausing {
    control().pausing()
}

/// Takes the control chunk of the trace; `None` if there is no trace any more.
pub(crate) fn set_control(control: Option<&'static Control>) {
    let control = core::ptr::from_ref(control.unwrap_or(&NO_CONTROL));
    CONTROL.store(control.cast_mut(), Ordering::Release);
}

/// Whether calls are recorded in that state.
pub(crate) fn records(state: u8) -> bool {
    matches!(state, RECORDING | MEASURING | COUNTING | WITH_STACKS)
}

/// Whether this process records.
pub(crate) fn is_recording() -> bool {
    records(STATE.load(Ordering::Relaxed))
}

/// Stops recording in this process. True for the one caller that stopped it.
pub(crate) fn stop() -> bool {
    let stopped = |state| records(state).then_some(PASSING);
    let is_first = STATE
        .fetch_update(Ordering::AcqRel, Ordering::Relaxed, stopped)
        .is_ok();
    if is_first {
        // Takes all threads off the fast path.
        set_control(None);
    }
    is_first
}

/// In a forked child: nothing is recorded yet.
pub(crate) fn forget() {
    // Also from `STARTING`: the thread that was starting does not exist in the child.
    if STATE.load(Ordering::Relaxed) != PASSING {
        STATE.store(NOT_STARTED, Ordering::Relaxed);
    }
    THREADS.store(0, Ordering::Relaxed);
    set_control(None);
}

/// The ordinal of a thread that makes its first call.
pub(crate) fn next_thread() -> u32 {
    THREADS.fetch_add(1, Ordering::Relaxed)
}

/// Whether other threads than this one have made calls.
pub(crate) fn has_several_threads() -> bool {
    THREADS.load(Ordering::Relaxed) > 1
}

/// Sets which bytes are kept: of those that go to devices, and of those that come back.
pub(crate) fn set_payload_policy(payloads: PayloadPolicy, outputs: PayloadPolicy) {
    PAYLOADS.store(payloads as u8, Ordering::Relaxed);
    OUTPUTS.store(outputs as u8, Ordering::Relaxed);
}

/// Which bytes are kept: of those that go to devices, and of those that come back.
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
