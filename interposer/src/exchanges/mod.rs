//! What exchanges with other processes change in memory of this one: `record
//! --outputs-of-exchanges`. A rank that is replayed alone gets it from the recording.
//!
//! An exchange is a launch, or a copy between device memory, that reaches memory which this process
//! has exported or imported (`known_memory`). Before and behind it the recorder enqueues copies of
//! what it names, on its stream (`host_copies`), and behind them a mark. A later call that finds
//! the mark writes the bytes that differ.
//!
//! No call waits for an exchange: a thread may launch the parts of a collective on several devices,
//! one after the other, and all parts wait for the last one. Only before memory or a context ends,
//! or the process, the recorder waits, and not for long. No lock is held during calls of the driver
//! that enqueue work, because these may wait for room in a stream.

mod changes;
mod copies;
mod host_copies;
mod in_progress;
mod known_memory;
mod ring;
pub(crate) mod step;

use core::sync::atomic::Ordering;

use cutape_registry::{Family, Role, Shared, SharedKind, SharingOp, VirtualMemoryOp, id};

use crate::device_work::{allocated, gives_access_here, in_context};
use crate::hot::frame::Frame;
use crate::hot::recording;
use crate::hot::thread::Thread;
use crate::process::exit_handler::ExitHandler;
use crate::process::{errno::Errno, log, memory};
use crate::queries::current_context;
use crate::state::contexts;
use crate::{driver, entry_addresses, host_memory, snapshot};
use copies::{exchange_of_copy, note_copy};
use in_progress::{
    PENDING, Pending, TABLE, Table, begin, collect, finish, finish_exchange, wait_while,
};
use known_memory::Memory;
use ring::Ring;
use step::ExchangeStep;

/// Pages in which devices map memory of other processes: the length of memory that the driver does
/// not tell.
const GRANULE: u64 = 2 << 20;

static AT_EXIT: ExitHandler = ExitHandler::new(at_exit);

/// Sets how many bytes of memory there are for copies; 0: nothing is kept. Before the first call of
/// the driver.
pub(crate) fn configure(length: u64) {
    let is_on = length != 0 && host_copies::map(length);
    if length != 0 && !is_on {
        log::line(&[b"the system has no memory for --outputs-of-exchanges; none are kept"]);
    }
    step::set_on(is_on);
}

/// Whether outputs of exchanges are kept.
pub(crate) fn is_on() -> bool {
    step::is_on()
}

/// In a forked child, whose driver is not initialised.
pub(crate) fn forget() {
    TABLE.forget();
    PENDING.store(0, Ordering::Relaxed);
    host_copies::forget();
}

/// Runs between the enter record and the driver. `words` are the parameters of a launch, if they
/// are known.
pub(crate) fn pre_call(
    thread: &Thread,
    frame: &Frame,
    step: ExchangeStep,
    words: Option<Vec<u64>>,
) {
    let own = thread.ordinal.get();
    match step {
        ExchangeStep::Launches => {
            let mut words = words.unwrap_or_default();
            // NCCL puts work there that does not fit the parameters.
            words.extend(host_memory::take_news(thread));
            let named = TABLE.lock().memory.exchange_of_launch(&words);
            if let Some(named) = named {
                begin(thread, frame, named);
            }
        }
        ExchangeStep::Copies => {
            if let Some(named) = exchange_of_copy(frame) {
                begin(thread, frame, named);
            }
        }
        ExchangeStep::Frees | ExchangeStep::ClosesImport => {
            end_memory(own, frame.word(0), 1, true);
        }
        ExchangeStep::FreesInOrder => end_memory(own, frame.word(0), 1, false),
        ExchangeStep::Unmaps => end_memory(own, frame.word(0), frame.word(1), true),
        ExchangeStep::UnregistersHost => {
            let length = TABLE.lock().memory.registration(frame.word(0));
            end_memory(own, frame.word(0), length, false);
        }
        ExchangeStep::DestroysContext => end_context(thread, frame.word(0)),
        ExchangeStep::ReleasesPrimary => finish(thread),
        _ => {}
    }
}

