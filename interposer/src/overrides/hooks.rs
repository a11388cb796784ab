//! The one table of hooks: which code runs at the calls of which functions.
//!
//! A visitor is given the hooks of a function. One visitor for each hook runs it, and `HookBits`
//! notes which there are, for the plan: a hook without its bit cannot exist.

use cutape_registry::{
    ContextOp, Family, FunctionOp, HostMemoryOp, MemoryOp, OccupancyOp, PrimaryOp, StreamMemoryOp,
    StreamOp,
};

use super::visitor::Visitor;
use super::{
    batch, copy, entry_point, graph, image, launch, lifetime, link, origin, scatter, sharing,
};
use crate::file::identity;
use crate::host_functions::{self, Form};
use crate::host_memory;
use crate::hot::frame::Frame;
use crate::hot::hook_bits::{FINISH, HookBits, POST, PRE, PUT_POST, PUT_PRE};
use crate::hot::plan::Plan;
use crate::hot::thread::{Draft, Thread};
use crate::loaded::address_space;
use crate::state::captures;
use crate::{async_readback, driver_log};

/// The hooks that a function has by its family, and those that the roles of its parameters ask for.
/// The plan must have its roles.
pub(crate) fn bits(plan: &Plan) -> [HookBits; 2] {
    let none = HookBits::default();
    [visit_family(plan, none), visit_roles(plan, none)]
}

impl Visitor for HookBits {
    fn put_pre_call(self, _: impl FnOnce(&mut Draft<'_>, &Frame) -> Option<()>) -> Self {
        self.with(PUT_PRE)
    }

    fn pre_call(self, _: impl FnOnce(&Thread, &mut Frame)) -> Self {
        self.with(PRE)
    }

    fn post_call(self, _: impl FnOnce(&Thread, &mut Frame)) -> Self {
        self.with(POST)
    }

    fn put_post_call(self, _: impl FnOnce(&mut Draft<'_>, &Frame) -> Option<()>) -> Self {
        self.with(PUT_POST)
    }

    fn finish_call(self, _: impl FnOnce(&mut Frame)) -> Self {
        self.with(FINISH)
    }

    fn owns(self, parameters: u16) -> Self {
        self.owning(parameters)
    }
}

/// Gives a visitor all hooks of a function, in the order in which they run.
pub(super) fn visit<V: Visitor>(plan: &Plan, visitor: V) -> V {
    visit_roles(plan, visit_family(plan, visitor))
}

fn visit_family<V: Visitor>(plan: &Plan, visitor: V) -> V {
    let family = plan.family;
    let visitor = match address_space::is_noted_before(family) {
        true => visitor.pre_call(move |thread, frame| address_space::before(thread, frame, family)),
        false => visitor,
    };
    match family {
        Family::Init => visitor.post_call(|_, _| {
            identity::write_devices();
            driver_log::register();
        }),
        Family::ProcAddress { name, address } => entry_point::visit(visitor, name, address),
        Family::Context(ContextOp::Create | ContextOp::Destroy)
        | Family::PrimaryContext(PrimaryOp::Retain | PrimaryOp::Release | PrimaryOp::Reset) => {
            lifetime::visit_context(visitor, family)
        }
        Family::ModuleLoad(load) | Family::LibraryLoad(load) => image::visit(visitor, load),
        Family::ModuleUnload | Family::LibraryUnload => lifetime::visit_unload(visitor),
        Family::Function(op) => lifetime::visit_functions(visitor, op, false),
        Family::Kernel(op) => lifetime::visit_functions(visitor, op, true),
        Family::Link(op) => link::visit(visitor, op),
        Family::Launch(op) => launch::visit(visitor, op),
        Family::Occupancy(OccupancyOp::Config { config, .. }) => visitor
            .put_pre_call(move |draft, frame| launch::put_attributes_of(draft, frame, config)),
        Family::Copy(op) => copy::visit(visitor, op),
        Family::StreamMemory(StreamMemoryOp::Batch) => visitor.pre_call(|thread, frame| {
            if host_memory::any() {
                let operands = batch::memory_operations(frame);
                host_memory::before_operands(thread, frame, operands.into_iter());
            }
        }),
        Family::Memory(MemoryOp::AllocateManaged | MemoryOp::Free)
        | Family::HostMemory(
            HostMemoryOp::Allocate
            | HostMemoryOp::Register
            | HostMemoryOp::Free
            | HostMemoryOp::Unregister,
        ) => lifetime::visit_memory(visitor, family),
        Family::Sharing(op) => sharing::visit(visitor, op),
        Family::Pointer(op) => scatter::visit(visitor, op),
        Family::HostFunction => visitor.pre_call(|thread, frame| {
            host_functions::enqueue(thread, frame, Form::Function);
        }),
        Family::StreamCallback => visitor.pre_call(|thread, frame| {
            host_functions::enqueue(thread, frame, Form::Callback);
        }),
        Family::Stream(StreamOp::BeginCapture) => visitor
            .pre_call(|_, _| captures::begins())
            .finish_call(captures::begun),
        Family::Stream(StreamOp::EndCapture) => visitor.finish_call(captures::ended),
        Family::Stream(StreamOp::CaptureInfo { status }) => graph::visit_capture(visitor, status),
        Family::Graph(op) => graph::visit(visitor, op),
        Family::Plain => match plan.exec_event {
            Some(event) => visitor.pre_call(move |_, frame| graph::exec_records(frame, event)),
            None => visitor,
        },
        Family::ExportTable
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
        | Family::Memset
        | Family::Prefetch
        | Family::Memory(_)
        | Family::HostMemory(_)
        | Family::VirtualMemory(_)
        | Family::Multicast(_)
        | Family::Pool(_)
        | Family::ExternalBuffer { .. }
        | Family::Stream(_)
        | Family::StreamMemory(_)
        | Family::Event(_)
        | Family::UserObject { .. }
        | Family::UserReferences(_) => visitor,
    }
}

/// What the roles of the parameters ask for. It keeps `errno` where it has to.
fn visit_roles<V: Visitor>(plan: &Plan, mut visitor: V) -> V {
    if plan.awaits_copy {
        visitor = visitor.post_call(async_readback::add_by_roles);
    }
    match (plan.function, plan.family) {
        // A launch traces its function before the call; a new function is noted by its family.
        (_, Family::Launch(_) | Family::Function(FunctionOp::OfKernel { .. })) | (None, _) => {
            visitor
        }
        (Some(at), _) => {
            visitor.post_call(move |thread, frame| origin::used(thread, frame.word(at)))
        }
    }
}
