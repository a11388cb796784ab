//! How rows refer to calls, objects and streams.

use std::fmt;

use cutape_registry::Kind;

/// What every row about a call has of it. Times are nanoseconds from the start of the recording;
/// `None` if the trace's clock only counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallRef {
    /// Call index.
    pub index: u64,
    /// Thread ordinal.
    pub thread: u32,
    /// When the program entered it.
    pub enter_ns: Option<u64>,
    /// When the driver had returned; also `None` for a call in flight.
    pub leave_ns: Option<u64>,
    /// What it returned; `None` for a call in flight.
    pub result: Option<i32>,
}

impl CallRef {
    /// How long the call took on the host.
    pub fn duration_ns(&self) -> Option<u64> {
        Some(self.leave_ns?.saturating_sub(self.enter_ns?))
    }

    /// When it ended, or began if it is in flight.
    pub fn end_ns(&self) -> Option<u64> {
        self.leave_ns.or(self.enter_ns)
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
