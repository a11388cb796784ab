//! Walking over the records of a chunk: where they end, whether they are well-formed, which blobs they name.

use std::sync::atomic::{Ordering, fence};

use crate::call::{Note, Snapshots};
use crate::codec;
use crate::layout::{
    BUFFER_NOTE_LENGTH, BufferNote, ENTER_HEAD_LENGTH, EnterHead, LEAVE_HEAD_LENGTH,
    LEAVE_VALUE_LENGTH, LeaveHead, RECORD_HEAD_LENGTH, RecordHead, note_kind, record_kind,
    short_enter,
};
use crate::signature::Signatures;
use crate::trace::Trace;

/// The record at an offset of a chunk's body: its head and its bytes, head included. `None` at the end of the records.
#[inline]
pub(crate) fn record_at(body: &[u8], offset: usize) -> Option<(RecordHead, &[u8])> {
    let rest = body.get(offset..)?;
    let word = rest.first_chunk::<RECORD_HEAD_LENGTH>()?;
    // SAFETY: `word` is readable memory of 8 bytes, and `[u8; 8]` needs no alignment. Volatile, because the process being
    // recorded may store this word (in one instruction, it is aligned there) while its trace is followed.
    let word = u64::from_le_bytes(unsafe { std::ptr::read_volatile(word) });
    // Pairs with the Release store in `Record::commit`: what the head covers is not read before the head.
    fence(Ordering::Acquire);
    let head = RecordHead::from_word(word);
    let length = head.length as usize;
    if length < RECORD_HEAD_LENGTH || !length.is_multiple_of(8) {
        return None;
    }
    Some((head, rest.get(..length)?))
}

/// What a stage holds, as its first record says; `None` for one that is empty.
pub(crate) fn staged(body: &[u8]) -> Option<BufferNote> {
    let (head, record) = record_at(body, 0)?;
    let is_note = head.kind == record_kind::NOTE && head.function == note_kind::BUFFER;
    let bytes = record.get(RECORD_HEAD_LENGTH..)?;
    (is_note && record.len() >= BUFFER_NOTE_LENGTH)
        .then(|| codec::decode(bytes))?
        .map(|(note, _)| note)
}

/// Where the records begin in the body of a stage that is not empty.
pub(crate) fn staged_start(body: &[u8]) -> usize {
    record_at(body, 0).map_or(body.len(), |(_, record)| record.len())
}

/// Iterates over the records of a chunk's body: offset, head, bytes behind the head.
pub(crate) fn records(body: &[u8]) -> impl Iterator<Item = (usize, RecordHead, &[u8])> {
    let mut offset = 0;
    std::iter::from_fn(move || {
        let at = offset;
        let (head, record) = record_at(body, at)?;
        offset += record.len();
        Some((at, head, record.get(RECORD_HEAD_LENGTH..)?))
    })
}

/// Where the records of a body end.
pub(crate) fn records_end(body: &[u8]) -> usize {
    records(body)
        .last()
        .map_or(0, |(at, head, _)| at + head.length as usize)
}

/// Where the first record begins that no recorder of this version writes; the end of the records if there is none.
/// Used for bodies whose checksum is wrong, where a wrong length would make the rest nonsense.
pub(crate) fn sound_end(body: &[u8], signatures: &Signatures) -> usize {
    records(body)
        .find(|(_, head, record)| !is_sound(*head, record, signatures))
        .map_or_else(|| records_end(body), |(at, ..)| at)
}

fn is_sound(head: RecordHead, record: &[u8], signatures: &Signatures) -> bool {
    match head.kind {
        record_kind::ENTER => {
            let Some(signature) = signatures.function(head.function) else {
                return false;
            };
            codec::decode::<EnterHead>(record).is_some()
                && record
                    .get(ENTER_HEAD_LENGTH + signature.arguments_length..)
                    .is_some_and(snapshots_end_well)
        }
        record_kind::LEAVE => {
            codec::decode::<LeaveHead>(record).is_some()
                && record
                    .get(LEAVE_HEAD_LENGTH..)
                    .is_some_and(snapshots_end_well)
        }
        record_kind::ENTER_SHORT => signatures
            .function(head.function)
            .and_then(|signature| behind_short_enter(record, signature.parameters.len()))
            .is_some_and(snapshots_end_well),
        record_kind::LEAVE_SHORT => record.is_empty(),
        record_kind::LEAVE_VALUE => record.len() == LEAVE_VALUE_LENGTH - RECORD_HEAD_LENGTH,
        record_kind::SNAPSHOT => {
            head.snapshot_padding() < 8
                && record
                    .len()
                    .checked_sub(head.snapshot_padding())
                    .and_then(|end| record.get(end..))
                    .is_some_and(|padding| padding.iter().all(|&byte| byte == 0))
        }
        record_kind::NOTE if head.function == note_kind::SNAPSHOTS => snapshots_end_well(record),
        record_kind::NOTE => !matches!(Note::read(head.function, record), Note::Other(..)),
        _ => false,
    }
}

/// What follows the numbers of an `ENTER_SHORT`; `None` if it ends too early.
pub(crate) fn behind_short_enter(record: &[u8], parameters: usize) -> Option<&[u8]> {
    let mut numbers = short_enter::NumberReader::new(record, parameters)?;
    numbers.pass(parameters + 2)?;
    Some(numbers.rest())
}

/// True if nothing but padding (fewer than 8 zero bytes) is behind the snapshots.
fn snapshots_end_well(bytes: &[u8]) -> bool {
    let mut snapshots = Snapshots::new(bytes);
    while snapshots.next().is_some() {}
    snapshots.rest().len() < 8 && snapshots.rest().iter().all(|&byte| byte == 0)
}

/// How much room a trace's records take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordSizes {
    /// Chunks that hold calls.
    pub chunks: u64,
    /// Bytes of records in them, not compressed.
    pub bytes: u64,
}

impl Trace {
    /// How much room the records of all threads take. Walks over all of them.
    pub fn record_sizes(&self) -> RecordSizes {
        let mut sizes = RecordSizes::default();
        self.each_contents(self.calls_chunks(), |_, outcome| {
            if let Ok((contents, _)) = outcome {
                sizes.chunks += 1;
                sizes.bytes += contents.end as u64;
            }
        });
        sizes
    }
}
