//! Records of a chunk: where they begin and end, and what each adds to a call.

use std::sync::atomic::{AtomicU64, Ordering};

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
    let head = RecordHead::from_word(head_word(rest.first_chunk()?));
    let length = head.length as usize;
    if length < RECORD_HEAD_LENGTH || !length.is_multiple_of(8) {
        return None;
    }
    Some((head, rest.get(..length)?))
}

/// The first word of a record. The recorded process may store it while its trace is followed; there
/// it is aligned.
#[inline]
fn head_word(bytes: &[u8; RECORD_HEAD_LENGTH]) -> u64 {
    let place = bytes.as_ptr().cast::<AtomicU64>();
    if !place.is_aligned() {
        return u64::from_le_bytes(*bytes);
    }
    // SAFETY: 8 readable bytes, aligned. A load changes nothing, so that a map that cannot be
    // written will do.
    let place = unsafe { &*place };
    // Pairs with the Release stores in `Record` and `Slot`: what the head covers is not read earlier.
    u64::from_le(place.load(Ordering::Acquire))
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

#[cfg(test)]
mod tests {
    use std::cell::UnsafeCell;

    use super::*;
    use crate::slot::{EnterForm, OutNumber, Slot, ValueForm};
    use crate::write::Record;

    const LENGTH: usize = 4096;

    /// A thread buffer: one thread fills it while another reads it, as recorder and reader do through
    /// maps of one file.
    #[repr(align(8))]
    struct Buffer(UnsafeCell<[u8; LENGTH]>);

    // SAFETY: that it is, with heads as the only synchronisation, is what Miri is to check.
    unsafe impl Sync for Buffer {}

    impl Buffer {
        /// Space at an offset, for one record.
        ///
        /// # Safety
        /// Only one thread may ask for it.
        #[allow(clippy::mut_from_ref, reason = "as in memory that is mapped")]
        unsafe fn space(&self, at: usize) -> &mut [u8] {
            assert!(at + Slot::LENGTH <= LENGTH);
            // SAFETY: within the buffer; nobody else writes there.
            unsafe {
                std::slice::from_raw_parts_mut(self.0.get().cast::<u8>().add(at), Slot::LENGTH)
            }
        }

        /// # Safety
        /// Only one thread may ask for it.
        #[allow(clippy::mut_from_ref, reason = "as in memory that is mapped")]
        unsafe fn slot(&self, at: usize) -> &mut Slot {
            // SAFETY: as the caller says; records begin at multiples of 8.
            unsafe { &mut *self.space(at).as_mut_ptr().cast() }
        }

        fn body(&self) -> &[u8] {
            // SAFETY: as the buffer's; what is not published is not looked at, but for heads.
            unsafe { std::slice::from_raw_parts(self.0.get().cast(), LENGTH) }
        }
    }

    /// Writes the records of a call in every form. Returns where they end.
    fn write(buffer: &Buffer, mut at: usize, number: u64) -> usize {
        // SAFETY: one thread calls this.
        let slot = |at| unsafe { buffer.slot(at) };
        let form = EnterForm::new(7, &[8, 8]).unwrap();
        at += slot(at).put_enter(&form, number, &[number; 4], || number).1;
        at += slot(at).put_leave_value(1, ValueForm::new(0, false), number);
        let out = OutNumber {
            parameter: 0,
            bytes: 8,
            number,
        };
        at += slot(at).put_leave_pair(7, number, [out; 2]);
        // SAFETY: as above.
        let mut record = Record::new(unsafe { buffer.space(at) }).unwrap();
        record.put_number(number, 8).unwrap();
        at + record
            .commit(record_kind::NOTE, note_kind::SNAPSHOTS)
            .unwrap()
    }

    /// `tests/sanitizers.sh miri` runs it under many schedules, and finds the race if a head is not
    /// stored with Release.
    #[test]
    fn published_records_are_whole() {
        const CALLS: u64 = 4;
        const OF_A_CALL: u64 = 4;
        let buffer = Buffer(UnsafeCell::new([0; LENGTH]));
        std::thread::scope(|scope| {
            scope.spawn(|| (0..CALLS).fold(0, |at, number| write(&buffer, at, number + 1)));
            let (mut at, mut seen) = (0, 0);
            while seen < CALLS * OF_A_CALL {
                let Some((head, record)) = record_at(buffer.body(), at) else {
                    std::thread::yield_now();
                    continue;
                };
                let number = seen / OF_A_CALL + 1;
                let words = record[RECORD_HEAD_LENGTH..].chunks_exact(8);
                let words: Vec<_> = words
                    .map(|word| u64::from_le_bytes(word.try_into().unwrap()))
                    .collect();
                match (head.kind, &*words) {
                    (record_kind::ENTER, [ticks, caller, first, second]) => {
                        assert_eq!([ticks, caller, first, second], [&number; 4]);
                    }
                    (record_kind::LEAVE_VALUE | record_kind::NOTE, [found]) => {
                        assert_eq!(*found, number);
                    }
                    (record_kind::LEAVE, [ticks, ..]) => assert_eq!(*ticks, number),
                    other => panic!("{other:?}"),
                }
                at += record.len();
                seen += 1;
            }
        });
    }
}
