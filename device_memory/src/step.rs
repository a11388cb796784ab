//! What is done at a call, by its function.

use cutape_registry::{
    ContextOp, Family, Function, GraphOp, HostMemoryOp, Kind, LaunchOp, MemoryOp, MulticastOp,
    PrimaryOp, Role, SharedKind, SharingOp, StreamMemoryOp, StreamOp, VirtualMemoryOp, Waits,
};

use cutape_registry::Digests as Points;

/// What this crate does at the calls of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steps {
    pub(crate) context: Option<ContextStep>,
    pub(crate) digests: DigestStep,
    pub(crate) exchanges: ExchangeStep,
    pub(crate) breadcrumbs: BreadcrumbStep,
    pub(crate) snapshots: SnapshotStep,
}

impl Steps {
    /// Nothing.
    pub const NONE: Self = Self {
        context: None,
        digests: DigestStep::Nothing,
        exchanges: ExchangeStep::Nothing,
        breadcrumbs: BreadcrumbStep::Nothing,
        snapshots: SnapshotStep::Nothing,
    };

    /// Whether there is nothing to do before the driver is called.
    pub fn are_after_the_call(self) -> bool {
        use BreadcrumbStep as S;
        let others = Self {
            breadcrumbs: S::Nothing,
            ..self
        };
        let is_after = matches!(
            self.breadcrumbs,
            S::Nothing | S::Prepares | S::Launches | S::Waits | S::Exits
        );
        is_after && others == Self::NONE
    }

    /// Whether calls must not be in progress while a snapshot of memory is taken.
    pub fn concern_snapshots(self) -> bool {
        self.snapshots != SnapshotStep::Nothing
    }

    /// What digests at these points do, keeping the outputs of exchanges, breadcrumbs, and snapshots.
    pub(crate) fn of(
        function: &Function,
        digests: Option<Points>,
        keeps_exchanges: bool,
        has_breadcrumbs: bool,
        has_snapshots: bool,
    ) -> Self {
        if digests.is_none() && !keeps_exchanges && !has_breadcrumbs && !has_snapshots {
            return Self::NONE;
        }
        Self {
            context: context_step(function),
            digests: digests.map_or(DigestStep::Nothing, |points| digest_step(function, points)),
            exchanges: match keeps_exchanges {
                true => exchange_step(function),
                false => ExchangeStep::Nothing,
            },
            breadcrumbs: match has_breadcrumbs {
                true => breadcrumb_step(function),
                false => BreadcrumbStep::Nothing,
            },
            snapshots: match has_snapshots {
                true => snapshot_step(function),
                false => SnapshotStep::Nothing,
            },
        }
    }
}

/// What becomes of a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContextStep {
    /// The first parameter points at the context, which is current then.
    Creates,
    /// The first parameter points at the context, the second is the device.
    RetainsPrimary,
    Destroys,
    /// It may end the primary context of a device.
    ReleasesPrimary,
}

fn context_step(function: &Function) -> Option<ContextStep> {
    Some(match function.family {
        Family::Context(ContextOp::Create) => ContextStep::Creates,
        Family::Context(ContextOp::Destroy | ContextOp::Detach) => ContextStep::Destroys,
        Family::PrimaryContext(PrimaryOp::Retain) => ContextStep::RetainsPrimary,
        Family::PrimaryContext(PrimaryOp::Release | PrimaryOp::Reset) => {
            ContextStep::ReleasesPrimary
        }
        _ => return None,
    })
}

/// What digests do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DigestStep {
    Nothing,
    Allocates,
    Frees,
    CreatesPhysical,
    Maps,
    SetsAccess,
    Unmaps,
    /// It exports or imports physical memory.
    Shares,
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

fn digest_step(function: &Function, points: Points) -> DigestStep {
    let is_end = points == Points::End;
    match digest_step_by_family(function) {
        step @ DigestStep::Enqueues(Work::AllocatesInOrder | Work::FreesInOrder) => step,
        // At the end of a context all work is waited for.
        DigestStep::Enqueues(_) if is_end => DigestStep::Nothing,
        DigestStep::Waits if is_end && function.waits != Waits::Context => DigestStep::Nothing,
        step => step,
    }
}

