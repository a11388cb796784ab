//! What is known of ranks that were replayed together.

use serde::Serialize;

use crate::path::CriticalPath;
use crate::record::{Profile, Run};
use crate::summary::Summary;

/// A rank of a replay of several.
#[derive(Clone, Debug, Serialize)]
pub struct RankProfile {
    /// What messages call it, e.g. `rank 3`.
    pub label: String,
    /// Its rank, if it has one.
    pub rank: Option<u64>,
    /// When its axis begins, in nanoseconds after the earliest of all.
    pub offset_ns: u64,
    /// What follows from it alone.
    pub summary: Summary,
    /// What was measured.
    pub profile: Profile,
}

/// A collective as the traces show it: its kernel, and its launches by position of the rank and by
/// call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collective {
    /// The kernel.
    pub kernel: String,
    /// Position among the ranks, and call.
    pub launches: Vec<(usize, u64)>,
}

/// What follows from ranks together. Ranks are by their position.
#[derive(Clone, Debug, Serialize)]
pub struct RanksSummary {
    /// From the first call or work of any rank to the end of the last.
    pub wall_ns: u64,
    /// The collectives, in order of the time at which the last rank arrived.
    pub exchanges: Vec<Exchange>,
    /// By rank.
    pub ranks: Vec<RankRow>,
    /// By range of NVTX: those with the most time on the critical path first.
    pub ranges: Vec<RangeRow>,
    /// Collectives whose kernels were not measured in all ranks, as those of captured graphs.
    pub not_measured: u64,
}

/// A rank, compared with the others.
#[derive(Clone, Debug, Serialize)]
pub struct RankRow {
    /// Its name.
    pub label: String,
    /// Collectives that it takes part in.
    pub exchanges: u64,
    /// Those in which it arrived last.
    pub last_in: u64,
    /// The time for which its kernels waited for the last rank, in all.
    pub waited_ns: u64,
    /// The time for which others waited for it in the collectives in which it was the last.
    pub awaited_ns: u64,
    /// From its end to that of the last rank.
    pub early_ns: u64,
    /// The time by which it could be slower without delaying others, if each part of it is before
    /// the collective in which it waits: `waited_ns` and `early_ns`.
    pub slack_ns: u64,
    /// Its part of the critical path of all ranks.
    pub critical_path: CriticalPath,
}

/// A range of NVTX in all ranks.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RangeRow {
    /// Its path; `None` for calls in no range.
    pub range: Option<String>,
    /// Its time on the critical path.
    pub total_ns: u64,
    /// That by rank.
    pub by_rank: Vec<u64>,
    /// The rank with most of it.
    pub bound_by: usize,
}

/// A rank's replay, and the distance of its axis from the common one.
pub(crate) struct OnAxis<'a> {
    pub(crate) profile: &'a Profile,
    pub(crate) run: &'a Run,
    pub(crate) offset: u64,
}

/// A collective. Times are in nanoseconds on the common axis.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Exchange {
    /// The kernel.
    pub kernel: String,
    /// When the last rank arrived: all have what they need from then on.
    pub begin_ns: u64,
    /// When the last kernel was over.
    pub end_ns: u64,
    /// The rank that arrived last.
    pub last: usize,
    /// The innermost range of its call.
    pub range: Option<String>,
    /// By rank.
    pub arrivals: Vec<Arrival>,
}

/// A rank's kernel of a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Arrival {
    /// The rank.
    pub rank: usize,
    /// The call that launched it.
    pub call: u64,
    /// When it began to run.
    pub begin_ns: u64,
    /// How long it waited for the last rank.
    pub waited_ns: u64,
    /// When it was over.
    pub end_ns: u64,
    /// The position of the kernel in the rank's work.
    #[serde(skip)]
    pub(crate) work: usize,
}
