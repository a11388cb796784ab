//! What the program wrote into host memory while it waited for the device, or just before.
//!
//! A kernel may wait for such a value: without it, the replay would wait until the kernel gives up,
//! or for ever. The recording says what the memory held when the wait was over, but not when it was
//! written, nor whether the device wrote it. So it is put there only if a launch that can reach it
//! runs, and nothing goes on for long (`launch_marks`), and only a few bytes that still hold
//! what they held before.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use crate::lent::launch_marks::{PAUSE, Seen};

/// The stack of the thread that writes.
pub(crate) const STACK: usize = 256 << 10;
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

/// Looks once at what is waited for.
pub(crate) type Look = Box<dyn FnMut() -> Seen + Send>;

#[derive(Default)]
struct Task {
    look: Option<Look>,
    writes: Vec<Write>,
    written: Vec<Write>,
    is_over: bool,
}

impl Task {
    fn write(&mut self) {
        for write in self.writes.drain(..) {
            // SAFETY: the player withdraws the task, under the lock, before the call returns that
            // it waits for, and meanwhile nothing frees memory.
            if unsafe { write.apply() } {
                self.written.push(write);
            }
        }
    }
}

#[derive(Default)]
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
            let seen = task.look.as_mut().map(|look| look());
            match seen {
                Some(Seen::Progress) => {
                    let waited = self.changed.wait_timeout(task, PAUSE);
                    task = waited.unwrap_or_else(PoisonError::into_inner).0;
                    continue;
                }
                Some(Seen::Waiting) => task.write(),
                Some(Seen::Complete) | None => {}
            }
            task.look = None;
            let waited = self.changed.wait(task);
            task = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// The thread that writes, started for the first wait that needs it.
#[derive(Default)]
pub(crate) struct LateWrites {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for LateWrites {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("LateWrites").finish_non_exhaustive()
    }
}

impl LateWrites {
    /// Before a wait: writes once `look` has seen that the device waits.
    pub(crate) fn expect(&mut self, writes: Vec<Write>, look: Look) {
        if self.thread.is_none() {
            let shared = Arc::clone(&self.shared);
            let thread = std::thread::Builder::new().stack_size(STACK);
            self.thread = thread.spawn(move || shared.run()).ok();
        }
        let mut task = self.shared.lock();
        task.look = Some(look);
        task.writes = writes;
        task.written.clear();
        self.shared.changed.notify_one();
    }

    /// After it. What was written.
    pub(crate) fn withdraw(&self) -> Vec<Write> {
        let mut task = self.shared.lock();
        task.look = None;
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
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_kernel_that_waits_gets_the_bytes_that_are_still_old() {
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
        for (seen, expected) in [
            (Seen::Progress, false),
            (Seen::Complete, false),
            (Seen::Waiting, true),
        ] {
            let (looked, looks) = mpsc::channel();
            late.expect(
                writes(),
                Box::new(move || {
                    let _ = looked.send(());
                    seen
                }),
            );
            looks.recv().unwrap();
            // The lock is free again when the thread has done what it saw.
            let written = late.withdraw();
            assert_eq!(written.len(), usize::from(expected), "{seen:?}");
        }
        assert_eq!(read(), [9, 2, 3, 4], "the second run had changed");
    }

    #[test]
    fn few_short_runs_may_be_flags() {
        assert!(may_be_flags(&[]) && may_be_flags(&[(0, 4), (64, LONGEST_RUN)]));
        assert!(!may_be_flags(&[(0, LONGEST_RUN + 1)]));
        assert!(!may_be_flags(&[(0, 1); MOST_RUNS + 1]));
    }
}