fn digest_step_by_family(function: &Function) -> DigestStep {
    use {DigestStep as S, Work as W};
    match function.family {
        _ if context_step(function).is_some() => S::Nothing,
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
        Family::Sharing(SharingOp::Export(shared) | SharingOp::Import(shared))
            if shared.kind == SharedKind::Allocation =>
        {
            S::Shares
        }
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

/// What keeping the outputs of exchanges does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExchangeStep {
    Nothing,
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

fn exchange_step(function: &Function) -> ExchangeStep {
    use ExchangeStep as S;
    match function.family {
        _ if context_step(function).is_some() => S::Nothing,
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

/// What snapshots of memory do. All but `Nothing` are calls that must not be in progress while one is
/// taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SnapshotStep {
    Nothing,
    /// It gives the device work that may change memory, or copies: a snapshot may be taken before.
    Works,
    /// The same, and it launches kernels.
    Launches,
    Allocates,
    /// The first parameter is the address.
    Frees,
    /// The first two parameters point at address and length of a variable of the third.
    FindsVariable,
    /// The first parameter is a module or a library.
    Unloads,
    /// The first parameter points at the handle of physical memory.
    CreatesPhysical,
    ImportsPhysical,
    Maps,
    SetsAccess,
    Unmaps,
    ChangesContext,
    /// The recorder's copies would invalidate the capture.
    BeginsCapture,
}

fn snapshot_step(function: &Function) -> SnapshotStep {
    use SnapshotStep as S;
    match function.family {
        _ if context_step(function).is_some() => S::ChangesContext,
        Family::Memory(op) => match op {
            MemoryOp::Allocate
            | MemoryOp::AllocatePitch { .. }
            | MemoryOp::AllocateManaged
            | MemoryOp::AllocateAsync => S::Allocates,
            MemoryOp::Free | MemoryOp::FreeAsync => S::Frees,
            MemoryOp::AddressRange => S::Nothing,
        },
        Family::VirtualMemory(op) => match op {
            VirtualMemoryOp::Create { .. } => S::CreatesPhysical,
            VirtualMemoryOp::Map { .. } => S::Maps,
            VirtualMemoryOp::SetAccess { .. } => S::SetsAccess,
            VirtualMemoryOp::Unmap { .. } => S::Unmaps,
            VirtualMemoryOp::Reserve
            | VirtualMemoryOp::FreeReservation
            | VirtualMemoryOp::Release => S::Nothing,
        },
        Family::Sharing(SharingOp::Import(shared)) if shared.kind == SharedKind::Allocation => {
            S::ImportsPhysical
        }
        Family::Global(_) => S::FindsVariable,
        Family::ModuleUnload | Family::LibraryUnload => S::Unloads,
        Family::Stream(StreamOp::BeginCapture) => S::BeginsCapture,
        Family::Copy(_) => S::Works,
        Family::Launch(_) => S::Launches,
        _ if function.changes_device_memory() => S::Works,
        _ => S::Nothing,
    }
}

/// What breadcrumbs do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BreadcrumbStep {
    Nothing,
    /// What comes before launches: it shows contexts that no call has created.
    Prepares,
    /// Some launches are followed by one.
    Launches,
    /// The work has one before it and one after it.
    Surrounds,
    /// The stream then waits.
    Precedes,
    DestroysStream,
    /// It may return an error of earlier work.
    Waits,
    /// What the recorder calls when the process exits.
    Exits,
}

fn breadcrumb_step(function: &Function) -> BreadcrumbStep {
    use BreadcrumbStep as S;
    match function.family {
        _ if context_step(function).is_some() => S::Nothing,
        Family::Launch(LaunchOp::Arguments(_) | LaunchOp::Config(_)) => S::Launches,
        // In several streams, or without a stream.
        Family::Launch(LaunchOp::MultiDevice { .. } | LaunchOp::Legacy { .. }) => S::Waits,
        Family::Graph(GraphOp::Launch)
        | Family::HostFunction
        | Family::StreamCallback
        | Family::StreamMemory(StreamMemoryOp::Wait | StreamMemoryOp::Batch) => S::Surrounds,
        Family::Stream(StreamOp::WaitEvent) => S::Precedes,
        Family::Stream(StreamOp::Destroy) => S::DestroysStream,
        Family::DriverVersion => S::Exits,
        Family::ModuleLoad(_) | Family::LibraryLoad(_) | Family::Memory(MemoryOp::Allocate) => {
            S::Prepares
        }
        Family::Copy(_) => S::Waits,
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

    fn function(name: &str) -> &'static Function {
        cutape_registry::function(name).expect(name)
    }

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
            ("cuCtxDestroy_v2", S::Nothing),
        ] {
            assert_eq!(exchange_step(function(name)), expected, "{name}");
        }
    }

    #[test]
    fn breadcrumbs_are_at_work_that_may_not_end() {
        use BreadcrumbStep as S;
        for (name, expected) in [
            ("cuLaunchKernel", S::Launches),
            ("cuLaunchKernelEx", S::Launches),
            ("cuLaunchKernel_ptsz", S::Launches),
            ("cuLaunchCooperativeKernelMultiDevice", S::Waits),
            ("cuGraphLaunch", S::Surrounds),
            ("cuLaunchHostFunc", S::Surrounds),
            ("cuStreamWaitValue32_v2", S::Surrounds),
            ("cuStreamWriteValue32_v2", S::Nothing),
            ("cuStreamWaitEvent", S::Precedes),
            ("cuStreamDestroy_v2", S::DestroysStream),
            ("cuCtxDestroy_v2", S::Nothing),
            ("cuStreamSynchronize", S::Waits),
            ("cuMemcpyDtoH_v2", S::Waits),
            ("cuMemAlloc_v2", S::Prepares),
            ("cuModuleLoadData", S::Prepares),
            ("cuMemFree_v2", S::Nothing),
        ] {
            assert_eq!(breadcrumb_step(function(name)), expected, "{name}");
            let steps = Steps::of(function(name), None, false, true, false);
            let is_before = matches!(expected, S::Surrounds | S::Precedes | S::DestroysStream)
                || name == "cuCtxDestroy_v2";
            assert_eq!(steps.are_after_the_call(), !is_before, "{name}");
        }
    }

    #[test]
    fn snapshots_are_before_work_that_may_change_memory() {
        use SnapshotStep as S;
        for (name, expected) in [
            ("cuLaunchKernel", S::Launches),
            ("cuGraphLaunch", S::Works),
            ("cuMemcpyDtoH_v2", S::Works),
            ("cuMemcpyHtoDAsync_v2", S::Works),
            ("cuMemsetD8_v2", S::Works),
            ("cuStreamWriteValue32_v2", S::Works),
            ("cuMemAlloc_v2", S::Allocates),
            ("cuMemAllocManaged", S::Allocates),
            ("cuMemAllocFromPoolAsync", S::Allocates),
            ("cuMemFreeAsync", S::Frees),
            ("cuModuleGetGlobal_v2", S::FindsVariable),
            ("cuLibraryGetManaged", S::FindsVariable),
            ("cuLibraryUnload", S::Unloads),
            ("cuMemMap", S::Maps),
            ("cuMemImportFromShareableHandle", S::ImportsPhysical),
            ("cuMemExportToShareableHandle", S::Nothing),
            ("cuCtxDestroy_v2", S::ChangesContext),
            ("cuStreamBeginCapture_v2", S::BeginsCapture),
            ("cuStreamBeginCaptureToGraph", S::BeginsCapture),
            ("cuStreamEndCapture", S::Nothing),
            ("cuStreamSynchronize", S::Nothing),
            ("cuEventRecord", S::Nothing),
            ("cuLaunchHostFunc", S::Nothing),
        ] {
            assert_eq!(snapshot_step(function(name)), expected, "{name}");
        }
    }

    #[test]
    fn digests_at_the_end_follow_allocations_alone() {
        use {DigestStep as S, Points as P, Work as W};
        for (name, at_end, at_launches) in [
            ("cuMemAlloc_v2", S::Allocates, S::Allocates),
            (
                "cuMemAllocAsync",
                S::Enqueues(W::AllocatesInOrder),
                S::Enqueues(W::AllocatesInOrder),
            ),
            ("cuLaunchKernel", S::Nothing, S::Enqueues(W::Kernel)),
            ("cuMemsetD32Async", S::Nothing, S::Enqueues(W::Other)),
            ("cuMemcpyDtoH_v2", S::Nothing, S::Waits),
            ("cuStreamSynchronize", S::Nothing, S::Waits),
            ("cuCtxSynchronize", S::Waits, S::Waits),
            ("cuCtxDestroy_v2", S::Nothing, S::Nothing),
            ("cuMemExportToShareableHandle", S::Shares, S::Shares),
            ("cuMemImportFromShareableHandle", S::Shares, S::Shares),
            ("cuIpcGetMemHandle", S::Nothing, S::Nothing),
        ] {
            let function = function(name);
            let found = [P::End, P::Launch].map(|points| digest_step(function, points));
            assert_eq!(found, [at_end, at_launches], "{name}");
        }
    }

    #[test]
    fn without_options_no_function_has_steps() {
        for function in &cutape_registry::FUNCTIONS {
            let steps = Steps::of(function, None, false, false, false);
            assert_eq!(steps, Steps::NONE, "{}", function.name);
        }
        let destroys = Steps::of(function("cuCtxDestroy_v2"), None, true, false, false);
        assert_eq!(destroys.context, Some(ContextStep::Destroys));
    }
}
