//! Walking over calls with memory for a few chunks. Other threads, where there are processors for
//! them, load chunks and outline their calls; this one assembles the calls and hands them out.

mod load;
mod start;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::thread;

use crate::parallel::processors;
use crate::read::call::Call;
use crate::read::cursor::{Position, assemble, seek_enter};
use crate::read::error::Error;
use crate::read::trace::Trace;
use crate::read::verify::WalkSummary;
use load::Store;
use start::Start;

/// A walk over fewer calls loads chunks when it reaches them.
const CALLS_WORTH_LOADERS: u64 = 1 << 16;
/// More threads would wait for the one that takes the calls.
const MOST_LOADERS: usize = 4;

/// A walk over the calls of a complete trace, in the order in which they were entered.
#[derive(Clone, Debug)]
pub struct Walk<'t> {
    trace: &'t Trace,
    range: Range<u64>,
    /// Whether calls before the range that introduce handles are passed.
    passes_earlier: bool,
}

impl Trace {
    /// A walk over all calls.
    pub fn walk(&self) -> Walk<'_> {
        Walk {
            trace: self,
            range: 0..u64::MAX,
            passes_earlier: true,
        }
    }
}

impl Walk<'_> {
    /// Only these calls, by index. The walk also passes calls before them, at least those that
    /// introduce handles, with an index before the range that is not always theirs. Where the trace
    /// has call counts, the time does not depend on its length.
    pub fn calls(mut self, range: Range<u64>) -> Self {
        self.range = range;
        self
    }

    /// Does not pass calls for the handles that they introduce, for a caller who knows these. The
    /// index of each call that is passed is its own; some may lie before the range.
    pub fn without_earlier(mut self) -> Self {
        self.passes_earlier = false;
        self
    }

    /// Walks. `each` may end the walk with an error of its own.
    ///
    /// What a call borrows lives until `each` returns. The summary is complete only after a walk
    /// over all calls.
    ///
    /// # Errors
    /// [`Error::Damaged`] at a chunk that cannot be read, after the calls before it; what `each`
    /// returns.
    pub fn run<E: From<Error>>(
        self,
        mut each: impl FnMut(&Call<'_>) -> Result<(), E>,
    ) -> Result<WalkSummary, E> {
        let mut reader = Reader::new(self.trace, &self.range, self.passes_earlier);
        let calls = self.range.end.saturating_sub(self.range.start);
        if reader.store.chunk_count() < 2 || calls < CALLS_WORTH_LOADERS || processors() == 1 {
            reader.walk(&mut each)?;
            return Ok(reader.store.into_summary());
        }
        thread::scope(|scope| {
            let loaders = processors().min(MOST_LOADERS);
            reader.store.spawn_loaders(scope, loaders);
            let outcome = reader.walk(&mut each);
            // Dropping the store ends the threads.
            let summary = reader.store.into_summary();
            outcome.map(|()| summary)
        })
    }
}

#[derive(Clone, Debug, Default)]
struct ThreadState {
    /// Place of the chunk that the next call may be in, and which of that chunk's calls it would
    /// be.
    place: usize,
    next: usize,
    calls: u64,
    /// The place whose chunk was begun last; the chunks before it are released.
    begun: Option<usize>,
}

/// Assembles calls in the order in which they were entered.
struct Reader<'t> {
    trace: &'t Trace,
    store: Store<'t>,
    /// For each thread the first place whose calls are counted.
    first_counted: Vec<usize>,
    threads: Vec<ThreadState>,
    /// (ticks, thread) of every thread that has a next call and is not being walked over.
    queue: BinaryHeap<Reverse<(u64, u32)>>,
    index: u64,
    end: u64,
}

impl<'t> Reader<'t> {
    fn new(trace: &'t Trace, range: &Range<u64>, passes_earlier: bool) -> Self {
        let start = Start::find(trace, range.start, passes_earlier);
        let start = start.unwrap_or_else(|| Start::of_all(trace));
        Self {
            trace,
            threads: vec![ThreadState::default(); start.chunks.len()],
            store: Store::new(trace, start.chunks),
            first_counted: start.first_counted,
            queue: BinaryHeap::new(),
            index: start.passed,
            end: range.end,
        }
    }

