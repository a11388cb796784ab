//! Walking over calls with memory for a few chunks, whatever the length of the trace; on two processors where there are two: one
//! unpacks chunks and looks through them, the other puts calls together and does what is wanted with them.

use std::borrow::Cow;
use std::cell::{Cell, OnceCell, RefCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::sync::mpsc;
use std::thread;

use crate::call::Call;
use crate::contents::{Contents, Named};
use crate::cursor::{Bodies, Position, assemble, seek_enter};
use crate::ordered::processors;
use crate::pack::{Missing, missing_ranges};
use crate::trace::{Damage, Error, Trace};

/// A walk over fewer calls loads chunks when it comes to them.
const WORTH_LOADING_AHEAD: u64 = 1 << 16;

/// What a walk over a whole trace has seen beside the calls: see [`Walk::run`].
#[derive(Debug, Default)]
pub struct Walked {
    named: Named,
    damage: Vec<Damage>,
    unknown_function: Option<Damage>,
}

impl Walked {
    /// What is wrong with the records: malformed ones, chunks that do not begin with the call that they say, blobs that are
    /// missing. With [`Trace::verify_blobs`] this is all that [`Trace::verify`] finds.
    pub fn damage(&self, trace: &Trace) -> Vec<Damage> {
        let blobs = self.named.blobs.iter();
        let mut blobs: Vec<_> = blobs.filter_map(|&blob| trace.blob(blob).err()).collect();
        blobs.sort_by_key(|damage| damage.position);
        self.damage.iter().cloned().chain(blobs).collect()
    }

    /// As [`Trace::unknown_function`].
    pub fn unknown_function(&self) -> Option<&Damage> {
        self.unknown_function.as_ref()
    }

    /// As [`Trace::missing`].
    pub fn missing(&self, trace: &Trace) -> Vec<Missing> {
        missing_ranges(trace, &self.named)
    }
}

/// A walk over the calls of a complete trace, in the order in which they were entered.
#[derive(Clone, Debug)]
pub struct Walk<'t> {
    trace: &'t Trace,
    range: Range<u64>,
}

impl Trace {
    /// A walk over all calls.
    pub fn walk(&self) -> Walk<'_> {
        Walk {
            trace: self,
            range: 0..u64::MAX,
        }
    }

    /// The chunks of calls that a walk to a range has to pass, or `None` if nothing says which: then it is all.
    fn start_of(&self, from: u64) -> Option<Start> {
        if from == 0 || self.counts.is_empty() {
            return None;
        }
        let mut counts: Vec<Vec<&crate::pack::CallsEntry>> = vec![Vec::new(); self.threads.len()];
        let mut order: Vec<(u64, usize, usize)> = Vec::new();
        let chunk_of = |position| {
            self.chunks
                .partition_point(|chunk| chunk.position < position)
        };
        for entry in &self.counts {
            let thread = self.chunks.get(chunk_of(entry.position))?.head.thread as usize;
            counts.get_mut(thread)?.push(entry);
        }
        for (thread, entries) in counts.iter().enumerate() {
            // Positions and the order of a thread's chunks are the same thing in a packed trace.
            let places = self.threads.get(thread)?;
            let sorted = places
                .iter()
                .map(|&chunk| self.chunk_position(chunk))
                .eq(entries.iter().map(|entry| entry.position));
            if !sorted {
                return None;
            }
            let entered = entries.iter().zip(0..).filter(|(entry, _)| entry.calls > 0);
            order.extend(entered.map(|(entry, place)| (entry.ticks, thread, place)));
        }
        order.sort_unstable();
        // A chunk's first call is entered behind all calls of the chunks before it in this order that are not in its thread's last one, and
        // at most all calls of all of these come before it. While they are not more than `from`, what is passed over comes before `from`.
        let mut places = vec![0; self.threads.len()];
        let (mut passed, mut at_most) = (0_u64, 0_u64);
        for (_, thread, place) in order {
            let entries = counts.get(thread)?;
            at_most = at_most.checked_add(entries.get(place)?.calls)?;
            if at_most > from {
                break;
            }
            let before = entries.get(places[thread]..place)?.iter();
            passed += before.map(|entry| entry.calls).sum::<u64>();
            places[thread] = place;
        }
        let mut walked = Vec::new();
        let mut from_places = Vec::new();
        for ((chunks, entries), &first) in self.threads.iter().zip(&counts).zip(&places) {
            // A call may return in the chunk behind the one that it was entered in.
            let introduces = |place: usize| {
                entries
                    .get(place)
                    .is_some_and(|entry| entry.introduces != 0)
            };
            let earlier: Vec<usize> = (0..first)
                .filter(|&place| introduces(place) || place > 0 && introduces(place - 1))
                .collect();
            from_places.push(earlier.len());
            walked.push(
                earlier
                    .iter()
                    .copied()
                    .chain(first..chunks.len())
                    .map(|place| chunks[place])
                    .collect(),
            );
        }
        Some(Start {
            chunks: walked,
            first: from_places,
            passed,
        })
    }
}

