//! Which host memory of a rank other ranks have mapped, too.

use std::collections::BTreeMap;

use crate::place::address::Range;

/// Ranges that are parts of shared files.
#[derive(Debug, Default)]
pub(crate) struct SharedMemory {
    /// Positions of their files, by the call that registered the range.
    pub(crate) of_calls: BTreeMap<u64, Vec<usize>>,
    /// Pages that are mapped from files (first, behind the last).
    pub(crate) pages: Vec<(u64, u64)>,
}

impl SharedMemory {
    /// The files that a range is mapped from; empty for other memory.
    pub(crate) fn files_of(&self, range: &Range) -> &[usize] {
        let files = self.of_calls.get(&range.made);
        files.map_or(&[], Vec::as_slice)
    }
}
