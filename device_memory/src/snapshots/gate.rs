//! The gate that calls go through which change device memory. While a snapshot is taken it is
//! closed: nobody is inside, and who comes waits.

use std::collections::HashSet;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// For how long a thread that wants to close the gate waits for calls in progress: some wait for
/// room in a stream.
const CLOSING: Duration = Duration::from_millis(100);
/// For how long calls wait for a snapshot. A thread that waits inside a call of its own, in a
/// callback of the driver, might otherwise keep the snapshot from its end.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(super) struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Threads in calls that change device memory.
    inside: HashSet<u64>,
    is_closed: bool,
    last: Option<Taken>,
}

/// A snapshot that was taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taken {
    pub(super) number: u64,
    /// Ticks of the entry of its call.
    pub(super) start: u64,
    pub(super) thread: u64,
}

impl Gate {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a call in that was entered at these ticks, when the gate is open. Returns the snapshot
    /// that was taken meanwhile, although the call was entered before the snapshot's.
    pub(super) fn enter(&self, thread: u64, start: u64) -> Option<u64> {
        let mut state = self.lock();
        if state.is_closed {
            let waited = self
                .changed
                .wait_timeout_while(state, PATIENCE, |state| state.is_closed);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.inside.insert(thread);
        let last = state.last.filter(|last| last.thread != thread);
        last.filter(|last| start < last.start)
            .map(|last| last.number)
    }

    /// The call has returned.
    pub(super) fn leave(&self, thread: u64) {
        let mut state = self.lock();
        state.inside.remove(&thread);
        if state.is_closed && state.inside.is_empty() {
            drop(state);
            self.changed.notify_all();
        }
    }

    /// Closes the gate when nobody is inside. False if that takes too long, or another thread has
    /// closed it.
    pub(super) fn close(&self, thread: u64) -> bool {
        let mut state = self.lock();
        if state.is_closed {
            return false;
        }
        // A call of the thread itself has returned, whether that was seen or not.
        state.inside.remove(&thread);
        state.is_closed = true;
        if state.inside.is_empty() {
            return true;
        }
        let waited = self
            .changed
            .wait_timeout_while(state, CLOSING, |state| !state.inside.is_empty());
        state = waited.unwrap_or_else(PoisonError::into_inner).0;
        if state.inside.is_empty() {
            return true;
        }
        state.is_closed = false;
        drop(state);
        self.changed.notify_all();
        false
    }

    /// Opens it again, after a snapshot or without.
    pub(super) fn open(&self, taken: Option<Taken>) {
        let mut state = self.lock();
        state.is_closed = false;
        state.last = taken.or(state.last);
        drop(state);
        self.changed.notify_all();
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
        assert_eq!(gate.enter(OTHER, 10), None);
        assert!(!gate.close(OWN), "another thread is inside");
        gate.leave(OTHER);
        assert!(gate.close(OWN));
        assert!(!gate.close(OTHER), "it is closed");
        std::thread::scope(|scope| {
            let late = scope.spawn(|| gate.enter(OTHER, 15));
            std::thread::sleep(Duration::from_millis(20));
            assert!(!late.is_finished());
            gate.open(Some(Taken {
                number: 7,
                start: 20,
                thread: OWN,
            }));
            assert_eq!(late.join().unwrap(), Some(7), "entered before the snapshot");
        });
        gate.leave(OTHER);
        for (thread, start, expected) in [(OTHER, 19, Some(7)), (OTHER, 21, None), (OWN, 19, None)]
        {
            assert_eq!(gate.enter(thread, start), expected, "{thread} {start}");
            gate.leave(thread);
        }
    }

    #[test]
    fn closing_waits_for_calls_in_progress() {
        let gate = Gate::default();
        gate.enter(OTHER, 1);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(10));
                gate.leave(OTHER);
            });
            assert!(gate.close(OWN));
        });
    }
}
