//! Work on many jobs at once, with results taken in the order of the jobs and few of them in
//! memory.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

struct State<J, R> {
    jobs: J,
    /// How many jobs have been started.
    started: u64,
    /// How many results have been taken.
    taken: u64,
    results: BTreeMap<u64, R>,
    /// There are no further jobs.
    is_exhausted: bool,
    /// An error or a panic has ended the work.
    is_aborted: bool,
}

struct Queue<J, R> {
    state: Mutex<State<J, R>>,
    changed: Condvar,
}

impl<J, R> Queue<J, R> {
    fn lock(&self) -> MutexGuard<'_, State<J, R>> {
        // A panic leaves a valid state, and is reported when the threads are joined.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'q>(&'q self, state: MutexGuard<'q, State<J, R>>) -> MutexGuard<'q, State<J, R>> {
        self.changed
            .wait(state)
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Aborts the work of all threads unless it is disarmed.
struct AbortOnDrop<'q, J, R> {
    queue: &'q Queue<J, R>,
    is_armed: bool,
}

impl<'q, J, R> AbortOnDrop<'q, J, R> {
    fn new(queue: &'q Queue<J, R>) -> Self {
        Self {
            queue,
            is_armed: true,
        }
    }

    fn disarm(mut self) {
        self.is_armed = false;
    }
}

impl<J, R> Drop for AbortOnDrop<'_, J, R> {
    fn drop(&mut self) {
        if self.is_armed {
            self.queue.lock().is_aborted = true;
            self.queue.changed.notify_all();
        }
    }
}

/// How many processors this process can use.
pub(crate) fn processors() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

/// Does `work` on each job, on all processors, and gives the results to `take` in the order of the
/// jobs. At most four results a processor wait to be taken. The first error of `take` ends it.
pub(crate) fn for_each_ordered<T, R, E>(
    jobs: impl Iterator<Item = T> + Send,
    work: impl Fn(T) -> R + Sync,
    mut take: impl FnMut(R) -> Result<(), E>,
) -> Result<(), E>
where
    R: Send,
{
    let processors = processors();
    if processors == 1 {
        for job in jobs {
            take(work(job))?;
        }
        return Ok(());
    }
    let most_waiting = 4 * processors as u64;
    let queue = Queue {
        state: Mutex::new(State {
            jobs,
            started: 0,
            taken: 0,
            results: BTreeMap::new(),
            is_exhausted: false,
            is_aborted: false,
        }),
        changed: Condvar::new(),
    };
    thread::scope(|scope| {
        for _ in 0..processors {
            scope.spawn(|| {
                let abort = AbortOnDrop::new(&queue);
                do_jobs(&queue, most_waiting, &work);
                abort.disarm();
            });
        }
        let abort = AbortOnDrop::new(&queue);
        while let Some(result) = next_result(&queue) {
            take(result)?;
        }
        abort.disarm();
        Ok(())
    })
}

/// Does jobs until there are none.
fn do_jobs<T, R, J: Iterator<Item = T>>(
    queue: &Queue<J, R>,
    most_waiting: u64,
    work: impl Fn(T) -> R,
) {
    loop {
        let mut state = queue.lock();
        while !state.is_aborted && state.started >= state.taken + most_waiting {
            state = queue.wait(state);
        }
        if state.is_aborted || state.is_exhausted {
            return;
        }
        let Some(job) = state.jobs.next() else {
            state.is_exhausted = true;
            queue.changed.notify_all();
            return;
        };
        let number = state.started;
        state.started += 1;
        drop(state);
        let result = work(job);
        queue.lock().results.insert(number, result);
        queue.changed.notify_all();
    }
}

/// The next result in order; `None` when there are no more, or when the work was aborted.
fn next_result<J, R>(queue: &Queue<J, R>) -> Option<R> {
    let mut state = queue.lock();
    loop {
        let wanted = state.taken;
        if let Some(result) = state.results.remove(&wanted) {
            state.taken += 1;
            drop(state);
            queue.changed.notify_all();
            return Some(result);
        }
        if state.is_aborted || state.is_exhausted && state.started == state.taken {
            return None;
        }
        state = queue.wait(state);
    }
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
