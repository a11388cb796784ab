//! Asynchronous readbacks: copies to host memory that have been enqueued. Their bytes are recorded
//! by the first call that proves them complete.

use core::sync::atomic::{AtomicUsize, Ordering};
use std::collections::HashMap;

use cutape_format::layout::{ReadbackNote, field, note_kind};
use cutape_registry::{FUNCTIONS, Function, Role, Waits};

use crate::file::rows::Rows;
use crate::hot::frame::Frame;
use crate::hot::recording::payload_policy;
use crate::hot::thread::Thread;
use crate::process::errno::Errno;
use crate::process::process_lock::ProcessLock;
use crate::queries::{
    STREAM_LEGACY, STREAM_PER_THREAD, canonical_stream, current_context, is_capturing,
};
use crate::snapshot;

/// The stream of an operation.
#[derive(Clone, Copy, Debug)]
struct Stream {
    handle: u64,
    /// Of a per-thread default stream.
    thread: u32,
    /// The current context, which tells apart the default streams of several contexts.
    context: u64,
}

impl PartialEq for Stream {
    fn eq(&self, other: &Self) -> bool {
        let is_default = matches!(self.handle, STREAM_LEGACY | STREAM_PER_THREAD);
        self.handle == other.handle
            && self.thread == other.thread
            && (!is_default || self.context == other.context)
    }
}

impl Stream {
    fn new(thread: &Thread, function: &Function, handle: u64) -> Self {
        let handle = canonical_stream(function, handle);
        Self {
            handle,
            thread: if handle == STREAM_PER_THREAD {
                thread.ordinal.get()
            } else {
                0
            },
            context: current_context(),
        }
    }
}

struct Readback {
    stream: Stream,
    /// Position among the readbacks of all threads.
    order: u64,
    thread: u32,
    /// Number of the call that has enqueued it.
    number: u64,
    parameter: u8,
    field: u8,
    memory: Rows,
    /// The next launch of its graph overwrites its bytes.
    is_graphs: bool,
}

#[derive(Default)]
struct Readbacks {
    awaited: Vec<Readback>,
    /// For each event, the stream that it was recorded on, and the order of the last readback
    /// before it.
    events: HashMap<u64, (Stream, u64)>,
    order: u64,
}

static READBACKS: ProcessLock<Readbacks> = ProcessLock::new();
/// More are never awaited: a program may learn in other ways that they are complete.
const MOST_AWAITED: usize = 1 << 16;
/// How many are awaited: while there are none, no lock is taken.
static AWAITED: AtomicUsize = AtomicUsize::new(0);

/// Whether any readback is awaited.
#[inline]
pub(crate) fn any() -> bool {
    AWAITED.load(Ordering::Acquire) != 0
}

/// In a forked child: the parent's readbacks are not this process's.
pub(crate) fn forget() {
    AWAITED.store(0, Ordering::Relaxed);
    READBACKS.forget();
}

/// The function of a call, and its stream argument.
fn function_and_stream(frame: &Frame) -> Option<(&'static Function, u64)> {
    let function = FUNCTIONS.get(frame.index())?;
    Some((function, function.stream.map_or(0, |at| frame.word(at))))
}

/// Adds what an asynchronous copy that was just enqueued will write. Called while the call is in
/// progress, so that it is the last one of its thread.
pub(crate) fn add(thread: &Thread, frame: &Frame, parameter: u8, field: u8, memory: Rows) {
    let Some((function, handle)) = function_and_stream(frame) else {
        return;
    };
    if !is_capturing(function, handle) {
        let stream = Stream::new(thread, function, handle);
        await_readback(thread, stream, parameter, field, memory, false);
    }
}

fn await_readback(
    thread: &Thread,
    stream: Stream,
    parameter: u8,
    field: u8,
    memory: Rows,
    is_graphs: bool,
) {
    let mut readbacks = READBACKS.lock();
    readbacks.order += 1;
    let order = readbacks.order;
    if readbacks.awaited.len() >= MOST_AWAITED {
        // Apparently no recorded call will prove these complete.
        readbacks.awaited.drain(..MOST_AWAITED / 2);
    }
    readbacks.awaited.push(Readback {
        stream,
        order,
        thread: thread.ordinal.get(),
        number: thread.calls.get().wrapping_sub(1),
        parameter,
        field,
        memory,
        is_graphs,
    });
    AWAITED.store(readbacks.awaited.len(), Ordering::Release);
}

