//! The critical path through all ranks. It is followed back in the rank that ends last; where it is
//! in a kernel that waited for another rank, it goes on there, at the kernel that arrived last.

use std::collections::HashMap;

use crate::path::CriticalPath;
use crate::path::walk::{At, Walk};
use crate::ranks::record::{Exchange, OnAxis};

/// Each rank's part of it. The parts add up to `wall_ns`, but for the time in which the rank that it
/// ends in had not begun.
pub(super) fn through(
    ranks: &[OnAxis<'_>],
    exchanges: &[Exchange],
    wall_ns: u64,
) -> Vec<CriticalPath> {
    let mut waited: Vec<HashMap<usize, (u64, &Exchange)>> =
        ranks.iter().map(|_| HashMap::new()).collect();
    for exchange in exchanges {
        for arrival in exchange.arrivals.iter().filter(|one| one.waited_ns > 0) {
            let known = ranks.get(arrival.rank).zip(waited.get_mut(arrival.rank));
            if let Some((rank, waited)) = known {
                let until = arrival.begin_ns.saturating_add(arrival.waited_ns);
                waited.insert(arrival.work, (until.saturating_sub(rank.offset), exchange));
            }
        }
    }
    let mut walks: Vec<Walk<'_>> = ranks
        .iter()
        .map(|rank| Walk::new(rank.profile, rank.run))
        .collect();
    let ends = ranks.iter().enumerate();
    let last = ends.max_by_key(|(_, rank)| rank.run.span().1.saturating_add(rank.offset));
    let mut at = last.map_or(0, |last| last.0);
    let mut from = walks.get(at).map(Walk::end);
    // Each turn goes back to an earlier arrival.
    for _ in 0..=exchanges.len() {
        let Some((walk, begin)) = walks.get_mut(at).zip(from) else {
            break;
        };
        let known = waited.get(at);
        let until = |work: usize| Some(known?.get(&work)?.0);
        let Some(work) = walk.back(begin, &until) else {
            break;
        };
        let exchange = known.and_then(|known| known.get(&work));
        let Some((_, exchange)) = exchange else { break };
        let mut arrivals = exchange.arrivals.iter();
        let Some(last) = arrivals.find(|arrival| arrival.rank == exchange.last) else {
            break;
        };
        (at, from) = (last.rank, Some(At::BeginOf(last.work)));
    }
    let paths = walks.into_iter().map(Walk::shares);
    paths
        .map(|shares| CriticalPath::made_of(shares, wall_ns))
        .collect()
}
