//! What the caller says about the processes of a recording.

use cutape_format::Call;
use cutape_model::Exchanges;

use crate::context::TraceContext;
use crate::finding::RecordedProcess;

/// A process, as a first pass over its trace shows it.
#[derive(Debug)]
pub struct CheckedProcess {
    /// Its name in findings.
    pub name: RecordedProcess,
    /// What it exports and imports.
    pub exchanges: Exchanges,
    /// How it ended.
    pub end: ProcessEnd,
}

/// How a process ended, if its whole trace is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessEnd {
    /// Not known: it still runs, or its trace is a part of a recording.
    Unknown,
    /// With this status.
    Exited(i64),
    /// By this signal.
    Killed(i64),
}

/// The traces, to be looked at again for what findings say.
pub trait RankTraces {
    /// What belongs to the calls of a process.
    fn context(&self, process: usize) -> Option<&dyn TraceContext>;
    /// Gives the calls of a process in their order, until `each` returns false.
    fn each_call(&self, process: usize, each: &mut dyn FnMut(&Call<'_>) -> bool);
}
