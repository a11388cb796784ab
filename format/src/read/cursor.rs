//! Calls of all threads in the order in which they were entered, read from the records.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::layout::{RECORD_HEAD_LENGTH, RecordHead, record_kind};
use crate::read::call::{Call, Leave};
use crate::read::record::{CallParts, Enter, add_record, record_at};
use crate::read::snapshot::SingleSnapshot;
use crate::read::trace::Trace;

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
    is_queued: bool,
}

/// A place between two calls of a trace; stays valid while a growing trace is refreshed.
#[derive(Clone, Debug, Default)]
pub struct Cursor {
    threads: Vec<ThreadState>,
    /// (ticks, thread) of every thread whose next call is known.
    queue: BinaryHeap<Reverse<(u64, u32)>>,
    index: u64,
    /// The refresh of the trace at which all threads were looked at.
    looked_at: Option<u64>,
    /// The thread whose call was returned since; only its next call can be another one.
    advanced: Option<u32>,
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

    /// The threads of which a call has been looked at and not passed, and that call's number.
    pub fn upcoming(&self) -> impl Iterator<Item = (u32, u64)> {
        let threads = (0..).zip(&self.threads);
        let waiting = threads.filter(|(_, state)| state.is_queued);
        waiting.map(|(thread, state)| (thread, state.calls))
    }

    /// The next call of a complete trace.
    pub fn next<'t>(&mut self, trace: &'t Trace) -> Option<Call<'t>> {
        self.advance(trace, None, false)
    }

    /// The next call of a growing trace, if it has returned and was entered before `horizon` (in
    /// ticks), before which no thread can still add a call. A call in flight holds back those
    /// behind it.
    pub fn next_before<'t>(&mut self, trace: &'t Trace, horizon: u64) -> Option<Call<'t>> {
        self.advance(trace, Some(horizon), true)
    }

    /// The next call of a growing trace that was entered before `horizon`, whether or not it has
    /// returned.
    pub fn next_entered<'t>(&mut self, trace: &'t Trace, horizon: u64) -> Option<Call<'t>> {
        self.advance(trace, Some(horizon), false)
    }

    /// The next call that was entered before `horizon`; none while one in flight is next and
    /// `holds_back`.
    fn advance<'t>(
        &mut self,
        trace: &'t Trace,
        horizon: Option<u64>,
        holds_back: bool,
    ) -> Option<Call<'t>> {
        self.queue_threads(trace);
        let &Reverse((ticks, thread)) = self.queue.peek()?;
        if horizon.is_some_and(|horizon| ticks >= horizon) {
            return None;
        }
        let state = self.threads.get_mut(thread as usize)?;
        let entered = seek_enter(trace, &trace, thread, &mut state.position)?;
        let mut assembled = assemble(trace, &trace, thread, state.calls, entered);
        if holds_back && !assembled.is_over {
            return None;
        }
        self.queue.pop();
        state.position = assembled.position;
        state.calls = state.calls.saturating_add(1);
        state.is_queued = false;
        self.advanced = Some(thread);
        assembled.call.index = self.index;
        self.index += 1;
        Some(assembled.call)
    }

    fn queue_threads(&mut self, trace: &Trace) {
        if self.looked_at == Some(trace.growth.refreshes) {
            if let Some(thread) = self.advanced.take() {
                self.queue_thread(trace, thread);
            }
            return;
        }
        let threads = trace.thread_count().max(self.threads.len());
        self.threads.resize_with(threads, Default::default);
        for thread in 0..threads {
            self.queue_thread(trace, thread as u32);
        }
        (self.looked_at, self.advanced) = (Some(trace.growth.refreshes), None);
    }

    fn queue_thread(&mut self, trace: &Trace, thread: u32) {
        let state = self.threads.get_mut(thread as usize);
        let Some(state) = state.filter(|state| !state.is_queued) else {
            return;
        };
        if let Some(entered) = seek_enter(trace, &trace, thread, &mut state.position) {
            // Calls lost with damaged chunks keep their numbers.
            let first = (&trace).first(thread, state.position.chunk);
            state.calls = state.calls.max(first.unwrap_or(0));
            state.is_queued = true;
            self.queue.push(Reverse((entered.ticks(), thread)));
        }
    }
}

/// The chunks of calls that are read; `place` counts those of a thread.
pub(crate) trait Bodies<'b> {
    /// The body at a place, `None` behind the last.
    fn body(&self, thread: u32, place: usize) -> Option<&'b [u8]>;
    /// The number in its thread of the first call that is entered there, by the chunk's head.
    fn first(&self, thread: u32, place: usize) -> Option<u64>;
}

impl<'t> Bodies<'t> for &'t Trace {
    fn body(&self, thread: u32, place: usize) -> Option<&'t [u8]> {
        let &number = self.thread_chunks(thread).get(place)?;
        Some(Trace::body(self, number))
    }

    fn first(&self, thread: u32, place: usize) -> Option<u64> {
        let &number = self.thread_chunks(thread).get(place)?;
        Some(self.chunk(number).head.first)
    }
}

