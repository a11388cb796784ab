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
mod host_copies;
mod known_memory;
mod ring;
pub(crate) mod step;

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use core::time::Duration;
use std::collections::HashMap;
use std::time::Instant;

use cutape_format::layout::{ExchangeNote, ExchangeOutputNote, exchange_skip, field, note_kind};
use cutape_reach::Area;
use cutape_registry::{
    CopyOp, Family, LaunchOp, MemoryType, Role, Shared, SharedKind, SharingOp, Transfer,
    VirtualMemoryOp, id,
};

use crate::device_work::{
    allocated, gives_access_here, in_context, is_capturing, operands, stream_of,
};
use crate::hot::frame::Frame;
use crate::hot::recording;
use crate::hot::thread::Thread;
use crate::process::memory::{self, Scratch};
use crate::process::process_lock::ProcessLock;
use crate::process::{errno::Errno, log};
use crate::queries::current_context;
use crate::{driver, entry_addresses, host_memory, snapshot};
use known_memory::{KnownMemory, Memory, Named};
use ring::{ALIGNMENT, Ring};
use step::ExchangeStep;

/// Bytes of a copy from the host that are searched for addresses.
const MOST_SEARCHED: u64 = 1 << 20;
/// How long the recorder waits for copies before memory, a context or the process ends.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_micros(50);
/// Pages in which devices map memory of other processes: the length of memory that the driver does
/// not tell.
const GRANULE: u64 = 2 << 20;

static TABLE: ProcessLock<Table> = ProcessLock::new();
/// How many exchanges are pending: while there are none, waits take no lock.
static PENDING: AtomicUsize = AtomicUsize::new(0);

#[derive(Debug, Default)]
struct Table {
    memory: KnownMemory,
    ring: Ring,
    /// By thread: the exchange that is between the hooks of its call.
    begun: HashMap<u32, Begun>,
    pending: Vec<Pending>,
    last_mark: u32,
    /// The driver has refused to write a mark.
    has_no_marks: bool,
    /// The context that has page-locked the memory for copies.
    registered: Option<u64>,
    /// Primary contexts by device.
    primary: HashMap<u64, u64>,
    /// By thread: memory that its call in progress ends.
    ending: HashMap<u32, Vec<Area<Memory>>>,
}

/// Copies of a range of memory.
#[derive(Clone, Copy, Debug)]
struct Copies {
    address: u64,
    length: u64,
    /// Places in the ring.
    before: u64,
    after: u64,
}

/// An exchange whose call is in progress.
#[derive(Debug)]
struct Begun {
    /// `None` if nothing is kept.
    slot: Option<Slot>,
    copies: Vec<Copies>,
    stream: u64,
    left_out: u64,
    reason: u8,
}

/// A place in the ring, which begins with the mark.
#[derive(Clone, Copy, Debug)]
struct Slot {
    place: u64,
    mark: u32,
}

/// An exchange whose copies were enqueued.
#[derive(Debug)]
struct Pending {
    slot: Slot,
    copies: Vec<Copies>,
    context: u64,
    thread: u32,
    number: u64,
    /// The call failed: nothing is written.
    is_void: bool,
}

impl Pending {
    fn is_complete(&self) -> bool {
        host_copies::has_mark(self.slot.place, self.slot.mark)
    }

    fn overlaps(&self, start: u64, length: u64) -> bool {
        let end = start.saturating_add(length);
        let mut copies = self.copies.iter();
        copies.any(|copies| copies.address < end && start < copies.address + copies.length)
    }
}

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
        ExchangeStep::UnregistersHost => end_memory(own, frame.word(0), 1, false),
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
                TABLE.lock().primary.insert(second, context);
                in_context(context, || prepare(context));
            }
        }
        ExchangeStep::DestroysContext => context_ended(first),
        ExchangeStep::ReleasesPrimary => primary_released(first),
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

