//! The gate that calls go through which change device memory or begin a capture, before they are
//! recorded. While a snapshot is taken it is closed: nobody is inside, and who comes waits.

use std::collections::HashSet;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// For how long a thread that wants to close the gate waits for calls in progress: some wait for
/// room in a stream.
const CLOSING: Duration = Duration::from_millis(100);
/// For how long calls wait for a snapshot. A thread that waits inside a call of its own, in a
/// callback of the driver, might otherwise keep the snapshot from its end, and so might one that has
/// ended.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct Gate {
    state: Mutex<State>,
    changed: Condvar,
    patience: Duration,
}

impl Default for Gate {
    fn default() -> Self {
        Self {
            state: Mutex::default(),
            changed: Condvar::new(),
            patience: PATIENCE,
        }
    }
}

#[derive(Debug, Default)]
struct State {
    /// Threads in calls that change device memory.
    inside: HashSet<u64>,
    /// The thread that has closed the gate.
    closed_by: Option<u64>,
    /// The thread whose gate others have opened, because they have waited for too long.
    forced: Option<u64>,
}

impl Gate {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a call in when the gate is open.
    pub(super) fn enter(&self, thread: u64) {
        let mut state = self.lock();
        if state.closed_by.is_some() {
            let waited = self
                .changed
                .wait_timeout_while(state, self.patience, |state| state.closed_by.is_some());
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            if let Some(owner) = state.closed_by.take() {
                state.inside.insert(owner);
                state.forced = Some(owner);
                self.changed.notify_all();
            }
        }
        state.inside.insert(thread);
    }

    /// The call has returned, or is not made.
    pub(super) fn leave(&self, thread: u64) {
        let mut state = self.lock();
        state.inside.remove(&thread);
        if state.closed_by.is_some() && state.inside.is_empty() {
            drop(state);
            self.changed.notify_all();
        }
    }

    /// Closes the gate, once nobody is inside. False if that takes too long; `None` if another thread
    /// has closed it.
    pub(super) fn close(&self, thread: u64) -> Option<bool> {
        let mut state = self.lock();
        if state.closed_by.is_some() {
            return None;
        }
        // A call of the thread itself has returned, whether that was seen or not.
        state.inside.remove(&thread);
        state.closed_by = Some(thread);
        state.forced.take_if(|owner| *owner == thread);
        let waited = self
            .changed
            .wait_timeout_while(state, CLOSING, |state| !state.inside.is_empty());
        state = waited.unwrap_or_else(PoisonError::into_inner).0;
        let is_empty = state.inside.is_empty();
        if !is_empty {
            state.closed_by = None;
            drop(state);
            self.changed.notify_all();
        }
        Some(is_empty)
    }

    /// Whether this thread has closed it.
    pub(super) fn is_closed_by(&self, thread: u64) -> bool {
        self.lock().closed_by == Some(thread)
    }

    /// Opens the gate if this thread has closed it, which goes in itself. False if others have opened
    /// it before.
    pub(super) fn open(&self, thread: u64) -> bool {
        let mut state = self.lock();
        if state.closed_by != Some(thread) {
            return state.forced.take_if(|owner| *owner == thread).is_none();
        }
        state.closed_by = None;
        state.inside.insert(thread);
        drop(state);
        self.changed.notify_all();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: u64 = 1;
    const OTHER: u64 = 2;

    #[test]
    fn nobody_is_inside_a_closed_gate() {
        let gate = Gate::default();
        gate.enter(OTHER);
        assert_eq!(gate.close(OWN), Some(false), "another thread is inside");
        gate.leave(OTHER);
        assert_eq!(gate.close(OWN), Some(true));
        assert_eq!(gate.close(OTHER), None, "it is closed");
        assert!(gate.is_closed_by(OWN) && !gate.is_closed_by(OTHER));
        std::thread::scope(|scope| {
            let late = scope.spawn(|| gate.enter(OTHER));
            std::thread::sleep(Duration::from_millis(20));
            assert!(!late.is_finished());
            assert!(gate.open(OTHER), "another thread opens nothing");
            assert!(!late.is_finished());
            assert!(gate.open(OWN));
            late.join().unwrap();
        });
        assert_eq!(gate.close(3), Some(false), "both are inside");
        gate.leave(OWN);
        gate.leave(OTHER);
        assert_eq!(gate.close(3), Some(true));
    }

    #[test]
    fn calls_do_not_wait_for_ever() {
        let gate = Gate {
            patience: Duration::from_millis(20),
            ..Gate::default()
        };
        assert_eq!(gate.close(OWN), Some(true));
        gate.enter(OTHER);
        // The next one need not wait at all, and no snapshot begins.
        assert!(!gate.is_closed_by(OWN));
        gate.leave(OTHER);
        assert_eq!(gate.close(OTHER), Some(false), "the owner is inside");
        assert!(!gate.open(OWN), "its snapshot does not count");
        gate.leave(OWN);
        assert_eq!(gate.close(OWN), Some(true));
        assert!(gate.open(OWN));
    }

    #[test]
    fn closing_waits_for_calls_in_progress() {
        let gate = Gate::default();
        gate.enter(OTHER);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(10));
                gate.leave(OTHER);
            });
            assert_eq!(gate.close(OWN), Some(true));
        });
    }
}
