//! Which allocations the parameters of launches point into.

use std::collections::HashMap;

use cutape_export::rows::{CallRow, MemoryRow, ObjectRef};
use cutape_format::layout::field;
use cutape_model::IntervalMap;
use cutape_registry::{Family, Role};

/// The allocations that live.
#[derive(Debug, Default)]
pub(crate) struct Areas {
    live: IntervalMap<()>,
    starts: HashMap<ObjectRef, u64>,
    /// What the last call has made.
    made: Option<u64>,
}

impl Areas {
    /// A call, before the rows about what it has made: the first bytes of the allocations that its
    /// launch uses.
    pub(crate) fn call(&mut self, row: &CallRow<'_>) -> Vec<u64> {
        let Some(function) = row.known else {
            return Vec::new();
        };
        let makes = |role| matches!(role, Role::Make(..));
        let made = function.params.iter().position(|param| makes(param.role));
        self.made = made.and_then(|position| row.record.out(position));
        if !matches!(function.family, Family::Launch(_)) {
            return Vec::new();
        }
        let snapshots = row.record.snapshots();
        let packed = snapshots.filter(|one| one.field == field::KERNEL_PARAMETERS);
        let bytes = packed.filter_map(|one| one.bytes.inline());
        // Pointers are aligned (CUDA C++ Programming Guide, kernel parameters).
        let words = bytes.flat_map(|bytes| bytes.chunks_exact(8));
        let addresses = words.filter_map(|word| word.try_into().ok().map(u64::from_le_bytes));
        let found = addresses.filter_map(|address| self.live.find(address));
        let mut areas: Vec<u64> = found.map(|(range, ())| range.start).collect();
        areas.sort_unstable();
        areas.dedup();
        areas
    }

    /// Memory is allocated or freed.
    pub(crate) fn memory(&mut self, row: &MemoryRow) {
        if row.is_free {
            let start = self.starts.remove(&row.object);
            start.and_then(|start| self.live.remove(start));
        } else if let Some(start) = self.made {
            self.live.remove_overlapping(start, row.bytes);
            self.live.insert(start, row.bytes, ());
            self.starts.insert(row.object, start);
        }
    }
}
