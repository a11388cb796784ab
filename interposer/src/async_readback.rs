//! Asynchronous readbacks: copies to host memory that have been enqueued.
//!
//! A copy to pageable memory is complete when it returns (CUDA manual, API synchronization
//! behavior), so its bytes belong to its own leave record. The program may change or free the
//! memory before the next call. Copies of a batch are complete only if their source is accessed
//! during the call. The bytes of other copies are recorded by the first call that proves them
//! complete.
//!
//! With `--check-sources`, page-locked memory that an asynchronous copy reads is digested behind the
//! copy's call and again when it is complete: the program must not change it in between.

use core::sync::atomic::{AtomicUsize, Ordering};

use cutape_driver::digest::digest;
use cutape_format::layout::{ReadbackNote, SourceChangedNote, field, note_kind};
use cutape_order::{Moment, StreamKey};
use cutape_registry::{FUNCTIONS, Function, Role};

use crate::file::rows::{Memory, Rows};
use crate::host_memory::{self, Which};
use crate::hot::clock;
use crate::hot::frame::Frame;
use crate::hot::recording::Direction;
use crate::hot::thread::Thread;
use crate::process::memory::{self, Scratch};
use crate::process::process_lock::ProcessLock;
use crate::queries::{is_capturing, is_pageable};
use crate::snapshot;
use crate::state::followed_work::{self, Work};

/// What a call copies to host memory, or from there.
#[derive(Clone, Copy)]
struct Copied {
    thread: u32,
    /// Number of the call that has enqueued it.
    number: u64,
    parameter: u8,
    field: u8,
    memory: Rows,
    /// Of a source: the digest of its bytes behind the call.
    source: Option<u64>,
}

impl Copied {
    fn by_last_call(thread: &Thread, parameter: u8, field: u8, memory: Rows) -> Self {
        Self {
            thread: thread.ordinal.get(),
            number: thread.calls.get().wrapping_sub(1),
            parameter,
            field,
            memory,
            source: None,
        }
    }

    /// Whether there is something to write when the copy is complete.
    fn is_noted(&self) -> bool {
        self.source
            .is_none_or(|then| Some(then) != digest_of(&self.memory))
    }
}

struct Readback {
    work: Work,
    copied: Copied,
    /// The next launch of its graph overwrites its bytes.
    is_graphs: bool,
}

static READBACKS: ProcessLock<Vec<Readback>> = ProcessLock::new();
/// More are never awaited: a program may learn in other ways that they are complete.
const MOST_AWAITED: usize = 1 << 16;
/// Bytes that are digested at a time.
const DIGESTED_AT_ONCE: usize = 1 << 16;
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

/// Adds what an asynchronous copy that was just enqueued writes, unless it is captured. True if it
/// is complete, which only a copy to pageable memory `can_be`: then nothing is awaited. Called
/// while the call is in progress, so that it is the last one of its thread.
fn add(
    thread: &Thread,
    frame: &Frame,
    (parameter, field): (u8, u8),
    memory: Rows,
    can_be: bool,
) -> bool {
    let Some((function, handle)) = function_and_stream(frame) else {
        return false;
    };
    if is_capturing(function, handle) {
        return false;
    }
    if can_be && is_pageable(memory.address) {
        if followed_work::any() {
            // So is all that was before it in its stream.
            followed_work::has_waited_for(thread, frame, handle);
            complete(thread);
            host_memory::waited(thread);
        }
        return true;
    }
    let work = followed_work::follow(thread, frame, handle);
    let copied = Copied::by_last_call(thread, parameter, field, memory);
    await_readback(work, copied, false);
    false
}

/// Adds the one range of host memory that an asynchronous copy writes. If the copy is complete, its
/// leave record takes the bytes.
pub(crate) fn add_only(
    thread: &Thread,
    frame: &mut Frame,
    parameter: u8,
    field: u8,
    memory: Option<Rows>,
) {
    let is_complete =
        memory.is_some_and(|memory| add(thread, frame, (parameter, field), memory, true));
    frame.set_copied(is_complete);
}