/// Runs between the driver and the leave record, whatever the result.
pub(crate) fn post_call(thread: &Thread, frame: &Frame, step: ExchangeStep) {
    let own = thread.ordinal.get();
    let succeeded = frame.succeeded();
    match step {
        ExchangeStep::Launches => finish_exchange(thread, frame),
        ExchangeStep::Copies => {
            finish_exchange(thread, frame);
            if succeeded {
                note_copy(frame);
            }
        }
        ExchangeStep::Waits => collect(thread),
        ExchangeStep::Frees
        | ExchangeStep::FreesInOrder
        | ExchangeStep::Unmaps
        | ExchangeStep::UnregistersHost
        | ExchangeStep::ClosesImport => {
            let mut table = TABLE.lock();
            let ended = table.ending.remove(&own).unwrap_or_default();
            for area in ended.into_iter().filter(|_| !succeeded) {
                table.memory.insert(area.start, area.length, area.what);
            }
            if succeeded && step == ExchangeStep::UnregistersHost {
                table.memory.unregistered(frame.word(0));
            }
        }
        _ if succeeded => succeeded_call(frame, step),
        _ => {}
    }
}

/// After a successful call that changes what is known of memory and contexts.
fn succeeded_call(frame: &Frame, step: ExchangeStep) {
    let (first, second) = (frame.word(0), frame.word(1));
    match step {
        ExchangeStep::CreatesContext => {
            if let Some(context) = memory::word(first) {
                prepare(context);
            }
        }
        ExchangeStep::RetainsPrimary => {
            if let Some(context) = memory::word(first) {
                in_context(context, || prepare(context));
            }
        }
        ExchangeStep::DestroysContext => context_ended(first),
        ExchangeStep::ReleasesPrimary => {
            if let Some(context) = contexts::ended_primary(first) {
                context_ended(context);
            }
        }
        ExchangeStep::Allocates => {
            // A primary context may come from a private table of the driver.
            prepare(current_context());
            if let Some((start, length)) = allocated(frame) {
                TABLE.lock().memory.insert(start, length, OWN);
            }
        }
        ExchangeStep::CreatesPhysical => {
            if let Some(handle) = memory::word(first) {
                TABLE.lock().memory.created(handle, false);
            }
        }
        ExchangeStep::RetainsPhysical => {
            if let Some(handle) = memory::word(first) {
                TABLE.lock().memory.retained(handle, second);
            }
        }
        ExchangeStep::ReleasesPhysical => TABLE.lock().memory.released(first),
        ExchangeStep::Maps => {
            let Family::VirtualMemory(VirtualMemoryOp::Map {
                address,
                size,
                allocation,
            }) = frame.description().family
            else {
                return;
            };
            let [address, size, handle] = [address, size, allocation].map(|at| frame.word(at));
            TABLE.lock().memory.mapped(address, size, handle);
        }
        ExchangeStep::SetsAccess if gives_access_here(frame) => {
            TABLE.lock().memory.made_accessible(first, second);
        }
        ExchangeStep::Fills => {
            let function = frame.description();
            for (position, parameter) in (0..).zip(function.params) {
                if let Role::DeviceWrite(length) = parameter.role {
                    let length = snapshot::bytes_of(length, function, frame);
                    TABLE.lock().memory.filled(frame.word(position), length);
                }
            }
        }
        ExchangeStep::Shares => match frame.description().family {
            Family::Sharing(SharingOp::Export(shared)) => exported(frame, shared),
            Family::Sharing(SharingOp::Import(shared)) => imported(frame, shared),
            _ => {}
        },
        _ => {}
    }
}

const OWN: Memory = Memory {
    is_shared: false,
    is_host: false,
    is_accessible: true,
    physical: 0,
};
const SHARED: Memory = Memory {
    is_shared: true,
    ..OWN
};

fn exported(frame: &Frame, shared: Shared) {
    let object = frame.word(shared.object);
    match shared.kind {
        SharedKind::Allocation => TABLE.lock().memory.exported(object),
        SharedKind::Memory | SharedKind::PoolMemory => {
            if !TABLE.lock().memory.share(object) {
                let (start, length) = range_of(object);
                TABLE.lock().memory.insert(start, length, SHARED);
            }
        }
        // Which memory of a pool is shared, exports of pointers say.
        SharedKind::Pool | SharedKind::Event => {}
    }
}

