//! A call as a reader sees it: a view of the record bytes, decoded on demand.

use std::borrow::Cow;

use crate::codec;
use crate::file_range::FileRange;
use crate::layout::{
    BlobRef, HostChangedNote, HostSkippedNote, LayoutNote, OriginNote, ReadbackNote,
    SNAPSHOT_HEAD_LENGTH, SnapshotHead, ThreadNote, field, note_kind, short_enter, snapshot_flag,
};
use crate::signature::{Signature, ValueType};

/// One driver call: its enter part, and its leave part unless it was in flight when the recording ended.
#[derive(Clone, Debug)]
pub struct Call<'a> {
    /// Position in the order of enter over all threads, from 0: the number in every message.
    pub index: u64,
    /// Ordinal of the thread, from 0.
    pub thread: u32,
    /// Number in its thread, from 0; with `thread` the name by which other records refer to it.
    pub number: u64,
    /// The function.
    pub signature: &'a Signature,
    /// Clock ticks when it was entered.
    pub ticks: u64,
    /// The address in the program that it returns to.
    pub caller: u64,
    pub(crate) arguments: Arguments<'a>,
    pub(crate) snapshots: &'a [u8],
    /// Snapshots from a note behind the `ENTER`.
    pub(crate) more_snapshots: &'a [u8],
    /// The one that is a record of its own.
    pub(crate) own_snapshot: Option<OwnSnapshot<'a>>,
    pub(crate) notes: Vec<(u16, &'a [u8])>,
    /// What came back; `None` for a call in flight.
    pub leave: Option<Leave<'a>>,
}

/// Arguments as they stand in a record.
#[derive(Clone, Debug)]
pub(crate) enum Arguments<'a> {
    /// One behind the other, each as wide as its signature says.
    Packed(&'a [u8]),
    /// Each in as few bytes as it needs.
    Short(short_enter::NumberReader<'a>),
    /// Those of a record of the latter kind, as [`Call::argument`] gives them.
    Read(&'a [u64]),
}

/// The end of a call.
#[derive(Clone, Copy, Debug)]
pub struct Leave<'a> {
    /// Clock ticks when the driver had returned.
    pub ticks: u64,
    /// What it returned (for nearly all functions a `CUresult`).
    pub result: i32,
    /// The one that is in the record's head.
    pub(crate) own_snapshot: Option<OwnSnapshot<'a>>,
    pub(crate) snapshots: &'a [u8],
}

/// A snapshot that has no head among other bytes: its flags are 0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnSnapshot<'a> {
    pub(crate) parameter: u8,
    pub(crate) field: u8,
    /// `None` if the record is too short for them.
    pub(crate) bytes: Option<&'a [u8]>,
}

/// What was seen behind a pointer.
#[derive(Clone, Copy, Debug)]
pub struct Snapshot<'a> {
    /// Position of the parameter.
    pub parameter: u8,
    /// Which piece: a number of [`field`].
    pub field: u8,
    /// [`snapshot_flag`].
    pub flags: u16,
    /// What was kept.
    pub bytes: Bytes<'a>,
}

