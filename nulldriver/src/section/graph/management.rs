//! Graph Management: graphs, their nodes and the edges between them.

use crate::call::answer::{Answer, INVALID_VALUE, NOT_SUPPORTED, invalid_if, reject_if};
use crate::call::argument::{Extra, In, Out, OutRef, Text};
use crate::call::entry::entries;
use crate::object::device::check_device;
use crate::object::graph::{Dependency, Edge, MAX_COUNT, read_dependencies};
use crate::state::{Locked, lock};
use crate::work::host_function::run_destructors;

entries! {
    cuGraphCreate: create;
    cuGraphDestroy: destroy;
    cuGraphClone: clone;
    cuGraphNodeFindInClone: find_in_clone;
    cuGraphNodeGetType: get_type;
    cuGraphGetNodes: get_nodes::<false>;
    cuGraphGetRootNodes: get_nodes::<true>;
    [symbol] cuGraphGetEdges: get_edges::<false>;
    [symbol] cuGraphGetEdges_v2: get_edges::<true>;
    [symbol] cuGraphNodeGetDependencies: get_dependencies::<false>;
    [symbol] cuGraphNodeGetDependencies_v2: get_dependencies::<true>;
    [symbol] cuGraphNodeGetDependentNodes: get_dependents::<false>;
    [symbol] cuGraphNodeGetDependentNodes_v2: get_dependents::<true>;
    [symbol] cuGraphAddDependencies: connect::<true, false>;
    [symbol] cuGraphAddDependencies_v2: connect::<true, true>;
    [symbol] cuGraphRemoveDependencies: connect::<false, false>;
    [symbol] cuGraphRemoveDependencies_v2: connect::<false, true>;
    cuGraphDestroyNode: destroy_node;
    cuGraphDebugDotPrint: print;
    cuDeviceGraphMemTrim: |device: i32| check_device(device);
    cuDeviceGetGraphMemAttribute: get_memory_attribute;
    cuDeviceSetGraphMemAttribute: set_memory_attribute;
}

fn create(graph: OutRef<u64>, flags: u32) -> Answer {
    invalid_if(flags != 0)?;
    graph.set(lock().create_graph(None)?)
}

fn destroy(mut state: Locked, graph: u64) -> Answer {
    // The graph of a node is destroyed with it.
    invalid_if(state.graphs.find(graph)?.owner.is_some())?;
    state.remove_graph(graph);
    run_destructors(state)
}

fn clone(mut state: Locked, copy: OutRef<u64>, original: u64) -> Answer {
    // Graphs with memory nodes cannot be copied (cuGraphClone).
    reject_if(state.has_memory_nodes(original)?, NOT_SUPPORTED)?;
    copy.set(state.copy_graph(original, None)?)
}

fn find_in_clone(state: Locked, node: OutRef<u64>, original: u64, graph: u64) -> Answer {
    let nodes = &state.graphs.find(graph)?.nodes;
    let found = nodes
        .iter()
        .find(|&one| state.nodes[one].original == original);
    node.set(*found.ok_or(INVALID_VALUE)?)
}

fn get_type(node: u64, kind: OutRef<u32>) -> Answer {
    kind.set(lock().nodes.find(node)?.work.kind())
}

/// Writes a list: only its length if `list` is NULL, else as many as there is space for, the rest
/// NULL.
fn write_list(list: Out<u64>, count: Out<u64>, handles: &[u64]) -> Answer {
    if list.is_null() {
        return count.set(handles.len() as u64);
    }
    let space = count.get()? as usize;
    invalid_if(space > MAX_COUNT)?;
    for index in 0..space {
        list.set_at(index, handles.get(index).copied().unwrap_or(0));
    }
    count.set(handles.len().min(space) as u64)
}

fn get_nodes<const ROOTS: bool>(
    state: Locked,
    graph: u64,
    list: Out<u64>,
    count: OutRef<u64>,
) -> Answer {
    let nodes = &state.graphs.find(graph)?.nodes;
    let wanted = |node: &&u64| !ROOTS || state.nodes[*node].after.is_empty();
    let nodes: Vec<u64> = nodes.iter().filter(wanted).copied().collect();
    write_list(list, *count, &nodes)
}

/// Writes the data of edges, at most `count`. Functions without edge data refuse edges that have
/// some (LOSSY_QUERY; they report INVALID_VALUE).
fn write_edges(data: Option<Out<Edge>>, count: usize, edges: impl Iterator<Item = Edge>) -> Answer {
    let Some(data) = data else {
        let mut edges = edges;
        return invalid_if(edges.any(|edge| edge != Edge::default()));
    };
    for (index, edge) in edges.enumerate().take(count) {
        data.set_at(index, edge);
    }
    Ok(())
}

/// Elements that the program's list takes: 0 if the list is NULL.
fn space_of(list: Out<u64>, count: Out<u64>) -> Answer<usize> {
    match list.is_null() {
        true => Ok(0),
        false => Ok(count.get()? as usize),
    }
}

fn get_edges<const HAS_DATA: bool>(
    state: Locked,
    graph: u64,
    from: Out<u64>,
    to: Out<u64>,
    data: Extra<Out<Edge>, HAS_DATA>,
    count: OutRef<u64>,
) -> Answer {
    let (mut sources, mut targets) = (Vec::new(), Vec::new());
    for &node in &state.graphs.find(graph)?.nodes {
        for &source in &state.nodes.find(node)?.after {
            sources.push(source);
            targets.push(node);
        }
    }
    invalid_if(from.is_null() != to.is_null())?;
    let space = count.get()?;
    let edges = sources.iter().map(|source| source.1);
    write_edges(data.0, space_of(from, *count)?, edges)?;
    if !from.is_null() {
        let sources: Vec<u64> = sources.iter().map(|source| source.0).collect();
        write_list(from, *count, &sources)?;
        count.set(space)?;
    }
    write_list(to, *count, &targets)
}