    /// Moves a thread to the chunk of its next call; the ticks of that call.
    fn next_of(&mut self, thread: u32) -> Option<u64> {
        let state = self.threads.get_mut(thread as usize)?;
        let ticks = loop {
            let chunk = self.store.chunk(thread, state.place)?;
            match chunk.outlines.calls.get(state.next) {
                Some(outline) => break outline.ticks,
                None => (state.place, state.next) = (state.place + 1, 0),
            }
        };
        if state.begun != Some(state.place) {
            let passed = state.begun.unwrap_or(0)..state.place;
            // Lost and skipped calls keep their numbers.
            state.calls = state.calls.max(self.store.begin(thread, passed));
            state.begun = Some(state.place);
        }
        Some(ticks)
    }

    /// Walks over all calls. An error is that of a chunk that cannot be read, or of `each`.
    fn walk<E: From<Error>>(
        &mut self,
        each: &mut impl FnMut(&Call<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        for thread in 0..self.threads.len() as u32 {
            if let Some(ticks) = self.next_of(thread) {
                self.queue.push(Reverse((ticks, thread)));
            }
        }
        while self.index < self.end {
            if let Some(damage) = self.store.unreadable() {
                return Err(E::from(Error::Damaged {
                    path: self.trace.path().to_owned(),
                    first: damage.clone(),
                    more: 0,
                }));
            }
            let Some(Reverse((_, thread))) = self.queue.pop() else {
                break;
            };
            self.walk_thread(thread, each)?;
        }
        Ok(())
    }

    /// Walks over calls of one thread, until another thread's next call is earlier.
    fn walk_thread<E>(
        &mut self,
        thread: u32,
        each: &mut impl FnMut(&Call<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let bound = self.queue.peek().map(|&Reverse(next)| next);
        while self.index < self.end && self.next_of(thread).is_some() {
            if !self.walk_chunk(thread, bound, each)? {
                break;
            }
        }
        Ok(())
    }

    /// Walks over calls of the chunk that a thread is in; false if they end before the chunk does.
    fn walk_chunk<E>(
        &mut self,
        thread: u32,
        bound: Option<(u64, u32)>,
        each: &mut impl FnMut(&Call<'_>) -> Result<(), E>,
    ) -> Result<bool, E> {
        let (trace, store) = (self.trace, &self.store);
        let Some(state) = self.threads.get_mut(thread as usize) else {
            return Ok(false);
        };
        let place = state.place;
        let Some(chunk) = store.chunk(thread, place) else {
            return Ok(false);
        };
        let outlines = &chunk.outlines;
        let first_counted = self.first_counted.get(thread as usize);
        let counted = u64::from(first_counted.is_none_or(|&first| place >= first));
        while let Some(outline) = outlines.calls.get(state.next) {
            let next = (outline.ticks, thread);
            if bound.is_some_and(|bound| next > bound) {
                self.queue.push(Reverse(next));
                return Ok(false);
            }
            if self.index >= self.end {
                return Ok(false);
            }
            let (numbers, index, number) = (&outlines.numbers, self.index, state.calls);
            if let Some(call) = outline.call(trace, &chunk.body, numbers, thread, number, index) {
                each(&call)?;
                state.next += 1;
            } else {
                let mut position = Position {
                    chunk: place,
                    offset: outline.enter,
                };
                let Some(entered) = seek_enter(trace, &store, thread, &mut position) else {
                    return Ok(false);
                };
                let mut assembled = assemble(trace, &store, thread, number, entered);
                if store.unreadable().is_some() {
                    return Ok(false);
                }
                assembled.call.index = index;
                each(&assembled.call)?;
                state.next += 1;
                if assembled.position.chunk != place {
                    // It was the last of this chunk.
                    (state.place, state.next) = (assembled.position.chunk, 0);
                }
            }
            state.calls = state.calls.saturating_add(1);
            self.index += counted;
            if state.place != place {
                break;
            }
        }
        Ok(true)
    }
}
