//! Which calls of other threads a call waits for.
//!
//! What the recorder found in memory that host and device share, it found at one moment, whichever
//! thread's call it was. So a call after which it found what the device had written waits for the
//! calls that had returned by then, and later calls wait for it. So does a call that tells the program
//! of work of other threads, for the calls that enqueue that.
//!
//! No calls wait for each other: each waits only for calls of a lesser time, that of what the recorder
//! found or, without that, of the entry. For this a call has returned only after the recorder has
//! looked.

use cutape_format::Call;

use crate::history::time_of_look;
use crate::state::State;

impl State {
    /// Whether calls that other threads had made before a recorded call, as far as that matters, are
    /// still to come.
    pub(crate) fn is_early(&self, thread: usize, recorded: &Call<'_>) -> bool {
        let copies = &self.copies;
        // What it has passed, it sees with this call.
        let passed = self.threads.all.get(thread).into_iter();
        let passed = passed.flat_map(|own| own.unseen()).chain([recorded]);
        let found = passed.filter_map(|call| copies.proof(call.thread, call.index));
        let found = found.max();
        let mut others = self.threads.all.iter().enumerate();
        others.any(|(at, other)| {
            if at == thread {
                return false;
            }
            let next = other.next();
            let returned = next.map(|next| time_of_look(next, true));
            let is_awaited = found.is_some_and(|found| returned.is_some_and(|at| at < found));
            let finds = |from: u64| {
                let found = copies.proof_from(at as u32, from);
                found.is_some_and(|(_, time)| time < recorded.ticks)
            };
            let is_told = next.is_some_and(|next| copies.tells_of(recorded.index, next));
            is_awaited || is_told || other.first_open().is_some_and(finds)
        })
    }
}
