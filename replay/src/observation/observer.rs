//! The state of an observation between calls.

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::time::Duration;

use cutape_format::Call;
use cutape_registry::NodeKind;
use rustc_hash::FxHashMap;

use crate::api::Api;
use crate::error::Error;
use crate::observation::hold::OrderedWork;
use crate::observation::job::{Moments, Observation, Observed, ObservedCall, ObservedLaunch};
use crate::observation::memory::{Reader, Region};
use crate::observation::nodes::{InGraph, NodeStep, Nodes, Step, set_step};
use crate::observation::pages::Pages;
use crate::observation::places::{FirstSeen, Places};
use crate::observation::search::Searching;
use crate::observation::session::Served;
use crate::observation::stops::Stops;
use crate::observation::watch::Watch;
use crate::place::address::Range;

/// Observes calls of a replay.
#[derive(Debug)]
pub(crate) struct Observer {
    pub(crate) job: Observation,
    pub(crate) pages: Pages,
    /// The call in progress.
    pub(crate) pending: Option<Pending>,
    pub(crate) done: Vec<ObservedCall>,
    /// By the call that loaded a module: hashes of its variables, before the first launch of one
    /// of its kernels.
    pub(crate) first_seen: FirstSeen,
    /// By the call that loaded a module: its variables.
    pub(crate) variables: FxHashMap<u64, Vec<Region>>,
    /// By the call that loaded a module: the recorded handle of one of its kernels that was
    /// launched.
    pub(crate) launched: BTreeMap<u64, u64>,
    /// By live function or kernel that was launched: the call that loaded its module.
    pub(crate) functions: FxHashMap<u64, u64>,
    /// By recorded executable graph: its nodes, or why they cannot run one by one.
    pub(crate) execs: FxHashMap<u64, Result<Nodes, String>>,
    /// The nodes of the graph that was instantiated last, or is about to be.
    pub(crate) instantiated: Result<Nodes, String>,
    /// The last call whose change of a node of an executable graph is in `execs`.
    pub(crate) followed: Option<u64>,
    /// By live address: memory that nodes allocate.
    pub(crate) graph_memory: FxHashMap<u64, GraphMemory>,
    /// The graph that the call in progress launches.
    pub(crate) graph: Option<GraphRun>,
    /// A stream may wait for a value in memory that a later call writes: waiting for it would not
    /// end.
    pub(crate) waits_for_memory: bool,
    /// No work of earlier calls that may write memory is in flight.
    pub(crate) is_idle: bool,
    /// The observed call whose work did not end: later ones are not waited for.
    pub(crate) endless: Option<u64>,
    /// Memory is read through it.
    pub(crate) buffer: Vec<u8>,
    /// Memory of which every change is wanted.
    pub(crate) watch: Watch,
    /// Numbers that are looked for.
    pub(crate) searching: Searching,
    /// The work that runs in a wanted order.
    pub(crate) ordered: OrderedWork,
    /// Who has the replay stop.
    pub(crate) session: Option<Served>,
}

/// A call that is observed, between before and after.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    pub(crate) observed: ObservedCall,
    /// The memory behind the entries of `observed.memory`, in their order.
    pub(crate) regions: Vec<Region>,
    /// Where the variables lie that the memory may name.
    pub(crate) places: Places,
    pub(crate) after: bool,
}

/// Memory that a node of a graph allocates. It can be read only while it is allocated: reading it
/// otherwise may end the context.
#[derive(Debug)]
pub(crate) struct GraphMemory {
    pub(crate) range: Range,
    pub(crate) is_allocated: bool,
}

/// A graph that is about to be launched.
#[derive(Debug)]
pub(crate) struct GraphRun {
    pub(crate) call: u64,
    pub(crate) moments: Moments,
    pub(crate) steps: Vec<NodeStep>,
    /// The graph itself runs, and stops after each of them.
    pub(crate) stops: Option<Stops>,
    /// How long a node may take.
    pub(crate) patience: Duration,
    /// All live memory, and the variables of modules.
    pub(crate) regions: Vec<Region>,
    /// Addresses of variables that calls of the program can name.
    pub(crate) named: HashSet<u64>,
    /// What launches in the current context have in common.
    pub(crate) context: ObservedLaunch,
}

