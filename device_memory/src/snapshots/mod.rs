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
mod memory;
mod pieces;

use std::sync::Mutex;

use cutape_format::layout::{MemorySnapshotNote, memory_snapshot, note_kind};
use cutape_registry::{Family, MemoryOp, VirtualMemoryOp};

use crate::recorder::{Call, Recorder};
use crate::step::SnapshotStep;
use deep::Deep;
use live::Range;
use memory::{Failed, Memory, lock, note_piece, read_range, wait_for_all_work};
use pieces::{Divider, Piece};

/// For how long, in nanoseconds, a call is kept waiting until work is complete. A look takes long on a
/// busy machine, so that they are not counted.
const WORK: u64 = 2_000_000_000;
/// How soon it is tried again where other threads were in calls, or work was not complete.
const BUSY_AGAIN: u64 = 100_000_000;
const RUNNING_AGAIN: u64 = 5_000_000_000;
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
    memory: Memory,
    schedule: Mutex<Schedule>,
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

impl Snapshots {
    /// With an interval, snapshots of all memory; of one launch in `deep` its inputs, unless that is
    /// 0.
    pub(crate) fn new(interval: Option<SnapshotInterval>, deep: u64) -> Self {
        Self {
            interval,
            deep: (deep != 0).then(|| Deep::new(deep)),
            memory: Memory::default(),
            schedule: Mutex::default(),
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
            match self.memory.gate.close(thread) {
                // One that began after the question above; none begins while the gate is closed.
                Some(true) if recorder.is_any_captured() => {
                    self.memory.gate.open(thread);
                    return;
                }
                Some(true) => return,
                Some(false) => self.failed(recorder, (memory_snapshot::BUSY, 0)),
                None => {}
            }
        } else if step == SnapshotStep::Launches
            && let Some(deep) = self.deep.as_ref().filter(|deep| deep.is_due(recorder))
        {
            match self.memory.gate.close(thread) {
                Some(true) if recorder.is_any_captured() => {
                    self.memory.gate.open(thread);
                    return;
                }
                Some(true) => return deep.begin(thread),
                Some(false) => deep.failed(recorder),
                None => {}
            }
        }
        self.memory.gate.enter(thread);
    }

    /// Runs between the enter record and the driver.
    pub(crate) fn pre_call(&self, call: &Call<'_>, thread: u64, step: SnapshotStep) {
        if step == SnapshotStep::Nothing {
            return;
        }
        if self.memory.gate.is_closed_by(thread) {
            match self.deep_of(thread) {
                Some(deep) => deep.before(&self.memory, call, thread),
                None => self.take(call.recorder, thread),
            }
        }
        self.note_failure(call.recorder);
        match step {
            SnapshotStep::Frees => self.memory.live().begin_free(thread, call.word(0)),
            SnapshotStep::Unloads => self.memory.live().begin_unload(thread, call.word(0)),
            _ => {}
        }
    }

    /// Before a call that ends a context.
    pub(crate) fn context_ends(&self, thread: u64, context: u64) {
        self.memory.live().begin_end(thread, context);
    }

    /// What looks at a launch of that thread, for which the gate is closed.
    fn deep_of(&self, thread: u64) -> Option<&Deep> {
        self.deep.as_ref().filter(|deep| deep.is_of(thread))
    }

    fn open(&self, thread: u64) {
        if let Some(deep) = self.deep_of(thread) {
            deep.end();
        }
        self.memory.gate.open(thread);
    }

    /// A call that has arrived is left out of the recording. `leave` follows when it has returned.
    pub(crate) fn left_out(&self, thread: u64) {
        self.open(thread);
    }

    /// A call that has arrived has returned, or is not made.
    pub(crate) fn leave(&self, thread: u64) {
        self.open(thread);
        self.memory.gate.leave(thread);
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
            self.memory.live().returned(thread, call.has_succeeded);
        }
        if call.has_succeeded {
            self.succeeded(call, step);
        }
        if step == SnapshotStep::Launches
            && let Some(deep) = self.deep_of(thread)
        {
            deep.after(&self.memory, call, thread);
        }
        self.leave(thread);
    }

    pub(crate) fn context_made(&self, context: u64) {
        if context != 0 {
            self.memory.live().contexts.insert(context);
        }
    }

    pub(crate) fn context_ended(&self, context: u64) {
        self.memory.live().end_context(context);
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
                    self.memory.live().created(handle);
                }
            }
            SnapshotStep::ImportsPhysical => {
                if let Some(handle) = call.shared_physical() {
                    self.memory.live().imported(handle);
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
                    self.memory.live().map(start, length, handle);
                }
            }
            SnapshotStep::SetsAccess if call.gives_access_here() => {
                let context = call.recorder.context();
                self.memory.live().set_access(first, second, context);
            }
            SnapshotStep::SetsAccess => {}
            SnapshotStep::Unmaps => self.memory.live().unmap(first, second),
        }
    }

    fn insert(&self, recorder: &dyn Recorder, start: u64, length: u64, owner: u64) {
        let context = recorder.context();
        let mut live = self.memory.live();
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
        let is_whole = self.memory.gate.open(thread);
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
            let live = self.memory.live();
            let contexts: Vec<u64> = live.contexts.iter().copied().collect();
            (contexts, live.by_context())
        };
        wait_for_all_work(recorder, &contexts, WORK)?;
        let mut contents = Contents::default();
        let Some(&first) = ranges.keys().next() else {
            return Ok(contents);
        };
        let refused = (memory_snapshot::REFUSED, 0);
        let staging = self.memory.staging(recorder, first).ok_or(refused)?;
        for (context, ranges) in ranges {
            let mut known = 0;
            recorder.in_context(context, || known = read_ranges(recorder, &ranges, staging));
            contents.bytes += known;
            let all: u64 = ranges.iter().map(|range| range.1).sum();
            contents.left_out += all - known;
        }
        Ok(contents)
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

fn note(recorder: &dyn Recorder, note: MemorySnapshotNote) {
    recorder.note(note_kind::MEMORY_SNAPSHOT, &mut |record| {
        record.put_encoded(note)
    });
}
