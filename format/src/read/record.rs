//! Records of a chunk: where they begin and end, and what each adds to a call.

use std::sync::atomic::{Ordering, fence};

use crate::codec;
use crate::layout::{
    BUFFER_NOTE_LENGTH, BufferNote, ENTER_HEAD_LENGTH, EnterHead, LEAVE_HEAD_LENGTH,
    LEAVE_VALUE_LENGTH, LeaveHead, RECORD_HEAD_LENGTH, RecordHead, field, note_kind, record_kind,
    short_enter,
};
use crate::read::call::{Arguments, Leave};
use crate::read::note::{Note, snapshots_of};
use crate::read::signature::{Signature, Signatures};
use crate::read::snapshot::{Bytes, RawSnapshots, SingleSnapshot};

/// The record at an offset of a chunk's body: its head, and its bytes with the head. `None` at the
/// end of the records.
#[inline]
pub(crate) fn record_at(body: &[u8], offset: usize) -> Option<(RecordHead, &[u8])> {
    let rest = body.get(offset..)?;
    let word = rest.first_chunk::<RECORD_HEAD_LENGTH>()?;
    // SAFETY: `word` is readable memory of 8 bytes, and `[u8; 8]` needs no alignment. Volatile,
    // because the recorded process may store this word (in one instruction, it is aligned there)
    // while its trace is followed.
    let word = u64::from_le_bytes(unsafe { std::ptr::read_volatile(word) });
    // Pairs with the Release store in `Record::commit`: what the head covers is not read earlier.
    fence(Ordering::Acquire);
    let head = RecordHead::from_word(word);
    let length = head.length as usize;
    if length < RECORD_HEAD_LENGTH || !length.is_multiple_of(8) {
        return None;
    }
    Some((head, rest.get(..length)?))
}

/// The records of a chunk's body: offset, head, bytes behind the head.
pub(crate) fn records(body: &[u8]) -> impl Iterator<Item = (usize, RecordHead, &[u8])> {
    let mut offset = 0;
    std::iter::from_fn(move || {
        let at = offset;
        let (head, record) = record_at(body, at)?;
        offset += record.len();
        Some((at, head, record.get(RECORD_HEAD_LENGTH..)?))
    })
}

/// The chunk that a thread buffer holds, and its records; `None` for an empty buffer.
pub(crate) fn buffer_content(body: &[u8]) -> Option<(BufferNote, &[u8])> {
    let (head, record) = record_at(body, 0)?;
    let is_note = head.kind == record_kind::NOTE && head.function == note_kind::BUFFER;
    if !is_note || record.len() < BUFFER_NOTE_LENGTH {
        return None;
    }
    let (note, _) = codec::decode(record.get(RECORD_HEAD_LENGTH..)?)?;
    Some((note, body.get(record.len()..)?))
}

/// What an `ENTER` or `ENTER_SHORT` holds.
pub(crate) struct Enter<'r> {
    pub(crate) head: EnterHead,
    pub(crate) arguments: Arguments<'r>,
    pub(crate) snapshots: &'r [u8],
}

impl<'r> Enter<'r> {
    /// Reads the record of a call of that function (`None`: not in the signature table), in a trace
    /// that begins at that time.
    #[inline(always)]
    pub(crate) fn read(
        function: Option<&Signature>,
        start_ticks: u64,
        head: RecordHead,
        record: &'r [u8],
    ) -> Option<Self> {
        if head.kind == record_kind::ENTER {
            let rest = record.get(ENTER_HEAD_LENGTH..)?;
            // An unknown function's arguments and snapshots cannot be told apart.
            let (arguments, snapshots) = function
                .and_then(|function| rest.split_at_checked(function.arguments_length))
                .unwrap_or((rest, &[]));
            return Some(Self {
                head: EnterHead::read(record)?,
                arguments: Arguments::Packed(arguments),
                snapshots,
            });
        }
        let parameters = function.map_or(0, |function| function.parameters.len());
        let mut numbers = short_enter::NumberReader::new(record, parameters)?;
        let head = EnterHead {
            ticks: start_ticks.wrapping_add(numbers.next()?),
            caller: numbers.next()?,
        };
        let arguments = numbers.clone();
        numbers.pass(parameters)?;
        Some(Self {
            head,
            arguments: Arguments::Short(arguments),
            snapshots: function.map_or(&[], |_| numbers.rest()),
        })
    }
}

