//! Digests of device memory, for a replay to compare: `record --digests`.
//!
//! Behind each launch, each wait, or at the end of a context, the recorder enqueues digests of the
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
pub(crate) mod step;
mod table;

use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::MutexGuard;

use cutape_format::layout::{DigestSetupNote, ZeroedNote, digest_reach, digest_skip, note_kind};
use cutape_registry::{Digests, id};

use crate::device_work::{allocated, gives_access_here, in_context, stream_of};
use crate::hot::clock;
use crate::hot::frame::Frame;
use crate::hot::recording;
use crate::hot::thread::Thread;
use crate::process::exit_handler::ExitHandler;
use crate::process::memory;
use crate::process::process_lock::ProcessLock;
use crate::queries::{current_context, current_device, is_capturing};
use crate::state::contexts;
use crate::{driver, entry_addresses};
use prepared::{Prepared, zero};
use ranges::Range;
use step::{DigestStep, Work, when};
use table::{Table, skipped};

/// Values are read during launches, too, when more than this are awaited.
const MANY: usize = 1 << 14;

/// The process exits.
static EXITING: AtomicBool = AtomicBool::new(false);
static TABLE: ProcessLock<Table> = ProcessLock::new();
static AT_EXIT: ExitHandler = ExitHandler::new(at_exit);

/// In a forked child, whose driver is not initialised.
pub(crate) fn forget() {
    TABLE.forget();
}

/// Runs between the enter record and the driver.
pub(crate) fn pre_call(thread: &Thread, frame: &Frame, step: DigestStep) {
    match step {
        DigestStep::Enqueues(work) => {
            let stream = stream_of(frame);
            let mut table = TABLE.lock();
            table.enter(thread, frame, true);
            if work == Work::FreesInOrder {
                table.begin_free(thread, frame.word(0));
            }
            if let Some(stream) =
                stream.filter(|&stream| !is_capturing(frame.description(), stream))
                && let Some(prepared) = table.contexts.get(&current_context())
            {
                prepared.hold_back(stream);
            }
        }
        DigestStep::Waits => TABLE.lock().enter(thread, frame, false),
        DigestStep::Frees => {
            let done = TABLE.lock().begin_free(thread, frame.word(0));
            wait_for(done);
        }
        DigestStep::Unmaps => {
            let done = {
                let mut table = TABLE.lock();
                let (start, length) = (frame.word(0), frame.word(1));
                let is_known = table.ranges.is_any_in(start, length);
                table.ranges.unmap(start, length);
                is_known.then(|| table.running())
            };
            let events = done.into_iter().flatten();
            events.for_each(|event| wait_for(Some(event)));
        }
        DigestStep::DestroysContext => finish_context(thread, frame, frame.word(0)),
        DigestStep::ReleasesPrimary => {
            if let Some(context) = contexts::primary(frame.word(0)) {
                finish_context(thread, frame, context);
            }
        }
        DigestStep::Nothing
        | DigestStep::CreatesContext
        | DigestStep::RetainsPrimary
        | DigestStep::Allocates
        | DigestStep::CreatesPhysical
        | DigestStep::Maps
        | DigestStep::SetsAccess => {}
    }
}

/// Runs between the driver and the leave record, whatever the result. `words` are those that the
/// call gives to the device, if they are known.
pub(crate) fn post_call(thread: &Thread, frame: &Frame, step: DigestStep, words: Option<Vec<u64>>) {
    let succeeded = frame.succeeded();
    match step {
        DigestStep::Nothing => {}
        DigestStep::Enqueues(work) => enqueued(thread, frame, work, words),
        DigestStep::Waits => waited(thread, frame),
        DigestStep::Frees => {
            TABLE.lock().end_free(thread, succeeded);
        }
        _ if !succeeded => {}
        DigestStep::CreatesContext => {
            if let Some(context) = memory::word(frame.word(0)) {
                // A handle may be used again.
                TABLE.lock().end_context(context);
                prepare(thread, context);
            }
        }
        DigestStep::RetainsPrimary => {
            if let Some(context) = memory::word(frame.word(0)) {
                in_context(context, || prepare(thread, context));
            }
        }
        DigestStep::DestroysContext => TABLE.lock().end_context(frame.word(0)),
        DigestStep::ReleasesPrimary => {
            if let Some(context) = contexts::ended_primary(frame.word(0)) {
                TABLE.lock().end_context(context);
            }
        }
        DigestStep::Allocates => {
            if let Some((start, length)) = allocated(frame) {
                add_new(thread, frame, start, length);
            }
        }
        DigestStep::CreatesPhysical => {
            if let Some(handle) = memory::word(frame.word(0)) {
                TABLE.lock().ranges.created(handle, frame.word(1));
            }
        }
        DigestStep::Maps => {
            let [address, length, offset, handle, ..] = frame.words;
            TABLE.lock().ranges.map(address, length, offset, handle);
        }
        DigestStep::SetsAccess => access_set(thread, frame),
        DigestStep::Unmaps => {}
    }
}

