//! A forked child gets a file of its own, or none if it never calls the driver.

use core::sync::atomic::{AtomicBool, Ordering};

static WATCHED: AtomicBool = AtomicBool::new(false);

/// Asks to be told of forks; once.
pub(crate) fn watch() {
    if !WATCHED.swap(true, Ordering::Relaxed) {
        // SAFETY: the handler touches atomics and the forking thread's own state.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    }
}

/// The forking thread is the only one here; what it had open is the parent's.
extern "C" fn in_child() {
    crate::call::forget();
    crate::forward::forget();
    crate::pending::forget();
    crate::host_memory::forget();
    crate::overrides::forget();
    // SAFETY: the state lives as long as its thread, which is this one.
    unsafe { &*crate::thread::current() }.forget();
}
