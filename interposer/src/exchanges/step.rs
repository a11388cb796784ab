//! What keeping the outputs of exchanges does at a call, by its function; without
//! `--outputs-of-exchanges` nothing.

use core::sync::atomic::{AtomicBool, Ordering};

use cutape_registry::{
    ContextOp, Family, Function, HostMemoryOp, Kind, MemoryOp, MulticastOp, PrimaryOp, Role,
    SharingOp, VirtualMemoryOp, Waits,
};

static IS_ON: AtomicBool = AtomicBool::new(false);

/// What is done at the calls of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExchangeStep {
    Nothing,
    /// The first parameter points at the context, which is current then.
    CreatesContext,
    /// The first parameter points at the context, the second is the device.
    RetainsPrimary,
    DestroysContext,
    /// It may end the primary context of a device.
    ReleasesPrimary,
    Allocates,
    /// The first parameter is the address. `FreesInOrder` does not wait for the device.
    Frees,
    FreesInOrder,
    UnregistersHost,
    /// The first parameter points at the handle of physical memory.
    CreatesPhysical,
    /// The same; the second is an address where it is mapped.
    RetainsPhysical,
    ReleasesPhysical,
    Maps,
    SetsAccess,
    Unmaps,
    /// It exports or imports, as its family says.
    Shares,
    /// The first parameter is an imported address.
    ClosesImport,
    Launches,
    Copies,
    Fills,
    /// A good moment to write what is complete.
    Waits,
}

/// Sets whether the outputs of exchanges are kept.
pub(super) fn set_on(is_on: bool) {
    IS_ON.store(is_on, Ordering::Relaxed);
}

/// Whether they are.
pub(crate) fn is_on() -> bool {
    IS_ON.load(Ordering::Relaxed)
}

/// What is done, if the outputs of exchanges are kept, at the calls of a function.
pub(crate) fn step_of(function: &Function) -> ExchangeStep {
    match is_on() {
        true => step_by_family(function),
        false => ExchangeStep::Nothing,
    }
}

fn step_by_family(function: &Function) -> ExchangeStep {
    use ExchangeStep as S;
    match function.family {
        Family::Context(ContextOp::Create) => S::CreatesContext,
        Family::Context(ContextOp::Destroy | ContextOp::Detach) => S::DestroysContext,
        Family::PrimaryContext(PrimaryOp::Retain) => S::RetainsPrimary,
        Family::PrimaryContext(PrimaryOp::Release | PrimaryOp::Reset) => S::ReleasesPrimary,
        Family::Memory(op) => match op {
            MemoryOp::Allocate
            | MemoryOp::AllocatePitch { .. }
            | MemoryOp::AllocateManaged
            | MemoryOp::AllocateAsync => S::Allocates,
            MemoryOp::Free => S::Frees,
            MemoryOp::FreeAsync => S::FreesInOrder,
            MemoryOp::AddressRange => S::Nothing,
        },
        Family::HostMemory(HostMemoryOp::Unregister) => S::UnregistersHost,
        Family::VirtualMemory(op) => match op {
            VirtualMemoryOp::Create { .. } => S::CreatesPhysical,
            VirtualMemoryOp::Release => S::ReleasesPhysical,
            VirtualMemoryOp::Map { .. } => S::Maps,
            VirtualMemoryOp::SetAccess { .. } => S::SetsAccess,
            VirtualMemoryOp::Unmap { .. } => S::Unmaps,
            VirtualMemoryOp::Reserve | VirtualMemoryOp::FreeReservation => S::Nothing,
        },
        Family::Multicast(MulticastOp::Create) => S::CreatesPhysical,
        Family::Sharing(SharingOp::Close) => S::ClosesImport,
        Family::Sharing(SharingOp::Export(_) | SharingOp::Import(_)) => S::Shares,
        Family::Launch(_) => S::Launches,
        Family::Copy(_) => S::Copies,
        Family::Memset => S::Fills,
        // What the recorder calls when the process exits.
        Family::DriverVersion => S::Waits,
        _ if retains_physical(function) => S::RetainsPhysical,
        _ if function.waits != Waits::No => S::Waits,
        _ => S::Nothing,
    }
}

fn retains_physical(function: &Function) -> bool {
    let mut params = function.params.iter();
    params.any(|param| matches!(param.role, Role::Find(Kind::Allocation, _)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_have_their_steps() {
        use ExchangeStep as S;
        for (name, expected) in [
            ("cuMemRetainAllocationHandle", S::RetainsPhysical),
            ("cuMemCreate", S::CreatesPhysical),
            ("cuMulticastCreate", S::CreatesPhysical),
            ("cuMemAllocFromPoolAsync", S::Allocates),
            ("cuMemcpyDtoDAsync_v2", S::Copies),
            ("cuMemcpyBatchAsync", S::Copies),
            ("cuMemsetD32Async", S::Fills),
            ("cuLaunchKernelEx", S::Launches),
            ("cuStreamSynchronize", S::Waits),
            ("cuDriverGetVersion", S::Waits),
            ("cuCtxGetCurrent", S::Nothing),
            ("cuPointerGetAttributes", S::Nothing),
            ("cuGraphLaunch", S::Nothing),
        ] {
            let function = cutape_registry::function(name).expect(name);
            assert_eq!(step_by_family(function), expected, "{name}");
        }
    }
}
