//! Functions that need more than the registry's roles, by subject.

pub(crate) mod batch;
pub(crate) mod callback;
pub(crate) mod copy;
pub(crate) mod device;
pub(crate) mod entry_point;
pub(crate) mod graph;
pub(crate) mod graph_node;
pub(crate) mod jit;
pub(crate) mod launch;
pub(crate) mod library;
pub(crate) mod link;
pub(crate) mod memory;
pub(crate) mod module;
pub(crate) mod origin;
pub(crate) mod pointer;
pub(crate) mod sharing;
pub(crate) mod stream_memory;
pub(crate) mod virtual_memory;

use cutape_registry::{
    CopyOp, DeviceOp, Family, Function, GraphOp, HostMemoryOp, LaunchArguments, LaunchOp, MemoryOp,
    NodeKind, OccupancyOp, PointerOp, PrimaryOp, StreamMemoryOp, StreamOp, VirtualMemoryOp,
};

use crate::issue::context;
use crate::player::{Job, Played};

/// Plays one call.
pub(crate) type Play = fn(&mut Job<'_, '_>) -> Played;

/// What plays the calls of a function, if the registry's roles alone do not.
pub(crate) fn of(function: &Function) -> Option<Play> {
    let play: Play = match function.family {
        Family::ProcAddress { .. } => entry_point::proc_address,
        Family::ExportTable => entry_point::export_table,
        Family::Device(DeviceOp::ByBusId) => device::by_bus_id,
        Family::PrimaryContext(PrimaryOp::SetFlags) => context::set_flags,
        Family::ModuleLoad(_) | Family::LibraryLoad(_) => module::load,
        Family::Link(_) => link::link,
        Family::Launch(launch) => match launch {
            LaunchOp::Arguments(LaunchArguments { extra: Some(_), .. }) => launch::kernel,
            LaunchOp::Arguments(_) | LaunchOp::Config(_) => launch::other,
            LaunchOp::MultiDevice { .. } => launch::multi_device,
            LaunchOp::Legacy { .. } => return None,
        },
        Family::Occupancy(OccupancyOp::Config { .. }) => launch::clusters,
        Family::HostFunction => callback::host_function,
        Family::StreamCallback => callback::stream_callback,
        Family::Copy(copy) => match copy {
            CopyOp::Linear(_) | CopyOp::Peer(_) => return None,
            CopyOp::Unified(_) => copy::unified,
            CopyOp::Described(_) => copy::described,
            CopyOp::Batch { .. } => batch::lines,
            CopyOp::Batch3D { .. } => batch::boxes,
        },
        Family::Memory(memory) => match memory {
            MemoryOp::Allocate | MemoryOp::AllocatePitch { .. } => memory::allocate,
            MemoryOp::Free | MemoryOp::FreeAsync => memory::free,
            MemoryOp::AddressRange => memory::address_range,
            MemoryOp::AllocateManaged | MemoryOp::AllocateAsync => return None,
        },
        Family::HostMemory(memory) => match memory {
            HostMemoryOp::Allocate => memory::allocate_host,
            HostMemoryOp::Free => memory::free_host,
            HostMemoryOp::Register => memory::register,
            HostMemoryOp::Unregister => memory::unregister,
            HostMemoryOp::DevicePointer => memory::device_pointer,
            HostMemoryOp::Flags => memory::host_flags,
        },
        Family::VirtualMemory(memory) => match memory {
            VirtualMemoryOp::Reserve => virtual_memory::reserve,
            VirtualMemoryOp::FreeReservation => virtual_memory::free,
            VirtualMemoryOp::Create { .. }
            | VirtualMemoryOp::Release
            | VirtualMemoryOp::Map { .. }
            | VirtualMemoryOp::Unmap { .. }
            | VirtualMemoryOp::SetAccess { .. } => return None,
        },
        Family::Sharing(_) => sharing::share,
        Family::Pointer(pointer) => match pointer {
            PointerOp::Attribute => pointer::attribute,
            PointerOp::Attributes { .. } => pointer::attributes,
            PointerOp::SetAttribute => pointer::set_attribute,
            PointerOp::RangeAttributes { .. } => pointer::range_attributes,
            PointerOp::RangeAttribute => return None,
        },
        Family::StreamMemory(operation) => match operation {
            StreamMemoryOp::Wait => stream_memory::wait,
            StreamMemoryOp::Batch => stream_memory::batch,
            StreamMemoryOp::Write => return None,
        },
        Family::Stream(StreamOp::CaptureInfo { .. }) => graph::capture_info,
        Family::Graph(operation) => return of_graph(operation),
        Family::UserObject { .. } => graph::user_object,
        Family::Plain
        | Family::Init
        | Family::DriverVersion
        | Family::Device(DeviceOp::Count | DeviceOp::Property | DeviceOp::Hardware)
        | Family::Context(_)
        | Family::Green(_)
        | Family::Checkpoint(_)
        | Family::Multicast(_)
        | Family::Pool(_)
        | Family::PrimaryContext(PrimaryOp::Retain | PrimaryOp::Release | PrimaryOp::Reset)
        | Family::ModuleUnload
        | Family::LibraryUnload
        | Family::LoadingMode
        | Family::LibraryModule
        | Family::Global(_)
        | Family::Function(_)
        | Family::Kernel(_)
        | Family::Occupancy(OccupancyOp::Function)
        | Family::Memset
        | Family::Prefetch
        | Family::ExternalBuffer { .. }
        | Family::Stream(
            StreamOp::Query
            | StreamOp::Synchronize
            | StreamOp::Destroy
            | StreamOp::WaitEvent
            | StreamOp::BeginCapture
            | StreamOp::EndCapture
            | StreamOp::SetAttribute { .. }
            | StreamOp::AttachMemory,
        )
        | Family::Event(_)
        | Family::UserReferences(_) => return None,
    };
    Some(play)
}

