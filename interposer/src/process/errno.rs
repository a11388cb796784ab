//! Keeps `errno` as the program left it while we make system calls, and prevents cancellation
//! meanwhile.

use core::ffi::c_int;

/// PTHREAD_CANCEL_DISABLE of pthread.h.
const CANCEL_DISABLE: c_int = 1;

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}

/// Restores `errno` when it is dropped. Until then the thread cannot be cancelled: our writes would
/// be cancellation points that the program's call does not have. Held around everything that makes
/// system calls or allocates.
pub(crate) struct Errno {
    errno: i32,
    cancellation: c_int,
}

impl Errno {
    /// Saves the current value.
    pub(crate) fn keep() -> Self {
        let errno = get();
        let mut cancellation = 0;
        // SAFETY: `cancellation` is valid for writing an int; the calling thread alone is
        // concerned.
        unsafe { pthread_setcancelstate(CANCEL_DISABLE, &raw mut cancellation) };
        Self {
            errno,
            cancellation,
        }
    }
}

impl Drop for Errno {
    fn drop(&mut self) {
        // SAFETY: puts back what `keep` got; a null second argument asks for nothing.
        unsafe { pthread_setcancelstate(self.cancellation, core::ptr::null_mut()) };
        set(self.errno);
    }
}

/// The current value.
pub(crate) fn get() -> i32 {
    // SAFETY: the location is the calling thread's own and always valid.
    unsafe { *libc::__errno_location() }
}

/// Sets why something failed, as system calls do.
pub(crate) fn set(error: i32) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = error }
}
