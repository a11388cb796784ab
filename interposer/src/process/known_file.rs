//! A descriptor of ours and the file that it is open for: the program may close descriptors that it
//! does not know, and open other files in their place.

use core::sync::atomic::{AtomicU64, Ordering};

/// A file by device and inode; none at first.
pub(crate) struct KnownFile {
    device: AtomicU64,
    inode: AtomicU64,
}

impl KnownFile {
    pub(crate) const fn new() -> Self {
        Self {
            device: AtomicU64::new(0),
            inode: AtomicU64::new(0),
        }
    }

    /// Remembers the file that a descriptor is open for; false if it is not open.
    pub(crate) fn remember(&self, descriptor: i32) -> bool {
        let status = status(descriptor);
        let (device, inode) = status.map_or((0, 0), |status| (status.st_dev, status.st_ino));
        self.device.store(device, Ordering::Relaxed);
        self.inode.store(inode, Ordering::Relaxed);
        status.is_some()
    }

    /// Whether a descriptor is open for that file.
    pub(crate) fn is_at(&self, descriptor: i32) -> bool {
        self.status_at(descriptor).is_some()
    }

    /// What the system says of that file, if a descriptor is open for it.
    pub(crate) fn status_at(&self, descriptor: i32) -> Option<libc::stat> {
        let status = status(descriptor)?;
        let known = (
            self.device.load(Ordering::Relaxed),
            self.inode.load(Ordering::Relaxed),
        );
        (known == (status.st_dev, status.st_ino)).then_some(status)
    }
}

fn status(descriptor: i32) -> Option<libc::stat> {
    // SAFETY: all-zero is a valid stat buffer.
    let mut status: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: the buffer is ours.
    let is_open = unsafe { libc::fstat(descriptor, &raw mut status) } == 0;
    is_open.then_some(status)
}