/// The record at a position, which moves behind it, if need be to the thread's next chunk. `body`
/// is that of the position's chunk.
#[inline(always)]
fn next_record<'b>(
    bodies: &impl Bodies<'b>,
    thread: u32,
    position: &mut Position,
    body: &mut &'b [u8],
) -> Option<(RecordHead, &'b [u8])> {
    let (head, record) = match record_at(body, position.offset) {
        Some(record) => record,
        None => next_chunk(bodies, thread, position, body)?,
    };
    position.offset += record.len();
    Some((head, record.get(RECORD_HEAD_LENGTH..)?))
}

/// Moves to the next of the thread's chunks that has a record, and gives its first one.
#[cold]
#[inline(never)]
fn next_chunk<'b>(
    bodies: &impl Bodies<'b>,
    thread: u32,
    position: &mut Position,
    body: &mut &'b [u8],
) -> Option<(RecordHead, &'b [u8])> {
    let mut chunk = position.chunk;
    loop {
        // A thread begins a chunk only when the one before is complete.
        chunk += 1;
        *body = bodies.body(thread, chunk)?;
        *position = Position { chunk, offset: 0 };
        if let Some(record) = record_at(body, 0) {
            return Some(record);
        }
    }
}

/// A call whose enter part has been read.
pub(crate) struct EnteredCall<'t> {
    function: u16,
    enter: Enter<'t>,
    /// Behind the record.
    behind: Position,
    /// The body that the record is in.
    body: &'t [u8],
}

impl EnteredCall<'_> {
    pub(crate) fn ticks(&self) -> u64 {
        self.enter.head.ticks
    }
}

/// Moves to the next record that enters a call.
#[inline(always)]
pub(crate) fn seek_enter<'b>(
    trace: &Trace,
    bodies: &impl Bodies<'b>,
    thread: u32,
    position: &mut Position,
) -> Option<EnteredCall<'b>> {
    let start_ticks = trace.head().start_ticks;
    let mut body = bodies.body(thread, position.chunk)?;
    loop {
        let mut behind = *position;
        let (head, record) = next_record(bodies, thread, &mut behind, &mut body)?;
        let known = trace.signatures().function(head.function);
        if record_kind::is_enter(head.kind)
            && let Some(enter) = Enter::read(known, start_ticks, head, record)
        {
            // At the record itself, which may be the first of a further chunk.
            *position = Position {
                offset: behind.offset - head.length as usize,
                ..behind
            };
            return Some(EnteredCall {
                function: head.function,
                enter,
                behind,
                body,
            });
        }
        *position = behind;
    }
}

/// A call with what its records have of it.
pub(crate) struct AssembledCall<'t> {
    pub(crate) call: Call<'t>,
    /// Behind the records of the call.
    pub(crate) position: Position,
    /// It has returned, or its thread has entered another call since.
    is_over: bool,
}

impl<'r> CallParts<'r> for Call<'r> {
    fn leave(&mut self, leave: Option<Leave<'r>>) {
        self.leave = leave;
    }

    fn single_snapshot(&mut self, snapshot: SingleSnapshot<'r>) {
        self.single_snapshot = Some(snapshot);
    }

    fn more_snapshots(&mut self, encoded: &'r [u8]) {
        self.more_snapshots = encoded;
    }

    fn note(&mut self, kind: u16, bytes: &'r [u8]) {
        self.notes.push((kind, bytes));
    }
}

/// Adds to an entered call the records that follow.
#[inline(always)]
pub(crate) fn assemble<'t>(
    trace: &'t Trace,
    bodies: &impl Bodies<'t>,
    thread: u32,
    number: u64,
    entered: EnteredCall<'t>,
) -> AssembledCall<'t> {
    let EnteredCall {
        function,
        enter,
        behind: mut position,
        mut body,
    } = entered;
    let mut call = Call {
        index: 0,
        thread,
        number,
        signature: trace.signature(function),
        ticks: enter.head.ticks,
        caller: enter.head.caller,
        arguments: enter.arguments,
        snapshots: enter.snapshots,
        more_snapshots: &[],
        single_snapshot: None,
        notes: Vec::new(),
        leave: None,
    };
    let is_over = loop {
        let mut behind = position;
        let Some((head, record)) = next_record(bodies, thread, &mut behind, &mut body) else {
            break false;
        };
        // True if calls of this thread are missing between the two chunks.
        let is_gap = position.chunk != behind.chunk
            && bodies
                .first(thread, behind.chunk)
                .is_some_and(|first| first.saturating_sub(1) > number);
        if is_gap || record_kind::is_enter(head.kind) {
            break true;
        }
        position = behind;
        let entered_ticks = call.ticks;
        if add_record(head, record, function, entered_ticks, &mut call) {
            break true;
        }
    };
    AssembledCall {
        call,
        position,
        is_over,
    }
}

impl Trace {
    /// All calls, in the order in which they were entered. Their records stay in memory while the
    /// trace is open; [`Trace::walk`] needs memory for a few chunks only.
    pub fn calls(&self) -> Calls<'_> {
        Calls {
            trace: self,
            cursor: Cursor::new(),
        }
    }
}

/// Iterates over all calls of a complete trace.
#[derive(Clone, Debug)]
pub struct Calls<'t> {
    trace: &'t Trace,
    cursor: Cursor,
}

impl<'t> Iterator for Calls<'t> {
    type Item = Call<'t>;

    #[inline]
    fn next(&mut self) -> Option<Call<'t>> {
        self.cursor.next(self.trace)
    }
}
