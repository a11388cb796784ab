//! How rows refer to calls, objects and streams.

use std::fmt;

use cutape_format::{Call, TraceClock};
use cutape_model::StreamKind;
use cutape_registry::Kind;

/// What every row about a call has of it. Nanoseconds are from the start of the recording, `None` if
/// the trace's clock only counts; they are converted when they are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallRef {
    /// Call index.
    pub index: u64,
    /// Thread ordinal.
    pub thread: u32,
    /// When the program entered it, in ticks of the trace's clock.
    pub enter_ticks: u64,
    /// When the driver had returned; `None` for a call in flight.
    pub leave_ticks: Option<u64>,
    /// What it returned; `None` for a call in flight.
    pub result: Option<i32>,
    clock: TraceClock,
}

impl CallRef {
    pub(super) fn of(call: &Call<'_>, clock: TraceClock) -> Self {
        Self {
            index: call.index,
            thread: call.thread,
            enter_ticks: call.ticks,
            leave_ticks: call.leave.map(|leave| leave.ticks),
            result: call.result(),
            clock,
        }
    }

    /// When the program entered it.
    pub fn enter_ns(&self) -> Option<u64> {
        self.clock.since_start(self.enter_ticks)
    }

    /// When the driver had returned; also `None` for a call in flight.
    pub fn leave_ns(&self) -> Option<u64> {
        self.clock.since_start(self.leave_ticks?)
    }

    /// How long the call took on the host.
    pub fn duration_ns(&self) -> Option<u64> {
        Some(self.leave_ns()?.saturating_sub(self.enter_ns()?))
    }

    /// When it ended, or began if it is in flight.
    pub fn end_ns(&self) -> Option<u64> {
        self.clock.since_start(self.end_ticks())
    }

    /// When it ended, or began if it is in flight, in ticks.
    pub fn end_ticks(&self) -> u64 {
        self.leave_ticks.unwrap_or(self.enter_ticks)
    }

    /// Whether it returned `CUDA_SUCCESS`.
    pub fn succeeded(&self) -> bool {
        self.result == Some(0)
    }
}

/// Names an object: its kind, and its number among the objects of that kind, from 1. Unique in a
/// trace, unlike handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectRef {
    /// The kind.
    pub kind: Kind,
    /// Which one.
    pub generation: u32,
}

impl fmt::Display for ObjectRef {
    /// `module#2`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.kind.key(), self.generation)
    }
}

/// The stream that a call names, or whose work it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamRef {
    /// Unique in the trace, also for default streams, of which each context has one and each thread
    /// may have one in a context.
    pub number: u32,
    /// The handle as the call has it: 0, 1 and 2 are default streams.
    pub handle: u64,
    /// The stream's object; `None` for a default stream, and if its creation was not seen.
    pub object: Option<ObjectRef>,
    /// The thread whose own default stream it is.
    pub of_thread: Option<u32>,
    /// Which context it is of; 0 if that is not known.
    pub context: usize,
    /// How it takes part in the order of that context's legacy default stream.
    pub kind: StreamKind,
}

impl fmt::Display for StreamRef {
    /// `stream#2`, `default stream`, `default stream of thread 3`, or the handle.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.object, self.of_thread) {
            (Some(object), _) => object.fmt(f),
            (None, Some(thread)) => write!(f, "default stream of thread {thread}"),
            (None, None) if self.handle <= 1 => f.write_str("default stream"),
            (None, None) => write!(f, "stream {:#x}", self.handle),
        }
    }
}
