//! Graphs that run node by node: what their nodes are, and how one is prepared.

use cutape_registry::{Family, GraphOp, Kind};

use crate::objects::handles::Resolved;
use crate::observation::job::Moments;
use crate::observation::memory::Region;
use crate::observation::nodes::{Step, steps_of};
use crate::observation::observer::{GraphRun, Observer};
use crate::observation::texture::textures_of;
use crate::observation::variables::named_addresses;
use crate::observe::launch;
use crate::overrides::graph_node::live_node;
use crate::player::Job;

/// Lets a graph run node by node.
pub(super) fn prepare_graph(
    job: &Job<'_, '_>,
    observer: &mut Observer,
    moments: Moments,
    regions: Vec<Region>,
) -> Result<(), String> {
    let mut steps = match observer.execs.get(&job.call.argument(0)) {
        Some(Ok(steps)) => steps.clone(),
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
        regions,
        named: named_addresses(&job.ranges),
        context: launch::of_context(job),
    });
    Ok(())
}

/// Follows the nodes of executable graphs.
pub(super) fn follow_graphs(job: &Job<'_, '_>, observer: &mut Observer) {
    let Family::Graph(op) = job.function.family else {
        return;
    };
    let live = |recorded| match job.handles.resolve(Kind::Graph, recorded) {
        Resolved::Live(graph) => steps_of(&job.api, graph),
        _ => Err("the replay does not have the graph".into()),
    };
    let exec = job.call.argument(0);
    match op {
        GraphOp::Instantiate { .. } => {
            if let Some(exec) = job.call.out(0) {
                observer.execs.insert(exec, live(job.call.argument(1)));
            }
        }
        GraphOp::Update => {
            let mut updated = live(job.call.argument(1));
            // Nodes stay switched off (assumed).
            if let (Some(Ok(before)), Ok(updated)) = (observer.execs.get(&exec), &mut updated) {
                let is_off = |node| {
                    let mut before = before.iter();
                    before.any(|step| step.node == node && !step.is_enabled)
                };
                for step in updated {
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
            if let Some(Ok(steps)) = observer.execs.get_mut(&exec) {
                let mut steps = steps.iter_mut();
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
