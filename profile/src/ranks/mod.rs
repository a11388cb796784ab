//! Several ranks that were replayed together: what each waits for in the others, and which of them
//! bounds the time.
//!
//! `exchange` finds the kernels of collectives in the profiles and says how long each rank waited
//! for the last, `path` follows the critical path through all ranks, `text` puts that into words.

mod exchange;
mod path;
#[cfg(test)]
mod programs;
mod text;

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::path::CriticalPath;
use crate::record::{Profile, Run};
use crate::summary::Summary;

pub use self::exchange::{Arrival, Exchange};

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

impl RanksSummary {
    /// Of ranks and their collectives.
    pub fn of(ranks: &[RankProfile], collectives: &[Collective]) -> Self {
        let nothing = Run::default();
        let on_axis: Vec<OnAxis<'_>> = ranks
            .iter()
            .map(|rank| OnAxis {
                profile: &rank.profile,
                run: rank.profile.runs.first().unwrap_or(&nothing),
                offset: rank.offset_ns,
            })
            .collect();
        let spans = || {
            let with_rows = on_axis
                .iter()
                .filter(|rank| !rank.run.host.is_empty() || !rank.run.work.is_empty());
            with_rows.map(|rank| {
                let (begin, end) = rank.run.span();
                [begin, end].map(|time| time.saturating_add(rank.offset))
            })
        };
        let begin = spans().map(|[begin, _]| begin).min().unwrap_or(0);
        let end = spans().map(|[_, end]| end).max().unwrap_or(begin);
        let exchanges = exchange::measured(&on_axis, collectives);
        let not_measured = collectives.len().saturating_sub(exchanges.len()) as u64;
        let paths = path::through(&on_axis, &exchanges, end - begin);
        let ranges = ranges(&paths);
        let rows = ranks.iter().zip(paths).enumerate();
        let rows = rows.map(|(rank, (known, critical_path))| {
            let own = exchanges.iter().filter_map(|exchange| {
                let arrivals = exchange.arrivals.iter();
                let own = arrivals.clone().find(|arrival| arrival.rank == rank)?;
                Some((exchange, own))
            });
            let own: Vec<_> = own.collect();
            let last: Vec<_> = own.iter().filter(|(it, _)| it.last == rank).collect();
            let waited_ns = own.iter().map(|(_, arrival)| arrival.waited_ns).sum();
            let awaited = last.iter().flat_map(|(exchange, _)| &exchange.arrivals);
            let ended = on_axis
                .get(rank)
                .map_or(end, |rank| rank.run.span().1.saturating_add(rank.offset));
            let early_ns = end.saturating_sub(ended);
            RankRow {
                label: known.label.clone(),
                exchanges: own.len() as u64,
                last_in: last.len() as u64,
                waited_ns,
                awaited_ns: awaited.map(|arrival| arrival.waited_ns).sum(),
                early_ns,
                slack_ns: early_ns.saturating_add(waited_ns),
                critical_path,
            }
        });
        Self {
            wall_ns: end - begin,
            ranks: rows.collect(),
            ranges,
            exchanges,
            not_measured,
        }
    }
}

/// The critical path of all ranks, by range.
fn ranges(paths: &[CriticalPath]) -> Vec<RangeRow> {
    let all = paths.iter().flat_map(|path| &path.ranges);
    let names: BTreeSet<Option<&str>> = all.map(|share| share.range.as_deref()).collect();
    let row = |range: Option<&str>| {
        let of_rank = |path: &CriticalPath| {
            let shares = path.ranges.iter();
            let own = shares.filter(|share| share.range.as_deref() == range);
            own.map(|share| share.total_ns).sum()
        };
        let by_rank: Vec<u64> = paths.iter().map(of_rank).collect();
        let most = by_rank.iter().enumerate().rev();
        RangeRow {
            range: range.map(str::to_owned),
            total_ns: by_rank.iter().sum(),
            bound_by: most.max_by_key(|(_, time)| **time).map_or(0, |most| most.0),
            by_rank,
        }
    };
    let mut rows: Vec<RangeRow> = names.into_iter().map(row).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.total_ns));
    rows
}

/// The work of each call that is a kernel.
pub(crate) fn kernels_by_call(run: &Run) -> BTreeMap<u64, usize> {
    let kernels = run.work.iter().enumerate();
    let kernels = kernels.filter(|(_, work)| work.kind == crate::record::WorkKind::Kernel);
    let mut found = BTreeMap::new();
    for (at, work) in kernels {
        if let Some(call) = work.call {
            found.entry(call).or_insert(at);
        }
    }
    found
}
