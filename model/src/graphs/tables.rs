//! All graphs and executable graphs by handle, and the memory that graphs allocate.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::graph::{DEEPEST, Graph, GraphEffects, Node, Work};
use super::user_object::{UserObjectState, UserObjects};
use crate::accesses::Access;
use crate::memory::IntervalMap;
use crate::site::Site;

/// Flag of `cuGraphInstantiate` (cuda.h: CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH).
pub const AUTO_FREE_ON_LAUNCH: u64 = 1;
/// CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD.
pub(super) const UPLOAD: u64 = 2;
/// CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH.
pub const DEVICE_LAUNCH: u64 = 4;

/// How many ranges and allocations of graphs are remembered.
pub(super) const RANGES: usize = 1 << 16;

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
#[derive(Clone, Debug)]
pub struct Exec {
    /// The graph as it was instantiated, or last updated from.
    pub graph: Arc<Graph>,
    /// The handle of the graph that it was instantiated from.
    pub source: u64,
    /// `CUgraphInstantiate_flags`.
    pub flags: u64,
    /// Parameters that were set since, by node, and the call that set them.
    pub(super) changed: FxHashMap<u64, (Work, Site)>,
    pub(super) disabled: FxHashSet<u64>,
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
    pub(super) effects: Cell<Option<GraphEffects>>,
    /// The accesses of a launch, with a number of the user's that says for which state of the objects;
    /// reset by every change.
    pub accesses: RefCell<Option<(u64, Arc<[Access]>)>>,
}

impl Exec {
    /// The work of the nodes that are switched on, in child graphs too.
    pub fn active(&self) -> Vec<(&Node, &Work)> {
        let mut all = Vec::new();
        self.collect(&self.graph, DEEPEST, &mut all);
        all
    }

    /// The same; `None` unless calls have shown all nodes and their parameters.
    pub fn known_active(&self) -> Option<Vec<(&Node, &Work)>> {
        (self.whole && self.graph.whole).then(|| self.active())
    }

    /// What a launch may do to the order of other work.
    pub(crate) fn effects(&self) -> GraphEffects {
        self.effects.get().unwrap_or_else(|| {
            let active = self.active();
            let works = active.into_iter().map(|(_, work)| work);
            let effects = GraphEffects::of(works, self.whole && self.graph.whole);
            self.effects.set(Some(effects));
            effects
        })
    }

    fn collect<'a>(&'a self, graph: &'a Graph, depth: usize, all: &mut Vec<(&'a Node, &'a Work)>) {
        for (_, node) in graph.live() {
            if self.disabled.contains(&node.handle) {
                continue;
            }
            let changed = self.changed.get(&node.handle);
            let work = changed.map_or(&node.work, |(work, _)| work);
            if let Work::Child(child) = work
                && depth > 0
            {
                self.collect(child, depth - 1, all);
            }
            all.push((node, work));
        }
    }

    /// The call that gave a node the parameters that it has in this executable graph.
    pub fn set_by(&self, node: &Node) -> Site {
        let changed = self.changed.get(&node.handle);
        changed.map_or(node.set, |(_, site)| *site)
    }

    /// The addresses that its nodes allocate and none of them frees.
    pub fn unfreed(&self) -> Vec<u64> {
        let active = self.active();
        // After a free, a later node may allocate the same address: a free ends one allocation.
        let mut frees: FxHashMap<u64, usize> = FxHashMap::default();
        for (_, work) in &active {
            if let Work::Free { address } = work {
                *frees.entry(*address).or_default() += 1;
            }
        }
        let allocations = active.iter().filter_map(|(_, work)| match work {
            Work::Allocation { address, .. } => Some(*address),
            _ => None,
        });
        let mut is_unfreed = |address: &u64| match frees.get_mut(address) {
            Some(count) if *count > 0 => {
                *count -= 1;
                false
            }
            _ => true,
        };
        allocations.filter(|address| is_unfreed(address)).collect()
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
}

/// All graphs, by handle.
#[derive(Clone, Debug, Default)]
pub struct Graphs {
    pub(super) graphs: FxHashMap<u64, Arc<Graph>>,
    /// By handle of the node: graph and index.
    pub(super) nodes: FxHashMap<u64, (u64, usize)>,
    pub(super) execs: FxHashMap<u64, Exec>,
    pub(super) memory: IntervalMap<GraphMemory>,
    pub(super) users: UserObjects,
    /// Handles for conditional nodes, by graph: created, and given to a node.
    pub(super) conditions: FxHashMap<u64, (usize, usize)>,
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

    /// The addresses of the memory of a graph that holds this one.
    pub fn memory_around(&self, address: u64) -> Option<Range<u64>> {
        Some(self.memory.find(address)?.0)
    }

    /// Whether there are executable graphs.
    pub(crate) fn any_execs(&self) -> bool {
        !self.execs.is_empty()
    }

    /// Graphs may have been launched and uploaded by calls that no trace shows: memory that their
    /// nodes allocate may be in use.
    pub(crate) fn forget_launches(&mut self) {
        for exec in self.execs.values_mut() {
            exec.is_uploaded = true;
        }
        let starts: Vec<u64> = self.memory.iter().map(|(range, _)| range.start).collect();
        for start in starts {
            if let Some(memory) = self.memory.get_mut(start) {
                (memory.is_live, memory.launched) = (true, None);
            }
        }
    }

    /// References to a user object.
    pub fn user_object(&self, handle: u64) -> Option<&UserObjectState> {
        self.users.get(handle)
    }

    /// The first user object to which a graph has the last references.
    pub fn user_object_of(&self, graph: u64) -> Option<&UserObjectState> {
        self.users.ends_with(graph)
    }

    /// How many handles for conditional nodes a graph has that no node was given.
    pub fn unused_conditions(&self, graph: u64) -> usize {
        let (created, used) = self.conditions.get(&graph).copied().unwrap_or_default();
        created.saturating_sub(used)
    }
}
