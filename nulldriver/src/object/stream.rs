//! Streams and events.

use std::collections::HashMap;
use std::time::Instant;

use cutape_driver::types::CUstreamAttrValue;

use crate::object::queue::Ticket;
use crate::object::shared_file::SharedFile;

/// `CU_STREAM_NON_BLOCKING`.
pub(crate) const NON_BLOCKING: u32 = 1;
/// `CU_EVENT_DISABLE_TIMING`.
pub(crate) const DISABLE_TIMING: u32 = 2;
/// `CU_EVENT_INTERPROCESS`.
pub(crate) const INTERPROCESS: u32 = 4;

/// A stream that the program created.
pub(crate) struct StreamObject {
    pub(crate) context: u64,
    pub(crate) flags: u32,
    pub(crate) priority: i32,
    pub(crate) id: u64,
    pub(crate) attributes: HashMap<u32, CUstreamAttrValue>,
}

impl StreamObject {
    /// Whether it and the legacy stream wait for each other.
    pub(crate) fn is_blocking(&self) -> bool {
        self.flags & NON_BLOCKING == 0
    }
}

/// An event.
pub(crate) struct Event {
    pub(crate) context: u64,
    pub(crate) flags: u32,
    pub(crate) recorded: Option<Instant>,
    /// What completes it: the place of the last record in its stream.
    pub(crate) ticket: Ticket,
    /// What other processes know it by, once it was exported.
    pub(crate) file: Option<SharedFile>,
}