fn imported(frame: &Frame, shared: Shared) {
    let Some(object) = memory::word(frame.word(shared.object)) else {
        return;
    };
    match shared.kind {
        SharedKind::Allocation => TABLE.lock().memory.created(object, true),
        SharedKind::Memory | SharedKind::PoolMemory => {
            let (start, length) = range_of(object);
            TABLE.lock().memory.insert(start, length, SHARED);
        }
        SharedKind::Pool | SharedKind::Event => {}
    }
}

/// Host memory was registered, of which other processes can map a part: start and length.
pub(crate) fn shares_host(start: u64, length: u64, part: (u64, u64)) {
    let what = Memory {
        is_host: true,
        ..SHARED
    };
    TABLE.lock().memory.registered(start, length, part, what);
}

/// Start and length of the memory that an address lies in.
fn range_of(address: u64) -> (u64, u64) {
    let arguments = |place: u64| [place, place + size_of::<u64>() as u64, address, 0];
    // SAFETY: it writes an address and a size.
    let range: Option<[u64; 2]> = unsafe { driver::ask(id::cuMemGetAddressRange_v2, arguments) };
    match range {
        Some([start, length]) if length != 0 => (start, length),
        _ => (address, GRANULE - address % GRANULE),
    }
}

/// Page-locks the memory for copies in a context that is current, unless it is.
fn prepare(context: u64) {
    if context == 0 {
        return;
    }
    let mut table = TABLE.lock();
    if table.registered.is_none() {
        // The lock is held: of two threads one registers. No work of the program is waited for.
        if host_copies::register() {
            table.registered = Some(context);
        }
        if table.pending.is_empty() {
            table.ring = Ring::new(host_copies::length());
        }
        drop(table);
        AT_EXIT.register();
    }
}

/// Before a context ends: what is complete is written.
fn end_context(thread: &Thread, context: u64) {
    finish(thread);
    let is_registered = TABLE.lock().registered == Some(context);
    if is_registered {
        in_context(context, host_copies::unregister);
        TABLE.lock().registered = None;
    }
}

fn context_ended(context: u64) {
    let mut table = TABLE.lock();
    if table.registered == Some(context) {
        table.registered = None;
    }
    table.without_marks.retain(|&without| without != context);
    // Nothing writes there any more.
    let Table { pending, ring, .. } = &mut *table;
    pending.retain(|pending| {
        if pending.context == context {
            ring.give_back(pending.slot.place);
        }
        pending.context != context
    });
    PENDING.store(pending.len(), Ordering::Release);
}

/// Before memory ends. If the driver does not wait for the device itself, copies must be complete.
fn end_memory(thread: u32, start: u64, length: u64, waits: bool) {
    let is_awaited = || {
        let table = TABLE.lock();
        let mut pending = table.pending.iter();
        pending.any(|pending| pending.overlaps(start, length) && !pending.is_complete())
    };
    if waits {
        wait_while(is_awaited);
    }
    let mut table = TABLE.lock();
    let ended = table.memory.remove(start, length);
    if !ended.is_empty() {
        table.ending.insert(thread, ended);
    }
}

/// Makes a call on behalf of the program that is recorded, and without effect: what is left needs a
/// place in the trace.
extern "C" fn at_exit() {
    if !recording::is_recording() || PENDING.load(Ordering::Acquire) == 0 {
        return;
    }
    // A thread that still runs may have the lock.
    if TABLE.try_lock().is_none() {
        return;
    }
    let _errno = Errno::keep();
    wait_while(|| !TABLE.lock().pending.iter().all(Pending::is_complete));
    let mut version = 0_i32;
    // SAFETY: an entry of ours, called as the program would call the driver.
    unsafe {
        let entry = entry_addresses::of(id::cuDriverGetVersion);
        let ask: extern "C" fn(*mut i32) -> i32 = core::mem::transmute(entry);
        ask(&raw mut version);
    }
}
