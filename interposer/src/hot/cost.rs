//! Measures what recording costs, if the launcher asks for it: two more clock reads on each side of
//! a call, which then takes the slow path, so that a little more is measured than recording costs
//! otherwise.

use core::cell::Cell;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use super::clock;
use crate::process::errno::Errno;

/// Ticks that one thread has spent recording. Written by that thread, read at the end of the
/// process.
pub(crate) struct Cost {
    calls: AtomicU64,
    ticks: AtomicU64,
    /// Most ticks on one side of a call.
    longest: AtomicU64,
    next: *const Cost,
}

/// The costs of all threads, also of those that have ended.
static ALL: AtomicPtr<Cost> = AtomicPtr::new(core::ptr::null_mut());

/// Forgets what was counted, for a new trace.
pub(crate) fn forget() {
    ALL.store(core::ptr::null_mut(), Ordering::Relaxed);
}

/// Adds the ticks of one side of a call, since `began`, to a thread's cost.
#[cold]
pub(crate) fn add(own: &Cell<*const Cost>, began: u64, is_call: bool) {
    let known = own.get();
    // SAFETY: NULL, or leaked by `begin`.
    let cost = unsafe { known.as_ref() }.unwrap_or_else(|| begin(own));
    let spent = clock::ticks().wrapping_sub(began);
    // This thread is the only writer, so the addition need not be atomic.
    let put = |place: &AtomicU64, value: u64| place.store(value, Ordering::Relaxed);
    let get = |place: &AtomicU64| place.load(Ordering::Relaxed);
    put(&cost.calls, get(&cost.calls) + u64::from(is_call));
    put(&cost.ticks, get(&cost.ticks) + spent);
    put(&cost.longest, get(&cost.longest).max(spent));
}

/// A thread's first call. Leaked on purpose: the thread may end before the process.
fn begin(own: &Cell<*const Cost>) -> &'static Cost {
    let _errno = Errno::keep();
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
    own.set(cost);
    cost
}

/// Calls, ticks, and the longest time of one call, over all threads.
pub(crate) fn total() -> [u64; 3] {
    let mut total = [0; 3];
    let mut at: *const Cost = ALL.load(Ordering::Acquire);
    // SAFETY: NULL, or leaked by `begin`, complete before it was added to the list.
    while let Some(cost) = unsafe { at.as_ref() } {
        total[0] += cost.calls.load(Ordering::Relaxed);
        total[1] += cost.ticks.load(Ordering::Relaxed);
        total[2] = total[2].max(cost.longest.load(Ordering::Relaxed));
        at = cost.next;
    }
    total
}
