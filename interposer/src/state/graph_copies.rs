//! Which host memory the copies of each executable graph read and write, and which events it records.
//! The driver is asked when a graph is instantiated, since its nodes may have been captured; updates
//! are followed.

use core::sync::atomic::{AtomicUsize, Ordering};
use std::collections::HashMap;

use cutape_driver::types::{CUDA_MEMCPY3D, CUgraphNodeType_enum};
use cutape_registry::id;

use crate::described_copy::host_sides;
use crate::driver;
use crate::file::rows::{Memory, Rows};
use crate::process::process_lock::ProcessLock;

/// Deeper graphs within graphs are ignored.
const DEEPEST: u32 = 16;
/// A graph with more nodes is ignored.
const MOST_NODES: u64 = 1 << 20;

/// One side of a copy that is in host memory.
#[derive(Clone, Copy)]
pub(crate) struct HostCopy {
    /// The node, of the graph that was instantiated or of one within it.
    pub(crate) node: u64,
    /// The node of the outermost graph that it is in.
    outermost: u64,
    pub(crate) rows: Rows,
    /// The copy reads it; else it writes it.
    pub(crate) is_source: bool,
    /// It is in the body of a conditional node: whether it runs is not known.
    pub(crate) is_conditional: bool,
    is_enabled: bool,
}

impl HostCopy {
    /// Of a node that is enabled, and in no other.
    fn of(node: u64) -> Self {
        Self {
            node,
            outermost: node,
            rows: Rows::flat(0, 0),
            is_source: false,
            is_conditional: false,
            is_enabled: true,
        }
    }
}

/// What an executable graph has of interest.
#[derive(Default)]
struct Contents {
    copies: Vec<HostCopy>,
    /// Events that it may record.
    events: Vec<u64>,
}

#[derive(Default)]
struct Graphs {
    /// By handle of the executable graph; only those that have some.
    contents: HashMap<u64, Contents>,
    /// The body graphs of conditional nodes.
    bodies: HashMap<u64, Vec<u64>>,
}

static GRAPHS: ProcessLock<Graphs> = ProcessLock::new();
/// How many executable graphs are known: while none is, launching takes no lock.
static KNOWN: AtomicUsize = AtomicUsize::new(0);

/// In a forked child: the parent's graphs are not this process's.
pub(crate) fn forget() {
    KNOWN.store(0, Ordering::Relaxed);
    GRAPHS.forget();
}

/// The copies of an executable graph that will run when it is launched.
pub(crate) fn of(exec: u64) -> Vec<HostCopy> {
    if KNOWN.load(Ordering::Acquire) == 0 {
        return Vec::new();
    }
    let graphs = GRAPHS.lock();
    graphs
        .contents
        .get(&exec)
        .map_or_else(Vec::new, |contents| {
            let enabled = contents.copies.iter().filter(|copy| copy.is_enabled);
            enabled.copied().collect()
        })
}

/// The events that a launch of an executable graph may record.
pub(crate) fn events(exec: u64) -> Vec<u64> {
    if KNOWN.load(Ordering::Acquire) == 0 {
        return Vec::new();
    }
    let graphs = GRAPHS.lock();
    let contents = graphs.contents.get(&exec);
    contents.map_or_else(Vec::new, |contents| contents.events.clone())
}

/// An executable graph may record that event from now on.
pub(crate) fn records(exec: u64, event: u64) {
    set(exec, |contents| contents.events.push(event));
}

/// A graph was instantiated.
pub(crate) fn instantiated(exec: u64, graph: u64) {
    let mut found = Contents::default();
    look_into(graph, None, false, 0, &mut found);
    set(exec, |contents| *contents = found);
}

