//! Calls in outline: where the parts of a call lie in its chunk, found out while the chunk is looked through, so that a call is put
//! together without another look at its records. That part of reading depends on nothing but the chunk, so any thread may do it.

use crate::call::{Arguments, Call, Leave, OwnCapture};
use crate::cursor::Entered;
use crate::layout::{
    ENTER_HEAD_LENGTH, LEAVE_HEAD_LENGTH, LeaveHead, RECORD_HEAD_LENGTH, RecordHead, field,
    record_kind, short_enter,
};
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
    /// No more than when it was entered: it has notes, may go on in the next chunk, or is as long as no other.
    InRecords,
}

/// How a call was left.
#[derive(Clone, Copy, Debug)]
enum Left {
    /// Not at all, as far as the records say.
    Not,
    /// By `LEAVE` or `LEAVE_SHORT`.
    WithCaptures,
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
    /// Of the arguments of an `ENTER_SHORT`.
    codes: u64,
    arguments: Part,
    captures: Part,
    /// The capture that is a record of its own; there is none if it begins at 0.
    own: Part,
    /// What the leave has of captures, or its value.
    left_captures: Part,
    result: i32,
    function: u16,
    own_parameter: u8,
    own_field: u8,
    is_short: bool,
    left: Left,
    state: State,
}

impl Outline {
    /// The call, if the outline has all of it; `body` is that of its chunk.
    #[inline(always)]
    pub(crate) fn call<'b>(
        &self,
        trace: &'b Trace,
        body: &'b [u8],
        thread: u32,
        number: u64,
        index: u64,
    ) -> Option<Call<'b>> {
        if self.state != State::Whole {
            return None;
        }
        let records = body.get(self.enter..)?;
        let part = |part: Part| records.get(part.from as usize..part.to as usize);
        let arguments = part(self.arguments)?;
        Some(Call {
            index,
            thread,
            number,
            signature: trace.signature(self.function),
            ticks: self.ticks,
            caller: self.caller,
            arguments: if self.is_short {
                Arguments::Short(short_enter::Numbers::of_codes(self.codes, arguments))
            } else {
                Arguments::Packed(arguments)
            },
            captures: part(self.captures)?,
            more_captures: &[],
            own_capture: match self.own.from {
                0 => None,
                _ => Some(OwnCapture {
                    parameter: self.own_parameter,
                    field: self.own_field,
                    bytes: part(self.own),
                }),
            },
            notes: Vec::new(),
            leave: match self.left {
                Left::Not => None,
                Left::WithCaptures => Some(Leave {
                    ticks: self.left_ticks,
                    result: self.result,
                    own_capture: None,
                    captures: part(self.left_captures)?,
                }),
                Left::WithValue(parameter) => Some(Leave {
                    ticks: self.left_ticks,
                    result: 0,
                    own_capture: Some(OwnCapture {
                        parameter,
                        field: field::POINTEE,
                        bytes: part(self.left_captures),
                    }),
                    captures: &[],
                }),
            },
        })
    }
}

/// The outlines of a chunk in the making: to be shown every record, in order. What it makes of them is what
/// [`crate::cursor::assemble`] does.
#[derive(Debug)]
pub(crate) struct Outlines(Vec<Outline>);

/// Bytes that a call takes: where most take fewer, there is room to be made.
const USUAL_CALL: usize = 96;

impl Outlines {
    /// Before the first record of that body.
    pub(crate) fn new(body: &[u8]) -> Self {
        Self(Vec::with_capacity(body.len() / USUAL_CALL))
    }

    /// The record at an offset, its bytes behind the head, and what an enter says.
    #[inline(always)]
    pub(crate) fn record(
        &mut self,
        at: usize,
        head: RecordHead,
        record: &[u8],
        entered: Option<&Entered<'_>>,
    ) {
        let outlines = &mut self.0;
        if record_kind::is_enter(head.kind) {
            // Whatever it says, what follows it is no more of the call before.
            if let Some(last) = outlines.last_mut()
                && last.state == State::Open
            {
                last.state = State::Whole;
            }
            if let Some(entered) = entered {
                outlines.push(enter(at, head, entered));
            }
            return;
        }
        let Some(last) = outlines.last_mut().filter(|last| last.state == State::Open) else {
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
                last.left = Left::WithCaptures;
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
                last.left_captures = Part { from, to };
                last.state = State::Whole;
            }
            record_kind::LEAVE => {
                last.state = State::Whole;
                // Another call's has lost its enter; of one that is cut nothing is known.
                if head.function == last.function
                    && let Some(leave) = LeaveHead::read(record)
                {
                    last.left = Left::WithCaptures;
                    last.left_ticks = leave.ticks;
                    last.result = leave.result;
                    let from = from + LEAVE_HEAD_LENGTH as u32;
                    last.left_captures = Part { from, to };
                }
            }
            record_kind::CAPTURE => {
                let length = record.len().saturating_sub(head.capture_padding());
                last.own_parameter = head.detail;
                last.own_field = head.capture_field();
                let to = from + length as u32;
                last.own = Part { from, to };
            }
            record_kind::NOTE => last.state = State::InRecords,
            // A kind of a later version.
            _ => {}
        }
    }

    /// All of them, behind the last record.
    pub(crate) fn finish(mut self) -> Vec<Outline> {
        // What belongs to the last call may stand in the next chunk.
        if let Some(last) = self.0.last_mut()
            && last.state == State::Open
        {
            last.state = State::InRecords;
        }
        self.0
    }
}

/// What the record with which a call is entered says of it.
#[inline(always)]
fn enter(at: usize, head: RecordHead, entered: &Entered<'_>) -> Outline {
    let end = head.length;
    let (is_short, codes, arguments) = match &entered.arguments {
        Arguments::Packed(bytes) => {
            let from = (RECORD_HEAD_LENGTH + ENTER_HEAD_LENGTH) as u32;
            let to = from + bytes.len() as u32;
            (false, 0, Part { from, to })
        }
        Arguments::Short(numbers) => {
            let from = end - numbers.rest().len() as u32;
            (true, numbers.codes(), Part { from, to: end })
        }
    };
    Outline {
        ticks: entered.head.ticks,
        caller: entered.head.caller,
        enter: at,
        left_ticks: 0,
        is_short,
        codes,
        arguments,
        captures: Part {
            from: end - entered.captures.len() as u32,
            to: end,
        },
        own: Part::default(),
        left_captures: Part::default(),
        result: 0,
        function: head.function,
        own_parameter: 0,
        own_field: 0,
        left: Left::Not,
        state: State::Open,
    }
}
