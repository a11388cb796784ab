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
    /// When the recording of each rank began, if its clock tells.
    pub clocks: Vec<Option<ClockStart>>,
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
        let clocks: Vec<_> = traces.iter().map(|trace| ClockStart::of(trace)).collect();
        let have_counter = match clocks.first() {
            Some(Some(first)) => clocks.iter().all(|clock| {
                clock
                    .as_ref()
                    .is_some_and(|clock| first.has_counter_of(clock))
            }),
            _ => false,
        };
        let moment = |_, ticks| have_counter.then(|| i128::from(ticks));
        let are_apart = |one, other| are_apart(&clocks, one, other);
        let sharing = Sharing::of(&exchanges, &moment, &are_apart);
        Self {
            exchanges,
            sharing,
            have_counter,
            clocks,
        }
    }

    /// Whether two ranks ran on different machines, as far as their clocks tell.
    pub(crate) fn are_apart(&self, one: usize, other: usize) -> bool {
        are_apart(&self.clocks, one, other)
    }
}

fn are_apart(clocks: &[Option<ClockStart>], one: usize, other: usize) -> bool {
    let clock = |rank: usize| clocks.get(rank).and_then(Option::as_ref);
    ClockStart::are_apart(clock(one), clock(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_whose_clocks_differ_ran_on_different_machines() {
        const SECOND: u64 = 1_000_000_000;
        let clock = |seconds: u64, ticks| {
            Some(ClockStart {
                unix_ns: (1000 + seconds) * SECOND,
                ticks,
                rate: SECOND,
            })
        };
        let objects = SharedObjects {
            exchanges: Vec::new(),
            sharing: Sharing::default(),
            have_counter: false,
            clocks: vec![clock(0, SECOND), clock(1, 2 * SECOND), clock(1, 5), None],
        };
        for (one, other, expected) in [
            (0, 1, false),
            (0, 2, true),
            (2, 1, true),
            // Their clocks only count.
            (0, 3, false),
            (3, 4, false),
        ] {
            assert_eq!(objects.are_apart(one, other), expected, "{one} {other}");
        }
    }
}
