//! What exchanges with other processes change in memory of this one: `record
//! --outputs-of-exchanges`. A rank that is replayed alone gets it from the recording.
//!
//! An exchange is a launch, or a copy between device memory, that reaches memory which this process
//! has exported or imported (`known_memory`). Before and after it the recorder enqueues copies of
//! what it names, on its stream (`host_copies`), and after them a mark. A later call that finds
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
mod state;

use core::sync::atomic::Ordering;

use cutape_registry::{Family, Role, Shared, SharedKind, SharingOp, VirtualMemoryOp, id};

use crate::recorder::{Call, RecordedCall, Recorder};
use crate::step::ExchangeStep;
use known_memory::Memory;
use ring::Ring;
pub(crate) use state::Exchanges;
use state::Table;

/// Pages in which devices map memory of other processes: the length of memory that the driver does
/// not tell.
const GRANULE: u64 = 2 << 20;

impl Exchanges {
    /// Runs between the enter record and the driver.
    pub(crate) fn pre_call(&self, call: &Call<'_>, step: ExchangeStep) {
        match step {
            ExchangeStep::Launches => {
                let mut words = call.recorder.kernel_words().unwrap_or_default();
                // NCCL puts work there that does not fit the parameters.
                words.extend(call.recorder.take_host_changes());
                let named = self.lock().memory.exchange_of_launch(&words);
                if let Some(named) = named {
                    self.begin(call, named);
                }
            }
            ExchangeStep::Copies => {
                if let Some(named) = self.exchange_of_copy(call) {
                    self.begin(call, named);
                }
            }
            ExchangeStep::Frees | ExchangeStep::ClosesImport => {
                self.end_memory(call.thread, call.word(0), 1, true);
            }
            ExchangeStep::FreesInOrder => self.end_memory(call.thread, call.word(0), 1, false),
            ExchangeStep::Unmaps => {
                self.end_memory(call.thread, call.word(0), call.word(1), true);
            }
            ExchangeStep::UnregistersHost => {
                let length = self.lock().memory.registration(call.word(0));
                self.end_memory(call.thread, call.word(0), length, false);
            }
            _ => {}
        }
    }

    /// Runs between the driver and the leave record, whatever the result.
    pub(crate) fn post_call(&self, call: &Call<'_>, step: ExchangeStep) {
        match step {
            ExchangeStep::Launches => self.finish_exchange(call),
            ExchangeStep::Copies => {
                self.finish_exchange(call);
                if call.has_succeeded {
                    self.note_copy(call);
                }
            }
            ExchangeStep::Waits => self.collect(call.recorder),
            ExchangeStep::Frees
            | ExchangeStep::FreesInOrder
            | ExchangeStep::Unmaps
            | ExchangeStep::UnregistersHost
            | ExchangeStep::ClosesImport => {
                let mut table = self.lock();
                let ended = table.ending.remove(&call.thread).unwrap_or_default();
                for area in ended.into_iter().filter(|_| !call.has_succeeded) {
                    table.memory.insert(area.start, area.length, area.what);
                }
                if call.has_succeeded && step == ExchangeStep::UnregistersHost {
                    table.memory.unregistered(call.word(0));
                }
            }
            _ if call.has_succeeded => self.succeeded(call, step),
            _ => {}
        }
    }

    /// After a successful call that changes what is known of memory.
    fn succeeded(&self, call: &Call<'_>, step: ExchangeStep) {
        let (first, second) = (call.word(0), call.word(1));
        match step {
            ExchangeStep::Allocates => {
                // A primary context may come from a private table of the driver.
                self.prepare(call.recorder, call.recorder.context());
                if let Some((start, length)) = call.allocated() {
                    self.lock().memory.insert(start, length, OWN);
                }
            }
            ExchangeStep::CreatesPhysical => {
                if let Some(handle) = call.pointee(0) {
                    self.lock().memory.created(handle, false);
                }
            }
            ExchangeStep::RetainsPhysical => {
                if let Some(handle) = call.pointee(0) {
                    self.lock().memory.retained(handle, second);
                }
            }
            ExchangeStep::ReleasesPhysical => self.lock().memory.released(first),
            ExchangeStep::Maps => {
                let Family::VirtualMemory(VirtualMemoryOp::Map {
                    address,
                    size,
                    allocation,
                }) = call.function.family
                else {
                    return;
                };
                let [address, size, handle] = [address, size, allocation].map(|at| call.word(at));
                self.lock().memory.mapped(address, size, handle);
            }
            ExchangeStep::SetsAccess if call.gives_access_here() => {
                self.lock().memory.made_accessible(first, second);
            }
            ExchangeStep::Fills => {
                for (position, parameter) in (0..).zip(call.function.params) {
                    if let Role::DeviceWrite(length) = parameter.role {
                        let length = call.bytes_of(length);
                        self.lock().memory.filled(call.word(position), length);
                    }
                }
            }
            ExchangeStep::Shares => match call.function.family {
                Family::Sharing(SharingOp::Export(shared)) => self.exported(call, shared),
                Family::Sharing(SharingOp::Import(shared)) => self.imported(call, shared),
                _ => {}
            },
            _ => {}
        }
    }

