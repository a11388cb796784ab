//! What to try, and what came of it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::rerun::outputs::Mismatch;
use crate::rerun::replacement::Replacement;

/// A launch shape: blocks in x, y, z, then threads of a block in x, y, z.
pub type Shape = [u32; 6];

/// What to change, by the indices of calls, and how to measure it.
#[derive(Clone, Debug, Default)]
pub struct WhatIf {
    /// Waits of the host that are left out.
    pub drop_sync: BTreeSet<u64>,
    /// Copies that use page-locked host memory.
    pub pin_memory: BTreeSet<u64>,
    /// Work that runs beside other work if nothing but their stream orders them.
    pub overlap: BTreeSet<u64>,
    /// Copies that are joined with their neighbours.
    pub batch_copies: BTreeSet<u64>,
    /// Work that graphs launch.
    pub graph: BTreeSet<u64>,
    /// Kernels to launch instead of recorded ones, by the index of the launch.
    pub replacements: HashMap<u64, Replacement>,
    /// Shapes of launches.
    pub shapes: BTreeMap<u64, Shape>,
    /// The time that the program took for itself before a call.
    pub pauses: HashMap<u64, Duration>,
    /// How often both are measured.
    pub rounds: u32,
}

/// One edit, and what it has changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied {
    /// As on the command line: `drop-sync`.
    pub edit: String,
    /// Calls that it has changed or left out.
    pub calls: u64,
    /// What it has made of them, for people: `4 waits left out`.
    pub what: String,
}

/// What came of an edit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tried {
    /// The edits, in the order in which they were applied.
    pub applied: Vec<Applied>,
    /// Why the edits are not possible here; nothing was measured then.
    pub refused: Option<String>,
    /// What the program would have to heed, which the trace cannot show.
    pub conditions: Vec<String>,
    /// From the first call to the end of all work, in nanoseconds, each round: as recorded.
    pub recorded_ns: Vec<f64>,
    /// The same, edited.
    pub edited_ns: Vec<f64>,
    /// How often the calls ran in each round.
    pub iterations: u64,
    /// Pieces of memory and copies to the host that were compared.
    pub compared: u64,
    /// Their bytes.
    pub compared_bytes: u64,
    /// Those that the recorded calls themselves fill with other bytes each time: not compared.
    pub unsteady: u64,
    /// Those that differ.
    pub differing: Vec<Other>,
}

/// Memory in which the edited calls leave other bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Other {
    /// The memory, or the copy.
    pub what: String,
    /// What differs there.
    pub mismatch: Mismatch,
}
