//! Which call proves the work of an earlier one complete.

use std::collections::VecDeque;

use cutape_format::Call;
use cutape_model::{Effects, Retention, State, function_of};
use cutape_registry::{Family, GraphOp};
use rustc_hash::FxHashMap;

/// Work in the order of its calls, and by which call each is known to be complete.
#[derive(Debug)]
pub(crate) struct Completion {
    state: State<()>,
    /// By signature number; `None` inside: the registry does not know it.
    plans: Vec<Option<Option<Plan>>>,
    /// By stream: the numbers of work that may still run, and its calls.
    pending: FxHashMap<u32, VecDeque<(u64, u64)>>,
    /// By call: the one after which its work is complete.
    done: FxHashMap<u64, u64>,
}

#[derive(Debug)]
struct Plan {
    effects: Effects,
    /// It may prove work complete.
    waits: bool,
}

impl Completion {
    pub(crate) fn new() -> Self {
        Self {
            state: State::new(Retention::PerHandle),
            plans: Vec::new(),
            pending: FxHashMap::default(),
            done: FxHashMap::default(),
        }
    }

    /// Takes every call, in order.
    pub(crate) fn observe(&mut self, call: &Call<'_>) {
        self.state.settle(call.ticks, call.thread);
        if !call.succeeded() {
            return;
        }
        let place = usize::from(call.signature.id);
        if self.plans.len() <= place {
            self.plans.resize_with(place + 1, || None);
        }
        let new = || {
            let effects = Effects::of(function_of(call.signature)?);
            // Of what only enqueues work, some proves it: a copy to pageable memory, a value that
            // the program may poll, a graph with a function of the program.
            let proves = matches!(
                effects.function.family,
                Family::Copy(_) | Family::StreamMemory(_) | Family::Graph(GraphOp::Launch)
            );
            let waits = !effects.only_submits || proves;
            Some(Plan { effects, waits })
        };
        let Some(plan) = self.plans.get_mut(place) else {
            return;
        };
        let Some(plan) = plan.get_or_insert_with(new) else {
            return;
        };
        if let Some((stream, number)) = self.state.submit(&plan.effects, call) {
            let queue = self.pending.entry(stream).or_default();
            queue.push_back((number, call.index));
        }
        self.state.apply(&plan.effects, call, &mut |_| None);
        self.state.take_changes();
        if plan.waits {
            self.complete(call.index);
        }
    }

    /// Takes from the queues what is complete after a call.
    fn complete(&mut self, by: u64) {
        let (order, done) = (&self.state.order, &mut self.done);
        self.pending.retain(|&stream, queue| {
            while let Some(&(number, call)) = queue.front() {
                if !order.is_done(stream, number) {
                    break;
                }
                done.insert(call, by);
                queue.pop_front();
            }
            !queue.is_empty()
        });
    }

    /// The call after which the work of each call is complete.
    pub(crate) fn finish(self) -> FxHashMap<u64, u64> {
        self.done
    }
}

#[cfg(test)]
mod tests {
    use cutape_format::{NewCall, NewSnapshot, Trace, TraceBuilder};

    use super::*;

    /// Name, arguments, and what the call writes behind its first parameter.
    type Step = (&'static str, &'static [u64], Option<u64>);

    /// What happens, the calls, and by which call the work of each is complete.
    type Case = (&'static str, &'static [Step], &'static [(u64, u64)]);

    fn completed(steps: &[Step]) -> Vec<(u64, u64)> {
        let mut builder = TraceBuilder::new(cutape_registry::SIGNATURE_TEXT);
        for (name, arguments, out) in steps {
            let bytes = out.unwrap_or(0).to_le_bytes();
            let snapshots = [NewSnapshot::pointee(0, &bytes)];
            let call = NewCall {
                name,
                arguments,
                ..NewCall::default()
            };
            let snapshots = if out.is_some() { &snapshots[..] } else { &[] };
            builder.call(call).leave(0, 0, snapshots);
        }
        let path = std::env::temp_dir().join(format!("cutape-completion-{}", std::process::id()));
        builder.write(&path).unwrap();
        let trace = Trace::open(&path).unwrap();
        let mut completion = Completion::new();
        for call in trace.calls() {
            completion.observe(&call);
        }
        std::fs::remove_file(path).unwrap();
        let mut done: Vec<_> = completion.finish().into_iter().collect();
        done.sort_unstable();
        done
    }

    #[test]
    fn waits_prove_work_complete() {
        const CONTEXT: Step = ("cuCtxCreate_v2", &[1, 0, 0], Some(0xc));
        const ONE: Step = ("cuStreamCreate", &[1, 1], Some(0x51));
        const TWO: Step = ("cuStreamCreate", &[1, 1], Some(0x52));
        const FILL_ONE: Step = ("cuMemsetD8Async", &[0x1000, 0, 8, 0x51], None);
        const FILL_TWO: Step = ("cuMemsetD8Async", &[0x2000, 0, 8, 0x52], None);
        let cases: &[Case] = &[
            (
                "a wait for a stream completes its work only",
                &[
                    CONTEXT,
                    ONE,
                    TWO,
                    FILL_ONE,
                    FILL_TWO,
                    ("cuStreamSynchronize", &[0x51], None),
                ],
                &[(3, 5)],
            ),
            (
                "a wait for the context completes all",
                &[
                    CONTEXT,
                    ONE,
                    TWO,
                    FILL_ONE,
                    FILL_TWO,
                    ("cuCtxSynchronize", &[], None),
                ],
                &[(3, 5), (4, 5)],
            ),
            (
                "a host function may tell that the work before it is complete",
                &[
                    CONTEXT,
                    ONE,
                    TWO,
                    FILL_ONE,
                    FILL_TWO,
                    ("cuLaunchHostFunc", &[0x51, 1, 0], None),
                ],
                &[(3, 5)],
            ),
            (
                "what no wait covers is not complete",
                &[
                    CONTEXT,
                    ONE,
                    FILL_ONE,
                    ("cuStreamSynchronize", &[0x51], None),
                    FILL_ONE,
                ],
                &[(2, 3)],
            ),
        ];
        for (what, steps, expected) in cases {
            assert_eq!(completed(steps), *expected, "{what}");
        }
    }
}
