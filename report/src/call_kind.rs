//! What a call does, as the timeline colours it.

use cutape_registry::{ContextOp, Family, Function, GraphOp, MemoryOp, VirtualMemoryOp, Waits};
use serde::Serialize;

/// What a call does; `KINDS` in `page/script/trace.js` has the same words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CallKind {
    /// Launches a kernel or a graph.
    Launch,
    /// Copies or prefetches memory.
    Copy,
    /// Fills memory.
    Fill,
    /// Waits for the device.
    Wait,
    /// Orders work: streams, events, callbacks, captures, graphs.
    Order,
    /// Allocates, frees, maps or registers memory.
    Memory,
    /// Loads, links or finds code.
    Code,
    /// Everything else: devices, contexts, queries.
    Other,
}

impl CallKind {
    /// In the order of the page.
    pub const ALL: [Self; 8] = [
        Self::Launch,
        Self::Copy,
        Self::Fill,
        Self::Wait,
        Self::Order,
        Self::Memory,
        Self::Code,
        Self::Other,
    ];

    /// Its name in the page and in call sets.
    pub fn key(self) -> &'static str {
        match self {
            Self::Launch => "launch",
            Self::Copy => "copy",
            Self::Fill => "fill",
            Self::Wait => "wait",
            Self::Order => "order",
            Self::Memory => "memory",
            Self::Code => "code",
            Self::Other => "other",
        }
    }

    /// The kind of a function; [`CallKind::Other`] for one that the registry does not know.
    pub fn of(function: Option<&Function>) -> Self {
        let Some(function) = function else {
            return Self::Other;
        };
        match function.family {
            Family::Launch(_) | Family::Graph(GraphOp::Launch) => Self::Launch,
            Family::Copy(_) | Family::Prefetch => Self::Copy,
            Family::Memset => Self::Fill,
            Family::Memory(MemoryOp::AddressRange)
            | Family::VirtualMemory(VirtualMemoryOp::SetAccess { .. }) => Self::Other,
            Family::Memory(_)
            | Family::HostMemory(_)
            | Family::VirtualMemory(_)
            | Family::Multicast(_)
            | Family::Pool(_)
            | Family::Sharing(_)
            | Family::ExternalBuffer { .. } => Self::Memory,
            Family::ModuleLoad(_)
            | Family::LibraryLoad(_)
            | Family::ModuleUnload
            | Family::LibraryUnload
            | Family::LibraryModule
            | Family::Global(_)
            | Family::Function(_)
            | Family::Kernel(_)
            | Family::Link(_) => Self::Code,
            Family::Context(ContextOp::Synchronize) => Self::Wait,
            _ if function.waits != Waits::No => Self::Wait,
            Family::Stream(_)
            | Family::StreamMemory(_)
            | Family::Event(_)
            | Family::HostFunction
            | Family::StreamCallback
            | Family::Graph(_) => Self::Order,
            Family::Plain
            | Family::Init
            | Family::ProcAddress { .. }
            | Family::ExportTable
            | Family::DriverVersion
            | Family::Device(_)
            | Family::Context(_)
            | Family::Green(_)
            | Family::Checkpoint(_)
            | Family::PrimaryContext(_)
            | Family::LoadingMode
            | Family::Occupancy(_)
            | Family::Pointer(_)
            | Family::UserObject { .. }
            | Family::UserReferences(_) => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_functions() {
        for (name, kind) in [
            ("cuLaunchKernel", CallKind::Launch),
            ("cuLaunchKernelEx", CallKind::Launch),
            ("cuGraphLaunch", CallKind::Launch),
            ("cuMemcpyHtoDAsync_v2", CallKind::Copy),
            ("cuMemcpyDtoH_v2", CallKind::Copy),
            ("cuMemsetD8_v2", CallKind::Fill),
            ("cuStreamSynchronize", CallKind::Wait),
            ("cuCtxSynchronize", CallKind::Wait),
            ("cuEventSynchronize", CallKind::Wait),
            ("cuEventRecord", CallKind::Order),
            ("cuStreamWaitEvent", CallKind::Order),
            ("cuGraphInstantiateWithFlags", CallKind::Order),
            ("cuMemAlloc_v2", CallKind::Memory),
            ("cuMemFreeAsync", CallKind::Memory),
            ("cuMemHostAlloc", CallKind::Memory),
            ("cuModuleLoadData", CallKind::Code),
            ("cuLinkComplete", CallKind::Code),
            ("cuGetProcAddress_v2", CallKind::Other),
            ("cuDeviceGetAttribute", CallKind::Other),
        ] {
            let function = cutape_registry::function(name);
            assert!(function.is_some(), "{name}");
            assert_eq!(CallKind::of(function), kind, "{name}");
        }
        assert_eq!(CallKind::of(None), CallKind::Other);
    }
}
