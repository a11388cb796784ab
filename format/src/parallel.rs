//! Work on many jobs at once, with results taken in the order of the jobs and few of them in
//! memory.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::num::NonZero;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::thread::{self, Scope};

/// Threads that do jobs, and the results in the order of the jobs.
pub(crate) struct Workers<J, R> {
    pub(crate) threads: usize,
    jobs: Sender<(J, Sender<R>)>,
    results: RefCell<VecDeque<Receiver<R>>>,
}

impl<J: Send, R: Send> Workers<J, R> {
    /// Starts up to that many threads, which end when this is dropped and the jobs are done. `None`
    /// if the system has no thread left.
    pub(crate) fn spawn<'s, W>(scope: &'s Scope<'s, '_>, threads: usize, work: W) -> Option<Self>
    where
        W: Fn(J) -> R + Clone + Send + 's,
        J: 's,
        R: 's,
    {
        let (jobs, receiver) = mpsc::channel::<(J, Sender<R>)>();
        let receiver = Arc::new(Mutex::new(receiver));
        let start = |_: &usize| {
            let (receiver, work) = (Arc::clone(&receiver), work.clone());
            let thread = thread::Builder::new().spawn_scoped(scope, move || {
                let next = || {
                    let receiver = receiver.lock().unwrap_or_else(PoisonError::into_inner);
                    receiver.recv()
                };
                while let Ok((job, result)) = next() {
                    // The receiver is gone when the result is not wanted any more.
                    let _ = result.send(work(job));
                }
            });
            thread.is_ok()
        };
        let threads = (0..threads).take_while(start).count();
        (threads > 0).then_some(Self {
            threads,
            jobs,
            results: RefCell::default(),
        })
    }

    /// Adds a job.
    pub(crate) fn push(&self, job: J) {
        let (sender, result) = mpsc::channel();
        // Without threads there will be no result.
        let _ = self.jobs.send((job, sender));
        self.results.borrow_mut().push_back(result);
    }

    /// The result of the oldest job; `None` without one, or if the thread that did it panicked,
    /// which the scope reports when it joins that thread.
    pub(crate) fn next(&self) -> Option<R> {
        let result = self.results.borrow_mut().pop_front()?;
        result.recv().ok()
    }
}

/// How many processors this process can use.
pub(crate) fn processors() -> usize {
    // Asking takes as long as reading a short trace: the limits of the control group are in files.
    static PROCESSORS: LazyLock<usize> =
        LazyLock::new(|| thread::available_parallelism().map_or(1, NonZero::get));
    *PROCESSORS
}

/// Does `work` on each job, on all processors as far as the system has threads for them, and gives the results to `take` in the order of the
/// jobs. At most four jobs a processor are queued or wait to be taken. The first error of `take`
/// ends it; jobs that are queued by then are still done.
pub(crate) fn for_each_ordered<T: Send, R: Send, E>(
    mut jobs: impl Iterator<Item = T>,
    work: impl Fn(T) -> R + Sync,
    mut take: impl FnMut(R) -> Result<(), E>,
) -> Result<(), E> {
    let processors = processors();
    if processors == 1 {
        return jobs.try_for_each(|job| take(work(job)));
    }
    thread::scope(|scope| {
        let Some(workers) = Workers::spawn(scope, processors, &work) else {
            return jobs.try_for_each(|job| take(work(job)));
        };
        for job in jobs.by_ref().take(4 * processors) {
            workers.push(job);
        }
        while let Some(result) = workers.next() {
            if let Some(job) = jobs.next() {
                workers.push(job);
            }
            take(result)?;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn results_come_in_order_and_few_wait() {
        let working = AtomicU64::new(0);
        let mut taken = Vec::new();
        let outcome: Result<(), ()> = for_each_ordered(
            0..1000_u64,
            |job| {
                working.fetch_add(1, Ordering::Relaxed);
                // Some take longer than those behind them.
                std::hint::black_box((0..(job % 7) * 1000).sum::<u64>());
                job * 2
            },
            |result| {
                let ahead = working.load(Ordering::Relaxed) - taken.len() as u64;
                assert!(ahead <= 4 * processors() as u64 + 1, "{ahead}");
                taken.push(result);
                Ok(())
            },
        );
        assert_eq!(outcome, Ok(()));
        assert_eq!(taken, (0..1000).map(|job| job * 2).collect::<Vec<_>>());
    }

    #[test]
    fn an_error_ends_it() {
        let mut taken = 0;
        let outcome = for_each_ordered(
            0..u64::MAX,
            |job| job,
            |job| {
                taken += 1;
                if job == 10 { Err("enough") } else { Ok(()) }
            },
        );
        assert_eq!((outcome, taken), (Err("enough"), 11));
    }

    #[test]
    fn a_panic_is_not_lost() {
        let outcome = std::panic::catch_unwind(|| {
            for_each_ordered(
                0..100,
                |job: i32| {
                    assert_ne!(job, 50);
                    job
                },
                |_| Ok::<(), ()>(()),
            )
        });
        assert!(outcome.is_err());
    }
}
