//! Where a replay is, for itself and, on a page that two processes share, for the one that guards
//! it.

use std::io;
use std::ops::Deref;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::memory_file;

/// Bytes of the shared page; it begins with [`Counters`].
const PAGE: usize = 4096;
const _: () = assert!(size_of::<Counters>() <= PAGE);
/// Threads of which it is known where they are; the shared page has no room for more.
const THREADS: usize = 500;

/// In [`Counters::complete`]: the replay of that rank has ended.
pub(crate) const ENDED: u64 = 1 << 63;

/// Numbers that another process may read at any time.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Counters {
    /// Index of the call that was last given to the driver.
    pub call: AtomicU64,
    /// How many calls are done.
    pub done: AtomicU64,
    /// Steps of the replay's own work between calls: pieces of memory that it has read or written.
    pub steps: AtomicU64,
    /// With several ranks: all calls below this index are done; [`ENDED`] if no more will be.
    pub complete: AtomicU64,
    /// Where each thread is, when threads run at once: 0, or twice the number (index plus one) of
    /// its call, plus one if the driver has it.
    threads: [AtomicU64; THREADS],
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            call: AtomicU64::new(0),
            done: AtomicU64::new(0),
            steps: AtomicU64::new(0),
            complete: AtomicU64::new(0),
            threads: [const { AtomicU64::new(0) }; THREADS],
        }
    }
}

impl Counters {
    /// The replay has done a piece of its own work.
    pub(crate) fn step(&self) {
        self.steps.fetch_add(1, Ordering::Relaxed);
    }

    fn put(&self, thread: usize, value: u64) {
        if let Some(place) = self.threads.get(thread) {
            place.store(value, Ordering::Relaxed);
        }
    }

    /// The thread has a call that waits for calls of other threads.
    pub(crate) fn waits(&self, thread: usize, call: u64) {
        self.put(thread, (call + 1) << 1);
    }

    /// The driver has a call of the thread.
    pub(crate) fn enters(&self, thread: usize, call: u64) {
        self.put(thread, ((call + 1) << 1) | 1);
    }

    /// The thread has no current call.
    pub(crate) fn leaves(&self, thread: usize) {
        self.put(thread, 0);
    }

    /// The current calls: thread, call index, whether the driver has it.
    pub(crate) fn current_calls(&self) -> Vec<(u32, u64, bool)> {
        let places = self.threads.iter().enumerate();
        places
            .filter_map(|(thread, place)| {
                let value = place.load(Ordering::Relaxed);
                let call = (value >> 1).checked_sub(1)?;
                Some((thread as u32, call, value & 1 != 0))
            })
            .collect()
    }
}

/// Where a replay is.
#[derive(Debug)]
pub(crate) enum Position {
    /// Known to this process alone.
    Own(Box<Counters>),
    /// Seen by the guarding process.
    Shared(Page),
}

impl Default for Position {
    fn default() -> Self {
        Self::Own(Box::default())
    }
}

impl Deref for Position {
    type Target = Counters;

    fn deref(&self) -> &Counters {
        match self {
            Self::Own(counters) => counters,
            Self::Shared(page) => page.counters(),
        }
    }
}

/// A page that two processes see.
#[derive(Debug)]
pub(crate) struct Page {
    file: OwnedFd,
    address: *const Counters,
}

// SAFETY: the page holds nothing but atomics and is unmapped only when its one owner is dropped.
unsafe impl Send for Page {}
// SAFETY: as above.
unsafe impl Sync for Page {}

impl Page {
    /// A page of zeros.
    pub(crate) fn create() -> io::Result<Self> {
        let file = memory_file::create(c"cutape-replay")?;
        // SAFETY: plain system call on an owned descriptor.
        if unsafe { libc::ftruncate(file.as_raw_fd(), PAGE as libc::off_t) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Self::map(file)
    }

    /// The page that a file of [`Page::create`] holds.
    pub(crate) fn map(file: OwnedFd) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a fresh shared mapping of a whole page of the file; it stays mapped while `self`
        // lives.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                PAGE,
                protection,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            file,
            address: address.cast(),
        })
    }

    /// By which another process maps it; it is closed with `self`.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// What it holds.
    pub(crate) fn counters(&self) -> &Counters {
        // SAFETY: the page is mapped while `self` lives, zeroed at first, aligned, and all fields
        // are atomics.
        unsafe { &*self.address }
    }

    /// The call in the driver, and how many are done.
    pub(crate) fn read(&self) -> (u64, u64) {
        let counters = self.counters();
        (
            counters.call.load(Ordering::Relaxed),
            counters.done.load(Ordering::Relaxed),
        )
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `map` and nothing borrows it any more.
        unsafe { libc::munmap(self.address as *mut libc::c_void, PAGE) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_shared_by_its_descriptor() {
        let page = Page::create().unwrap();
        let other = Page::map(page.file.try_clone().unwrap()).unwrap();
        page.counters().call.store(17, Ordering::Relaxed);
        page.counters().done.store(16, Ordering::Relaxed);
        assert_eq!(other.read(), (17, 16));
    }
}
