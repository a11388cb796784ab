//! Both traces at once.

use std::panic::resume_unwind;
use std::thread;

/// Does `work` on each job, in a thread of its own if the system has one.
pub(crate) fn on_each<J: Copy + Send, R: Send>(
    jobs: impl IntoIterator<Item = J>,
    work: impl Fn(J) -> R + Sync,
) -> Vec<R> {
    let work = &work;
    thread::scope(|scope| {
        let start = |job| {
            let thread = thread::Builder::new().spawn_scoped(scope, move || work(job));
            (job, thread)
        };
        let started: Vec<_> = jobs.into_iter().map(start).collect();
        let started = started.into_iter();
        let results = started.map(|(job, thread)| match thread {
            // A panic in another thread is a bug and goes on in this one.
            Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
            Err(_) => work(job),
        });
        results.collect()
    })
}
