//! Graph Management: graphs, their nodes and the edges between them.

use std::collections::{BTreeMap, HashMap, HashSet};

use cutape_registry::Kind;

use crate::answer::{Answer, INVALID_VALUE, NOT_SUPPORTED};
use crate::argument::{In, Out, Text};
use crate::dispatch::{Entry, bind};
use crate::graph_exec::Exec;
use crate::graph_work::Work;
use crate::memory::Allocation;
use crate::state::{State, check_device, lock};
use crate::user_object::{Destructors, Object};

pub(crate) const ENTRIES: &[Entry] = &[
    ("cuGraphCreate", bind(create)),
    ("cuGraphDestroy", bind(destroy)),
    ("cuGraphClone", bind(clone)),
    ("cuGraphNodeFindInClone", bind(find_in_clone)),
    ("cuGraphNodeGetType", bind(get_type)),
    (
        "cuGraphGetNodes",
        bind(|graph: u64, list: Out<u64>, count: Out<u64>| get_nodes(graph, list, count, false)),
    ),
    (
        "cuGraphGetRootNodes",
        bind(|graph: u64, list: Out<u64>, count: Out<u64>| get_nodes(graph, list, count, true)),
    ),
    (
        "=cuGraphGetEdges",
        bind(
            |graph: u64, from: Out<u64>, to: Out<u64>, count: Out<u64>| {
                get_edges(graph, from, to, None, count)
            },
        ),
    ),
    (
        "=cuGraphGetEdges_v2",
        bind(
            |graph: u64, from: Out<u64>, to: Out<u64>, data: Out<Edge>, count: Out<u64>| {
                get_edges(graph, from, to, Some(data), count)
            },
        ),
    ),
    (
        "=cuGraphNodeGetDependencies",
        bind(|node: u64, list: Out<u64>, count: Out<u64>| {
            neighbours(node, list, None, count, false)
        }),
    ),
    (
        "=cuGraphNodeGetDependencies_v2",
        bind(
            |node: u64, list: Out<u64>, data: Out<Edge>, count: Out<u64>| {
                neighbours(node, list, Some(data), count, false)
            },
        ),
    ),
    (
        "=cuGraphNodeGetDependentNodes",
        bind(|node: u64, list: Out<u64>, count: Out<u64>| {
            neighbours(node, list, None, count, true)
        }),
    ),
    (
        "=cuGraphNodeGetDependentNodes_v2",
        bind(
            |node: u64, list: Out<u64>, data: Out<Edge>, count: Out<u64>| {
                neighbours(node, list, Some(data), count, true)
            },
        ),
    ),
    (
        "=cuGraphAddDependencies",
        bind(|graph: u64, from: In<u64>, to: In<u64>, count: usize| {
            connect(graph, from, to, In::at(0), count, true)
        }),
    ),
    (
        "=cuGraphAddDependencies_v2",
        bind(
            |graph: u64, from: In<u64>, to: In<u64>, data: In<Edge>, count: usize| {
                connect(graph, from, to, data, count, true)
            },
        ),
    ),
    (
        "=cuGraphRemoveDependencies",
        bind(|graph: u64, from: In<u64>, to: In<u64>, count: usize| {
            connect(graph, from, to, In::at(0), count, false)
        }),
    ),
    (
        "=cuGraphRemoveDependencies_v2",
        bind(
            |graph: u64, from: In<u64>, to: In<u64>, data: In<Edge>, count: usize| {
                connect(graph, from, to, data, count, false)
            },
        ),
    ),
    ("cuGraphDestroyNode", bind(destroy_node)),
    ("cuGraphDebugDotPrint", bind(print)),
    (
        "cuDeviceGraphMemTrim",
        bind(|device: i32| check_device(device)),
    ),
    ("cuDeviceGetGraphMemAttribute", bind(get_memory_attribute)),
    ("cuDeviceSetGraphMemAttribute", bind(set_memory_attribute)),
];