/// Bytes behind a pointer, or why they are not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bytes<'a> {
    /// Here they are.
    Inline(&'a [u8]),
    /// In a blob of the trace.
    Blob(BlobRef),
    /// In a file that was mapped; `pack` brings them into the trace.
    InFile(FileRange<'a>),
    /// Left out by the payload policy; how many there were.
    Omitted(u64),
    /// Left out by the payload policy; how many there were, and the first 16 bytes of their blake3 hash.
    Hashed(u64, [u8; 16]),
    /// The memory could not be read.
    Unreadable,
}

impl<'a> Bytes<'a> {
    /// The bytes if they stand in the record itself.
    pub fn inline(self) -> Option<&'a [u8]> {
        match self {
            Bytes::Inline(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// How many bytes the program's memory held, if that is known.
    pub fn length(self) -> Option<u64> {
        match self {
            Bytes::Inline(bytes) => Some(bytes.len() as u64),
            Bytes::Blob(blob) => Some(blob.length),
            Bytes::InFile(range) => Some(range.length),
            Bytes::Omitted(length) | Bytes::Hashed(length, _) => Some(length),
            Bytes::Unreadable => None,
        }
    }
}

/// Something that was noted while a call was in progress.
#[derive(Clone, Debug)]
pub enum Note<'a> {
    /// Who the calling thread is.
    Thread(ThreadNote),
    /// How a kernel takes its parameters: handle, `(offset, size)` of each.
    Layout(u64, Vec<(u32, u32)>),
    /// Where a function comes from that no recorded call gave, and its name.
    Origin(OriginNote, String),
    /// Bytes that an earlier copy brought were there when this call had returned.
    Readback(ReadbackNote, Snapshot<'a>),
    /// What host memory held that the device can read.
    HostChanged(HostChangedNote, Snapshot<'a>),
    /// Host memory that the device can read and whose changes are not recorded.
    HostSkipped(HostSkippedNote),
    /// Recording stopped here; why.
    Stopped(String),
    /// The program asked for a function that the signature table does not have.
    UnknownSymbol(String),
    /// Snapshots that belong to the call's enter part; [`Call::snapshots`] gives them too.
    Snapshots(Snapshots<'a>),
    /// A note of a later version: kind and bytes.
    Other(u16, &'a [u8]),
}

/// Iterates over snapshots; ends at the first that is malformed.
#[derive(Clone, Debug)]
pub struct Snapshots<'a> {
    /// Comes before the others.
    own: Option<OwnSnapshot<'a>>,
    bytes: &'a [u8],
    /// What follows when `bytes` are through.
    more: &'a [u8],
}

impl<'a> Snapshots<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self {
            own: None,
            bytes,
            more: &[],
        }
    }

    /// What has not been read: padding, or the first malformed snapshot.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.bytes
    }
}

impl<'a> Iterator for Snapshots<'a> {
    type Item = Snapshot<'a>;

    fn next(&mut self) -> Option<Snapshot<'a>> {
        if let Some(own) = self.own.take() {
            return Some(Snapshot {
                parameter: own.parameter,
                field: own.field,
                flags: 0,
                bytes: own.bytes.map_or(Bytes::Unreadable, Bytes::Inline),
            });
        }
        if self.bytes.len() < SNAPSHOT_HEAD_LENGTH && !self.more.is_empty() {
            self.bytes = core::mem::take(&mut self.more);
        }
        // Less than a head is padding.
        let (head, rest) = self.bytes.split_first_chunk::<SNAPSHOT_HEAD_LENGTH>()?;
        let head = SnapshotHead::read(*head);
        let (raw, behind) = rest.split_at_checked(head.length as usize)?;
        let bytes = if head.flags & snapshot_flag::UNREADABLE != 0 {
            Bytes::Unreadable
        } else if head.flags & snapshot_flag::BLOB != 0 {
            Bytes::Blob(codec::decode(raw)?.0)
        } else if head.flags & snapshot_flag::IN_FILE != 0 {
            Bytes::InFile(FileRange::decode(raw)?)
        } else if head.flags & snapshot_flag::OMITTED != 0 {
            Bytes::Omitted(codec::decode(raw)?.0)
        } else if head.flags & snapshot_flag::HASHED != 0 {
            let ((length, hash), _) = codec::decode(raw)?;
            Bytes::Hashed(length, hash)
        } else {
            Bytes::Inline(raw)
        };
        self.bytes = behind;
        Some(Snapshot {
            parameter: head.parameter,
            field: head.field,
            flags: head.flags,
            bytes,
        })
    }
}

impl<'a> Call<'a> {
    /// The argument at a position, zero-extended, or sign-extended where the C type is signed; 0 for a position that
    /// does not exist and for structs by value.
    #[inline]
    pub fn argument(&self, position: usize) -> u64 {
        match &self.arguments {
            Arguments::Read(words) => words.get(position).copied().unwrap_or(0),
            _ => self.argument_in_record(position),
        }
    }

