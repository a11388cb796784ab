//! Keeping `errno` as the program left it.

/// Puts `errno` back when it goes out of scope. Held around everything here that makes system calls.
pub(crate) struct Errno(i32);

impl Errno {
    /// Remembers the present value.
    pub(crate) fn keep() -> Self {
        // SAFETY: the location is the calling thread's own and always valid.
        Self(unsafe { *libc::__errno_location() })
    }
}

impl Drop for Errno {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = self.0 }
    }
}

/// The present value.
pub(crate) fn get() -> i32 {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() }
}