/// `CUgraphEdgeData`: ports and type; zeros are an ordinary dependency.
pub(crate) type Edge = [u8; 8];

/// Most nodes, edges or references of one call.
const MOST: usize = 1 << 20;

/// A node.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) graph: u64,
    pub(crate) work: Work,
    /// What it comes after.
    pub(crate) after: Vec<(u64, Edge)>,
    /// The node that it was copied from, if its graph is a copy.
    pub(crate) original: u64,
}

/// A graph.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    /// In order of creation.
    pub(crate) nodes: Vec<u64>,
    /// The node that it is in; it is not the program's then.
    pub(crate) owner: Option<u64>,
    /// The graph that it is a copy of.
    original: u64,
    /// References to user objects.
    pub(crate) objects: HashMap<u64, u32>,
    /// Executable graphs that hold its memory nodes.
    pub(crate) instances: u32,
}

/// All that graphs consist of.
#[derive(Debug, Default)]
pub(crate) struct Graphs {
    pub(crate) graphs: HashMap<u64, Graph>,
    pub(crate) nodes: HashMap<u64, Node>,
    pub(crate) execs: HashMap<u64, Exec>,
    pub(crate) objects: HashMap<u64, Object>,
    /// Default values of conditions, if they are assigned at each launch, by handle.
    pub(crate) conditions: HashMap<u64, Option<u32>>,
    /// Memory of allocation nodes while it is not allocated.
    pub(crate) parked: BTreeMap<u64, Allocation>,
    /// The addresses of all memory of allocation nodes.
    pub(crate) addresses: HashSet<u64>,
}

impl State {
    pub(crate) fn graph(&self, handle: u64) -> Answer<&Graph> {
        self.graphs.graphs.get(&handle).ok_or(INVALID_VALUE)
    }

    pub(crate) fn node(&self, handle: u64) -> Answer<&Node> {
        self.graphs.nodes.get(&handle).ok_or(INVALID_VALUE)
    }

    pub(crate) fn node_mut(&mut self, handle: u64) -> Answer<&mut Node> {
        self.graphs.nodes.get_mut(&handle).ok_or(INVALID_VALUE)
    }

    /// An empty graph.
    pub(crate) fn make_graph(&mut self, owner: Option<u64>) -> Answer<u64> {
        let handle = self.make(Kind::Graph)?;
        let graph = Graph {
            owner,
            ..Graph::default()
        };
        self.graphs.graphs.insert(handle, graph);
        Ok(handle)
    }

    /// A node behind others of its graph: a foreign node or one that stands twice is INVALID_VALUE.
    pub(crate) fn add_node(
        &mut self,
        graph: u64,
        after: Vec<(u64, Edge)>,
        work: Work,
    ) -> Answer<u64> {
        self.graph(graph)?;
        self.check_neighbours(graph, &after)?;
        let handle = self.make(Kind::GraphNode)?;
        let node = Node {
            graph,
            work,
            after,
            original: 0,
        };
        self.graphs.nodes.insert(handle, node);
        if let Some(graph) = self.graphs.graphs.get_mut(&graph) {
            graph.nodes.push(handle);
        }
        Ok(handle)
    }

    fn check_neighbours(&self, graph: u64, nodes: &[(u64, Edge)]) -> Answer {
        let mut seen = HashSet::new();
        for (node, _) in nodes {
            if self.node(*node)?.graph != graph || !seen.insert(*node) {
                return Err(INVALID_VALUE);
            }
        }
        Ok(())
    }

