//! What the ranks of a folder share.

use cutape_format::{ClockStart, Trace};
use cutape_model::{ExchangeBuilder, Exchanges, Sharing};

/// What ranks export and import, matched.
pub(crate) struct SharedObjects {
    /// Of each rank.
    pub exchanges: Vec<Exchanges>,
    pub sharing: Sharing,
    /// All ranks read the same counter.
    pub have_counter: bool,
}

impl SharedObjects {
    pub(crate) fn of(traces: &[&Trace]) -> Self {
        let exchanges: Vec<Exchanges> = traces
            .iter()
            .map(|trace| {
                let mut builder = ExchangeBuilder::default();
                trace.calls().for_each(|call| builder.observe(&call));
                builder.finish()
            })
            .collect();
        let clocks: Option<Vec<_>> = traces.iter().map(|trace| ClockStart::of(trace)).collect();
        let have_counter = clocks.is_some_and(|clocks| {
            let first = clocks.first();
            first.is_some_and(|first| clocks.iter().all(|clock| first.has_counter_of(clock)))
        });
        let moment = |_, ticks| have_counter.then(|| i128::from(ticks));
        let sharing = Sharing::of(&exchanges, &moment);
        Self {
            exchanges,
            sharing,
            have_counter,
        }
    }
}
