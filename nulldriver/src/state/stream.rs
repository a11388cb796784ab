//! Streams and events.

use std::collections::HashMap;
use std::time::Instant;

use crate::call::answer::{Answer, CONTEXT_IS_DESTROYED, INVALID_HANDLE, require};
use crate::call::argument::Stream;
use crate::crash;
use crate::object::context::Context;
use crate::object::device::PRIORITIES;
use crate::object::queue::Ticket;
use crate::object::stream::{Event, StreamObject};
use crate::state::store::{Action, State};

impl State {
    /// Creates a stream in a context.
    pub(crate) fn create_stream(&mut self, context: u64, flags: u32, priority: i32) -> Answer<u64> {
        let stream = StreamObject {
            context,
            flags,
            priority: priority.clamp(PRIORITIES.1, PRIORITIES.0),
            id: self.new_id(),
            attributes: HashMap::new(),
        };
        self.streams.add(stream)
    }

    /// The context of a stream. A destroyed stream crashes as in the real driver.
    pub(crate) fn stream_context(&self, stream: Stream) -> Answer<u64> {
        if stream.is_default() {
            return self.current();
        }
        match self.streams.get(&stream.0) {
            Some(stream) => Ok(stream.context),
            None => crash::segmentation_fault(),
        }
    }

    /// The living context of a stream.
    pub(crate) fn living_context(&self, stream: Stream) -> Answer<&Context> {
        let context = self.stream_context(stream)?;
        self.contexts.get(&context).ok_or(CONTEXT_IS_DESTROYED)
    }

    /// Checks that a stream may be used from the calling thread now.
    pub(crate) fn check_stream(&self, stream: Stream) -> Answer {
        self.living_context(stream).map(|_| ())
    }

    /// As `check_stream`, for work that cannot be captured.
    pub(crate) fn check_uncaptured(&self, stream: Stream) -> Answer {
        self.check_stream(stream)?;
        self.refuse_capture(stream)
    }

    /// Checks that a stream belongs to the current context (measured for launches: INVALID_HANDLE).
    pub(crate) fn check_stream_of_current(&self, stream: Stream) -> Answer {
        let current = self.current()?;
        require(self.stream_context(stream)? == current, INVALID_HANDLE)
    }

    /// The event of a handle: NULL is INVALID_HANDLE, a destroyed one crashes as in the real
    /// driver.
    pub(crate) fn event(&self, handle: u64) -> Answer<&Event> {
        require(handle != 0, INVALID_HANDLE)?;
        match self.events.get(&handle) {
            Some(event) => Ok(event),
            None => crash::segmentation_fault(),
        }
    }

    /// Records an event, which a task completes.
    pub(crate) fn record(&mut self, handle: u64, ticket: Ticket) {
        if let Some(event) = self.events.get_mut(&handle) {
            event.recorded = Some(Instant::now());
            event.ticket = ticket;
        }
    }

    /// Records an event that all work of a context completes.
    pub(crate) fn record_context(&mut self, context: u64, event: u64) {
        let before = self.queue.of_context(context);
        let ticket = match before.is_empty() {
            true => 0,
            false => self.queue.insert(None, context, before, Action::Nothing),
        };
        self.record(event, ticket);
    }

    /// All later work of a context waits for an event.
    pub(crate) fn wait_in_context(&mut self, context: u64, event: u64) -> Answer {
        let before = self.event(event)?.ticket;
        if self.queue.is_pending(before) {
            self.queue.add_gate(context, before, Action::Nothing);
        }
        Ok(())
    }
}
