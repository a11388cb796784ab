//! What follows from ranks together.

use std::collections::BTreeSet;

use crate::path::CriticalPath;
use crate::ranks::exchange;
use crate::ranks::path;
use crate::ranks::record::{Collective, OnAxis, RangeRow, RankProfile, RankRow, RanksSummary};
use crate::record::Run;

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
