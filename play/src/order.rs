//! Which calls of other threads a call waits for.
//!
//! What the recorder found in memory that host and device share, it found at one moment, whichever
//! thread's call it was. So a call after which it found what the device had written waits for the
//! calls that had returned by then, and later calls wait for it.

use cutape_format::Call;

use crate::state::State;

impl State {
    /// Whether calls that other threads had made before a recorded call, as far as that matters, are
    /// still to come.
    pub(crate) fn is_early(&self, thread: usize, recorded: &Call<'_>) -> bool {
        let copies = &self.copies;
        let found = copies.proof(recorded.thread, recorded.index);
        let mut others = self.threads.all.iter().enumerate();
        others.any(|(at, other)| {
            if at == thread {
                return false;
            }
            let next = other.next();
            let left = next.and_then(|next| Some(next.leave?.ticks));
            let is_awaited = found.is_some_and(|found| left.is_some_and(|left| left < found));
            let finds = |from: u64| {
                let found = copies.proof_from(at as u32, from);
                found.is_some_and(|(_, time)| time < recorded.ticks)
            };
            is_awaited || other.first_open().is_some_and(finds)
        })
    }
}
