//! What a function does to graphs, resolved once from the registry.

use cutape_registry::{
    Family, GraphOp, Kind, MemoryOp, NodeKind, Param, Role, StreamOp, UserReferenceOp,
};

/// What a successful call does to graphs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GraphAction {
    None,
    Create,
    Clone,
    Destroy,
    /// With a struct of parameters.
    AddNode(usize, NodeKind),
    /// The roles say what it does.
    AddPlainNode,
    DestroyNode,
    SetNode(usize, NodeKind),
    SetExecNode(usize, NodeKind),
    /// A node's event.
    SetOther,
    SetKernelAttribute,
    AddEdges,
    RemoveEdges,
    Instantiate(Option<usize>),
    Update,
    SetEnabled,
    DestroyExec,
    Upload,
    Launch,
    Condition,
    EndCapture,
    /// Changes what the next captured work depends on.
    SetCaptureDependencies,
    /// Frees memory, which may be a graph's.
    Free,
    CreateUserObject,
    UserReferences(UserReferenceOp),
}

impl GraphAction {
    /// True if the driver may create graphs and nodes of which no call shows the handle.
    pub(crate) fn has_unseen_nodes(self) -> bool {
        matches!(
            self,
            Self::Clone
                | Self::AddNode(_, NodeKind::Any | NodeKind::ChildGraph)
                | Self::SetNode(_, NodeKind::Any | NodeKind::ChildGraph)
        )
    }

    pub(crate) fn of(function: &cutape_registry::Function) -> Self {
        let has = |is: fn(&Param) -> bool| function.params.iter().any(is);
        let makes_node = || has(|param| matches!(param.role, Role::Make(Kind::GraphNode, _)));
        match function.family {
            Family::Graph(operation) => match operation {
                GraphOp::AddNode(node) => Self::AddNode(usize::from(node.position), node.kind),
                GraphOp::SetNode(node) => Self::SetNode(usize::from(node.position), node.kind),
                GraphOp::SetExecNode(node) => {
                    Self::SetExecNode(usize::from(node.position), node.kind)
                }
                GraphOp::SetKernelAttribute { .. } => Self::SetKernelAttribute,
                GraphOp::Instantiate { params } => Self::Instantiate(params.map(usize::from)),
                GraphOp::Update => Self::Update,
                GraphOp::SetEnabled => Self::SetEnabled,
                GraphOp::DestroyExec => Self::DestroyExec,
                GraphOp::Clone => Self::Clone,
                GraphOp::AddEdges => Self::AddEdges,
                GraphOp::RemoveEdges => Self::RemoveEdges,
                GraphOp::Upload => Self::Upload,
                GraphOp::Launch => Self::Launch,
                GraphOp::ConditionalHandle => Self::Condition,
                GraphOp::GetNode(_)
                | GraphOp::GetKernelAttribute { .. }
                | GraphOp::List
                | GraphOp::CopyAttributes
                | GraphOp::DotFile { .. } => Self::None,
            },
            Family::Stream(StreamOp::EndCapture) => Self::EndCapture,
            Family::Memory(MemoryOp::Free | MemoryOp::FreeAsync) => Self::Free,
            Family::UserObject { .. } => Self::CreateUserObject,
            Family::UserReferences(operation) => Self::UserReferences(operation),
            Family::Plain if makes_node() => Self::AddPlainNode,
            Family::Plain if has(|param| param.role == Role::Destroy(Kind::GraphNode)) => {
                Self::DestroyNode
            }
            Family::Plain if has(|param| param.role == Role::Destroy(Kind::Graph)) => Self::Destroy,
            Family::Plain if has(|param| matches!(param.role, Role::Make(Kind::Graph, _))) => {
                Self::Create
            }
            Family::Plain
                if has(|param| param.role == Role::Use(Kind::Stream))
                    && has(|param| matches!(param.role, Role::UseMany(Kind::GraphNode, _))) =>
            {
                Self::SetCaptureDependencies
            }
            Family::Plain
                if has(|param| param.role == Role::Use(Kind::GraphNode))
                    && has(|param| param.role == Role::Use(Kind::Event)) =>
            {
                Self::SetOther
            }
            _ => Self::None,
        }
    }
}