/// What plays an operation of graphs.
fn of_graph(operation: GraphOp) -> Option<Play> {
    let play: Play = match operation {
        GraphOp::AddNode(node) | GraphOp::SetNode(node) | GraphOp::SetExecNode(node) => {
            return of_node(node.kind, graph_node::given);
        }
        GraphOp::GetNode(node) => return of_node(node.kind, graph_node::asked),
        GraphOp::GetKernelAttribute { .. } => graph::get_attribute,
        GraphOp::SetKernelAttribute { .. } => graph::set_attribute,
        GraphOp::List => graph::list_nodes,
        GraphOp::Instantiate { params: Some(_) } => graph::instantiate,
        GraphOp::Launch => graph::launch,
        GraphOp::ConditionalHandle => graph::condition,
        GraphOp::DotFile { .. } => graph::dot,
        GraphOp::Instantiate { params: None }
        | GraphOp::SetEnabled
        | GraphOp::Update
        | GraphOp::DestroyExec
        | GraphOp::Clone
        | GraphOp::AddEdges
        | GraphOp::RemoveEdges
        | GraphOp::CopyAttributes
        | GraphOp::Upload => return None,
    };
    Some(play)
}

/// `play` if the parameters of such a node hold handles or addresses.
fn of_node(kind: NodeKind, play: Play) -> Option<Play> {
    match kind {
        NodeKind::Kernel
        | NodeKind::Copy
        | NodeKind::Memset
        | NodeKind::Host
        | NodeKind::MemoryOps
        | NodeKind::Allocation
        | NodeKind::Any => Some(play),
        // A child graph is an argument; semaphores are not re-issued.
        NodeKind::ChildGraph | NodeKind::Semaphores => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cutape_registry::{Class, FUNCTIONS};

    #[test]
    fn every_override_of_the_registry_is_played() {
        for function in FUNCTIONS
            .iter()
            .filter(|function| function.class == Class::Override)
        {
            assert!(of(function).is_some(), "{} has no override", function.name);
        }
    }
}
