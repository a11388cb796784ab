//! Tries a change of the program's calls: the repeated calls as recorded and edited, on the same
//! memory, in turns.
//!
//! Each edit has a file and changes the steps of an [`Edited`]. `hazards` says where the program
//! would need a wait that is left out, `trial` runs both, compares what they leave in memory and
//! copy to the host, and times them.

mod batch_copies;
mod drop_sync;
mod graph;
mod hazards;
mod host_side;
mod kernels;
mod launch_shape;
mod made;
mod overlap;
mod pin_memory;
mod trial;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::calls::steps::{Issued, Step};
use crate::player::Player;
use crate::player::current::Decoded;
use crate::rerun::Replacement;
use crate::rerun::outputs::Mismatch;

use host_side::HostSide;
use made::Made;
pub(super) use trial::run;

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

/// What is noted of the calls while they are played.
#[derive(Debug, Default)]
pub(super) struct Noted {
    /// The host memory of copies.
    pub host: BTreeMap<u64, HostSide>,
    /// Allocations that the parameters of a launch point into: recorded start and end.
    pub reached: BTreeMap<u64, Vec<(u64, u64)>>,
}

impl Noted {
    /// A call was played; `steps` has what the driver got for it.
    pub(super) fn note<'t>(&mut self, player: &Player<'t>, next: &Decoded<'t>, steps: &[Step]) {
        let own =
            |step: &&Step| matches!(step, Step::Call(issued) if issued.index == next.call.index);
        let Some(Step::Call(issued)) = steps.iter().rev().find(own) else {
            return;
        };
        if let Some(side) = HostSide::of(player, next, issued) {
            self.host.insert(issued.index, side);
        }
        overlap::note_reached(player, next, &mut self.reached);
    }
}

/// The steps, as far as they are edited.
#[derive(Debug)]
struct Edited {
    pub steps: Vec<Step>,
    /// The host memory of copies, by call.
    pub host: BTreeMap<u64, HostSide>,
    pub made: Made,
    pub conditions: Vec<String>,
    /// The steps before calls were joined: `hazards` looks at these.
    pub unjoined: Vec<Step>,
}

/// What an edit needs to know beside the steps.
#[derive(Clone, Copy)]
struct Known<'a, 't> {
    pub player: &'a Player<'t>,
    pub noted: &'a Noted,
}

/// Applies one edit; the error says why it is not possible.
type Apply = fn(&mut Edited, Known<'_, '_>, &WhatIf) -> Result<Applied, String>;

/// An edit, and whether it is asked for.
type Edit = (fn(&WhatIf) -> bool, Apply);

/// What replaces calls or leaves some out, in the order in which they are applied.
const EDITS: [Edit; 4] = [
    (|job| !job.replacements.is_empty(), kernels::apply),
    (|job| !job.shapes.is_empty(), launch_shape::apply),
    (|job| !job.drop_sync.is_empty(), drop_sync::apply),
    (|job| !job.pin_memory.is_empty(), pin_memory::apply),
];

/// What joins calls or orders them in another way, after that.
const JOINING: [Edit; 3] = [
    (|job| !job.batch_copies.is_empty(), batch_copies::apply),
    (|job| !job.overlap.is_empty(), overlap::apply),
    (|job| !job.graph.is_empty(), graph::apply),
];

impl Edited {
    fn new(steps: &[Step], host: &BTreeMap<u64, HostSide>) -> Self {
        Self {
            steps: steps.to_vec(),
            host: host.clone(),
            made: Made::default(),
            conditions: Vec::new(),
            unjoined: Vec::new(),
        }
    }

    /// Applies all edits that are asked for.
    fn apply(&mut self, known: Known<'_, '_>, job: &WhatIf) -> Result<Vec<Applied>, String> {
        let mut applied = Vec::new();
        for edits in [&EDITS[..], &JOINING[..]] {
            for (_, apply) in edits.iter().filter(|(is_wanted, _)| is_wanted(job)) {
                applied.push(apply(self, known, job)?);
            }
            if self.unjoined.is_empty() {
                self.unjoined = self.steps.clone();
            }
        }
        Ok(applied)
    }

    /// The calls of the steps, to be changed.
    fn calls_mut(&mut self) -> impl Iterator<Item = &mut Issued> {
        self.steps.iter_mut().filter_map(|step| match step {
            Step::Call(issued) => Some(issued),
            _ => None,
        })
    }
}
