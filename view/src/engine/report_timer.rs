//! When a pass over calls says how far it is.

use std::time::{Duration, Instant};

/// Calls between two looks at the clock.
const STRIDE: u64 = 1 << 10;

/// Says when a report is due.
pub(super) struct ReportTimer {
    interval: Duration,
    reported: Instant,
}

impl ReportTimer {
    /// The first report is due after an interval.
    pub(super) fn every(interval: Duration) -> Self {
        Self {
            interval,
            reported: Instant::now(),
        }
    }

    /// Whether a report is due, with that many calls read; the next is due after another interval.
    pub(super) fn is_due(&mut self, calls: u64) -> bool {
        let is_due = calls.is_multiple_of(STRIDE) && self.reported.elapsed() >= self.interval;
        if is_due {
            self.reported = Instant::now();
        }
        is_due
    }
}
