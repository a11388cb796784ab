//! Walking over the calls of all threads in the order in which they were entered.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::call::{Call, Leave};
use crate::codec;
use crate::layout::{
    ENTER_HEAD_LENGTH, EnterHead, LEAVE_HEAD_LENGTH, LeaveHead, RECORD_HEAD_LENGTH, note_kind,
    record_kind,
};
use crate::records::record_at;
use crate::trace::Trace;

/// Where a thread's next record is.
#[derive(Clone, Copy, Debug, Default)]
struct Position {
    /// Which of the thread's chunks.
    chunk: usize,
    /// Offset in its body.
    offset: usize,
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
        let state = &self.threads[thread as usize];
        let Assembled {
            call,
            position,
            over,
        } = assemble(trace, thread, state)?;
        if horizon.is_some() && !over {
            return None;
        }
        self.queue.pop();
        let state = &mut self.threads[thread as usize];
        state.position = position;
        state.calls += 1;
        state.queued = false;
        let call = Call {
            index: self.index,
            ..call
        };
        self.index += 1;
        Some(call)
    }

    fn queue_threads(&mut self, trace: &Trace) {
        self.threads.resize_with(
            trace.thread_count().max(self.threads.len()),
            Default::default,
        );
        for (thread, state) in self.threads.iter_mut().enumerate() {
            if state.queued {
                continue;
            }
            if let Some(ticks) = seek_enter(trace, thread, &mut state.position) {
                // Calls that are lost with damaged chunks have had their numbers. In a sound trace this changes nothing.
                let first = trace.calls_first(thread, state.position.chunk).unwrap_or(0);
                state.calls = state.calls.max(first);
                state.queued = true;
                self.queue.push(Reverse((ticks, thread as u32)));
            }
        }
    }
}

/// One record: kind, function field, body.
type Record<'t> = (u8, u16, &'t [u8]);

/// The record at a position, which moves behind it; skips to the thread's next chunk at the end of one.
fn next_record<'t>(trace: &'t Trace, thread: usize, position: &mut Position) -> Option<Record<'t>> {
    loop {
        let body = trace.calls_body(thread, position.chunk)?;
        if let Some((head, record)) = record_at(body, position.offset) {
            position.offset += head.length as usize;
            return Some((head.kind, head.function, record.get(RECORD_HEAD_LENGTH..)?));
        }
        // A thread opens a chunk only when it is done with the one before.
        trace.calls_body(thread, position.chunk + 1)?;
        *position = Position {
            chunk: position.chunk + 1,
            offset: 0,
        };
    }
}

/// Moves to the next `ENTER` record and returns its time.
fn seek_enter(trace: &Trace, thread: usize, position: &mut Position) -> Option<u64> {
    loop {
        let mut behind = *position;
        let (kind, _, body) = next_record(trace, thread, &mut behind)?;
        if kind == record_kind::ENTER
            && let Some((head, _)) = codec::decode::<EnterHead>(body)
        {
            return Some(head.ticks);
        }
        *position = behind;
    }
}

/// A call put together from its records.
struct Assembled<'t> {
    call: Call<'t>,
    /// Behind what belongs to it.
    position: Position,
    /// It has returned, or its thread has entered another call since.
    over: bool,
}

/// The call whose `ENTER` is at the thread's position.
fn assemble<'t>(trace: &'t Trace, thread: u32, state: &ThreadState) -> Option<Assembled<'t>> {
    let mut position = state.position;
    let (_, function, body) = next_record(trace, thread as usize, &mut position)?;
    let (head, _) = codec::decode::<EnterHead>(body)?;
    let rest = body.get(ENTER_HEAD_LENGTH..)?;
    let known = trace.signatures().function(function);
    // Where an unknown function's captures begin is unknown as well.
    let (arguments, captures) = known
        .and_then(|signature| rest.split_at_checked(signature.arguments_length))
        .unwrap_or((rest, &[]));
    let mut call = Call {
        index: 0,
        thread,
        number: state.calls,
        signature: trace.signature_or_unknown(function),
        ticks: head.ticks,
        caller: head.caller,
        arguments,
        captures,
        more_captures: &[],
        notes: Vec::new(),
        leave: None,
    };
    let entered = function;
    loop {
        let mut behind = position;
        let Some((kind, function, body)) = next_record(trace, thread as usize, &mut behind) else {
            return Some(Assembled {
                call,
                position,
                over: false,
            });
        };
        // True if calls of this thread were entered meanwhile that are not there.
        let lost = position.chunk != behind.chunk
            && trace
                .calls_first(thread as usize, behind.chunk)
                .is_some_and(|first| first > state.calls + 1);
        match kind {
            _ if lost => {
                return Some(Assembled {
                    call,
                    position,
                    over: true,
                });
            }
            record_kind::ENTER => {
                return Some(Assembled {
                    call,
                    position,
                    over: true,
                });
            }
            // Another call's, whose ENTER is lost.
            record_kind::LEAVE if function != entered => {
                return Some(Assembled {
                    call,
                    position: behind,
                    over: true,
                });
            }
            record_kind::LEAVE => {
                if let Some((head, _)) = codec::decode::<LeaveHead>(body) {
                    let captures = body.get(LEAVE_HEAD_LENGTH..).unwrap_or(&[]);
                    call.leave = Some(Leave {
                        ticks: head.ticks,
                        result: head.result,
                        captures,
                    });
                }
                return Some(Assembled {
                    call,
                    position: behind,
                    over: true,
                });
            }
            record_kind::NOTE if function == note_kind::CAPTURES => call.more_captures = body,
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

    fn next(&mut self) -> Option<Call<'t>> {
        self.cursor.next(self.trace)
    }
}
