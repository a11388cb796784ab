//! Regular files of the program, by name.

use core::ffi::c_int;
use core::mem::ManuallyDrop;
use core::ops::Deref;
use std::collections::HashMap;
use std::ffi::CStr;
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};

use super::process_lock::ProcessLock;

/// Device and inode.
type Identity = (u64, u64);

/// Descriptors that are never closed.
static KEPT_OPEN: ProcessLock<HashMap<Identity, c_int>> = ProcessLock::new();

/// What the system says about a regular file.
pub(crate) struct RegularFile {
    device: u64,
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
    pub(crate) fn open(path: &CStr) -> Option<(OpenFile, Self)> {
        let named = Self::named(path)?;
        let kept = KEPT_OPEN.lock().get(&named.identity()).copied();
        // The program may have closed it, and opened another file in its place.
        if let Some(descriptor) = kept
            && let Some(told) = Self::at(descriptor)
            && told.identity() == named.identity()
        {
            return Some((OpenFile::of(descriptor, true), told));
        }
        let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;
        // SAFETY: the path ends in NUL.
        let descriptor = unsafe { libc::open(path.as_ptr(), flags) };
        if descriptor < 0 {
            return None;
        }
        let file = OpenFile::of(descriptor, false);
        let told = Self::at(descriptor)?;
        Some((file, told))
    }

    /// What the system says about a descriptor.
    fn at(descriptor: c_int) -> Option<Self> {
        // SAFETY: no memory but the buffer is involved.
        Self::told(|status| unsafe { libc::fstat(descriptor, status) })
    }

    fn identity(&self) -> Identity {
        (self.device, self.inode)
    }

    fn told(ask: impl FnOnce(*mut libc::stat) -> c_int) -> Option<Self> {
        // SAFETY: all-zero is a valid stat buffer.
        let mut status: libc::stat = unsafe { core::mem::zeroed() };
        let is_known = ask(&raw mut status) == 0;
        let is_regular = status.st_mode & libc::S_IFMT == libc::S_IFREG;
        (is_known && is_regular).then_some(Self {
            device: status.st_dev,
            inode: status.st_ino,
            length: status.st_size as u64,
            modified: (status.st_mtime as u64)
                .wrapping_mul(1_000_000_000)
                .wrapping_add(status.st_mtime_nsec as u64),
        })
    }
}

/// In a forked child, which has none of its parent's locks.
pub(crate) fn forget() {
    KEPT_OPEN.forget();
}

/// An open file of the program. Closing any descriptor of a file ends all record locks that the
/// process has on it (fcntl(2)), so that of a locked file stays open.
pub(crate) struct OpenFile {
    file: ManuallyDrop<File>,
    is_kept: bool,
}

impl OpenFile {
    fn of(descriptor: c_int, is_kept: bool) -> Self {
        // SAFETY: the descriptor was opened here, and is closed by `drop` at most, unless it is kept.
        let file = ManuallyDrop::new(unsafe { File::from_raw_fd(descriptor) });
        Self { file, is_kept }
    }
}

impl Deref for OpenFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        if self.is_kept {
            return;
        }
        let descriptor = self.file.as_raw_fd();
        if has_locks(descriptor)
            && let Some(told) = RegularFile::at(descriptor)
        {
            KEPT_OPEN.lock().insert(told.identity(), descriptor);
            return;
        }
        // SAFETY: not used afterwards.
        unsafe { ManuallyDrop::drop(&mut self.file) };
    }
}

/// Whether a process has record locks on a file. A lock of an open file description is in conflict
/// with those of this process, too.
fn has_locks(descriptor: c_int) -> bool {
    // SAFETY: all-zero is a valid lock: of the whole file.
    let mut lock: libc::flock = unsafe { core::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as _;
    // SAFETY: the request reads and writes the lock.
    let answer = unsafe { libc::fcntl(descriptor, libc::F_OFD_GETLK, &raw mut lock) };
    answer == 0 && lock.l_type != libc::F_UNLCK as libc::c_short
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn locks_survive() {
        let path = std::env::temp_dir().join(format!("cutape-locks-{}", std::process::id()));
        let name = CString::new(path.as_os_str().as_bytes()).unwrap();
        let mut options = File::options();
        let file = options.read(true).write(true).create_new(true);
        let (file, probe) = (file.open(&path).unwrap(), File::open(&path).unwrap());
        let opened = || {
            let (opened, _) = RegularFile::open(&name).unwrap();
            opened.as_raw_fd()
        };
        assert_eq!(opened(), opened(), "it is closed");
        // SAFETY: all-zero is a valid lock: of the whole file.
        let mut lock: libc::flock = unsafe { core::mem::zeroed() };
        lock.l_type = libc::F_WRLCK as _;
        // SAFETY: the request reads the lock.
        let answer = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLK, &raw const lock) };
        assert_eq!(answer, 0);
        let kept = opened();
        assert!(has_locks(probe.as_raw_fd()));
        assert_eq!(opened(), kept);
        assert!(has_locks(probe.as_raw_fd()));
        std::fs::remove_file(&path).unwrap();
    }
}
