//! What digests of device memory do at a call, by its function; without `--digests` nothing.

use core::sync::atomic::{AtomicU8, Ordering};

use cutape_registry::{
    ContextOp, Digests, Family, Function, GraphOp, MemoryOp, PrimaryOp, Role, StreamMemoryOp,
    VirtualMemoryOp, Waits,
};

/// 0, or 1 and the position in `Digests::ALL`.
static WHEN: AtomicU8 = AtomicU8::new(0);

/// What digests do at the calls of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DigestStep {
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
pub(crate) fn configure(when: Option<Digests>) {
    WHEN.store(when.map_or(0, |when| when as u8 + 1), Ordering::Relaxed);
}

/// When digests are taken.
pub(crate) fn when() -> Option<Digests> {
    let position = WHEN.load(Ordering::Relaxed).checked_sub(1)?;
    Digests::ALL.get(usize::from(position)).copied()
}

/// Whether they are taken at all.
pub(crate) fn is_on() -> bool {
    when().is_some()
}

/// What digests, if they are on, do at the calls of a function.
pub(crate) fn step_of(function: &Function) -> DigestStep {
    let Some(when) = when() else {
        return DigestStep::Nothing;
    };
    match step_by_family(function) {
        step @ DigestStep::Enqueues(Work::AllocatesInOrder | Work::FreesInOrder) => step,
        // At the end of a context all work is waited for.
        DigestStep::Enqueues(_) if when == Digests::End => DigestStep::Nothing,
        DigestStep::Waits if when == Digests::End && function.waits != Waits::Context => {
            DigestStep::Nothing
        }
        step => step,
    }
}

fn step_by_family(function: &Function) -> DigestStep {
    use {DigestStep as S, Work as W};
    match function.family {
        Family::Context(ContextOp::Create) => S::CreatesContext,
        Family::Context(ContextOp::Destroy | ContextOp::Detach) => S::DestroysContext,
        Family::PrimaryContext(PrimaryOp::Retain) => S::RetainsPrimary,
        Family::PrimaryContext(PrimaryOp::Release | PrimaryOp::Reset) => S::ReleasesPrimary,
        Family::Memory(MemoryOp::Allocate | MemoryOp::AllocatePitch { .. }) => S::Allocates,
        Family::Memory(MemoryOp::Free) => S::Frees,
        Family::Memory(MemoryOp::AllocateAsync) => S::Enqueues(W::AllocatesInOrder),
        Family::Memory(MemoryOp::FreeAsync) => S::Enqueues(W::FreesInOrder),
        Family::VirtualMemory(op) => match op {
            VirtualMemoryOp::Create { .. } => S::CreatesPhysical,
            VirtualMemoryOp::Map { .. } => S::Maps,
            VirtualMemoryOp::SetAccess { .. } => S::SetsAccess,
            VirtualMemoryOp::Unmap { .. } => S::Unmaps,
            VirtualMemoryOp::Reserve
            | VirtualMemoryOp::FreeReservation
            | VirtualMemoryOp::Release => S::Nothing,
        },
        Family::Launch(_) => S::Enqueues(W::Kernel),
        Family::Graph(GraphOp::Launch) => S::Enqueues(W::Graph),
        Family::StreamMemory(StreamMemoryOp::Wait | StreamMemoryOp::Batch) => {
            S::Enqueues(W::WaitsForMemory)
        }
        _ if function.changes_device_memory() => S::Enqueues(W::Other),
        Family::Copy(_) => {
            let is_readback = |role| matches!(role, Role::HostWrite(_));
            let reads_back = function.params.iter().any(|found| is_readback(found.role));
            match function.stream {
                None if reads_back => S::Waits,
                _ => S::Nothing,
            }
        }
        _ if function.waits != Waits::No => S::Waits,
        _ => S::Nothing,
    }
}
