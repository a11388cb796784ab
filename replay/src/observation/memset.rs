//! What a memset node does.

/// A memset node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memset {
    pub(crate) target: u64,
    pub(crate) pitch: u64,
    pub(crate) value: u64,
    pub(crate) element: u64,
    pub(crate) width: u64,
    pub(crate) height: u64,
}
