//! Which functions change the objects that they use.

use cutape_registry::{
    ContextOp, EventOp, Family, FunctionOp, GraphOp, HostMemoryOp, Kind, LinkOp, PointerOp, PoolOp,
    Role, StreamOp, VirtualMemoryOp, Waits,
};

use crate::effects::{Effect, Effects};

/// Whether a call adds a node to a graph.
pub(super) fn makes_node(effects: &Effects) -> bool {
    let makes = |effect: &(usize, Effect)| matches!(effect.1, Effect::Create(Kind::GraphNode, _));
    effects.objects.iter().any(makes)
}

/// Whether a successful call changes the objects that it uses, so that later users need it.
pub(super) fn changes_operands(effects: &Effects) -> bool {
    let function = effects.function;
    let answers = || {
        function.params.iter().any(|param| {
            matches!(
                param.role,
                Role::Out(_)
                    | Role::InOut(_)
                    | Role::Get(_)
                    | Role::Find(..)
                    | Role::FindMany(..)
                    | Role::Make(..)
                    | Role::Destroy(_)
                    | Role::Text(_)
                    | Role::OutString
            )
        })
    };
    match function.family {
        Family::Link(operation) => !matches!(operation, LinkOp::Create { .. } | LinkOp::Destroy),
        Family::Function(operation) | Family::Kernel(operation) => matches!(
            operation,
            FunctionOp::SetAttribute | FunctionOp::SetCacheConfig | FunctionOp::SetLaunchState
        ),
        Family::Graph(operation) => !matches!(
            operation,
            GraphOp::GetNode(_)
                | GraphOp::GetKernelAttribute { .. }
                | GraphOp::List
                | GraphOp::Instantiate { .. }
                | GraphOp::DestroyExec
                | GraphOp::Clone
                | GraphOp::Launch
                | GraphOp::DotFile { .. }
        ),
        Family::Pool(operation) => operation == PoolOp::SetAttribute,
        Family::VirtualMemory(operation) => matches!(
            operation,
            VirtualMemoryOp::Map { .. }
                | VirtualMemoryOp::Unmap { .. }
                | VirtualMemoryOp::SetAccess { .. }
        ),
        Family::Stream(StreamOp::SetAttribute { .. } | StreamOp::AttachMemory)
        | Family::Event(EventOp::Record)
        | Family::UserReferences(_)
        | Family::Multicast(_)
        | Family::Context(ContextOp::EnablePeer | ContextOp::DisablePeer | ContextOp::SetLimit) => {
            true
        }
        Family::Pointer(PointerOp::SetAttribute) => true,
        Family::HostMemory(HostMemoryOp::Register) => false,
        Family::Plain | Family::Sharing(_) => {
            (function.waits == Waits::No && !answers()) || makes_node(effects)
        }
        _ => false,
    }
}
