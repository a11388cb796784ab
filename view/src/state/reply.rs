//! What the threads that read the trace and the state of the screen say to each other.

use cutape_analyzer::Finding;

use super::object_key::ObjectKey;
use super::pane_line::PaneLine;
use super::row::Row;

/// Sends a reply to the screen.
pub(crate) type SendReply<'a> = dyn Fn(Reply) + Send + Sync + 'a;

/// Which calls a list has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// All.
    All,
    /// Those of a call set.
    Set(String),
    /// Those that name an object.
    Uses(ObjectKey),
}

/// What a search looks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// A part of a call's line, in lower case.
    Text(String),
    /// A call that failed or did not return.
    Failure,
}

/// What the screen wants to know. A later request replaces an earlier one of its kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// The lines of these calls, in ascending order.
    Rows(Vec<u64>),
    /// All about a call.
    Call(u64),
    /// All about an object.
    Object(ObjectKey),
    /// The calls of a scope; `id` comes back with each reply.
    Filter { id: u64, scope: Scope },
    /// The next call of the scope in that direction, round the end.
    Search {
        id: u64,
        wanted: Wanted,
        scope: Scope,
        from: u64,
        is_backward: bool,
    },
    /// No search any more.
    StopSearch,
    /// Stops the program: as Ctrl-Z in a shell.
    Suspend,
}

/// A call that has not returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InFlight {
    pub(crate) index: u64,
    pub(crate) thread: u32,
    pub(crate) function: String,
}

/// How far the scan is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Calls, as far as is known.
    pub(crate) total: u64,
    /// Calls that have been scanned.
    pub(crate) scanned: u64,
    /// Calls whose lines do not change any more; 0 if the trace is complete.
    pub(crate) settled: u64,
    /// Nothing will be added.
    pub(crate) is_complete: bool,
    /// The recording goes on.
    pub(crate) is_growing: bool,
    /// Calls that have not returned, the first of them.
    pub(crate) in_flight: Vec<InFlight>,
}

/// What the screen is told.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// Of the scan.
    Progress(Progress),
    /// Lines of calls.
    Rows(Vec<Row>),
    /// All about a call.
    Call { index: u64, lines: Vec<PaneLine> },
    /// All about an object.
    Object {
        key: ObjectKey,
        title: String,
        lines: Vec<PaneLine>,
    },
    /// More calls of a scope, in ascending order.
    Matches {
        id: u64,
        calls: Vec<u64>,
        rows: Vec<Row>,
        /// Calls that have been looked at.
        seen: u64,
        is_done: bool,
        /// The last one ended the object of the scope.
        is_ended: bool,
    },
    /// The scope is not one, e.g. because its call set is wrong.
    BadScope { id: u64, why: String },
    /// Of a search: the call, and whether it lies beyond the end.
    Found {
        id: u64,
        call: Option<u64>,
        is_wrapped: bool,
    },
    /// A search goes on; calls that have been looked at.
    Searching { id: u64, seen: u64 },
    /// More findings.
    Findings(Vec<Finding>),
    /// How far the check is; the text is what the list leaves out.
    Checked {
        calls: u64,
        is_complete: bool,
        omitted: String,
    },
    /// Reading failed.
    Failed(String),
}
