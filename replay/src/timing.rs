//! How long calls are in the driver, and how long a stretch of them takes.

use std::collections::BTreeMap;

use cutape_format::Call;
use cutape_registry::{FUNCTIONS, Function};

use crate::clock::{Clock, nanoseconds, ticks};
use crate::report::{Span, Timing};

/// Ticks in the driver and in the recording, of one function.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    calls: u64,
    ticks: u64,
    recorded: u64,
}

/// What is measured of a replay.
#[derive(Debug)]
pub(crate) struct Measure {
    clock: Clock,
    /// By the registry's id.
    sums: Vec<Sum>,
    calls: u64,
    /// Index of the first call, here and recorded when it began.
    first: Option<(u64, u64, u64)>,
    /// Index of the last, here and recorded when it was over.
    last: (u64, u64, u64),
}

impl Measure {
    pub(crate) fn new() -> Self {
        Self {
            clock: Clock::start(),
            sums: vec![Sum::default(); FUNCTIONS.len()],
            calls: 0,
            first: None,
            last: (0, 0, 0),
        }
    }

    /// A call that is to be measured is taken up.
    pub(crate) fn begin(&mut self, call: &Call) {
        if self.first.is_none() {
            self.first = Some((call.index, ticks(), call.ticks));
        }
    }

    /// It is done.
    pub(crate) fn end(&mut self, call: &Call) {
        self.calls += 1;
        let recorded = call.leave.map_or(call.ticks, |leave| leave.ticks);
        let (index, _, before) = self.last;
        self.last = (index.max(call.index), ticks(), before.max(recorded));
    }

    /// The driver had a call for so many ticks.
    pub(crate) fn add(&mut self, function: &Function, call: &Call, ticks: u64) {
        let sum = &mut self.sums[usize::from(function.id)];
        sum.calls += 1;
        sum.ticks += ticks;
        let returned = call.leave.map_or(call.ticks, |leave| leave.ticks);
        sum.recorded += returned.saturating_sub(call.ticks);
    }

    /// By function, and from the first to the last call; `ticks_per_second` is that of the recording.
    pub(crate) fn result(&self, ticks_per_second: u64) -> (BTreeMap<String, Timing>, Option<Span>) {
        let scale = self.clock.nanoseconds_per_tick();
        let recorded_scale = match ticks_per_second {
            0 => 0.0,
            ticks => 1e9 / ticks as f64,
        };
        let timing: BTreeMap<String, Timing> = FUNCTIONS
            .iter()
            .zip(&self.sums)
            .filter(|(_, sum)| sum.calls > 0)
            .map(|(function, sum)| {
                let timing = Timing {
                    calls: sum.calls,
                    nanoseconds: nanoseconds(sum.ticks, scale),
                    recorded_nanoseconds: nanoseconds(sum.recorded, recorded_scale),
                };
                (function.name.to_owned(), timing)
            })
            .collect();
        let span = self.first.map(|(first, began, recorded)| Span {
            first,
            last: self.last.0,
            calls: self.calls,
            nanoseconds: nanoseconds(self.last.1.saturating_sub(began), scale),
            driver_nanoseconds: timing.values().map(|timing| timing.nanoseconds).sum(),
            recorded_nanoseconds: nanoseconds(self.last.2.saturating_sub(recorded), recorded_scale),
        });
        (timing, span)
    }
}
