//! Where recorded memory lies at replay.

pub(crate) mod absent;
pub(crate) mod address;
pub(crate) mod address_space;
pub(crate) mod allocator;
pub(crate) mod arenas;
pub(crate) mod graph_memory;
pub(crate) mod held_addresses;
pub(crate) mod host_memory;
pub(crate) mod in_flight;
pub(crate) mod late_writes;
pub(crate) mod launch_marks;
pub(crate) mod lent;
pub(crate) mod lesson;
pub(crate) mod mapped;
pub(crate) mod mapping;
mod marked_launches;
mod memory_contents;
pub(crate) mod natural;
pub(crate) mod pages;
pub(crate) mod placement;
pub(crate) mod private_memory;
mod put_shared;
pub(crate) mod shared_memory;
pub(crate) mod slots;
pub(crate) mod strategy;
pub(crate) mod unavailable;
pub(crate) mod waiting_threads;
