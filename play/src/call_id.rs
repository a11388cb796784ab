//! Which call of the recording it is.

/// A recorded call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallId {
    pub(crate) index: u64,
    pub(crate) thread: u32,
    /// Its position among the calls of the thread.
    pub(crate) number: u64,
}