    fn exported(&self, call: &Call<'_>, shared: Shared) {
        let object = call.word(shared.object);
        match shared.kind {
            SharedKind::Allocation => self.lock().memory.exported(object),
            SharedKind::Memory | SharedKind::PoolMemory => {
                let is_known = self.lock().memory.share(object);
                if !is_known {
                    self.insert_shared(call.recorder, object);
                }
            }
            // Which memory of a pool is shared, exports of pointers say.
            SharedKind::Pool | SharedKind::Event => {}
        }
    }

    fn imported(&self, call: &Call<'_>, shared: Shared) {
        let Some(object) = call.pointee(shared.object) else {
            return;
        };
        match shared.kind {
            SharedKind::Allocation => self.lock().memory.created(object, true),
            SharedKind::Memory | SharedKind::PoolMemory => {
                self.insert_shared(call.recorder, object);
            }
            SharedKind::Pool | SharedKind::Event => {}
        }
    }

    /// Other processes can use the memory that an address lies in.
    fn insert_shared(&self, recorder: &dyn Recorder, address: u64) {
        let (start, length) = match recorder.range_of(address) {
            Ok([start, length]) if length != 0 => (start, length),
            _ => (address, GRANULE - address % GRANULE),
        };
        self.lock().memory.insert(start, length, SHARED);
    }

    /// Host memory was registered, of which other processes can map a part: start and length.
    pub(crate) fn host_shared(&self, start: u64, length: u64, part: (u64, u64)) {
        let what = Memory {
            is_host: true,
            ..SHARED
        };
        self.lock().memory.registered(start, length, part, what);
    }

    /// Page-locks the memory for copies in a context that is current, unless it is.
    pub(crate) fn prepare(&self, recorder: &dyn Recorder, context: u64) {
        if context == 0 {
            return;
        }
        let mut table = self.lock();
        if table.registered.is_none() {
            // The lock is held: of two threads one registers. No work of the program is waited for.
            if self.copies.register(recorder) {
                table.registered = Some(context);
            }
            if table.pending.is_empty() {
                table.ring = Ring::new(self.copies.length());
            }
            drop(table);
            recorder.run_at_exit();
        }
    }

    /// Before a context ends.
    pub(crate) fn context_ends(&self, recorder: &dyn Recorder, context: u64) {
        self.finish(recorder);
        let is_registered = self.lock().registered == Some(context);
        if is_registered {
            recorder.in_context(context, || self.copies.unregister(recorder));
            self.lock().registered = None;
        }
    }

    pub(crate) fn context_ended(&self, context: u64) {
        let mut table = self.lock();
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
        self.pending_count.store(pending.len(), Ordering::Release);
    }

    /// Before memory ends. If the driver does not wait for the device itself, copies must be
    /// complete.
    fn end_memory(&self, thread: u32, start: u64, length: u64, waits: bool) {
        if waits {
            self.wait_while(|pending| pending.overlaps(start, length));
        }
        let mut table = self.lock();
        let ended = table.memory.remove(start, length);
        if !ended.is_empty() {
            table.ending.insert(thread, ended);
        }
    }

    /// When the process exits: what is left needs a place in the trace, at a call without effect.
    pub(crate) fn exit(&self, recorded: RecordedCall<'_>) {
        // A thread that still runs may have the lock.
        if self.pending_count.load(Ordering::Acquire) == 0 || self.table.try_lock().is_err() {
            return;
        }
        self.wait_while(|_| true);
        let mut version = 0_i32;
        recorded(id::cuDriverGetVersion, (&raw mut version) as u64);
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
