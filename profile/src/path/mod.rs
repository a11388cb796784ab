//! The critical path: the chain of work and calls that bounds the time of a run.
//!
//! `walk.rs` follows it back from the end. The parts meet, so they add up to the wall time.

use serde::{Deserialize, Serialize};

use crate::record::{Profile, Run, WorkKind};

#[cfg(test)]
mod programs;
pub(crate) mod walk;

/// What a part of the path is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Link {
    /// A kernel ran.
    Kernel,
    /// A copy ran.
    Copy,
    /// A memset ran.
    Memset,
    /// A graph ran.
    Graph,
    /// From the end of the work before, or the entry of the call, to the begin of work.
    Latency,
    /// The same, with a function of the host that the stream calls in between.
    HostFunction,
    /// The host was in a call.
    Call,
    /// From the end of the awaited work to the return of the wait.
    Return,
    /// The host was between calls.
    Between,
}

impl Link {
    /// The word for people and in data.
    pub fn word(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Copy => "copy",
            Self::Memset => "memset",
            Self::Graph => "graph",
            Self::Latency => "latency",
            Self::HostFunction => "host-function",
            Self::Call => "call",
            Self::Return => "return",
            Self::Between => "between",
        }
    }

    fn of(kind: WorkKind) -> Self {
        match kind {
            WorkKind::Kernel => Self::Kernel,
            WorkKind::Copy => Self::Copy,
            WorkKind::Memset => Self::Memset,
            WorkKind::Graph => Self::Graph,
        }
    }

    /// Whether a device ran work.
    fn is_work(self) -> bool {
        matches!(self, Self::Kernel | Self::Copy | Self::Memset | Self::Graph)
    }
}

/// What all parts of the same kind and name contribute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// What they are.
    pub link: Link,
    /// The kernel, the copy or the function.
    pub name: String,
    /// How many there are on the path.
    pub count: u64,
    /// Their time.
    pub total_ns: u64,
    /// The call of the longest.
    pub longest_call: Option<u64>,
    /// The time of the longest.
    pub longest_ns: u64,
}

/// What the calls of a range contribute, with their work. What the host does before a call, and
/// what work waits for, is the call's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RangeShare {
    /// The path of the innermost range, as in [`CallFacts::range`](crate::CallFacts::range);
    /// `None` for calls in no range.
    pub range: Option<String>,
    /// The time of all parts.
    pub total_ns: u64,
    /// The part in which a device ran work.
    pub work_ns: u64,
}

/// The path, by what contributes to it. The parts add up to `wall_ns`, and so do the ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CriticalPath {
    /// From the first call or work to the end of the last.
    pub wall_ns: u64,
    /// The part in which a device ran work.
    pub work_ns: u64,
    /// Those that contribute most come first.
    pub shares: Vec<Share>,
    /// The same by range; those that contribute most come first.
    pub ranges: Vec<RangeShare>,
}

impl CriticalPath {
    pub(crate) fn of(profile: &Profile, run: &Run) -> Self {
        let (begin, end) = run.span();
        Self::made_of(walk::follow(profile, run), end - begin)
    }

    pub(crate) fn made_of((shares, ranges): (Vec<Share>, Vec<RangeShare>), wall_ns: u64) -> Self {
        let work = shares.iter().filter(|share| share.link.is_work());
        Self {
            wall_ns,
            work_ns: work.map(|share| share.total_ns).sum(),
            shares,
            ranges,
        }
    }
}