    #[inline(never)]
    fn argument_in_record(&self, position: usize) -> u64 {
        let Some(parameter) = self.signature.parameters.get(position) else {
            return 0;
        };
        let value = match &self.arguments {
            Arguments::Read(words) => return words.get(position).copied().unwrap_or(0),
            Arguments::Short(numbers) => numbers.at(position).unwrap_or(0),
            Arguments::Packed(bytes) => {
                let width = parameter.value_type.bytes();
                let Some(bytes) = bytes.get(parameter.offset..parameter.offset + width) else {
                    return 0;
                };
                // Nearly all are of these two lengths, for which no loop is needed.
                match (bytes.first_chunk::<8>(), bytes.first_chunk::<4>()) {
                    (Some(word), _) if width == 8 => return u64::from_le_bytes(*word),
                    (_, Some(word)) if width == 4 => u64::from(u32::from_le_bytes(*word)),
                    _ if width > 8 => return 0,
                    _ => {
                        let mut word = [0; 8];
                        word[..width].copy_from_slice(bytes);
                        u64::from_le_bytes(word)
                    }
                }
            }
        };
        sign_extended(parameter.value_type, value)
    }

    /// The first arguments, each as [`Call::argument`] gives it, in one pass over the record.
    pub fn arguments(&self, into: &mut [u64]) {
        let Arguments::Short(numbers) = &self.arguments else {
            for (position, place) in into.iter_mut().enumerate() {
                *place = self.argument(position);
            }
            return;
        };
        into.fill(0);
        let parameters = self.signature.parameters.iter();
        for ((place, parameter), number) in into.iter_mut().zip(parameters).zip(numbers.clone()) {
            *place = sign_extended(parameter.value_type, number);
        }
    }

    /// The bytes of an argument, as many as its type has.
    pub fn argument_bytes(&self, position: usize) -> Cow<'a, [u8]> {
        let Some(parameter) = self.signature.parameters.get(position) else {
            return Cow::Borrowed(&[]);
        };
        let width = parameter.value_type.bytes();
        match &self.arguments {
            Arguments::Packed(bytes) => Cow::Borrowed(
                bytes
                    .get(parameter.offset..parameter.offset + width)
                    .unwrap_or(&[]),
            ),
            Arguments::Short(_) | Arguments::Read(_) => {
                let number = self.argument(position).to_le_bytes();
                Cow::Owned(number.get(..width).unwrap_or(&number).to_vec())
            }
        }
    }

    /// The arguments one behind the other, each as wide as its type; of a function that the signature table lacks, what the
    /// record holds.
    pub fn packed_arguments(&self) -> Cow<'a, [u8]> {
        match &self.arguments {
            Arguments::Packed(bytes) => Cow::Borrowed(bytes),
            Arguments::Short(numbers) if self.signature.parameters.is_empty() => {
                Cow::Borrowed(numbers.rest())
            }
            Arguments::Short(_) | Arguments::Read(_) => {
                let positions = 0..self.signature.parameters.len();
                positions
                    .flat_map(|position| self.argument_bytes(position).into_owned())
                    .collect()
            }
        }
    }

    /// The argument of that parameter name.
    pub fn argument_named(&self, name: &str) -> Option<u64> {
        self.signature
            .parameter(name)
            .map(|position| self.argument(position))
    }

    /// What was seen behind pointers before the call.
    pub fn snapshots(&self) -> Snapshots<'a> {
        Snapshots {
            own: self.own_snapshot,
            bytes: self.snapshots,
            more: self.more_snapshots,
        }
    }

    /// A snapshot from before the call.
    pub fn snapshot(&self, position: usize, field: u8) -> Option<Snapshot<'a>> {
        self.snapshots()
            .find(|snapshot| usize::from(snapshot.parameter) == position && snapshot.field == field)
    }

    /// The string that a parameter pointed at before the call (lossy where it is not UTF-8).
    pub fn string(&self, position: usize) -> Option<String> {
        text(self.snapshot(position, field::POINTEE)?.bytes.inline()?)
    }

    /// The result, if the call returned.
    pub fn result(&self) -> Option<i32> {
        self.leave.map(|leave| leave.result)
    }

    /// True if it returned 0 (`CUDA_SUCCESS`).
    pub fn succeeded(&self) -> bool {
        self.result() == Some(0)
    }

    /// The number that stood behind an out pointer after the call; `None` if nothing was captured there.
    pub fn out(&self, position: usize) -> Option<u64> {
        number(
            self.leave?
                .snapshot(position, field::POINTEE)?
                .bytes
                .inline()?,
        )
    }

    /// The bytes that stood behind an out pointer after the call, if they stand in the record.
    pub fn out_bytes(&self, position: usize) -> Option<&'a [u8]> {
        self.leave?
            .snapshot(position, field::POINTEE)?
            .bytes
            .inline()
    }

    /// The string behind an out pointer after the call.
    pub fn out_string(&self, position: usize) -> Option<String> {
        text(self.out_bytes(position)?)
    }

    /// Whether anything was noted while the call was in progress.
    #[inline]
    pub fn has_notes(&self) -> bool {
        !self.notes.is_empty()
    }

    /// What was noted while the call was in progress.
    pub fn notes(&self) -> impl Iterator<Item = Note<'a>> + '_ {
        self.notes
            .iter()
            .map(|&(kind, bytes)| Note::read(kind, bytes))
    }
}

