//! Applies calls to graphs.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use cutape_format::Call;
use cutape_format::layout::field;
use cutape_registry::{Kind, NodeKind, Role, UserReferenceOp, layout};
use rustc_hash::{FxHashMap, FxHashSet};

use super::action::GraphAction;
use super::graph::{Graph, Node, Work};
use super::node;
use super::tables::{Exec, GraphMemory, Graphs, RANGES, Rejected, UPLOAD};
use crate::effects::{Effect, Effects};
use crate::site::Site;

/// CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE.
const DEVICE_UPDATABLE: u64 = 13;
/// CU_GRAPH_USER_OBJECT_MOVE.
const MOVE: u64 = 1;
const PARAMS_FLAGS: usize = layout::offset_of("CUDA_GRAPH_INSTANTIATE_PARAMS", "flags");

/// The handle that a call returned for a new object of that kind.
fn output(effects: &Effects, call: &Call<'_>, wanted: Kind) -> Option<u64> {
    let made = effects
        .objects
        .iter()
        .find_map(|(position, effect)| match effect {
            Effect::Create(kind, _) | Effect::Find(kind, _) if *kind == wanted => Some(*position),
            _ => None,
        });
    call.out(made?).filter(|&handle| handle != 0)
}

/// The handles in an array of graph nodes.
pub fn node_array(call: &Call<'_>, position: usize) -> Option<Vec<u64>> {
    if call.argument(position) == 0 {
        return Some(Vec::new());
    }
    let bytes = call.snapshot(position, field::POINTEE)?.bytes.inline()?;
    let words = bytes.as_chunks::<8>().0.iter();
    Some(words.map(|word| u64::from_le_bytes(*word)).collect())
}

/// Positions of the arrays of nodes that a function takes.
pub fn node_arrays(effects: &Effects) -> impl Iterator<Item = usize> {
    let params = effects.function.params.iter().enumerate();
    params.filter_map(|(position, param)| {
        matches!(param.role, Role::UseMany(Kind::GraphNode, _)).then_some(position)
    })
}