    /// The nodes of a graph, each behind those it depends on; a cycle is INVALID_VALUE.
    pub(crate) fn in_order(&self, graph: u64) -> Answer<Vec<u64>> {
        let nodes = &self.graph(graph)?.nodes;
        let mut done = HashSet::new();
        let mut order = Vec::with_capacity(nodes.len());
        while order.len() < nodes.len() {
            let before = order.len();
            for &handle in nodes {
                let ready = || {
                    let after = &self.graphs.nodes[&handle].after;
                    after.iter().all(|(other, _)| done.contains(other))
                };
                if !done.contains(&handle) && ready() {
                    done.insert(handle);
                    order.push(handle);
                }
            }
            if order.len() == before {
                return Err(INVALID_VALUE);
            }
        }
        Ok(order)
    }

    /// Copies a graph with all that is in it.
    pub(crate) fn copy_graph(&mut self, graph: u64, owner: Option<u64>) -> Answer<u64> {
        let nodes = self.graph(graph)?.nodes.clone();
        let copy = self.make_graph(owner)?;
        let mut names = HashMap::new();
        for &handle in &nodes {
            let node = self.node(handle)?;
            let (work, after) = (node.work.duplicate(), node.after.clone());
            let twin = self.add_node(copy, Vec::new(), work)?;
            names.insert(handle, (twin, after));
        }
        for (&handle, (twin, after)) in &names {
            let after = after.iter().map(|(other, edge)| (names[other].0, *edge));
            let after = after.collect();
            let twin_node = self.node_mut(*twin)?;
            (twin_node.after, twin_node.original) = (after, handle);
            let inner = twin_node.work.inner_graphs();
            let mut copies = Vec::new();
            for inner in inner {
                copies.push(self.copy_graph(inner, Some(*twin))?);
            }
            self.node_mut(*twin)?.work.set_inner_graphs(copies);
        }
        let objects = self.graph(graph)?.objects.clone();
        for (&object, &count) in &objects {
            self.add_references(object, count);
        }
        if let Some(copy) = self.graphs.graphs.get_mut(&copy) {
            (copy.objects, copy.original) = (objects, graph);
        }
        Ok(copy)
    }

    /// Takes a node out of its graph, with what is in it.
    fn remove_node(&mut self, handle: u64) -> Destructors {
        let mut destructors = Destructors::default();
        let Some(node) = self.graphs.nodes.remove(&handle) else {
            return destructors;
        };
        if let Some(graph) = self.graphs.graphs.get_mut(&node.graph) {
            graph.nodes.retain(|&other| other != handle);
            for other in graph.nodes.clone() {
                if let Some(other) = self.graphs.nodes.get_mut(&other) {
                    other.after.retain(|(before, _)| *before != handle);
                }
            }
        }
        for inner in node.work.inner_graphs() {
            destructors.0.extend(self.remove_graph(inner).0);
        }
        self.release(Kind::GraphNode, handle);
        destructors
    }

    /// Ends a graph and everything in it.
    pub(crate) fn remove_graph(&mut self, handle: u64) -> Destructors {
        let mut destructors = Destructors::default();
        let Some(graph) = self.graphs.graphs.remove(&handle) else {
            return destructors;
        };
        for node in graph.nodes {
            destructors.0.extend(self.remove_node(node).0);
        }
        destructors.0.extend(self.drop_objects(&graph.objects).0);
        self.release(Kind::Graph, handle);
        destructors
    }
}

/// Reads dependencies and the data of their edges, which may be missing.
pub(crate) fn dependencies(
    list: In<u64>,
    data: In<Edge>,
    count: usize,
) -> Answer<Vec<(u64, Edge)>> {
    if count > MOST || count > 0 && list.is_null() {
        return Err(INVALID_VALUE);
    }
    let edge = |index| match data.is_null() {
        true => Ok(Edge::default()),
        false => data.get_at(index),
    };
    (0..count)
        .map(|index| Ok((list.get_at(index)?, edge(index)?)))
        .collect()
}

fn create(graph: Out<u64>, flags: u32) -> Answer {
    graph.check()?;
    if flags != 0 {
        return Err(INVALID_VALUE);
    }
    graph.set(lock().make_graph(None)?)
}

