//! An address space in which fillers keep places taken.

use cutape_maps::mappings;

use crate::process::mapping::{self, map_exactly};
use crate::process::slots::union;

/// Sorted and disjoint ranges: start, end.
pub(crate) type Ranges = Vec<(u64, u64)>;

/// What a process has mapped.
pub(crate) trait AddressSpace {
    /// What is mapped below the stack, and where the highest of it ends: the kernel places nothing
    /// above its first mapping, which is the loader's. `None` if it cannot be read.
    fn mapped(&self) -> Option<(Ranges, u64)>;

    /// Maps a range without memory behind it; false if something else is there.
    fn fill(&mut self, range: (u64, u64)) -> bool;

    /// Maps a range with zeroed memory; false if something else is there.
    fn provide(&mut self, range: (u64, u64)) -> bool;

    /// Unmaps what `fill` has mapped.
    fn unmap(&mut self, range: (u64, u64));
}

/// The address space of this process.
#[derive(Debug, Default)]
pub(crate) struct OwnSpace;

impl AddressSpace for OwnSpace {
    fn mapped(&self) -> Option<(Ranges, u64)> {
        let list = std::fs::read("/proc/self/maps").ok()?;
        let below_stack = mappings(&list).take_while(|mapping| !mapping.is_stack());
        let ranges = union(
            below_stack
                .map(|mapping| (mapping.start, mapping.end))
                .collect(),
        );
        let highest = ranges.last()?.1;
        Some((ranges, highest))
    }

    fn fill(&mut self, (start, end): (u64, u64)) -> bool {
        map_exactly(start, end, libc::PROT_NONE)
    }

    fn provide(&mut self, (start, end): (u64, u64)) -> bool {
        map_exactly(start, end, libc::PROT_READ | libc::PROT_WRITE)
    }

    fn unmap(&mut self, (start, end): (u64, u64)) {
        // SAFETY: mapped by `fill`, and nothing uses memory without access.
        unsafe { mapping::unmap(start, end) };
    }
}