/// An executable graph was given the parameters of another graph's nodes, which correspond in
/// order. Later calls still name the nodes of the first graph.
pub(crate) fn updated(exec: u64, graph: u64) {
    let mut found = Contents::default();
    look_into(graph, None, false, 0, &mut found);
    set(exec, |contents| {
        if contents.copies.len() == found.copies.len() {
            for (new, old) in found.copies.iter_mut().zip(&contents.copies) {
                (new.node, new.outermost) = (old.node, old.outermost);
                new.is_enabled = old.is_enabled;
            }
        }
        *contents = found;
    });
}

/// A copy of an executable graph was given new parameters, a `CUDA_MEMCPY3D` at that address.
pub(crate) fn node_changed(exec: u64, node: u64, description: u64) {
    let Some(sides) = host_sides(description) else {
        return;
    };
    set(exec, |Contents { copies, .. }| {
        let old = copies.iter().find(|old| old.node == node).copied();
        copies.retain(|old| old.node != node);
        let like = old.unwrap_or(HostCopy::of(node));
        copies.extend(with_sides(like, sides));
    });
}

/// The child graph of a node of an executable graph was replaced by one of the same form.
pub(crate) fn child_changed(exec: u64, node: u64, graph: u64) {
    let mut found = Contents::default();
    look_into(graph, Some(node), false, 1, &mut found);
    set(exec, |contents| {
        contents.copies.retain(|old| old.outermost != node);
        contents.copies.extend(found.copies);
        contents.events.extend(found.events);
    });
}

/// A node of an executable graph was switched on or off.
pub(crate) fn set_enabled(exec: u64, node: u64, is_enabled: bool) {
    if KNOWN.load(Ordering::Acquire) == 0 {
        return;
    }
    let mut graphs = GRAPHS.lock();
    let contents = graphs.contents.get_mut(&exec).into_iter();
    let copies = contents.flat_map(|contents| &mut contents.copies);
    for copy in copies.filter(|copy| copy.node == node) {
        copy.is_enabled = is_enabled;
    }
}

/// An executable graph was destroyed.
pub(crate) fn ended(exec: u64) {
    if KNOWN.load(Ordering::Acquire) != 0 {
        set(exec, |contents| *contents = Contents::default());
    }
}

/// A conditional node was given body graphs.
pub(crate) fn has_bodies(node: u64, graphs: Vec<u64>) {
    GRAPHS.lock().bodies.insert(node, graphs);
}

fn set(exec: u64, change: impl FnOnce(&mut Contents)) {
    let mut graphs = GRAPHS.lock();
    let mut contents = graphs.contents.remove(&exec).unwrap_or_default();
    change(&mut contents);
    if !contents.copies.is_empty() || !contents.events.is_empty() {
        graphs.contents.insert(exec, contents);
    }
    KNOWN.store(graphs.contents.len(), Ordering::Release);
}

fn with_sides(like: HostCopy, sides: [Option<Rows>; 2]) -> impl Iterator<Item = HostCopy> {
    let sides = sides.into_iter().zip([true, false]);
    sides.filter_map(move |(rows, is_source)| {
        let rows = rows?;
        (rows.length() > 0).then_some(HostCopy {
            rows,
            is_source,
            ..like
        })
    })
}

/// Collects the contents of a graph and of those within it.
fn look_into(
    graph: u64,
    outermost: Option<u64>,
    is_conditional: bool,
    depth: u32,
    found: &mut Contents,
) {
    if depth > DEEPEST {
        return;
    }
    for node in nodes_of(graph) {
        let Some(kind) = ask(id::cuGraphNodeGetType, node) else {
            continue;
        };
        let outermost = outermost.unwrap_or(node);
        match CUgraphNodeType_enum(kind) {
            CUgraphNodeType_enum::CU_GRAPH_NODE_TYPE_MEMCPY => {
                let copy: Option<CUDA_MEMCPY3D> = ask(id::cuGraphMemcpyNodeGetParams, node);
                if let Some(sides) = copy.and_then(|copy| host_sides((&raw const copy) as u64)) {
                    let like = HostCopy {
                        outermost,
                        is_conditional,
                        ..HostCopy::of(node)
                    };
                    found.copies.extend(with_sides(like, sides));
                }
            }
            CUgraphNodeType_enum::CU_GRAPH_NODE_TYPE_GRAPH => {
                if let Some(child) = ask(id::cuGraphChildGraphNodeGetGraph, node) {
                    look_into(child, Some(outermost), is_conditional, depth + 1, found);
                }
            }
            CUgraphNodeType_enum::CU_GRAPH_NODE_TYPE_EVENT_RECORD => {
                found
                    .events
                    .extend(ask::<u64>(id::cuGraphEventRecordNodeGetEvent, node));
            }
            CUgraphNodeType_enum::CU_GRAPH_NODE_TYPE_CONDITIONAL => {
                let bodies = GRAPHS.lock().bodies.get(&node).cloned().unwrap_or_default();
                for body in bodies {
                    look_into(body, Some(outermost), true, depth + 1, found);
                }
            }
            _ => {}
        }
    }
}

