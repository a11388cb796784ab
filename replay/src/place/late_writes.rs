//! What the program wrote into host memory while it waited for the device, or just before.
//!
//! A kernel may wait for such a value: without it, the replay would wait until the kernel gives up,
//! or for ever. The recording says what the memory held when the wait was over, but not when it was
//! written, nor whether the device wrote it. So it is put there only if a wait lasts much longer
//! than the recorded one, and only a few bytes that still hold what they held before. In memory that
//! other ranks share, their kernels or CPU threads may be about to write them, so it is put when the
//! other ranks make no progress either.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::place::shared_memory::STANDSTILL;
use crate::ranks::peers::Peers;

/// The stack of the thread that writes.
pub(crate) const STACK: usize = 256 << 10;
/// How much longer than twice the recorded time a wait may last.
const GRACE: Duration = Duration::from_millis(3);
/// Longer runs of changed bytes are results rather than flags.
const LONGEST_RUN: usize = 64;
/// With more runs, they are results, too.
const MOST_RUNS: usize = 64;

/// Bytes at an address of this process that may change while the device works.
#[derive(Debug)]
pub(crate) struct Write {
    /// In a live range of pinned or registered memory.
    pub(crate) address: u64,
    pub(crate) old: Vec<u8>,
    pub(crate) new: Vec<u8>,
    /// Other ranks may write them.
    pub(crate) is_shared: bool,
}

impl Write {
    /// Whether the old bytes are still there.
    ///
    /// # Safety
    ///
    /// The memory is mapped and readable.
    pub(crate) unsafe fn is_due(&self) -> bool {
        let mut bytes = (self.address..).zip(&self.old);
        // SAFETY: by the caller. The device may write there at the same time.
        bytes.all(|(at, &old)| unsafe { (at as *const u8).read_volatile() } == old)
    }

    /// Writes the new bytes if the old ones are still there; false if not.
    ///
    /// # Safety
    ///
    /// The memory is mapped and writable.
    pub(crate) unsafe fn apply(&self) -> bool {
        // SAFETY: by the caller. The device may write there at the same time, so each byte is read
        // and written once.
        unsafe {
            let is_due = self.is_due();
            for (at, &new) in (self.address..).zip(&self.new).filter(|_| is_due) {
                (at as *mut u8).write_volatile(new);
            }
            is_due
        }
    }
}

/// Whether these runs of changed bytes may be flags: (offset, length) each.
pub(crate) fn may_be_flags(runs: &[(usize, usize)]) -> bool {
    runs.len() <= MOST_RUNS && runs.iter().all(|run| run.1 <= LONGEST_RUN)
}

#[derive(Debug, Default)]
struct Task {
    due: Option<Instant>,
    writes: Vec<Write>,
    /// Other ranks, and their progress when it was last looked at.
    others: Option<(Arc<Peers>, u64)>,
    written: Vec<Write>,
    is_over: bool,
}

impl Task {
    /// Writes what is due; the rest comes when the other ranks have stood still.
    fn write(&mut self) {
        let progress = self.others.as_mut().map(|(peers, seen)| {
            let now = peers.progress_of_others();
            std::mem::replace(seen, now) != now
        });
        let is_later = |write: &Write| write.is_shared && progress == Some(true);
        let (later, now): (Vec<_>, Vec<_>) = self.writes.drain(..).partition(is_later);
        for write in now {
            // SAFETY: the player withdraws the task, under the lock, before the call returns that
            // it waits for, and meanwhile nothing frees memory.
            if unsafe { write.apply() } {
                self.written.push(write);
            }
        }
        self.due = (!later.is_empty()).then(|| Instant::now() + STANDSTILL);
        self.writes = later;
    }
}

#[derive(Debug, Default)]
struct Shared {
    task: Mutex<Task>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Task> {
        self.task.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut task = self.lock();
        while !task.is_over {
            let now = Instant::now();
            task = match task.due {
                Some(due) if due <= now => {
                    task.write();
                    task
                }
                Some(due) => {
                    let waited = self.changed.wait_timeout(task, due - now);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => {
                    let waited = self.changed.wait(task);
                    waited.unwrap_or_else(PoisonError::into_inner)
                }
            };
        }
    }
}

/// The thread that writes, started for the first wait that needs it.
#[derive(Debug, Default)]
pub(crate) struct LateWrites {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl LateWrites {
    /// Before a wait that took so long in the recording.
    pub(crate) fn expect(
        &mut self,
        recorded: Duration,
        writes: Vec<Write>,
        others: Option<Arc<Peers>>,
    ) {
        if self.thread.is_none() {
            let shared = Arc::clone(&self.shared);
            let thread = std::thread::Builder::new().stack_size(STACK);
            self.thread = thread.spawn(move || shared.run()).ok();
        }
        let mut task = self.shared.lock();
        task.due = Some(Instant::now() + recorded * 2 + GRACE);
        task.writes = writes;
        task.written.clear();
        task.others = others.map(|peers| {
            let progress = peers.progress_of_others();
            (peers, progress)
        });
        self.shared.changed.notify_one();
    }

    /// After it. What was written.
    pub(crate) fn withdraw(&self) -> Vec<Write> {
        let mut task = self.shared.lock();
        task.due = None;
        task.others = None;
        task.writes.clear();
        std::mem::take(&mut task.written)
    }
}

impl Drop for LateWrites {
    fn drop(&mut self) {
        self.shared.lock().is_over = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_that_lasts_gets_the_bytes_that_are_still_old() {
        let memory = [1_u8, 2, 3, 4];
        let address = memory.as_ptr().expose_provenance() as u64;
        let write = |at: u64, old: &[u8], new: &[u8]| Write {
            address: address + at,
            old: old.to_vec(),
            new: new.to_vec(),
            is_shared: false,
        };
        let writes = || vec![write(0, &[1], &[9]), write(2, &[7, 4], &[8, 8])];
        // SAFETY: the array lives as long as the test.
        let read = || unsafe { (address as *const [u8; 4]).read_volatile() };
        let mut late = LateWrites::default();
        late.expect(Duration::from_secs(600), writes(), None);
        assert!(late.withdraw().is_empty());
        assert_eq!(read(), [1, 2, 3, 4]);
        late.expect(Duration::ZERO, writes(), None);
        let begin = Instant::now();
        while read()[0] == 1 && begin.elapsed() < Duration::from_secs(60) {
            std::thread::yield_now();
        }
        assert_eq!(late.withdraw().len(), 1);
        assert_eq!(read(), [9, 2, 3, 4], "the second run had changed");
    }

    #[test]
    fn few_short_runs_may_be_flags() {
        assert!(may_be_flags(&[]) && may_be_flags(&[(0, 4), (64, LONGEST_RUN)]));
        assert!(!may_be_flags(&[(0, LONGEST_RUN + 1)]));
        assert!(!may_be_flags(&[(0, 1); MOST_RUNS + 1]));
    }
}
