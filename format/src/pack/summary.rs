//! What packing did.

use crate::read::verify::MissingFileRange;

/// What packing did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PackSummary {
    /// Bytes before.
    pub before: u64,
    /// Bytes after.
    pub after: u64,
    /// Calls that were written, if not all were.
    pub calls: u64,
    /// Blobs that were stored already.
    pub duplicate_blobs: u64,
    /// Parts of files that were copied into the trace.
    pub files: u64,
    /// Those that are unavailable.
    pub missing: Vec<MissingFileRange>,
    /// Payloads of which less is kept than before.
    pub payloads: u64,
    /// Bytes of these.
    pub payload_bytes: u64,
}
