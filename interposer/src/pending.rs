//! Copies to host memory that have been enqueued, and whose bytes are taken once some call proves that they are there.

use core::sync::atomic::{AtomicUsize, Ordering};
use std::collections::HashMap;

use cutape_format::layout::{ReadbackNote, note_kind, record_kind};
use cutape_registry::{FUNCTIONS, Function, Role, Waits, id};

use crate::call::{Frame, payload_policy};
use crate::errno::Errno;
use crate::process_lock::ProcessLock;
use crate::thread::Thread;
use crate::trace_file::Rows;
use crate::{driver, snapshot};

/// Which stream an operation is on: the handle, and for a thread's own default stream the thread.
#[derive(Clone, Copy, Debug)]
struct StreamKey {
    handle: u64,
    thread: u32,
    /// The context that was current; for the streams that every context has it tells which one is meant.
    context: u64,
}

impl PartialEq for StreamKey {
    fn eq(&self, other: &Self) -> bool {
        let is_shared = matches!(self.handle, LEGACY | PER_THREAD);
        self.handle == other.handle
            && self.thread == other.thread
            && (!is_shared || self.context == other.context)
    }
}

struct Copy {
    stream: StreamKey,
    /// Position among the copies of all threads.
    order: u64,
    thread: u32,
    number: u64,
    parameter: u8,
    field: u8,
    memory: Rows,
    /// Of a graph: launched again, it overwrites what it has brought.
    is_graphs: bool,
}

#[derive(Default)]
struct Copies {
    waiting: Vec<Copy>,
    /// For each event, the stream that it was recorded on and how many copies there were by then.
    events: HashMap<u64, (StreamKey, u64)>,
    order: u64,
}

static COPIES: ProcessLock<Copies> = ProcessLock::new();
/// More are never waited for: a program may see by means of its own that they have arrived.
const MOST_WAITING: usize = 1 << 16;
/// How many are waiting: where none are, which is nearly always, nobody takes the lock.
static WAITING: AtomicUsize = AtomicUsize::new(0);

/// Whether any copy is waited for.
#[inline]
pub(crate) fn any() -> bool {
    WAITING.load(Ordering::Acquire) != 0
}

/// In a forked child: the parent's copies are not this process's.
pub(crate) fn forget() {
    WAITING.store(0, Ordering::Relaxed);
    COPIES.forget();
}

/// Whether a function's host memory is written when the stream gets there, and not before it returns.
pub(crate) fn is_asynchronous(function: &Function) -> bool {
    function.stream.is_some()
}

/// The calling thread's context.
pub(crate) fn current_context() -> u64 {
    let mut context = 0u64;
    // SAFETY: `context` is valid for writing a handle.
    unsafe { driver::call(id::cuCtxGetCurrent, [(&raw mut context) as u64, 0, 0, 0]) };
    context
}

/// CU_STREAM_LEGACY and CU_STREAM_PER_THREAD of cuda.h.
const LEGACY: u64 = 1;
const PER_THREAD: u64 = 2;

fn key(state: &Thread, function: &Function, handle: u64) -> StreamKey {
    let own = handle == PER_THREAD || (handle == 0 && function.per_thread);
    StreamKey {
        handle: match handle {
            _ if own => PER_THREAD,
            0 => LEGACY,
            other => other,
        },
        thread: if own { state.ordinal.get() } else { 0 },
        context: current_context(),
    }
}

fn stream_argument(function: &Function, frame: &Frame) -> u64 {
    function
        .stream
        .map_or(0, |at| frame.words[usize::from(at) % frame.words.len()])
}

/// Whether a stream is being captured: then nothing is copied until a graph is launched.
pub(crate) fn is_capturing(function: &Function, stream: u64) -> bool {
    let mut status = 0u32;
    let ask = if function.per_thread {
        id::cuStreamIsCapturing_ptsz
    } else {
        id::cuStreamIsCapturing
    };
    // SAFETY: `status` is valid for writing an enum.
    let answer = unsafe { driver::call(ask, [stream, (&raw mut status) as u64, 0, 0]) };
    answer == Some(0) && status != 0
}

/// Notes what an asynchronous copy that was just enqueued is going to write. Called with the call still open, so its number
/// is the last one.
pub(crate) fn enqueued(state: &Thread, frame: &Frame, parameter: u8, field: u8, memory: Rows) {
    let Some(function) = FUNCTIONS.get(frame.function as usize) else {
        return;
    };
    let handle = stream_argument(function, frame);
    if is_capturing(function, handle) {
        return;
    }
    let stream = key(state, function, handle);
    wait_for(state, stream, parameter, field, memory, false);
}

