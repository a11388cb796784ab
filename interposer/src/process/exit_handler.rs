//! Code that runs when the process exits.

use core::sync::atomic::{AtomicBool, Ordering};

/// A function that the C library calls when the process exits.
pub(crate) struct ExitHandler {
    run: extern "C" fn(),
    is_registered: AtomicBool,
}

impl ExitHandler {
    pub(crate) const fn new(run: extern "C" fn()) -> Self {
        Self {
            run,
            is_registered: AtomicBool::new(false),
        }
    }

    /// Registers it, once. A handler that is registered when the driver is initialised runs before
    /// those that the driver has registered.
    pub(crate) fn register(&self) {
        if !self.is_registered.swap(true, Ordering::Relaxed) {
            // SAFETY: this library is never unloaded.
            unsafe { libc::atexit(self.run) };
        }
    }
}
