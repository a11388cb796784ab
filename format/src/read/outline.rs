//! Outlines: where the parts of each call of a chunk are, found while the chunk is searched, so
//! that assembling a call needs no second look at its records. They depend on nothing but the
//! chunk, so other threads can make them ahead of the reader. With them `check` takes 2032
//! instructions a call instead of 2845 (benches/results/2026-11-20-reading.md).

use crate::layout::{ENTER_HEAD_LENGTH, RECORD_HEAD_LENGTH, RecordHead, field, short_enter};
use crate::read::call::{Arguments, Call, Leave};
use crate::read::record::{CallParts, Enter, add_record};
use crate::read::signature::Signature;
use crate::read::snapshot::SingleSnapshot;
use crate::read::trace::Trace;

/// Bytes of a body, counted from where the call is entered.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    from: u32,
    to: u32,
}

/// How much of a call its outline has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Further records of the call may follow.
    Open,
    /// All of it.
    Whole,
    /// Not all: it has notes, may continue in the next chunk, or is of an unknown function.
    Partial,
}

#[derive(Clone, Copy, Debug)]
struct OutlinedSnapshot {
    parameter: u8,
    field: u8,
    bytes: Part,
}

#[derive(Clone, Copy, Debug)]
struct OutlinedLeave {
    ticks: u64,
    result: i32,
    /// The parameter, if the snapshot is the value of a `LEAVE_VALUE`.
    value: Option<u8>,
    snapshots: Part,
}

/// A call of a chunk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outline {
    /// When it was entered.
    pub(crate) ticks: u64,
    caller: u64,
    /// Where its first record begins in the body.
    pub(crate) enter: usize,
    /// Of an `ENTER` its bytes; of an `ENTER_SHORT` a range of the chunk's decoded numbers.
    arguments: Part,
    snapshots: Part,
    single_snapshot: Option<OutlinedSnapshot>,
    leave: Option<OutlinedLeave>,
    function: u16,
    is_short: bool,
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
                Arguments::Decoded(numbers.get(from as usize..to as usize)?)
            } else {
                Arguments::Packed(part(self.arguments)?)
            },
            snapshots: part(self.snapshots)?,
            more_snapshots: &[],
            single_snapshot: self.single_snapshot.map(|snapshot| SingleSnapshot {
                parameter: snapshot.parameter,
                field: snapshot.field,
                bytes: part(snapshot.bytes),
            }),
            notes: Vec::new(),
            leave: match &self.leave {
                Some(leave) => Some(leave.leave(part)?),
                None => None,
            },
        })
    }
}

impl OutlinedLeave {
    #[inline(always)]
    fn leave<'b>(&self, part: impl Fn(Part) -> Option<&'b [u8]>) -> Option<Leave<'b>> {
        let (single_snapshot, snapshots) = match self.value {
            Some(parameter) => {
                let value = SingleSnapshot {
                    parameter,
                    field: field::POINTEE,
                    bytes: part(self.snapshots),
                };
                (Some(value), &[][..])
            }
            None => (None, part(self.snapshots)?),
        };
        Some(Leave {
            ticks: self.ticks,
            result: self.result,
            single_snapshot,
            snapshots,
        })
    }
}

/// The calls of a chunk.
#[derive(Debug, Default)]
pub(crate) struct Outlines {
    /// In the order in which they are entered.
    pub(crate) calls: Vec<Outline>,
    /// The arguments of those with short records.
    pub(crate) numbers: Vec<u64>,
}

/// Makes the outlines of a chunk from its records, which it gets in order.
#[derive(Debug)]
pub(crate) struct Outliner<'b> {
    body: &'b [u8],
    outlines: Outlines,
}

/// Bytes that a call takes, to reserve memory: most take more (assumed).
const BYTES_PER_CALL: usize = 96;
/// More arguments than a chunk of any recorder has are not decoded ahead.
const MOST_NUMBERS: usize = 1 << 22;

impl<'b> Outliner<'b> {
    /// Before the first record of that body. `reused` gives only its memory.
    pub(crate) fn new(body: &'b [u8], reused: Outlines) -> Self {
        let calls = body.len() / BYTES_PER_CALL;
        let mut outlines = reused;
        outlines.calls.clear();
        outlines.calls.reserve(calls);
        outlines.numbers.clear();
        outlines.numbers.reserve(8 * calls);
        Self { body, outlines }
    }

    /// The outlines, behind the last record.
    pub(crate) fn finish(mut self) -> Outlines {
        // The last call may continue in the next chunk.
        if let Some(last) = self.open_call() {
            last.state = State::Partial;
        }
        self.outlines
    }

