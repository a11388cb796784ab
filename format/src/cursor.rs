//! Walking over the calls of all threads in the order in which they were entered.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::call::{Arguments, Call, Leave, OwnSnapshot};
use crate::layout::{
    ENTER_HEAD_LENGTH, EnterHead, LEAVE_HEAD_LENGTH, LeaveHead, RECORD_HEAD_LENGTH, RecordHead,
    field, note_kind, record_kind, short_enter,
};
use crate::records::record_at;
use crate::signature::Signature;
use crate::trace::Trace;

/// Where a thread's next record is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Position {
    /// Which of the thread's chunks.
    pub(crate) chunk: usize,
    /// Offset in its body.
    pub(crate) offset: usize,
}

#[derive(Clone, Debug, Default)]
struct ThreadState {
    position: Position,
    calls: u64,
    queued: bool,
}

/// A place in a trace between two calls; keeps its place while a growing trace is refreshed.
#[derive(Clone, Debug, Default)]
pub struct Cursor {
    threads: Vec<ThreadState>,
    /// (ticks, thread) of every thread whose next call is known.
    queue: BinaryHeap<Reverse<(u64, u32)>>,
    index: u64,
    /// The state of the trace in which all threads were looked at.
    looked: Option<u64>,
    /// The thread whose call was given out since: no other can have another next call in the same state.
    passed: Option<u32>,
}

impl Cursor {
    /// Before the first call.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many calls have been passed.
    pub fn index(&self) -> u64 {
        self.index
    }

    /// The next call of a trace that is complete.
    pub fn next<'t>(&mut self, trace: &'t Trace) -> Option<Call<'t>> {
        self.advance(trace, None)
    }

    /// The next call of a trace that is still growing: only calls that have returned and were entered before `horizon`
    /// (in ticks), after which no thread can still write an earlier one. A call in flight holds back those behind it.
    pub fn next_before<'t>(&mut self, trace: &'t Trace, horizon: u64) -> Option<Call<'t>> {
        self.advance(trace, Some(horizon))
    }

    fn advance<'t>(&mut self, trace: &'t Trace, horizon: Option<u64>) -> Option<Call<'t>> {
        self.queue_threads(trace);
        let &Reverse((ticks, thread)) = self.queue.peek()?;
        if horizon.is_some_and(|horizon| ticks >= horizon) {
            return None;
        }
        let state = &mut self.threads[thread as usize];
        let found = seek_enter(trace, &trace, thread as usize, &mut state.position)?;
        let mut assembled = assemble(trace, &trace, thread, state.calls, found);
        if horizon.is_some() && !assembled.over {
            return None;
        }
        self.queue.pop();
        let state = &mut self.threads[thread as usize];
        state.position = assembled.position;
        state.calls += 1;
        state.queued = false;
        self.passed = Some(thread);
        assembled.call.index = self.index;
        self.index += 1;
        Some(assembled.call)
    }

    fn queue_threads(&mut self, trace: &Trace) {
        if self.looked == Some(trace.growth.refreshed) {
            if let Some(thread) = self.passed.take() {
                self.queue_thread(trace, thread as usize);
            }
            return;
        }
        self.threads.resize_with(
            trace.thread_count().max(self.threads.len()),
            Default::default,
        );
        for thread in 0..self.threads.len() {
            self.queue_thread(trace, thread);
        }
        (self.looked, self.passed) = (Some(trace.growth.refreshed), None);
    }

    fn queue_thread(&mut self, trace: &Trace, thread: usize) {
        let state = &mut self.threads[thread];
        if state.queued {
            return;
        }
        if let Some(found) = seek_enter(trace, &trace, thread, &mut state.position) {
            // Calls that are lost with damaged chunks have had their numbers. In a sound trace this changes nothing.
            let first = trace.calls_first(thread, state.position.chunk).unwrap_or(0);
            state.calls = state.calls.max(first);
            state.queued = true;
            self.queue.push(Reverse((found.ticks(), thread as u32)));
        }
    }
}

/// Where the bodies of chunks of calls are; `place` counts the chunks of a thread that are walked over.
pub(crate) trait Bodies<'b> {
    /// The body at a place, `None` behind the last.
    fn body(&self, thread: usize, place: usize) -> Option<&'b [u8]>;
    /// The number in its thread of the first call that is entered there, as the chunk's head says.
    fn first(&self, thread: usize, place: usize) -> Option<u64>;
}

