//! Notes as a reader sees them.

use crate::codec::{self, Decode};
use crate::layout::{
    BreadcrumbNote, DescriptorNote, DigestNote, DigestSetupNote, DigestSkippedNote, DigestVoidNote,
    DriverMessageNote, ExchangeNote, ExchangeOutputNote, GapNote, HostChangedNote,
    HostFunctionNote, HostSkippedNote, LayoutNote, LookedNote, MemoryNote, MemorySnapshotNote,
    NestedCallNote, OriginNote, ReadbackNote, SharedMappingNote, SourceChangedNote, ThreadNote,
    ZeroedNote, note_kind,
};
use crate::read::snapshot::{Snapshot, Snapshots};

/// What was noted while a call was in progress.
#[derive(Clone, Debug)]
pub enum Note<'a> {
    /// Number and name of the calling thread.
    Thread(ThreadNote),
    /// How a kernel takes its parameters: handle, `(offset, size)` of each.
    Layout(u64, Vec<(u32, u32)>),
    /// Origin and name of a function that no recorded call returned.
    Origin(OriginNote, String),
    /// Bytes of an earlier asynchronous copy, proved complete by this call.
    Readback(ReadbackNote, Snapshot<'a>),
    /// The CPU has changed what an earlier copy reads, which this call proves complete.
    SourceChanged(SourceChangedNote),
    /// The file descriptor that the call exports or imports.
    Descriptor(DescriptorNote),
    /// Host memory that the call registers and that other processes can map; the file's name.
    SharedMapping(SharedMappingNote, String),
    /// The call reaches memory that the process shares with others.
    Exchange(ExchangeNote),
    /// Bytes that an exchange has changed.
    ExchangeOutput(ExchangeOutputNote, Snapshot<'a>),
    /// Content of host memory that the device can read.
    HostChanged(HostChangedNote, Snapshot<'a>),
    /// What the program can have seen in host memory that work in flight, or that the call has waited
    /// for, may have written.
    HostSeen(HostChangedNote, Snapshot<'a>),
    /// The driver has called a function of the program that an earlier call has enqueued.
    HostFunction(HostFunctionNote),
    /// When that, and bytes of earlier copies, had been read after the call had returned, if anything had
    /// changed or not.
    Looked(LookedNote),
    /// When the content had been read that is from before the call.
    LookedBefore(LookedNote),
    /// The program has made another call while the driver was at work on this one.
    NestedCall(NestedCallNote),
    /// Calls are missing before this one.
    Gap(GapNote),
    /// The recorder has read all device memory before the call, or should have.
    MemorySnapshot(MemorySnapshotNote),
    /// A stream writes a word that shows how far it is, or the word was read.
    Breadcrumb(BreadcrumbNote),
    /// Host memory that the device can read and whose changes are not recorded.
    HostSkipped(HostSkippedNote),
    /// Why recording stopped here.
    Stopped(String),
    /// The address ranges (first, behind the last) that the process had mapped before the call.
    AddressSpace(Vec<(u64, u64)>),
    /// Memory that the recorder has set to zeros.
    Zeroed(ZeroedNote),
    /// The recorder has prepared a context for digests.
    DigestSetup(DigestSetupNote),
    /// The recorder has enqueued digests of these ranges: address, length.
    Digest(DigestNote, Vec<(u64, u64)>),
    /// Number and value of digests that are complete.
    DigestValues(Vec<(u64, u64)>),
    /// A digest was due and was not taken.
    DigestSkipped(DigestSkippedNote),
    /// Digests that do not count.
    DigestVoid(DigestVoidNote),
    /// What the driver's error log said.
    DriverMessage(DriverMessageNote, String),
    /// What memory held before the call: the name of the variable, if it is one; the bytes, or none
    /// if all of it repeats one word.
    Memory(MemoryNote, String, Option<Snapshot<'a>>),
    /// The program asked for a function that the signature table lacks.
    UnknownSymbol(String),
    /// The id of the call's stack; [`crate::Trace::stack`] gives it.
    Stack(u64),
    /// Snapshots of the call's enter part; [`crate::Call::snapshots`] gives them too.
    Snapshots(Snapshots<'a>),
    /// A note of a later version: kind and bytes.
    Other(u16, &'a [u8]),
}

impl<'a> Note<'a> {
    pub(crate) fn read(kind: u16, bytes: &'a [u8]) -> Self {
        Self::decode(kind, bytes).unwrap_or(Note::Other(kind, bytes))
    }

    fn decode(kind: u16, bytes: &'a [u8]) -> Option<Self> {
        Some(match kind {
            note_kind::THREAD => Note::Thread(head(bytes)?.0),
            note_kind::LAYOUT => {
                let (head, rest) = head::<LayoutNote>(bytes)?;
                let pairs = rest.chunks_exact(8).take(head.count as usize);
                let pairs: Vec<_> = pairs
                    .map(|pair| Some(codec::decode(pair)?.0))
                    .collect::<Option<_>>()?;
                if pairs.len() != head.count as usize {
                    return None;
                }
                Note::Layout(head.handle, pairs)
            }
            note_kind::READBACK => {
                let (head, rest) = head(bytes)?;
                Note::Readback(head, Snapshots::of(rest).next()?)
            }
            note_kind::ORIGIN => {
                let (head, rest) = head(bytes)?;
                Note::Origin(head, text(rest))
            }
            note_kind::HOST_CHANGED => {
                let (head, rest) = head(bytes)?;
                Note::HostChanged(head, Snapshots::of(rest).next()?)
            }
            note_kind::HOST_SEEN => {
                let (head, rest) = head(bytes)?;
                Note::HostSeen(head, Snapshots::of(rest).next()?)
            }
            note_kind::LOOKED => Note::Looked(head(bytes)?.0),
            note_kind::LOOKED_BEFORE => Note::LookedBefore(head(bytes)?.0),
            note_kind::HOST_FUNCTION => Note::HostFunction(head(bytes)?.0),
            note_kind::NESTED_CALL => Note::NestedCall(head(bytes)?.0),
            note_kind::GAP => Note::Gap(head(bytes)?.0),
            note_kind::BREADCRUMB => Note::Breadcrumb(head(bytes)?.0),
            note_kind::MEMORY_SNAPSHOT => Note::MemorySnapshot(head(bytes)?.0),
            note_kind::HOST_SKIPPED => Note::HostSkipped(head(bytes)?.0),
            note_kind::ADDRESS_SPACE => Note::AddressSpace(pairs(bytes)?),
            note_kind::ZEROED => Note::Zeroed(head(bytes)?.0),
            note_kind::DIGEST_SETUP => Note::DigestSetup(head(bytes)?.0),
            note_kind::DIGEST => {
                let (head, rest) = head(bytes)?;
                Note::Digest(head, pairs(rest)?)
            }
            note_kind::STACK => Note::Stack(u64::from_le_bytes(*bytes.first_chunk()?)),
            note_kind::DIGEST_VALUES => Note::DigestValues(pairs(bytes)?),
            note_kind::DIGEST_SKIPPED => Note::DigestSkipped(head(bytes)?.0),
            note_kind::DIGEST_VOID => Note::DigestVoid(head(bytes)?.0),
            note_kind::SOURCE_CHANGED => Note::SourceChanged(head(bytes)?.0),
            note_kind::DESCRIPTOR => Note::Descriptor(head(bytes)?.0),
            note_kind::SHARED_MAPPING => {
                let (head, rest) = head(bytes)?;
                Note::SharedMapping(head, text(rest))
            }
            note_kind::EXCHANGE => Note::Exchange(head(bytes)?.0),
            note_kind::EXCHANGE_OUTPUT => {
                let (head, rest) = head(bytes)?;
                Note::ExchangeOutput(head, Snapshots::of(rest).next()?)
            }
            note_kind::DRIVER_MESSAGE => {
                let (head, rest) = head(bytes)?;
                Note::DriverMessage(head, text(rest))
            }
            note_kind::MEMORY => {
                let (note, name, rest) = memory(bytes)?;
                let name = String::from_utf8_lossy(name).into_owned();
                Note::Memory(note, name, Snapshots::of(rest).next())
            }
            note_kind::STOPPED => Note::Stopped(text(bytes)),
            note_kind::UNKNOWN_SYMBOL => Note::UnknownSymbol(text(bytes)),
            note_kind::SNAPSHOTS => Note::Snapshots(Snapshots::of(bytes)),
            _ => return None,
        })
    }
}

/// Pairs of numbers, without the padding behind them.
fn pairs(bytes: &[u8]) -> Option<Vec<(u64, u64)>> {
    let pairs = bytes.chunks_exact(16);
    pairs.map(|pair| Some(codec::decode(pair)?.0)).collect()
}

fn head<T: Decode<()>>(bytes: &[u8]) -> Option<(T, &[u8])> {
    let (head, used) = codec::decode(bytes)?;
    Some((head, bytes.get(used..)?))
}

/// A note of memory, its name, and its encoded snapshots.
fn memory(bytes: &[u8]) -> Option<(MemoryNote, &[u8], &[u8])> {
    let (note, rest) = head::<MemoryNote>(bytes)?;
    let (name, rest) = rest.split_at_checked(usize::from(note.name_length))?;
    Some((note, name, rest))
}

/// The encoded snapshots of a note; `None` if it has none.
pub(crate) fn snapshots_of(kind: u16, bytes: &[u8]) -> Option<&[u8]> {
    match kind {
        note_kind::SNAPSHOTS => Some(bytes),
        note_kind::READBACK => Some(head::<ReadbackNote>(bytes)?.1),
        note_kind::HOST_CHANGED | note_kind::HOST_SEEN => Some(head::<HostChangedNote>(bytes)?.1),
        note_kind::EXCHANGE_OUTPUT => Some(head::<ExchangeOutputNote>(bytes)?.1),
        note_kind::MEMORY => Some(memory(bytes)?.2),
        _ => None,
    }
}

/// Bytes up to the first NUL as text; lossy where they are not UTF-8.
pub(crate) fn text(bytes: &[u8]) -> String {
    let bytes = bytes.split(|&byte| byte == 0).next().unwrap_or(bytes);
    String::from_utf8_lossy(bytes).into_owned()
}
