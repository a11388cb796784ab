//! Conversion of a trace's clock ticks to nanoseconds.

use crate::read::trace::Trace;

/// A trace's clock, its rate computed once.
#[derive(Clone, Copy, Debug)]
pub struct TraceClock {
    start: u64,
    /// Ticks per second; 0 if the clock only counts.
    rate: u64,
}

impl TraceClock {
    /// The clock of a trace.
    pub fn of(trace: &Trace) -> Self {
        Self {
            start: trace.head().start_ticks,
            rate: trace.ticks_per_second(),
        }
    }

    /// A clock of that many ticks per second; 0 if it only counts.
    pub fn with_rate(rate: u64) -> Self {
        Self { start: 0, rate }
    }

    /// Nanoseconds from the start of the recording; `None` if the clock only counts.
    pub fn since_start(self, ticks: u64) -> Option<u64> {
        self.between(self.start, ticks)
    }

    /// Nanoseconds from one moment to a later one.
    pub fn between(self, from: u64, to: u64) -> Option<u64> {
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
                TraceClock { start: 0, rate }.between(from, to),
                expected,
                "{rate} {from} {to}"
            );
        }
    }
}
