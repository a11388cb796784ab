//! An address space in which fillers keep places taken.

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
        let text = std::fs::read_to_string("/proc/self/maps").ok()?;
        let below_stack = text.lines().take_while(|line| !line.ends_with("[stack]"));
        let range = |line: &str| {
            let (start, rest) = line.split_once('-')?;
            let (end, _) = rest.split_once(' ')?;
            let address = |text| u64::from_str_radix(text, 16).ok();
            Some((address(start)?, address(end)?))
        };
        let ranges = union(below_stack.map(range).collect::<Option<_>>()?);
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
