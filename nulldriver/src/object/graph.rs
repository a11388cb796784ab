//! Graphs, nodes, executable graphs, user objects.

use std::collections::HashMap;

use crate::call::answer::{Answer, invalid_if};
use crate::call::argument::In;
use crate::object::queue::Ticket;
use crate::object::work::Work;

/// `CUgraphEdgeData`: ports and type; zeros are an ordinary dependency.
pub(crate) type Edge = [u8; 8];
/// A node that another one comes after, and the data of the edge between them.
pub(crate) type Dependency = (u64, Edge);

/// Most nodes, edges or references of one call.
pub(crate) const MAX_COUNT: usize = 1 << 20;

/// A node.
pub(crate) struct Node {
    pub(crate) graph: u64,
    pub(crate) work: Work,
    pub(crate) after: Vec<Dependency>,
    /// The node that it was copied from, if its graph is a copy.
    pub(crate) original: u64,
}

/// A graph.
#[derive(Default)]
pub(crate) struct Graph {
    /// In order of creation.
    pub(crate) nodes: Vec<u64>,
    /// The node that it is in; then it is not the program's.
    pub(crate) owner: Option<u64>,
    /// References to user objects.
    pub(crate) objects: HashMap<u64, u32>,
    /// Executable graphs that hold its memory nodes.
    pub(crate) instances: u32,
}

/// A node as it is executed.
#[derive(Clone)]
pub(crate) struct Step {
    /// The node that it was instantiated from.
    pub(crate) node: u64,
    pub(crate) work: Work,
    pub(crate) is_enabled: bool,
    /// The nodes of the same graph that it comes after.
    pub(crate) after: Vec<u64>,
    /// The graphs in it.
    pub(crate) inner: Vec<Vec<Step>>,
}

/// An executable graph.
pub(crate) struct Exec {
    pub(crate) flags: u64,
    pub(crate) steps: Vec<Step>,
    /// The graph that it was instantiated from, which may be destroyed.
    pub(crate) graph: u64,
    pub(crate) has_memory: bool,
    pub(crate) objects: HashMap<u64, u32>,
    /// The end of its last launch, which the next one comes after.
    pub(crate) last: Ticket,
}

/// A user object: references, destructor, and the destructor's argument.
pub(crate) struct UserObject {
    pub(crate) references: u64,
    pub(crate) destroy: u64,
    pub(crate) data: u64,
}

/// Reads dependencies and the data of their edges, which may be missing.
pub(crate) fn read_dependencies(
    nodes: In<u64>,
    data: In<Edge>,
    count: usize,
) -> Answer<Vec<Dependency>> {
    invalid_if(count > MAX_COUNT || count > 0 && nodes.is_null())?;
    let edge = |index| match data.is_null() {
        true => Ok(Edge::default()),
        false => data.get_at(index),
    };
    (0..count)
        .map(|index| Ok((nodes.get_at(index)?, edge(index)?)))
        .collect()
}
