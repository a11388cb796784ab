//! Follows the work that was enqueued, errors of earlier work, and the calls of threads.

use cutape_format::Call;
use cutape_model::Site;
use cutape_registry::{Family, GraphOp, Kind, StreamMemoryOp, Waits, is_sticky};

use super::State;
use super::execution::{
    Blame, HANDLES, HostFunction, RecentWork, Span, StickyError, ValueOperation,
};
use super::ordering::FIRST_ADDRESS;
use crate::layouts::parameters_of_eight;
use crate::plan::{Plan, Step};

/// How much of the work enqueued last is remembered.
const RECENT: usize = 256;

/// How many host functions and value operations are remembered.
const KEPT: usize = 64;

impl State {
    /// Work was enqueued.
    #[inline]
    pub(super) fn note_recent(
        &mut self,
        plan: &Plan,
        call: &Call<'_>,
        site: Site,
        stream: (u32, u64),
    ) {
        let undefined = self.undefined_memory(plan, call);
        let recent = &mut self.execution.recent;
        if recent.len() >= RECENT {
            recent.pop_front();
        }
        recent.push_back(RecentWork {
            stream,
            site,
            function: plan.launched.map_or(0, |position| call.argument(position)),
            is_graph: plan.function.family == Family::Graph(GraphOp::Launch),
            context: self.model.contexts.current(call.thread).handle,
            blame: undefined.map(Blame::Undefined),
        });
        if let Family::StreamMemory(operation) = plan.function.family {
            self.note_value(plan, call, site, (stream, operation));
        }
    }

    fn note_value(
        &mut self,
        plan: &Plan,
        call: &Call<'_>,
        site: Site,
        (stream, operation): ((u32, u64), StreamMemoryOp),
    ) {
        let Some(address) = plan.at("addr").map(|position| call.argument(position)) else {
            return;
        };
        let operations = &mut self.execution.value_operations;
        if operations.len() >= KEPT {
            operations.pop_front();
        }
        operations.push_back(ValueOperation {
            address,
            stream,
            waits: operation == StreamMemoryOp::Wait,
            site,
        });
    }

    /// A launch has a finding about freed memory.
    pub(crate) fn accuse(&mut self, index: u64) {
        let mut recent = self.execution.recent.iter_mut().rev();
        if let Some(work) = recent.find(|work| work.site.index == index) {
            work.blame = Some(Blame::Freed);
        }
    }

    /// The call that failed to return memory, if a launch has a parameter that is none.
    fn undefined_memory(&self, plan: &Plan, call: &Call<'_>) -> Option<Site> {
        let thread = self.threads.get(call.thread as usize)?;
        let mut failures = thread.failures.iter().rev();
        let failure = failures.find(|failure| failure.output.is_memory())?;
        if failure.reported || failure.is_followed {
            return None;
        }
        let (layout, bytes) = (
            self.layout(call.argument(plan.launched?))?,
            plan.parameters(call)?,
        );
        let is_no_memory = parameters_of_eight(layout, bytes).any(|(_, word)| {
            // Smaller ones are counts.
            (word == 0 || word >= FIRST_ADDRESS) && self.place_at(word).is_none()
        });
        is_no_memory.then_some(failure.site)
    }

    /// The handle of the context whose errors a call returns: that of its stream or event, else
    /// the thread's current one.
    pub(crate) fn context_of_errors(&self, plan: &Plan, call: &Call<'_>) -> u64 {
        let of_kind = |kind| {
            let object = self.objects.live(kind, plan.handle_of(call, kind)?)?;
            let context = self.objects.get(object)?.context?;
            Some(self.objects.get(context)?.handle)
        };
        let named = of_kind(Kind::Stream).or_else(|| of_kind(Kind::Event));
        named.unwrap_or_else(|| self.contexts.current(call.thread).handle)
    }

    /// Work of a context that may have failed, the likeliest first: what has a known reason,
    /// kernels of the stream that was waited for, other kernels, the rest; in each group the latest
    /// first.
    pub(crate) fn suspects(&self, context: u64, stream: Option<u32>) -> Vec<&RecentWork> {
        let pending = self.execution.recent.iter().rev().filter(|work| {
            work.context == context && !self.order.is_done(work.stream.0, work.stream.1)
        });
        let mut suspects: Vec<&RecentWork> = pending.collect();
        suspects.sort_by_key(|work| {
            let kernel = work.function != 0;
            let waited = stream == Some(work.stream.0);
            (work.blame.is_none(), !kernel, !waited)
        });
        suspects
    }

