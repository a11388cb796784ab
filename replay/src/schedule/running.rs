//! Threads of a replay that run.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;

use crate::error::Error;

/// Stack of a replaying thread: drivers compile on the calling thread.
pub(crate) const STACK: usize = 16 << 20;
/// Stack of the thread that reads ahead.
pub(crate) const READER_STACK: usize = 2 << 20;
/// How often `progress` is called.
const PROGRESS_EVERY: Duration = Duration::from_millis(100);

/// Starts the thread that plays what a recorded thread did.
pub(crate) fn start<'scope>(
    scope: &'scope Scope<'scope, '_>,
    thread: u32,
    work: impl FnOnce() + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, ()>, Error> {
    std::thread::Builder::new()
        .name(format!("recorded {thread}"))
        .stack_size(STACK)
        .spawn_scoped(scope, work)
        .map_err(|error| Error::child("starting a thread", error))
}

/// How many threads of a replay run.
#[derive(Debug, Default)]
pub(crate) struct Running {
    count: Mutex<usize>,
    none: Condvar,
}

/// One of them, while it lives.
pub(crate) struct Runner<'r>(&'r Running);

impl Running {
    fn lock(&self) -> MutexGuard<'_, usize> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Another thread is about to run.
    pub(crate) fn enter(&self) -> Runner<'_> {
        *self.lock() += 1;
        Runner(self)
    }

    /// Waits until none runs, calling `tell` now and then.
    pub(crate) fn wait(&self, tell: &mut dyn FnMut()) {
        let mut count = self.lock();
        while *count > 0 {
            let waited = self.none.wait_timeout(count, PROGRESS_EVERY);
            count = waited.unwrap_or_else(PoisonError::into_inner).0;
            tell();
        }
    }
}

impl Drop for Runner<'_> {
    fn drop(&mut self) {
        let mut count = self.0.lock();
        *count -= 1;
        if *count == 0 {
            self.0.none.notify_all();
        }
    }
}
