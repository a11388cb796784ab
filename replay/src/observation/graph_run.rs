//! Runs an observed graph node by node, in place of its launch, or lets it stop after each node.

use std::time::Duration;

use crate::api::{Api, Code, result_name};
use crate::observation::job::{ObservedCall, ObservedLaunch, Reach, Writer};
use crate::observation::memory::{Reader, Region};
use crate::observation::nodes::{KernelNode, NodeStep, Step};
use crate::observation::observer::{GraphRun, Observer, Pending};
use crate::observation::read::{Reachable, read_after, read_before};
use crate::observation::stops::{Reached, Stopped};
use crate::observation::texture::arrays_of;
use crate::observation::variables::{hashes_of, mark_as_loaded, variables_of};

/// Runs the next node, and waits for it: with a call, or lets the graph itself go on. A node that is
/// switched off does nothing.
fn run_next(
    api: &Api,
    stopped: &mut Option<Stopped>,
    (step, is_enabled): (&Step, bool),
    patience: Duration,
) -> Result<Reached, Code> {
    match stopped {
        Some(stopped) => stopped.go_on(api, patience),
        None if is_enabled => step.run(api).map(|()| Reached::Node),
        None => Ok(Reached::Node),
    }
}

impl Observer {
    /// True if a graph runs node by node in place of the call in progress.
    #[inline]
    pub(crate) fn has_graph(&self) -> bool {
        self.graph.is_some()
    }

    /// Runs the nodes of a live executable graph, and observes the wanted ones; the result of the
    /// launch. `stream` is the live stream that the program launches it on.
    pub(crate) fn run_graph(&mut self, api: &Api, exec: u64, stream: (u64, bool)) -> Code {
        let Some(run) = self.graph.take() else {
            return 0;
        };
        let stopped = run.stops.map(|stops| Stopped::new(api, stops, exec));
        let mut stopped = match stopped.transpose() {
            Ok(stopped) => stopped,
            Err(code) => return code,
        };
        let done = self.run_nodes(api, &run, &mut stopped);
        let finished = stopped.map_or(Ok(()), |stopped| stopped.finish(api, stream));
        done.and(finished).err().unwrap_or(0)
    }

    fn run_nodes(
        &mut self,
        api: &Api,
        run: &GraphRun,
        stopped: &mut Option<Stopped>,
    ) -> Result<(), Code> {
        let is_kernel = |step: &&NodeStep| matches!(step.step, Step::Kernel(_));
        let count = run.steps.iter().filter(is_kernel).count();
        let mut number = 0;
        for (place, step) in (0..).zip(&run.steps) {
            let NodeStep {
                is_enabled, step, ..
            } = step;
            let mut go_on = || run_next(api, stopped, (step, *is_enabled), run.patience);
            let reached = match step {
                Step::Kernel(node) => {
                    let is_wanted = self.wants_node(run, number, count);
                    number += 1;
                    if is_wanted && !is_enabled {
                        self.refuse_disabled(run, number - 1);
                    }
                    match is_wanted && *is_enabled {
                        true => self.run_observed(api, run, node, &mut go_on, number - 1),
                        false => go_on(),
                    }
                }
                _ => go_on(),
            };
            if reached? == Reached::Nothing {
                self.stop_looking(run, place, step);
                return Ok(());
            }
            if !*is_enabled {
                continue;
            }
            if let Step::InGraph(node) = *step {
                self.follow_memory(api, run.call, node);
            }
            let writer = || Writer::Node(place, step.describe());
            if self.searching.is_active(run.call) {
                let (searching, mut reader) = self.search_with(api);
                searching.look(&mut reader, run.call, &writer());
            }
            if self.watch.is_active() && self.watch.is_wanted(run.call) {
                let writer = writer();
                let has_changed = self.watch.look(api, run.call, &writer, false);
                if let Step::Kernel(node) = step
                    && has_changed
                {
                    self.watch.add_parameters(run.call, &writer, &node.launch);
                }
            }
        }
        Ok(())
    }