/// Where a walk begins.
struct Start {
    /// For each thread the chunks that are walked over.
    chunks: Vec<Vec<usize>>,
    /// For each thread the first of them whose calls are counted.
    first: Vec<usize>,
    /// How many calls there are before those that are counted.
    passed: u64,
}

impl<'t> Walk<'t> {
    /// Only these calls, by index. Of those before them at least the ones that say what handles stand for are passed as well, with
    /// an index that lies before the range but is not always theirs; where the trace says which chunks to read, the time does not
    /// depend on its length.
    pub fn calls(mut self, range: Range<u64>) -> Self {
        self.range = range;
        self
    }

    /// Walks. `each` may end the walk with an error of its own.
    ///
    /// What a call borrows lives until `each` returns. [`Walked`] is of use only after a walk over all calls.
    ///
    /// # Errors
    /// [`Error::Damaged`] at a chunk that cannot be read, after the calls before it; what `each` returns.
    pub fn run<E: From<Error>>(
        self,
        mut each: impl FnMut(&Call<'_>) -> Result<(), E>,
    ) -> Result<Walked, E> {
        let mut reader = Reader::new(self.trace, &self.range);
        let trace = self.trace;
        let chunks: usize = reader.store.chunks.iter().map(Vec::len).sum();
        let calls = self.range.end.saturating_sub(self.range.start);
        if chunks < 2 || calls < WORTH_LOADING_AHEAD || processors() == 1 {
            reader.walk(&mut each)?;
            return Ok(reader.walked());
        }
        thread::scope(move |scope| {
            let (ask, asked) = mpsc::channel();
            let (give, given) = mpsc::channel();
            scope.spawn(move || {
                for wanted in asked {
                    // Nobody takes it if the walk is over.
                    if give.send(Loaded::new(trace, wanted)).is_err() {
                        return;
                    }
                }
            });
            reader.store.loader = Some(Loader { ask, given });
            reader.walk(&mut each)?;
            Ok(reader.walked())
        })
    }
}

/// A chunk of calls: its thread, its place among the thread's chunks that are walked over, its number in the trace.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    thread: usize,
    place: usize,
    chunk: usize,
}

/// The chunk's body with what it holds, or why there is none.
struct Loaded<'t> {
    wanted: Wanted,
    body: Result<(Cow<'t, [u8]>, Contents), Damage>,
}

impl<'t> Loaded<'t> {
    fn new(trace: &'t Trace, wanted: Wanted) -> Self {
        let body = trace.load(wanted.chunk).map(|body| {
            let contents = Contents::of(trace, &body);
            (body, contents)
        });
        Self { wanted, body }
    }
}

/// A chunk's body, or why there is none.
type Body<'t> = Result<Cow<'t, [u8]>, Damage>;

/// The other processor's end: loads what it is asked for, in that order.
struct Loader<'t> {
    ask: mpsc::Sender<Wanted>,
    given: mpsc::Receiver<Loaded<'t>>,
}

