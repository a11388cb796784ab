//! The device memory that a snapshot reads: what the process has allocated, and variables of
//! modules whose addresses it has asked for.

use std::collections::{BTreeMap, BTreeSet, HashSet};

/// Live memory, and the contexts in which work may run.
#[derive(Debug, Default)]
pub(super) struct Live {
    /// By address.
    ranges: BTreeMap<u64, Range>,
    /// Mapped physical memory of this process: bytes by address.
    mapped: BTreeMap<u64, u64>,
    /// Handles of physical memory that this process has created.
    physical: HashSet<u64>,
    pub(super) contexts: BTreeSet<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) length: u64,
    pub(super) context: u64,
    /// The module or library of a variable; else 0.
    pub(super) owner: u64,
}

impl Live {
    /// Memory by address.
    pub(super) fn all(&self) -> Vec<(u64, Range)> {
        let ranges = self.ranges.iter();
        ranges.map(|(&start, &range)| (start, range)).collect()
    }

    pub(super) fn insert(&mut self, start: u64, range: Range) {
        if start != 0 && range.length != 0 {
            self.ranges.insert(start, range);
        }
    }

    pub(super) fn remove(&mut self, start: u64) {
        self.ranges.remove(&start);
    }

    pub(super) fn end_owner(&mut self, owner: u64) {
        self.ranges.retain(|_, range| range.owner != owner);
    }

    pub(super) fn end_context(&mut self, context: u64) {
        self.contexts.remove(&context);
        self.ranges.retain(|_, range| range.context != context);
    }

    pub(super) fn created(&mut self, handle: u64) {
        self.physical.insert(handle);
    }

    /// A handle that may be that of memory which was released is now another process's memory.
    pub(super) fn imported(&mut self, handle: u64) {
        self.physical.remove(&handle);
    }

    pub(super) fn map(&mut self, start: u64, length: u64, handle: u64) {
        if self.physical.contains(&handle) {
            self.mapped.insert(start, length);
        }
    }

    /// The device of a context can access these addresses.
    pub(super) fn set_access(&mut self, start: u64, length: u64, context: u64) {
        let end = start.saturating_add(length);
        for (&start, &length) in self.mapped.range(start..end) {
            let owner = 0;
            self.ranges.entry(start).or_insert(Range {
                length,
                context,
                owner,
            });
        }
    }

    pub(super) fn unmap(&mut self, start: u64, length: u64) {
        let is_inside = |at: &u64| (start..start.saturating_add(length)).contains(at);
        self.mapped.retain(|at, _| !is_inside(at));
        self.ranges.retain(|at, _| !is_inside(at));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTEXT: u64 = 7;

    fn starts(live: &Live) -> Vec<(u64, u64)> {
        let all = live.all().into_iter();
        all.map(|(start, range)| (start, range.length)).collect()
    }

    fn range(length: u64, context: u64, owner: u64) -> Range {
        Range {
            length,
            context,
            owner,
        }
    }

    #[test]
    fn memory_lives_as_long_as_its_allocation_module_and_context() {
        let mut live = Live::default();
        live.insert(0, range(16, CONTEXT, 0));
        live.insert(0x1000, range(0, CONTEXT, 0));
        live.insert(0x2000, range(16, CONTEXT, 0));
        live.insert(0x3000, range(4, CONTEXT, 5));
        live.insert(0x4000, range(8, CONTEXT + 1, 0));
        assert_eq!(starts(&live), [(0x2000, 16), (0x3000, 4), (0x4000, 8)]);
        live.end_owner(5);
        live.remove(0x2000);
        live.end_context(CONTEXT + 1);
        assert_eq!(starts(&live), []);
    }

    #[test]
    fn mapped_memory_is_read_if_this_process_has_created_it_and_can_access_it() {
        let mut live = Live::default();
        let page = 2 << 20;
        live.created(5);
        live.created(6);
        live.imported(6);
        live.map(page, page, 5);
        live.map(2 * page, page, 6);
        assert_eq!(starts(&live), []);
        live.set_access(page, 2 * page, CONTEXT);
        assert_eq!(starts(&live), [(page, page)]);
        live.unmap(page, page);
        assert_eq!(starts(&live), []);
        live.set_access(page, page, CONTEXT);
        assert_eq!(starts(&live), [], "it is no longer mapped");
    }
}
