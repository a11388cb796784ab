//! Walking over calls with memory for a few chunks, whatever the length of the trace; on two processors where there are two: one
//! takes records apart, the other does what is wanted with the calls.

use std::borrow::Cow;
use std::cell::{OnceCell, RefCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;

use crate::call::{Arguments, Bytes, Call, Capture, Leave};
use crate::contents::{Contents, Named};
use crate::cursor::{Assembled, Bodies, Position, assemble, seek_enter};
use crate::layout::short_enter::Numbers;
use crate::ordered::processors;
use crate::pack::{Missing, missing_ranges};
use crate::signature::Signature;
use crate::trace::{Damage, Error, Trace};

/// Calls that go from one thread to the other together.
const BATCH: usize = 512;
/// Batches that may be between the two.
const AHEAD: usize = 4;

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
        let damaged = |first: Damage| Error::Damaged {
            path: trace.path().to_owned(),
            first,
            more: 0,
        };
        let chunks: usize = reader.chunks.iter().map(Vec::len).sum();
        if chunks < 2 || processors() == 1 {
            let mut batch = Batch::default();
            loop {
                let more = reader.fill(&mut batch);
                batch.for_each(&mut each)?;
                if !more.map_err(damaged)? {
                    return Ok(reader.walked());
                }
            }
        }
        thread::scope(|scope| {
            let (full, filled) = mpsc::sync_channel::<Batch<'t>>(AHEAD);
            let (empty, emptied) = mpsc::channel::<Batch<'t>>();
            let reading = scope.spawn(move || {
                loop {
                    let mut batch = emptied.try_recv().unwrap_or_default();
                    let more = reader.fill(&mut batch);
                    // Nobody takes it if `each` has ended the walk.
                    if full.send(batch).is_err() {
                        return Ok(Walked::default());
                    }
                    if !more? {
                        return Ok(reader.walked());
                    }
                }
            });
            for batch in &filled {
                batch.for_each(&mut each)?;
                // The reader may have come to its end.
                let _ = empty.send(batch);
            }
            match reading.join() {
                Ok(outcome) => outcome.map_err(|damage| damaged(damage).into()),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }
}

/// A body of calls, for as long as somebody has it.
#[derive(Clone, Debug)]
enum Body<'t> {
    InFile(&'t [u8]),
    Loaded(Arc<Vec<u8>>),
}

impl Body<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            Body::InFile(bytes) => bytes,
            Body::Loaded(bytes) => bytes,
        }
    }
}

/// Bytes in one of a batch's bodies.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    body: u32,
    start: u32,
    length: u32,
}

/// A call as places.
#[derive(Debug)]
struct Located<'t> {
    index: u64,
    number: u64,
    signature: &'t Signature,
    ticks: u64,
    caller: u64,
    thread: u32,
    arguments: Place,
    /// Where the arguments are short: what tells their lengths.
    codes: Option<u64>,
    captures: Place,
    more_captures: Place,
    /// The capture that is a record of its own: parameter, field, bytes.
    own_capture: Option<(u8, u8, Place)>,
    /// Where its notes begin and end among the batch's.
    notes: (u32, u32),
    leave: Option<LocatedLeave>,
}

/// The end of a call as places.
#[derive(Debug)]
struct LocatedLeave {
    ticks: u64,
    result: i32,
    /// The capture that is in the record's head: parameter, field, bytes if they are there.
    own_capture: Option<(u8, u8, Option<Place>)>,
    captures: Place,
}

/// Some calls with the bodies that they lie in.
#[derive(Debug, Default)]
struct Batch<'t> {
    bodies: Vec<Body<'t>>,
    calls: Vec<Located<'t>>,
    notes: Vec<(u16, Place)>,
}

impl Batch<'_> {
    #[inline]
    fn bytes(&self, place: Place) -> &[u8] {
        if place.length == 0 {
            return &[];
        }
        let (start, length) = (place.start as usize, place.length as usize);
        let body = self.bodies.get(place.body as usize);
        body.and_then(|body| body.bytes().get(start..start + length))
            .unwrap_or(&[])
    }

    fn notes_of(&self, notes: Range<usize>) -> Vec<(u16, &[u8])> {
        let notes = self.notes.get(notes).unwrap_or(&[]).iter();
        notes
            .map(|&(kind, place)| (kind, self.bytes(place)))
            .collect()
    }

    fn for_each<E>(&self, each: &mut impl FnMut(&Call<'_>) -> Result<(), E>) -> Result<(), E> {
        for call in &self.calls {
            let notes = call.notes.0 as usize..call.notes.1 as usize;
            each(&Call {
                index: call.index,
                thread: call.thread,
                number: call.number,
                signature: call.signature,
                ticks: call.ticks,
                caller: call.caller,
                arguments: match call.codes {
                    None => Arguments::Packed(self.bytes(call.arguments)),
                    Some(codes) => {
                        Arguments::Short(Numbers::resume(codes, self.bytes(call.arguments)))
                    }
                },
                captures: self.bytes(call.captures),
                more_captures: self.bytes(call.more_captures),
                own_capture: call.own_capture.map(|(parameter, field, place)| Capture {
                    parameter,
                    field,
                    flags: 0,
                    bytes: Bytes::Inline(self.bytes(place)),
                }),
                notes: if notes.is_empty() {
                    Vec::new()
                } else {
                    self.notes_of(notes)
                },
                leave: call.leave.as_ref().map(|leave| Leave {
                    ticks: leave.ticks,
                    result: leave.result,
                    own_capture: leave.own_capture.map(|(parameter, field, place)| Capture {
                        parameter,
                        field,
                        flags: 0,
                        bytes: place
                            .map_or(Bytes::Unreadable, |place| Bytes::Inline(self.bytes(place))),
                    }),
                    captures: self.bytes(leave.captures),
                }),
            })?;
        }
        Ok(())
    }
}

