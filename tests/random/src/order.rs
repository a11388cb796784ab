//! What happens before what in a program, and what it computes.
//!
//! Only what the manual promises counts as order: work of a stream, events, waits, the legacy
//! stream, edges of graphs, launches of one executable graph. What the manual leaves open is taken
//! for the weaker: `cuStreamSynchronize` of the legacy stream waits for that stream's work alone;
//! a wait for an event waits for that event alone; a copy from pageable memory may read it during the
//! call or when it runs. Where the driver does less than the manual promises, that counts: a small
//! copy from page-locked memory to the device reads it without waiting for what the legacy stream
//! orders before it (tests/gpu/copy_orders.c). Two accesses of the same byte, one of them a write, must
//! be ordered; then the program has one result, and doing the operations one after the other computes
//! it.

mod act;

use std::collections::HashMap;
use std::fmt;

use cutape_driver::mix::mix;

use crate::bits::Bits;
use crate::program::{CopyForm, Id, Memory, Operation, Part, Program, Site, StreamKind, Work};

/// A moment: of a thread, or the execution of work.
type Moment = usize;

/// Why a program is not correct.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// Accesses of the same memory are not ordered.
    Race(Part),
    /// Bytes are read that nothing has written.
    Uninitialised(Part),
    /// An object is used before it exists, after its end, or by threads without order.
    Object(String),
    /// The operation makes no sense.
    Nonsense,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Race(part) => write!(f, "accesses of {part:?} are not ordered"),
            Self::Uninitialised(part) => write!(f, "{part:?} is read before it is written"),
            Self::Object(what) => write!(f, "{what}"),
            Self::Nonsense => f.write_str("an impossible operation"),
        }
    }
}

/// What a program must print and leave in the trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expected {
    /// By the position of a read: the digest of what it finds.
    pub reads: Vec<(usize, u64)>,
    /// What may be read where copies to memory of the host have written, from then on.
    pub copies: Vec<CopiedBytes>,
}

/// The bytes that a copy has written, and what they became later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopiedBytes {
    part: Option<Part>,
    /// For each byte, its values.
    values: Vec<Vec<u8>>,
}

impl CopiedBytes {
    /// Whether these bytes may be what was read after the copy.
    pub fn may_be(&self, bytes: &[u8]) -> bool {
        let mut pairs = self.values.iter().zip(bytes);
        self.values.len() == bytes.len() && pairs.all(|(values, byte)| values.contains(byte))
    }
}

/// An object whose use must be ordered among threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Object {
    Context(Id),
    Stream(Id),
    Event(Id),
    Buffer(Id),
    Graph(Id),
}

#[derive(Clone)]
struct Buffer {
    context: Id,
    memory: Memory,
    accesses: Vec<(u32, u32, Moment, bool)>,
    bytes: Vec<Option<u8>>,
}

#[derive(Clone)]
struct Stream {
    context: Id,
    kind: StreamKind,
    thread: u8,
}

/// Work that was enqueued: where, when, and when it runs.
#[derive(Clone, Copy)]
struct Task {
    context: Id,
    stream: StreamKey,
    is_blocking: bool,
    enqueued: Moment,
    done: Moment,
    /// When it is complete at the earliest, as far as its stream goes.
    own: Moment,
}

/// A stream of the driver: several streams of a program may be the same default stream.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StreamKey {
    Own(Id, Moment),
    Legacy(Id),
    PerThread(Id, u8),
}

#[derive(Clone)]
struct Graph {
    context: Id,
    nodes: Vec<crate::program::Node>,
    /// The launch: when it was enqueued, and its end.
    launches: Vec<(Moment, Moment)>,
}

/// A program, as far as it was looked at.
#[derive(Clone, Default)]
pub struct Checker {
    /// What the manual leaves open is taken for the stronger: what is a mistake then is one for sure.
    pub(crate) is_lenient: bool,
    /// For each moment, those before it.
    before: Vec<Bits>,
    now: HashMap<u8, Moment>,
    uses: HashMap<Object, Vec<(Moment, bool)>>,
    contexts: HashMap<Id, u8>,
    streams: HashMap<Id, (Stream, Moment)>,
    /// The context, and the end of the last record.
    events: HashMap<Id, (Id, Option<Moment>)>,
    buffers: HashMap<Id, Buffer>,
    graphs: HashMap<Id, Graph>,
    flags: HashMap<Id, Moment>,
    /// What a stream writes: where, and when.
    values: HashMap<u32, (Part, Moment)>,
    tasks: Vec<Task>,
    position: usize,
    expected: Expected,
}

