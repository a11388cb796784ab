//! Conversion of a trace's clock ticks to nanoseconds.

use crate::read::trace::Trace;

/// A trace's clock, its rate computed once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// How much the system's clocks of two recordings on one machine may differ from their common
/// counter: while the system corrects its clock, and per nanosecond between the recordings.
const SAME_MACHINE_NS: f64 = 10e6;
const SAME_MACHINE_DRIFT: f64 = 1e-3;

/// When a recording began, by the trace's clock and by the system's.
#[derive(Clone, Copy, Debug)]
pub struct ClockStart {
    /// Nanoseconds since 1970.
    pub unix_ns: u64,
    /// Of the trace's clock.
    pub ticks: u64,
    /// Ticks per second, not 0.
    pub rate: u64,
}

impl ClockStart {
    /// The start of a trace; `None` if its clock only counts.
    pub fn of(trace: &Trace) -> Option<Self> {
        let (head, rate) = (trace.head(), trace.ticks_per_second());
        (rate != 0).then_some(Self {
            unix_ns: head.start_unix,
            ticks: head.start_ticks,
            rate,
        })
    }

    /// Whether both recordings read the same counter, so that their ticks compare: it tells the
    /// same time between the two that the system's clock tells.
    pub fn has_counter_of(&self, other: &Self) -> bool {
        let system = other.unix_ns as f64 - self.unix_ns as f64;
        let ticks = other.ticks as f64 - self.ticks as f64;
        let counter = ticks * 1e9 / self.rate as f64;
        (system - counter).abs() <= SAME_MACHINE_NS + SAME_MACHINE_DRIFT * system.abs()
    }

    /// Whether two recordings were made on different machines, as far as their clocks tell: those
    /// that only count may be of one.
    pub fn are_apart(one: Option<&Self>, other: Option<&Self>) -> bool {
        let known = one.zip(other);
        known.is_some_and(|(one, other)| !one.has_counter_of(other))
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