/// Puts calls together, chunk by chunk.
struct Reader<'t> {
    trace: &'t Trace,
    /// For each thread the chunks that are walked over.
    chunks: Vec<Vec<usize>>,
    first_counted: Vec<usize>,
    /// Their bodies, from when they are needed until they are passed.
    bodies: Vec<Vec<OnceCell<Option<Body<'t>>>>>,
    threads: Vec<ThreadState>,
    /// (ticks, thread) of every thread that has a next call.
    queue: BinaryHeap<Reverse<(u64, u32)>>,
    index: u64,
    end: u64,
    begun: bool,
    seen: RefCell<Seen>,
}

#[derive(Clone, Debug, Default)]
struct ThreadState {
    position: Position,
    calls: u64,
    /// The bodies of the places before this one are gone.
    dropped: usize,
    /// The body of that place is in the batch as that one.
    in_batch: Option<(usize, u32)>,
}

/// What the chunks that were loaded hold.
#[derive(Debug, Default)]
struct Seen {
    walked: Walked,
    /// For each thread how many calls its chunks so far hold.
    entered: Vec<u64>,
    unreadable: Option<Damage>,
}

/// The bodies of a reader's thread; loads them when they are asked for.
struct Window<'r, 't> {
    trace: &'t Trace,
    chunks: &'r [usize],
    bodies: &'r [OnceCell<Option<Body<'t>>>],
    seen: &'r RefCell<Seen>,
}

impl<'r, 't> Window<'r, 't> {
    #[cold]
    fn load(&self, thread: usize, chunk: usize) -> Option<Body<'t>> {
        let mut seen = self.seen.borrow_mut();
        match self.trace.load(chunk) {
            Ok(body) => {
                seen.look_at(self.trace, thread, chunk, &body);
                Some(match body {
                    Cow::Borrowed(bytes) => Body::InFile(bytes),
                    Cow::Owned(bytes) => Body::Loaded(Arc::new(bytes)),
                })
            }
            Err(damage) => {
                seen.unreadable.get_or_insert(damage);
                None
            }
        }
    }
}

impl<'r> Bodies<'r> for Window<'r, '_> {
    #[inline]
    fn body(&self, thread: usize, place: usize) -> Option<&'r [u8]> {
        let body = self.bodies.get(place)?;
        let loaded = match body.get() {
            Some(loaded) => loaded,
            None => {
                let chunk = *self.chunks.get(place)?;
                body.get_or_init(|| self.load(thread, chunk))
            }
        };
        loaded.as_ref().map(Body::bytes)
    }

    fn first(&self, _: usize, place: usize) -> Option<u64> {
        Some(self.trace.chunk_head(*self.chunks.get(place)?).first)
    }
}

