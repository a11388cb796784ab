//! What launches are called.

use std::collections::{BTreeMap, BTreeSet};

use cutape_analyzer::decode::function_of;
use cutape_analyzer::demangle::{bare, demangle};
use cutape_format::{Call, Trace};
use cutape_history::{Facts, facts};
use cutape_model::{Scope, TraceState};
use cutape_registry::{Family, GraphOp};
use rustc_hash::FxHashMap;

use crate::compared::{Compared, Side};
use crate::launches::Judged;
use crate::report::LaunchFacts;

/// What is known of launches of both traces.
#[derive(Debug)]
pub(crate) struct Names {
    sides: [OfTrace; 2],
    /// Of addresses of A before calls.
    labels: BTreeMap<(Option<u64>, u64), String>,
}

#[derive(Debug, Default)]
struct OfTrace {
    facts: Facts,
    /// By call: which launch it is, and the kernel; `None` of a graph.
    launches: FxHashMap<u64, (u64, Option<Kernel>)>,
}

/// A kernel: the call that loaded its image, and its name there.
pub(crate) type Kernel = (u64, String);

impl Names {
    /// Those of launches that differ.
    pub(crate) fn of(compared: &Compared<'_>, judged: &Judged, varying: &BTreeSet<u64>) -> Self {
        let [a, b] = compared.traces;
        let differing = || judged.differing.iter();
        let calls_a = differing()
            .map(|launch| launch.calls.0)
            .chain(varying.iter().copied());
        let calls_b = differing().map(|launch| launch.calls.1);
        let sides = [
            of_trace(a, calls_a.collect()),
            of_trace(b, calls_b.collect()),
        ];
        let addresses = differing().flat_map(|launch| {
            let memory = launch.inputs.iter().chain(&launch.outputs);
            memory.map(|memory| (Some(launch.calls.0), memory.address))
        });
        let labels = sides[0].facts.label(a, addresses.collect());
        Self { sides, labels }
    }

    fn side(&self, side: Side) -> &OfTrace {
        let [a, b] = &self.sides;
        match side {
            Side::A => a,
            Side::B => b,
        }
    }

    /// The facts of a launch, or of a node with that kernel.
    pub(crate) fn facts(&self, side: Side, call: u64, node: Option<(u32, &str)>) -> LaunchFacts {
        let of_trace = self.side(side);
        let mut facts = of_trace.facts.of(call);
        if let Some((_, kernel)) = node {
            facts.kernel = Some(shown(kernel));
        }
        LaunchFacts {
            call,
            launch: of_trace.launches.get(&call).map_or(0, |launch| launch.0),
            node: node.map(|(node, _)| node),
            facts,
        }
    }

    /// The kernel that a call of A launches; `None` of a graph.
    pub(crate) fn kernel(&self, call: u64) -> Option<&Kernel> {
        self.side(Side::A).launches.get(&call)?.1.as_ref()
    }

    /// Its name in the source, or the function that launches a graph.
    pub(crate) fn shown_kernel(&self, call: u64) -> String {
        match self.kernel(call) {
            Some((_, kernel)) => shown(kernel),
            None => self.side(Side::A).facts.of(call).function,
        }
    }

    /// What memory of A an address is in before a call.
    pub(crate) fn label(&self, call: u64, address: u64) -> Option<&str> {
        self.labels.get(&(Some(call), address)).map(String::as_str)
    }
}

fn shown(kernel: &str) -> String {
    bare(&demangle(kernel)).to_owned()
}

fn kernel_of(state: &mut TraceState, call: &Call<'_>) -> Option<Kernel> {
    let name = state.launched_kernel(call)?.to_owned();
    let function = state.launched_handle(call)?;
    let loaded = state.state.objects.loaded_by(function);
    Some((loaded.unwrap_or(u64::MAX), name))
}

fn of_trace(trace: &Trace, wanted: BTreeSet<u64>) -> OfTrace {
    let mut state = TraceState::new(Scope::Kernels);
    let (mut number, mut launches) = (0, FxHashMap::default());
    let last = wanted.last().copied();
    for call in trace.calls().take_while(|call| Some(call.index) <= last) {
        state.observe(&call);
        let family = function_of(call.signature).map(|known| known.family);
        if !matches!(
            family,
            Some(Family::Launch(_) | Family::Graph(GraphOp::Launch))
        ) {
            continue;
        }
        if wanted.contains(&call.index) {
            launches.insert(call.index, (number, kernel_of(&mut state, &call)));
        }
        number += 1;
    }
    OfTrace {
        facts: facts(trace, wanted),
        launches,
    }
}
