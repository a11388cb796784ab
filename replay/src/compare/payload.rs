//! Bytes of the recording.

use std::borrow::Cow;

use cutape_format::{Bytes, Snapshot, Trace};

/// Bytes of a snapshot, or why there are none.
#[derive(Debug)]
pub(crate) enum Payload<'t> {
    Here(Cow<'t, [u8]>),
    /// Left out by the payload policy: how many, and the start of their blake3 hash if that was
    /// kept.
    Left(u64, Option<[u8; 16]>),
    /// Could not be read, or the blob is damaged.
    Unreadable,
}

impl<'t> Payload<'t> {
    /// What a snapshot holds.
    pub(crate) fn of(trace: &'t Trace, snapshot: &Snapshot<'t>) -> Self {
        match snapshot.bytes {
            Bytes::Inline(bytes) => Self::Here(Cow::Borrowed(bytes)),
            Bytes::Blob(_) | Bytes::InFile(_) => match trace.resolve(snapshot.bytes) {
                Ok(bytes) => Self::Here(bytes),
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
