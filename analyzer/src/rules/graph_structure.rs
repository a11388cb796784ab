//! Calls that build graphs and failed: what about the graph explains the failure.

use std::collections::HashSet;

use cutape_format::layout::field;
use cutape_model::{
    AUTO_FREE_ON_LAUNCH, DEVICE_LAUNCH, Graph, Work, instantiate_flags, node_array, node_arrays,
};
use cutape_registry::{Family, GraphOp, Kind, NodeKind, UserReferenceOp, layout, rules};

use super::{Check, Draft, at, with_article};

/// CU_USER_OBJECT_NO_DESTRUCTOR_SYNC.
const NO_DESTRUCTOR_SYNC: u64 = 1;
/// CU_GRAPH_USER_OBJECT_MOVE.
const MOVE: u64 = 1;
const ELEMENT_SIZE: usize = layout::offset_of("CUDA_MEMSET_NODE_PARAMS_v1", "elementSize");

fn graph_handle(check: &Check<'_, '_>) -> u64 {
    check.plan.handle_of(check.call, Kind::Graph).unwrap_or(0)
}

fn with_graph(draft: Draft, check: &Check<'_, '_>) -> Draft {
    let handle = graph_handle(check);
    let id = check.state.objects.live(Kind::Graph, handle);
    match id {
        Some(id) => draft.object(id),
        None => draft.subject(handle),
    }
}

fn draft(check: &Check<'_, '_>, rule: &'static str, title: &str, what: String) -> Option<Draft> {
    Some(with_graph(check.draft(rule, title, what), check))
}

/// Nodes and edges that do not fit.
pub(super) fn structure(check: &Check<'_, '_>) -> Option<Draft> {
    let rule = rules::GRAPH_STRUCTURE_INVALID;
    if let Family::Graph(GraphOp::AddNode(node)) = check.family()
        && node.kind == NodeKind::Memset
    {
        let snapshot = check
            .call
            .snapshot(usize::from(node.position), field::POINTEE);
        let bytes = snapshot.and_then(|snapshot| snapshot.bytes.inline());
        let size = bytes.and_then(|bytes| bytes.get(ELEMENT_SIZE..)?.first_chunk::<4>());
        let size = size.map(|size| u32::from_le_bytes(*size));
        if let Some(size) = size.filter(|size| !matches!(size, 1 | 2 | 4)) {
            let what = format!("sets elements of {size} bytes; a memset has 1, 2 or 4");
            return draft(
                check,
                rule,
                "memset node with elements of another size",
                what,
            );
        }
    }
    let arrays: Vec<_> = node_arrays(check.plan)
        .map(|at| node_array(check.call, at))
        .collect();
    match (check.family(), arrays.as_slice()) {
        (Family::Graph(GraphOp::AddEdges | GraphOp::RemoveEdges), [Some(from), Some(to)]) => {
            edges(check, from, to)
        }
        (_, [Some(dependencies), ..]) => dependencies_of(check, dependencies),
        _ => None,
    }
}

fn dependencies_of(check: &Check<'_, '_>, dependencies: &[u64]) -> Option<Draft> {
    let graph = graph_handle(check);
    let rule = rules::GRAPH_STRUCTURE_INVALID;
    let mut seen = HashSet::new();
    for &node in dependencies {
        if !seen.insert(node) {
            let what = format!("gets the dependency {node:#x} twice");
            return draft(check, rule, "dependency given twice", what);
        }
        if let Some((other, _)) = check.state.graphs.node(node)
            && other != graph
        {
            let what = format!(
                "gets {node:#x} as a dependency, a node of another graph, {other:#x}, not of \
                 {graph:#x}"
            );
            return draft(check, rule, "dependency on a node of another graph", what);
        }
    }
    None
}

fn edges(check: &Check<'_, '_>, from: &[u64], to: &[u64]) -> Option<Draft> {
    let graph = graph_handle(check);
    let graphs = &check.state.graphs;
    let rule = rules::GRAPH_STRUCTURE_INVALID;
    let removes = check.family() == Family::Graph(GraphOp::RemoveEdges);
    let whole = graphs.graph(graph).is_some_and(|graph| graph.whole);
    for (&from, &to) in from.iter().zip(to) {
        let places = [from, to].map(|node| graphs.place(node));
        if let Some((other, _)) = places.into_iter().flatten().find(|place| place.0 != graph) {
            let what = format!("joins {from:#x} and {to:#x}, of which one is in graph {other:#x}");
            return draft(check, rule, "edge to a node of another graph", what);
        }
        if from == to {
            let what = format!("joins {from:#x} to itself");
            return draft(check, rule, "edge from a node to itself", what);
        }
        let [Some((_, from_index)), Some(_)] = places else {
            continue;
        };
        let (_, node) = graphs.node(to)?;
        let exists = node.before.contains(&from_index);
        if exists && !removes {
            let what = format!("adds the edge from {from:#x} to {to:#x}, which exists");
            return draft(check, rule, "edge added twice", what);
        }
        if !exists && removes && whole {
            let what = format!("removes the edge from {from:#x} to {to:#x}, which does not exist");
            return draft(check, rule, "edge removed that does not exist", what);
        }
    }
    None
}

