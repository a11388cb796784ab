//! Digests of device memory, for a replay to compare: `record --digests`.
//!
//! After each launch, each wait, or at the end of a context, the recorder enqueues digests of the
//! memory that the work can have changed, and writes which ranges they are of (note DIGEST). A
//! later call that finds them complete writes their values (note DIGEST_VALUES). New memory is set
//! to zeros, because what nobody has written differs from run to run.
//!
//! A digest is worth something only if a replay knows what it saw: all calls that were entered
//! before, and none after. Work of a context is therefore ordered (`prepared`), and a digest is
//! left out where a call of another thread overlaps with the one that it belongs to.
//!
//! While this is on, a lock is held during calls that the recorder makes for itself, which wait
//! for nothing that the program does. It is never held during calls of the program.

mod prepared;
mod ranges;
mod table;

use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use cutape_format::layout::{DigestSetupNote, ZeroedNote, digest_reach, digest_skip, note_kind};
use cutape_registry::{Digests as Points, Family, id};

use crate::recorder::{Call, RecordedCall, Recorder};
use crate::step::{DigestStep, Work};
use prepared::Prepared;
use ranges::Range;
use table::{Table, skipped};

/// Values are read during launches, too, when more than this are awaited.
const MANY: usize = 1 << 14;

/// The digests of a process.
#[derive(Debug)]
pub(crate) struct Digests {
    points: Points,
    /// The process exits.
    is_exiting: AtomicBool,
    table: Mutex<Table>,
}

impl Digests {
    pub(crate) fn new(points: Points) -> Self {
        Self {
            points,
            is_exiting: AtomicBool::new(false),
            table: Mutex::default(),
        }
    }