/// The bodies of the chunks that are walked over, from when they are needed (one chunk a thread earlier where there is a loader)
/// until they are passed.
struct Store<'t> {
    trace: &'t Trace,
    /// For each thread the chunks that are walked over.
    chunks: Vec<Vec<usize>>,
    bodies: Vec<Vec<OnceCell<Body<'t>>>>,
    /// For each thread how many of its chunks the loader has been asked for.
    asked: Vec<Cell<usize>>,
    loader: Option<Loader<'t>>,
    seen: RefCell<Seen>,
    /// The first chunk that was needed and could not be read.
    unreadable: OnceCell<Damage>,
}

/// What the chunks that were loaded hold.
#[derive(Debug, Default)]
struct Seen {
    walked: Walked,
    /// For each thread how many calls its chunks so far hold.
    entered: Vec<u64>,
}

impl<'t> Store<'t> {
    /// Loads a body that is needed now, and lets the next one of the thread be loaded meanwhile.
    #[cold]
    fn load(&self, thread: usize, place: usize) {
        let Some(chunks) = self.chunks.get(thread) else {
            return;
        };
        let wanted = |place: usize| {
            let chunk = *chunks.get(place)?;
            Some(Wanted {
                thread,
                place,
                chunk,
            })
        };
        let body = &self.bodies[thread][place];
        if let Some(loader) = &self.loader {
            let asked = &self.asked[thread];
            while let Some(next) = wanted(asked.get().max(place)).filter(|n| n.place <= place + 1) {
                asked.set(next.place + 1);
                if loader.ask.send(next).is_err() {
                    break;
                }
            }
            while body.get().is_none() {
                // If the loader has ended before its time, that comes out where it is joined.
                let Ok(loaded) = loader.given.recv() else {
                    break;
                };
                self.keep(loaded);
            }
        }
        if body.get().is_none()
            && let Some(wanted) = wanted(place)
        {
            self.keep(Loaded::new(self.trace, wanted));
        }
    }

    fn keep(&self, loaded: Loaded<'t>) {
        let Wanted {
            thread,
            place,
            chunk,
        } = loaded.wanted;
        let body = loaded.body.map(|(body, contents)| {
            let mut seen = self.seen.borrow_mut();
            seen.look_at(self.trace, thread, chunk, &body, contents);
            body
        });
        // Nobody else has put one there.
        let _ = self.bodies[thread][place].set(body);
    }
}

impl<'s> Bodies<'s> for &'s Store<'_> {
    #[inline]
    fn body(&self, thread: usize, place: usize) -> Option<&'s [u8]> {
        let body = self.bodies.get(thread)?.get(place)?;
        if body.get().is_none() {
            self.load(thread, place);
        }
        match body.get()? {
            Ok(body) => Some(body),
            Err(damage) => {
                self.unreadable.get_or_init(|| damage.clone());
                None
            }
        }
    }

    fn first(&self, thread: usize, place: usize) -> Option<u64> {
        let chunk = *self.chunks.get(thread)?.get(place)?;
        Some(self.trace.chunk_head(chunk).first)
    }
}

impl Seen {
    fn look_at(
        &mut self,
        trace: &Trace,
        thread: usize,
        chunk: usize,
        body: &[u8],
        contents: Contents,
    ) {
        let position = trace.chunk_position(chunk);
        let walked = &mut self.walked;
        walked.damage.extend(
            contents
                .malformed(body)
                .map(|what| Damage { position, what }),
        );
        if self.entered.len() <= thread {
            self.entered.resize(thread + 1, 0);
        }
        walked
            .damage
            .extend(trace.misnumbered(chunk, &mut self.entered[thread], &contents));
        if walked.unknown_function.is_none() {
            walked.unknown_function = contents.unknown_function_at(position);
        }
        walked.named.append(contents.named);
    }
}

#[derive(Clone, Debug, Default)]
struct ThreadState {
    position: Position,
    calls: u64,
    /// What is to be done where a chunk begins has been done up to this place; the bodies before it are gone.
    arrived: Option<usize>,
}