/// An argument as wide as its type, as a word.
#[inline]
pub(crate) fn sign_extended(value_type: ValueType, value: u64) -> u64 {
    match value_type {
        ValueType::Signed(n) if n < 8 => {
            let shift = 64 - 8 * u32::from(n);
            (((value << shift) as i64) >> shift) as u64
        }
        _ => value,
    }
}

impl<'a> Leave<'a> {
    /// What was seen behind pointers after the call.
    pub fn snapshots(&self) -> Snapshots<'a> {
        Snapshots {
            own: self.own_snapshot,
            bytes: self.snapshots,
            more: &[],
        }
    }

    /// A snapshot from after the call.
    pub fn snapshot(&self, position: usize, field: u8) -> Option<Snapshot<'a>> {
        self.snapshots()
            .find(|snapshot| usize::from(snapshot.parameter) == position && snapshot.field == field)
    }
}

impl<'a> Note<'a> {
    pub(crate) fn read(kind: u16, bytes: &'a [u8]) -> Self {
        Self::try_decode(kind, bytes).unwrap_or(Note::Other(kind, bytes))
    }

    fn try_decode(kind: u16, bytes: &'a [u8]) -> Option<Self> {
        Some(match kind {
            note_kind::THREAD => Note::Thread(codec::decode(bytes)?.0),
            note_kind::LAYOUT => {
                let (head, used) = codec::decode::<LayoutNote>(bytes)?;
                let pairs = bytes.get(used..)?.chunks_exact(8).take(head.count as usize);
                let pairs: Vec<_> = pairs
                    .map(|pair| Some(codec::decode(pair)?.0))
                    .collect::<Option<_>>()?;
                if pairs.len() != head.count as usize {
                    return None;
                }
                Note::Layout(head.handle, pairs)
            }
            note_kind::READBACK => {
                let (head, used) = codec::decode::<ReadbackNote>(bytes)?;
                Note::Readback(head, Snapshots::new(bytes.get(used..)?).next()?)
            }
            note_kind::ORIGIN => {
                let (head, used) = codec::decode(bytes)?;
                Note::Origin(head, text(bytes.get(used..)?)?)
            }
            note_kind::HOST_CHANGED => {
                let (head, used) = codec::decode::<HostChangedNote>(bytes)?;
                Note::HostChanged(head, Snapshots::new(bytes.get(used..)?).next()?)
            }
            note_kind::HOST_SKIPPED => Note::HostSkipped(codec::decode(bytes)?.0),
            note_kind::STOPPED => Note::Stopped(text(bytes)?),
            note_kind::SNAPSHOTS => Note::Snapshots(Snapshots::new(bytes)),
            note_kind::UNKNOWN_SYMBOL => Note::UnknownSymbol(text(bytes)?),
            _ => return None,
        })
    }
}

/// Up to eight bytes as a little-endian number.
fn number(bytes: &[u8]) -> Option<u64> {
    if bytes.is_empty() || bytes.len() > 8 {
        return None;
    }
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    Some(u64::from_le_bytes(word))
}

/// Bytes up to the first NUL as text.
fn text(bytes: &[u8]) -> Option<String> {
    let end = bytes
        .iter()
        .position(|&byte| byte == 0)
        .unwrap_or(bytes.len());
    Some(String::from_utf8_lossy(&bytes[..end]).into_owned())
}
