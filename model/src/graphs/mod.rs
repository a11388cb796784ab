//! Graphs: their nodes and edges, whether built or captured, the executable graphs that were
//! instantiated from them, and references to user objects.
//!
//! A graph of which calls have not shown everything is not `whole`; then nothing is concluded from
//! what its nodes or edges lack.

mod action;
mod apply;
mod capture;
mod node;
mod user_object;

use std::cell::Cell;
use std::collections::HashSet;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::memory::IntervalMap;
use crate::objects::Site;

pub(crate) use action::GraphAction;
pub use apply::{instantiate_flags, node_array, node_arrays};
pub use capture::Capture;
use capture::Captures;
pub use node::{KernelWork, Operand, Work};
pub use user_object::UserObjectState;
use user_object::UserObjects;

/// Flag of `cuGraphInstantiate` (cuda.h: CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH).
pub const AUTO_FREE_ON_LAUNCH: u64 = 1;
/// CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD.
const UPLOAD: u64 = 2;
/// CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH.
pub const DEVICE_LAUNCH: u64 = 4;

/// How many ranges and allocations of graphs are remembered.
const RANGES: usize = 1 << 16;
/// How deep child graphs are followed.
const DEEPEST: usize = 16;

/// A node of a graph.
#[derive(Clone, Debug)]
pub struct Node {
    /// The driver's value; 0 if no call has shown it, as for captured nodes.
    pub handle: u64,
    /// The call that added it.
    pub site: Site,
    /// What it does.
    pub work: Work,
    /// Indices of the nodes that it waits for.
    pub before: Vec<usize>,
    /// It was destroyed.
    pub is_removed: bool,
    /// Kernels may update it (CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE).
    pub is_device_updatable: bool,
}

/// Nodes and edges.
#[derive(Clone, Debug)]
pub struct Graph {
    /// In the order in which they were added.
    pub nodes: Vec<Node>,
    /// Calls have shown all nodes, edges and parameters.
    pub whole: bool,
}

impl Default for Graph {
    fn default() -> Self {
        Self {
            nodes: Vec::new(),
            whole: true,
        }
    }
}

impl Graph {
    /// One of which nothing is known.
    pub(crate) fn unknown() -> Self {
        Self {
            nodes: Vec::new(),
            whole: false,
        }
    }

    /// The nodes that have not been destroyed, with their indices.
    pub fn live(&self) -> impl Iterator<Item = (usize, &Node)> {
        let nodes = self.nodes.iter().enumerate();
        nodes.filter(|(_, node)| !node.is_removed)
    }

    /// For each node whether there is a path from it to the node of that index.
    pub fn ancestors(&self, node: usize) -> Vec<bool> {
        let mut found = vec![false; self.nodes.len()];
        let mut open = vec![node];
        while let Some(next) = open.pop() {
            let before = self.nodes.get(next).map_or(&[][..], |node| &node.before);
            for &earlier in before {
                if let Some(seen) = found.get_mut(earlier)
                    && !std::mem::replace(seen, true)
                {
                    open.push(earlier);
                }
            }
        }
        found
    }

    /// A node that can be reached from itself.
    pub fn node_in_cycle(&self) -> Option<&Node> {
        // Nodes without open predecessors are taken away until none is left.
        let mut open: Vec<usize> = self.nodes.iter().map(|node| node.before.len()).collect();
        let mut after: FxHashMap<usize, Vec<usize>> = FxHashMap::default();
        for (index, node) in self.nodes.iter().enumerate() {
            for &earlier in &node.before {
                after.entry(earlier).or_default().push(index);
            }
        }
        let zero = |open: &[usize]| {
            (0..open.len())
                .filter(|&at| open.get(at) == Some(&0))
                .collect()
        };
        let mut ready: Vec<usize> = zero(&open);
        while let Some(next) = ready.pop() {
            for &later in after.get(&next).map_or(&[][..], Vec::as_slice) {
                if let Some(count) = open.get_mut(later) {
                    *count -= 1;
                    if *count == 0 {
                        ready.push(later);
                    }
                }
            }
        }
        let stuck = open.iter().position(|&count| count > 0)?;
        self.nodes.get(stuck)
    }

    /// The first node, in child graphs too, whose work is of that sort.
    pub fn find(&self, wanted: fn(&Work) -> bool) -> Option<&Node> {
        self.find_within(wanted, DEEPEST)
    }

    fn find_within(&self, wanted: fn(&Work) -> bool, depth: usize) -> Option<&Node> {
        self.live().find_map(|(_, node)| {
            if wanted(&node.work) {
                return Some(node);
            }
            match &node.work {
                Work::Child(child) if depth > 0 => child.find_within(wanted, depth - 1),
                _ => None,
            }
        })
    }
}

/// An update of an executable graph that the driver refused.
#[derive(Clone, Copy, Debug)]
pub struct Rejected {
    /// The call.
    pub site: Site,
    /// The handle of the node, or of the graph that it was to be updated from.
    pub source: u64,
    /// It was an update from a whole graph.
    pub is_whole: bool,
}

/// An executable graph.
#[derive(Debug)]
pub struct Exec {
    /// The graph as it was instantiated, or last updated from.
    pub graph: Arc<Graph>,
    /// The handle of the graph that it was instantiated from.
    pub source: u64,
    /// `CUgraphInstantiate_flags`.
    pub flags: u64,
    /// Parameters that were set since, by node.
    changed: FxHashMap<u64, Work>,
    disabled: FxHashSet<u64>,
    /// All nodes and their parameters are known.
    pub whole: bool,
    /// The last update, if the driver refused it.
    pub rejected: Option<Rejected>,
    /// It was uploaded since it was instantiated or changed.
    pub is_uploaded: bool,
    /// The call that launched it last.
    pub launched: Option<Site>,
    /// What a user of the model has found out about this state of it; reset by every change.
    pub checked: Cell<Option<u64>>,
}

