//! Regular files of the program, by name.

use core::ffi::c_int;
use std::ffi::CStr;
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};

/// What the system says about a regular file.
pub(crate) struct RegularFile {
    pub(crate) inode: u64,
    pub(crate) length: u64,
    /// When it was last changed, in nanoseconds since 1970.
    pub(crate) modified: u64,
}

impl RegularFile {
    /// The file of a name; `None` if there is none, or it is not regular.
    pub(crate) fn named(path: &CStr) -> Option<Self> {
        // SAFETY: the path ends in NUL.
        Self::told(|status| unsafe { libc::stat(path.as_ptr(), status) })
    }

    /// Opens it to be read. Opening a pipe, even for a moment, would let its writer start before the
    /// driver reads: the writer would be killed by SIGPIPE, and the driver wait for ever.
    pub(crate) fn open(path: &CStr) -> Option<(File, Self)> {
        Self::named(path)?;
        let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;
        // SAFETY: the path ends in NUL.
        let descriptor = unsafe { libc::open(path.as_ptr(), flags) };
        if descriptor < 0 {
            return None;
        }
        // SAFETY: the descriptor was just opened here.
        let file = unsafe { File::from_raw_fd(descriptor) };
        // SAFETY: no memory but the buffer is involved.
        let told = Self::told(|status| unsafe { libc::fstat(file.as_raw_fd(), status) })?;
        Some((file, told))
    }

    fn told(ask: impl FnOnce(*mut libc::stat) -> c_int) -> Option<Self> {
        // SAFETY: all-zero is a valid stat buffer.
        let mut status: libc::stat = unsafe { core::mem::zeroed() };
        let is_known = ask(&raw mut status) == 0;
        let is_regular = status.st_mode & libc::S_IFMT == libc::S_IFREG;
        (is_known && is_regular).then_some(Self {
            inode: status.st_ino,
            length: status.st_size as u64,
            modified: (status.st_mtime as u64)
                .wrapping_mul(1_000_000_000)
                .wrapping_add(status.st_mtime_nsec as u64),
        })
    }
}
