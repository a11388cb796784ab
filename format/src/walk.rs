//! Walking over calls with memory for a few chunks, whatever the length of the trace; on several processors where there are several:
//! other threads unpack chunks, look through them and put their calls in outline, this one does what is wanted with the calls.

use std::borrow::Cow;
use std::cell::{Cell, OnceCell, RefCell};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::ops::Range;
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;

use crate::call::Call;
use crate::contents::{Contents, Named};
use crate::cursor::{Bodies, Position, assemble, seek_enter};
use crate::ordered::processors;
use crate::outline::Outlines;
use crate::pack::{MissingFileRange, missing_ranges};
use crate::trace::{Damage, Error, Trace};

/// A walk over fewer calls loads chunks when it comes to them.
const WORTH_LOADING_AHEAD: u64 = 1 << 16;
/// More threads than this would wait for the one that takes the calls.
const MOST_LOADERS: usize = 4;

/// What a walk over a whole trace has seen beside the calls: see [`Walk::run`].
#[derive(Debug, Default)]
pub struct WalkSummary {
    named: Named,
    damage: Vec<Damage>,
    unknown_function: Option<Damage>,
}

impl WalkSummary {
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
    pub fn missing(&self, trace: &Trace) -> Vec<MissingFileRange> {
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
    /// What a call borrows lives until `each` returns. [`WalkSummary`] is of use only after a walk over all calls.
    ///
    /// # Errors
    /// [`Error::Damaged`] at a chunk that cannot be read, after the calls before it; what `each` returns.
    pub fn run<E: From<Error>>(
        self,
        mut each: impl FnMut(&Call<'_>) -> Result<(), E>,
    ) -> Result<WalkSummary, E> {
        let mut reader = Reader::new(self.trace, &self.range);
        let trace = self.trace;
        let chunks: usize = reader.store.chunks.iter().map(Vec::len).sum();
        let calls = self.range.end.saturating_sub(self.range.start);
        if chunks < 2 || calls < WORTH_LOADING_AHEAD || processors() == 1 {
            reader.walk(&mut each)?;
            return Ok(reader.walked());
        }
        let loaders = processors().min(MOST_LOADERS);
        let (ask, asked) = mpsc::channel();
        let asked = Mutex::new(asked);
        thread::scope(|scope| {
            for _ in 0..loaders {
                scope.spawn(|| {
                    while let Some(Request { wanted, used, give }) = next_wanted(&asked) {
                        // Nobody takes it if the walk is over.
                        let _ = give.send(Loaded::new(trace, wanted, used));
                    }
                });
            }
            reader.store.loader = Some(Loader {
                ask,
                given: RefCell::default(),
                ahead: 1 + loaders / reader.store.chunks.len().max(1),
            });
            let outcome = reader.walk(&mut each);
            // With the reader goes the end at which loaders are asked, and so do they.
            let walked = reader.walked();
            outcome.map(|()| walked)
        })
    }
}

/// What a loader is asked for.
struct Request<'t> {
    wanted: Wanted,
    /// Memory for its outlines.
    used: Outlines,
    /// Where it is to be handed in.
    give: mpsc::Sender<Loaded<'t>>,
}

/// What a loader is to do next; `None` if nothing comes any more.
fn next_wanted<'t>(asked: &Mutex<mpsc::Receiver<Request<'t>>>) -> Option<Request<'t>> {
    let asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
    asked.recv().ok()
}

/// A chunk of calls: its thread, its place among the thread's chunks that are walked over, its number in the trace.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    thread: usize,
    place: usize,
    chunk: usize,
}

/// A chunk's body with what it holds, or why there is none.
struct Loaded<'t> {
    wanted: Wanted,
    chunk: Result<(Chunk<'t>, Contents), Damage>,
}

impl<'t> Loaded<'t> {
    fn new(trace: &'t Trace, wanted: Wanted, used: Outlines) -> Self {
        let chunk = trace.load(wanted.chunk).map(|body| {
            let (contents, outlines) = Contents::with_outlines(trace, &body, used);
            (Chunk { body, outlines }, contents)
        });
        Self { wanted, chunk }
    }
}

