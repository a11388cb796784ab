//! The processes of a recording against each other: what one does to the objects of another.
//!
//! [`RankCheck`] takes the calls of all processes, in the order of a clock that they share, and
//! returns findings at the end. Invariant: it reports only what the traces of both processes show.
//! Imports whose export is assumed, and calls that overlap in time, are left alone.

mod collectives;
mod exchanges;
mod finding;
mod handle;
mod kernel;
mod lifetimes;
mod memory;
mod order;
mod ordered_ends;
mod process;
mod recording;

use cutape_format::Call;
use cutape_model::Sharing;

use crate::context::TraceContext;
use crate::finding::Finding;
pub use collectives::Collective;
use collectives::Collectives;
use lifetimes::Lifetimes;
use process::Process;
pub use recording::{CheckedProcess, ProcessEnd, RankTraces};

/// Finds misuse between the processes of a recording.
#[derive(Debug)]
pub struct RankCheck {
    processes: Vec<Process>,
    lifetimes: Lifetimes,
    collectives: Collectives,
    findings: Vec<Finding>,
}

impl RankCheck {
    /// Before the first call. The clock of all processes must be the same counter.
    pub fn new(processes: Vec<CheckedProcess>) -> Self {
        let (processes, exchanges): (Vec<_>, Vec<_>) = processes
            .into_iter()
            .map(|process| (Process::new(process.name, process.end), process.exchanges))
            .unzip();
        let moment = |_, ticks| Some(i128::from(ticks));
        let sharing = Sharing::of(&exchanges, &moment, &|_, _| false);
        Self {
            lifetimes: Lifetimes::of(&sharing, &exchanges),
            collectives: Collectives::new(processes.len()),
            processes,
            findings: Vec::new(),
        }
    }

    /// Whether there is anything to find, so that calls need be given.
    pub fn is_needed(&self) -> bool {
        self.lifetimes.is_needed()
    }

    /// The next call of all processes, by the time at which they were entered; `number` counts the
    /// processes as [`RankCheck::new`] got them.
    pub fn push(&mut self, number: usize, context: &dyn TraceContext, call: &Call<'_>) {
        let Some(process) = self.processes.get_mut(number) else {
            return;
        };
        process.begin(call);
        let found = &mut self.findings;
        self.lifetimes
            .pre_call(&self.processes, (number, context, call), found);
        exchanges::check(
            &self.lifetimes,
            &self.processes,
            (number, context, call),
            found,
        );
        let Some(process) = self.processes.get_mut(number) else {
            return;
        };
        let changes = process.trace.observe(call);
        self.lifetimes.post_call(
            &mut self.processes,
            (number, context, call),
            changes.as_ref(),
        );
        let (lifetimes, process) = (&self.lifetimes, self.processes.get_mut(number));
        if let Some(process) = process {
            let identity = |id| lifetimes.identity(number, id);
            self.collectives.observe(
                process,
                (number, context, call),
                changes.as_ref(),
                &identity,
            );
        }
    }

    /// The collectives of the calls so far: which launches of different processes belong together.
    pub fn collectives(&self) -> Vec<Collective> {
        self.collectives.together()
    }

    /// What is wrong, by process and call.
    pub fn finish(mut self, traces: &dyn RankTraces) -> Vec<Finding> {
        let found = &mut self.findings;
        self.lifetimes.finish(&self.processes, traces, found);
        order::check(&self.collectives, &self.processes, traces, found);
        let key = |finding: &Finding| {
            let call = finding.call.as_ref();
            let process = call.and_then(|call| call.process.clone());
            let process = process.map(|process| (process.rank, process.trace));
            (process, call.map(|call| call.index))
        };
        self.findings.sort_by_key(key);
        self.findings
    }
}