impl<'t> Bodies<'t> for &'t Trace {
    fn body(&self, thread: usize, place: usize) -> Option<&'t [u8]> {
        self.calls_body(thread, place)
    }

    fn first(&self, thread: usize, place: usize) -> Option<u64> {
        self.calls_first(thread, place)
    }
}

/// One record: head, body.
type Record<'t> = (RecordHead, &'t [u8]);

/// The record at a position, which moves behind it; skips to the thread's next chunk at the end of one. `body` is that of the
/// position's chunk.
#[inline(always)]
fn next_record<'b>(
    bodies: &impl Bodies<'b>,
    thread: usize,
    position: &mut Position,
    body: &mut &'b [u8],
) -> Option<Record<'b>> {
    match record_at(body, position.offset) {
        Some((head, record)) => {
            position.offset += head.length as usize;
            Some((head, record.get(RECORD_HEAD_LENGTH..)?))
        }
        None => first_record(bodies, thread, position, body),
    }
}

/// The first record of the thread's chunks behind a position, which moves behind it.
#[cold]
#[inline(never)]
fn first_record<'b>(
    bodies: &impl Bodies<'b>,
    thread: usize,
    position: &mut Position,
    body: &mut &'b [u8],
) -> Option<Record<'b>> {
    loop {
        // A thread opens a chunk only when it is done with the one before.
        *body = bodies.body(thread, position.chunk + 1)?;
        *position = Position {
            chunk: position.chunk + 1,
            offset: 0,
        };
        if let Some((head, record)) = record_at(body, 0) {
            position.offset = head.length as usize;
            return Some((head, record.get(RECORD_HEAD_LENGTH..)?));
        }
    }
}

/// The record with which a call is entered.
pub(crate) struct Found<'t> {
    function: u16,
    entered: Entered<'t>,
    /// Behind it.
    behind: Position,
    /// The body that it is in.
    body: &'t [u8],
}

impl Found<'_> {
    /// When the call is entered.
    pub(crate) fn ticks(&self) -> u64 {
        self.entered.head.ticks
    }
}

/// Moves to the next record with which a call is entered.
#[inline(always)]
pub(crate) fn seek_enter<'b>(
    trace: &Trace,
    bodies: &impl Bodies<'b>,
    thread: usize,
    position: &mut Position,
) -> Option<Found<'b>> {
    let mut body = bodies.body(thread, position.chunk)?;
    loop {
        let mut behind = *position;
        let (head, record) = next_record(bodies, thread, &mut behind, &mut body)?;
        if record_kind::is_enter(head.kind)
            && let Some(entered) = Entered::read(trace, head, record)
        {
            // At the record itself, which may be the first of a further chunk.
            *position = Position {
                offset: behind.offset - head.length as usize,
                ..behind
            };
            return Some(Found {
                function: head.function,
                entered,
                behind,
                body,
            });
        }
        *position = behind;
    }
}

/// What an `ENTER` or `ENTER_SHORT` says.
pub(crate) struct Entered<'t> {
    pub(crate) head: EnterHead,
    pub(crate) arguments: Arguments<'t>,
    pub(crate) snapshots: &'t [u8],
}

impl<'t> Entered<'t> {
    #[inline]
    pub(crate) fn read(trace: &Trace, head: RecordHead, body: &'t [u8]) -> Option<Self> {
        let known = trace.signatures().function(head.function);
        Self::of(known, trace.head().start_ticks, head, body)
    }

    /// Of a call of that function, in a trace that begins at that time.
    #[inline(always)]
    pub(crate) fn of(
        known: Option<&Signature>,
        start_ticks: u64,
        head: RecordHead,
        body: &'t [u8],
    ) -> Option<Self> {
        if head.kind == record_kind::ENTER {
            let enter = EnterHead::read(body)?;
            let rest = body.get(ENTER_HEAD_LENGTH..)?;
            // Where an unknown function's snapshots begin is unknown as well.
            let (arguments, snapshots) = known
                .and_then(|signature| rest.split_at_checked(signature.arguments_length))
                .unwrap_or((rest, &[]));
            return Some(Self {
                head: enter,
                arguments: Arguments::Packed(arguments),
                snapshots,
            });
        }
        // So is how many numbers it has; but there are two.
        let parameters = known.map_or(0, |signature| signature.parameters.len());
        let mut numbers = short_enter::NumberReader::new(body, parameters)?;
        let head = EnterHead {
            ticks: start_ticks.wrapping_add(numbers.next()?),
            caller: numbers.next()?,
        };
        let arguments = numbers.clone();
        numbers.pass(parameters)?;
        Some(Self {
            head,
            arguments: Arguments::Short(arguments),
            snapshots: if known.is_some() { numbers.rest() } else { &[] },
        })
    }
}

