//! Files that exist in memory only.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

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

/// Gives a file a length; what is added reads as zeros.
pub(crate) fn extend(file: &OwnedFd, length: u64) -> io::Result<()> {
    let length = libc::off_t::try_from(length).map_err(io::Error::other)?;
    // SAFETY: plain system call on an owned descriptor.
    match unsafe { libc::ftruncate(file.as_raw_fd(), length) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Reads a part of a file; `None` if it is not that long.
pub(crate) fn read(file: &OwnedFd, offset: u64, length: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0_u8; length];
    let offset = libc::off_t::try_from(offset).ok()?;
    // SAFETY: the kernel writes within `bytes`.
    let read = unsafe { libc::pread(file.as_raw_fd(), bytes.as_mut_ptr().cast(), length, offset) };
    (usize::try_from(read) == Ok(length)).then_some(bytes)
}