/// An instantiation that failed.
pub(super) fn instantiate(check: &Check<'_, '_>) -> Option<Draft> {
    let Family::Graph(GraphOp::Instantiate { params }) = check.family() else {
        return None;
    };
    let handle = graph_handle(check);
    let graph = check.state.graphs.graph(handle)?;
    let flags = instantiate_flags(check.plan, check.call, params.map(usize::from));
    if let Some((exec, _)) = check.state.graphs.exec_of(handle)
        && let Some(draft) = second(check, graph, exec)
    {
        return Some(draft);
    }
    if flags & DEVICE_LAUNCH != 0
        && let Some(draft) = device_launch(check, graph, flags)
    {
        return Some(draft);
    }
    let rule = rules::GRAPH_STRUCTURE_INVALID;
    if graph.whole
        && let Some(node) = graph.node_in_cycle()
    {
        let what = format!(
            "gets a graph with a cycle through the node from {}",
            at(node.site)
        );
        return draft(check, rule, "graph with a cycle", what);
    }
    let unused = check.state.graphs.unused_conditions(handle);
    if unused > 0 {
        let what = format!("gets a graph with {unused} handles for conditions that no node has");
        return draft(check, rule, "handle for a condition without a node", what);
    }
    None
}

/// What permits only one executable graph.
fn second(check: &Check<'_, '_>, graph: &Graph, exec: u64) -> Option<Draft> {
    let only_one = |work: &Work| work.is_of_memory() || matches!(work, Work::Conditional);
    let node = graph.find(only_one);
    let updatable = graph.live().find(|(_, node)| node.is_device_updatable);
    let exec = check.state.objects.live(Kind::GraphExec, exec)?;
    let (rule, node) = match (node, updatable) {
        (Some(node), _) => (rules::GRAPH_MEMORY_NODE_RESTRICTIONS, node),
        (None, Some((_, node))) => (rules::GRAPH_DEVICE_UPDATABLE_RESTRICTIONS, node),
        (None, None) => return None,
    };
    let sort = match node.is_device_updatable {
        true => "device-updatable kernel",
        false => node.work.word(),
    };
    let what = format!(
        "instantiates the graph again while {} exists. The graph has {} node, from {}, so it \
         may have only one executable graph at a time",
        check.label(exec),
        with_article(sort),
        at(node.site),
    );
    let title = "second executable graph of a graph that permits only one";
    Some(draft(check, rule, title, what)?.object(exec))
}

fn device_launch(check: &Check<'_, '_>, graph: &Graph, flags: u64) -> Option<Draft> {
    let rule = rules::GRAPH_DEVICE_LAUNCH_RESTRICTIONS;
    let title = "graph that cannot be launched from the device";
    if flags & AUTO_FREE_ON_LAUNCH != 0 {
        let what = "asks for launches from the device and for automatic frees, which exclude each \
                    other";
        return draft(check, rule, title, what.to_owned());
    }
    let forbidden = |work: &Work| {
        matches!(
            work,
            Work::Host
                | Work::Event
                | Work::Semaphores
                | Work::MemoryOperations
                | Work::Allocation { .. }
                | Work::Free { .. }
                | Work::Conditional
                | Work::Empty
        )
    };
    if let Some(node) = graph.find(forbidden) {
        let what = format!(
            "asks for launches from the device, but the graph has {} node, from {}",
            with_article(node.work.word()),
            at(node.site),
        );
        return draft(check, rule, title, what);
    }
    if graph.whole && graph.live().next().is_none() {
        let what = "asks for launches from the device, but the graph is empty";
        return draft(check, rule, title, what.to_owned());
    }
    None
}

