//! The processor's counter, which stamps calls.

use std::time::{Duration, Instant};

/// The longest time assumed between a thread's read of the counter and its record in the file.
const SETTLE: Duration = Duration::from_millis(20);

/// The processor's time stamp counter, which stamps calls, measured against the system's clock.
#[derive(Clone, Copy)]
pub struct TickClock {
    ticks: u64,
    time: Instant,
}

impl TickClock {
    /// Starts to measure.
    pub fn start() -> Self {
        Self {
            ticks: ticks(),
            time: Instant::now(),
        }
    }

    /// Ticks per second; `None` within the first 5 ms, which are too short to measure.
    pub fn rate(self) -> Option<u64> {
        let (ticks, elapsed) = (ticks().wrapping_sub(self.ticks), self.time.elapsed());
        let rate = u128::from(ticks) * 1_000_000_000 / elapsed.as_nanos().max(1);
        (elapsed > Duration::from_millis(5)).then_some(rate as u64)
    }

    /// The counter at a moment before which all calls have been written to the trace.
    pub fn settled(self) -> u64 {
        let now = ticks();
        let elapsed = self.time.elapsed().as_nanos().max(1);
        let passed = u128::from(now.wrapping_sub(self.ticks));
        now.saturating_sub((passed * SETTLE.as_nanos() / elapsed) as u64)
    }
}

/// The counter now.
pub fn ticks() -> u64 {
    // SAFETY: every x86-64 processor has the instruction.
    unsafe { core::arch::x86_64::_rdtsc() }
}
