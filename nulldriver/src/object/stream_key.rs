//! What tells streams apart.

/// A stream: its handle; of a default stream also the context, and of a per-thread one the thread.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) handle: u64,
    pub(crate) context: u64,
    pub(crate) thread: u64,
}
