//! Bytes of the recording.

use std::borrow::Cow;
use std::cell::RefCell;
use std::ops::Deref;
use std::sync::Arc;

use cutape_format::layout::BlobRef;
use cutape_format::{Bytes, Snapshot, Trace};

/// Decompressed blobs are kept up to this many bytes: programs copy the same ones repeatedly.
const MOST_KEPT: usize = 256 << 20;
/// Shorter blobs take less to decompress than the system takes to give memory for longer ones.
const SHORTEST_KEPT: usize = 64 << 10;

/// The bytes of a snapshot.
#[derive(Debug)]
pub(crate) enum Content<'t> {
    /// In the trace, or made for this use.
    Own(Cow<'t, [u8]>),
    /// Of a blob that is kept.
    Kept(Arc<Vec<u8>>),
}

impl<'t> Content<'t> {
    pub(crate) fn into_cow(self) -> Cow<'t, [u8]> {
        match self {
            Self::Own(bytes) => bytes,
            Self::Kept(bytes) => Cow::Owned(Arc::unwrap_or_clone(bytes)),
        }
    }

    pub(crate) fn into_owned(self) -> Vec<u8> {
        self.into_cow().into_owned()
    }
}

impl Deref for Content<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Own(bytes) => bytes,
            Self::Kept(bytes) => bytes,
        }
    }
}

impl From<Vec<u8>> for Content<'_> {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Own(bytes.into())
    }
}

/// The blobs that were decompressed last, by their place in the trace: equal blobs have one place
/// and several names.
#[derive(Debug, Default)]
pub(crate) struct KeptBlobs(RefCell<Vec<(BlobRef, Arc<Vec<u8>>)>>);

impl KeptBlobs {
    fn find(&self, blob: BlobRef) -> Option<Arc<Vec<u8>>> {
        let mut kept = self.0.borrow_mut();
        let at = kept.iter().rposition(|(known, _)| *known == blob)?;
        // The most recent one last.
        let found = kept.remove(at);
        let bytes = found.1.clone();
        kept.push(found);
        Some(bytes)
    }

    fn keep(&self, blob: BlobRef, bytes: Vec<u8>) -> Arc<Vec<u8>> {
        let bytes = Arc::new(bytes);
        let mut kept = self.0.borrow_mut();
        kept.push((blob, bytes.clone()));
        let mut total = 0;
        let first = kept.iter().rposition(|(_, bytes)| {
            total += bytes.len();
            total > MOST_KEPT
        });
        kept.drain(..first.map_or(0, |first| first + 1));
        bytes
    }
}

/// Bytes of a snapshot, or why there are none.
#[derive(Debug)]
pub(crate) enum Payload<'t> {
    Here(Content<'t>),
    /// Left out by the payload policy: how many, and the start of their blake3 hash if that was
    /// kept.
    Left(u64, Option<[u8; 16]>),
    /// Could not be read, or the blob is damaged.
    Unreadable,
}

impl<'t> Payload<'t> {
    /// What a snapshot holds; a blob that is decompressed is kept for the next use.
    pub(crate) fn kept(trace: &'t Trace, kept: &KeptBlobs, snapshot: &Snapshot<'t>) -> Self {
        let Bytes::Blob(BlobRef { position, length }) = snapshot.bytes else {
            return Self::of(trace, snapshot);
        };
        let Some(position) = trace.blob_position(position) else {
            return Self::of(trace, snapshot);
        };
        let blob = BlobRef { position, length };
        if let Some(bytes) = kept.find(blob) {
            return Self::Here(Content::Kept(bytes));
        }
        match Self::of(trace, snapshot) {
            Self::Here(Content::Own(Cow::Owned(bytes))) if bytes.len() >= SHORTEST_KEPT => {
                Self::Here(Content::Kept(kept.keep(blob, bytes)))
            }
            other => other,
        }
    }

    /// What a snapshot holds.
    pub(crate) fn of(trace: &'t Trace, snapshot: &Snapshot<'t>) -> Self {
        match snapshot.bytes {
            Bytes::Inline(bytes) => Self::Here(Content::Own(Cow::Borrowed(bytes))),
            Bytes::Blob(_) | Bytes::InFile(_) => match trace.resolve(snapshot.bytes) {
                Ok(bytes) => Self::Here(Content::Own(bytes)),
                Err(damage) => {
                    tracing::debug!("blob at {}: {}", damage.position, damage.what);
                    Self::Unreadable
                }
            },
            Bytes::Omitted(length) => Self::Left(length, None),
            Bytes::Hashed(length, hash) => Self::Left(length, Some(hash)),
            Bytes::Unreadable => Self::Unreadable,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_blobs_used_last_are_kept() {
        let blob = |position| BlobRef {
            position,
            length: 1,
        };
        let kept = KeptBlobs::default();
        let quarter = || vec![0; MOST_KEPT / 4];
        for position in 0..4 {
            kept.keep(blob(position), quarter());
        }
        assert!(kept.find(blob(0)).is_some(), "all fit");
        kept.keep(blob(4), quarter());
        assert!(kept.find(blob(1)).is_none(), "used longest ago");
        assert!(
            [0, 2, 3, 4]
                .iter()
                .all(|&one| kept.find(blob(one)).is_some())
        );
        kept.keep(blob(5), vec![0; MOST_KEPT + 1]);
        assert!((0..6).all(|one| kept.find(blob(one)).is_none()));
    }
}
