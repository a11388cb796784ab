//! Which families have code here, and which parameters that code looks behind.

use cutape_registry::{
    ContextOp, CopyOp, Family, Function, FunctionOp, GraphOp, HostMemoryOp, ImageLoad, ImageSource,
    Kind, LaunchOp, LinkOp, MemoryOp, NodeKind, OccupancyOp, OptionArray, PointerOp, PrimaryOp,
    Role, SharedKind, SharingOp, StreamMemoryOp, StreamOp,
};

/// The hooks of `overrides` that do something for a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hooks {
    bits: u8,
    /// A bit for each parameter whose memory they snapshot, so that the registry's roles must not.
    pub(crate) owned: u16,
}

/// The hooks, in the order in which they run.
pub(crate) const PUT_PRE: u8 = 1;
pub(crate) const PRE: u8 = 2;
pub(crate) const POST: u8 = 4;
pub(crate) const PUT_POST: u8 = 8;
pub(crate) const FINISH: u8 = 16;

impl Hooks {
    pub(crate) fn of(function: &Function) -> Self {
        let more =
            match function.family.may_reserve_addresses() || event_of_exec(function).is_some() {
                true => PRE,
                false => 0,
            };
        Self {
            bits: hooks(function.family) | more,
            owned: owned(function.family),
        }
    }

    /// Whether one of these does something.
    pub(crate) fn have(self, hooks: u8) -> bool {
        self.bits & hooks != 0
    }
}

/// The position of the event that a node of an executable graph is given, to record or wait for it.
pub(super) fn event_of_exec(function: &Function) -> Option<u8> {
    let uses = |kind| {
        let mut parameters = function.params.iter();
        parameters.position(|parameter| parameter.role == Role::Use(kind))
    };
    let event = uses(Kind::Event).filter(|_| uses(Kind::GraphExec) == Some(0));
    event.and_then(|at| u8::try_from(at).ok())
}

