//! One iteration after the other, on one of two clocks.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::api::{Api, Code, result_name};
use crate::guard::Position;
use crate::rerun::repeatable::stream_of;
use crate::rerun::snapshot::Snapshot;
use crate::rerun::steps::{Step, calls_of, issue};

/// Bytes that are written before each iteration on the device's clock: enough that the device is still busy with them while
/// the host enqueues the first event and the first call, so that their distance is no part of the time; and enough to leave
/// caches in the same state each time.
const FILLER: u64 = 64 << 20;

/// What time is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// Between two events around the calls, on the device.
    Gpu,
    /// That the calls take on the host until the last has returned, which waits for the device only where a call does.
    Host,
}

/// Calls that can be issued again and again.
#[derive(Debug)]
pub struct Work<'a> {
    api: &'a Api,
    steps: &'a [Step],
    snapshot: Option<&'a Snapshot>,
    position: &'a Position,
    /// Where the first call is issued.
    context: u64,
    stream: u64,
    /// Other streams that the calls use: context, stream, an event.
    others: Vec<(u64, u64, u64)>,
    start: u64,
    end: u64,
    filler: Option<u64>,
}

impl<'a> Work<'a> {
    /// Makes events for the streams of the steps. A context must be current.
    pub(super) fn new(
        api: &'a Api,
        steps: &'a [Step],
        snapshot: Option<&'a Snapshot>,
        position: &'a Position,
    ) -> Result<Self, String> {
        let before = api.current_context().map_err(refused("cuCtxGetCurrent"))?;
        let first = calls_of(steps).next();
        let first = first.ok_or("there is no call to measure")?;
        let context = match first.context {
            0 => before,
            context => context,
        };
        let stream = stream_of(first);
        let places: BTreeSet<(u64, u64)> = calls_of(steps)
            .map(|issued| (issued.context, stream_of(issued)))
            .filter(|&place| place != (context, stream) && place.0 != 0)
            .collect();
        let mut work = Self {
            api,
            steps,
            snapshot,
            position,
            context,
            stream,
            others: Vec::new(),
            start: 0,
            end: 0,
            filler: None,
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
        // The null driver does all work on the spot: there is nothing to hide, and its memory is the host's.
        if !self.api.is_null_driver() {
            self.filler = self.api.allocate(FILLER).ok();
        }
        Ok(())
    }

    /// Whether the device has something to do while the host enqueues the calls.
    pub(super) fn is_busy_before(&self) -> bool {
        self.filler.is_some() || self.api.is_null_driver()
    }

    fn enter(&self, context: u64) -> Result<(), String> {
        self.api
            .set_current(context)
            .map_err(refused("cuCtxSetCurrent"))
    }

    /// Nanoseconds that so many iterations took in all, without what is done between them.
    ///
    /// # Errors
    /// What a repeated call answered other than success, in one line.
    pub fn run(&mut self, iterations: u64, clock: Clock) -> Result<f64, String> {
        let before = self
            .api
            .current_context()
            .map_err(refused("cuCtxGetCurrent"))?;
        let mut sum = 0.0;
        for _ in 0..iterations {
            sum += self.once(clock)?;
            // The guard sees that something happens.
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
            Clock::Host => self.on_the_host()?,
            Clock::Gpu => self.on_the_device()?,
        };
        for &(context, ..) in &self.others {
            self.enter(context)?;
            api.synchronize().map_err(refused("cuCtxSynchronize"))?;
        }
        self.enter(self.context)?;
        api.synchronize().map_err(refused("cuCtxSynchronize"))?;
        Ok(nanoseconds)
    }

    fn on_the_host(&self) -> Result<f64, String> {
        let mut current = self.context;
        let begin = Instant::now();
        issue(self.api, self.steps, &mut current, self.position)?;
        Ok(begin.elapsed().as_nanos() as f64)
    }

    fn on_the_device(&self) -> Result<f64, String> {
        let api = self.api;
        if let Some(filler) = self.filler {
            api.fill(filler, FILLER, self.stream)
                .map_err(refused("cuMemsetD8Async"))?;
        }
        api.record_event(self.start, self.stream)
            .map_err(refused("cuEventRecord"))?;
        // Nothing on another stream begins before the clock does.
        for &(_, stream, _) in &self.others {
            api.wait_in_stream(stream, self.start)
                .map_err(refused("cuStreamWaitEvent"))?;
        }
        let mut current = self.context;
        issue(api, self.steps, &mut current, self.position)?;
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

    /// Gives events and memory back.
    pub(super) fn release(&mut self) {
        let api = self.api;
        let events = self.others.iter().map(|other| other.2);
        for event in events.chain([self.start, self.end]) {
            if let Err(code) = api.destroy_event(event) {
                tracing::debug!("an event could not be destroyed: result {code}");
            }
        }
        if let Some(filler) = self.filler.take()
            && let Err(code) = api.free(filler)
        {
            tracing::debug!("scratch memory could not be freed: result {code}");
        }
    }
}

/// Says that the driver refuses what measuring itself needs.
fn refused(function: &'static str) -> impl Fn(Code) -> String {
    move |code| {
        format!(
            "the driver answers {} to {function}, which measuring itself needs",
            result_name(code)
        )
    }
}
