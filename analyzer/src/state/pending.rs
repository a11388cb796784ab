//! What rules about order look at: accesses and copies that may still run, and memory that nothing
//! has written.

use std::ops::Range;
use std::sync::Arc;

use cutape_format::Bytes;
use cutape_format::layout::BlobRef;
use cutape_model::{Access, Accesses, ObjectId, Site};
use rustc_hash::FxHashMap;

use crate::context::TraceContext;

/// An access that may have run when its memory was freed in the order of another stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FreedAccess {
    pub(crate) access: Access,
    /// The freed memory.
    pub(crate) start: u64,
    pub(crate) size: u64,
    pub(crate) freed: Site,
}

/// What rules about order look at.
#[derive(Debug, Default)]
pub(crate) struct Ordering {
    /// What may still run.
    pub(crate) accesses: Accesses,
    /// The accesses of the call that is checked.
    pub(crate) current: Vec<Access>,
    /// The number of the stream of the call that is checked.
    pub(crate) stream: Option<u32>,
    pub(crate) freed: Vec<FreedAccess>,
    /// Page-locked sources of copies that may still run.
    pub(crate) sources: Vec<Source>,
    /// Allocations that no launch can have written, and the ranges that copies and memsets wrote.
    pub(crate) fresh: FxHashMap<ObjectId, Vec<Range<u64>>>,
    /// Stream-ordered allocations whose object is not known yet: address, work, call.
    pub(super) allocating: Vec<(u64, (u32, u64), Site)>,
    /// Streams that live.
    pub(super) live_streams: u32,
    /// Memory of pools, which cuMemFree does not wait for.
    pub(super) live_of_pools: u32,
    pub(super) uses_default: bool,
    /// Which parameters of a kernel are pointers to constants, by its name.
    pub(super) constants: FxHashMap<ObjectId, Option<Box<[bool]>>>,
}

/// What the trace keeps of a source.
#[derive(Clone, Debug)]
pub(super) enum Content {
    Bytes(Arc<[u8]>),
    Blob(BlobRef),
    Hash(u64, [u8; 16]),
}

impl Content {
    pub(super) fn of(bytes: Bytes<'_>) -> Option<Self> {
        match bytes {
            Bytes::Inline(bytes) => Some(Self::Bytes(Arc::from(bytes))),
            Bytes::Blob(blob) => Some(Self::Blob(blob)),
            Bytes::Hashed(length, hash) => Some(Self::Hash(length, hash)),
            Bytes::InFile(_) | Bytes::Omitted(_) | Bytes::Unreadable => None,
        }
    }

    /// Whether it is certain to be something else.
    pub(super) fn differs(&self, other: &Self, context: &dyn TraceContext) -> bool {
        match (self, other) {
            (Self::Bytes(a), Self::Bytes(b)) => a != b,
            (Self::Hash(length, a), Self::Hash(other, b)) => length == other && a != b,
            // A trace that is not packed may have equal bytes twice.
            (Self::Blob(a), Self::Blob(b)) if a != b => {
                let both = context.blob(*a).zip(context.blob(*b));
                both.is_some_and(|(a, b)| a != b)
            }
            _ => false,
        }
    }
}

/// The source of an asynchronous copy that may still run.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) object: ObjectId,
    pub(super) address: u64,
    pub(super) length: u64,
    pub(super) content: Content,
    pub(super) stream: (u32, u64),
    pub(crate) site: Site,
}

impl Source {
    /// Whether bytes that are read later are certain to be others where they are the same memory.
    pub(super) fn differs(
        &self,
        later: Range<u64>,
        content: &Content,
        context: &dyn TraceContext,
    ) -> bool {
        let own = self.address..self.address.saturating_add(self.length);
        if own == later {
            return self.content.differs(content, context);
        }
        // A buffer that is filled again with more or less.
        let (Content::Bytes(old), Content::Bytes(new)) = (&self.content, content) else {
            return false;
        };
        let shared = own.start.max(later.start)..own.end.min(later.end);
        let part = |bytes: &[u8], start: u64| {
            let range = (shared.start - start) as usize..shared.end.checked_sub(start)? as usize;
            Some(bytes.get(range)?.to_vec())
        };
        !shared.is_empty() && part(old, own.start) != part(new, later.start)
    }
}
