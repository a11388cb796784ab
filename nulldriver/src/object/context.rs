//! Contexts: ordinary, primary, green.

use std::collections::{HashMap, HashSet};

use crate::call::answer::{Answer, valid_if};

/// A context.
#[derive(Default)]
pub(crate) struct Context {
    pub(crate) device: i32,
    /// Unlike the handle, never used again.
    pub(crate) id: u64,
    pub(crate) flags: u32,
    pub(crate) is_primary: bool,
    /// `cuStreamGetId` of the legacy default stream; those of per-thread ones derive from it.
    pub(crate) stream_id: u64,
    pub(crate) limits: HashMap<u32, u64>,
    /// Ids of the contexts whose memory it may use.
    pub(crate) peers: HashSet<u64>,
    pub(crate) cache_config: u32,
    pub(crate) shared_config: u32,
}

/// What is kept for a device whether its primary context is active or not.
#[derive(Clone, Default)]
pub(crate) struct Primary {
    /// The same for the whole life of the process.
    pub(crate) handle: Option<u64>,
    pub(crate) references: u32,
    pub(crate) flags: u32,
    /// The pool that `cuDeviceSetMemPool` chose.
    pub(crate) pool: Option<u64>,
}

/// A value of context-local storage.
#[derive(Clone, Copy)]
pub(crate) struct StoredValue {
    pub(crate) value: u64,
    /// The address of the function that is called when the context ends, or 0.
    pub(crate) destructor: u64,
}

/// What `cuGreenCtxCreate` makes a green context from.
pub(crate) struct ResourceDescriptor {
    pub(crate) multiprocessors: u32,
}

/// A green context.
pub(crate) struct GreenContext {
    pub(crate) device: i32,
    pub(crate) multiprocessors: u32,
    pub(crate) id: u64,
    /// What `cuCtxFromGreenCtx` returns.
    pub(crate) context: u64,
}

/// Checks `CUctx_flags`: scheduling (one of three bits), mapped host memory, local memory,
/// coredumps, synchronous memory operations.
pub(crate) fn check_flags(flags: u32) -> Answer {
    let scheduling = flags & 7;
    let is_known = flags & !0xff == 0 && matches!(scheduling, 0 | 1 | 2 | 4);
    valid_if(is_known)
}
