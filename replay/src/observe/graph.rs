//! Graphs that run node by node: what their nodes are, and how one is prepared.

use cutape_registry::{Family, GraphOp, Kind};

use crate::objects::handles::Resolved;
use crate::observation::job::Moments;
use crate::observation::memory::Region;
use crate::observation::nodes::{InGraph, Nodes, Step};
use crate::observation::observer::{GraphMemory, GraphRun, Observer};
use crate::observation::texture::textures_of;
use crate::observation::variables::named_addresses;
use crate::observe::launch;
use crate::observe::wait::patience;
use crate::overrides::graph_node::live_node;
use crate::place::address::{Found, Range};
use crate::player::Job;

/// Lets a graph run node by node.
pub(super) fn prepare_graph(
    job: &Job<'_, '_>,
    observer: &mut Observer,
    moments: Moments,
    regions: Vec<Region>,
) -> Result<(), String> {
    let Nodes { mut steps, stops } = match observer.execs.get(&job.call.argument(0)) {
        Some(Ok(nodes)) => nodes.clone(),
        Some(Err(why)) => return Err(why.clone()),
        None => return Err("the replay did not see how the graph was instantiated".into()),
    };
    for step in &mut steps {
        let Step::Kernel(node) = &mut step.step else {
            continue;
        };
        if !observer.functions.contains_key(&node.handle)
            && !observer.functions.contains_key(&node.function)
            && let Some(loaded) = job.handles.owner_of_live(node.handle)
        {
            observer.functions.insert(node.handle, loaded);
        }
        let launch = &mut node.launch;
        match textures_of(
            (&job.api, &job.ranges, &job.handles),
            &launch.parameters,
            &launch.layout,
        ) {
            Ok(textures) => launch.textures = textures,
            Err(why) => node.refused = Some(why),
        }
    }
    observer.graph = Some(GraphRun {
        call: job.call.index,
        moments,
        steps,
        stops,
        patience: patience(job),
        regions,
        named: named_addresses(&job.ranges),
        context: launch::of_context(job),
    });
    Ok(())
}

/// Before a graph is instantiated: asks what its nodes do.
pub(super) fn see_nodes(job: &Job<'_, '_>, observer: &mut Observer) {
    let Family::Graph(GraphOp::Instantiate { .. } | GraphOp::Update) = job.function.family else {
        return;
    };
    let may_stop = observer.looks_for_changes() || observer.session.is_some();
    observer.instantiated = match job.handles.resolve(Kind::Graph, job.call.argument(1)) {
        Resolved::Live(graph) => Nodes::of(&job.api, graph, may_stop),
        _ => Err("the replay does not have the graph".into()),
    };
}

/// Follows which memory of graphs is allocated, after a call.
pub(super) fn follow_memory(job: &mut Job<'_, '_>, observer: &mut Observer) {
    let is_node = matches!(job.function.family, Family::Graph(GraphOp::AddNode(_)));
    if is_node || job.current.is_captured && job.traits.places {
        let made = |range: &&Range| range.made == job.call.index;
        for range in job.ranges.all_live().filter(made) {
            let known = GraphMemory {
                range: range.clone(),
                is_allocated: false,
            };
            observer.graph_memory.insert(range.live, known);
        }
    }
    if job.function.family != Family::Graph(GraphOp::Launch) {
        return;
    }
    let Some(Ok(nodes)) = observer.execs.get(&job.call.argument(0)) else {
        return;
    };
    for step in &nodes.steps {
        let (address, is_allocated) = match step.step {
            Step::InGraph(InGraph::Allocation(address)) => (address, true),
            Step::InGraph(InGraph::Free(address)) => (address, false),
            _ => continue,
        };
        let Some(known) = observer.graph_memory.get_mut(&address) else {
            continue;
        };
        known.is_allocated = is_allocated;
        // No call returns its address a second time.
        if is_allocated && matches!(job.ranges.find(known.range.start), Found::Freed(_)) {
            job.ranges.insert(known.range.clone());
        }
    }
}

/// Follows the nodes of executable graphs.
pub(super) fn follow_graphs(job: &Job<'_, '_>, observer: &mut Observer) {
    let Family::Graph(op) = job.function.family else {
        return;
    };
    let exec = job.call.argument(0);
    match op {
        GraphOp::Instantiate { .. } => {
            if let Some(exec) = job.call.out(0) {
                let nodes = observer.instantiated.clone();
                observer.execs.insert(exec, nodes);
            }
        }
        GraphOp::Update => {
            let mut updated = observer.instantiated.clone();
            // Nodes stay switched off (assumed).
            if let (Some(Ok(before)), Ok(updated)) = (observer.execs.get(&exec), &mut updated) {
                let is_off = |node| {
                    let mut before = before.steps.iter();
                    before.any(|step| step.node == node && !step.is_enabled)
                };
                for step in &mut updated.steps {
                    step.is_enabled = !is_off(step.node);
                }
            }
            observer.execs.insert(exec, updated);
        }
        GraphOp::SetExecNode(_) if observer.followed == Some(job.call.index) => {}
        GraphOp::SetExecNode(_) => {
            let why = "a child graph or an operation in memory was changed after instantiation";
            observer.execs.insert(exec, Err(why.into()));
        }
        GraphOp::SetEnabled => {
            const ENABLED: usize = 2;
            let node = live_node(job);
            if let Some(Ok(nodes)) = observer.execs.get_mut(&exec) {
                let mut steps = nodes.steps.iter_mut();
                match steps.find(|step| Some(step.node) == node) {
                    Some(step) => step.is_enabled = job.call.argument(ENABLED) as u32 != 0,
                    None => {
                        let why = "a node that was switched on or off is not in its graph";
                        observer.execs.insert(exec, Err(why.into()));
                    }
                }
            }
        }
        _ => {}
    }
}
