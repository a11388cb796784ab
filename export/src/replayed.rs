//! What a profile of a trace's replay adds to the rows of the trace.

use std::sync::Arc;

use cutape_profile::{HostCall, KernelCounters, Profile, Run, Work};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::Error;
use crate::rows::CallRow;

/// A profile, with the GPU time of each call. It is of the replay with the median time.
#[derive(Debug)]
pub struct Replayed {
    pub(crate) profile: Profile,
    pub(crate) run: Run,
    times: FxHashMap<u64, GpuTime>,
}

/// When the work of a call ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GpuTime {
    /// When the first of it began, on the axis of the replay.
    pub(crate) begin_ns: u64,
    /// The time of all of it, added up.
    pub(crate) lasted_ns: u64,
}

impl Replayed {
    /// Of a profile.
    pub fn new(mut profile: Profile) -> Self {
        let run = profile.take_median_run();
        let mut times: FxHashMap<u64, GpuTime> = FxHashMap::default();
        for work in &run.work {
            let Some(call) = work.call else { continue };
            let time = times.entry(call).or_insert(GpuTime {
                begin_ns: work.begin_ns,
                lasted_ns: 0,
            });
            time.begin_ns = time.begin_ns.min(work.begin_ns);
            time.lasted_ns += work.lasted();
        }
        Self {
            profile,
            run,
            times,
        }
    }

    pub(crate) fn time_of(&self, call: u64) -> Option<GpuTime> {
        self.times.get(&call).copied()
    }
}

/// A profile beside the rows of its trace, and the calls that have come.
#[derive(Debug)]
pub(crate) struct ReplayedCalls {
    pub(crate) replayed: Arc<Replayed>,
    calls: FxHashSet<u64>,
}

impl ReplayedCalls {
    pub(crate) fn new(replayed: Arc<Replayed>) -> Self {
        Self {
            replayed,
            calls: FxHashSet::default(),
        }
    }

    /// A call comes.
    ///
    /// # Errors
    /// If the profile has another function for the call: it is of another trace.
    pub(crate) fn call(&mut self, row: &CallRow<'_>) -> Result<(), Error> {
        let index = row.call.index;
        self.replayed.profile.expect(index, row.function)?;
        self.calls.insert(index);
        Ok(())
    }

    /// The calls of the replay that have come.
    pub(crate) fn host(&self) -> impl Iterator<Item = &HostCall> {
        let host = self.replayed.run.host.iter();
        host.filter(|call| self.calls.contains(&call.call))
    }

    /// Their kernels with counters.
    pub(crate) fn counters(&self) -> impl Iterator<Item = &KernelCounters> {
        let counters = self.replayed.profile.counters.iter();
        let kernels = counters.flat_map(|counters| &counters.kernels);
        kernels.filter(|kernel| self.calls.contains(&kernel.call))
    }

    /// Their work, and that of the replay itself.
    pub(crate) fn work(&self) -> impl Iterator<Item = &Work> {
        let has_come = |work: &&Work| work.call.is_none_or(|call| self.calls.contains(&call));
        self.replayed.run.work.iter().filter(has_come)
    }
}
