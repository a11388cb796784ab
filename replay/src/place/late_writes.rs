//! What the program wrote into host memory while it waited for the device, or just before.
//!
//! A kernel may wait for such a value: without it, the replay would wait until the kernel gives up,
//! or for ever. The recording says what the memory held when the wait was over, but not when it was
//! written, nor whether the device wrote it. So it is put there only if a wait lasts much longer
//! than the recorded one, and only a few bytes that still hold what they held before.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

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
}

impl Write {
    /// Writes the new bytes if the old ones are still there.
    ///
    /// # Safety
    ///
    /// The memory is mapped and writable.
    unsafe fn apply(&self) {
        let bytes = || (self.address..).zip(&self.old);
        // SAFETY: by the caller. The device may write there at the same time, so each byte is read
        // and written once.
        unsafe {
            if bytes().all(|(at, &old)| (at as *const u8).read_volatile() == old) {
                for (at, &new) in (self.address..).zip(&self.new) {
                    (at as *mut u8).write_volatile(new);
                }
            }
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
    is_over: bool,
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
                    for write in std::mem::take(&mut task.writes) {
                        // SAFETY: the player withdraws the task, under the lock, before the call
                        // returns that it waits for, and meanwhile nothing frees memory.
                        unsafe { write.apply() };
                    }
                    task.due = None;
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
    pub(crate) fn expect(&mut self, recorded: Duration, writes: Vec<Write>) {
        if self.thread.is_none() {
            let shared = Arc::clone(&self.shared);
            let thread = std::thread::Builder::new().stack_size(STACK);
            self.thread = thread.spawn(move || shared.run()).ok();
        }
        let mut task = self.shared.lock();
        task.due = Some(Instant::now() + recorded * 2 + GRACE);
        task.writes = writes;
        self.shared.changed.notify_one();
    }

    /// After it. True if the bytes were written.
    pub(crate) fn withdraw(&self) -> bool {
        let mut task = self.shared.lock();
        let was_due = task.due.take().is_none();
        task.writes.clear();
        was_due && self.thread.is_some()
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
        };
        let writes = || vec![write(0, &[1], &[9]), write(2, &[7, 4], &[8, 8])];
        // SAFETY: the array lives as long as the test.
        let read = || unsafe { (address as *const [u8; 4]).read_volatile() };
        let mut late = LateWrites::default();
        late.expect(Duration::from_secs(600), writes());
        assert!(!late.withdraw());
        assert_eq!(read(), [1, 2, 3, 4]);
        late.expect(Duration::ZERO, writes());
        let begin = Instant::now();
        while read()[0] == 1 && begin.elapsed() < Duration::from_secs(60) {
            std::thread::yield_now();
        }
        assert!(late.withdraw());
        assert_eq!(read(), [9, 2, 3, 4], "the second run had changed");
    }

    #[test]
    fn few_short_runs_may_be_flags() {
        assert!(may_be_flags(&[]) && may_be_flags(&[(0, 4), (64, LONGEST_RUN)]));
        assert!(!may_be_flags(&[(0, LONGEST_RUN + 1)]));
        assert!(!may_be_flags(&[(0, 1); MOST_RUNS + 1]));
    }
}