impl Observer {
    /// Creates the file of contents, if one is wanted.
    pub(crate) fn new(job: Observation) -> Result<Self, Error> {
        let watch = Watch::new(&job.watched, job.most_changes, job.first_changes);
        let searching = Searching::new(job.search.clone());
        let pages = match job.contents.as_os_str().is_empty() {
            true => Pages::in_memory(),
            false => Pages::create(&job.contents, job.most_bytes),
        };
        let pages = pages.map_err(|error| cannot_write(&job, &error))?;
        Ok(Self {
            job,
            pages,
            pending: None,
            done: Vec::new(),
            first_seen: FxHashMap::default(),
            variables: FxHashMap::default(),
            launched: BTreeMap::new(),
            functions: FxHashMap::default(),
            execs: FxHashMap::default(),
            instantiated: Err(String::new()),
            followed: None,
            graph_memory: FxHashMap::default(),
            graph: None,
            waits_for_memory: false,
            is_idle: false,
            endless: None,
            buffer: Vec::new(),
            watch,
            searching,
            ordered: OrderedWork::default(),
            session: None,
        })
    }

    /// Whether memory is looked at after every call that may have changed it.
    #[inline]
    pub(crate) fn looks_for_changes(&self) -> bool {
        self.watch.is_active() || self.searching.is_wanted()
    }

    /// The search, and what it reads memory with.
    pub(crate) fn search_with<'a>(&'a mut self, api: &'a Api) -> (&'a mut Searching, Reader<'a>) {
        let reader = Reader {
            api,
            pages: &mut self.pages,
            buffer: &mut self.buffer,
            position: None,
        };
        (&mut self.searching, reader)
    }

    /// A node of an executable graph got other parameters, with live handles and addresses.
    pub(crate) fn set_exec_node(
        &mut self,
        api: &Api,
        call: &Call<'_>,
        (node, kind): (u64, NodeKind),
        params: &[u8],
    ) {
        let exec = call.argument(0);
        if let Some(Ok(nodes)) = self.execs.get_mut(&exec)
            && let Err(why) = set_step(api, &mut nodes.steps, (node, kind), params)
        {
            self.execs.insert(exec, Err(why));
        }
        self.followed = Some(call.index);
    }

    /// Whether some memory is that of a graph which no launch has allocated, or which has freed it.
    pub(crate) fn is_unallocated(&self, range: &Range) -> bool {
        let known = self.graph_memory.get(&range.live);
        known.is_some_and(|known| known.range.made == range.made && !known.is_allocated)
    }

    /// Whether an executable graph, by recorded handle, allocates watched memory.
    pub(crate) fn allocates_watched(&self, exec: u64) -> bool {
        let Some(Ok(nodes)) = self.execs.get(&exec) else {
            return false;
        };
        nodes.steps.iter().any(|step| match step.step {
            Step::InGraph(InGraph::Allocation(address)) => {
                let known = self.graph_memory.get(&address);
                let region = known.and_then(|known| Region::of(&known.range));
                region.is_some_and(|region| self.watch.is_in(&region))
            }
            _ => false,
        })
    }

    /// A node was reached that allocates or frees memory, in the launch by a call.
    pub(super) fn follow_memory(&mut self, api: &Api, call: u64, node: InGraph) {
        let (InGraph::Allocation(address) | InGraph::Free(address)) = node else {
            return;
        };
        let Some(known) = self.graph_memory.get_mut(&address) else {
            return;
        };
        known.is_allocated = matches!(node, InGraph::Allocation(_));
        let Some(region) = Region::of(&known.range) else {
            return;
        };
        if known.is_allocated {
            self.watch.begin(call, &region);
        } else {
            self.watch.end(call, &region);
            self.searching.end_memory(api, &region);
        }
    }

    /// What was observed, as far as an observer knows it.
    pub(crate) fn finish(mut self) -> Result<Observed, Error> {
        let finished = self.pages.finish();
        finished.map_err(|error| cannot_write(&self.job, &error))?;
        let (watched, mut not_watched) = self.watch.finish();
        let searched = self.searching.finish();
        not_watched.extend(searched.left_out);
        Ok(Observed {
            calls: self.done,
            bytes: self.pages.length,
            watched,
            not_watched,
            hits: searched.hits,
            written: searched.written,
            write_sets: searched.write_sets,
            not_ordered: self.ordered.failure,
            ..Observed::default()
        })
    }
}

fn cannot_write(job: &Observation, error: &io::Error) -> Error {
    Error::Contents {
        path: job.contents.clone(),
        why: error.to_string(),
    }
}