/// Puts calls together, in the order in which they were entered.
struct Reader<'t> {
    store: Store<'t>,
    first_counted: Vec<usize>,
    threads: Vec<ThreadState>,
    /// (ticks, thread) of every thread that has a next call and is not being walked over.
    queue: BinaryHeap<Reverse<(u64, u32)>>,
    index: u64,
    end: u64,
}

impl<'t> Reader<'t> {
    fn new(trace: &'t Trace, range: &Range<u64>) -> Self {
        let start = trace.start_of(range.start).unwrap_or_else(|| Start {
            chunks: trace.threads.clone(),
            first: vec![0; trace.threads.len()],
            passed: 0,
        });
        let empty = |chunks: &Vec<usize>| chunks.iter().map(|_| OnceCell::new()).collect();
        Self {
            threads: vec![ThreadState::default(); start.chunks.len()],
            store: Store {
                trace,
                bodies: start.chunks.iter().map(empty).collect(),
                asked: vec![Cell::new(0); start.chunks.len()],
                chunks: start.chunks,
                loader: None,
                seen: RefCell::default(),
                unreadable: OnceCell::new(),
            },
            first_counted: start.first,
            queue: BinaryHeap::new(),
            index: start.passed,
            end: range.end,
        }
    }

    fn walked(self) -> Walked {
        self.store.seen.into_inner().walked
    }

    /// Moves a thread to its next call; when that is entered.
    fn next_of(&mut self, thread: usize) -> Option<u64> {
        let state = self.threads.get_mut(thread)?;
        let found = seek_enter(self.store.trace, &&self.store, thread, &mut state.position)?;
        let ticks = found.ticks();
        if state.arrived != Some(state.position.chunk) {
            self.arrive(thread);
        }
        Some(ticks)
    }

    /// Does what is to be done where the next call is in another chunk than the one before.
    #[cold]
    fn arrive(&mut self, thread: usize) {
        let state = &mut self.threads[thread];
        let place = state.position.chunk;
        // As in a cursor: calls that are lost or passed over have had their numbers.
        let first = (&self.store).first(thread, place).unwrap_or(0);
        state.calls = state.calls.max(first);
        for passed in state.arrived.unwrap_or(0)..place {
            self.store.bodies[thread][passed].take();
            self.store.trace.let_go(self.store.chunks[thread][passed]);
        }
        state.arrived = Some(place);
    }

    /// Walks over all calls; the error is of a chunk that cannot be read, behind the calls before it, or that of `each`.
    fn walk<E: From<Error>>(
        &mut self,
        each: &mut impl FnMut(&Call<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        for thread in 0..self.threads.len() {
            if let Some(ticks) = self.next_of(thread) {
                self.queue.push(Reverse((ticks, thread as u32)));
            }
        }
        while self.index < self.end {
            if let Some(damage) = self.store.unreadable.get() {
                return Err(E::from(Error::Damaged {
                    path: self.store.trace.path().to_owned(),
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

    /// Walks over calls of one thread, up to the first that another thread's next call comes before.
    fn walk_thread<E>(
        &mut self,
        ordinal: u32,
        each: &mut impl FnMut(&Call<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let trace = self.store.trace;
        let thread = ordinal as usize;
        let bound = self.queue.peek().map(|&Reverse(next)| next);
        while self.index < self.end {
            let state = &mut self.threads[thread];
            let store = &self.store;
            let Some(found) = seek_enter(trace, &store, thread, &mut state.position) else {
                break;
            };
            let next = (found.ticks(), ordinal);
            let place = state.position.chunk;
            if state.arrived != Some(place) {
                self.arrive(thread);
                continue;
            }
            if bound.is_some_and(|bound| next > bound) {
                self.queue.push(Reverse(next));
                break;
            }
            let mut assembled = assemble(trace, &store, ordinal, state.calls, found);
            if store.unreadable.get().is_some() {
                break;
            }
            assembled.call.index = self.index;
            each(&assembled.call)?;
            state.position = assembled.position;
            state.calls += 1;
            let counted = self.first_counted.get(thread);
            self.index += u64::from(counted.is_none_or(|&first| place >= first));
        }
        Ok(())
    }
}