impl Seen {
    fn look_at(&mut self, trace: &Trace, thread: usize, chunk: usize, body: &[u8]) {
        let contents = Contents::of(trace, body);
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

impl<'t> Reader<'t> {
    fn new(trace: &'t Trace, range: &Range<u64>) -> Self {
        let start = trace.start_of(range.start).unwrap_or_else(|| Start {
            chunks: trace.threads.clone(),
            first: vec![0; trace.threads.len()],
            passed: 0,
        });
        Self {
            trace,
            bodies: start
                .chunks
                .iter()
                .map(|chunks| chunks.iter().map(|_| OnceCell::new()).collect())
                .collect(),
            threads: vec![ThreadState::default(); start.chunks.len()],
            chunks: start.chunks,
            first_counted: start.first,
            queue: BinaryHeap::new(),
            index: start.passed,
            end: range.end,
            begun: false,
            seen: RefCell::default(),
        }
    }

    fn walked(self) -> Walked {
        self.seen.into_inner().walked
    }

    /// Moves a thread to its next call; when that is entered.
    fn next_of(&mut self, thread: usize) -> Option<u64> {
        let window = Window {
            trace: self.trace,
            chunks: &self.chunks[thread],
            bodies: &self.bodies[thread],
            seen: &self.seen,
        };
        let state = self.threads.get_mut(thread)?;
        let ticks = seek_enter(self.trace, &window, thread, &mut state.position)?;
        // As in a cursor: calls that are lost or passed over have had their numbers.
        let first = window.first(thread, state.position.chunk).unwrap_or(0);
        state.calls = state.calls.max(first);
        let passed = state.dropped..state.position.chunk;
        if !passed.is_empty() {
            state.dropped = passed.end;
            for place in passed {
                if let Some(body) = self.bodies[thread].get_mut(place) {
                    body.take();
                }
                if let Some(&chunk) = self.chunks[thread].get(place) {
                    self.trace.let_go(chunk);
                }
            }
        }
        Some(ticks)
    }

    /// Fills a batch; false if no call is behind it. The error is of a chunk that cannot be read; the batch then holds what comes
    /// before.
    fn fill(&mut self, batch: &mut Batch<'t>) -> Result<bool, Damage> {
        batch.bodies.clear();
        batch.calls.clear();
        batch.notes.clear();
        for state in &mut self.threads {
            state.in_batch = None;
        }
        if !self.begun {
            self.begun = true;
            for thread in 0..self.chunks.len() {
                if let Some(ticks) = self.next_of(thread) {
                    self.queue.push(Reverse((ticks, thread as u32)));
                }
            }
        }
        let mut more = true;
        while more && batch.calls.len() < BATCH {
            more = self.index < self.end && self.take_one(batch);
        }
        match self.seen.borrow_mut().unreadable.take() {
            Some(damage) => Err(damage),
            None => Ok(more),
        }
    }

    /// Puts the next call into the batch; false if there is none.
    fn take_one(&mut self, batch: &mut Batch<'t>) -> bool {
        let Some(&Reverse((_, ordinal))) = self.queue.peek() else {
            return false;
        };
        let thread = ordinal as usize;
        let state = &mut self.threads[thread];
        let from = state.position.chunk;
        let window = Window {
            trace: self.trace,
            chunks: &self.chunks[thread],
            bodies: &self.bodies[thread],
            seen: &self.seen,
        };
        let Some(Assembled { call, position, .. }) =
            assemble(self.trace, &window, ordinal, state.calls, state.position)
        else {
            return false;
        };
        if self.seen.borrow().unreadable.is_some() {
            return false;
        }
        let bodies = &self.bodies[thread];
        let places = from..position.chunk + 1;
        let mut place = |bytes: &[u8]| locate(bytes, bodies, &places, state, &mut batch.bodies);
        let (codes, arguments) = match &call.arguments {
            Arguments::Packed(bytes) => (None, *bytes),
            Arguments::Short(numbers) => (Some(numbers.codes()), numbers.rest()),
        };
        let own_capture = call.own_capture.and_then(|capture| {
            let bytes = capture.bytes.inline()?;
            Some((capture.parameter, capture.field, place(bytes)))
        });
        let first_note = batch.notes.len() as u32;
        for &(kind, bytes) in &call.notes {
            batch.notes.push((kind, place(bytes)));
        }
        batch.calls.push(Located {
            index: self.index,
            number: call.number,
            signature: self.trace.signature(call.signature.id),
            ticks: call.ticks,
            caller: call.caller,
            thread: ordinal,
            arguments: place(arguments),
            codes,
            own_capture,
            captures: place(call.captures),
            more_captures: place(call.more_captures),
            notes: (first_note, batch.notes.len() as u32),
            leave: call.leave.map(|leave| LocatedLeave {
                ticks: leave.ticks,
                result: leave.result,
                own_capture: leave.own_capture.map(|capture| {
                    let bytes = capture.bytes.inline().map(&mut place);
                    (capture.parameter, capture.field, bytes)
                }),
                captures: place(leave.captures),
            }),
        });
        let counted = self
            .first_counted
            .get(thread)
            .is_none_or(|&first| from >= first);
        state.position = position;
        state.calls += 1;
        self.index += u64::from(counted);
        let next = self.next_of(thread);
        if let Some(mut top) = self.queue.peek_mut() {
            match next {
                Some(ticks) => *top = Reverse((ticks, ordinal)),
                None => {
                    PeekMut::pop(top);
                }
            }
        }
        true
    }
}

/// Finds bytes of a thread's record in the bodies at these places, and notes that body in the batch.
#[inline]
fn locate<'t>(
    bytes: &[u8],
    bodies: &[OnceCell<Option<Body<'t>>>],
    places: &Range<usize>,
    state: &mut ThreadState,
    batch: &mut Vec<Body<'t>>,
) -> Place {
    if bytes.is_empty() {
        return Place::default();
    }
    let address = bytes.as_ptr() as usize;
    for at in places.clone() {
        let Some(body) = bodies.get(at).and_then(|body| body.get()?.as_ref()) else {
            continue;
        };
        let all = body.bytes();
        let start = address.wrapping_sub(all.as_ptr() as usize);
        if start >= all.len() {
            continue;
        }
        let number = match state.in_batch {
            Some((place, number)) if place == at => number,
            _ => {
                let number = batch.len() as u32;
                batch.push(body.clone());
                state.in_batch = Some((at, number));
                number
            }
        };
        return Place {
            body: number,
            start: start as u32,
            length: bytes.len() as u32,
        };
    }
    Place::default()
}
