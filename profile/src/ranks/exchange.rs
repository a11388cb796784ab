//! Collectives as they were measured: when each rank arrived, and how long it waited.

use std::collections::BTreeMap;

use crate::ranks::record::{Arrival, Collective, Exchange, OnAxis};
use crate::record::{Run, WorkKind};

/// Those whose kernels were measured in all ranks, in order of time.
pub(crate) fn measured(ranks: &[OnAxis<'_>], collectives: &[Collective]) -> Vec<Exchange> {
    let kernels: Vec<_> = ranks.iter().map(|rank| kernels_by_call(rank.run)).collect();
    let arrival = |&(rank, call): &(usize, u64)| {
        let work = *kernels.get(rank)?.get(&call)?;
        let known = ranks.get(rank)?;
        let kernel = known.run.work.get(work)?;
        Some(Arrival {
            rank,
            call,
            begin_ns: kernel.begin_ns.saturating_add(known.offset),
            waited_ns: 0,
            end_ns: kernel.end_ns.saturating_add(known.offset),
            work,
        })
    };
    let exchange = |collective: &Collective| {
        let arrivals = collective.launches.iter().map(arrival);
        let mut arrivals: Vec<Arrival> = arrivals.collect::<Option<_>>()?;
        let last = *arrivals.iter().max_by_key(|arrival| arrival.begin_ns)?;
        for arrival in &mut arrivals {
            // A kernel that was over before has not waited until then.
            let until = last.begin_ns.min(arrival.end_ns);
            arrival.waited_ns = until.saturating_sub(arrival.begin_ns);
        }
        let facts = ranks.get(last.rank)?.profile.calls.get(&last.call);
        Some(Exchange {
            kernel: collective.kernel.clone(),
            begin_ns: last.begin_ns,
            end_ns: arrivals.iter().map(|arrival| arrival.end_ns).max()?,
            last: last.rank,
            range: facts.and_then(|facts| facts.range.clone()),
            arrivals,
        })
    };
    let mut exchanges: Vec<Exchange> = collectives.iter().filter_map(exchange).collect();
    exchanges.sort_by_key(|exchange| (exchange.begin_ns, exchange.end_ns));
    exchanges
}

/// The work of each call that is a kernel.
fn kernels_by_call(run: &Run) -> BTreeMap<u64, usize> {
    let kernels = run.work.iter().enumerate();
    let kernels = kernels.filter(|(_, work)| work.kind == WorkKind::Kernel);
    let mut found = BTreeMap::new();
    for (at, work) in kernels {
        if let Some(call) = work.call {
            found.entry(call).or_insert(at);
        }
    }
    found
}
