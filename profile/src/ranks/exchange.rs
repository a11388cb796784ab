//! Collectives as they were measured: when each rank arrived, and how long it waited.

use serde::Serialize;

use super::{Collective, OnAxis, kernels_by_call};

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