/// A clone, a child graph, the removal of a node or an edge, an update or a copy of attributes that
/// the graph's nodes forbid.
pub(super) fn forbidden(check: &Check<'_, '_>) -> Option<Draft> {
    let graphs = &check.state.graphs;
    let one_of = |work: &Work| work.is_of_memory() || matches!(work, Work::Conditional);
    let node_handle = check.plan.handle_of(check.call, Kind::GraphNode);
    let node = node_handle.and_then(|handle| graphs.node(handle));
    let memory_rule = rules::GRAPH_MEMORY_NODE_RESTRICTIONS;
    let updatable_rule = rules::GRAPH_DEVICE_UPDATABLE_RESTRICTIONS;
    let restricted = |handle: u64, verb: &str| {
        let cause = graphs.graph(handle)?.find(one_of)?;
        let what = format!(
            "{verb} a graph that has {} node, from {}",
            with_article(cause.work.word()),
            at(cause.site),
        );
        draft(
            check,
            memory_rule,
            "graph with memory or conditional nodes changed or copied",
            what,
        )
    };
    match check.family() {
        Family::Graph(GraphOp::Clone) => restricted(graph_handle(check), "clones"),
        Family::Graph(GraphOp::RemoveEdges) => {
            restricted(graph_handle(check), "removes edges from")
        }
        Family::Graph(GraphOp::Update) => {
            let handle = check.plan.handle_of(check.call, Kind::GraphExec)?;
            let exec = graphs.exec(handle)?;
            let (_, node) = exec
                .graph
                .live()
                .find(|(_, node)| node.is_device_updatable)?;
            let what = format!(
                "updates an executable graph as a whole, but kernels may update its node from {}",
                at(node.site),
            );
            let title = "whole update of a graph with device-updatable nodes";
            draft(check, updatable_rule, title, what)
        }
        Family::Graph(GraphOp::CopyAttributes) => {
            let handles = (0..2).map(|position| check.call.argument(position));
            let mut nodes = handles.filter_map(|handle| graphs.node(handle));
            let (_, node) = nodes.find(|(_, node)| node.is_device_updatable)?;
            let what = format!(
                "copies attributes of the node from {}, which kernels may update",
                at(node.site),
            );
            let title = "attributes of a device-updatable node copied";
            draft(check, updatable_rule, title, what)
        }
        _ if check.plan.at("childGraph").is_some() => {
            let child = check.argument("childGraph")?;
            restricted(child, "adds as a child")
        }
        _ if check.plan.destroys => {
            let (graph, node) = node?;
            if node.is_device_updatable {
                let what = format!(
                    "destroys the node from {}, which kernels may update",
                    at(node.site)
                );
                let title = "device-updatable node destroyed";
                return draft(check, updatable_rule, title, what);
            }
            restricted(graph, "destroys a node of")
        }
        _ => None,
    }
}

/// References to user objects.
pub(super) fn user_objects(check: &Check<'_, '_>) -> Option<Draft> {
    let rule = rules::GRAPH_USER_OBJECT_REFERENCES;
    let argument = |name| check.argument(name).map(|value| value & 0xffff_ffff);
    if let Family::UserObject { .. } = check.family() {
        let (count, flags) = (argument("initialRefcount")?, argument("flags")?);
        if !check.went_wrong() || (count > 0 && flags == NO_DESTRUCTOR_SYNC) {
            return None;
        }
        let what = match count {
            0 => "creates a user object with 0 references".to_owned(),
            _ => format!(
                "passes the flags {flags:#x}; only CU_USER_OBJECT_NO_DESTRUCTOR_SYNC, 1, is permitted"
            ),
        };
        return Some(check.draft(rule, "user object that cannot be created", what));
    }
    let Family::UserReferences(operation) = check.family() else {
        return None;
    };
    let handle = check.plan.handle_of(check.call, Kind::UserObject)?;
    let object = check.state.graphs.user_object(handle)?;
    let count = argument("count").unwrap_or(1);
    if count == 0 && check.went_wrong() {
        let what = "gets 0 as the number of references".to_owned();
        return Some(
            check
                .draft(rule, "no reference retained or released", what)
                .subject(handle),
        );
    }
    let takes = match operation {
        UserReferenceOp::Release => true,
        UserReferenceOp::RetainForGraph => argument("flags")? & MOVE != 0,
        UserReferenceOp::Retain | UserReferenceOp::ReleaseOfGraph => false,
    };
    if operation == UserReferenceOp::ReleaseOfGraph {
        let graph = graph_handle(check);
        let held = object.graphs.get(&graph).copied().unwrap_or(0);
        if count <= held || !check.went_wrong() {
            return None;
        }
        let what = format!("releases {count} references of a graph that has {held}");
        let title = "graph releases references that it does not have";
        return Some(check.draft(rule, title, what).subject(handle));
    }
    if !takes || count <= object.own {
        return None;
    }
    let moved = object.moved.map_or_else(String::new, |site| {
        format!(
            ". {} moved references to a graph, which owns them now",
            at(site)
        )
    });
    let (verb, title) = match operation {
        UserReferenceOp::Release => (
            "releases",
            "program releases references to a user object that it does not hold",
        ),
        _ => (
            "moves to a graph",
            "program moves references to a user object that it does not hold",
        ),
    };
    let what = format!(
        "{verb} {count} of the program's references to the user object from {}, but the program \
         holds {}{moved}",
        at(object.created),
        object.own,
    );
    Some(check.draft(rule, title, what).subject(handle))
}