/// Adds one of several ranges of host memory that an asynchronous copy writes. If the copy to it is
/// complete, which it `can_be`, its bytes are noted at once.
pub(crate) fn add_one_of_several(thread: &Thread, frame: &Frame, memory: Rows, can_be: bool) {
    let (parameter, field) = (0, field::HOST_BYTES);
    if add(thread, frame, (parameter, field), memory, can_be) {
        put_note(
            thread,
            Copied::by_last_call(thread, parameter, field, memory),
        );
    }
}

fn await_readback(work: Work, copied: Copied, is_graphs: bool) {
    let mut awaited = READBACKS.lock();
    if awaited.len() >= MOST_AWAITED {
        // Apparently no recorded call will prove these complete.
        awaited.drain(..MOST_AWAITED / 2);
        followed_work::release(MOST_AWAITED / 2);
    }
    awaited.push(Readback {
        work,
        copied,
        is_graphs,
    });
    AWAITED.store(awaited.len(), Ordering::Release);
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
            && readback.copied.memory.address == target.address
            && readback.copied.memory.length() == target.length()
    };
    for &memory in targets {
        let copied = Copied::by_last_call(thread, 0, field::HOST_BYTES, memory);
        await_readback(followed_work::follow(thread, frame, handle), copied, true);
    }
    let number = thread.calls.get().wrapping_sub(1);
    let is_new = |copied: &Copied| copied.thread == thread.ordinal.get() && copied.number == number;
    let mut awaited = READBACKS.lock();
    let before = awaited.len();
    awaited.retain(|readback| {
        is_new(&readback.copied) || !targets.iter().any(|target| is_same(readback, target))
    });
    followed_work::release(before - awaited.len());
    AWAITED.store(awaited.len(), Ordering::Release);
}

/// Adds the page-locked source of an asynchronous copy that was just enqueued, unless it is
/// captured.
fn add_source(thread: &Thread, frame: &Frame, parameter: u8, memory: Rows) {
    let Some((function, handle)) = function_and_stream(frame) else {
        return;
    };
    if is_capturing(function, handle) || is_pageable(memory.address) {
        return;
    }
    let Some(source) = digest_of(&memory) else {
        return;
    };
    let copied = Copied::by_last_call(thread, parameter, field::POINTEE, memory);
    let source = Some(source);
    let work = followed_work::follow(thread, frame, handle);
    await_readback(work, Copied { source, ..copied }, false);
}

/// A digest of memory in one piece; `None` if it cannot be read.
fn digest_of(memory: &Rows) -> Option<u64> {
    let mut buffer = Scratch::new(DIGESTED_AT_ONCE)?;
    let (mut at, mut left, mut sum) = (memory.address, memory.length(), 0_u64);
    while left != 0 {
        let length = left.min(DIGESTED_AT_ONCE as u64);
        let piece = buffer.bytes().get_mut(..length as usize)?;
        if !memory::read_all(at, piece) {
            return None;
        }
        sum = sum.rotate_left(1) ^ digest(piece);
        at = at.wrapping_add(length);
        left -= length;
    }
    Some(sum)
}

/// Adds what a call copies to the host, of which the registry's roles say where it is; or the
/// source of its copy.
pub(crate) fn add_by_roles(thread: &Thread, frame: &mut Frame) {
    let function = frame.description();
    for (position, parameter) in (0..).zip(function.params) {
        if let Role::HostRead(length) = parameter.role {
            let memory = Rows::flat(
                frame.word(position),
                snapshot::bytes_of(length, function, frame),
            );
            return add_source(thread, frame, position, memory);
        }
        if let Role::HostWrite(length) = parameter.role {
            let address = frame.word(position);
            let memory = || Rows::flat(address, snapshot::bytes_of(length, function, frame));
            let memory = (address != 0).then(memory);
            return add_only(thread, frame, position, field::POINTEE, memory);
        }
    }
}

/// Writes the bytes of the readbacks that are complete after a wait.
pub(crate) fn complete(thread: &Thread) {
    if !any() {
        return;
    }
    // Until the notes are written: whoever learns from a call of its own that a copy is complete may
    // then change the memory, and that call comes by here first.
    let mut awaited = READBACKS.lock();
    let completed: Vec<Readback> = followed_work::asking(|is_complete| {
        let completed = awaited.extract_if(.., |readback| is_complete(readback.work));
        completed.collect()
    });
    for readback in completed.iter().filter(|one| one.copied.is_noted()) {
        put_note(thread, readback.copied);
    }
    followed_work::release(completed.len());
    AWAITED.store(awaited.len(), Ordering::Release);
}

