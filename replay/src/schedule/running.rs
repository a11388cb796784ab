//! Threads of a replay that run.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, Scope, ScopedJoinHandle};
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
    let builder = Builder::new().name(format!("recorded {thread}"));
    spawn(builder.stack_size(STACK), scope, work)
}

/// Starts the thread that reads ahead.
pub(crate) fn start_reader<'scope>(
    scope: &'scope Scope<'scope, '_>,
    work: impl FnOnce() + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, ()>, Error> {
    spawn(Builder::new().stack_size(READER_STACK), scope, work)
}

fn spawn<'scope>(
    builder: Builder,
    scope: &'scope Scope<'scope, '_>,
    work: impl FnOnce() + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, ()>, Error> {
    let started = builder.spawn_scoped(scope, work);
    started.map_err(|error| Error::no_thread(&error))
}

#[derive(Debug, Default)]
struct State {
    /// How many run.
    count: usize,
    /// One of them is for the thread that waits.
    is_handed_over: bool,
}

/// The threads of a replay that run.
#[derive(Debug, Default)]
pub(crate) struct Running {
    state: Mutex<State>,
    changed: Condvar,
}

/// One of them, while it lives.
pub(crate) struct Runner<'r>(&'r Running);

impl Running {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Another thread is about to run.
    pub(crate) fn enter(&self) -> Runner<'_> {
        self.lock().count += 1;
        Runner(self)
    }

    /// The thread that waits is to do its own part now.
    pub(crate) fn hand_over(&self) {
        let mut state = self.lock();
        state.count += 1;
        state.is_handed_over = true;
        self.changed.notify_all();
    }

    /// Waits until none runs, calling `tell` now and then. Does `own` when it is handed over, and
    /// calls `tell` then only afterwards.
    pub(crate) fn wait(&self, tell: &mut dyn FnMut(), own: impl FnOnce()) {
        let mut own = Some(own);
        let mut state = self.lock();
        while state.count > 0 {
            if std::mem::take(&mut state.is_handed_over)
                && let Some(own) = own.take()
            {
                drop(state);
                let runner = Runner(self);
                own();
                drop(runner);
                state = self.lock();
                continue;
            }
            let waited = self.changed.wait_timeout(state, PROGRESS_EVERY);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            tell();
        }
    }
}

impl Drop for Runner<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.count -= 1;
        if state.count == 0 {
            self.0.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread::{current, scope};

    #[test]
    fn the_thread_that_waits_does_its_own_part() {
        let running = Running::default();
        let mut done_by = None;
        scope(|scope| {
            let runner = running.enter();
            scope.spawn(|| {
                let _runner = runner;
                running.hand_over();
            });
            running.wait(&mut || {}, || done_by = Some(current().id()));
        });
        assert_eq!(done_by, Some(current().id()));
        // Nothing is handed over.
        let runner = running.enter();
        scope(|scope| {
            scope.spawn(|| drop(runner));
            running.wait(&mut || {}, || panic!("not handed over"));
        });
    }
}
