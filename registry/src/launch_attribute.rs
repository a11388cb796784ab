//! The attributes of `cuLaunchKernelEx`, streams and kernel nodes: what their numbers mean and what
//! each may be set on.
#![allow(missing_docs)]

/// An attribute by its number in `CUlaunchAttributeID`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum LaunchAttribute {
    Ignore = 0,
    AccessPolicyWindow = 1,
    Cooperative = 2,
    SynchronizationPolicy = 3,
    ClusterDimension = 4,
    ClusterSchedulingPolicy = 5,
    ProgrammaticSerialization = 6,
    ProgrammaticEvent = 7,
    Priority = 8,
    MemSyncDomainMap = 9,
    MemSyncDomain = 10,
    PreferredClusterDimension = 11,
    CompletionEvent = 12,
    DeviceUpdatableNode = 13,
    SharedMemoryCarveout = 14,
    NvlinkUtilCentricScheduling = 16,
}

/// What an attribute is set on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttributeTarget {
    Launch,
    Stream,
    Node,
}

impl AttributeTarget {
    /// For messages: "a launch".
    pub const fn name(self) -> &'static str {
        match self {
            Self::Launch => "a launch",
            Self::Stream => "a stream",
            Self::Node => "a kernel node",
        }
    }
}

impl LaunchAttribute {
    /// The attribute of that number; `None` for those of later drivers.
    pub const fn of(number: u32) -> Option<Self> {
        Some(match number {
            0 => Self::Ignore,
            1 => Self::AccessPolicyWindow,
            2 => Self::Cooperative,
            3 => Self::SynchronizationPolicy,
            4 => Self::ClusterDimension,
            5 => Self::ClusterSchedulingPolicy,
            6 => Self::ProgrammaticSerialization,
            7 => Self::ProgrammaticEvent,
            8 => Self::Priority,
            9 => Self::MemSyncDomainMap,
            10 => Self::MemSyncDomain,
            11 => Self::PreferredClusterDimension,
            12 => Self::CompletionEvent,
            13 => Self::DeviceUpdatableNode,
            14 => Self::SharedMemoryCarveout,
            16 => Self::NvlinkUtilCentricScheduling,
            _ => return None,
        })
    }

    /// Whether it may be set on that (cuda.h of CUDA 13.0: CUlaunchAttributeID).
    pub const fn is_valid_for(self, target: AttributeTarget) -> bool {
        use AttributeTarget::{Launch, Node, Stream};
        match self {
            Self::Ignore => true,
            Self::AccessPolicyWindow
            | Self::Priority
            | Self::MemSyncDomainMap
            | Self::MemSyncDomain
            | Self::NvlinkUtilCentricScheduling => matches!(target, Launch | Node | Stream),
            Self::Cooperative
            | Self::ClusterDimension
            | Self::ClusterSchedulingPolicy
            | Self::PreferredClusterDimension
            | Self::DeviceUpdatableNode => matches!(target, Launch | Node),
            Self::ProgrammaticSerialization
            | Self::ProgrammaticEvent
            | Self::CompletionEvent
            | Self::SharedMemoryCarveout => matches!(target, Launch),
            Self::SynchronizationPolicy => matches!(target, Stream),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_header() {
        let table = crate::enumeration("CUlaunchAttributeID").expect("the enum");
        for &(name, number) in table.values {
            let known = LaunchAttribute::of(number as u32);
            assert_eq!(known.is_some(), !name.ends_with("_MAX"), "{name}");
            if let Some(known) = known {
                assert_eq!(known as i64, number, "{name}");
            }
        }
    }
}
