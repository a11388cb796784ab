//! A graph: its nodes, what they do, and the edges between them.

use std::sync::Arc;

use cutape_registry::Extent;
use rustc_hash::FxHashMap;

use crate::site::Site;

/// How deep child graphs are followed.
pub(super) const DEEPEST: usize = 16;

/// A kernel and its parameters.
#[derive(Clone, Debug)]
pub struct KernelWork {
    /// The function's or kernel's handle.
    pub function: u64,
    /// Blocks in x, y, z.
    pub grid: Option<[u64; 3]>,
    /// Threads of a block in x, y, z.
    pub block: Option<[u64; 3]>,
    /// Bytes of dynamic shared memory of a block.
    pub shared: Option<u64>,
    /// The bytes of the parameters; empty if they are not known.
    pub parameters: Arc<[u8]>,
}

/// Memory that a copy or memset reads or writes.
#[derive(Clone, Copy, Debug)]
pub struct Operand {
    /// The address that the program passed.
    pub address: u64,
    /// The first byte: a struct may have an origin besides the address.
    pub start: u64,
    /// The bytes from there, as far as they are known.
    pub extent: Extent,
    /// It writes them.
    pub is_write: bool,
    /// It is a device address for certain.
    pub is_device: bool,
    /// The parameter or member that holds it.
    pub name: &'static str,
}

/// What a node does.
#[derive(Clone, Debug)]
pub enum Work {
    /// A launch.
    Kernel(KernelWork),
    /// A copy or a memset, with its addresses.
    Memory(Arc<[Operand]>),
    /// A function of the program.
    Host,
    /// Another graph, as it was when the node was added.
    Child(Arc<Graph>),
    /// Records an event or waits for one.
    Event,
    /// External semaphores.
    Semaphores,
    /// Waits for or writes values in memory.
    MemoryOperations,
    /// An allocation.
    Allocation {
        /// Where.
        address: u64,
        /// Bytes.
        size: u64,
    },
    /// A free.
    Free {
        /// Of what.
        address: u64,
    },
    /// Bodies under a condition.
    Conditional,
    /// Nothing.
    Empty,
    /// Something that the call does not say.
    Unknown,
}

/// Which work of other streams a graph may wait for by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum GraphWait {
    /// None.
    Nothing,
    /// What is enqueued when it is launched.
    Enqueued,
    /// Also what is enqueued later.
    Unknown,
}

impl Work {
    /// What it may wait for besides the nodes before it.
    fn waits_for(&self) -> GraphWait {
        match self {
            Self::Kernel(_)
            | Self::Memory(_)
            | Self::Child(_)
            | Self::Allocation { .. }
            | Self::Free { .. }
            | Self::Empty => GraphWait::Nothing,
            // The last record of an event; a thread that has waited for another stream.
            Self::Event | Self::Host => GraphWait::Enqueued,
            Self::Semaphores | Self::MemoryOperations | Self::Conditional | Self::Unknown => {
                GraphWait::Unknown
            }
        }
    }

    /// Whether it may tell the program that it runs: a function of the program, or a value that the
    /// program may poll.
    pub(crate) fn signals_host(&self) -> bool {
        matches!(
            self,
            Self::Host | Self::MemoryOperations | Self::Conditional | Self::Unknown
        )
    }

    /// The word in messages.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Kernel(_) => "kernel",
            Self::Memory(_) => "copy or memset",
            Self::Host => "host",
            Self::Child(_) => "child graph",
            Self::Event => "event",
            Self::Semaphores => "semaphore",
            Self::MemoryOperations => "memory operation",
            Self::Allocation { .. } => "allocation",
            Self::Free { .. } => "free",
            Self::Conditional => "conditional",
            Self::Empty => "empty",
            Self::Unknown => "other",
        }
    }

    /// Allocates or frees.
    pub fn is_of_memory(&self) -> bool {
        matches!(self, Self::Allocation { .. } | Self::Free { .. })
    }
}

/// What a launch of a graph may do to the order of other work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GraphEffects {
    /// A node may tell the program that it runs.
    pub(crate) signals_host: bool,
    /// What its nodes may wait for.
    pub(crate) waits_for: GraphWait,
}

impl GraphEffects {
    /// Those of a graph with such nodes and, unless `whole`, others that no call has shown.
    pub(super) fn of<'w>(works: impl Iterator<Item = &'w Work>, whole: bool) -> Self {
        let unknown = Self {
            signals_host: !whole,
            waits_for: match whole {
                true => GraphWait::Nothing,
                false => GraphWait::Enqueued,
            },
        };
        works.fold(unknown, |all, work| Self {
            signals_host: all.signals_host || work.signals_host(),
            waits_for: all.waits_for.max(work.waits_for()),
        })
    }
}

/// A node of a graph.
#[derive(Clone, Debug)]
pub struct Node {
    /// The driver's value; 0 if no call has shown it, as for captured nodes.
    pub handle: u64,
    /// The call that added it.
    pub site: Site,
    /// The call that gave it its parameters.
    pub set: Site,
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
        let node = self.nodes.get(node);
        self.ancestors_of(node.map_or(&[], |node| &node.before))
    }

    /// For each node whether it is one of those, or there is a path from it to one.
    pub(crate) fn ancestors_of(&self, nodes: &[usize]) -> Vec<bool> {
        let mut found = vec![false; self.nodes.len()];
        let mut open = nodes.to_vec();
        while let Some(next) = open.pop() {
            if let Some(seen) = found.get_mut(next)
                && !std::mem::replace(seen, true)
                && let Some(node) = self.nodes.get(next)
            {
                open.extend(&node.before);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(edges: &[&[usize]]) -> Graph {
        let site = Site {
            index: 0,
            function: "cuGraphAddEmptyNode",
            thread: 0,
            caller: 0,
            stack: 0,
            result: Some(0),
        };
        let node = |before: &&[usize]| Node {
            handle: 0,
            site,
            set: site,
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