/// The byte at a position of the pattern of a seed.
fn pattern(seed: u32, at: u32) -> u8 {
    let mixed = seed
        .wrapping_mul(0x9e37_79b1)
        .wrapping_add(at.wrapping_mul(0x85eb_ca6b));
    (mixed >> 13) as u8
}

/// FNV-1a, as the interpreter computes it.
pub(crate) fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    })
}

fn object<T>(found: Option<T>, what: impl fmt::Debug) -> Result<T, Mistake> {
    found.ok_or_else(|| Mistake::Object(format!("{what:?} does not exist")))
}

/// What a correct program must do.
///
/// # Errors
/// The first mistake.
pub fn expected(program: &Program) -> Result<Expected, Mistake> {
    let mut checker = Checker::default();
    for operation in &program.operations {
        checker.apply(operation)?;
    }
    Ok(checker.expected)
}

impl Checker {
    /// Looks at one more operation. After a mistake the value is of no use.
    ///
    /// # Errors
    /// The mistake.
    pub fn apply(&mut self, operation: &Operation) -> Result<(), Mistake> {
        let thread = operation.thread;
        let called = self.next_of(thread, &[]);
        self.act(thread, called, &operation.action)?;
        self.position += 1;
        Ok(())
    }

    /// Whether a part is of memory of the device.
    pub(crate) fn is_of_device(&self, part: Part) -> bool {
        self.memory(part).is_ok_and(Memory::is_device)
    }

    /// Adds a moment after others.
    fn add(&mut self, after: &[Moment]) -> Moment {
        let mut before = Bits::default();
        for &moment in after {
            before.join(&self.before[moment]);
            before.insert(moment);
        }
        self.before.push(before);
        self.before.len() - 1
    }

    /// The next moment of a thread, after others as well.
    fn next_of(&mut self, thread: u8, after: &[Moment]) -> Moment {
        let mut all = after.to_vec();
        all.extend(self.now.get(&thread));
        let moment = self.add(&all);
        self.now.insert(thread, moment);
        moment
    }

    fn is_before(&self, one: Moment, other: Moment) -> bool {
        one == other || self.before[other].contains(one)
    }

    /// A thread uses an object, or changes it.
    fn touch(&mut self, object: Object, at: Moment, is_change: bool) -> Result<(), Mistake> {
        let uses = self.uses.entry(object).or_default();
        let before = &self.before;
        let is_ordered = |one: Moment| one == at || before[at].contains(one);
        let mut others = uses.iter().filter(|(_, changed)| is_change || *changed);
        if others.any(|(other, _)| !is_ordered(*other)) {
            return Err(Mistake::Object(format!(
                "uses of {object:?} are not ordered"
            )));
        }
        uses.push((at, is_change));
        Ok(())
    }

    fn access(&mut self, part: Part, at: Moment, is_write: bool) -> Result<(), Mistake> {
        let before = &self.before;
        let buffer = object(self.buffers.get_mut(&part.buffer), part)?;
        let (start, end) = (part.offset, part.offset + part.length);
        if end as usize > buffer.bytes.len() || part.length == 0 {
            return Err(Mistake::Nonsense);
        }
        let conflict = buffer
            .accesses
            .iter()
            .any(|&(from, to, moment, was_write)| {
                let overlaps = from < end && start < to && (is_write || was_write);
                overlaps && moment != at && !before[at].contains(moment)
            });
        if conflict {
            return Err(Mistake::Race(part));
        }
        buffer.accesses.push((start, end, at, is_write));
        Ok(())
    }

    fn bytes(&self, part: Part) -> Result<Vec<u8>, Mistake> {
        let buffer = object(self.buffers.get(&part.buffer), part)?;
        let range = part.offset as usize..(part.offset + part.length) as usize;
        let bytes = buffer.bytes.get(range).ok_or(Mistake::Nonsense)?;
        let bytes: Option<Vec<u8>> = bytes.iter().copied().collect();
        bytes.ok_or(Mistake::Uninitialised(part))
    }

