//! Bytes of host memory that were put while a call waited for the device.

use serde::{Deserialize, Serialize};

/// Bytes that the device may have waited for: in the recording they changed while the call waited.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PutDuringWait {
    /// The call that waited.
    pub call: u64,
    /// The call that allocated or registered the memory, and its function.
    pub made: u64,
    /// That function.
    pub made_by: String,
    /// Where in that memory.
    pub offset: u64,
    /// How many bytes.
    pub length: u64,
    /// Other ranks have the memory mapped: assumed that a CPU thread of one of them wrote the
    /// bytes, because no rank made progress without them.
    pub is_shared: bool,
}

impl PutDuringWait {
    /// How many are kept.
    pub const KEPT: usize = 100;
}
