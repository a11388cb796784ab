//! How a replaying process died, in the report.

use serde::{Deserialize, Serialize};

/// The end of a replaying process that did not end by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Died {
    /// The signal, if one killed it.
    pub signal: Option<i32>,
    /// True if the watchdog killed it because a call did not return.
    pub hung: bool,
    /// The call it was in.
    pub call: Option<u64>,
    /// That call's exported name.
    pub function: Option<String>,
    /// In one line.
    pub text: String,
    /// The current call of each recorded thread, if calls overlapped.
    #[serde(default)]
    pub threads: Vec<CurrentCall>,
    /// If it hung: what the call may wait for, a sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub may_wait_for: Vec<String>,
}

/// The work of one stream that may not be complete.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingStream {
    /// The recorded handle; 0 for a default stream.
    pub stream: u64,
    /// For the per-thread default stream, the thread's ordinal.
    pub thread: Option<u32>,
    /// Calls that enqueued work, in order; at most [`PendingStream::KEPT`], the first.
    pub calls: Vec<PendingCall>,
    /// All of them.
    pub count: u64,
}

impl PendingStream {
    /// How many calls are kept.
    pub const KEPT: usize = 100;
}

/// A call whose work may not be complete.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingCall {
    /// The call.
    pub call: u64,
    /// Its exported name.
    pub function: String,
    /// The launched kernel's name in its image, if known.
    pub kernel: Option<String>,
    /// The call whose work it waits for besides the work before it in its stream: the record of an
    /// event.
    pub waits_for: Option<u64>,
}

/// The current call of a thread when the replay ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CurrentCall {
    /// The thread's ordinal in the recording.
    pub thread: u32,
    /// The call.
    pub call: u64,
    /// Its exported name.
    pub function: String,
    /// True if the driver had it, false if it waited for calls of other threads.
    pub in_driver: bool,
}
