//! Graphs: nodes, copies, memory of allocation nodes, user objects.

use std::collections::{HashMap, HashSet};

use crate::call::answer::{Answer, invalid_if};
use crate::object::graph::{Dependency, Graph, Node};
use crate::object::memory::Allocation;
use crate::object::work::Work;
use crate::state::store::State;

impl State {
    /// Creates an empty graph.
    pub(crate) fn create_graph(&mut self, owner: Option<u64>) -> Answer<u64> {
        self.graphs.add(Graph {
            owner,
            ..Graph::default()
        })
    }

    /// Adds a node behind others of its graph: a foreign node or one given twice is INVALID_VALUE.
    pub(crate) fn add_node(
        &mut self,
        graph: u64,
        after: Vec<Dependency>,
        work: Work,
    ) -> Answer<u64> {
        self.graphs.find(graph)?;
        let mut seen = HashSet::new();
        for (node, _) in &after {
            let is_foreign = self.nodes.find(*node)?.graph != graph;
            invalid_if(is_foreign || !seen.insert(*node))?;
        }
        let handle = self.nodes.add(Node {
            graph,
            work,
            after,
            original: 0,
        })?;
        self.graphs.find_mut(graph)?.nodes.push(handle);
        Ok(handle)
    }

    /// Checks that all nodes belong to a graph.
    pub(crate) fn check_nodes(&self, graph: u64, nodes: &[Dependency]) -> Answer {
        for (node, _) in nodes {
            invalid_if(self.nodes.find(*node)?.graph != graph)?;
        }
        Ok(())
    }

    /// The nodes of a graph, each behind those it depends on; a cycle is INVALID_VALUE.
    pub(crate) fn in_order(&self, graph: u64) -> Answer<Vec<u64>> {
        let nodes = &self.graphs.find(graph)?.nodes;
        let mut done = HashSet::new();
        let mut order = Vec::with_capacity(nodes.len());
        while order.len() < nodes.len() {
            let before = order.len();
            for &handle in nodes {
                let after = &self.nodes[&handle].after;
                let is_ready = || after.iter().all(|(other, _)| done.contains(other));
                if !done.contains(&handle) && is_ready() {
                    done.insert(handle);
                    order.push(handle);
                }
            }
            invalid_if(order.len() == before)?;
        }
        Ok(order)
    }

    /// Copies a graph with everything in it.
    pub(crate) fn copy_graph(&mut self, graph: u64, owner: Option<u64>) -> Answer<u64> {
        let nodes = self.graphs.find(graph)?.nodes.clone();
        let copy = self.create_graph(owner)?;
        let mut copies = HashMap::new();
        for &handle in &nodes {
            let node = self.nodes.find(handle)?;
            let (work, after) = (node.work.clone(), node.after.clone());
            let twin = self.add_node(copy, Vec::new(), work)?;
            copies.insert(handle, (twin, after));
        }
        for (&handle, (twin, after)) in &copies {
            let after = after.iter().map(|(other, edge)| (copies[other].0, *edge));
            let after = after.collect();
            let node = self.nodes.find_mut(*twin)?;
            (node.after, node.original) = (after, handle);
            let inner = node.work.inner_graphs().into_iter();
            let inner = inner.map(|graph| self.copy_graph(graph, Some(*twin)));
            let inner = inner.collect::<Answer<_>>()?;
            self.nodes.find_mut(*twin)?.work.set_inner_graphs(inner);
        }
        let objects = self.graphs.find(graph)?.objects.clone();
        self.add_references(&objects);
        self.graphs.find_mut(copy)?.objects = objects;
        Ok(copy)
    }

    /// Removes a node from its graph, with the graphs in it.
    pub(crate) fn remove_node(&mut self, handle: u64) {
        let Some(node) = self.nodes.remove(handle) else {
            return;
        };
        if let Some(graph) = self.graphs.get_mut(&node.graph) {
            graph.nodes.retain(|&other| other != handle);
            for other in &graph.nodes {
                if let Some(other) = self.nodes.get_mut(other) {
                    other.after.retain(|(before, _)| *before != handle);
                }
            }
        }
        for inner in node.work.inner_graphs() {
            self.remove_graph(inner);
        }
    }

