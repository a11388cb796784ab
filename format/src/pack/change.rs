//! How a call of a cut trace differs from that of its source.

use std::sync::Arc;

use crate::codec;
use crate::layout::{
    BlobRef, EnterHead, INLINE_LIMIT, RecordHead, SnapshotHead, record_kind, snapshot_flag,
};
use crate::pack::record::blob_of;
use crate::pack::synthetic::Synthetic;
use crate::read::call::Arguments;
use crate::read::record::Enter;
use crate::read::signature::Signature;
use crate::read::snapshot::Bytes;

/// What of a call is replaced.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CallChange {
    /// Arguments by position. Structs by value stay as they are.
    pub arguments: Vec<(u8, u64)>,
    /// The bytes of snapshots.
    pub snapshots: Vec<SnapshotChange>,
}

/// What takes the place of a snapshot's bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SnapshotChange {
    /// Before the call, or after it.
    pub part: CallPart,
    /// Position of the parameter.
    pub parameter: u8,
    /// A number of [`crate::layout::field`].
    pub field: u8,
    /// The bytes.
    pub bytes: NewBytes,
}

/// A part of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallPart {
    /// Before the driver was entered.
    Enter,
    /// After it had returned; for a copy also the bytes that arrived later.
    Leave,
}

/// The bytes of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum NewBytes {
    /// Their number only.
    Omitted,
    /// The first of them.
    First(u64),
    /// Others.
    Other(Arc<[u8]>),
    /// Others, which are computed when they are written.
    Synthetic(Synthetic),
    /// The same, but as the blob, and not as this encoded part of a file.
    OfFile(BlobRef, Box<[u8]>),
}

impl NewBytes {
    /// The blob that is to be written for them.
    pub(crate) fn blob(&self) -> Option<BlobRef> {
        match self {
            Self::Other(bytes) if bytes.len() > INLINE_LIMIT => Some(blob_of(bytes)),
            Self::Synthetic(synthetic) => {
                Some(synthetic.blob()).filter(|blob| blob.length > INLINE_LIMIT as u64)
            }
            Self::OfFile(blob, _) => Some(*blob),
            _ => None,
        }
    }
}

impl CallChange {
    /// What takes the place of a snapshot's bytes.
    pub(crate) fn bytes(&self, part: CallPart, snapshot: &SnapshotHead) -> Option<&NewBytes> {
        let changes = self.snapshots.iter();
        let mut changes = changes.filter(|change| {
            change.part == part
                && (change.parameter, change.field) == (snapshot.parameter, snapshot.field)
        });
        changes.next().map(|change| &change.bytes)
    }

    /// The bytes of a READBACK note, which belong to a copy as a whole.
    pub(crate) fn readback(&self) -> Option<&NewBytes> {
        let mut changes = self.snapshots.iter();
        let change = changes.find(|change| change.part == CallPart::Leave)?;
        Some(&change.bytes)
    }

    /// The start of an ENTER with the changed arguments, up to its snapshots.
    pub(crate) fn enter(
        &self,
        signature: &Signature,
        start_ticks: u64,
        head: RecordHead,
        record: &[u8],
    ) -> Option<(RecordHead, Vec<u8>)> {
        let enter = Enter::read(Some(signature), start_ticks, head, record)?;
        let mut packed = match enter.arguments {
            Arguments::Packed(packed) => packed.to_vec(),
            Arguments::Short(mut numbers) => {
                let mut packed = Vec::with_capacity(signature.arguments_length);
                for parameter in &signature.parameters {
                    let word = numbers.next()?.to_le_bytes();
                    packed.extend_from_slice(word.get(..parameter.value_type.bytes())?);
                }
                packed
            }
            Arguments::Decoded(_) => return None,
        };
        for &(position, value) in &self.arguments {
            let parameter = signature.parameters.get(usize::from(position))?;
            let bytes = parameter.value_type.bytes();
            let word = value.to_le_bytes();
            let place = packed.get_mut(parameter.offset..parameter.offset + bytes)?;
            place.copy_from_slice(word.get(..bytes)?);
        }
        let mut out = codec::encode_to_vec(EnterHead { ..enter.head });
        out.extend(packed);
        let head = RecordHead {
            kind: record_kind::ENTER,
            detail: 0,
            ..head
        };
        Some((head, out))
    }
}

/// A changed snapshot: its flags, and what is stored; `None` if it stays as it is.
pub(crate) fn changed(
    new: &NewBytes,
    flags: u16,
    raw: &[u8],
    bytes: Bytes<'_>,
) -> Option<(u16, Vec<u8>)> {
    const OTHERS: u16 = snapshot_flag::TRUNCATED | snapshot_flag::UNCHANGED;
    let kept = flags & OTHERS;
    if let Some(blob) = new.blob() {
        return Some((kept | snapshot_flag::BLOB, codec::encode_to_vec(blob)));
    }
    Some(match (new, bytes) {
        (NewBytes::Other(other), _) => (kept, other.to_vec()),
        (NewBytes::Synthetic(synthetic), _) => (kept, synthetic.bytes().unwrap_or_default()),
        (_, Bytes::Unreadable | Bytes::Omitted(_)) => return None,
        (NewBytes::Omitted, _) => {
            let length = bytes.length().filter(|&length| length > 0)?;
            (kept | snapshot_flag::OMITTED, codec::encode_to_vec(length))
        }
        (&NewBytes::First(length), Bytes::Inline(_)) => {
            let first = usize::try_from(length)
                .ok()
                .and_then(|end| raw.get(..end))?;
            (kept, first.to_vec())
        }
        (&NewBytes::First(length), Bytes::Blob(blob)) if length < blob.length => {
            let first = BlobRef { length, ..blob };
            (kept | snapshot_flag::BLOB, codec::encode_to_vec(first))
        }
        (NewBytes::First(_) | NewBytes::OfFile(..), _) => return None,
    })
}
