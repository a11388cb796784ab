//! Device memory that is looked at in pages.

use crate::observation::memory::Region;

/// Memory that is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Area {
    pub(crate) recorded: u64,
    pub(crate) live: u64,
    pub(crate) length: u64,
    /// Index of the call that made it.
    pub(crate) made: u64,
}

/// Where an area's pages are in the table of a live context.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    pub(crate) context: u64,
    pub(crate) at: u64,
}

impl Area {
    /// As memory that can be read.
    pub(crate) fn region(&self) -> Region {
        Region::mapped((self.recorded, self.live), self.length, self.made)
    }
}
