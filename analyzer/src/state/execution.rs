//! What rules about asynchronous errors and threads look at: the work enqueued last, errors that
//! stay, calls of several threads that overlap.

use std::collections::VecDeque;

use cutape_model::{ObjectId, Site};
use cutape_registry::Family;
use rustc_hash::FxHashMap;

/// Handles of one call that are compared with those of other threads.
pub(super) const HANDLES: usize = 4;

/// Work that was enqueued.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecentWork {
    pub(crate) stream: (u32, u64),
    pub(crate) site: Site,
    /// The handle of the function that is launched; 0 for other work.
    pub(crate) function: u64,
    /// A launch of a graph.
    pub(crate) is_graph: bool,
    /// The handle of the thread's current context.
    pub(crate) context: u64,
    /// Why it is likely to fail.
    pub(crate) blame: Option<Blame>,
}

/// Why work is likely to fail.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Blame {
    /// A finding says that it uses memory that was freed.
    Freed,
    /// It has a parameter that is no memory, after this call failed to return some.
    Undefined(Site),
}

/// An execution error that every later call in its context returns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StickyError {
    pub(crate) code: i32,
    pub(crate) first: Site,
    /// Calls that returned it again.
    pub(crate) repeats: u64,
    /// How many of them asked for new work, and the first of those.
    pub(crate) ignored: u64,
    pub(crate) next: Option<Site>,
    /// The work that failed most likely.
    pub(crate) origin: Option<RecentWork>,
}

/// A host function behind work that may have failed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostFunction {
    pub(crate) stream: u32,
    pub(crate) site: Site,
    pub(crate) behind: Site,
}

/// A stream that waits for a value in memory, or writes one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ValueOperation {
    pub(crate) address: u64,
    pub(crate) stream: (u32, u64),
    pub(crate) waits: bool,
    pub(crate) site: Site,
}

/// The last call of a thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    /// When it was left; the largest number while it is in flight.
    pub(crate) leave: u64,
    pub(crate) site: Site,
    /// Objects that it names.
    pub(crate) objects: [Option<ObjectId>; HANDLES],
    /// The context that was current.
    pub(crate) context: Option<ObjectId>,
    pub(crate) family: Family,
}

/// What rules about asynchronous errors and threads look at.
#[derive(Debug, Default)]
pub(crate) struct Execution {
    pub(crate) recent: VecDeque<RecentWork>,
    /// By the context's handle.
    pub(crate) sticky: FxHashMap<u64, StickyError>,
    pub(crate) host_functions: VecDeque<HostFunction>,
    /// The program has given the driver a function to call.
    pub(crate) hands_over_function: bool,
    pub(crate) value_operations: VecDeque<ValueOperation>,
    /// By thread.
    pub(crate) spans: Vec<Option<Span>>,
    /// Threads in which a call has succeeded that a host function may not make.
    pub(crate) succeeded: Vec<bool>,
}
