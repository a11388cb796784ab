//! Ctrl-C ends a search, and leaves the smallest trace so far.

use std::sync::atomic::{AtomicBool, Ordering};

static CAME: AtomicBool = AtomicBool::new(false);

extern "C" fn note(_: libc::c_int) {
    CAME.store(true, Ordering::Relaxed);
}

/// From now on the signal is noted, and does not end the process.
pub(super) fn watch() {
    let note = note as *const () as libc::sighandler_t;
    // SAFETY: the handler stores an atomic, which is async-signal-safe.
    unsafe { libc::signal(libc::SIGINT, note) };
}

/// Whether the signal came.
pub(super) fn came() -> bool {
    CAME.load(Ordering::Relaxed)
}
