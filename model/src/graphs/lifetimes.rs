//! The lifetimes of the memory that the nodes of one graph allocate. The driver gives the address
//! of an allocation that a node frees to later allocation nodes of the same graph, so an address
//! alone does not say which allocation is meant: the edges do.

use super::graph::{Graph, Work};

/// An allocation node, and its free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeAllocation {
    /// The index of the node.
    pub node: usize,
    /// Where the memory is.
    pub address: u64,
    /// Bytes.
    pub size: u64,
    /// The index of the node that frees it.
    pub free: Option<usize>,
}

impl NodeAllocation {
    /// Whether an address lies in it.
    pub fn contains(&self, address: u64) -> bool {
        address >= self.address && address - self.address < self.size.max(1)
    }
}

impl Graph {
    /// The allocation nodes, each with the node that frees it.
    pub fn allocations(&self) -> Vec<NodeAllocation> {
        let allocations = self.live().filter_map(|(node, known)| match known.work {
            Work::Allocation { address, size } => Some(NodeAllocation {
                node,
                address,
                size,
                free: None,
            }),
            _ => None,
        });
        let mut allocations: Vec<_> = allocations.collect();
        for (free, node) in self.live() {
            let Work::Free { address } = node.work else {
                continue;
            };
            let is_freed = |known: &NodeAllocation| known.address == address;
            let freed = self.allocation_before(free, &allocations, is_freed);
            // Without a path, it is the one that was added last.
            let freed = freed.or_else(|| allocations.iter().rposition(is_freed));
            if let Some(freed) = freed.and_then(|at| allocations.get_mut(at)) {
                freed.free = Some(free);
            }
        }
        allocations
    }

    /// The position of the allocation that a node means by an address: of those that `is_meant`
    /// selects and that have a path to the node, the one that is nearest to it.
    pub fn allocation_before(
        &self,
        node: usize,
        allocations: &[NodeAllocation],
        is_meant: impl Fn(&NodeAllocation) -> bool,
    ) -> Option<usize> {
        let before = self.ancestors(node);
        let precedes = |earlier: usize, before: &[bool]| before.get(earlier) == Some(&true);
        let mut nearest: Option<(usize, usize)> = None;
        for (position, known) in allocations.iter().enumerate() {
            if is_meant(known)
                && precedes(known.node, &before)
                && nearest.is_none_or(|(_, last)| precedes(last, &self.ancestors(known.node)))
            {
                nearest = Some((position, known.node));
            }
        }
        nearest.map(|(position, _)| position)
    }
}
