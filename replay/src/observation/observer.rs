//! The state of an observation between calls.

use std::collections::{BTreeMap, HashSet};
use std::io;

use cutape_format::Call;
use cutape_registry::NodeKind;
use rustc_hash::FxHashMap;

use crate::api::Api;
use crate::error::Error;
use crate::observation::hold::OrderedWork;
use crate::observation::job::{Moments, Observation, Observed, ObservedCall, ObservedLaunch};
use crate::observation::memory::{Reader, Region};
use crate::observation::nodes::{NodeStep, set_step};
use crate::observation::pages::Pages;
use crate::observation::places::{FirstSeen, Places};
use crate::observation::search::Searching;
use crate::observation::session::Served;
use crate::observation::watch::Watch;

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
    pub(crate) execs: FxHashMap<u64, Result<Vec<NodeStep>, String>>,
    /// The last call whose change of a node of an executable graph is in `execs`.
    pub(crate) followed: Option<u64>,
    /// The graph that the call in progress launches.
    pub(crate) graph: Option<GraphRun>,
    /// A stream may wait for a value in memory that a later call writes: waiting for it would not
    /// end.
    pub(crate) waits_for_memory: bool,
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

/// A graph that is about to be launched.
#[derive(Debug)]
pub(crate) struct GraphRun {
    pub(crate) call: u64,
    pub(crate) moments: Moments,
    pub(crate) steps: Vec<NodeStep>,
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
            followed: None,
            graph: None,
            waits_for_memory: false,
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
        if let Some(Ok(steps)) = self.execs.get_mut(&exec)
            && let Err(why) = set_step(api, steps, (node, kind), params)
        {
            self.execs.insert(exec, Err(why));
        }
        self.followed = Some(call.index);
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