/// The flags of an instantiation.
pub fn instantiate_flags(effects: &Effects, call: &Call<'_>, params: Option<usize>) -> u64 {
    if let Some(position) = effects.at("flags") {
        return call.argument(position);
    }
    let bytes = params.and_then(|position| {
        let snapshot = call.snapshot(position, field::POINTEE)?;
        snapshot.bytes.inline()?.get(PARAMS_FLAGS..)?.first_chunk()
    });
    bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

impl Graphs {
    /// A capture ended and returned a graph: that of the handle `target`, to which it added, or a
    /// new one if that is 0.
    pub(crate) fn captured(&mut self, handle: u64, target: u64, captured: Graph) {
        let mut whole = match self.graphs.remove(&handle) {
            Some(earlier) if target == handle => Arc::unwrap_or_clone(earlier),
            // A graph whose creation was not seen.
            None if target != 0 => Graph::unknown(),
            _ => Graph::default(),
        };
        let shift = whole.nodes.len();
        whole.whole &= captured.whole;
        whole
            .nodes
            .extend(captured.nodes.into_iter().map(|mut node| {
                node.before.iter_mut().for_each(|before| *before += shift);
                node
            }));
        self.graphs.insert(handle, Arc::new(whole));
    }

    /// A successful call.
    pub(crate) fn apply(&mut self, effects: &Effects, call: &Call<'_>) {
        let site = effects.site(call);
        let graph = effects.handle_of(call, Kind::Graph).unwrap_or(0);
        let exec = effects.handle_of(call, Kind::GraphExec).unwrap_or(0);
        let node = effects.handle_of(call, Kind::GraphNode).unwrap_or(0);
        match effects.graph {
            GraphAction::None => {}
            GraphAction::Create => {
                if let Some(handle) = output(effects, call, Kind::Graph) {
                    self.graphs.insert(handle, Arc::default());
                }
            }
            GraphAction::Clone => {
                if let Some(handle) = output(effects, call, Kind::Graph) {
                    self.graphs.insert(handle, self.copy_of(graph));
                }
            }
            GraphAction::Destroy => self.destroyed(graph),
            GraphAction::AddNode(position, kind) => {
                let work = self.described(effects, call, (position, kind));
                self.add_node(effects, call, graph, work);
            }
            GraphAction::AddPlainNode => {
                let work = node::plain(effects, call, &|handle| self.copy_of(handle));
                self.add_node(effects, call, graph, work);
            }
            GraphAction::DestroyNode => self.destroyed_node(node),
            GraphAction::SetNode(position, kind) => {
                let work = self.described(effects, call, (position, kind));
                match self.node_mut(node) {
                    Some(node) => (node.work, node.set) = (work, site),
                    None => self.changed_somewhere(),
                }
            }
            GraphAction::SetKernelAttribute => self.set_attribute(effects, call, node),
            GraphAction::SetExecNode(position, kind) => {
                let work = self.described(effects, call, (position, kind));
                self.set_exec_node(exec, node, (work, site), kind);
            }
            GraphAction::SetOther => {
                if let Some(exec) = self.execs.get_mut(&exec) {
                    exec.rejected = None;
                }
            }
            GraphAction::SetEnabled => {
                let is_enabled = effects.at("isEnabled").map_or(1, |at| call.argument(at));
                if let Some(exec) = self.execs.get_mut(&exec) {
                    exec.whole &= exec.graph.nodes.iter().any(|known| known.handle == node);
                    match is_enabled {
                        0 => exec.disabled.insert(node),
                        _ => exec.disabled.remove(&node),
                    };
                    exec.is_changed();
                }
            }
            GraphAction::AddEdges | GraphAction::RemoveEdges => self.edges(effects, call, graph),
            GraphAction::Instantiate(params) => {
                let Some(handle) = output(effects, call, Kind::GraphExec) else {
                    return;
                };
                let flags = instantiate_flags(effects, call, params);
                self.instantiated(handle, graph, flags);
            }
            GraphAction::Update => self.updated(exec, graph),
            GraphAction::DestroyExec => {
                self.execs.remove(&exec);
            }
            GraphAction::Upload => {
                if let Some(exec) = self.execs.get_mut(&exec) {
                    exec.is_uploaded = true;
                }
            }
            GraphAction::Launch => self.launched(exec, site),
            GraphAction::Condition => {
                self.conditions.entry(graph).or_default().0 += 1;
            }
            // They are about captures in progress.
            GraphAction::EndCapture | GraphAction::SetCaptureDependencies => {}
            GraphAction::Free => self.freed(call.argument(0), site),
            GraphAction::CreateUserObject => {
                let count = effects.at("initialRefcount");
                let count = count.map_or(1, |at| call.argument(at) & 0xffff_ffff);
                if let Some(handle) = output(effects, call, Kind::UserObject) {
                    self.users.create(handle, site, count);
                }
            }
            GraphAction::UserReferences(operation) => {
                self.user_references(effects, call, graph, operation);
            }
        }
    }

    /// The work of a node that a struct describes.
    fn described(&self, effects: &Effects, call: &Call<'_>, node: (usize, NodeKind)) -> Work {
        node::described(effects, call, node, &|handle| self.copy_of(handle))
    }

    fn destroyed_node(&mut self, node: u64) {
        if let Some((graph, index)) = self.nodes.remove(&node)
            && let Some(graph) = self.graphs.get_mut(&graph)
        {
            let graph = Arc::make_mut(graph);
            if let Some(node) = graph.nodes.get_mut(index) {
                node.is_removed = true;
                node.before.clear();
            }
            for other in &mut graph.nodes {
                other.before.retain(|&before| before != index);
            }
        }
    }

    /// An executable graph was updated from a graph.
    fn updated(&mut self, exec: u64, graph: u64) {
        let graph_now = self.graphs.get(&graph).cloned();
        if let Some(exec) = self.execs.get_mut(&exec) {
            exec.whole = graph_now.as_ref().is_some_and(|graph| graph.whole);
            exec.graph = graph_now.unwrap_or_else(|| Arc::new(Graph::unknown()));
            exec.changed.clear();
            exec.disabled.clear();
            exec.is_changed();
        }
    }

    /// A call failed.
    pub(crate) fn failed(&mut self, effects: &Effects, call: &Call<'_>) {
        let source = match effects.graph {
            GraphAction::Update => effects.handle_of(call, Kind::Graph),
            GraphAction::SetExecNode(..) => effects.handle_of(call, Kind::GraphNode),
            _ => return,
        };
        let exec = effects.handle_of(call, Kind::GraphExec).unwrap_or(0);
        if let Some(exec) = self.execs.get_mut(&exec) {
            exec.rejected = Some(Rejected {
                site: effects.site(call),
                source: source.unwrap_or(0),
                is_whole: effects.graph == GraphAction::Update,
            });
        }
    }

    /// A copy of a graph: the same nodes, whose handles no call has shown.
    fn copy_of(&self, graph: u64) -> Arc<Graph> {
        let Some(original) = self.graphs.get(&graph) else {
            return Arc::new(Graph::unknown());
        };
        let mut copy = Graph::clone(original);
        copy.nodes.iter_mut().for_each(|node| node.handle = 0);
        Arc::new(copy)
    }

    fn node_mut(&mut self, handle: u64) -> Option<&mut Node> {
        let (graph, index) = self.nodes.get(&handle)?;
        let graph = Arc::make_mut(self.graphs.get_mut(graph)?);
        graph.nodes.get_mut(*index)
    }

    /// A call changed a node that is not known, so it may be of any graph with such nodes.
    fn changed_somewhere(&mut self) {
        for graph in self.graphs.values_mut() {
            if graph.whole && graph.nodes.iter().any(|node| node.handle == 0) {
                Arc::make_mut(graph).whole = false;
            }
        }
    }

    fn destroyed(&mut self, graph: u64) {
        if let Some(old) = self.graphs.remove(&graph) {
            for node in &old.nodes {
                if self.nodes.get(&node.handle).is_some_and(|at| at.0 == graph) {
                    self.nodes.remove(&node.handle);
                }
            }
        }
        self.conditions.remove(&graph);
        self.users.graph_destroyed(graph);
    }

    fn add_node(&mut self, effects: &Effects, call: &Call<'_>, graph: u64, work: Work) {
        let before = node_arrays(effects).next();
        let before = before.map_or(Some(Vec::new()), |at| node_array(call, at));
        let handle = output(effects, call, Kind::GraphNode).unwrap_or(0);
        let site = effects.site(call);
        let indices = before.map(|handles| {
            let places = handles.iter().map(|handle| self.nodes.get(handle));
            let places = places.map(|place| place.filter(|place| place.0 == graph));
            places
                .map(|place| place.map(|place| place.1))
                .collect::<Option<Vec<_>>>()
        });
        let indices = indices.flatten();
        let is_conditional = matches!(work, Work::Conditional);
        if let Work::Allocation { address, size } = work {
            self.allocates(address, size, site);
        }
        if is_conditional {
            self.conditions.entry(graph).or_default().1 += 1;
        }
        let Some(known) = self.graphs.get_mut(&graph) else {
            return;
        };
        let known = Arc::make_mut(known);
        known.whole &= indices.is_some() && !is_conditional && !matches!(work, Work::Unknown);
        if let Work::Child(child) = &work {
            known.whole &= child.whole;
        }
        if handle != 0 {
            self.nodes.insert(handle, (graph, known.nodes.len()));
        }
        known.nodes.push(Node {
            handle,
            site,
            set: site,
            work,
            before: indices.unwrap_or_default(),
            is_removed: false,
            is_device_updatable: false,
        });
    }

    fn set_attribute(&mut self, effects: &Effects, call: &Call<'_>, node: u64) {
        let argument = |name| effects.at(name).map(|at| call.argument(at));
        if argument("attr") != Some(DEVICE_UPDATABLE) {
            return;
        }
        let value = effects
            .at("value")
            .and_then(|at| call.snapshot(at, field::POINTEE));
        let first = value.and_then(|value| value.bytes.inline()?.first_chunk::<4>());
        let is_on = first.is_none_or(|word| *word != [0; 4]);
        if let Some(node) = self.node_mut(node) {
            node.is_device_updatable = is_on;
        }
    }

    fn set_exec_node(&mut self, exec: u64, node: u64, set: (Work, Site), kind: NodeKind) {
        let Some(exec) = self.execs.get_mut(&exec) else {
            return;
        };
        // A node whose handle was not seen may be any of those that were captured.
        exec.whole &= exec.graph.nodes.iter().any(|known| known.handle == node);
        exec.whole &= kind != NodeKind::Any || !matches!(set.0, Work::Unknown);
        exec.changed.insert(node, set);
        exec.is_changed();
    }

    fn edges(&mut self, effects: &Effects, call: &Call<'_>, graph: u64) {
        let arrays: Vec<_> = node_arrays(effects)
            .map(|at| node_array(call, at))
            .collect();
        let [Some(from), Some(to)] = arrays.as_slice() else {
            if let Some(known) = self.graphs.get_mut(&graph) {
                Arc::make_mut(known).whole = false;
            }
            return;
        };
        for (from, to) in from.iter().zip(to) {
            let (from, to) = (self.place(*from), self.place(*to));
            let Some(known) = self.graphs.get_mut(&graph) else {
                return;
            };
            let known = Arc::make_mut(known);
            let (Some((_, from)), Some((_, to))) = (from, to) else {
                known.whole = false;
                continue;
            };
            let Some(node) = known.nodes.get_mut(to) else {
                continue;
            };
            match effects.graph {
                GraphAction::RemoveEdges => node.before.retain(|&before| before != from),
                _ if !node.before.contains(&from) => node.before.push(from),
                _ => {}
            }
        }
    }

    fn instantiated(&mut self, handle: u64, graph: u64, flags: u64) {
        let source = self.graphs.get(&graph).cloned();
        let source = source.unwrap_or_else(|| Arc::new(Graph::unknown()));
        let exec = Exec {
            whole: source.whole,
            graph: source,
            source: graph,
            flags,
            changed: FxHashMap::default(),
            disabled: FxHashSet::default(),
            rejected: None,
            is_uploaded: flags & UPLOAD != 0,
            launched: None,
            checked: Cell::default(),
            effects: Cell::default(),
            accesses: RefCell::default(),
        };
        self.execs.insert(handle, exec);
    }

    fn launched(&mut self, handle: u64, site: Site) {
        let Some(exec) = self.execs.get_mut(&handle) else {
            return;
        };
        exec.launched = Some(site);
        if self.memory.is_empty() {
            return;
        }
        let Some(exec) = self.execs.get(&handle) else {
            return;
        };
        let unfreed: FxHashSet<u64> = exec.unfreed().into_iter().collect();
        let touched: Vec<u64> = exec
            .active()
            .into_iter()
            .filter_map(|(_, work)| match work {
                Work::Allocation { address, .. } | Work::Free { address } => Some(*address),
                _ => None,
            })
            .collect();
        for address in touched {
            let Some(memory) = self.memory.get_mut(address) else {
                continue;
            };
            memory.is_live = unfreed.contains(&address);
            memory.launched = Some(site);
            if !memory.is_live {
                memory.freed = Some(site);
            }
        }
    }

    /// Notes memory that a node allocates.
    pub(crate) fn allocates(&mut self, address: u64, size: u64, site: Site) {
        self.memory.remove_overlapping(address, size);
        if self.memory.len() >= RANGES {
            self.memory = Default::default();
        }
        let memory = GraphMemory {
            site,
            freed: None,
            launched: None,
            is_live: false,
        };
        self.memory.insert(address, size, memory);
    }

    /// A call outside of graphs freed memory.
    fn freed(&mut self, address: u64, site: Site) {
        if let Some(memory) = self.memory.get_mut(address) {
            (memory.is_live, memory.freed) = (false, Some(site));
        }
    }

    fn user_references(
        &mut self,
        effects: &Effects,
        call: &Call<'_>,
        graph: u64,
        operation: UserReferenceOp,
    ) {
        let argument = |name| effects.at(name).map(|at| call.argument(at) & 0xffff_ffff);
        let count = argument("count").unwrap_or(1);
        let site = effects.site(call);
        let handle = effects.handle_of(call, Kind::UserObject).unwrap_or(0);
        let Some(object) = self.users.get_mut(handle) else {
            return;
        };
        match operation {
            UserReferenceOp::Retain => object.own += count,
            UserReferenceOp::Release => object.own = object.own.saturating_sub(count),
            UserReferenceOp::RetainForGraph => {
                if argument("flags").unwrap_or(0) & MOVE != 0 {
                    object.own = object.own.saturating_sub(count);
                    object.moved = Some(site);
                }
                *object.graphs.entry(graph).or_default() += count;
            }
            UserReferenceOp::ReleaseOfGraph => {
                let held = object.graphs.entry(graph).or_default();
                *held = held.saturating_sub(count);
                if *held == 0 {
                    object.graphs.remove(&graph);
                }
            }
        }
    }
}

impl Exec {
    /// Its nodes or their parameters were changed.
    fn is_changed(&mut self) {
        self.rejected = None;
        self.is_uploaded = false;
        self.checked.set(None);
        self.effects.set(None);
        *self.accesses.get_mut() = None;
    }
}