    /// A host function is about to be enqueued.
    pub(super) fn note_host_function(&mut self, plan: &Plan, call: &Call<'_>, site: Site) {
        self.forget_sources(None);
        // A callback is called with the error.
        if plan.function.family == Family::StreamCallback {
            return;
        }
        let Some(stream) = self.model.call_stream(&plan.effects, call) else {
            return;
        };
        let order = &self.model.order;
        let mut recent = self.execution.recent.iter().rev();
        let behind = recent
            .find(|work| work.stream.0 == stream && !order.is_done(work.stream.0, work.stream.1));
        if let Some(behind) = behind {
            let behind = behind.site;
            if self.execution.host_functions.len() >= KEPT {
                self.execution.host_functions.pop_front();
            }
            self.execution.host_functions.push_back(HostFunction {
                stream,
                site,
                behind,
            });
        }
    }

    /// A call has returned without an error: what it shows of threads and host functions.
    #[inline]
    pub(super) fn note_success(&mut self, plan: &Plan, call: &Call<'_>) {
        self.execution.hands_over_function |= plan.hands_over(call);
        let thread = call.thread as usize;
        if self.execution.succeeded.len() <= thread {
            self.execution.succeeded.resize(thread + 1, false);
        }
        self.execution.succeeded[thread] |= !plan.asks;
        if plan.function.waits != Waits::No && !self.execution.host_functions.is_empty() {
            self.execution.host_functions.clear();
        }
    }

    /// A call has returned an error.
    pub(super) fn note_error(&mut self, plan: &Plan, call: &Call<'_>, site: Site, result: i32) {
        if !is_sticky(result) {
            return;
        }
        let context = self.context_of_errors(plan, call);
        let asks = plan.asks_for_more();
        let suspects = self.suspects(context, self.ordering.stream);
        let origin = suspects.first().map(|&&work| work);
        if self.execution.sticky.len() >= KEPT {
            self.execution.sticky.clear();
        }
        match self.execution.sticky.get_mut(&context) {
            Some(error) => {
                error.repeats += 1;
                self.consequences += u64::from(error.origin.is_some() && !asks);
                if asks {
                    error.ignored += 1;
                    error.next.get_or_insert(site);
                }
            }
            None => {
                let error = StickyError {
                    code: result,
                    first: site,
                    repeats: 0,
                    ignored: 0,
                    next: None,
                    origin,
                };
                self.execution.sticky.insert(context, error);
                self.execution.host_functions.clear();
            }
        }
    }

    /// A context was created with a handle that an error may be known for.
    pub(super) fn forget_error(&mut self, context: u64) {
        self.execution.sticky.remove(&context);
    }

    /// The call is the last one of its thread from now on; of interest once there are several.
    #[inline]
    pub(crate) fn note_span(&mut self, plan: &Plan, call: &Call<'_>, site: Site) {
        let thread = call.thread as usize;
        if self.execution.spans.len() <= thread {
            self.execution.spans.resize(thread + 1, None);
        }
        if self.execution.spans.len() > 1 {
            self.execution.spans[thread] = Some(self.span(plan, call, site));
        }
    }

    fn span(&self, plan: &Plan, call: &Call<'_>, site: Site) -> Span {
        let mut objects = [None; HANDLES];
        let handles = plan
            .steps
            .iter()
            .filter_map(|&(position, step)| match step {
                Step::Use(kind) | Step::Destroy(kind) => Some((kind, call.argument(position))),
                _ => None,
            });
        let stream = plan
            .config_stream(call)
            .map(|handle| (Kind::Stream, handle));
        let found = handles
            .chain(stream)
            .filter_map(|(kind, handle)| self.model.objects.resolve(kind, handle).live());
        for (slot, id) in objects.iter_mut().zip(found) {
            *slot = Some(id);
        }
        Span {
            leave: call.leave.map_or(u64::MAX, |leave| leave.ticks),
            site,
            objects,
            context: self.model.contexts.current(call.thread).object,
            family: plan.function.family,
        }
    }
}
