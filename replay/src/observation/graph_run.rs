//! Runs an observed graph node by node, in place of its launch.

use crate::api::{Api, Code, result_name};
use crate::observation::job::{ObservedCall, ObservedLaunch, Reach, Writer};
use crate::observation::memory::{Reader, Region};
use crate::observation::nodes::{KernelNode, NodeStep, Step};
use crate::observation::observer::{GraphRun, Observer, Pending};
use crate::observation::read::{Reachable, read_after, read_before};
use crate::observation::texture::arrays_of;
use crate::observation::variables::{hashes_of, mark_as_loaded, variables_of};

impl Observer {
    /// True if a graph runs node by node in place of the call in progress.
    #[inline]
    pub(crate) fn has_graph(&self) -> bool {
        self.graph.is_some()
    }

    /// Runs the nodes, and observes the wanted ones; the result of the launch.
    pub(crate) fn run_graph(&mut self, api: &Api) -> Code {
        let Some(run) = self.graph.take() else {
            return 0;
        };
        let is_kernel = |step: &&NodeStep| matches!(step.step, Step::Kernel(_));
        let count = run.steps.iter().filter(is_kernel).count();
        let mut number = 0;
        for (place, step) in (0..).zip(&run.steps) {
            let NodeStep {
                is_enabled, step, ..
            } = step;
            let done = match step {
                Step::Kernel(node) => {
                    let is_wanted = self.wants_node(&run, number, count);
                    number += 1;
                    match (is_wanted, is_enabled) {
                        (true, true) => self.run_observed(api, &run, node, step, number - 1),
                        (false, true) => step.run(api),
                        (_, false) => {
                            self.refuse_disabled(&run, number - 1);
                            Ok(())
                        }
                    }
                }
                _ if *is_enabled => step.run(api),
                _ => Ok(()),
            };
            if let Err(code) = done {
                return code;
            }
            if !*is_enabled {
                continue;
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
        0
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
        step: &Step,
        number: usize,
    ) -> Result<(), Code> {
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
                return step.run(api);
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
        let done = step.run(api);
        let after = match done {
            Ok(()) => read_after(&mut reader, |_| true, &mut pending),
            Err(code) => Err(format!("it returned {}", result_name(code))),
        };
        pending.observed.refused = after.err();
        self.done.push(pending.observed);
        done
    }
}
