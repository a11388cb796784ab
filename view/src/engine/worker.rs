//! Threads that answer requests, and say when they panic.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;

use super::shared::SharedTrace;
use crate::state::reply::{Reply, SendReply};

/// What a thread says: a reply, or that it panicked.
pub(crate) enum Said {
    Reply(Reply),
    /// The panic's message is on stderr.
    Bug,
}

/// Where threads send what they say.
pub(crate) type Listener = Arc<dyn Fn(Said) + Send + Sync>;

/// Whether a request has been replaced by a later one.
pub(super) type IsCancelled<'a> = &'a dyn Fn() -> bool;

/// A thread that answers requests of one kind.
pub(super) struct Worker<R> {
    requests: Sender<(u64, R)>,
    /// The number of the last request.
    last: Arc<AtomicU64>,
}

impl<R: Send + 'static> Worker<R> {
    /// `make` makes, in the thread, the function that answers.
    pub(super) fn start<F>(
        shared: &Arc<SharedTrace>,
        listener: &Listener,
        make: impl FnOnce() -> F + Send + 'static,
    ) -> Self
    where
        F: FnMut(&SharedTrace, R, IsCancelled<'_>, &SendReply<'_>),
    {
        let (requests, receiver) = channel::<(u64, R)>();
        let last = Arc::new(AtomicU64::new(0));
        let (shared, newest) = (Arc::clone(shared), Arc::clone(&last));
        spawn(listener, move |send| {
            let mut answer = make();
            for (number, request) in receiver {
                let is_cancelled = || newest.load(Ordering::Acquire) != number;
                if !is_cancelled() {
                    answer(&shared, request, &is_cancelled, send);
                }
            }
        });
        Self { requests, last }
    }

    pub(super) fn ask(&self, request: R) {
        let number = self.last.fetch_add(1, Ordering::AcqRel) + 1;
        // The thread ends only with the process, or with a bug that was reported.
        let _ = self.requests.send((number, request));
    }
}

/// Starts a thread that reports its panic.
pub(super) fn spawn(listener: &Listener, run: impl FnOnce(&SendReply<'_>) + Send + 'static) {
    let outside = Arc::clone(listener);
    let started = thread::Builder::new().spawn(move || {
        let send = |reply| outside(Said::Reply(reply));
        if catch_unwind(AssertUnwindSafe(|| run(&send))).is_err() {
            outside(Said::Bug);
        }
    });
    if let Err(error) = started {
        let why = format!("cannot start a thread: {error}");
        listener(Said::Reply(Reply::Failed(why)));
    }
}
