//! Where recorded memory lies at replay.

pub(crate) mod address;
pub(crate) mod graph_memory;
pub(crate) mod natural;
pub(crate) mod placement;
