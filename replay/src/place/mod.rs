//! Where recorded memory lies at replay.

pub(crate) mod absent;
pub(crate) mod address;
mod awaited_host_signals;
pub(crate) mod found;
pub(crate) mod graph_memory;
pub(crate) mod held_addresses;
pub(crate) mod host_memory;
pub(crate) mod host_signals;
pub(crate) mod in_flight;
pub(crate) mod late_writes;
pub(crate) mod launch_marks;
pub(crate) mod lent;
pub(crate) mod mapped;
mod marked_launches;
mod memory_contents;
pub(crate) mod natural;
pub(crate) mod placement;
pub(crate) mod private_memory;
mod put_parts;
mod put_shared;
pub(crate) mod shared_memory;
pub(crate) mod unavailable;
pub(crate) mod writer;
