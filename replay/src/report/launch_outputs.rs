//! What launches write, compared between replays: `replay --repeat`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What launches of kernels and graphs write, in several replays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchOutputs {
    /// How many replays digested it, each with the same bytes in new memory.
    pub replays: u32,
    /// Launches that were digested in all of them.
    pub launches: u64,
    /// Launches that were not digested, by reason.
    pub not_digested: BTreeMap<String, u64>,
    /// Launches behind which memory differs between the replays.
    pub differing: u64,
    /// The first of them.
    pub first_differing: Option<LaunchDifference>,
    /// Launches behind which memory differs from the recording, in each replay in the same way.
    /// Only of traces with digests at launches.
    pub not_reproduced: u64,
    /// The first of them.
    pub first_not_reproduced: Option<LaunchDifference>,
    /// Memory lay at different addresses in the replays, so that pointers in it differ, too.
    pub addresses_differ: bool,
    /// Why less was compared than asked for.
    pub problem: Option<String>,
}

/// A launch behind which memory differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchDifference {
    /// The launch.
    pub call: u64,
    /// Its exported name.
    pub function: String,
    /// The kernel's name in its image, if known.
    pub kernel: Option<String>,
    /// Where memory differs; at most [`LaunchDifference::RANGES_KEPT`]. Empty if replays that
    /// looked for it were equal.
    pub ranges: Vec<DifferingRange>,
    /// All such ranges.
    pub range_count: u64,
}

impl LaunchDifference {
    /// How many ranges are kept.
    pub const RANGES_KEPT: usize = 100;

    pub(crate) fn new(call: u64, function: String, mut ranges: Vec<DifferingRange>) -> Self {
        let range_count = ranges.len() as u64;
        ranges.truncate(Self::RANGES_KEPT);
        Self {
            call,
            function,
            kernel: None,
            ranges,
            range_count,
        }
    }
}

/// A part of device memory that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DifferingRange {
    /// The memory, and which call created it.
    pub memory: String,
    /// Where the part begins in it.
    pub offset: u64,
    /// Bytes. All of them are compared together, so some may be equal.
    pub length: u64,
}

/// What the launches of one replay write.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct LaunchValues {
    /// A number for each launch that was digested: call, and the number, which depends on all that
    /// was digested.
    pub values: Vec<(u64, u64)>,
    /// Launches that differ from the recording, in order, with the ranges of the first of them.
    pub differing: Vec<(u64, Vec<DifferingRange>)>,
    /// Launches that were not digested, by reason.
    pub not_digested: BTreeMap<String, u64>,
    /// The memory behind one launch.
    pub pieces: Vec<MemoryPieces>,
    /// With [`DigestedLaunches::BeforeAndAfter`](crate::DigestedLaunches::BeforeAndAfter): the
    /// memory of each launch, in the order of launches and addresses.
    #[serde(default)]
    pub memory: Vec<LaunchMemory>,
}

/// Device memory that a parameter of a launch points into, of long memory the part that follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchMemory {
    /// The launch.
    pub call: u64,
    /// The call that allocated or mapped the memory.
    pub made: u64,
    /// Where the part begins in it.
    pub offset: u64,
    /// Bytes of the part.
    pub length: u64,
    /// Its recorded address.
    pub address: u64,
    /// Its digest before the launch; `None` if that was not complete.
    pub before: Option<u64>,
    /// The same after it.
    pub after: Option<u64>,
}

/// Digests of the pieces of some memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryPieces {
    /// The memory, and which call created it.
    pub memory: String,
    /// Where the first piece begins in it.
    pub offset: u64,
    /// Bytes of all pieces.
    pub length: u64,
    /// Bytes of each piece but the last.
    pub piece: u64,
    /// `None` where the digest was not complete.
    pub digests: Vec<Option<u64>>,
}