    /// Destroys a graph and everything in it.
    pub(crate) fn remove_graph(&mut self, handle: u64) {
        let Some(graph) = self.graphs.remove(handle) else {
            return;
        };
        for node in graph.nodes {
            self.remove_node(node);
        }
        self.drop_references(&graph.objects);
    }

    /// The address of memory of at least that size that a node frees before a node that comes after
    /// those, and that no node of the graph has allocated again. The driver gives it to the next
    /// allocation (driver 580.159.04, H200, 2026-11-23: NVIDIA's graphMemoryNodes).
    pub(crate) fn freed_before(&self, after: &[Dependency], size: u64) -> Option<u64> {
        let mut open: Vec<u64> = after.iter().map(|(node, _)| *node).collect();
        let mut seen = HashSet::new();
        while let Some(handle) = open.pop() {
            let Some(node) = self.nodes.get(&handle).filter(|_| seen.insert(handle)) else {
                continue;
            };
            open.extend(node.after.iter().map(|(before, _)| *before));
            let Work::Free(address) = node.work else {
                continue;
            };
            let works = self.graphs.get(&node.graph)?.nodes.iter();
            let works = works.filter_map(|node| Some(&self.nodes.get(node)?.work));
            let balance = works.fold(0_i32, |balance, work| match work {
                Work::Allocate(params) if params.dptr == address => balance + 1,
                Work::Free(freed) if *freed == address => balance - 1,
                _ => balance,
            });
            let memory = self.inactive.get(&address);
            if balance == 0 && memory.is_some_and(|memory| memory.size >= size) {
                return Some(address);
            }
        }
        None
    }

    /// Whether a graph has nodes that allocate or free, in inner graphs too.
    pub(crate) fn has_memory_nodes(&self, graph: u64) -> Answer<bool> {
        for node in &self.graphs.find(graph)?.nodes {
            let work = &self.nodes.find(*node)?.work;
            if work.is_memory() {
                return Ok(true);
            }
            for inner in work.inner_graphs() {
                if self.has_memory_nodes(inner)? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Whether an address lies in memory of graphs that is not allocated now.
    pub(crate) fn is_inactive(&self, address: u64) -> bool {
        let before = self.inactive.range(..=address).next_back();
        before.is_some_and(|(base, allocation)| address - base < allocation.size)
    }

    /// The memory of a launch in progress that an address lies in.
    pub(crate) fn in_launch(&self, address: u64) -> Option<(u64, &Allocation)> {
        let mut bases = self.in_launches.iter();
        bases.find_map(|base| {
            let memory = self.inactive.get(base)?;
            (*base..*base + memory.size)
                .contains(&address)
                .then_some((*base, memory))
        })
    }

    /// Takes memory of graphs out of use, but keeps its address; false for other memory.
    pub(crate) fn deactivate(&mut self, address: u64) -> bool {
        if !self.graph_addresses.contains(&address) {
            return false;
        }
        if let Some(allocation) = self.allocations.remove(&address) {
            self.inactive.insert(address, allocation);
        }
        true
    }

    /// Adds references to user objects for another holder.
    pub(crate) fn add_references(&mut self, objects: &HashMap<u64, u32>) {
        for (&object, &count) in objects {
            if let Ok(object) = self.user_objects.find_mut(object) {
                object.references += u64::from(count);
            }
        }
    }

    /// Drops references to user objects.
    pub(crate) fn drop_references(&mut self, objects: &HashMap<u64, u32>) {
        for (&handle, &count) in objects {
            let Ok(object) = self.user_objects.find_mut(handle) else {
                continue;
            };
            object.references = object.references.saturating_sub(u64::from(count));
            if object.references == 0 {
                self.destructors.push((object.destroy, object.data));
                self.user_objects.remove(handle);
            }
        }
    }
}