fn nodes_of(graph: u64) -> Vec<u64> {
    // SAFETY: it writes a size_t, and no array is given.
    let count: Option<u64> =
        unsafe { driver::ask(id::cuGraphGetNodes, |count| [graph, 0, count, 0]) };
    let Some(mut count @ 1..=MOST_NODES) = count else {
        return Vec::new();
    };
    let mut nodes = vec![0u64; count as usize];
    let place = (&raw mut count) as u64;
    let words = [graph, nodes.as_mut_ptr() as u64, place, 0];
    // SAFETY: the array holds `count` handles.
    if unsafe { driver::call(id::cuGraphGetNodes, words) } != Some(0) {
        return Vec::new();
    }
    nodes.truncate(count as usize);
    nodes
}

/// Calls `function(node, &answer)`.
fn ask<T: Default>(function: u16, node: u64) -> Option<T> {
    // SAFETY: the callers expect the type that the function writes; the node is alive, as its graph
    // was just used.
    unsafe { driver::ask(function, |answer| [node, answer, 0, 0]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy(node: u64, address: u64, is_source: bool) -> HostCopy {
        HostCopy {
            rows: Rows::flat(address, 16),
            is_source,
            ..HostCopy::of(node)
        }
    }

    /// Node and address of each copy.
    fn told(exec: u64) -> Vec<(u64, u64)> {
        let copies = of(exec);
        copies
            .iter()
            .map(|copy| (copy.node, copy.rows.address))
            .collect()
    }

    #[test]
    fn copies_follow_changes_of_their_graph() {
        let exec = 0x10;
        set(exec, |contents| {
            contents.copies = vec![copy(1, 0x100, true), copy(2, 0x200, false)];
        });
        assert_eq!(told(exec), [(1, 0x100), (2, 0x200)]);
        set_enabled(exec, 2, false);
        assert_eq!(told(exec), [(1, 0x100)]);
        set_enabled(exec, 2, true);
        let described = CUDA_MEMCPY3D {
            srcMemoryType: cutape_driver::types::CUmemorytype_enum::CU_MEMORYTYPE_HOST,
            srcHost: 0x300 as *const core::ffi::c_void,
            dstMemoryType: cutape_driver::types::CUmemorytype_enum::CU_MEMORYTYPE_HOST,
            dstHost: 0x400 as *mut core::ffi::c_void,
            WidthInBytes: 8,
            Height: 1,
            Depth: 1,
            ..CUDA_MEMCPY3D::default()
        };
        node_changed(exec, 1, (&raw const described) as u64);
        assert_eq!(told(exec), [(2, 0x200), (1, 0x300), (1, 0x400)]);
        assert_eq!(of(exec).iter().filter(|copy| copy.is_source).count(), 1);
        node_changed(exec, 1, 8);
        assert_eq!(told(exec).len(), 3, "what cannot be read changes nothing");
        records(exec, 0xe);
        assert_eq!(events(exec), [0xe]);
        ended(exec);
        assert!(told(exec).is_empty() && events(exec).is_empty());
    }
}
