//! The kinds of memory that a program allocates.

use cutape_registry::{Family, Kind, MemoryOp};

use crate::objects::{Object, Origin};

/// A kind of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MemoryKind {
    /// Linear device memory.
    Device,
    /// Device memory that a stream-ordered pool gave out.
    Pool,
    /// `cuMemAllocManaged`.
    Managed,
    /// `cuMemCreate`.
    Physical,
    /// Page-locked host memory.
    PinnedHost,
}

impl MemoryKind {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Device,
        Self::Pool,
        Self::Managed,
        Self::Physical,
        Self::PinnedHost,
    ];

    /// The kind that an object is of, if the program allocated it.
    pub fn of<D>(object: &Object<D>) -> Option<Self> {
        if object.origin != Origin::Created {
            return None;
        }
        Self::allocated_by(object.kind, object.created.function)
    }

    /// The kind of memory that a function allocates as an object of that kind.
    pub fn allocated_by(kind: Kind, function: &str) -> Option<Self> {
        match kind {
            Kind::Memory => Some(
                match cutape_registry::function(function).map(|function| function.family) {
                    Some(Family::Memory(MemoryOp::AllocateManaged)) => Self::Managed,
                    Some(Family::Memory(MemoryOp::AllocateAsync)) => Self::Pool,
                    _ => Self::Device,
                },
            ),
            Kind::Allocation => Some(Self::Physical),
            Kind::HostMemory => Some(Self::PinnedHost),
            _ => None,
        }
    }

    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Pool => "pool",
            Self::Managed => "managed",
            Self::Physical => "physical",
            Self::PinnedHost => "pinned host",
        }
    }

    /// The name in data: `pinned-host`.
    pub fn key(self) -> &'static str {
        match self {
            Self::PinnedHost => "pinned-host",
            other => other.name(),
        }
    }
}