    fn store(&mut self, part: Part, bytes: impl IntoIterator<Item = u8>) {
        let bytes: Vec<u8> = bytes.into_iter().collect();
        for copy in &mut self.expected.copies {
            let Some(copied) = copy.part.filter(|copied| copied.buffer == part.buffer) else {
                continue;
            };
            for (at, byte) in (part.offset..).zip(&bytes) {
                let index = at.wrapping_sub(copied.offset) as usize;
                if let Some(values) = copy.values.get_mut(index)
                    && !values.contains(byte)
                {
                    values.push(*byte);
                }
            }
        }
        if let Some(buffer) = self.buffers.get_mut(&part.buffer) {
            let target = buffer.bytes.iter_mut().skip(part.offset as usize);
            for (target, byte) in target.take(part.length as usize).zip(&bytes) {
                *target = Some(*byte);
            }
        }
    }

    /// Notes what a copy writes; `part` is memory that may change later.
    fn note_copy(&mut self, part: Option<Part>, bytes: &[u8]) {
        let values = bytes.iter().map(|byte| vec![*byte]).collect();
        self.expected.copies.push(CopiedBytes { part, values });
    }

    fn memory(&self, part: Part) -> Result<Memory, Mistake> {
        object(self.buffers.get(&part.buffer), part).map(|buffer| buffer.memory)
    }

    /// The stream of a call by a thread.
    fn stream(&mut self, stream: Id, thread: u8, at: Moment) -> Result<(Id, StreamKey), Mistake> {
        self.touch(Object::Stream(stream), at, false)?;
        let (found, made) = object(self.streams.get(&stream), Object::Stream(stream))?;
        let (context, kind, made) = (found.context, found.kind, *made);
        let key = match kind {
            StreamKind::Legacy => StreamKey::Legacy(context),
            StreamKind::PerThread if found.thread != thread => return Err(Mistake::Nonsense),
            StreamKind::PerThread => StreamKey::PerThread(context, thread),
            StreamKind::Blocking | StreamKind::NonBlocking => StreamKey::Own(stream, made),
        };
        self.touch(Object::Context(context), at, false)?;
        Ok((context, key))
    }

    fn is_blocking(&self, key: StreamKey) -> bool {
        match key {
            StreamKey::Own(stream, _) => self
                .streams
                .get(&stream)
                .is_some_and(|(stream, _)| stream.kind == StreamKind::Blocking),
            StreamKey::Legacy(_) | StreamKey::PerThread(..) => true,
        }
    }

    /// The work that new work on a stream comes after.
    fn earlier(&self, context: Id, key: StreamKey, called: Moment) -> Vec<Moment> {
        let is_blocking = self.is_blocking(key);
        let is_legacy = |key| matches!(key, StreamKey::Legacy(_));
        let earlier = self.tasks.iter().filter(|task| {
            let in_group = task.context == context
                && task.is_blocking
                && is_blocking
                && (is_legacy(key) || is_legacy(task.stream));
            (task.stream == key || in_group) && self.is_before(task.enqueued, called)
        });
        earlier.map(|task| task.done).collect()
    }

    /// The last work that was enqueued is a copy from page-locked memory to the device: the moment that
    /// it may read it, which its own stream alone orders.
    fn read_early(&mut self, key: StreamKey, called: Moment) -> Moment {
        let Some((_, others)) = self.tasks.split_last() else {
            return called;
        };
        let own = others.iter().filter(|task| task.stream == key);
        let own = own.filter(|task| self.is_before(task.enqueued, called));
        let mut all: Vec<Moment> = own.map(|task| task.own).collect();
        all.push(called);
        let read = self.add(&all);
        if let Some(last) = self.tasks.last_mut() {
            last.own = read;
            let done = last.done;
            self.before[done].insert(read);
        }
        read
    }

    /// Enqueues work; the moment that it runs.
    fn enqueue(
        &mut self,
        (context, key): (Id, StreamKey),
        called: Moment,
        after: &[Moment],
    ) -> Moment {
        let mut all = self.earlier(context, key, called);
        all.extend(after);
        all.push(called);
        let done = self.add(&all);
        self.add_task((context, key), called, done);
        done
    }

