//! Calls in outline: where the parts of a call lie in its chunk, found out while the chunk is looked through, so that a call is put
//! together without another look at its records. That part of reading depends on nothing but the chunk, so any thread may do it.

use crate::call::{Arguments, Call, Leave, OwnSnapshot, sign_extended};
use crate::contents::Observer;
use crate::cursor::Entered;
use crate::layout::{
    ENTER_HEAD_LENGTH, LEAVE_HEAD_LENGTH, LeaveHead, RECORD_HEAD_LENGTH, RecordHead, field,
    record_kind, short_enter,
};
use crate::signature::Signature;
use crate::trace::Trace;

/// Bytes of a body, counted from where the call is entered.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    from: u32,
    to: u32,
}

/// What an outline has of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Further records of the call may follow.
    Open,
    /// All of it.
    Whole,
    /// No more than when it was entered: it has notes, may go on in the next chunk, or is of an unknown function.
    InRecords,
}

/// How a call was left.
#[derive(Clone, Copy, Debug)]
enum Left {
    /// Not at all, as far as the records say.
    Not,
    /// By `LEAVE` or `LEAVE_SHORT`.
    WithSnapshots,
    /// By `LEAVE_VALUE`; the parameter.
    WithValue(u8),
}

/// A call of a chunk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outline {
    /// When it was entered.
    pub(crate) ticks: u64,
    caller: u64,
    /// Where its first record begins in the body.
    pub(crate) enter: usize,
    left_ticks: u64,
    /// Of an `ENTER` its bytes; of an `ENTER_SHORT` which of the chunk's numbers, counted from its first.
    arguments: Part,
    snapshots: Part,
    /// The snapshot that is a record of its own; there is none if it begins at 0.
    own: Part,
    /// What the leave has of snapshots, or its value.
    left_snapshots: Part,
    result: i32,
    function: u16,
    own_parameter: u8,
    own_field: u8,
    is_short: bool,
    left: Left,
    state: State,
}

impl Outline {
    /// The call, if the outline has all of it; `body` and `numbers` are those of its chunk.
    #[inline(always)]
    pub(crate) fn call<'b>(
        &self,
        trace: &'b Trace,
        body: &'b [u8],
        numbers: &'b [u64],
        thread: u32,
        number: u64,
        index: u64,
    ) -> Option<Call<'b>> {
        if self.state != State::Whole {
            return None;
        }
        let records = body.get(self.enter..)?;
        let part = |part: Part| records.get(part.from as usize..part.to as usize);
        Some(Call {
            index,
            thread,
            number,
            signature: trace.signature(self.function),
            ticks: self.ticks,
            caller: self.caller,
            arguments: if self.is_short {
                let Part { from, to } = self.arguments;
                Arguments::Read(numbers.get(from as usize..to as usize)?)
            } else {
                Arguments::Packed(part(self.arguments)?)
            },
            snapshots: part(self.snapshots)?,
            more_snapshots: &[],
            own_snapshot: match self.own.from {
                0 => None,
                _ => Some(OwnSnapshot {
                    parameter: self.own_parameter,
                    field: self.own_field,
                    bytes: part(self.own),
                }),
            },
            notes: Vec::new(),
            leave: match self.left {
                Left::Not => None,
                Left::WithSnapshots => Some(Leave {
                    ticks: self.left_ticks,
                    result: self.result,
                    own_snapshot: None,
                    snapshots: part(self.left_snapshots)?,
                }),
                Left::WithValue(parameter) => Some(Leave {
                    ticks: self.left_ticks,
                    result: 0,
                    own_snapshot: Some(OwnSnapshot {
                        parameter,
                        field: field::POINTEE,
                        bytes: part(self.left_snapshots),
                    }),
                    snapshots: &[],
                }),
            },
        })
    }
}

/// The calls of a chunk.
#[derive(Debug, Default)]
pub(crate) struct Outlines {
    /// In the order in which they are entered.
    pub(crate) calls: Vec<Outline>,
    /// The arguments of those that were entered with short records.
    pub(crate) numbers: Vec<u64>,
}

/// The outlines of a chunk in the making. What it makes of the records is what [`crate::cursor::assemble`] does.
#[derive(Debug)]
pub(crate) struct Outlining<'b> {
    body: &'b [u8],
    outlines: Outlines,
}

/// Bytes that a call takes: where most take fewer, there is room to be made.
const USUAL_CALL: usize = 96;
/// In a chunk that is longer than any recorder makes, no further arguments are read ahead than this.
const MOST_NUMBERS: usize = 1 << 22;

impl<'b> Outlining<'b> {
    /// Before the first record of that body. Of `used`, outlines of another chunk, only the memory is used again.
    pub(crate) fn new(body: &'b [u8], used: Outlines) -> Self {
        let calls = body.len() / USUAL_CALL;
        let mut outlines = used;
        outlines.calls.clear();
        outlines.calls.reserve(calls);
        outlines.numbers.clear();
        outlines.numbers.reserve(8 * calls);
        Self { body, outlines }
    }