    pub(crate) fn points(&self) -> Points {
        self.points
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs between the enter record and the driver.
    pub(crate) fn pre_call(&self, call: &Call<'_>, step: DigestStep) {
        let recorder = call.recorder;
        match step {
            DigestStep::Enqueues(work) => {
                let stream = call.stream();
                let mut table = self.lock();
                table.enter(call, true);
                if work == Work::FreesInOrder {
                    table.begin_free(call.thread, call.word(0));
                }
                if let Some(stream) = stream.filter(|&stream| !recorder.is_capturing(stream))
                    && let Some(prepared) = table.contexts.get(&recorder.context())
                {
                    prepared.hold_back(recorder, stream);
                }
            }
            DigestStep::Waits => self.lock().enter(call, false),
            DigestStep::Frees => {
                let done = self.lock().begin_free(call.thread, call.word(0));
                wait_for(recorder, done);
            }
            DigestStep::Unmaps => {
                let done = {
                    let mut table = self.lock();
                    let (start, length) = (call.word(0), call.word(1));
                    let is_known = table.ranges.is_any_in(start, length);
                    table.ranges.unmap(start, length);
                    is_known.then(|| table.running())
                };
                wait_for(recorder, done.into_iter().flatten());
            }
            DigestStep::Nothing
            | DigestStep::Allocates
            | DigestStep::CreatesPhysical
            | DigestStep::Maps
            | DigestStep::SetsAccess
            | DigestStep::Shares => {}
        }
    }

    /// Runs between the driver and the leave record, whatever the result.
    pub(crate) fn post_call(&self, call: &Call<'_>, step: DigestStep) {
        match step {
            DigestStep::Nothing | DigestStep::Unmaps => {}
            DigestStep::Enqueues(work) => self.enqueued(call, work),
            DigestStep::Waits => self.waited(call),
            DigestStep::Frees => self.lock().end_free(call.thread, call.has_succeeded),
            _ if !call.has_succeeded => {}
            DigestStep::Allocates => {
                if let Some((start, length)) = call.allocated() {
                    self.add_new(call, start, length);
                }
            }
            DigestStep::CreatesPhysical => {
                if let Some(handle) = call.pointee(0) {
                    self.lock().ranges.created(handle, call.word(1));
                }
            }
            DigestStep::Maps => {
                let [address, length, offset, handle] = [0, 1, 2, 3].map(|at| call.word(at));
                self.lock().ranges.map(address, length, offset, handle);
            }
            DigestStep::SetsAccess => self.access_set(call),
            DigestStep::Shares => {
                if let Some(handle) = call.shared_physical() {
                    self.lock().ranges.shared(handle);
                }
            }
        }
    }

    /// The addresses in the parameters of a kernel node.
    pub(crate) fn name(&self, words: &[u64], context: u64) {
        self.lock().ranges.name(words.iter().copied(), context);
    }

    /// Prepares a context that is current, once.
    pub(crate) fn prepare(&self, recorder: &dyn Recorder, context: u64) {
        let mut table = self.lock();
        if table.contexts.contains_key(&context) || table.refused.contains(&context) {
            return;
        }
        let result = match Prepared::new(recorder) {
            Ok(prepared) => {
                table.contexts.insert(context, prepared);
                0
            }
            Err(result) => {
                table.refused.insert(context);
                result
            }
        };
        let note = DigestSetupNote { context, result };
        recorder.note(note_kind::DIGEST_SETUP, &mut |record| {
            record.put_encoded(note)
        });
        recorder.run_at_exit();
    }

    /// Before a context may end.
    pub(crate) fn context_ends(&self, call: &Call<'_>, context: u64) {
        let is_prepared = self.lock().contexts.contains_key(&context);
        if is_prepared {
            call.recorder
                .in_context(context, || self.finish(call, context, true));
        }
    }

    pub(crate) fn context_ended(&self, context: u64) {
        self.lock().end_context(context);
    }

    /// Sets new memory of the current context to zeros, and knows it from then on.
    fn add_new(&self, call: &Call<'_>, address: u64, length: u64) {
        let recorder = call.recorder;
        let context = recorder.context();
        // A primary context may come from a private table of the driver.
        self.prepare(recorder, context);
        let zeroing = self
            .lock()
            .contexts
            .get(&context)
            .map(|found| found.zeroing);
        // Without the lock, since it waits. The program does not know the memory yet.
        let is_zeroed = zeroing.is_some_and(|stream| {
            let cleared = recorder.set_to_zeros(address, length, stream);
            cleared
                .and_then(|()| recorder.wait_for_stream(stream))
                .is_ok()
        });
        if is_zeroed {
            add_zeroed(call, &mut self.lock(), (address, length), context);
        }
    }

    /// After a call that gives devices access to mapped memory.
    fn access_set(&self, call: &Call<'_>) {
        let here = call.gives_access_here();
        let here = here.then(|| (call.recorder.context(), call.start));
        let (address, length) = (call.word(0), call.word(1));
        let fresh = self.lock().ranges.set_access(address, length, here);
        for (address, length) in fresh {
            self.add_new(call, address, length);
        }
    }

    /// After a call that enqueues work.
    fn enqueued(&self, call: &Call<'_>, work: Work) {
        let recorder = call.recorder;
        // What the call gives to the device, if that is known.
        let words = match call.function.family {
            Family::Launch(_) => recorder.kernel_words(),
            _ => Some(call.operands()),
        };
        let stream = call.stream();
        let is_captured = stream.is_none_or(|stream| recorder.is_capturing(stream));
        let context = recorder.context();
        if work == Work::AllocatesInOrder && call.has_succeeded && !is_captured {
            self.prepare(recorder, context);
        }
        let mut table = self.lock();
        let is_alone = table.leave(call.thread);
        if work == Work::FreesInOrder {
            table.end_free(call.thread, call.has_succeeded);
        }
        if !call.has_succeeded {
            return;
        }
        table.ranges.name(words.iter().flatten().copied(), context);
        let Some(stream) = stream.filter(|_| !is_captured) else {
            return;
        };
        if work == Work::AllocatesInOrder
            && let Some((address, length)) = call.allocated()
            && is_of_current_device(recorder, address)
            && table.contexts.contains_key(&context)
            && recorder.set_to_zeros(address, length, stream).is_ok()
        {
            add_zeroed(call, &mut table, (address, length), context);
        }
        if self.points == Points::End {
            return;
        }
        let is_due = self.points == Points::Launch && matches!(work, Work::Kernel | Work::Graph);
        let Some(prepared) = table.contexts.get_mut(&context) else {
            if is_due {
                skipped(recorder, digest_skip::UNPREPARED);
            }
            return;
        };
        prepared.is_changed = true;
        prepared.waits_for_memory |= work == Work::WaitsForMemory;
        if prepared.waits_for_memory {
            if is_due {
                skipped(recorder, digest_skip::WAITS_FOR_MEMORY);
            }
            return;
        }
        let is_followed = prepared.follow(recorder, stream).is_ok();
        if !is_due {
            return;
        }
        if prepared.awaited() > MANY {
            table.collect(recorder);
        }
        if !is_followed {
            return skipped(recorder, digest_skip::REFUSED);
        }
        if !is_alone {
            return skipped(recorder, digest_skip::CONCURRENT);
        }
        let (ranges, reach) = match (work, words) {
            (Work::Graph, _) => (
                table.ranges.all(context, call.start, false),
                digest_reach::ALL,
            ),
            (_, Some(words)) => {
                let reached = table.ranges.reached(words.into_iter(), context);
                (reached, digest_reach::PARAMETERS)
            }
            (_, None) => return skipped(recorder, digest_skip::PARAMETERS),
        };
        // A replay issues it when it was entered.
        table.digest(call, call.start, context, &ranges, false, reach);
    }

    /// After a call that has waited for work.
    fn waited(&self, call: &Call<'_>) {
        let recorder = call.recorder;
        let context = recorder.context();
        let is_exit = self.is_exiting.load(Ordering::Relaxed);
        let mut table = self.lock();
        let is_alone = table.leave(call.thread);
        table.collect(recorder);
        if !call.has_succeeded {
            return;
        }
        if is_exit {
            drop(table);
            return self.finish(call, context, false);
        }
        if self.points != Points::Sync {
            return;
        }
        let Some(prepared) = table.contexts.get_mut(&context) else {
            return;
        };
        if !prepared.is_changed {
            return;
        }
        if prepared.waits_for_memory {
            return skipped(recorder, digest_skip::WAITS_FOR_MEMORY);
        }
        if !is_alone {
            return skipped(recorder, digest_skip::CONCURRENT);
        }
        prepared.is_changed = false;
        let ranges = table.ranges.all(context, call.start, false);
        // A replay issues it when it had returned, which was before now.
        let now = recorder.ticks();
        table.digest(call, now, context, &ranges, false, digest_reach::ALL);
    }

    /// Digests all memory of the current context, and waits for all its digests.
    fn finish(&self, call: &Call<'_>, context: u64, is_before: bool) {
        let recorder = call.recorder;
        let has_waited = recorder.wait_for_context().is_ok();
        let stream = {
            let mut table = self.lock();
            if !has_waited || !table.contexts.contains_key(&context) {
                return;
            }
            if table.is_alone(call.thread, call.start) {
                let ranges = table.ranges.all(context, call.start, true);
                let now = recorder.ticks();
                table.digest(call, now, context, &ranges, is_before, digest_reach::ALL);
            } else {
                skipped(recorder, digest_skip::CONCURRENT);
            }
            table.contexts.get(&context).map(|found| found.stream)
        };
        if let Some(stream) = stream {
            // Without the lock, since it waits.
            let _ = recorder.wait_for_stream(stream);
            self.lock().collect(recorder);
        }
    }

    /// When the process exits: the last digests need a place in the trace, and a replay does the
    /// same there.
    pub(crate) fn exit(&self, recorded: RecordedCall<'_>) {
        let contexts: Vec<u64> = match self.table.try_lock() {
            Ok(table) => table.contexts.keys().copied().collect(),
            // A thread that still runs has it.
            Err(_) => return,
        };
        self.is_exiting.store(true, Ordering::Relaxed);
        for context in contexts {
            if recorded(id::cuCtxPushCurrent_v2, context) == 0 {
                recorded(id::cuCtxSynchronize, 0);
                let mut popped = 0_u64;
                recorded(id::cuCtxPopCurrent_v2, (&raw mut popped) as u64);
            }
        }
        self.is_exiting.store(false, Ordering::Relaxed);
    }
}

fn add_zeroed(call: &Call<'_>, table: &mut Table, (address, length): (u64, u64), context: u64) {
    let note = ZeroedNote { address, length };
    call.recorder
        .note(note_kind::ZEROED, &mut |record| record.put_encoded(note));
    table
        .ranges
        .insert(address, Range::new(length, context, call.start));
}

/// Waits for events of ours.
fn wait_for(recorder: &dyn Recorder, events: impl IntoIterator<Item = u64>) {
    for event in events {
        // A failure is one of the program's work, which its own calls report.
        let _ = recorder.wait_for_event(event);
    }
}

/// Whether memory of a pool lies on the device of the current context.
fn is_of_current_device(recorder: &dyn Recorder, address: u64) -> bool {
    let here = recorder.device();
    here.is_some() && here == recorder.device_of(address).ok()
}
