//! Runs and times iterations, on the device's or the host's clock.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::api::{Api, Code, result_name};
use crate::calls::prepared_steps::PreparedSteps;
use crate::calls::steps::{Step, issued_by};
use crate::measure::clock;
use crate::process::position::Position;
use crate::rerun::repeatable::stream_of;
use crate::rerun::snapshot::Snapshot;

/// Bytes of scratch memory that are written before each iteration on the device's clock: enough to
/// keep the device busy until the host has enqueued the first event and call, and to leave the
/// caches in the same state each time.
const SCRATCH_BYTES: u64 = 64 << 20;

/// The clock of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Clock {
    /// Between two events around the calls, on the device.
    Gpu,
    /// From the first call to the return of the last, on the host. Waits for the device only where
    /// a call does.
    Host,
}

/// Calls that can be repeated.
#[derive(Debug)]
pub struct Work<'a> {
    api: &'a Api,
    steps: PreparedSteps<'a>,
    snapshot: Option<&'a Snapshot>,
    position: &'a Position,
    /// The context of the first call.
    context: u64,
    stream: u64,
    /// Other streams that the calls use: context, stream, an event.
    others: Vec<(u64, u64, u64)>,
    start: u64,
    end: u64,
    scratch: Option<u64>,
}

impl<'a> Work<'a> {
    /// Makes events for the streams of the steps. A context must be current.
    pub(super) fn new(
        api: &'a Api,
        steps: &'a [Step],
        snapshot: Option<&'a Snapshot>,
        (position, clock): (&'a Position, &clock::Clock),
    ) -> Result<Self, String> {
        let before = api.current_context().map_err(refused("cuCtxGetCurrent"))?;
        let first = issued_by(steps).next();
        let first = first.ok_or("there is no call to measure")?;
        let context = match first.context {
            0 => before,
            context => context,
        };
        let stream = stream_of(first);
        let places: BTreeSet<(u64, u64)> = issued_by(steps)
            .map(|issued| (issued.context, stream_of(issued)))
            .filter(|&place| place != (context, stream) && place.0 != 0)
            .collect();
        let mut work = Self {
            api,
            steps: PreparedSteps::of(api, steps, clock)?,
            snapshot,
            position,
            context,
            stream,
            others: Vec::new(),
            start: 0,
            end: 0,
            scratch: None,
        };
        work.prepare(places)?;
        work.enter(before)?;
        Ok(work)
    }

    fn prepare(&mut self, places: BTreeSet<(u64, u64)>) -> Result<(), String> {
        let event = |api: &Api| api.create_event().map_err(refused("cuEventCreate"));
        for (context, stream) in places {
            self.enter(context)?;
            self.others.push((context, stream, event(self.api)?));
        }
        self.enter(self.context)?;
        self.start = event(self.api)?;
        self.end = event(self.api)?;
        // The null driver does all work at once, in host memory: there is nothing to hide.
        if !self.api.is_null_driver() {
            self.scratch = self.api.allocate(SCRATCH_BYTES).ok();
        }
        Ok(())
    }

    /// Whether the device is busy while the host enqueues the calls.
    pub(super) fn is_busy_before(&self) -> bool {
        self.scratch.is_some() || self.api.is_null_driver()
    }

    fn enter(&self, context: u64) -> Result<(), String> {
        self.api
            .set_current(context)
            .map_err(refused("cuCtxSetCurrent"))
    }

    /// Nanoseconds of all iterations together, without the time between them.
    ///
    /// # Errors
    /// The first repeated call that fails, as one line.
    pub fn run(&mut self, iterations: u64, clock: Clock) -> Result<f64, String> {
        let before = self
            .api
            .current_context()
            .map_err(refused("cuCtxGetCurrent"))?;
        let mut sum = 0.0;
        for _ in 0..iterations {
            sum += self.once(clock)?;
            // The watchdog sees progress.
            self.position.done.fetch_add(1, Ordering::Relaxed);
        }
        self.enter(before)?;
        Ok(sum)
    }

    fn once(&self, clock: Clock) -> Result<f64, String> {
        let api = self.api;
        self.enter(self.context)?;
        if let Some(snapshot) = self.snapshot {
            snapshot.restore(api, self.stream)?;
        }
        api.synchronize().map_err(refused("cuCtxSynchronize"))?;
        let nanoseconds = match clock {
            Clock::Host => self.time_on_host()?,
            Clock::Gpu => self.time_on_device()?,
        };
        for &(context, ..) in &self.others {
            self.enter(context)?;
            api.synchronize().map_err(refused("cuCtxSynchronize"))?;
        }
        self.enter(self.context)?;
        api.synchronize().map_err(refused("cuCtxSynchronize"))?;
        Ok(nanoseconds)
    }

    fn time_on_host(&self) -> Result<f64, String> {
        let mut current = self.context;
        let begin = Instant::now();
        self.steps.issue(&mut current, self.position)?;
        Ok(begin.elapsed().as_nanos() as f64)
    }

    fn time_on_device(&self) -> Result<f64, String> {
        let api = self.api;
        if let Some(scratch) = self.scratch {
            api.fill(scratch, SCRATCH_BYTES, self.stream)
                .map_err(refused("cuMemsetD8Async"))?;
        }
        api.record_event(self.start, self.stream)
            .map_err(refused("cuEventRecord"))?;
        // No other stream starts before the clock.
        for &(_, stream, _) in &self.others {
            api.wait_in_stream(stream, self.start)
                .map_err(refused("cuStreamWaitEvent"))?;
        }
        let mut current = self.context;
        self.steps.issue(&mut current, self.position)?;
        for &(context, stream, event) in &self.others {
            self.enter(context)?;
            api.record_event(event, stream)
                .map_err(refused("cuEventRecord"))?;
            api.wait_in_stream(self.stream, event)
                .map_err(refused("cuStreamWaitEvent"))?;
        }
        self.enter(self.context)?;
        api.record_event(self.end, self.stream)
            .map_err(refused("cuEventRecord"))?;
        api.wait_for_event(self.end)
            .map_err(refused("cuEventSynchronize"))?;
        api.elapsed(self.start, self.end)
            .map_err(refused("cuEventElapsedTime"))
    }

    /// Destroys the events and frees the scratch memory.
    pub(super) fn release(&mut self) {
        let api = self.api;
        let events = self.others.iter().map(|other| other.2);
        for event in events.chain([self.start, self.end]) {
            if let Err(code) = api.destroy_event(event) {
                tracing::debug!("an event could not be destroyed: result {code}");
            }
        }
        if let Some(scratch) = self.scratch.take()
            && let Err(code) = api.free(scratch)
        {
            tracing::debug!("scratch memory could not be freed: result {code}");
        }
    }
}

/// An error of a call that the measurement itself makes.
fn refused(function: &'static str) -> impl Fn(Code) -> String {
    move |code| {
        format!(
            "{function}, which the measurement needs, returned {}",
            result_name(code)
        )
    }
}
