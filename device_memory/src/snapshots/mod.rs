//! Snapshots of all device memory: `record --memory`. A part of a recording that begins in the
//! middle replays with what memory held there.
//!
//! A snapshot belongs to a call that is about to give the device work or to copy. It is taken when
//! no other thread is in a call that changes memory (`gate`) and all work of all contexts is
//! complete, and says what memory held before the call (notes MEMORY, MEMORY_SNAPSHOT). The gate
//! comes before the enter record, so that the calls before the snapshot have returned before its call
//! is entered, and those after it are entered later: a replay finds the same order.
//! Where one of the two does not happen in a short time, it is tried again at a later call: work
//! may wait for the program, so that nothing here waits for it without a limit.
//!
//! No lock is held during calls of the driver. Other threads wait at the gate.
//!
//! `deep` reads only what a launch can reach, and digests it after the launch.

mod deep;
mod gate;
mod live;
mod pieces;

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use cutape_format::layout::{MemoryNote, MemorySnapshotNote, memory_snapshot, note_kind};
use cutape_registry::{Family, MemoryOp, VirtualMemoryOp};

use crate::own_memory;
use crate::recorder::{Call, Recorder};
use crate::step::SnapshotStep;
use crate::work::Outcome;
use deep::Deep;
use gate::Gate;
use live::{Live, Range};
use pieces::{Divider, Held, LONGEST, Piece};

/// For how long, in nanoseconds, a call is kept waiting until work is complete. A look takes long on a
/// busy machine, so that they are not counted.
const WORK: u64 = 2_000_000_000;
/// Between two looks at whether it is.
const LOOK: Duration = Duration::from_micros(200);
/// How soon it is tried again where other threads were in calls, or work was not complete.
const BUSY_AGAIN: u64 = 100_000_000;
const RUNNING_AGAIN: u64 = 5_000_000_000;
/// CUDA_ERROR_NOT_READY.
const NOT_READY: i32 = 600;
/// Memory that device memory is copied to, a part at a time: a multiple of what is a piece.
const STAGING: u64 = 16 * LONGEST as u64;

/// When memory is read again, apart from where a pause of the recording ends; 0: not for that
/// reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SnapshotInterval {
    /// After so many nanoseconds.
    pub nanoseconds: u64,
    /// After so many bytes of the trace.
    pub bytes: u64,
}

/// The snapshots of a process.
#[derive(Debug)]
pub(crate) struct Snapshots {
    /// `None`: no snapshots are taken.
    interval: Option<SnapshotInterval>,
    /// Launches whose inputs are noted.
    deep: Option<Deep>,
    gate: Gate,
    live: Mutex<Live>,
    schedule: Mutex<Schedule>,
    /// Where memory is copied to, of `STAGING` bytes.
    staging: OnceLock<Option<u64>>,
}

/// What decides when the next snapshot is taken.
#[derive(Debug, Default)]
struct Schedule {
    taken: u64,
    /// How many pauses had begun, when the last one was taken.
    pauses: u32,
    /// When it was complete, and how long the trace was then.
    at: u64,
    length: u64,
    /// Not before.
    retry_at: u64,
    /// Why the next one was not taken so far, and whether that has been noted.
    failed: Option<Failed>,
    is_noted: bool,
}

/// What a snapshot has.
#[derive(Debug, Default)]
struct Contents {
    bytes: u64,
    left_out: u64,
}

