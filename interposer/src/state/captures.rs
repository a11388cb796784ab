//! Whether streams of the program capture: then calls build graphs that otherwise do work.

use core::sync::atomic::{AtomicU32, Ordering};

use cutape_registry::keeps_capturing;

use crate::hot::frame::Frame;

/// How many captures have begun and not ended. One whose stream is destroyed stays counted: then
/// more is recorded than is needed.
static COUNT: AtomicU32 = AtomicU32::new(0);

/// Whether a stream may be capturing.
pub(crate) fn any() -> bool {
    COUNT.load(Ordering::Relaxed) != 0
}

/// A call begins a capture, unless it fails. It counts from before the driver is called: work of the
/// recorder's own must not come between.
pub(crate) fn begins() {
    COUNT.fetch_add(1, Ordering::Relaxed);
}

/// That call has returned.
pub(crate) fn begun(frame: &mut Frame) {
    if !frame.succeeded() {
        end_one();
    }
}

/// A call that ends a capture has returned.
pub(crate) fn ended(frame: &mut Frame) {
    if !keeps_capturing(frame.result as i32) {
        end_one();
    }
}

fn end_one() {
    let less = |count: u32| count.checked_sub(1);
    let _ = COUNT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
}

/// In a forked child.
pub(super) fn forget() {
    COUNT.store(0, Ordering::Relaxed);
}