    /// The work of a graph does not end.
    fn stop_looking(&mut self, run: &GraphRun, place: u32, step: &Step) {
        let (call, what) = (run.call, step.describe());
        let seconds = run.patience.as_secs();
        self.endless = Some(call);
        self.watch.since.get_or_insert(call);
        self.watch.left_out.push(format!(
            "node {place} of the graph of call {call} ({what}) did not end in {seconds} s: it may wait for \
             what the CPU or a later call does"
        ));
    }

    /// Says so if the one node that is wanted does not run.
    fn refuse_disabled(&mut self, run: &GraphRun, number: usize) {
        if run.moments.node.is_some_and(|node| node as usize == number) {
            self.done.push(ObservedCall {
                call: run.call,
                node: run.moments.node,
                refused: Some("the node is switched off".into()),
                ..ObservedCall::default()
            });
        }
    }

    fn wants_node(&self, run: &GraphRun, number: usize, count: usize) -> bool {
        if run.moments.reach != Reach::Launch {
            return false;
        }
        if let Some(node) = run.moments.node {
            return node as usize == number;
        }
        // Evenly: the part of the count below this number grows.
        let most = self.job.most_nodes.unwrap_or(count).min(count);
        number * most / count != (number + 1) * most / count
    }

    fn run_observed(
        &mut self,
        api: &Api,
        run: &GraphRun,
        node: &KernelNode,
        go_on: &mut dyn FnMut() -> Result<Reached, Code>,
        number: usize,
    ) -> Result<Reached, Code> {
        let loaded = self.functions.get(&node.handle);
        let loaded = loaded
            .or_else(|| self.functions.get(&node.function))
            .copied();
        let attribute =
            |&(id, _): &(u32, i32)| Some((id, api.function_attribute(node.function, id).ok()?));
        let launch = ObservedLaunch {
            loaded,
            function_attributes: run
                .context
                .function_attributes
                .iter()
                .filter_map(attribute)
                .collect(),
            device: run.context.device.clone(),
            capability: run.context.capability,
            limits: run.context.limits.clone(),
            ..node.launch.clone()
        };
        let mut pending = Pending {
            observed: ObservedCall {
                call: run.call,
                node: Some(number as u32),
                launch: Some(launch),
                ..ObservedCall::default()
            },
            after: true,
            ..Pending::default()
        };
        let arrays = match &node.refused {
            Some(why) => Err(why.clone()),
            None => arrays_of(api, &node.launch.textures, self.job.longest),
        };
        let arrays = match arrays {
            Ok(arrays) => arrays,
            Err(why) => {
                pending.observed.refused = Some(why);
                self.done.push(pending.observed);
                return go_on();
            }
        };
        let mut variables = Vec::new();
        if let (Ok(module), Some(loaded)) = (api.module_of(node.function), loaded)
            && let Some(names) = self.job.variables.get(&loaded)
        {
            let left_out = &mut pending.observed.left_out;
            variables = variables_of(api, module, (names, loaded), left_out);
        }
        let is_other = |region: &&Region| {
            let mut variables = variables.iter();
            variables.all(|variable| variable.live != region.live)
        };
        let regions: Vec<Region> = run.regions.iter().filter(is_other).cloned().collect();
        let mut reader = Reader {
            api,
            pages: &mut self.pages,
            buffer: &mut self.buffer,
            position: None,
        };
        if let Some(loaded) = loaded
            && !self.first_seen.contains_key(&loaded)
        {
            let hashes = hashes_of(&mut reader, &variables);
            self.first_seen.insert(loaded, hashes);
        }
        let reachable = Reachable {
            regions: &regions,
            variables: &variables,
            arrays: &arrays,
            longest: self.job.longest,
        };
        read_before(&mut reader, &reachable, &mut pending, true);
        mark_as_loaded(&mut reader, &self.first_seen, &run.named, &mut pending);
        let done = go_on();
        let after = match done {
            Ok(Reached::Node) => read_after(&mut reader, |_| true, &mut pending),
            Ok(Reached::Nothing) => Err("its work did not end".into()),
            Err(code) => Err(format!("it returned {}", result_name(code))),
        };
        pending.observed.refused = after.err();
        self.done.push(pending.observed);
        done
    }
}
