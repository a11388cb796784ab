//! What ends with a thread and with the process, as measured (driver 580.159, H100, 2026-11-22).
//!
//! A thread's context is current until the destructor of the driver's own thread-specific key has
//! run: destructors of `thread_local` values and of keys made before `cuInit` find it, those of
//! later keys do not. The driver itself ends with its exit handler: what was registered before
//! `cuInit` runs after it.

use std::ffi::c_void;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

static KEY: OnceLock<Option<libc::pthread_key_t>> = OnceLock::new();
static ENDED: AtomicBool = AtomicBool::new(false);

/// Whether the driver has ended with its process.
pub(crate) fn has_ended() -> bool {
    ENDED.load(Ordering::Relaxed)
}

/// Registers what runs at the end of the process, and `end_thread` for that of threads which are
/// watched; the first time only.
pub(crate) fn register(end_thread: extern "C" fn(*mut c_void)) {
    KEY.get_or_init(|| {
        let mut key = 0;
        // SAFETY: the exit handler is this library's, and runs when it is unloaded at the latest;
        // the key is written before it is used.
        unsafe {
            libc::atexit(end_process);
            (libc::pthread_key_create(&raw mut key, Some(end_thread)) == 0).then_some(key)
        }
    });
}

/// The calling thread has a context: its end must be noticed.
pub(crate) fn watch_thread() {
    if let Some(Some(key)) = KEY.get() {
        // SAFETY: the key exists; the value only tells the C library to call the destructor.
        unsafe { libc::pthread_setspecific(*key, ptr::without_provenance(1)) };
    }
}

extern "C" fn end_process() {
    ENDED.store(true, Ordering::Relaxed);
}