    /// All of them, behind the last record.
    pub(crate) fn finish(mut self) -> Outlines {
        // What belongs to the last call may stand in the next chunk.
        if let Some(last) = self.outlines.calls.last_mut()
            && last.state == State::Open
        {
            last.state = State::InRecords;
        }
        self.outlines
    }

    /// Reads the arguments of a short record; `None` if they are to be read later.
    #[inline(always)]
    fn read(
        &mut self,
        known: Option<&Signature>,
        short: &short_enter::NumberReader<'_>,
        end: usize,
    ) -> Option<Part> {
        let numbers = &mut self.outlines.numbers;
        let (signature, from) = (known?, numbers.len());
        if from > MOST_NUMBERS {
            return None;
        }
        let count = signature.parameters.len();
        let bytes = self.body.get(end - short.rest().len()..)?;
        if !short.read_all(bytes, count, numbers) {
            numbers.extend(short.clone().take(count));
        }
        let mut signed = signature.signed;
        while signed != 0 {
            let place = signed.trailing_zeros() as usize;
            if let (Some(parameter), Some(word)) = (
                signature.parameters.get(place),
                numbers.get_mut(from + place),
            ) {
                *word = sign_extended(parameter.value_type, *word);
            }
            signed &= signed - 1;
        }
        Some(Part {
            from: from as u32,
            to: numbers.len() as u32,
        })
    }
}

impl Observer for Outlining<'_> {
    #[inline(always)]
    fn enter(
        &mut self,
        at: usize,
        head: RecordHead,
        known: Option<&Signature>,
        entered: Option<&Entered<'_>>,
    ) {
        // Whatever it says, what follows it is no more of the call before.
        if let Some(last) = self.outlines.calls.last_mut()
            && last.state == State::Open
        {
            last.state = State::Whole;
        }
        let Some(entered) = entered else {
            return;
        };
        let end = head.length;
        let (is_short, arguments) = match &entered.arguments {
            Arguments::Short(short) => (true, self.read(known, short, at + end as usize)),
            Arguments::Packed(bytes) => {
                let from = (RECORD_HEAD_LENGTH + ENTER_HEAD_LENGTH) as u32;
                let to = from + bytes.len() as u32;
                (false, Some(Part { from, to }))
            }
            Arguments::Read(_) => (true, None),
        };
        let snapshots = Part {
            from: end - entered.snapshots.len() as u32,
            to: end,
        };
        self.outlines.calls.push(Outline {
            ticks: entered.head.ticks,
            caller: entered.head.caller,
            enter: at,
            left_ticks: 0,
            is_short,
            arguments: arguments.unwrap_or_default(),
            snapshots,
            own: Part::default(),
            left_snapshots: Part::default(),
            result: 0,
            function: head.function,
            own_parameter: 0,
            own_field: 0,
            left: Left::Not,
            state: if arguments.is_some() {
                State::Open
            } else {
                State::InRecords
            },
        });
    }

    #[inline(always)]
    fn further(&mut self, at: usize, head: RecordHead, record: &[u8]) {
        let last = self.outlines.calls.last_mut();
        let Some(last) = last.filter(|last| last.state == State::Open) else {
            return;
        };
        let behind = at - last.enter + head.length as usize;
        let Ok(to) = u32::try_from(behind) else {
            last.state = State::InRecords;
            return;
        };
        let from = to - record.len() as u32;
        match head.kind {
            record_kind::LEAVE_SHORT => {
                last.left = Left::WithSnapshots;
                last.left_ticks = last.ticks.wrapping_add(head.short_ticks());
                last.state = State::Whole;
            }
            record_kind::LEAVE_VALUE if record.len() < head.value_bytes() => {
                last.state = State::InRecords;
            }
            record_kind::LEAVE_VALUE => {
                last.left = Left::WithValue(head.value_parameter());
                last.left_ticks = last.ticks.wrapping_add(head.value_ticks());
                let to = from + head.value_bytes() as u32;
                last.left_snapshots = Part { from, to };
                last.state = State::Whole;
            }
            record_kind::LEAVE => {
                last.state = State::Whole;
                // Another call's has lost its enter; of one that is cut nothing is known.
                if head.function == last.function
                    && let Some(leave) = LeaveHead::read(record)
                {
                    last.left = Left::WithSnapshots;
                    last.left_ticks = leave.ticks;
                    last.result = leave.result;
                    let from = from + LEAVE_HEAD_LENGTH as u32;
                    last.left_snapshots = Part { from, to };
                }
            }
            record_kind::SNAPSHOT => {
                let length = record.len().saturating_sub(head.snapshot_padding());
                last.own_parameter = head.detail;
                last.own_field = head.snapshot_field();
                let to = from + length as u32;
                last.own = Part { from, to };
            }
            record_kind::NOTE => last.state = State::InRecords,
            // A kind of a later version.
            _ => {}
        }
    }
}
