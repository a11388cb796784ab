//! The order of work as a sequence of calls shows it: each call is over before the next one begins,
//! and what that leaves uncertain counts as ordered and complete.

use cutape_order::Doubt;
pub use cutape_order::{Clock, StreamKey, StreamKind};
use rustc_hash::FxBuildHasher;

/// The work in all streams, numbered in the order in which it is enqueued.
#[derive(Clone, Debug)]
pub struct Order {
    order: cutape_order::Order<FxBuildHasher>,
    number: u64,
}

impl Default for Order {
    fn default() -> Self {
        Self {
            order: cutape_order::Order::new(Doubt::Complete),
            number: 0,
        }
    }
}

impl Order {
    /// The number of a stream. A stream that is not known yet gets the other properties: its
    /// context's handle and its kind.
    pub fn stream(&mut self, key: StreamKey, context: u64, kind: StreamKind) -> u32 {
        self.order.stream(key, context, kind)
    }

    /// The stream is destroyed; its work still runs.
    pub fn destroyed(&mut self, key: StreamKey) {
        self.order.destroyed(key);
    }

    /// Enqueues work; returns its number.
    pub fn submit(&mut self, stream: u32) -> Option<u64> {
        self.number += 1;
        let is_known = self.order.submit(stream, self.number, self.number);
        is_known.then_some(self.number)
    }

    /// The number of the last work.
    pub fn last(&self) -> u64 {
        self.number
    }

    /// Whether the host knows that this work is complete.
    pub fn is_done(&self, stream: u32, number: u64) -> bool {
        self.order.is_done(stream, number)
    }

    /// Whether work is ordered before whatever is enqueued next in the stream `later`; true where
    /// that is uncertain.
    pub fn is_before(&self, work: (u32, u64), later: u32) -> bool {
        self.order.is_before(work, later)
    }

    /// What is complete once an event is that is recorded in the stream now.
    pub fn clock(&mut self, stream: u32) -> Clock {
        self.order.clock(stream, self.number)
    }

    /// The clock of all work so far.
    pub fn everything(&self) -> Clock {
        self.order.everything(self.number)
    }

    /// The number of a stream's context, 0 if that is not known, and how the stream takes part in
    /// the order of the context's legacy default stream.
    pub fn context_and_kind(&self, stream: u32) -> (usize, StreamKind) {
        self.order.context_and_kind(stream)
    }

    /// The stream's later work waits for an event.
    pub fn wait(&mut self, stream: u32, clock: &Clock) {
        let now = (self.number, self.number);
        self.order.wait(stream, clock, now);
    }

    /// An event is recorded in the stream.
    pub fn recorded(&mut self, stream: u32) {
        self.order.marked(stream, self.number, self.number);
    }

    /// The stream waits for something that the trace does not show.
    pub fn wait_for_unknown(&mut self, stream: u32) {
        self.order.wait_for_unknown(stream);
    }

    /// A call has proved all of this complete.
    pub fn complete(&mut self, clock: &Clock) {
        self.order.complete(clock);
    }

    /// A call has proved the stream's work complete.
    pub fn complete_stream(&mut self, stream: u32) {
        self.order.complete_stream(stream, self.number);
    }

    /// A call has proved all work of a context complete.
    pub fn complete_context(&mut self, context: u64) {
        self.order.complete_context(context, self.number);
    }

    /// A call has proved the work of the legacy default stream, and of the streams that wait for
    /// it, complete.
    pub fn complete_blocking(&mut self, context: u64) {
        self.order.complete_blocking(context, self.number);
    }

    /// Whether one stream has waited for an event that covers work of another which may still run.
    pub fn has_waited(&self, stream: u32, other: u32) -> bool {
        self.order.has_waited(stream, other)
    }
}