    /// Records an event; the moment that it is complete. That is no work of a stream: a wait for a
    /// blocking stream does not wait for what its event waits for in the legacy stream
    /// (tests/gpu/waits.c).
    fn record(&mut self, (context, key): (Id, StreamKey), called: Moment) -> Moment {
        if matches!(key, StreamKey::Legacy(_)) {
            return self.enqueue((context, key), called, &[]);
        }
        let mut all = self.earlier(context, key, called);
        all.push(called);
        self.add(&all)
    }

    fn add_task(&mut self, (context, stream): (Id, StreamKey), enqueued: Moment, done: Moment) {
        let is_blocking = self.is_blocking(stream);
        self.tasks.push(Task {
            context,
            stream,
            is_blocking,
            enqueued,
            done,
            own: done,
        });
    }

    /// The accesses of work that runs at a moment, and its result. `called`: the call, for pageable
    /// memory.
    fn work(&mut self, work: &Work, called: Moment, done: Moment) -> Result<(), Mistake> {
        match *work {
            Work::Memset { to, width, value } => {
                if !self.memory(to)?.is_known() || to.length % u32::from(width) != 0 {
                    return Err(Mistake::Nonsense);
                }
                self.touch(Object::Buffer(to.buffer), called, false)?;
                self.access(to, done, true)?;
                let unit = value.to_le_bytes();
                let bytes = unit[..usize::from(width)].iter().copied().cycle();
                self.store(to, bytes.take(to.length as usize));
            }
            Work::Copy { to, from, form } => {
                let places = (self.memory(to)?, self.memory(from)?);
                if to.length != from.length || places.0.is_host() && places.1.is_host() {
                    return Err(Mistake::Nonsense);
                }
                for part in [to, from] {
                    self.touch(Object::Buffer(part.buffer), called, false)?;
                }
                if places.1 == Memory::Pageable {
                    self.access(from, called, false)?;
                }
                self.access(from, done, false)?;
                self.access(to, done, true)?;
                let is_overlap = to.buffer == from.buffer
                    && to.offset < from.offset + from.length
                    && from.offset < to.offset + to.length;
                if is_overlap {
                    return Err(Mistake::Nonsense);
                }
                let bytes = self.bytes(from)?;
                if places.0.is_visible() {
                    // A batch has two copies.
                    let parts = if form == CopyForm::Batch { 2 } else { 1 };
                    let length = to.length / parts;
                    let notes = (to.offset..).step_by(length as usize);
                    for (offset, bytes) in notes.zip(bytes.chunks(length as usize)) {
                        let part = Part {
                            offset,
                            length,
                            ..to
                        };
                        self.note_copy(Some(part), bytes);
                    }
                }
                self.store(to, bytes);
            }
            Work::Mix { out, input, seed } => {
                let is_known = self.memory(out)?.is_known() && self.memory(input)?.is_known();
                let is_same = out.buffer == input.buffer;
                let is_shifted = is_same
                    && out.offset != input.offset
                    && out.offset < input.offset + input.length
                    && input.offset < out.offset + out.length;
                if !is_known || out.length != input.length || out.length % 4 != 0 || is_shifted {
                    return Err(Mistake::Nonsense);
                }
                for part in [out, input] {
                    self.touch(Object::Buffer(part.buffer), called, false)?;
                }
                self.access(input, done, false)?;
                self.access(out, done, true)?;
                let (old, read) = (self.bytes(out)?, self.bytes(input)?);
                let (old, read) = (old.as_chunks::<4>().0, read.as_chunks::<4>().0);
                let mixed = (0..).zip(old.iter().zip(read)).map(|(at, (old, read))| {
                    mix(
                        u32::from_le_bytes(*old),
                        u32::from_le_bytes(*read),
                        at,
                        seed,
                    )
                });
                let bytes: Vec<u8> = mixed.flat_map(u32::to_le_bytes).collect();
                self.store(out, bytes);
            }
        }
        Ok(())
    }

