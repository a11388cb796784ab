//! The state of an observation between calls.

use std::collections::{BTreeMap, HashSet};
use std::io;

use rustc_hash::FxHashMap;

use crate::error::Error;
use crate::observe::job::{Moments, Observation, ObservedCall, ObservedLaunch};
use crate::observe::memory::Region;
use crate::observe::nodes::NodeStep;
use crate::observe::pages::Pages;
use crate::observe::places::{FirstSeen, Places};
use crate::place::mapped::Mapped;

/// Observes calls of a replay.
#[derive(Debug)]
pub(crate) struct Observer {
    pub(super) job: Observation,
    pub(super) pages: Pages,
    pub(super) mapped: Mapped,
    /// The call in progress.
    pub(super) pending: Option<Pending>,
    pub(super) done: Vec<ObservedCall>,
    /// By the call that loaded a module: hashes of its variables, before the first launch of one
    /// of its kernels.
    pub(super) first_seen: FirstSeen,
    /// By the call that loaded a module: its variables.
    pub(super) variables: FxHashMap<u64, Vec<Region>>,
    /// By the call that loaded a module: the recorded handle of one of its kernels that was
    /// launched.
    pub(super) launched: BTreeMap<u64, u64>,
    /// By live function or kernel that was launched: the call that loaded its module.
    pub(super) functions: FxHashMap<u64, u64>,
    /// By recorded executable graph: its nodes, or why they cannot run one by one.
    pub(super) execs: FxHashMap<u64, Result<Vec<NodeStep>, String>>,
    /// The last call whose change of a node of an executable graph is in `execs`.
    pub(super) followed: Option<u64>,
    /// The graph that the call in progress launches.
    pub(super) graph: Option<GraphRun>,
    /// A stream may wait for a value in memory that a later call writes: waiting for it would not
    /// end.
    pub(super) waits_for_memory: bool,
    /// The observed call whose work did not end: later ones are not waited for.
    pub(super) endless: Option<u64>,
    /// Memory is read through it.
    pub(super) buffer: Vec<u8>,
}

/// A call that is observed, between before and after.
#[derive(Debug, Default)]
pub(super) struct Pending {
    pub(super) observed: ObservedCall,
    /// The memory behind the entries of `observed.memory`, in their order.
    pub(super) regions: Vec<Region>,
    /// Where the variables lie that the memory may name.
    pub(super) places: Places,
    pub(super) after: bool,
}

/// A graph that is about to be launched.
#[derive(Debug)]
pub(super) struct GraphRun {
    pub(super) call: u64,
    pub(super) moments: Moments,
    pub(super) steps: Vec<NodeStep>,
    /// All live memory, and the variables of modules.
    pub(super) regions: Vec<Region>,
    /// Addresses of variables that calls of the program can name.
    pub(super) named: HashSet<u64>,
    /// What launches in the current context have in common.
    pub(super) context: ObservedLaunch,
}

impl Observer {
    /// Creates the file of contents.
    pub(crate) fn new(job: Observation) -> Result<Self, Error> {
        let pages = Pages::create(&job.contents, job.most_bytes)
            .map_err(|error| cannot_write(&job, &error))?;
        Ok(Self {
            job,
            pages,
            mapped: Mapped::default(),
            pending: None,
            done: Vec::new(),
            first_seen: FxHashMap::default(),
            variables: FxHashMap::default(),
            launched: BTreeMap::new(),
            functions: FxHashMap::default(),
            execs: FxHashMap::default(),
            followed: None,
            graph: None,
            waits_for_memory: false,
            endless: None,
            buffer: Vec::new(),
        })
    }

    /// What was observed, with the bytes in the file.
    pub(crate) fn finish(mut self) -> Result<(Vec<ObservedCall>, u64), Error> {
        let finished = self.pages.finish();
        finished.map_err(|error| cannot_write(&self.job, &error))?;
        Ok((self.done, self.pages.length))
    }
}

fn cannot_write(job: &Observation, error: &io::Error) -> Error {
    Error::Contents {
        path: job.contents.clone(),
        why: error.to_string(),
    }
}