/// Why none was taken: a state of [`memory_snapshot`] and a `CUresult`.
type Failed = (u8, i32);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Snapshots {
    /// With an interval, snapshots of all memory; of one launch in `deep` its inputs, unless that is
    /// 0.
    pub(crate) fn new(interval: Option<SnapshotInterval>, deep: u64) -> Self {
        Self {
            interval,
            deep: (deep != 0).then(|| Deep::new(deep)),
            gate: Gate::default(),
            live: Mutex::default(),
            schedule: Mutex::default(),
            staging: OnceLock::new(),
        }
    }

    /// Before the enter record of a call, or before it is left out: waits until no snapshot is being
    /// taken, or begins one. `thread` is a key of the calling thread. `pre_call` or `left_out` follow,
    /// or `leave`.
    pub(crate) fn arrive(&self, recorder: &dyn Recorder, thread: u64, step: SnapshotStep) {
        if step == SnapshotStep::Nothing {
            return;
        }
        if matches!(step, SnapshotStep::Works | SnapshotStep::Launches) && self.is_due(recorder) {
            match self.gate.close(thread) {
                // One that began after the question above; none begins while the gate is closed.
                Some(true) if recorder.is_any_captured() => {
                    self.gate.open(thread);
                    return;
                }
                Some(true) => return,
                Some(false) => self.failed(recorder, (memory_snapshot::BUSY, 0)),
                None => {}
            }
        } else if step == SnapshotStep::Launches
            && let Some(deep) = self.deep.as_ref().filter(|deep| deep.is_due(recorder))
        {
            match self.gate.close(thread) {
                Some(true) if recorder.is_any_captured() => {
                    self.gate.open(thread);
                    return;
                }
                Some(true) => return deep.begin(thread),
                Some(false) => deep.failed(recorder),
                None => {}
            }
        }
        self.gate.enter(thread);
    }

    /// Runs between the enter record and the driver.
    pub(crate) fn pre_call(&self, call: &Call<'_>, thread: u64, step: SnapshotStep) {
        if step == SnapshotStep::Nothing {
            return;
        }
        if self.gate.is_closed_by(thread) {
            match self.deep_of(thread) {
                Some(deep) => self.before_deep(deep, call, thread),
                None => self.take(call.recorder, thread),
            }
        }
        self.note_failure(call.recorder);
        match step {
            SnapshotStep::Frees => lock(&self.live).begin_free(thread, call.word(0)),
            SnapshotStep::Unloads => lock(&self.live).begin_unload(thread, call.word(0)),
            _ => {}
        }
    }

    /// Before a call that ends a context.
    pub(crate) fn context_ends(&self, thread: u64, context: u64) {
        lock(&self.live).begin_end(thread, context);
    }

    /// What looks at a launch of that thread, for which the gate is closed.
    fn deep_of(&self, thread: u64) -> Option<&Deep> {
        self.deep.as_ref().filter(|deep| deep.is_of(thread))
    }

    fn open(&self, thread: u64) {
        if let Some(deep) = self.deep_of(thread) {
            deep.end();
        }
        self.gate.open(thread);
    }

    /// A call that has arrived is left out of the recording. `leave` follows when it has returned.
    pub(crate) fn left_out(&self, thread: u64) {
        self.open(thread);
    }

    /// A call that has arrived has returned, or is not made.
    pub(crate) fn leave(&self, thread: u64) {
        self.open(thread);
        self.gate.leave(thread);
    }

    /// Runs between the driver and the leave record, whatever the result.
    pub(crate) fn post_call(&self, call: &Call<'_>, thread: u64, step: SnapshotStep) {
        if step == SnapshotStep::Nothing {
            return;
        }
        if matches!(
            step,
            SnapshotStep::Frees | SnapshotStep::Unloads | SnapshotStep::ChangesContext
        ) {
            lock(&self.live).returned(thread, call.has_succeeded);
        }
        if call.has_succeeded {
            self.succeeded(call, step);
        }
        if step == SnapshotStep::Launches
            && let Some(deep) = self.deep_of(thread)
        {
            self.after_deep(deep, call, thread);
        }
        self.leave(thread);
    }

    pub(crate) fn context_made(&self, context: u64) {
        if context != 0 {
            lock(&self.live).contexts.insert(context);
        }
    }

    pub(crate) fn context_ended(&self, context: u64) {
        lock(&self.live).end_context(context);
    }

    /// After a successful call, which is still inside the gate.
    fn succeeded(&self, call: &Call<'_>, step: SnapshotStep) {
        let [first, second] = [0, 1].map(|at| call.word(at));
        match step {
            SnapshotStep::Nothing
            | SnapshotStep::Works
            | SnapshotStep::Launches
            | SnapshotStep::Frees
            | SnapshotStep::Unloads
            | SnapshotStep::ChangesContext
            | SnapshotStep::BeginsCapture => {}
            SnapshotStep::Allocates => {
                let allocated = call.allocated().filter(|_| !is_captured(call));
                if let Some((start, length)) = allocated {
                    self.insert(call.recorder, start, length, 0);
                }
            }
            SnapshotStep::FindsVariable => {
                const OWNER: u8 = 2;
                let length = call.pointee(1).filter(|_| second != 0);
                if let (Some(start), Some(length)) = (call.pointee(0), length) {
                    self.insert(call.recorder, start, length, call.word(OWNER));
                }
            }
            SnapshotStep::CreatesPhysical => {
                if let Some(handle) = call.pointee(0) {
                    lock(&self.live).created(handle);
                }
            }
            SnapshotStep::ImportsPhysical => {
                if let Some(handle) = call.shared_physical() {
                    lock(&self.live).imported(handle);
                }
            }
            SnapshotStep::Maps => {
                if let Family::VirtualMemory(VirtualMemoryOp::Map {
                    address,
                    size,
                    allocation,
                }) = call.function.family
                {
                    let [start, length, handle] =
                        [address, size, allocation].map(|at| call.word(at));
                    lock(&self.live).map(start, length, handle);
                }
            }
            SnapshotStep::SetsAccess if call.gives_access_here() => {
                let context = call.recorder.context();
                lock(&self.live).set_access(first, second, context);
            }
            SnapshotStep::SetsAccess => {}
            SnapshotStep::Unmaps => lock(&self.live).unmap(first, second),
        }
    }

    fn insert(&self, recorder: &dyn Recorder, start: u64, length: u64, owner: u64) {
        let context = recorder.context();
        let mut live = lock(&self.live);
        live.contexts.insert(context);
        live.insert(
            start,
            Range {
                length,
                context,
                owner,
            },
        );
    }

    /// Whether a snapshot is to be taken now.
    fn is_due(&self, recorder: &dyn Recorder) -> bool {
        let (Some(pauses), Some(limits)) = (recorder.pauses(), self.interval) else {
            return false;
        };
        let schedule = lock(&self.schedule);
        let now = recorder.nanoseconds();
        let has_passed = |interval: u64, since: u64, now: u64| {
            interval != 0 && now.saturating_sub(since) >= interval
        };
        let is_due = schedule.taken == 0
            || pauses != schedule.pauses
            || has_passed(limits.nanoseconds, schedule.at, now)
            || has_passed(limits.bytes, schedule.length, recorder.trace_length());
        is_due && now >= schedule.retry_at && !recorder.is_any_captured()
    }

    /// Takes a snapshot, if possible. The gate is closed by this thread.
    #[cold]
    fn take(&self, recorder: &dyn Recorder, thread: u64) {
        let began = recorder.nanoseconds();
        let pauses = recorder.pauses();
        let read = self.read_all(recorder);
        let is_whole = self.gate.open(thread);
        let contents = match read {
            Ok(contents) => contents,
            Err(failed) => return self.failed(recorder, failed),
        };
        let now = recorder.nanoseconds();
        let mut schedule = lock(&self.schedule);
        let number = schedule.taken + 1;
        *schedule = Schedule {
            taken: number,
            // Another one soon if this one does not count.
            pauses: pauses.filter(|_| is_whole).unwrap_or(u32::MAX),
            at: now,
            length: recorder.trace_length(),
            ..Schedule::default()
        };
        drop(schedule);
        let taken = MemorySnapshotNote {
            number,
            bytes: contents.bytes,
            left_out: contents.left_out,
            nanoseconds: now.saturating_sub(began),
            result: 0,
            state: memory_snapshot::TAKEN,
        };
        note(recorder, taken);
        if !is_whole {
            let void = MemorySnapshotNote {
                number,
                state: memory_snapshot::VOID,
                ..MemorySnapshotNote::default()
            };
            note(recorder, void);
        }
    }

    fn failed(&self, recorder: &dyn Recorder, failed: Failed) {
        let mut schedule = lock(&self.schedule);
        schedule.is_noted &= schedule.failed == Some(failed);
        schedule.failed = Some(failed);
        let again = match failed.0 {
            memory_snapshot::BUSY => BUSY_AGAIN,
            _ => RUNNING_AGAIN,
        };
        schedule.retry_at = recorder.nanoseconds().saturating_add(again);
    }

    /// Notes once why the next snapshot was not taken so far.
    fn note_failure(&self, recorder: &dyn Recorder) {
        let mut schedule = lock(&self.schedule);
        let Some((state, result)) = schedule.failed.filter(|_| !schedule.is_noted) else {
            return;
        };
        schedule.is_noted = true;
        drop(schedule);
        let failed = MemorySnapshotNote {
            result,
            state,
            ..MemorySnapshotNote::default()
        };
        note(recorder, failed);
    }

    /// Reads all memory, once all work is complete. The gate is closed.
    fn read_all(&self, recorder: &dyn Recorder) -> Result<Contents, Failed> {
        let (contexts, ranges) = {
            let live = lock(&self.live);
            let contexts: Vec<u64> = live.contexts.iter().copied().collect();
            (contexts, live.by_context())
        };
        wait_for_all_work(recorder, &contexts, WORK)?;
        let mut contents = Contents::default();
        let Some(&first) = ranges.keys().next() else {
            return Ok(contents);
        };
        let refused = (memory_snapshot::REFUSED, 0);
        let staging = self.staging(recorder, first).ok_or(refused)?;
        for (context, ranges) in ranges {
            let mut known = 0;
            recorder.in_context(context, || known = read_ranges(recorder, &ranges, staging));
            contents.bytes += known;
            let all: u64 = ranges.iter().map(|range| range.1).sum();
            contents.left_out += all - known;
        }
        Ok(contents)
    }

    /// Where memory is copied to. `context` is one that exists.
    fn staging(&self, recorder: &dyn Recorder, context: u64) -> Option<u64> {
        let staging = (*self.staging.get_or_init(|| own_memory::map(STAGING)))?;
        // Page-locked memory is copied to at full speed; without, it is still copied to. It stays so:
        // cuMemHostUnregister waits for the context, whose work may wait for this thread.
        if lock(&self.live).staging_of.is_none() {
            recorder.in_context(context, || {
                if recorder.register(staging, STAGING).is_ok() {
                    lock(&self.live).staging_of = Some(context);
                }
            });
        }
        Some(staging)
    }
}

