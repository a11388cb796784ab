//! Where a replay is, for itself and, on a page that two processes share, for the one that guards
//! it.

use std::io;
use std::ops::Deref;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::process::memory_file;

/// Bytes of the shared page; it begins with [`Counters`].
const PAGE: usize = 4096;
const _: () = assert!(size_of::<Counters>() <= PAGE);
/// Threads of which it is known where they are; the shared page has no room for more.
const THREADS: usize = 489;

/// In [`Counters::complete`]: the replay of that rank has ended.
pub(crate) const ENDED: u64 = 1 << 63;

/// Numbers that another process may read at any time.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Counters {
    /// Not 0 once the trace has been read for the plan: the watchdog counts from then on.
    pub planned: AtomicU64,
    /// Index of the call that was last begun.
    pub call: AtomicU64,
    /// How many calls are done.
    pub done: AtomicU64,
    /// Steps of the replay's own work between calls: pieces of memory that it has read or written.
    pub steps: AtomicU64,
    /// Looks at other ranks, while this one waits for them: the watchdog is not to end it.
    pub looks: AtomicU64,
    /// With several ranks: all calls below this index are done; [`ENDED`] if no more will be.
    pub complete: AtomicU64,
    /// With several ranks: what this one waits for, as [`RankWait::encode`] puts it; 0 for nothing.
    pub waits_for: AtomicU64,
    /// The call that waits for it.
    pub waits_in: AtomicU64,
    /// Calls that have enqueued work.
    enqueued: AtomicU64,
    /// How many of them, the first ones, are done, as waits for all work of a context have shown.
    finished: AtomicU64,
    /// Host memory lies at other addresses than recorded.
    pub moved: AtomicU64,
    /// Where each thread is, when threads run at once: 0, or twice the number (index plus one) of
    /// its call, plus one if the driver has it.
    threads: [AtomicU64; THREADS],
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            planned: AtomicU64::new(0),
            call: AtomicU64::new(0),
            done: AtomicU64::new(0),
            steps: AtomicU64::new(0),
            looks: AtomicU64::new(0),
            complete: AtomicU64::new(0),
            waits_for: AtomicU64::new(0),
            waits_in: AtomicU64::new(0),
            enqueued: AtomicU64::new(0),
            finished: AtomicU64::new(0),
            moved: AtomicU64::new(0),
            threads: [const { AtomicU64::new(0) }; THREADS],
        }
    }
}

impl Counters {
    /// The replay has done a piece of its own work.
    pub(crate) fn step(&self) {
        self.steps.fetch_add(1, Ordering::Relaxed);
    }

    /// The replay waits for other ranks.
    pub(crate) fn looks_at_others(&self) {
        self.looks.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a call if it enqueues work; how many did before.
    pub(crate) fn count_work(&self, enqueues: bool) -> u64 {
        self.enqueued
            .fetch_add(u64::from(enqueues), Ordering::Release)
    }

    /// A wait for all work is over, before which that many calls had enqueued some. Several threads
    /// may wait at once.
    pub(crate) fn finish_work(&self, before: u64) {
        self.finished.fetch_max(before, Ordering::Release);
    }

    /// Whether work may be in flight.
    pub(crate) fn has_work(&self) -> bool {
        let finished = self.finished.load(Ordering::Acquire);
        self.enqueued.load(Ordering::Acquire) > finished
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

/// What a rank waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RankWait {
    /// The other rank.
    pub(crate) rank: usize,
    /// Its call: the export, or the last one that comes before.
    pub(crate) call: u64,
    /// For an export; else only for the recorded order.
    pub(crate) is_import: bool,
}

impl RankWait {
    const IMPORT: u64 = 1 << 63;
    const RANK: u32 = 48;

    pub(crate) fn encode(self) -> u64 {
        let call = self.call & ((1 << Self::RANK) - 1);
        let rank = (self.rank as u64 + 1) << Self::RANK;
        let kind = if self.is_import { Self::IMPORT } else { 0 };
        kind | rank | call
    }

    pub(crate) fn decode(word: u64) -> Option<Self> {
        let rank = ((word & !Self::IMPORT) >> Self::RANK) as usize;
        Some(Self {
            rank: rank.checked_sub(1)?,
            call: word & ((1 << Self::RANK) - 1),
            is_import: word & Self::IMPORT != 0,
        })
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
        memory_file::extend(&file, PAGE as u64)?;
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

    /// What the rank of this page waits for, and in which of its calls.
    pub(crate) fn rank_wait(&self) -> Option<(RankWait, u64)> {
        let counters = self.counters();
        let wait = RankWait::decode(counters.waits_for.load(Ordering::Acquire))?;
        Some((wait, counters.waits_in.load(Ordering::Relaxed)))
    }

    /// Changes whenever the replay does something but wait for other ranks.
    pub(crate) fn progress(&self) -> u64 {
        let counters = self.counters();
        let numbers = [&counters.call, &counters.done, &counters.steps];
        let sum = |sum: u64, number: &AtomicU64| sum.wrapping_add(number.load(Ordering::Relaxed));
        numbers.into_iter().fold(0, sum)
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

    #[test]
    fn work_is_in_flight_until_a_wait_that_began_behind_it() {
        let counters = Counters::default();
        assert!(!counters.has_work());
        counters.count_work(true);
        // Two threads wait at once, and work comes meanwhile.
        let waits = [counters.count_work(false), counters.count_work(false)];
        for before in waits {
            counters.finish_work(before);
            assert!(!counters.has_work());
        }
        let before = counters.count_work(false);
        counters.count_work(true);
        counters.finish_work(before);
        assert!(counters.has_work());
        counters.finish_work(counters.count_work(false));
        assert!(!counters.has_work());
    }

    #[test]
    fn what_a_rank_waits_for_is_one_word() {
        for (rank, call, is_import) in [(0, 0, false), (3, 12, true), (999, 1 << 40, false)] {
            let wait = RankWait {
                rank,
                call,
                is_import,
            };
            assert_eq!(RankWait::decode(wait.encode()), Some(wait));
        }
        assert_eq!(RankWait::decode(0), None);
    }
}
