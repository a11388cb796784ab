//! Which call of the recording it is.

/// A recorded call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallId {
    pub(crate) index: u64,
    pub(crate) thread: u32,
    /// Its position among the calls of the thread.
    pub(crate) number: u64,
    pub(crate) address: Option<u64>,
}

impl CallId {
    /// Where the memory is that it allocated, or the address space that it reserved.
    pub fn address(&self) -> Option<u64> {
        self.address
    }
}