/// A readback that is complete, until a call notes it.
pub(crate) struct Held {
    copied: Copied,
    /// What it has brought; none of a source that has changed.
    bytes: Vec<u8>,
}

impl Held {
    /// Reads what it has brought; `None` if that cannot be read.
    fn of(copied: Copied) -> Option<Self> {
        let mut bytes = Vec::new();
        if copied.source.is_none() {
            let length = usize::try_from(copied.memory.length()).ok()?;
            bytes.try_reserve_exact(length).ok()?;
            bytes.resize(length, 0);
            let mut rest = bytes.as_mut_slice();
            for (address, length) in copied.memory.pieces() {
                let (row, behind) = rest.split_at_mut_checked(length as usize)?;
                if !memory::read_all(address, row) {
                    return None;
                }
                rest = behind;
            }
        }
        Some(Self { copied, bytes })
    }

    pub(crate) fn note(&self, thread: &Thread) {
        let bytes = Rows::flat(self.bytes.as_ptr() as u64, self.bytes.len() as u64);
        put_note_of(thread, self.copied, &bytes);
    }
}

/// The driver has come to what a call has enqueued in a stream that was entered then: takes the
/// readbacks before it.
pub(crate) fn hold(stream: StreamKey, entered: Moment) -> Vec<Held> {
    if !any() {
        return Vec::new();
    }
    let mut awaited = READBACKS.lock();
    let arrived: Vec<Readback> = followed_work::asking_before(stream, entered, |is_before| {
        let arrived = awaited.extract_if(.., |readback| is_before(readback.work));
        arrived.collect()
    });
    followed_work::release(arrived.len());
    AWAITED.store(awaited.len(), Ordering::Release);
    let noted = arrived.into_iter().filter(|one| one.copied.is_noted());
    noted.filter_map(|one| Held::of(one.copied)).collect()
}

/// Before memory is freed: what has not arrived there is not read any more.
pub(crate) fn memory_ends(start: u64, length: u64) {
    drop_those(|readback, _| {
        let address = readback.copied.memory.address;
        address == start || address.wrapping_sub(start) < length
    });
}

/// Contexts have ended: what their copies have brought cannot be known any more.
pub(crate) fn contexts_ended(which: Which) {
    drop_those(|readback, context_of| which.is_in(context_of(readback.work)));
}

/// Awaits some readbacks no more; the closure gets a function that says which context work is of.
fn drop_those(is_lost: impl Fn(&Readback, &dyn Fn(Work) -> u64) -> bool) {
    if !any() {
        return;
    }
    let mut awaited = READBACKS.lock();
    let before = awaited.len();
    followed_work::asking_contexts(|context_of| {
        awaited.retain(|readback| !is_lost(readback, context_of));
    });
    followed_work::release(before - awaited.len());
    AWAITED.store(awaited.len(), Ordering::Release);
}

/// Writes what a copy has brought, which is in its memory now, or that its source was changed.
fn put_note(thread: &Thread, copied: Copied) {
    put_note_of(thread, copied, &copied.memory);
    if copied.source.is_none() {
        thread.looked.set(clock::ticks());
    }
}

/// The same, of bytes that are elsewhere.
fn put_note_of(thread: &Thread, copied: Copied, bytes: &Rows) {
    if copied.source.is_some() {
        let note = SourceChangedNote {
            thread: copied.thread,
            number: copied.number,
            address: copied.memory.address,
            length: copied.memory.length(),
        };
        thread.note(note_kind::SOURCE_CHANGED, |draft| draft.put_encoded(note));
        return;
    }
    let note = ReadbackNote {
        thread: copied.thread,
        number: copied.number,
        address: copied.memory.address,
    };
    thread.note(note_kind::READBACK, |draft| {
        draft.put_encoded(note)?;
        let (position, field) = (copied.parameter, copied.field);
        snapshot::payload(draft, position, field, bytes, Direction::FromDevice)
    });
}