    #[inline(always)]
    fn open_call(&mut self) -> Option<&mut Outline> {
        let last = self.outlines.calls.last_mut()?;
        (last.state == State::Open).then_some(last)
    }

    /// Decodes the arguments of a short record that ends at `end`; `None` leaves them to the
    /// reader.
    #[inline(always)]
    fn decode(
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
            let position = signed.trailing_zeros() as usize;
            if let Some(parameter) = signature.parameters.get(position)
                && let Some(word) = numbers.get_mut(from + position)
            {
                *word = parameter.value_type.extended(*word);
            }
            signed &= signed - 1;
        }
        Some(Part {
            from: from as u32,
            to: numbers.len() as u32,
        })
    }

    /// Takes the record at an offset, which enters a call; `enter` is `None` if it is malformed.
    #[inline(always)]
    pub(crate) fn enter(
        &mut self,
        at: usize,
        head: RecordHead,
        known: Option<&Signature>,
        enter: Option<&Enter<'_>>,
    ) {
        if let Some(last) = self.open_call() {
            last.state = State::Whole;
        }
        let Some(enter) = enter else {
            return;
        };
        let end = head.length;
        let (is_short, arguments) = match &enter.arguments {
            Arguments::Short(short) => (true, self.decode(known, short, at + end as usize)),
            Arguments::Packed(bytes) => {
                let from = (RECORD_HEAD_LENGTH + ENTER_HEAD_LENGTH) as u32;
                let to = from + bytes.len() as u32;
                (false, Some(Part { from, to }))
            }
            Arguments::Decoded(_) => (true, None),
        };
        self.outlines.calls.push(Outline {
            ticks: enter.head.ticks,
            caller: enter.head.caller,
            enter: at,
            arguments: arguments.unwrap_or_default(),
            snapshots: Part {
                from: end - enter.snapshots.len() as u32,
                to: end,
            },
            single_snapshot: None,
            leave: None,
            function: head.function,
            is_short,
            state: match arguments {
                Some(_) => State::Open,
                None => State::Partial,
            },
        });
    }

    /// Takes another record: where it is, its head, its bytes behind that.
    #[inline(always)]
    pub(crate) fn add(&mut self, at: usize, head: RecordHead, record: &[u8]) {
        let Some(last) = self.open_call() else {
            return;
        };
        let Ok(to) = u32::try_from(at - last.enter + head.length as usize) else {
            last.state = State::Partial;
            return;
        };
        let from = to - record.len() as u32;
        let (function, ticks) = (last.function, last.ticks);
        let mut call = OpenOutline { last, from, to };
        add_record(head, record, function, ticks, &mut call);
    }
}

/// An outline, and the part of the body that a further record of its call takes.
struct OpenOutline<'o> {
    last: &'o mut Outline,
    from: u32,
    to: u32,
}

impl OpenOutline<'_> {
    #[inline(always)]
    fn prefix(&self, bytes: &[u8]) -> Part {
        Part {
            from: self.from,
            to: self.from + bytes.len() as u32,
        }
    }
}

impl CallParts<'_> for OpenOutline<'_> {
    #[inline(always)]
    fn leave(&mut self, leave: Option<Leave<'_>>) {
        self.last.state = State::Whole;
        let Some(leave) = leave else {
            return;
        };
        let mut value = None;
        let mut snapshots = Part {
            from: self.to - leave.snapshots.len() as u32,
            to: self.to,
        };
        if let Some(snapshot) = leave.single_snapshot {
            let Some(bytes) = snapshot.bytes else {
                self.last.state = State::Partial;
                return;
            };
            (value, snapshots) = (Some(snapshot.parameter), self.prefix(bytes));
        }
        self.last.leave = Some(OutlinedLeave {
            ticks: leave.ticks,
            result: leave.result,
            value,
            snapshots,
        });
    }

    #[inline(always)]
    fn single_snapshot(&mut self, snapshot: SingleSnapshot<'_>) {
        self.last.single_snapshot = Some(OutlinedSnapshot {
            parameter: snapshot.parameter,
            field: snapshot.field,
            bytes: self.prefix(snapshot.bytes.unwrap_or(&[])),
        });
    }

    fn more_snapshots(&mut self, _: &[u8]) {
        self.last.state = State::Partial;
    }

    fn note(&mut self, _: u16, _: &[u8]) {
        self.last.state = State::Partial;
    }
}
