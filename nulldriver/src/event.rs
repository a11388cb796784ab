//! Event Management. A recorded event is complete at once.

use std::time::Instant;

use cutape_registry::Kind;

use crate::answer::{Answer, ILLEGAL_STATE, INVALID_HANDLE, INVALID_VALUE};
use crate::argument::{Out, Stream};
use crate::crash;
use crate::dispatch::{Entry, bind};
use crate::graph_work::Work;
use crate::state::{State, lock};

pub(crate) const ENTRIES: &[Entry] = &[
    ("cuEventCreate", bind(create)),
    (
        "cuEventRecord",
        bind(|event: u64, stream: Stream| record(event, stream, 0)),
    ),
    ("cuEventRecordWithFlags", bind(record)),
    ("cuEventQuery", bind(query)),
    ("cuEventSynchronize", bind(query)),
    ("cuEventDestroy", bind(destroy)),
    ("cuEventElapsedTime", bind(elapsed)),
    ("cuCtxRecordEvent", bind(record_context)),
    ("cuCtxWaitEvent", bind(wait_context)),
];

/// `CU_EVENT_DISABLE_TIMING`.
pub(crate) const DISABLE_TIMING: u32 = 2;
/// `CU_EVENT_INTERPROCESS`.
pub(crate) const INTERPROCESS: u32 = 4;

/// An event.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) context: u64,
    pub(crate) flags: u32,
    recorded: Option<Instant>,
}

impl State {
    /// The event of a handle: NULL is INVALID_HANDLE, a destroyed one crashes as in the real driver.
    pub(crate) fn event(&self, handle: u64) -> Answer<&Event> {
        if handle == 0 {
            return Err(INVALID_HANDLE);
        }
        match self.events.get(&handle) {
            Some(event) => Ok(event),
            None => crash::segmentation_fault(),
        }
    }

    /// Records an event now.
    pub(crate) fn record(&mut self, handle: u64) {
        if let Some(event) = self.events.get_mut(&handle) {
            event.recorded = Some(Instant::now());
        }
    }
}

fn create(event: Out<u64>, flags: u32) -> Answer {
    let mut state = lock();
    let context = state.current()?;
    event.check()?;
    // BLOCKING_SYNC, DISABLE_TIMING, INTERPROCESS; the last only without timing.
    if flags > 7 || flags & INTERPROCESS != 0 && flags & DISABLE_TIMING == 0 {
        return Err(INVALID_VALUE);
    }
    let handle = state.make(Kind::Event)?;
    state.events.insert(
        handle,
        Event {
            context,
            flags,
            recorded: None,
        },
    );
    event.set(handle)
}

fn record(event: u64, stream: Stream, flags: u32) -> Answer {
    let mut state = lock();
    let context = state.event(event)?.context;
    if state.stream_context(stream)? != context {
        return Err(INVALID_HANDLE);
    }
    let site = state.capture_of(stream)?;
    match (flags, site) {
        (0, Some(_)) => state.event_captured(event, site),
        (0, None) => {
            state.event_captured(event, None);
            state.record(event);
        }
        // External record nodes exist in captures only (measured).
        (1, None) => return Err(ILLEGAL_STATE),
        (1, Some(site)) => {
            state.add_captured(site, Work::Record(event))?;
        }
        _ => return Err(INVALID_VALUE),
    }
    Ok(())
}

fn query(event: u64) -> Answer {
    // An event that was never recorded counts as complete.
    let state = lock();
    state.event(event)?;
    state.refuse_captured_event(event)
}

fn destroy(event: u64) -> Answer {
    let mut state = lock();
    state.event(event)?;
    state.events.remove(&event);
    state.event_captured(event, None);
    state.release(Kind::Event, event);
    Ok(())
}

fn elapsed(milliseconds: Out<f32>, start: u64, end: u64) -> Answer {
    let state = lock();
    state.event(start)?;
    state.event(end)?;
    state.refuse_captured_event(start)?;
    state.refuse_captured_event(end)?;
    let (start, end) = (state.event(start)?, state.event(end)?);
    milliseconds.check()?;
    let timed = |event: &Event| event.flags & DISABLE_TIMING == 0;
    let (Some(from), Some(to)) = (start.recorded, end.recorded) else {
        return Err(INVALID_HANDLE);
    };
    if !timed(start) || !timed(end) || start.context != end.context {
        return Err(INVALID_HANDLE);
    }
    // Negative where the end was recorded first.
    let seconds = match to.checked_duration_since(from) {
        Some(forward) => forward.as_secs_f64(),
        None => -from.duration_since(to).as_secs_f64(),
    };
    milliseconds.set((seconds * 1e3) as f32)
}

fn record_context(context: u64, event: u64) -> Answer {
    let mut state = lock();
    let of = state.event(event)?.context;
    state.context_or_current(context)?;
    if context != 0 && of != context {
        return Err(INVALID_HANDLE);
    }
    state.record(event);
    Ok(())
}

fn wait_context(context: u64, event: u64) -> Answer {
    let mut state = lock();
    state.event(event)?;
    state.context_or_current(context).map(|_| ())
}