/// Whether memory is allocated when a graph is launched: until then there is none at its address.
fn is_captured(call: &Call<'_>) -> bool {
    let recorder = call.recorder;
    let is_captured = |stream| recorder.is_capturing(stream);
    call.function.family == Family::Memory(MemoryOp::AllocateAsync)
        && recorder.is_any_captured()
        && call.stream().is_none_or(is_captured)
}

/// Waits until the work of these contexts is complete, but at most for so many nanoseconds.
fn wait_for_all_work(recorder: &dyn Recorder, contexts: &[u64], limit: u64) -> Result<(), Failed> {
    let mut events = Vec::with_capacity(contexts.len());
    let mut outcome: Outcome = Ok(());
    for &context in contexts {
        recorder.in_context(context, || {
            let recorded = recorder.create_event().and_then(|event| {
                events.push((context, event));
                recorder.record_context(event, context)
            });
            outcome = outcome.and(recorded);
        });
    }
    let end = recorder.nanoseconds().saturating_add(limit);
    let mut is_running = |&(context, event): &(u64, u64)| {
        let mut answer = Err(NOT_READY);
        recorder.in_context(context, || answer = recorder.ask_event(event));
        // What is wrong with the work, its own calls say.
        answer == Err(NOT_READY)
    };
    let mut has_ended = true;
    while outcome.is_ok() {
        has_ended = !events.iter().any(&mut is_running);
        if has_ended || recorder.nanoseconds() >= end {
            break;
        }
        std::thread::sleep(LOOK);
    }
    for (context, event) in events {
        recorder.in_context(context, || recorder.destroy_event(event));
    }
    match outcome {
        Err(result) => Err((memory_snapshot::REFUSED, result)),
        Ok(()) if has_ended => Ok(()),
        Ok(()) => Err((memory_snapshot::RUNNING, 0)),
    }
}