fn destroy(graph: u64) -> Answer {
    let mut state = lock();
    if state.graph(graph)?.owner.is_some() {
        // The graph of a node ends with it.
        return Err(INVALID_VALUE);
    }
    let destructors = state.remove_graph(graph);
    drop(state);
    destructors.run();
    Ok(())
}

fn clone(copy: Out<u64>, original: u64) -> Answer {
    copy.check()?;
    let mut state = lock();
    if state.has_memory_nodes(original)? {
        // Graphs with memory nodes cannot be copied (cuGraphClone).
        return Err(NOT_SUPPORTED);
    }
    copy.set(state.copy_graph(original, None)?)
}

fn find_in_clone(node: Out<u64>, original: u64, graph: u64) -> Answer {
    node.check()?;
    let state = lock();
    let nodes = &state.graph(graph)?.nodes;
    let found = nodes
        .iter()
        .find(|&one| state.graphs.nodes[one].original == original);
    node.set(*found.ok_or(INVALID_VALUE)?)
}

fn get_type(node: u64, kind: Out<u32>) -> Answer {
    kind.check()?;
    kind.set(lock().node(node)?.work.kind())
}

/// Gives a list out: its length without a place for it, else as many as there is room for, the rest NULL.
fn give(list: Out<u64>, count: Out<u64>, handles: &[u64]) -> Answer {
    if list.is_null() {
        return count.set(handles.len() as u64);
    }
    let room = count.get()? as usize;
    if room > MOST {
        return Err(INVALID_VALUE);
    }
    for index in 0..room {
        list.set_at(index, handles.get(index).copied().unwrap_or(0));
    }
    count.set(handles.len().min(room) as u64)
}

fn get_nodes(graph: u64, list: Out<u64>, count: Out<u64>, roots: bool) -> Answer {
    count.check()?;
    let state = lock();
    let nodes = &state.graph(graph)?.nodes;
    let wanted = |node: &&u64| !roots || state.graphs.nodes[*node].after.is_empty();
    let nodes: Vec<u64> = nodes.iter().filter(wanted).copied().collect();
    give(list, count, &nodes)
}

/// Edges that carry data cannot be told by functions that know of none (LOSSY_QUERY; reported as INVALID_VALUE there).
fn give_edges(data: Option<Out<Edge>>, count: usize, edges: &[Edge]) -> Answer {
    match data {
        None if edges.iter().any(|edge| *edge != Edge::default()) => Err(INVALID_VALUE),
        Some(data) => {
            for (index, edge) in edges.iter().enumerate().take(count) {
                data.set_at(index, *edge);
            }
            Ok(())
        }
        None => Ok(()),
    }
}

fn get_edges(
    graph: u64,
    from: Out<u64>,
    to: Out<u64>,
    data: Option<Out<Edge>>,
    count: Out<u64>,
) -> Answer {
    count.check()?;
    let state = lock();
    let mut edges = Vec::new();
    for &node in &state.graph(graph)?.nodes {
        let after = &state.graphs.nodes[&node].after;
        edges.extend(after.iter().map(|&(before, edge)| (before, node, edge)));
    }
    if from.is_null() != to.is_null() {
        return Err(INVALID_VALUE);
    }
    let room = if from.is_null() {
        0
    } else {
        count.get()? as usize
    };
    let all: Vec<Edge> = edges.iter().map(|edge| edge.2).collect();
    give_edges(data, room, &all)?;
    let sources: Vec<u64> = edges.iter().map(|edge| edge.0).collect();
    let targets: Vec<u64> = edges.iter().map(|edge| edge.1).collect();
    if !from.is_null() {
        let before = count.get()?;
        give(from, count, &sources)?;
        count.set(before)?;
    }
    give(to, count, &targets)
}