/// A chunk of calls that is walked over.
struct Chunk<'t> {
    body: Cow<'t, [u8]>,
    /// The calls that are entered in it.
    outlines: Outlines,
}

/// The other processors' end: they load what they are asked for.
struct Loader<'t> {
    ask: mpsc::Sender<Request<'t>>,
    /// Where what was asked for comes, in the order of asking, so that what is seen in chunks has an order.
    given: RefCell<VecDeque<mpsc::Receiver<Loaded<'t>>>>,
    /// How many chunks of a thread are loaded before they are needed.
    ahead: usize,
}

impl<'t> Loader<'t> {
    fn ask(&self, wanted: Wanted, used: Outlines) {
        let (give, given) = mpsc::channel();
        // If nobody is there any more, nothing will be given.
        let _ = self.ask.send(Request { wanted, used, give });
        self.given.borrow_mut().push_back(given);
    }

    /// What was asked for first of what has not been taken; `None` if nothing was, or if the one who loaded it has ended before his
    /// time, which comes out where he is joined.
    fn take(&self) -> Option<Loaded<'t>> {
        let given = self.given.borrow_mut().pop_front()?;
        given.recv().ok()
    }
}

/// The chunks that are walked over, from when they are needed (a few chunks a thread earlier where there is a loader) until they
/// are passed.
struct Store<'t> {
    trace: &'t Trace,
    /// For each thread the chunks that are walked over.
    chunks: Vec<Vec<usize>>,
    loaded: Vec<Vec<OnceCell<Result<Chunk<'t>, Damage>>>>,
    /// For each thread how many of its chunks the loader has been asked for.
    asked: Vec<Cell<usize>>,
    loader: Option<Loader<'t>>,
    /// The outlines of the chunk that was passed last: memory for those of another.
    used: Cell<Outlines>,
    seen: RefCell<Seen>,
    /// The first chunk that was needed and could not be read.
    unreadable: OnceCell<Damage>,
}

/// What the chunks that were loaded hold.
#[derive(Debug, Default)]
struct Seen {
    walked: WalkSummary,
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
        let chunk = &self.loaded[thread][place];
        if let Some(loader) = &self.loader {
            let asked = &self.asked[thread];
            let end = place + 1 + loader.ahead;
            while let Some(next) = wanted(asked.get().max(place)).filter(|n| n.place < end) {
                asked.set(next.place + 1);
                loader.ask(next, self.used.take());
            }
            while chunk.get().is_none() {
                let Some(loaded) = loader.take() else {
                    break;
                };
                self.keep(loaded);
            }
        }
        if chunk.get().is_none()
            && let Some(wanted) = wanted(place)
        {
            self.keep(Loaded::new(self.trace, wanted, self.used.take()));
        }
    }

    fn keep(&self, loaded: Loaded<'t>) {
        let Wanted {
            thread,
            place,
            chunk: number,
        } = loaded.wanted;
        let chunk = loaded.chunk.map(|(chunk, contents)| {
            let mut seen = self.seen.borrow_mut();
            seen.look_at(self.trace, thread, number, &chunk.body, contents);
            chunk
        });
        // Nobody else has put one there.
        let _ = self.loaded[thread][place].set(chunk);
    }

    /// The chunk at a place, `None` behind the last and where it cannot be read.
    #[inline]
    fn chunk(&self, thread: usize, place: usize) -> Option<&Chunk<'t>> {
        let chunk = self.loaded.get(thread)?.get(place)?;
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
}