/// Adds what the copies of a graph that was just launched will write. An awaited readback of an
/// earlier launch to the same memory is dropped: its bytes are overwritten.
pub(crate) fn add_of_graph(thread: &Thread, frame: &Frame, targets: &[Rows]) {
    let Some((function, handle)) = function_and_stream(frame) else {
        return;
    };
    if targets.is_empty() || is_capturing(function, handle) {
        return;
    }
    let is_same = |readback: &Readback, target: &Rows| {
        readback.is_graphs
            && readback.memory.address == target.address
            && readback.memory.length() == target.length()
    };
    READBACKS
        .lock()
        .awaited
        .retain(|readback| !targets.iter().any(|target| is_same(readback, target)));
    let stream = Stream::new(thread, function, handle);
    for &memory in targets {
        await_readback(thread, stream, 0, field::HOST_BYTES, memory, true);
    }
}

/// Adds the copies that a call has enqueued by the registry's roles.
pub(crate) fn add_by_roles(thread: &Thread, frame: &Frame) {
    let Some((function, _)) = function_and_stream(frame) else {
        return;
    };
    if function.stream.is_none() {
        return;
    }
    for (position, parameter) in (0..).zip(function.params) {
        let address = frame.word(position);
        if let Role::HostWrite(length) = parameter.role
            && address != 0
        {
            let memory = Rows::flat(address, snapshot::bytes_of(length, function, frame));
            add(thread, frame, position, field::POINTEE, memory);
        }
    }
}

/// An event was recorded on a stream, behind its copies.
pub(crate) fn event_recorded(thread: &Thread, frame: &Frame) {
    if !any() {
        return;
    }
    let _errno = Errno::keep();
    let Some((function, handle)) = function_and_stream(frame) else {
        return;
    };
    let stream = Stream::new(thread, function, handle);
    let mut readbacks = READBACKS.lock();
    let order = readbacks.order;
    readbacks.events.insert(frame.word(0), (stream, order));
}

/// Writes the bytes of the readbacks that this successful call proves complete.
pub(crate) fn complete(thread: &Thread, frame: &Frame) {
    if !any() {
        return;
    }
    let _errno = Errno::keep();
    let Some((function, _)) = function_and_stream(frame) else {
        return;
    };
    let proof = match function.waits {
        Waits::No => return,
        Waits::Context if !function.params.is_empty() && frame.word(0) != 0 => {
            Proof::Context(frame.word(0))
        }
        Waits::Context => Proof::Context(current_context()),
        Waits::Stream(at) => Proof::Stream(Stream::new(thread, function, frame.word(at))),
        Waits::Event(at) => Proof::Event(frame.word(at)),
    };
    let completed: Vec<Readback> = {
        let mut readbacks = READBACKS.lock();
        let Readbacks {
            awaited, events, ..
        } = &mut *readbacks;
        let completed = awaited
            .extract_if(.., |readback| proof.covers(readback, events))
            .collect();
        if awaited.is_empty() {
            events.clear();
        }
        AWAITED.store(awaited.len(), Ordering::Release);
        completed
    };
    for readback in completed {
        let note = ReadbackNote {
            thread: readback.thread,
            number: readback.number,
            address: readback.memory.address,
        };
        thread.note(note_kind::READBACK, |draft| {
            draft.put_encoded(note)?;
            let (position, field) = (readback.parameter, readback.field);
            snapshot::payload(draft, position, field, &readback.memory, payload_policy().1)
        });
    }
}

/// The work that a call proves complete.
enum Proof {
    Context(u64),
    Stream(Stream),
    Event(u64),
}

impl Proof {
    fn covers(&self, readback: &Readback, events: &HashMap<u64, (Stream, u64)>) -> bool {
        match self {
            Proof::Context(context) => readback.stream.context == *context,
            Proof::Stream(stream) => readback.stream == *stream,
            Proof::Event(event) => events.get(event).is_some_and(|&(stream, order)| {
                readback.stream == stream && readback.order <= order
            }),
        }
    }
}
