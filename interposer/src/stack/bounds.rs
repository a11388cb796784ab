//! Where a thread's stack ends.

use crate::hot::thread::Thread;

/// The stack that the system gave the calling thread: lowest address, and behind the highest; empty
/// if unknown. Asking the C library may allocate, so the answer is kept with the thread.
pub(super) fn of(thread: &Thread) -> (u64, u64) {
    let known = thread.stack.get();
    if known != (0, 0) {
        return known;
    }
    let found = ask().unwrap_or((1, 1));
    thread.stack.set(found);
    found
}

fn ask() -> Option<(u64, u64)> {
    // SAFETY: all-zero is a valid attribute object to be filled.
    let mut attributes: libc::pthread_attr_t = unsafe { core::mem::zeroed() };
    // SAFETY: the calling thread exists; the object is ours.
    let answer = unsafe { libc::pthread_getattr_np(libc::pthread_self(), &raw mut attributes) };
    if answer != 0 {
        return None;
    }
    let (mut start, mut length) = (core::ptr::null_mut(), 0);
    // SAFETY: filled above; both are valid for writing.
    let answer = unsafe {
        libc::pthread_attr_getstack(&raw const attributes, &raw mut start, &raw mut length)
    };
    // SAFETY: filled above, and not used again.
    unsafe { libc::pthread_attr_destroy(&raw mut attributes) };
    let start = start as u64;
    (answer == 0).then_some((start, start.saturating_add(length as u64)))
}
