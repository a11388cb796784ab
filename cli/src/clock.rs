//! Clock ticks: conversion to nanoseconds, and the processor's counter.

use std::time::{Duration, Instant};

use cutape_format::Trace;

/// A trace's clock, its rate computed once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: u64,
    /// Ticks per second; 0 if the clock only counts.
    rate: u64,
}

impl Clock {
    /// The clock of a trace.
    pub(crate) fn of(trace: &Trace) -> Self {
        Self {
            start: trace.head().start_ticks,
            rate: trace.ticks_per_second(),
        }
    }

    /// A clock of that many ticks per second; 0 if it only counts.
    pub(crate) fn with_rate(rate: u64) -> Self {
        Self { start: 0, rate }
    }

    /// Nanoseconds from the start of the recording; `None` if the clock only counts.
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

/// The processor's time stamp counter, which stamps calls, measured against the system's clock.
#[derive(Clone, Copy)]
pub(crate) struct TickClock {
    ticks: u64,
    time: Instant,
}

impl TickClock {
    /// Starts to measure.
    pub(crate) fn start() -> Self {
        Self {
            ticks: ticks(),
            time: Instant::now(),
        }
    }

    /// Ticks per second; `None` within the first 5 ms, which are too short to measure.
    pub(crate) fn rate(self) -> Option<u64> {
        let (ticks, elapsed) = (ticks().wrapping_sub(self.ticks), self.time.elapsed());
        let rate = u128::from(ticks) * 1_000_000_000 / elapsed.as_nanos().max(1);
        (elapsed > Duration::from_millis(5)).then_some(rate as u64)
    }

    /// The counter some time ago.
    pub(crate) fn ago(self, duration: Duration) -> u64 {
        let now = ticks();
        let elapsed = self.time.elapsed().as_nanos().max(1);
        let passed = u128::from(now.wrapping_sub(self.ticks));
        now.saturating_sub((passed * duration.as_nanos() / elapsed) as u64)
    }
}

/// The counter now.
pub(crate) fn ticks() -> u64 {
    // SAFETY: every x86-64 processor has the instruction.
    unsafe { core::arch::x86_64::_rdtsc() }
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