/// A call put together from its records.
pub(crate) struct Assembled<'t> {
    pub(crate) call: Call<'t>,
    /// Behind what belongs to it.
    pub(crate) position: Position,
    /// It has returned, or its thread has entered another call since.
    over: bool,
}

/// The call that is entered with a record.
#[inline(always)]
pub(crate) fn assemble<'t>(
    trace: &'t Trace,
    bodies: &impl Bodies<'t>,
    thread: u32,
    number: u64,
    found: Found<'t>,
) -> Assembled<'t> {
    let Found {
        function,
        entered: Entered {
            head,
            arguments,
            snapshots,
        },
        behind: mut position,
        body: mut chunk,
    } = found;
    let mut call = Call {
        index: 0,
        thread,
        number,
        signature: trace.signature(function),
        ticks: head.ticks,
        caller: head.caller,
        arguments,
        snapshots,
        more_snapshots: &[],
        own_snapshot: None,
        notes: Vec::new(),
        leave: None,
    };
    let entered = function;
    loop {
        let mut behind = position;
        let Some((record, body)) = next_record(bodies, thread as usize, &mut behind, &mut chunk)
        else {
            return Assembled {
                call,
                position,
                over: false,
            };
        };
        // True if calls of this thread were entered meanwhile that are not there.
        let lost = position.chunk != behind.chunk
            && bodies
                .first(thread as usize, behind.chunk)
                .is_some_and(|first| first > number + 1);
        let function = record.function;
        match record.kind {
            _ if lost => {
                return Assembled {
                    call,
                    position,
                    over: true,
                };
            }
            record_kind::ENTER | record_kind::ENTER_SHORT => {
                return Assembled {
                    call,
                    position,
                    over: true,
                };
            }
            // Another call's, whose ENTER is lost.
            record_kind::LEAVE if function != entered => {
                return Assembled {
                    call,
                    position: behind,
                    over: true,
                };
            }
            record_kind::LEAVE => {
                if let Some(head) = LeaveHead::read(body) {
                    let snapshots = body.get(LEAVE_HEAD_LENGTH..).unwrap_or(&[]);
                    call.leave = Some(Leave {
                        ticks: head.ticks,
                        result: head.result,
                        own_snapshot: None,
                        snapshots,
                    });
                }
                return Assembled {
                    call,
                    position: behind,
                    over: true,
                };
            }
            record_kind::LEAVE_SHORT => {
                call.leave = Some(Leave {
                    ticks: call.ticks.wrapping_add(record.short_ticks()),
                    result: 0,
                    own_snapshot: None,
                    snapshots: &[],
                });
                return Assembled {
                    call,
                    position: behind,
                    over: true,
                };
            }
            record_kind::LEAVE_VALUE => {
                let bytes = body.get(..record.value_bytes());
                call.leave = Some(Leave {
                    ticks: call.ticks.wrapping_add(record.value_ticks()),
                    result: 0,
                    own_snapshot: Some(OwnSnapshot {
                        parameter: record.value_parameter(),
                        field: field::POINTEE,
                        bytes,
                    }),
                    snapshots: &[],
                });
                return Assembled {
                    call,
                    position: behind,
                    over: true,
                };
            }
            record_kind::SNAPSHOT => {
                let length = body.len().saturating_sub(record.snapshot_padding());
                call.own_snapshot = Some(OwnSnapshot {
                    parameter: record.detail,
                    field: record.snapshot_field(),
                    bytes: Some(body.get(..length).unwrap_or(body)),
                });
            }
            record_kind::NOTE if function == note_kind::SNAPSHOTS => call.more_snapshots = body,
            record_kind::NOTE => call.notes.push((function, body)),
            // A kind of a later version.
            _ => {}
        }
        position = behind;
    }
}

/// Iterates over all calls of a complete trace.
#[derive(Clone, Debug)]
pub struct Calls<'t> {
    trace: &'t Trace,
    cursor: Cursor,
}

impl<'t> Calls<'t> {
    pub(crate) fn new(trace: &'t Trace) -> Self {
        Self {
            trace,
            cursor: Cursor::new(),
        }
    }
}

impl<'t> Iterator for Calls<'t> {
    type Item = Call<'t>;

    #[inline]
    fn next(&mut self) -> Option<Call<'t>> {
        self.cursor.next(self.trace)
    }
}