fn hooks(family: Family) -> u8 {
    match family {
        Family::Init => PRE | POST,
        Family::Context(ContextOp::Create) | Family::PrimaryContext(PrimaryOp::Retain) => {
            PRE | FINISH
        }
        Family::ProcAddress { .. } => POST | PUT_POST | FINISH,
        Family::Context(ContextOp::Destroy)
        | Family::PrimaryContext(PrimaryOp::Release | PrimaryOp::Reset)
        | Family::ModuleUnload
        | Family::LibraryUnload => PRE | FINISH,
        Family::ModuleLoad(load) | Family::LibraryLoad(load) if load.options.is_some() => {
            PUT_PRE | PRE | POST | PUT_POST
        }
        Family::ModuleLoad(_) | Family::LibraryLoad(_) => PUT_PRE | POST,
        Family::Function(op) | Family::Kernel(op) => match op {
            FunctionOp::Find { .. } | FunctionOp::OfKernel { .. } | FunctionOp::List { .. } => {
                FINISH
            }
            FunctionOp::Count
            | FunctionOp::Name { .. }
            | FunctionOp::GetAttribute
            | FunctionOp::SetAttribute
            | FunctionOp::SetCacheConfig
            | FunctionOp::ParameterInfo
            | FunctionOp::SetLaunchState => 0,
        },
        Family::Link(op) => match op {
            LinkOp::Create { .. } => PUT_PRE | PRE | PUT_POST | FINISH,
            LinkOp::AddData { .. } | LinkOp::AddFile { .. } => PUT_PRE | PRE | PUT_POST,
            LinkOp::Complete { .. } => PUT_PRE | PUT_POST,
            LinkOp::Destroy => PUT_PRE | FINISH,
        },
        Family::Launch(_) | Family::StreamMemory(StreamMemoryOp::Batch) => PRE,
        Family::Occupancy(OccupancyOp::Config { .. }) => PUT_PRE,
        Family::Copy(op) => match op {
            CopyOp::Linear(_) | CopyOp::Peer(_) => 0,
            CopyOp::Described(_) => PUT_PRE | PRE | POST | PUT_POST,
            CopyOp::Unified(_) => PUT_PRE | POST | PUT_POST,
            CopyOp::Batch { .. } | CopyOp::Batch3D { .. } => PUT_PRE | PRE | POST,
        },
        Family::Memory(MemoryOp::AllocateManaged) | Family::HostMemory(HostMemoryOp::Allocate) => {
            FINISH
        }
        Family::HostMemory(HostMemoryOp::Register) => POST | FINISH,
        Family::Sharing(op) => match op {
            SharingOp::Export(_) => POST,
            SharingOp::Import(shared) if shared.kind == SharedKind::Event => PUT_PRE | PRE | FINISH,
            SharingOp::Import(_) => PUT_PRE | PRE,
            SharingOp::Close => 0,
        },
        Family::Memory(MemoryOp::Free)
        | Family::HostMemory(HostMemoryOp::Free | HostMemoryOp::Unregister) => PRE | FINISH,
        Family::Pointer(PointerOp::Attributes { .. } | PointerOp::RangeAttributes { .. })
        | Family::Stream(StreamOp::CaptureInfo { .. }) => PUT_POST,
        Family::Graph(op) => match op {
            GraphOp::AddNode(node) | GraphOp::SetNode(node) => match node.kind {
                NodeKind::Any => PRE | POST | PUT_POST,
                NodeKind::Kernel | NodeKind::MemoryOps | NodeKind::Allocation => PRE,
                NodeKind::Copy
                | NodeKind::Memset
                | NodeKind::Host
                | NodeKind::ChildGraph
                | NodeKind::Semaphores => 0,
            },
            GraphOp::SetExecNode(node) => match node.kind {
                NodeKind::Any => PRE | POST,
                NodeKind::Kernel | NodeKind::MemoryOps | NodeKind::Allocation => PRE,
                NodeKind::Copy | NodeKind::ChildGraph => POST,
                NodeKind::Memset | NodeKind::Host | NodeKind::Semaphores => 0,
            },
            GraphOp::Instantiate { .. }
            | GraphOp::Update
            | GraphOp::SetEnabled
            | GraphOp::DestroyExec => POST,
            GraphOp::Launch => PUT_PRE | PRE | POST,
            GraphOp::GetNode(_)
            | GraphOp::GetKernelAttribute { .. }
            | GraphOp::SetKernelAttribute { .. }
            | GraphOp::List
            | GraphOp::Clone
            | GraphOp::AddEdges
            | GraphOp::RemoveEdges
            | GraphOp::CopyAttributes
            | GraphOp::Upload
            | GraphOp::ConditionalHandle
            | GraphOp::DotFile { .. } => 0,
        },
        Family::Plain
        | Family::ExportTable
        | Family::DriverVersion
        | Family::Device(_)
        | Family::Context(_)
        | Family::Green(_)
        | Family::Checkpoint(_)
        | Family::PrimaryContext(_)
        | Family::LoadingMode
        | Family::LibraryModule
        | Family::Global(_)
        | Family::Occupancy(OccupancyOp::Function)
        | Family::HostFunction
        | Family::StreamCallback
        | Family::Memset
        | Family::Prefetch
        | Family::Memory(_)
        | Family::HostMemory(_)
        | Family::VirtualMemory(_)
        | Family::Multicast(_)
        | Family::Pool(_)
        | Family::Pointer(_)
        | Family::ExternalBuffer { .. }
        | Family::Stream(_)
        | Family::StreamMemory(_)
        | Family::Event(_)
        | Family::UserObject { .. }
        | Family::UserReferences(_) => 0,
    }
}

fn owned(family: Family) -> u16 {
    let options = |array: OptionArray| 1 << array.options | 1 << array.values;
    match family {
        Family::ModuleLoad(load) | Family::LibraryLoad(load) => {
            let ImageLoad {
                source,
                options: jit,
                library_options,
            } = load;
            let image = match source {
                ImageSource::Data(at) | ImageSource::FatBinary(at) => 1 << at,
                ImageSource::File(_) => 0,
            };
            image | jit.map_or(0, options) | library_options.map_or(0, options)
        }
        Family::Link(LinkOp::AddData {
            data, options: jit, ..
        }) => 1 << data | options(jit),
        Family::Link(
            LinkOp::Create { options: jit, .. } | LinkOp::AddFile { options: jit, .. },
        ) => options(jit),
        Family::Launch(LaunchOp::Config(launch)) => 1 << launch.config,
        Family::ProcAddress { address, .. } => 1 << address,
        // What follows the status is written only while the stream is being captured.
        Family::Stream(StreamOp::CaptureInfo { status }) => u16::MAX << (status + 1),
        _ => 0,
    }
}
