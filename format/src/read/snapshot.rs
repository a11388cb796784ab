//! Snapshots as a reader sees them.

use crate::codec;
use crate::file_range::FileRange;
use crate::layout::{BlobRef, SNAPSHOT_HEAD_LENGTH, SnapshotHead, snapshot_flag};

/// Bytes behind a pointer argument.
#[derive(Clone, Copy, Debug)]
pub struct Snapshot<'a> {
    /// Position of the parameter.
    pub parameter: u8,
    /// Which piece: a number of [`crate::layout::field`].
    pub field: u8,
    /// [`snapshot_flag`].
    pub flags: u16,
    /// What was kept.
    pub bytes: Bytes<'a>,
}

/// The bytes of a snapshot, or why the record does not hold them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bytes<'a> {
    /// In the record.
    Inline(&'a [u8]),
    /// In a blob of the trace.
    Blob(BlobRef),
    /// In a file; `pack` copies images into the trace, and payloads if it is asked.
    InFile(FileRange<'a>),
    /// Left out by the payload policy: their number.
    Omitted(u64),
    /// Left out by the payload policy: their number, and the first 16 bytes of their blake3 hash.
    Hashed(u64, [u8; 16]),
    /// The memory could not be read.
    Unreadable,
}

impl<'a> Bytes<'a> {
    /// Interprets the bytes of a snapshot by its flags; `None` if they are malformed.
    #[inline]
    pub(crate) fn decode(flags: u16, raw: &'a [u8]) -> Option<Self> {
        const INTERPRETED: u16 = snapshot_flag::UNREADABLE
            | snapshot_flag::BLOB
            | snapshot_flag::IN_FILE
            | snapshot_flag::OMITTED
            | snapshot_flag::HASHED;
        Some(match flags & INTERPRETED {
            0 => Self::Inline(raw),
            flags if flags & snapshot_flag::UNREADABLE != 0 => Self::Unreadable,
            flags if flags & snapshot_flag::BLOB != 0 => Self::Blob(codec::decode(raw)?.0),
            flags if flags & snapshot_flag::IN_FILE != 0 => Self::InFile(FileRange::decode(raw)?),
            flags if flags & snapshot_flag::OMITTED != 0 => Self::Omitted(codec::decode(raw)?.0),
            _ => {
                let ((length, hash), _) = codec::decode(raw)?;
                Self::Hashed(length, hash)
            }
        })
    }

    /// The bytes if the record itself holds them.
    pub fn inline(self) -> Option<&'a [u8]> {
        match self {
            Self::Inline(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// How many bytes the program's memory held, if known.
    pub fn length(self) -> Option<u64> {
        match self {
            Self::Inline(bytes) => Some(bytes.len() as u64),
            Self::Blob(blob) => Some(blob.length),
            Self::InFile(range) => Some(range.length),
            Self::Omitted(length) | Self::Hashed(length, _) => Some(length),
            Self::Unreadable => None,
        }
    }
}

/// A snapshot without a head of its own: its flags are 0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SingleSnapshot<'a> {
    pub(crate) parameter: u8,
    pub(crate) field: u8,
    /// `None` if the record is too short for them.
    pub(crate) bytes: Option<&'a [u8]>,
}

/// Iterates over encoded snapshots without interpreting their bytes; ends at the first that is cut.
#[derive(Clone, Debug)]
pub(crate) struct RawSnapshots<'a>(&'a [u8]);

impl<'a> RawSnapshots<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// True if what is left begins with a head, whose bytes are not all there.
    pub(crate) fn is_cut(&self) -> bool {
        self.0.len() >= SNAPSHOT_HEAD_LENGTH
    }

    /// True if nothing but padding (fewer than 8 zero bytes) is left.
    pub(crate) fn is_at_end(&self) -> bool {
        !self.is_cut() && self.0.iter().all(|&byte| byte == 0)
    }
}

impl<'a> Iterator for RawSnapshots<'a> {
    type Item = (SnapshotHead, &'a [u8]);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let (head, rest) = self.0.split_first_chunk::<SNAPSHOT_HEAD_LENGTH>()?;
        let head = SnapshotHead::read(*head);
        let (raw, rest) = rest.split_at_checked(head.length as usize)?;
        self.0 = rest;
        Some((head, raw))
    }
}

/// Iterates over snapshots; ends at the first that is malformed.
#[derive(Clone, Debug)]
pub struct Snapshots<'a> {
    single: Option<SingleSnapshot<'a>>,
    raw: RawSnapshots<'a>,
    /// Encoded snapshots of another record, which come last.
    more: &'a [u8],
}

impl<'a> Snapshots<'a> {
    pub(crate) fn new(single: Option<SingleSnapshot<'a>>, bytes: &'a [u8], more: &'a [u8]) -> Self {
        Self {
            single,
            raw: RawSnapshots(bytes),
            more,
        }
    }

    pub(crate) fn of(bytes: &'a [u8]) -> Self {
        Self::new(None, bytes, &[])
    }
}

impl<'a> Iterator for Snapshots<'a> {
    type Item = Snapshot<'a>;

    #[inline]
    fn next(&mut self) -> Option<Snapshot<'a>> {
        if let Some(single) = self.single.take() {
            return Some(Snapshot {
                parameter: single.parameter,
                field: single.field,
                flags: 0,
                bytes: single.bytes.map_or(Bytes::Unreadable, Bytes::Inline),
            });
        }
        if !self.more.is_empty() && !self.raw.is_cut() {
            self.raw = RawSnapshots(core::mem::take(&mut self.more));
        }
        let mut raw = self.raw.clone();
        let (head, bytes) = raw.next()?;
        let bytes = Bytes::decode(head.flags, bytes)?;
        self.raw = raw;
        Some(Snapshot {
            parameter: head.parameter,
            field: head.field,
            flags: head.flags,
            bytes,
        })
    }
}
