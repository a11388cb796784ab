//! Threads that are started before the address space is filled, so that what the C library maps for
//! a thread does not take the gaps.

use std::io;
use std::sync::{Arc, Barrier};

/// At most this many threads are started early.
const MOST_THREADS: usize = 64;

/// Has glibc keep the stacks of ended threads for others (from 2.34 on; before, 40 MiB of them), and
/// make no arenas: when the driver's own threads make theirs depends on the moment, so fillers stand
/// for the recorded ones.
pub(crate) const STEADY_MAP: &str =
    "glibc.pthread.stack_cache_size=4294967296:glibc.malloc.arena_max=1";

/// Threads that wait. The stack that the C library maps for a thread is used again by a later thread
/// when these end, and lies above the fillers if they start before.
pub(crate) struct WaitingThreads {
    end: Arc<Barrier>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl WaitingThreads {
    /// Starts threads with stacks of these sizes.
    pub(crate) fn start(stacks: impl Iterator<Item = usize>) -> io::Result<Self> {
        let stacks: Vec<usize> = stacks.take(MOST_THREADS).collect();
        let count = stacks.len();
        let begin = Arc::new(Barrier::new(count + 1));
        let end = Arc::new(Barrier::new(count + 1));
        let start = |size| {
            let (begin, end) = (Arc::clone(&begin), Arc::clone(&end));
            let thread = std::thread::Builder::new().stack_size(size);
            thread.spawn(move || {
                begin.wait();
                end.wait();
            })
        };
        let threads = stacks.into_iter().map(start).collect::<io::Result<_>>()?;
        begin.wait();
        Ok(Self { end, threads })
    }

    /// Ends them, so that the next threads use their memory.
    pub(crate) fn end(self) {
        self.end.wait();
        for thread in self.threads {
            let _ = thread.join();
        }
    }
}
