//! A forked child gets a file of its own, or none if it never calls the driver.

use core::sync::atomic::{AtomicU32, Ordering};

/// Counts forks on the way to this process; what belongs to an older count is the parent's.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// Asks to be told of forks.
pub(crate) fn watch() {
    // SAFETY: the handler touches atomics only.
    unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
}

extern "C" fn in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    crate::call::forget();
}

/// The present count.
#[inline]
pub(crate) fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}