/// The addresses in the parameters of a kernel node.
pub(crate) fn name(words: impl Iterator<Item = u64>) {
    TABLE.lock().ranges.name(words, current_context());
}

/// Waits for an event of ours.
fn wait_for(event: Option<u64>) {
    if let Some(event) = event {
        // SAFETY: an event of a context that has not ended; a failure is one of the program's work,
        // which its own calls report.
        let _ = unsafe { driver::call(id::cuEventSynchronize, [event, 0, 0, 0]) };
    }
}

/// Prepares a context that is current, once.
fn prepare(thread: &Thread, context: u64) {
    let mut table = TABLE.lock();
    if table.contexts.contains_key(&context) || table.refused.contains(&context) {
        return;
    }
    let result = match Prepared::new() {
        Ok(prepared) => {
            table.contexts.insert(context, prepared);
            0
        }
        Err(result) => {
            table.refused.insert(context);
            result
        }
    };
    thread.note(note_kind::DIGEST_SETUP, |draft| {
        draft.put_encoded(DigestSetupNote { context, result })
    });
    AT_EXIT.register();
}

/// Sets new memory of the current context to zeros, and knows it from then on.
fn add_new(thread: &Thread, frame: &Frame, address: u64, length: u64) {
    let context = current_context();
    // A primary context may come from a private table of the driver.
    prepare(thread, context);
    let zeroing = TABLE
        .lock()
        .contexts
        .get(&context)
        .map(|found| found.zeroing);
    // Without the lock, since it waits. The program does not know the memory yet.
    if zeroing.is_some_and(|stream| zero(address, length, stream, true)) {
        add_zeroed(thread, frame, &mut TABLE.lock(), (address, length), context);
    }
}

fn add_zeroed(
    thread: &Thread,
    frame: &Frame,
    table: &mut MutexGuard<'static, Table>,
    (address, length): (u64, u64),
    context: u64,
) {
    thread.note(note_kind::ZEROED, |draft| {
        draft.put_encoded(ZeroedNote { address, length })
    });
    table
        .ranges
        .insert(address, Range::new(length, context, frame.start));
}

/// After a call that gives devices access to mapped memory.
fn access_set(thread: &Thread, frame: &Frame) {
    let [address, length, ..] = frame.words;
    if !gives_access_here(frame) {
        return;
    }
    let context = current_context();
    let fresh = TABLE
        .lock()
        .ranges
        .set_access(address, length, context, frame.start);
    for (address, length) in fresh {
        add_new(thread, frame, address, length);
    }
}

/// After a call that enqueues work.
fn enqueued(thread: &Thread, frame: &Frame, work: Work, words: Option<Vec<u64>>) {
    let stream = stream_of(frame);
    let is_captured = stream.is_none_or(|stream| is_capturing(frame.description(), stream));
    let context = current_context();
    if work == Work::AllocatesInOrder && frame.succeeded() && !is_captured {
        prepare(thread, context);
    }
    let mut table = TABLE.lock();
    let is_alone = table.leave(thread);
    if work == Work::FreesInOrder {
        table.end_free(thread, frame.succeeded());
    }
    if !frame.succeeded() {
        return;
    }
    table.ranges.name(words.iter().flatten().copied(), context);
    let Some(stream) = stream.filter(|_| !is_captured) else {
        return;
    };
    if work == Work::AllocatesInOrder
        && let Some((address, length)) = allocated(frame)
        && is_of_current_device(address)
        && table.contexts.contains_key(&context)
        && zero(address, length, stream, false)
    {
        add_zeroed(thread, frame, &mut table, (address, length), context);
    }
    let when = when();
    if when == Some(Digests::End) {
        return;
    }
    let is_due = when == Some(Digests::Launch) && matches!(work, Work::Kernel | Work::Graph);
    let Some(prepared) = table.contexts.get_mut(&context) else {
        if is_due {
            skipped(thread, digest_skip::UNPREPARED);
        }
        return;
    };
    prepared.is_changed = true;
    prepared.waits_for_memory |= work == Work::WaitsForMemory;
    if prepared.waits_for_memory {
        if is_due {
            skipped(thread, digest_skip::WAITS_FOR_MEMORY);
        }
        return;
    }
    let is_followed = prepared.follow(stream).is_ok();
    if !is_due {
        return;
    }
    if prepared.awaited() > MANY {
        table.collect(thread);
    }
    if !is_followed {
        return skipped(thread, digest_skip::REFUSED);
    }
    if !is_alone {
        return skipped(thread, digest_skip::CONCURRENT);
    }
    let (ranges, reach) = match (work, words) {
        (Work::Graph, _) => (
            table.ranges.all(context, frame.start, false),
            digest_reach::ALL,
        ),
        (_, Some(words)) => {
            let reached = table.ranges.reached(words.into_iter(), context);
            (reached, digest_reach::PARAMETERS)
        }
        (_, None) => return skipped(thread, digest_skip::PARAMETERS),
    };
    // A replay issues it when it was entered.
    table.digest(thread, frame.start, context, &ranges, false, reach);
}