/// Host memory was registered that other processes can map.
pub(crate) fn shares_host(start: u64, length: u64) {
    TABLE.lock().memory.insert(start, length, SHARED);
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
        watch_exit();
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
    table.primary.retain(|_, primary| *primary != context);
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

/// After a primary context was released or reset.
fn primary_released(device: u64) {
    let arguments = |flags| [device, flags, flags + size_of::<i32>() as u64, 0];
    // SAFETY: it writes two ints, the flags and whether it is active.
    let state: Option<[i32; 2]> = unsafe { driver::ask(id::cuDevicePrimaryCtxGetState, arguments) };
    if matches!(state, Some([_, 0])) {
        let context = TABLE.lock().primary.get(&device).copied();
        if let Some(context) = context {
            context_ended(context);
        }
    }
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

fn wait_while(is_awaited: impl Fn() -> bool) {
    let start = Instant::now();
    while PENDING.load(Ordering::Acquire) != 0 && is_awaited() && start.elapsed() < LONGEST_WAIT {
        std::thread::sleep(POLL);
    }
}

/// The operands of a copy of one piece: target, source, length.
fn transfer(frame: &Frame, transfer: Transfer) -> [u64; 3] {
    [transfer.target, transfer.source, transfer.bytes].map(|at| frame.word(at))
}

/// What a copy changes, if it is an exchange.
fn exchange_of_copy(frame: &Frame) -> Option<Named> {
    let Family::Copy(op) = frame.description().family else {
        return None;
    };
    let table = TABLE.lock();
    match op {
        CopyOp::Linear(at) | CopyOp::Peer(at) | CopyOp::Unified(at) => {
            let [target, source, length] = transfer(frame, at);
            let is_host = |side| side == MemoryType::Host;
            if is_host(at.from) || is_host(at.to) {
                return None;
            }
            table.memory.exchange_of_copy(target, source, length)
        }
        CopyOp::Described(_) => {
            let mut words = operands(frame);
            words.retain(|&word| table.memory.is_known(word));
            match words.len() {
                0 | 1 => None,
                _ => table.memory.exchange_of_launch(&words),
            }
        }
        CopyOp::Batch {
            targets,
            sources,
            count,
            ..
        } => {
            let word = |array: u8, index: u64| {
                memory::word(frame.word(array).checked_add(index.checked_mul(8)?)?)
            };
            let count = frame.word(count).min(MOST_COPIES);
            let of = |array| (0..count).map_while(move |index| word(array, index));
            let pairs = of(targets).zip(of(sources));
            let pairs = pairs.filter(|&(target, source)| {
                table.memory.is_known(target) && table.memory.is_known(source)
            });
            let words: Vec<u64> = pairs
                .flat_map(|(target, source)| [target, source])
                .collect();
            table.memory.exchange_of_launch(&words)
        }
        CopyOp::Batch3D { .. } => None,
    }
}

/// Of a batch with more copies, the first.
const MOST_COPIES: u64 = 1 << 12;

/// After a successful copy: which addresses are in device memory now.
fn note_copy(frame: &Frame) {
    let Family::Copy(CopyOp::Linear(at) | CopyOp::Peer(at) | CopyOp::Unified(at)) =
        frame.description().family
    else {
        return;
    };
    let [target, source, length] = transfer(frame, at);
    {
        let mut table = TABLE.lock();
        if at.to == MemoryType::Host || !table.memory.is_known(target) {
            return;
        }
        if at.from != MemoryType::Host && table.memory.is_known(source) {
            return table.memory.copied(target, source, length);
        }
    }
    let searched = length.min(MOST_SEARCHED) as usize;
    // Not from the program's allocator.
    let Some(mut scratch) = Scratch::new(searched) else {
        return;
    };
    let bytes = scratch.bytes().get_mut(..searched).unwrap_or_default();
    let read = memory::read(source, bytes);
    let bytes = bytes.get(..read).unwrap_or_default();
    TABLE.lock().memory.brought(target, length, bytes);
}

/// Enqueues the copies that come before an exchange.
fn begin(thread: &Thread, frame: &Frame, named: Named) {
    // Which makes room.
    collect(thread);
    let Named {
        mut ranges,
        left_out,
        reason,
    } = named;
    let stream = stream_of(frame);
    let is_several = matches!(
        frame.description().family,
        Family::Launch(LaunchOp::MultiDevice { .. } | LaunchOp::Legacy { .. })
    );
    let mut begun = Begun {
        slot: None,
        copies: Vec::new(),
        stream: stream.unwrap_or(0),
        left_out,
        reason,
    };
    let refusal = match stream {
        None => Some(exchange_skip::REFUSED),
        // Copies cannot be in all of its streams.
        Some(_) if is_several => Some(exchange_skip::REFUSED),
        Some(stream) if is_capturing(frame, stream) => Some(exchange_skip::GRAPH),
        Some(_) => None,
    };
    if let Some(why) = refusal {
        // Also where nothing would be compared: what the work does when it runs is not seen.
        begun.reason = why;
        begun.left_out += ranges.drain(..).map(|range| range.1).sum::<u64>();
    }
    // The longest are left out first.
    ranges.sort_unstable_by_key(|range| range.1);
    while let Some(&(_, longest)) = ranges.last() {
        match TABLE.lock().take(&ranges) {
            Ok((slot, copies)) => {
                begun.slot = Some(slot);
                begun.copies = copies;
                break;
            }
            Err(why) => {
                begun.left_out += longest;
                begun.reason = why;
            }
        }
        ranges.pop();
    }
    begun.copy(|copies| copies.before);
    TABLE.lock().begun.insert(thread.ordinal.get(), begun);
}

impl Table {
    /// Places for the copies of ranges, and the mark.
    fn take(&mut self, ranges: &[(u64, u64)]) -> Result<(Slot, Vec<Copies>), u8> {
        if self.registered.is_none() || self.has_no_marks {
            return Err(exchange_skip::REFUSED);
        }
        let mut length = ALIGNMENT;
        let mut copies = Vec::with_capacity(ranges.len());
        for &(address, bytes) in ranges {
            let before = length;
            let after = before + bytes.next_multiple_of(ALIGNMENT);
            length = after + bytes.next_multiple_of(ALIGNMENT);
            copies.push(Copies {
                address,
                length: bytes,
                before,
                after,
            });
        }
        let place = self.ring.take(length).ok_or(exchange_skip::FULL)?;
        for copies in &mut copies {
            copies.before += place;
            copies.after += place;
        }
        // 0 is no mark.
        self.last_mark = self.last_mark.checked_add(1).unwrap_or(1);
        let mark = self.last_mark;
        host_copies::clear_mark(place);
        Ok((Slot { place, mark }, copies))
    }
}

impl Begun {
    /// Enqueues one copy of each range; those that the driver refuses are left out.
    fn copy(&mut self, place: impl Fn(&Copies) -> u64) {
        let stream = self.stream;
        self.copies.retain(|copies| {
            let is_copied = host_copies::copy(place(copies), copies.address, copies.length, stream);
            if !is_copied {
                self.left_out += copies.length;
                self.reason = exchange_skip::REFUSED;
            }
            is_copied
        });
    }
}

/// Enqueues the copies that come behind an exchange, and writes what is kept.
fn finish_exchange(thread: &Thread, frame: &Frame) {
    let begun = TABLE.lock().begun.remove(&thread.ordinal.get());
    let Some(mut begun) = begun else { return };
    let succeeded = frame.succeeded();
    if succeeded {
        begun.copy(|copies| copies.after);
    }
    if let Some(slot) = begun.slot {
        // A place that gets no mark is never given back: devices may still write there.
        if host_copies::mark(slot.place, slot.mark, begun.stream) {
            let pending = Pending {
                slot,
                copies: begun.copies.clone(),
                context: current_context(),
                thread: thread.ordinal.get(),
                number: thread.calls.get().wrapping_sub(1),
                is_void: !succeeded,
            };
            let mut table = TABLE.lock();
            table.pending.push(pending);
            PENDING.store(table.pending.len(), Ordering::Release);
        } else {
            TABLE.lock().has_no_marks = true;
            let lengths = begun.copies.drain(..).map(|copies| copies.length);
            begun.left_out += lengths.sum::<u64>();
            begun.reason = exchange_skip::REFUSED;
        }
    }
    if succeeded {
        let note = ExchangeNote {
            kept: begun.copies.iter().map(|copies| copies.length).sum(),
            left_out: begun.left_out,
            reason: begun.reason,
        };
        thread.note(note_kind::EXCHANGE, |draft| draft.put_encoded(note));
    }
}

/// Writes what complete exchanges have changed.
fn collect(thread: &Thread) {
    if PENDING.load(Ordering::Acquire) == 0 {
        return;
    }
    let complete: Vec<Pending> = {
        let mut table = TABLE.lock();
        let is_complete = |pending: &mut Pending| pending.is_complete();
        let complete = table.pending.extract_if(.., is_complete).collect();
        PENDING.store(table.pending.len(), Ordering::Release);
        complete
    };
    for pending in complete {
        if !pending.is_void {
            write(thread, &pending);
        }
        TABLE.lock().ring.give_back(pending.slot.place);
    }
}

fn write(thread: &Thread, pending: &Pending) {
    let put = |address, bytes: &[u8]| {
        let note = ExchangeOutputNote {
            thread: pending.thread,
            number: pending.number,
            address,
        };
        thread.note(note_kind::EXCHANGE_OUTPUT, |draft| {
            draft.put_encoded(note)?;
            snapshot::own(draft, 0, field::POINTEE, bytes)
        });
    };
    let mut written = 0;
    for copies in &pending.copies {
        let [before, after] =
            [copies.before, copies.after].map(|place| host_copies::bytes(place, copies.length));
        for piece in changes::pieces(before, after) {
            let address = copies.address + piece.start as u64;
            put(address, after.get(piece).unwrap_or_default());
            written += 1;
        }
    }
    if written == 0
        && let Some(copies) = pending.copies.first()
    {
        put(copies.address, &[]);
    }
}

/// Waits a little for pending exchanges, and writes what is complete.
fn finish(thread: &Thread) {
    wait_while(|| !TABLE.lock().pending.iter().all(Pending::is_complete));
    collect(thread);
}

/// Has the C library tell us when the process exits. Called when the driver is initialised, so that
/// our handler runs before those that the driver has registered.
fn watch_exit() {
    static IS_WATCHING: AtomicBool = AtomicBool::new(false);
    if !IS_WATCHING.swap(true, Ordering::Relaxed) {
        // SAFETY: this library is never unloaded.
        unsafe { libc::atexit(at_exit) };
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