fn neighbours(
    node: u64,
    list: Out<u64>,
    data: Option<Out<Edge>>,
    count: Out<u64>,
    dependent: bool,
) -> Answer {
    count.check()?;
    let state = lock();
    let found: Vec<(u64, Edge)> = if dependent {
        let nodes = &state.graph(state.node(node)?.graph)?.nodes;
        let edge = |&other: &u64| {
            let after = &state.graphs.nodes[&other].after;
            let edge = after.iter().find(|(before, _)| *before == node)?;
            Some((other, edge.1))
        };
        nodes.iter().filter_map(edge).collect()
    } else {
        state.node(node)?.after.clone()
    };
    let room = if list.is_null() {
        0
    } else {
        count.get()? as usize
    };
    let edges: Vec<Edge> = found.iter().map(|one| one.1).collect();
    give_edges(data, room, &edges)?;
    let handles: Vec<u64> = found.iter().map(|one| one.0).collect();
    give(list, count, &handles)
}

fn connect(
    graph: u64,
    from: In<u64>,
    to: In<u64>,
    data: In<Edge>,
    count: usize,
    add: bool,
) -> Answer {
    let mut state = lock();
    state.graph(graph)?;
    let edges = dependencies(from, data, count)?;
    if count > 0 && to.is_null() {
        return Err(INVALID_VALUE);
    }
    let targets = to.list(count)?;
    // All or none.
    for (&(from, edge), &to) in edges.iter().zip(&targets) {
        let (source, target) = (state.node(from)?, state.node(to)?);
        let there = target
            .after
            .iter()
            .any(|&(other, data)| other == from && (add || data == edge));
        if source.graph != graph || target.graph != graph || from == to || there == add {
            return Err(INVALID_VALUE);
        }
        if !add && (source.work.is_memory() || target.work.is_memory()) {
            // Edges of memory nodes stay.
            return Err(NOT_SUPPORTED);
        }
    }
    for (&(from, edge), &to) in edges.iter().zip(&targets) {
        let target = state.node_mut(to)?;
        if add {
            target.after.push((from, edge));
        } else {
            target.after.retain(|(other, _)| *other != from);
        }
    }
    Ok(())
}

fn destroy_node(node: u64) -> Answer {
    let mut state = lock();
    if state.node(node)?.work.is_memory() {
        // Memory nodes stay as long as their graph (graph memory nodes).
        return Err(NOT_SUPPORTED);
    }
    let destructors = state.remove_node(node);
    drop(state);
    destructors.run();
    Ok(())
}

fn print(graph: u64, path: Text, _flags: u32) -> Answer {
    let state = lock();
    let path = path.get()?;
    let mut text = String::from("digraph dot {\n");
    for (index, &node) in state.graph(graph)?.nodes.iter().enumerate() {
        let node_of = &state.graphs.nodes[&node];
        text += &format!("\"{index}\" [label=\"type {}\"];\n", node_of.work.kind());
        for (before, _) in &node_of.after {
            let nodes = &state.graphs.graphs[&graph].nodes;
            if let Some(at) = nodes.iter().position(|other| other == before) {
                text += &format!("\"{at}\" -> \"{index}\";\n");
            }
        }
    }
    text += "}\n";
    std::fs::write(path, text).map_err(|_| INVALID_VALUE)
}

/// USED_MEM_CURRENT, USED_MEM_HIGH, RESERVED_MEM_CURRENT, RESERVED_MEM_HIGH; high marks are not kept apart here.
fn get_memory_attribute(device: i32, attribute: u32, value: Out<u64>) -> Answer {
    check_device(device)?;
    value.check()?;
    let state = lock();
    let sizes = |parked: bool| -> u64 {
        let addresses = state.graphs.addresses.iter();
        addresses
            .filter_map(|address| {
                let live = state.allocations.get(address);
                let there = state.graphs.parked.get(address).filter(|_| parked);
                live.or(there)
            })
            .filter(|allocation| allocation.device == device)
            .map(|allocation| allocation.size)
            .sum()
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