/// Whether memory of a pool lies on the device of the current context.
fn is_of_current_device(address: u64) -> bool {
    const DEVICE_ORDINAL: u64 = 9;
    let here = current_device();
    // SAFETY: it writes an int.
    let there = unsafe {
        driver::ask::<u32>(id::cuPointerGetAttribute, |place| {
            [place, DEVICE_ORDINAL, address, 0]
        })
    };
    here.is_some() && here == there.map(u64::from)
}

/// After a call that has waited for work.
fn waited(thread: &Thread, frame: &Frame) {
    let context = current_context();
    let is_exit = EXITING.load(Ordering::Relaxed);
    let mut table = TABLE.lock();
    let is_alone = table.leave(thread);
    table.collect(thread);
    if !frame.succeeded() {
        return;
    }
    if is_exit {
        drop(table);
        return finish(thread, frame, context, false);
    }
    if when() != Some(Digests::Sync) {
        return;
    }
    let Some(prepared) = table.contexts.get_mut(&context) else {
        return;
    };
    if !prepared.is_changed {
        return;
    }
    if prepared.waits_for_memory {
        return skipped(thread, digest_skip::WAITS_FOR_MEMORY);
    }
    if !is_alone {
        return skipped(thread, digest_skip::CONCURRENT);
    }
    prepared.is_changed = false;
    let ranges = table.ranges.all(context, frame.start, false);
    // A replay issues it when it had returned, which was before now.
    let now = clock::ticks();
    table.digest(thread, now, context, &ranges, false, digest_reach::ALL);
}

/// Before a context may end.
fn finish_context(thread: &Thread, frame: &Frame, context: u64) {
    if TABLE.lock().contexts.contains_key(&context) {
        in_context(context, || finish(thread, frame, context, true));
    }
}

/// Digests all memory of the current context, and waits for all its digests.
fn finish(thread: &Thread, frame: &Frame, context: u64, is_before: bool) {
    // SAFETY: no memory is involved.
    let waited = unsafe { driver::call(id::cuCtxSynchronize, [0; 4]) };
    let stream = {
        let mut table = TABLE.lock();
        if waited != Some(0) || !table.contexts.contains_key(&context) {
            return;
        }
        if table.is_alone(thread.ordinal.get(), frame.start) {
            let ranges = table.ranges.all(context, frame.start, true);
            table.digest(
                thread,
                clock::ticks(),
                context,
                &ranges,
                is_before,
                digest_reach::ALL,
            );
        } else {
            skipped(thread, digest_skip::CONCURRENT);
        }
        table.contexts.get(&context).map(|found| found.stream)
    };
    if let Some(stream) = stream {
        // SAFETY: a stream of ours; without the lock, since it waits.
        let _ = unsafe { driver::call(id::cuStreamSynchronize, [stream, 0, 0, 0]) };
        TABLE.lock().collect(thread);
    }
}

/// Makes calls on behalf of the program that are recorded: the last digests need a place in the
/// trace, and a replay does the same there.
extern "C" fn at_exit() {
    if !recording::is_recording() {
        return;
    }
    let contexts: Vec<u64> = match TABLE.try_lock() {
        Some(table) => table.contexts.keys().copied().collect(),
        // A thread that still runs has it.
        None => return,
    };
    EXITING.store(true, Ordering::Relaxed);
    // SAFETY: entries of ours, called as the program would call the driver.
    unsafe {
        let entry = |function| entry_addresses::of(function);
        let push: extern "C" fn(u64) -> i32 = core::mem::transmute(entry(id::cuCtxPushCurrent_v2));
        let wait: extern "C" fn() -> i32 = core::mem::transmute(entry(id::cuCtxSynchronize));
        let pop: extern "C" fn(*mut *mut c_void) -> i32 =
            core::mem::transmute(entry(id::cuCtxPopCurrent_v2));
        for context in contexts {
            if push(context) == 0 {
                wait();
                let mut popped = core::ptr::null_mut();
                pop(&raw mut popped);
            }
        }
    }
    EXITING.store(false, Ordering::Relaxed);
}
