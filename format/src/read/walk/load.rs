//! The chunks of a walk, in memory from shortly before they are needed until they are passed.

use std::borrow::Cow;
use std::cell::{Cell, OnceCell, RefCell};
use std::ops::Range;
use std::thread::Scope;

use crate::parallel::Workers;
use crate::read::contents::Contents;
use crate::read::cursor::Bodies;
use crate::read::error::Damage;
use crate::read::outline::Outlines;
use crate::read::trace::Trace;
use crate::read::verify::WalkSummary;

/// A chunk of calls.
pub(super) struct LoadedChunk<'t> {
    pub(super) body: Cow<'t, [u8]>,
    /// The calls that are entered in it.
    pub(super) outlines: Outlines,
}

/// Thread, place among the thread's chunks, number in the trace.
#[derive(Clone, Copy, Debug)]
struct ChunkId {
    thread: u32,
    place: usize,
    number: usize,
}

/// A chunk with its contents, or why it cannot be read.
struct Outcome<'t> {
    chunk: ChunkId,
    loaded: Result<(LoadedChunk<'t>, Contents), Damage>,
}

impl<'t> Outcome<'t> {
    fn load(trace: &'t Trace, chunk: ChunkId, reused: Outlines) -> Self {
        let loaded = trace.load(chunk.number).map(|body| {
            let (contents, outlines) = Contents::with_outlines(trace, &body, reused);
            (LoadedChunk { body, outlines }, contents)
        });
        Self { chunk, loaded }
    }
}

pub(super) struct Store<'t> {
    trace: &'t Trace,
    /// For each thread the chunks that are walked over.
    chunks: Vec<Vec<usize>>,
    loaded: Vec<Vec<OnceCell<Result<LoadedChunk<'t>, Damage>>>>,
    /// For each thread how many of its chunks have been requested.
    requested: Vec<Cell<usize>>,
    /// Threads that load chunks, each given memory for its outlines.
    loaders: Option<Workers<(ChunkId, Outlines), Outcome<'t>>>,
    /// The outlines of the chunk that was passed last, for their memory.
    reused: Cell<Outlines>,
    summary: RefCell<WalkSummary>,
    /// The first chunk that was needed and could not be read.
    unreadable: OnceCell<Damage>,
}

impl<'t> Store<'t> {
    pub(super) fn new(trace: &'t Trace, chunks: Vec<Vec<usize>>) -> Self {
        let cells = |chunks: &Vec<usize>| chunks.iter().map(|_| OnceCell::new()).collect();
        Self {
            trace,
            loaded: chunks.iter().map(cells).collect(),
            requested: vec![Cell::new(0); chunks.len()],
            chunks,
            loaders: None,
            reused: Cell::default(),
            summary: RefCell::default(),
            unreadable: OnceCell::new(),
        }
    }

    /// Starts threads, if the system has any, which end when the store is dropped.
    pub(super) fn spawn_loaders<'s>(&mut self, scope: &'s Scope<'s, '_>, threads: usize)
    where
        't: 's,
    {
        let trace = self.trace;
        let load = move |(chunk, reused)| Outcome::load(trace, chunk, reused);
        self.loaders = Workers::spawn(scope, threads, load);
    }

    pub(super) fn chunk_count(&self) -> usize {
        self.chunks.iter().map(Vec::len).sum()
    }

    pub(super) fn into_summary(self) -> WalkSummary {
        self.summary.into_inner()
    }

    pub(super) fn unreadable(&self) -> Option<&Damage> {
        self.unreadable.get()
    }

    /// The chunk at a place, `None` behind the last and where it cannot be read.
    #[inline]
    pub(super) fn chunk(&self, thread: u32, place: usize) -> Option<&LoadedChunk<'t>> {
        let chunk = self.loaded.get(thread as usize)?.get(place)?;
        if chunk.get().is_none() {
            self.load(thread, place);
        }
        match chunk.get()? {
            Ok(chunk) => Some(chunk),
            Err(damage) => {
                self.unreadable.get_or_init(|| damage.clone());
                None
            }
        }
    }

    /// Loads a chunk that is needed now, and requests those of its thread that are needed next.
    #[cold]
    fn load(&self, thread: u32, place: usize) -> Option<()> {
        let chunks = self.chunks.get(thread as usize)?;
        let cell = self.loaded.get(thread as usize)?.get(place)?;
        let chunk_at = |place: usize| {
            let number = *chunks.get(place)?;
            Some(ChunkId {
                thread,
                place,
                number,
            })
        };
        if let Some(loaders) = &self.loaders {
            let requested = self.requested.get(thread as usize)?;
            let ahead = 1 + loaders.threads / self.chunks.len().max(1);
            for place in requested.get().max(place)..=place + ahead {
                let Some(chunk) = chunk_at(place) else { break };
                requested.set(place + 1);
                loaders.push((chunk, self.reused.take()));
            }
            while cell.get().is_none()
                && let Some(outcome) = loaders.next()
            {
                self.keep(outcome);
            }
        }
        if cell.get().is_none() {
            self.keep(Outcome::load(
                self.trace,
                chunk_at(place)?,
                self.reused.take(),
            ));
        }
        Some(())
    }

    fn keep(&self, outcome: Outcome<'t>) -> Option<()> {
        let ChunkId {
            thread,
            place,
            number,
        } = outcome.chunk;
        let chunk = outcome.loaded.map(|(chunk, contents)| {
            self.summary.borrow_mut().add(self.trace, number, contents);
            chunk
        });
        let cell = self.loaded.get(thread as usize)?.get(place)?;
        // Each chunk is loaded once.
        let _ = cell.set(chunk);
        Some(())
    }

    /// Releases the chunks of a thread that have been passed; the number of the first call in the
    /// chunk behind them.
    #[cold]
    pub(super) fn begin(&mut self, thread: u32, passed: Range<usize>) -> u64 {
        let place = passed.end;
        let numbers = self.chunks.get(thread as usize);
        let cells = self.loaded.get_mut(thread as usize);
        if let (Some(numbers), Some(cells)) = (numbers, cells) {
            for (cell, &number) in cells.iter_mut().zip(numbers).take(place).skip(passed.start) {
                if let Some(Ok(chunk)) = cell.take() {
                    self.reused.set(chunk.outlines);
                }
                self.trace.release(number);
            }
        }
        (&*self).first(thread, place).unwrap_or(0)
    }
}

impl<'s> Bodies<'s> for &'s Store<'_> {
    fn body(&self, thread: u32, place: usize) -> Option<&'s [u8]> {
        let store: &'s Store<'_> = self;
        store.chunk(thread, place).map(|chunk| &*chunk.body)
    }

    fn first(&self, thread: u32, place: usize) -> Option<u64> {
        let &number = self.chunks.get(thread as usize)?.get(place)?;
        Some(self.trace.chunk(number).head.first)
    }
}
