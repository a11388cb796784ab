//! What recording costs this program, measured only when asked: two more readings of the clock on each side of a call, which is then
//! entered by the way of what needs care (`enter.rs`), so that a little more is measured than recording costs when nobody asks.

use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use crate::clock;
use crate::thread::Thread;

/// Ticks that one thread has spent here. Written by that thread, read at the end of the process.
pub(crate) struct Cost {
    calls: AtomicU64,
    ticks: AtomicU64,
    /// Of one call, on one side of the driver.
    longest: AtomicU64,
    next: *const Cost,
}

/// The costs of all threads, which stay when these have ended.
static ALL: AtomicPtr<Cost> = AtomicPtr::new(core::ptr::null_mut());

/// Forgets what was counted, for a new trace.
pub(crate) fn forget() {
    ALL.store(core::ptr::null_mut(), Ordering::Relaxed);
}

/// Adds what one side of a call has taken since `began`.
#[cold]
pub(crate) fn add(state: &Thread, began: u64, is_call: bool) {
    let known = state.cost.get();
    // SAFETY: NULL, or leaked by `begin`.
    let cost = unsafe { known.as_ref() }.unwrap_or_else(|| begin(state));
    let spent = clock::ticks().wrapping_sub(began);
    // One writer: no need to add in one step.
    let put = |place: &AtomicU64, value: u64| place.store(value, Ordering::Relaxed);
    let get = |place: &AtomicU64| place.load(Ordering::Relaxed);
    put(&cost.calls, get(&cost.calls) + u64::from(is_call));
    put(&cost.ticks, get(&cost.ticks) + spent);
    put(&cost.longest, get(&cost.longest).max(spent));
}

/// A thread's first call. Leaked on purpose: the thread may end before the process.
fn begin(state: &Thread) -> &'static Cost {
    let _errno = crate::errno::Errno::keep();
    let cost = Box::leak(Box::new(Cost {
        calls: AtomicU64::new(0),
        ticks: AtomicU64::new(0),
        longest: AtomicU64::new(0),
        next: core::ptr::null(),
    }));
    let mut next = ALL.load(Ordering::Acquire);
    loop {
        cost.next = next;
        match ALL.compare_exchange_weak(next, cost, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => break,
            Err(other) => next = other,
        }
    }
    state.cost.set(cost);
    cost
}

/// Calls, ticks, and the longest time of one call, over all threads.
pub(crate) fn total() -> [u64; 3] {
    let mut total = [0; 3];
    let mut at: *const Cost = ALL.load(Ordering::Acquire);
    // SAFETY: NULL, or leaked by `begin`, complete before it was put into the list.
    while let Some(cost) = unsafe { at.as_ref() } {
        total[0] += cost.calls.load(Ordering::Relaxed);
        total[1] += cost.ticks.load(Ordering::Relaxed);
        total[2] = total[2].max(cost.longest.load(Ordering::Relaxed));
        at = cost.next;
    }
    total
}
