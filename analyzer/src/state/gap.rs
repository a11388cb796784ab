//! Calls are missing: rules must not rest on what these may have done.

use cutape_format::Call;
use cutape_model::gap_of;

use super::State;

impl State {
    /// Calls are missing before this one.
    #[cold]
    pub(crate) fn apply_gap(&mut self, call: &Call<'_>) {
        self.forget_work();
        // Those of this thread have succeeded.
        if gap_of(call).is_some_and(|gap| gap.calls > 0) {
            let thread = call.thread as usize;
            if self.execution.succeeded.len() <= thread {
                self.execution.succeeded.resize(thread + 1, false);
            }
            self.execution.succeeded[thread] = true;
        }
    }

    /// Calls of the first so many threads are missing before the next one.
    pub(crate) fn apply_gap_of_all(&mut self, threads: usize) {
        self.forget_work();
        let succeeded = &mut self.execution.succeeded;
        let known = succeeded.len();
        succeeded.clear();
        succeeded.resize(threads.max(known), true);
    }

    /// All work may be complete, and other work have been done.
    pub(crate) fn forget_work(&mut self) {
        self.model.apply_gap();
        self.has_launched = true;
        self.forget_sources(None);
        self.launches.forget_work();
        self.growth.apply_gap();
        self.errata.forget();
        let ordering = &mut self.ordering;
        ordering.accesses = Default::default();
        ordering.freed.clear();
        ordering.fresh.clear();
        let execution = &mut self.execution;
        execution.recent.clear();
        execution.host_functions.clear();
        execution.value_operations.clear();
    }
}
