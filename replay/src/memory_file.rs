//! Files that exist in memory only.

use std::ffi::CStr;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// A new, empty file; the name shows in `/proc`.
pub(crate) fn create(name: &CStr) -> io::Result<OwnedFd> {
    // Not through the C library: glibc before 2.27 has no function for it.
    // SAFETY: the name is a C string, and the second argument are flags.
    let answer = unsafe { libc::syscall(libc::SYS_memfd_create, name.as_ptr(), libc::MFD_CLOEXEC) };
    match i32::try_from(answer) {
        // SAFETY: the descriptor was created just now and has no other owner.
        Ok(descriptor @ 0..) => Ok(unsafe { OwnedFd::from_raw_fd(descriptor) }),
        _ => Err(io::Error::last_os_error()),
    }
}
