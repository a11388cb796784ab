//! What is kept from one call that the driver is given to the next.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use cutape_driver::CallError;
use cutape_format::Call;
use cutape_registry::{FUNCTIONS, Function};
use rustc_hash::FxBuildHasher;

use crate::api::{Api, Code, NOT_READY};
use crate::calls::events::WorkEvents;
use crate::calls::frame::Frame;
use crate::calls::steps::Recorder;
use crate::measure::timing::Measure;
use crate::objects::kernels::Kernels;
use crate::process::position::Position;
use crate::report::Report;

/// Frames that are kept to be filled again: as many as calls can be nested.
const FRAMES_KEPT: usize = 4;

/// What issuing calls needs.
#[derive(Debug)]
pub(crate) struct Issuer {
    pub position: Arc<Position>,
    pub kernels: Kernels,
    /// Keeps what is done for the current call, so that it can be done again.
    pub recorder: Option<Recorder>,
    /// What is measured, instead of comparing bytes.
    pub measure: Option<Measure>,
    /// Events around work, if a tracer wants them.
    pub events: Option<WorkEvents>,
    /// How often a query is repeated that the recorded driver had answered with success.
    patience: u64,
    /// Frames of calls that are over.
    frames: Vec<Frame>,
    /// By thread: the query that its last call was, if the answer was that work is not done.
    polling: HashMap<u32, (u16, u64), FxBuildHasher>,
    /// By the registry's id: calls that the replay answered itself.
    answered: Vec<u64>,
}

impl Issuer {
    pub(crate) fn new(position: Arc<Position>, watchdog: Duration) -> Self {
        Self {
            position,
            kernels: Kernels::default(),
            recorder: None,
            measure: None,
            events: None,
            // Queries are counted and not time, so that a replay that was stopped does the same.
            patience: (watchdog.as_micros() / 2 / PAUSES.1.as_micros()) as u64,
            frames: Vec::new(),
            polling: HashMap::default(),
            answered: Vec::new(),
        }
    }

    /// An empty frame.
    pub(crate) fn frame(&mut self) -> Frame {
        self.frames.pop().unwrap_or_default()
    }

    /// Takes back the frame of a call that is over.
    pub(crate) fn recycle(&mut self, mut frame: Frame) {
        if self.frames.len() < FRAMES_KEPT {
            frame.clear();
            self.frames.push(frame);
        }
    }

    /// True for a query that its thread had just made, and whose answer was again that work is not
    /// done. One such query replaces all of them; the one that succeeded waits.
    #[inline]
    pub(crate) fn polls_again(&mut self, call: &Call, function: &Function, is_query: bool) -> bool {
        if is_query && call.result() == Some(NOT_READY) {
            let query = (function.id, call.argument(0));
            return self.polling.insert(call.thread, query) == Some(query);
        }
        if !self.polling.is_empty() {
            self.polling.remove(&call.thread);
        }
        false
    }

    /// The replay answers a call itself.
    pub(crate) fn count_answer(&mut self, function: &Function) {
        if self.answered.is_empty() {
            self.answered = vec![0; FUNCTIONS.len()];
        }
        if let Some(count) = self.answered.get_mut(usize::from(function.id)) {
            *count += 1;
        }
    }

    /// The last call is done.
    pub(crate) fn finish(&mut self, report: &mut Report, ticks_per_second: u64) {
        for (function, &count) in FUNCTIONS.iter().zip(&self.answered) {
            if count > 0 {
                let name = function.name.to_owned();
                report.calls_emulated.insert(name, count);
            }
        }
        if let Some(measure) = &mut self.measure {
            measure.close();
            (report.timing, report.span) = measure.result(ticks_per_second);
        }
    }

    pub(crate) fn patience(&self) -> u64 {
        self.patience
    }
}

/// Queries that follow each other at once before there are pauses between them.
const EAGER_QUERIES: u64 = 64;
/// The first pause between queries, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_micros(5), Duration::from_micros(200));

/// Gives a call to the driver. A query that `waits` is repeated as long as work is not done and
/// it has been asked fewer than `patience` times.
#[inline]
pub(crate) fn call_driver(
    api: &Api,
    function: &'static Function,
    args: &[u64],
    waits: bool,
    patience: u64,
) -> Result<Code, CallError> {
    // SAFETY: `marshal` and the overrides give numbers, live handles, live addresses, and pointers
    // to memory that the frame or the player keeps, as long as the registry says.
    let result = unsafe { api.call(function.id, args) };
    match waits && result == Ok(NOT_READY) {
        true => repeat_query(api, function, args, patience),
        false => result,
    }
}

#[cold]
fn repeat_query(
    api: &Api,
    function: &'static Function,
    args: &[u64],
    patience: u64,
) -> Result<Code, CallError> {
    let (mut pause, longest) = PAUSES;
    let mut queries = 0;
    loop {
        queries += 1;
        if queries < EAGER_QUERIES {
            std::thread::yield_now();
        } else {
            std::thread::sleep(pause);
            pause = (pause * 2).min(longest);
        }
        // SAFETY: as in `call_driver`.
        let result = unsafe { api.call(function.id, args) };
        if result != Ok(NOT_READY) || queries >= patience {
            return result;
        }
    }
}
