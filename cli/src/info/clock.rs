//! From clock ticks to nanoseconds, with the rate worked out once.

use cutape_format::Trace;

/// A trace's clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: u64,
    /// Ticks per second; 0 where the clock is a mere counter.
    rate: u64,
}

impl Clock {
    /// The clock of that trace.
    pub(crate) fn of(trace: &Trace) -> Self {
        Self {
            start: trace.head().start_ticks,
            rate: trace.ticks_per_second(),
        }
    }

    /// Nanoseconds from the start of the recording; `None` where the clock is a mere counter.
    pub(crate) fn since_start(self, ticks: u64) -> Option<u64> {
        self.between(self.start, ticks)
    }

    /// Nanoseconds from one moment to a later one.
    pub(crate) fn between(self, from: u64, to: u64) -> Option<u64> {
        let ticks = u128::from(to.saturating_sub(from));
        let nanoseconds = (ticks * 1_000_000_000).checked_div(u128::from(self.rate))?;
        Some(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments() {
        for (rate, from, to, expected) in [
            (1_000_000_000, 5, 12, Some(7)),
            (2_000_000_000, 0, 3, Some(1)),
            (1, 0, u64::MAX, Some(u64::MAX)),
            (1_000, 9, 3, Some(0)),
            (0, 0, 100, None),
        ] {
            assert_eq!(
                Clock { start: 0, rate }.between(from, to),
                expected,
                "{rate} {from} {to}"
            );
        }
    }
}
