//! Reading the time around single calls: the processor's time stamp counter, which costs a few
//! nanoseconds.
//!
//! It is scaled by the system's clock over the whole replay; that it runs evenly is assumed, as the
//! recorder does.

use std::time::Instant;

/// Now, in ticks of the processor.
#[inline]
pub(crate) fn ticks() -> u64 {
    // SAFETY: every x86-64 processor has the instruction, and it touches no memory.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Relates ticks to time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    ticks: u64,
    begin: Instant,
}

impl Clock {
    /// Begins to watch both clocks.
    pub(crate) fn start() -> Self {
        Self {
            ticks: ticks(),
            begin: Instant::now(),
        }
    }

    /// Nanoseconds a tick, by what has passed since the start.
    pub(crate) fn nanoseconds_per_tick(&self) -> f64 {
        let (now, passed) = (ticks(), self.begin.elapsed());
        let ticks = now.saturating_sub(self.ticks).max(1);
        passed.as_nanos() as f64 / ticks as f64
    }
}

/// Ticks as whole nanoseconds.
pub(crate) fn nanoseconds(ticks: u64, nanoseconds_per_tick: f64) -> u64 {
    // Saturates; a negative or wild factor cannot come from `Clock`.
    (ticks as f64 * nanoseconds_per_tick) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_scaled_to_the_systems_clock() {
        let clock = Clock::start();
        let before = ticks();
        std::thread::sleep(std::time::Duration::from_millis(20));
        let passed = ticks() - before;
        let slept = nanoseconds(passed, clock.nanoseconds_per_tick());
        assert!(slept >= 19_000_000, "{slept}");
        assert_eq!(nanoseconds(10, 0.5), 5);
    }
}
