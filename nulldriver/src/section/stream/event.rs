//! Event Management.

use crate::call::answer::{
    Answer, ILLEGAL_STATE, INVALID_HANDLE, INVALID_VALUE, NOT_READY, invalid_if, reject_if,
};
use crate::call::argument::{Out, OutRef, Stream};
use crate::call::entry::entries;
use crate::object::queue::Ticket;
use crate::object::stream::{DISABLE_TIMING, Event, INTERPROCESS};
use crate::object::work::Work;
use crate::state::{Current, Locked, lock};
use crate::work::schedule;

entries! {
    cuEventCreate: create;
    cuEventRecord: |state: Locked, event: u64, stream: Stream| record(state, event, stream, 0);
    cuEventRecordWithFlags: record;
    cuEventQuery: |event: u64| {
        let (state, ticket) = last_record(event)?;
        schedule::query(state, &[ticket])
    };
    cuEventSynchronize: |event: u64| {
        let (state, ticket) = last_record(event)?;
        schedule::wait(state, &[ticket]);
        Ok(())
    };
    cuEventDestroy: destroy;
    cuEventElapsedTime: elapsed;
    cuCtxRecordEvent: record_context;
    cuCtxWaitEvent: wait_context;
}

fn create(mut state: Current, event: OutRef<u64>, flags: u32) -> Answer {
    // BLOCKING_SYNC, DISABLE_TIMING, INTERPROCESS; the last only without timing.
    invalid_if(flags > 7 || flags & INTERPROCESS != 0 && flags & DISABLE_TIMING == 0)?;
    let object = Event {
        context: state.context,
        flags,
        recorded: None,
        ticket: 0,
        file: None,
    };
    event.set(state.events.add(object)?)
}

fn record(mut state: Locked, event: u64, stream: Stream, flags: u32) -> Answer {
    let context = state.event(event)?.context;
    reject_if(state.stream_context(stream)? != context, INVALID_HANDLE)?;
    let site = state.capture_of(stream)?;
    match (flags, site) {
        (0, Some(_)) => state.note_captured_event(event, site),
        (0, None) => {
            state.note_captured_event(event, None);
            let ticket = state.enqueue_record(stream)?;
            state.record(event, ticket);
        }
        // External record nodes exist in captures only (measured).
        (1, None) => return Err(ILLEGAL_STATE),
        (1, Some(site)) => state.add_captured(site, Work::Record(event))?,
        _ => return Err(INVALID_VALUE),
    }
    Ok(())
}

/// What completes the last record of an event; one that was never recorded counts as complete.
fn last_record(event: u64) -> Answer<(Locked, Ticket)> {
    let state = lock();
    let ticket = state.event(event)?.ticket;
    state.refuse_captured_event(event)?;
    Ok((state, ticket))
}

fn destroy(mut state: Locked, event: u64) -> Answer {
    state.event(event)?;
    state.events.remove(event);
    state.note_captured_event(event, None);
    Ok(())
}

fn elapsed(state: Locked, milliseconds: Out<f32>, start: u64, end: u64) -> Answer {
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
    reject_if(
        !timed(start) || !timed(end) || start.context != end.context,
        INVALID_HANDLE,
    )?;
    let is_early = [start, end].map(|event| state.queue.is_behind_pending(event.ticket));
    reject_if(is_early.contains(&true), NOT_READY)?;
    // Negative where the end was recorded first.
    let seconds = match to.checked_duration_since(from) {
        Some(forward) => forward.as_secs_f64(),
        None => -from.duration_since(to).as_secs_f64(),
    };
    milliseconds.set((seconds * 1e3) as f32)
}

fn record_context(mut state: Locked, context: u64, event: u64) -> Answer {
    let of = state.event(event)?.context;
    state.context_or_current(context)?;
    reject_if(context != 0 && of != context, INVALID_HANDLE)?;
    state.record_context(of, event);
    Ok(())
}

fn wait_context(mut state: Locked, context: u64, event: u64) -> Answer {
    state.event(event)?;
    state.context_or_current(context)?;
    let context = if context == 0 {
        state.current()?
    } else {
        context
    };
    state.wait_in_context(context, event)
}
