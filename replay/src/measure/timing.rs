//! How long calls are in the driver, and how long a stretch of them takes.

use std::collections::BTreeMap;

use cutape_format::Call;
use cutape_registry::{FUNCTIONS, Function};

use crate::measure::clock::{Clock, nanoseconds, ticks};
use crate::report::{Span, Timing};

/// What a replay measures, instead of comparing bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Measuring {
    /// Nothing: bytes are compared.
    #[default]
    Nothing,
    /// The time from the first call to the last: the clock is read twice in all.
    Span,
    /// That, and each function's time in the driver: the clock is read three times a call, which
    /// costs some 20 ns each.
    Calls,
}

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
    /// Whether single calls are measured.
    of_calls: bool,
    /// How many are to be measured: the clock is read at the last of them.
    expected: u64,
    /// By the registry's id.
    sums: Vec<Sum>,
    calls: u64,
    /// Index of the first call, here and recorded when it began.
    first: Option<(u64, u64, u64)>,
    /// Index of the last, here and recorded when it was over.
    last: (u64, u64, u64),
    /// The clock was not read when the last was over.
    is_open: bool,
}

impl Measure {
    /// Measures that many calls; `None` for nothing.
    pub(crate) fn new(measuring: Measuring, expected: u64) -> Option<Self> {
        (measuring != Measuring::Nothing).then(|| Self {
            clock: Clock::start(),
            of_calls: measuring == Measuring::Calls,
            expected,
            sums: vec![Sum::default(); FUNCTIONS.len()],
            calls: 0,
            first: None,
            last: (0, 0, 0),
            is_open: false,
        })
    }

    /// When a call had returned in the recording, or was entered if it never did.
    pub(crate) fn returned_at(call: &Call) -> u64 {
        call.leave.map_or(call.ticks, |leave| leave.ticks)
    }

    /// Whether the time of single calls in the driver is wanted.
    pub(crate) fn is_of_calls(&self) -> bool {
        self.of_calls
    }

    /// A call that is to be measured is taken up.
    /// `entered`: when it was, in ticks of the recording.
    #[inline]
    pub(crate) fn begin(&mut self, index: u64, entered: u64) {
        if self.first.is_none() {
            self.first = Some((index, ticks(), entered));
        }
    }

    /// It is done. `recorded`: when it was over, in ticks of the recording.
    pub(crate) fn end(&mut self, call: u64, recorded: u64) {
        self.calls += 1;
        let (index, here, before) = self.last;
        self.is_open = !self.of_calls && self.calls < self.expected;
        let here = if self.is_open { here } else { ticks() };
        self.last = (index.max(call), here, before.max(recorded));
    }

    /// No call comes any more, although not all may have come.
    pub(crate) fn close(&mut self) {
        if std::mem::take(&mut self.is_open) {
            self.last.1 = ticks();
        }
    }

    /// The driver had a call for `ticks`, in the recording for `recorded`.
    pub(crate) fn add(&mut self, function: &Function, recorded: u64, ticks: u64) {
        if let Some(sum) = self.sums.get_mut(usize::from(function.id)) {
            sum.calls += 1;
            sum.ticks += ticks;
            sum.recorded += recorded;
        }
    }

    /// By function, and from the first to the last call; `ticks_per_second` is that of the
    /// recording.
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
            driver_nanoseconds: self
                .of_calls
                .then(|| timing.values().map(|timing| timing.nanoseconds).sum()),
            recorded_nanoseconds: nanoseconds(self.last.2.saturating_sub(recorded), recorded_scale),
        });
        (timing, span)
    }
}