/// Notes what ranges of memory of the current context hold. Returns how many bytes could be read.
fn read_ranges(recorder: &dyn Recorder, ranges: &[(u64, u64)], staging: u64) -> u64 {
    let Ok(stream) = recorder.create_stream() else {
        return 0;
    };
    let read = |&(start, length): &(u64, u64)| {
        let mut divider = Divider::default();
        let mut put = |piece: Piece<'_>| note_piece(recorder, start, &piece);
        let take = &mut |at, bytes: &[u8]| divider.add(at, bytes, &mut put);
        let known = read_range(recorder, (start, length), (staging, stream), take);
        divider.finish(&mut put);
        known
    };
    let known = ranges.iter().map(read).sum();
    recorder.destroy_stream(stream);
    known
}

/// Reads a range of memory through `staging`, a part at a time. Returns how many bytes could be read.
fn read_range(
    recorder: &dyn Recorder,
    (start, length): (u64, u64),
    (staging, stream): (u64, u64),
    take: &mut dyn FnMut(u64, &[u8]),
) -> u64 {
    let mut at = 0;
    while at < length {
        let part = STAGING.min(length - at);
        let copied = recorder.copy_now(staging, start + at, part, stream);
        if copied.is_err() {
            break;
        }
        // SAFETY: the mapping has `STAGING` bytes and is never unmapped; the copy is complete, and
        // no other thread copies while the gate is closed.
        let bytes = unsafe { core::slice::from_raw_parts(staging as *const u8, part as usize) };
        take(at, bytes);
        at += part;
    }
    at.min(length)
}

fn note_piece(recorder: &dyn Recorder, start: u64, piece: &Piece<'_>) {
    let memory = MemoryNote {
        address: start + piece.at,
        length: piece.length,
        fill: match piece.held {
            Held::Word(word) => word,
            Held::Bytes(_) => 0,
        },
        ..MemoryNote::default()
    };
    match piece.held {
        Held::Word(_) => recorder.note(note_kind::MEMORY, &mut |record| record.put_encoded(memory)),
        Held::Bytes(bytes) => recorder.note_bytes(
            note_kind::MEMORY,
            &mut |record| record.put_encoded(memory),
            bytes,
        ),
    }
}

fn note(recorder: &dyn Recorder, note: MemorySnapshotNote) {
    recorder.note(note_kind::MEMORY_SNAPSHOT, &mut |record| {
        record.put_encoded(note)
    });
}