/// What is made of the records behind a call's enter part.
pub(crate) trait CallParts<'r> {
    /// The call is over: it returned, or its LEAVE is lost.
    fn leave(&mut self, leave: Option<Leave<'r>>);
    fn single_snapshot(&mut self, snapshot: SingleSnapshot<'r>);
    /// A note `SNAPSHOTS`.
    fn more_snapshots(&mut self, encoded: &'r [u8]);
    fn note(&mut self, kind: u16, bytes: &'r [u8]);
}

/// Adds a record that follows the enter part of a call of that function; true if it ends the call.
/// Inlined, each kind of record costs no more than what its call's parts make of it.
#[inline(always)]
pub(crate) fn add_record<'r>(
    head: RecordHead,
    record: &'r [u8],
    function: u16,
    entered_ticks: u64,
    call: &mut impl CallParts<'r>,
) -> bool {
    let leave = |ticks, single_snapshot| Leave {
        ticks: entered_ticks.wrapping_add(ticks),
        result: 0,
        single_snapshot,
        snapshots: &[],
    };
    match head.kind {
        record_kind::LEAVE_SHORT => call.leave(Some(leave(head.short_ticks(), None))),
        record_kind::LEAVE_VALUE => {
            let value = SingleSnapshot {
                parameter: head.value_parameter(),
                field: field::POINTEE,
                bytes: record.get(..head.value_bytes()),
            };
            call.leave(Some(leave(head.value_ticks(), Some(value))));
        }
        // One of another function belongs to a call whose ENTER is lost.
        record_kind::LEAVE if head.function != function => call.leave(None),
        record_kind::LEAVE => call.leave(LeaveHead::read(record).map(|leave| Leave {
            ticks: leave.ticks,
            result: leave.result,
            single_snapshot: None,
            snapshots: record.get(LEAVE_HEAD_LENGTH..).unwrap_or(&[]),
        })),
        record_kind::SNAPSHOT => {
            let length = record.len().saturating_sub(head.snapshot_padding());
            call.single_snapshot(SingleSnapshot {
                parameter: head.detail,
                field: head.snapshot_field(),
                bytes: record.get(..length),
            });
            return false;
        }
        record_kind::NOTE if head.function == note_kind::SNAPSHOTS => {
            call.more_snapshots(record);
            return false;
        }
        record_kind::NOTE => {
            call.note(head.function, record);
            return false;
        }
        // Of a later version.
        _ => return false,
    }
    true
}

/// Where the first record begins that no recorder of this version writes, or the records end. Used
/// for bodies with a wrong checksum, where a wrong length would make the rest nonsense.
pub(crate) fn sound_end(body: &[u8], signatures: &Signatures) -> usize {
    records(body)
        .take_while(|&(_, head, record)| is_sound(head, record, signatures))
        .last()
        .map_or(0, |(at, head, _)| at + head.length as usize)
}

fn is_sound(head: RecordHead, record: &[u8], signatures: &Signatures) -> bool {
    match head.kind {
        record_kind::LEAVE_SHORT => record.is_empty(),
        record_kind::LEAVE_VALUE => record.len() == LEAVE_VALUE_LENGTH - RECORD_HEAD_LENGTH,
        record_kind::SNAPSHOT => {
            let padding = head.snapshot_padding();
            let bytes = record.len().checked_sub(padding);
            let padding_is_zero = bytes
                .and_then(|bytes| record.get(bytes..))
                .is_some_and(|padding| padding.iter().all(|&byte| byte == 0));
            padding < 8 && padding_is_zero
        }
        record_kind::NOTE if head.function != note_kind::SNAPSHOTS => {
            !matches!(Note::read(head.function, record), Note::Other(..))
        }
        _ => encoded_snapshots(head, record, signatures).is_some_and(|bytes| {
            let mut snapshots = RawSnapshots::new(bytes);
            snapshots
                .by_ref()
                .all(|(head, raw)| Bytes::decode(head.flags, raw).is_some())
                && snapshots.is_at_end()
        }),
    }
}

/// The part of a record that is encoded snapshots; `None` if it has none or ends too early.
pub(crate) fn encoded_snapshots<'r>(
    head: RecordHead,
    record: &'r [u8],
    signatures: &Signatures,
) -> Option<&'r [u8]> {
    match head.kind {
        record_kind::ENTER => {
            let arguments = signatures.function(head.function)?.arguments_length;
            record.get(ENTER_HEAD_LENGTH + arguments..)
        }
        record_kind::ENTER_SHORT => {
            let parameters = signatures.function(head.function)?.parameters.len();
            let mut numbers = short_enter::NumberReader::new(record, parameters)?;
            numbers.pass(parameters + 2)?;
            Some(numbers.rest())
        }
        record_kind::LEAVE => record.get(LEAVE_HEAD_LENGTH..),
        record_kind::NOTE => snapshots_of(head.function, record),
        _ => None,
    }
}