    /// Whether the buffers of work may be used in a context: kernels and memsets use memory of
    /// their own context or of the host.
    fn check_context(&self, work: &Work, context: Id) -> Result<(), Mistake> {
        let (one, other) = match *work {
            Work::Memset { to, .. } => (to, to),
            Work::Copy { to, from, .. } => (to, from),
            Work::Mix { out, input, .. } => (out, input),
        };
        for part in [one, other] {
            let buffer = object(self.buffers.get(&part.buffer), part)?;
            if buffer.context != context && !buffer.memory.is_host() {
                return Err(Mistake::Nonsense);
            }
        }
        Ok(())
    }

    /// A copy or memset by a call, and what the call's return waits for.
    fn call_work(
        &mut self,
        thread: u8,
        called: Moment,
        work: &Work,
        site: Site,
    ) -> Result<(), Mistake> {
        let (place, is_synchronous) = match site {
            Site::Stream(stream) => (self.stream(stream, thread, called)?, false),
            Site::Context(context) => {
                self.touch(Object::Context(context), called, false)?;
                object(self.contexts.get(&context), Object::Context(context))?;
                ((context, StreamKey::Legacy(context)), true)
            }
        };
        self.check_context(work, place.0)?;
        self.check_form(work, place.1, is_synchronous)?;
        let earlier = self.earlier(place.0, place.1, called);
        let done = self.enqueue(place, called, &[]);
        if let Work::Copy { to, from, .. } = *work
            && !self.is_lenient
            && matches!(self.memory(from)?, Memory::Pinned | Memory::Registered)
            && !self.memory(to)?.is_host()
        {
            let read = self.read_early(place.1, called);
            self.access(from, read, false)?;
        }
        let waited = match *work {
            Work::Copy { to, from, .. } => match (self.memory(to)?, self.memory(from)?) {
                (Memory::Pageable, _) => vec![done],
                (_, Memory::Pageable) if is_synchronous => {
                    // The stream is waited for, then the memory is read. It must hold its bytes before:
                    // the recorder doesn't see what host functions write meanwhile.
                    if !self.is_lenient {
                        self.access(from, called, false)?;
                    }
                    let staged = self.next_of(thread, &earlier);
                    self.access(from, staged, false)?;
                    let bytes = self.bytes(from)?;
                    if self.memory(to)?.is_visible() {
                        self.note_copy(Some(to), &bytes);
                    }
                    self.touch(Object::Buffer(from.buffer), called, false)?;
                    self.touch(Object::Buffer(to.buffer), called, false)?;
                    self.before[done].insert(staged);
                    let after = self.before[staged].clone();
                    self.before[done].join(&after);
                    self.access(to, done, true)?;
                    self.store(to, bytes);
                    return Ok(());
                }
                // Whether managed memory counts as memory of the device is open.
                (to, from)
                    if is_synchronous && (self.is_lenient || to.is_host() || from.is_host()) =>
                {
                    vec![done]
                }
                _ => Vec::new(),
            },
            Work::Memset { to, .. } if is_synchronous && !self.memory(to)?.is_device() => {
                vec![done]
            }
            Work::Memset { .. } => Vec::new(),
            Work::Mix { .. } if is_synchronous => return Err(Mistake::Nonsense),
            Work::Mix { .. } => Vec::new(),
        };
        self.work(work, called, done)?;
        self.next_of(thread, &waited);
        Ok(())
    }

    /// Only what is measured: copies by rows and batches are asynchronous here, between memory that
    /// the driver knows; a batch is not in a default stream (CUDA manual, cuMemcpyBatchAsync).
    fn check_form(
        &self,
        work: &Work,
        stream: StreamKey,
        is_synchronous: bool,
    ) -> Result<(), Mistake> {
        let Work::Copy { to, from, form } = *work else {
            return Ok(());
        };
        let is_known = self.memory(to)?.is_known() && self.memory(from)?.is_known();
        let is_right = match form {
            CopyForm::OfKinds | CopyForm::Unified => true,
            CopyForm::Rows => is_known && !is_synchronous,
            CopyForm::Batch => is_known && !is_synchronous && matches!(stream, StreamKey::Own(..)),
        };
        match is_right {
            true => Ok(()),
            false => Err(Mistake::Nonsense),
        }
    }

    fn new_object<T>(map: &HashMap<Id, T>, id: Id) -> Result<(), Mistake> {
        match map.contains_key(&id) {
            true => Err(Mistake::Nonsense),
            false => Ok(()),
        }
    }
}
