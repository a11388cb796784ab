//! Which functions digests have to do with; without `--digests` none.

use core::sync::atomic::{AtomicU8, Ordering};

use cutape_registry::{
    ContextOp, Family, Function, GraphOp, MemoryOp, PrimaryOp, Role, StreamMemoryOp,
    VirtualMemoryOp, Waits,
};

use crate::process::settings::Digests;

static WHEN: AtomicU8 = AtomicU8::new(Digests::Off as u8);

/// What digests have to do with a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Concern {
    Nothing,
    /// The first parameter points at the context, which is current then.
    CreatesContext,
    /// The first parameter points at the context, the second is the device.
    RetainsPrimary,
    DestroysContext,
    /// It may end the primary context of a device.
    ReleasesPrimary,
    Allocates,
    Frees,
    CreatesPhysical,
    Maps,
    SetsAccess,
    Unmaps,
    /// It enqueues work that changes device memory.
    Enqueues(Work),
    /// Its success proves work complete.
    Waits,
}

/// Work that changes device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    Kernel,
    Graph,
    AllocatesInOrder,
    FreesInOrder,
    /// Lets the stream wait for a value in memory, perhaps.
    WaitsForMemory,
    Other,
}

/// Sets when digests are taken.
pub(crate) fn configure(when: Digests) {
    WHEN.store(when as u8, Ordering::Relaxed);
}

/// When digests are taken.
pub(crate) fn when() -> Digests {
    match WHEN.load(Ordering::Relaxed) {
        when if when == Digests::Launch as u8 => Digests::Launch,
        when if when == Digests::Sync as u8 => Digests::Sync,
        when if when == Digests::End as u8 => Digests::End,
        _ => Digests::Off,
    }
}

/// Whether they are taken at all.
pub(crate) fn is_on() -> bool {
    when() != Digests::Off
}

/// What digests, if they are on, have to do with a function.
pub(crate) fn concern(function: &Function) -> Concern {
    let when = when();
    if when == Digests::Off {
        return Concern::Nothing;
    }
    match concern_of(function) {
        concern @ Concern::Enqueues(Work::AllocatesInOrder | Work::FreesInOrder) => concern,
        // At the end of a context all work is waited for.
        Concern::Enqueues(_) if when == Digests::End => Concern::Nothing,
        Concern::Waits if when == Digests::End && function.waits != Waits::Context => {
            Concern::Nothing
        }
        concern => concern,
    }
}

fn concern_of(function: &Function) -> Concern {
    use {Concern as C, Work as W};
    match function.family {
        Family::Context(ContextOp::Create) => C::CreatesContext,
        Family::Context(ContextOp::Destroy | ContextOp::Detach) => C::DestroysContext,
        Family::PrimaryContext(PrimaryOp::Retain) => C::RetainsPrimary,
        Family::PrimaryContext(PrimaryOp::Release | PrimaryOp::Reset) => C::ReleasesPrimary,
        Family::Memory(MemoryOp::Allocate | MemoryOp::AllocatePitch { .. }) => C::Allocates,
        Family::Memory(MemoryOp::Free) => C::Frees,
        Family::Memory(MemoryOp::AllocateAsync) => C::Enqueues(W::AllocatesInOrder),
        Family::Memory(MemoryOp::FreeAsync) => C::Enqueues(W::FreesInOrder),
        Family::VirtualMemory(op) => match op {
            VirtualMemoryOp::Create { .. } => C::CreatesPhysical,
            VirtualMemoryOp::Map { .. } => C::Maps,
            VirtualMemoryOp::SetAccess { .. } => C::SetsAccess,
            VirtualMemoryOp::Unmap { .. } => C::Unmaps,
            VirtualMemoryOp::Reserve
            | VirtualMemoryOp::FreeReservation
            | VirtualMemoryOp::Release => C::Nothing,
        },
        Family::Launch(_) => C::Enqueues(W::Kernel),
        Family::Graph(GraphOp::Launch) => C::Enqueues(W::Graph),
        Family::StreamMemory(StreamMemoryOp::Wait | StreamMemoryOp::Batch) => {
            C::Enqueues(W::WaitsForMemory)
        }
        _ if function.changes_device_memory() => C::Enqueues(W::Other),
        Family::Copy(_) => {
            let is_readback = |role| matches!(role, Role::HostWrite(_));
            let reads_back = function.params.iter().any(|found| is_readback(found.role));
            match function.stream {
                None if reads_back => C::Waits,
                _ => C::Nothing,
            }
        }
        _ if function.waits != Waits::No => C::Waits,
        _ => C::Nothing,
    }
}
