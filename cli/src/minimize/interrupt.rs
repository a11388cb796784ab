//! Ctrl-C ends a search, and leaves the smallest trace so far.

use std::sync::atomic::{AtomicBool, Ordering};

static CAME: AtomicBool = AtomicBool::new(false);

extern "C" fn note(_: libc::c_int) {
    CAME.store(true, Ordering::Relaxed);
}

/// From now on the signal is noted, and does not end the process. Called by the main thread, which the
/// system prefers to the one that waits for signals (`cutape_terminal::ending`).
pub(super) fn watch() {
    let note = note as *const () as libc::sighandler_t;
    // SAFETY: the handler stores an atomic, which is async-signal-safe; the set is a local value.
    unsafe {
        libc::signal(libc::SIGINT, note);
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGINT);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut());
    }
}

/// Whether the signal came.
pub(super) fn came() -> bool {
    CAME.load(Ordering::Relaxed)
}