fn wait_for(
    state: &Thread,
    stream: StreamKey,
    parameter: u8,
    field: u8,
    memory: Rows,
    is_graphs: bool,
) {
    let mut copies = COPIES.lock();
    copies.order += 1;
    let order = copies.order;
    let number = state.calls.get().wrapping_sub(1);
    let thread = state.ordinal.get();
    if copies.waiting.len() >= MOST_WAITING {
        // Nothing that we know of will ever prove these complete.
        copies.waiting.drain(..MOST_WAITING / 2);
    }
    copies.waiting.push(Copy {
        stream,
        order,
        thread,
        number,
        parameter,
        field,
        memory,
        is_graphs,
    });
    WAITING.store(copies.waiting.len(), Ordering::Release);
}

/// Notes what the copies of a graph that was just launched are going to write. A copy of an earlier launch to the same place
/// that nothing has proved complete is overwritten by this one, and no longer waited for.
pub(crate) fn launched(state: &Thread, frame: &Frame, targets: &[Rows]) {
    let Some(function) = FUNCTIONS.get(frame.function as usize) else {
        return;
    };
    if targets.is_empty() || is_capturing(function, stream_argument(function, frame)) {
        return;
    }
    {
        let mut copies = COPIES.lock();
        let is_same = |copy: &Copy, target: &Rows| {
            copy.is_graphs
                && copy.memory.address == target.address
                && copy.memory.length() == target.length()
        };
        copies
            .waiting
            .retain(|copy| !targets.iter().any(|target| is_same(copy, target)));
    }
    let stream = key(state, function, stream_argument(function, frame));
    for &memory in targets {
        let field = cutape_format::layout::field::HOST_BYTES;
        wait_for(state, stream, 0, field, memory, true);
    }
}

/// For plain functions: notes the copies that the registry says the call has enqueued.
pub(crate) fn enqueued_by_roles(state: &Thread, frame: &Frame) {
    let Some(function) = FUNCTIONS.get(frame.function as usize) else {
        return;
    };
    if !is_asynchronous(function) {
        return;
    }
    for (index, parameter) in function.params.iter().enumerate() {
        if let Role::HostWrite(length) = parameter.role
            && frame.words[index] != 0
        {
            let memory = Rows::flat(frame.words[index], snapshot::evaluate(length, frame));
            enqueued(
                state,
                frame,
                index as u8,
                cutape_format::layout::field::POINTEE,
                memory,
            );
        }
    }
}

/// Notes that an event was recorded behind the copies of a stream.
pub(crate) fn event_recorded(state: &Thread, frame: &Frame) {
    if !any() {
        return;
    }
    let _errno = Errno::keep();
    let Some(function) = FUNCTIONS.get(frame.function as usize) else {
        return;
    };
    let stream = key(state, function, stream_argument(function, frame));
    let mut copies = COPIES.lock();
    let order = copies.order;
    copies.events.insert(frame.words[0], (stream, order));
}

/// Writes the bytes of the copies that this successful call proves complete.
pub(crate) fn completed(state: &Thread, frame: &Frame, function: usize) {
    if !any() {
        return;
    }
    let _errno = Errno::keep();
    let Some(function) = FUNCTIONS.get(function) else {
        return;
    };
    let argument = |at: u8| frame.words[usize::from(at) % frame.words.len()];
    let wanted = match function.waits {
        Waits::No => return,
        Waits::Context => match function.params.first() {
            Some(_) if frame.words[0] != 0 => Wanted::Context(frame.words[0]),
            _ => Wanted::Context(current_context()),
        },
        Waits::Stream(at) => Wanted::Stream(key(state, function, argument(at))),
        Waits::Event(at) => Wanted::Event(argument(at)),
    };
    let arrived: Vec<Copy> = {
        let mut copies = COPIES.lock();
        let Copies {
            waiting, events, ..
        } = &mut *copies;
        let arrived = waiting
            .extract_if(.., |copy| wanted.has(copy, events))
            .collect();
        if waiting.is_empty() {
            events.clear();
        }
        WAITING.store(waiting.len(), Ordering::Release);
        arrived
    };
    for copy in arrived {
        let note = ReadbackNote {
            thread: copy.thread,
            number: copy.number,
            address: copy.memory.address,
        };
        state.write(record_kind::NOTE, note_kind::READBACK, |record| {
            record.put_encoded(note)?;
            snapshot::payload(
                record,
                copy.parameter,
                copy.field,
                &copy.memory,
                payload_policy().1,
            )
        });
    }
}

/// Which copies a call proves complete.
enum Wanted {
    Context(u64),
    Stream(StreamKey),
    Event(u64),
}

impl Wanted {
    fn has(&self, copy: &Copy, events: &HashMap<u64, (StreamKey, u64)>) -> bool {
        match self {
            Wanted::Context(context) => copy.stream.context == *context,
            Wanted::Stream(stream) => copy.stream == *stream,
            Wanted::Event(event) => events
                .get(event)
                .is_some_and(|&(stream, order)| copy.stream == stream && copy.order <= order),
        }
    }
}
