//! What a memset node does.

/// A memset node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Memset {
    pub(super) target: u64,
    pub(super) pitch: u64,
    pub(super) value: u64,
    pub(super) element: u64,
    pub(super) width: u64,
    pub(super) height: u64,
}