impl<'s> Bodies<'s> for &'s Store<'_> {
    fn body(&self, thread: usize, place: usize) -> Option<&'s [u8]> {
        let store: &'s Store<'_> = self;
        store.chunk(thread, place).map(|chunk| &*chunk.body)
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
    /// Which of its chunks the next call may be in, and which of that chunk's calls it would be.
    place: usize,
    next: usize,
    calls: u64,
    /// What is to be done where a chunk begins has been done up to this place; the chunks before it are gone.
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
                loaded: start.chunks.iter().map(empty).collect(),
                asked: vec![Cell::new(0); start.chunks.len()],
                chunks: start.chunks,
                loader: None,
                used: Cell::default(),
                seen: RefCell::default(),
                unreadable: OnceCell::new(),
            },
            first_counted: start.first,
            queue: BinaryHeap::new(),
            index: start.passed,
            end: range.end,
        }
    }

    fn walked(self) -> WalkSummary {
        self.store.seen.into_inner().walked
    }

    /// Moves a thread to the chunk that its next call is in; when that is entered.
    fn next_of(&mut self, thread: usize) -> Option<u64> {
        let state = self.threads.get_mut(thread)?;
        let ticks = loop {
            let chunk = self.store.chunk(thread, state.place)?;
            match chunk.outlines.calls.get(state.next) {
                Some(outline) => break outline.ticks,
                None => (state.place, state.next) = (state.place + 1, 0),
            }
        };
        if state.arrived != Some(state.place) {
            self.arrive(thread);
        }
        Some(ticks)
    }

    /// Does what is to be done where the next call is in another chunk than the one before.
    #[cold]
    fn arrive(&mut self, thread: usize) {
        let state = &mut self.threads[thread];
        let place = state.place;
        // As in a cursor: calls that are lost or passed over have had their numbers.
        let first = (&self.store).first(thread, place).unwrap_or(0);
        state.calls = state.calls.max(first);
        for passed in state.arrived.unwrap_or(0)..place {
            if let Some(Ok(chunk)) = self.store.loaded[thread][passed].take() {
                self.store.used.set(chunk.outlines);
            }
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
        let thread = ordinal as usize;
        let bound = self.queue.peek().map(|&Reverse(next)| next);
        // Nearly always one chunk has more calls than are wanted.
        while self.index < self.end && self.next_of(thread).is_some() {
            if !self.walk_chunk(ordinal, bound, each)? {
                break;
            }
        }
        Ok(())
    }

    /// Walks over calls of the chunk that a thread is in; false if they end there before the chunk does.
    fn walk_chunk<E>(
        &mut self,
        ordinal: u32,
        bound: Option<(u64, u32)>,
        each: &mut impl FnMut(&Call<'_>) -> Result<(), E>,
    ) -> Result<bool, E> {
        let thread = ordinal as usize;
        let (store, state) = (&self.store, &mut self.threads[thread]);
        let (trace, place) = (store.trace, state.place);
        let Some(chunk) = store.chunk(thread, place) else {
            return Ok(false);
        };
        let Outlines { calls, numbers } = &chunk.outlines;
        let counted = self.first_counted.get(thread);
        let counted = u64::from(counted.is_none_or(|&first| place >= first));
        while let Some(outline) = calls.get(state.next) {
            let next = (outline.ticks, ordinal);
            if bound.is_some_and(|bound| next > bound) {
                self.queue.push(Reverse(next));
                return Ok(false);
            }
            if self.index >= self.end {
                return Ok(false);
            }
            let (index, number) = (self.index, state.calls);
            if let Some(call) = outline.call(trace, &chunk.body, numbers, ordinal, number, index) {
                each(&call)?;
                state.next += 1;
            } else {
                let mut position = Position {
                    chunk: place,
                    offset: outline.enter,
                };
                let Some(found) = seek_enter(trace, &store, thread, &mut position) else {
                    return Ok(false);
                };
                let mut assembled = assemble(trace, &store, ordinal, number, found);
                if store.unreadable.get().is_some() {
                    return Ok(false);
                }
                assembled.call.index = index;
                each(&assembled.call)?;
                state.next += 1;
                if assembled.position.chunk != place {
                    // Further ones of this chunk there are none.
                    (state.place, state.next) = (assembled.position.chunk, 0);
                }
            }
            state.calls += 1;
            self.index += counted;
            if state.place != place {
                break;
            }
        }
        Ok(true)
    }
}
