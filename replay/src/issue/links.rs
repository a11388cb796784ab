//! Link states.

use crate::buffer::Buffer;

/// What a link state needs while it lives.
#[derive(Debug, Default)]
pub(crate) struct LinkState {
    /// Options given to cuLinkCreate, with their logs: the driver writes there until the state is
    /// destroyed.
    pub _buffers: Vec<Buffer>,
    /// Recorded address of the cubin.
    pub cubin: Option<u64>,
}