fn write_neighbours(
    neighbours: &[Dependency],
    list: Out<u64>,
    data: Option<Out<Edge>>,
    count: Out<u64>,
) -> Answer {
    let edges = neighbours.iter().map(|neighbour| neighbour.1);
    write_edges(data, space_of(list, count)?, edges)?;
    let nodes: Vec<u64> = neighbours.iter().map(|neighbour| neighbour.0).collect();
    write_list(list, count, &nodes)
}

fn get_dependencies<const HAS_DATA: bool>(
    state: Locked,
    node: u64,
    list: Out<u64>,
    data: Extra<Out<Edge>, HAS_DATA>,
    count: OutRef<u64>,
) -> Answer {
    write_neighbours(&state.nodes.find(node)?.after, list, data.0, *count)
}

fn get_dependents<const HAS_DATA: bool>(
    state: Locked,
    node: u64,
    list: Out<u64>,
    data: Extra<Out<Edge>, HAS_DATA>,
    count: OutRef<u64>,
) -> Answer {
    let nodes = &state.graphs.find(state.nodes.find(node)?.graph)?.nodes;
    let edge_to = |&other: &u64| {
        let after = &state.nodes[&other].after;
        let edge = after.iter().find(|(before, _)| *before == node)?;
        Some((other, edge.1))
    };
    let dependents: Vec<Dependency> = nodes.iter().filter_map(edge_to).collect();
    write_neighbours(&dependents, list, data.0, *count)
}

/// Adds edges or removes them.
fn connect<const ADD: bool, const HAS_DATA: bool>(
    mut state: Locked,
    graph: u64,
    from: In<u64>,
    to: In<u64>,
    data: Extra<In<Edge>, HAS_DATA>,
    count: usize,
) -> Answer {
    state.graphs.find(graph)?;
    let edges = read_dependencies(from, data.0.unwrap_or(In::at(0)), count)?;
    invalid_if(count > 0 && to.is_null())?;
    let targets = to.list(count)?;
    // All edges are checked before one is changed.
    for (&(from, edge), &to) in edges.iter().zip(&targets) {
        let (source, target) = (state.nodes.find(from)?, state.nodes.find(to)?);
        let mut after = target.after.iter();
        let exists = after.any(|&(other, data)| other == from && (ADD || data == edge));
        let is_foreign = source.graph != graph || target.graph != graph;
        invalid_if(is_foreign || from == to || exists == ADD)?;
        // Edges of memory nodes stay.
        let has_memory = source.work.is_memory() || target.work.is_memory();
        reject_if(!ADD && has_memory, NOT_SUPPORTED)?;
    }
    for (&(from, edge), &to) in edges.iter().zip(&targets) {
        let target = state.nodes.find_mut(to)?;
        if ADD {
            target.after.push((from, edge));
        } else {
            target.after.retain(|(other, _)| *other != from);
        }
    }
    Ok(())
}

fn destroy_node(mut state: Locked, node: u64) -> Answer {
    // Memory nodes stay as long as their graph (graph memory nodes).
    reject_if(state.nodes.find(node)?.work.is_memory(), NOT_SUPPORTED)?;
    state.remove_node(node);
    run_destructors(state)
}

fn print(state: Locked, graph: u64, path: Text, _flags: u32) -> Answer {
    let path = path.get()?;
    let mut text = String::from("digraph dot {\n");
    for (index, &node) in state.graphs.find(graph)?.nodes.iter().enumerate() {
        let node_of = &state.nodes[&node];
        text += &format!("\"{index}\" [label=\"type {}\"];\n", node_of.work.kind());
        for (before, _) in &node_of.after {
            let nodes = &state.graphs[&graph].nodes;
            if let Some(at) = nodes.iter().position(|other| other == before) {
                text += &format!("\"{at}\" -> \"{index}\";\n");
            }
        }
    }
    text += "}\n";
    std::fs::write(path, text).map_err(|_| INVALID_VALUE)
}

/// USED_MEM_CURRENT, USED_MEM_HIGH, RESERVED_MEM_CURRENT, RESERVED_MEM_HIGH; here the high marks
/// are the current values.
fn get_memory_attribute(device: i32, attribute: u32, value: Out<u64>) -> Answer {
    check_device(device)?;
    value.check()?;
    let state = lock();
    let sizes = |with_inactive: bool| -> u64 {
        let memory = state.graph_addresses.iter().filter_map(|address| {
            let inactive = state.inactive.get(address).filter(|_| with_inactive);
            state.allocations.get(address).or(inactive)
        });
        let on_device = memory.filter(|memory| memory.device == device);
        on_device.map(|memory| memory.size).sum()
    };
    match attribute {
        0 | 1 => value.set(sizes(false)),
        2 | 3 => value.set(sizes(true)),
        _ => Err(INVALID_VALUE),
    }
}

fn set_memory_attribute(device: i32, attribute: u32, value: In<u64>) -> Answer {
    check_device(device)?;
    // Only the high marks can be set, and only to zero.
    match (attribute, value.get()?) {
        (1 | 3, 0) => Ok(()),
        _ => Err(INVALID_VALUE),
    }
}