impl Exec {
    /// The work of the nodes that are switched on, in child graphs too.
    pub fn active(&self) -> Vec<(&Node, &Work)> {
        let mut all = Vec::new();
        self.collect(&self.graph, DEEPEST, &mut all);
        all
    }

    fn collect<'a>(&'a self, graph: &'a Graph, depth: usize, all: &mut Vec<(&'a Node, &'a Work)>) {
        for (_, node) in graph.live() {
            if self.disabled.contains(&node.handle) {
                continue;
            }
            let work = self.changed.get(&node.handle).unwrap_or(&node.work);
            if let Work::Child(child) = work
                && depth > 0
            {
                self.collect(child, depth - 1, all);
            }
            all.push((node, work));
        }
    }

    /// The addresses that its nodes allocate and none of them frees.
    pub fn unfreed(&self) -> Vec<(u64, u64)> {
        let active = self.active();
        let freed: HashSet<u64> = active
            .iter()
            .filter_map(|(_, work)| match work {
                Work::Free { address } => Some(*address),
                _ => None,
            })
            .collect();
        let allocations = active.iter().filter_map(|(_, work)| match work {
            Work::Allocation { address, size } => Some((*address, *size)),
            _ => None,
        });
        allocations.filter(|(at, _)| !freed.contains(at)).collect()
    }
}

/// Memory that a node allocates.
#[derive(Clone, Copy, Debug)]
pub struct GraphMemory {
    /// The call that added the node.
    pub site: Site,
    /// The last call that freed it, or the launch of a graph that frees it itself.
    pub freed: Option<Site>,
    /// The launch that allocated it last.
    pub launched: Option<Site>,
    /// The memory is allocated now.
    pub is_live: bool,
    /// A node of the same graph frees it.
    pub is_freed_by_node: bool,
}

/// All graphs, by handle.
#[derive(Debug, Default)]
pub struct Graphs {
    graphs: FxHashMap<u64, Arc<Graph>>,
    /// By handle of the node: graph and index.
    nodes: FxHashMap<u64, (u64, usize)>,
    execs: FxHashMap<u64, Exec>,
    captures: Captures,
    memory: IntervalMap<GraphMemory>,
    users: UserObjects,
    /// Handles for conditional nodes, by graph: created, and given to a node.
    conditions: FxHashMap<u64, (usize, usize)>,
}

impl Graphs {
    /// A live graph.
    pub fn graph(&self, handle: u64) -> Option<&Graph> {
        self.graphs.get(&handle).map(Arc::as_ref)
    }

    /// A live executable graph.
    pub fn exec(&self, handle: u64) -> Option<&Exec> {
        self.execs.get(&handle)
    }

    /// A live executable graph that was instantiated from that graph.
    pub fn exec_of(&self, graph: u64) -> Option<(u64, &Exec)> {
        let mut execs = self.execs.iter();
        let (handle, exec) = execs.find(|(_, exec)| exec.source == graph)?;
        Some((*handle, exec))
    }

    /// A node, and the handle of its graph.
    pub fn node(&self, handle: u64) -> Option<(u64, &Node)> {
        let (graph, index) = self.nodes.get(&handle)?;
        Some((*graph, self.graphs.get(graph)?.nodes.get(*index)?))
    }

    /// Graph and index of a node.
    pub fn place(&self, node: u64) -> Option<(u64, usize)> {
        self.nodes.get(&node).copied()
    }

    /// Memory of a graph that holds this address: where it begins, and what is known of it.
    pub fn memory_at(&self, address: u64) -> Option<(u64, &GraphMemory)> {
        let (range, memory) = self.memory.find(address)?;
        Some((range.start, memory))
    }

    /// The captures in progress.
    pub fn captures(&self) -> impl Iterator<Item = &Capture> {
        self.captures.open()
    }

    /// References to a user object.
    pub fn user_object(&self, handle: u64) -> Option<&UserObjectState> {
        self.users.get(handle)
    }

    /// How many handles for conditional nodes a graph has that no node was given.
    pub fn unused_conditions(&self, graph: u64) -> usize {
        let (created, used) = self.conditions.get(&graph).copied().unwrap_or_default();
        created.saturating_sub(used)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(edges: &[&[usize]]) -> Graph {
        let node = |before: &&[usize]| Node {
            handle: 0,
            site: Site {
                index: 0,
                function: "cuGraphAddEmptyNode",
                thread: 0,
                caller: 0,
                result: Some(0),
            },
            work: Work::Empty,
            before: before.to_vec(),
            is_removed: false,
            is_device_updatable: false,
        };
        Graph {
            nodes: edges.iter().map(node).collect(),
            whole: true,
        }
    }

    #[test]
    fn paths_and_cycles() {
        let line = graph(&[&[], &[0], &[1], &[]]);
        assert_eq!(line.ancestors(2), [true, true, false, false]);
        assert_eq!(line.ancestors(3), [false; 4]);
        assert!(line.node_in_cycle().is_none());
        let cycle = graph(&[&[], &[0, 2], &[1]]);
        assert!(cycle.node_in_cycle().is_some());
        assert_eq!(cycle.ancestors(2), [true, true, true]);
        // Edges to what does not exist are ignored.
        assert_eq!(graph(&[&[7]]).ancestors(0), [false]);
    }
}
