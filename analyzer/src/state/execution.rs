//! What rules about asynchronous errors and threads look at: the work enqueued last, errors that
//! stay, calls of several threads that overlap.

use std::collections::VecDeque;

use cutape_format::Call;
use cutape_model::{ObjectId, Site};
use cutape_registry::{Family, Kind, StreamMemoryOp, Waits};
use rustc_hash::FxHashMap;

use super::State;
use crate::plan::{Plan, Step};

/// How much of the work enqueued last is remembered.
const RECENT: usize = 256;
/// How many host functions and value operations are remembered.
const KEPT: usize = 64;
/// Handles of one call that are compared with those of other threads.
const HANDLES: usize = 4;

/// Work that was enqueued.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecentWork {
    pub(crate) stream: (u32, u64),
    pub(crate) site: Site,
    /// The handle of the function that is launched; 0 for other work.
    pub(crate) function: u64,
    /// The handle of the thread's current context.
    pub(crate) context: u64,
    /// A finding says that it uses memory that was freed.
    pub(crate) accused: bool,
}

/// An execution error that every later call in its context returns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StickyError {
    pub(crate) code: i32,
    pub(crate) first: Site,
    /// Calls that returned it again.
    pub(crate) repeats: u64,
    /// How many of them asked for new work, and the first of those.
    pub(crate) ignored: u64,
    pub(crate) next: Option<Site>,
}

/// A host function behind work that may have failed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostFunction {
    pub(crate) stream: u32,
    pub(crate) site: Site,
    pub(crate) behind: Site,
}

/// A stream that waits for a value in memory, or writes one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ValueOperation {
    pub(crate) address: u64,
    pub(crate) stream: (u32, u64),
    pub(crate) waits: bool,
    pub(crate) site: Site,
}

/// The last call of a thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    /// When it was left; the largest number while it is in flight.
    pub(crate) leave: u64,
    pub(crate) site: Site,
    /// Objects that it names.
    pub(crate) objects: [Option<ObjectId>; HANDLES],
    /// The context that was current.
    pub(crate) context: Option<ObjectId>,
    pub(crate) family: Family,
}

/// What rules about asynchronous errors and threads look at.
#[derive(Debug, Default)]
pub(crate) struct Execution {
    pub(crate) recent: VecDeque<RecentWork>,
    /// By the context's handle.
    pub(crate) sticky: FxHashMap<u64, StickyError>,
    pub(crate) host_functions: VecDeque<HostFunction>,
    /// The program has enqueued a host function.
    pub(crate) calls_back: bool,
    pub(crate) value_operations: VecDeque<ValueOperation>,
    /// By thread.
    pub(crate) spans: Vec<Option<Span>>,
    /// Threads in which a call has succeeded.
    pub(crate) succeeded: Vec<bool>,
}

/// True for a result that all later calls in the context return as well (cuda.h: CUDA_ERROR_
/// CONTAINED, ILLEGAL_ADDRESS, LAUNCH_TIMEOUT, ASSERT, HARDWARE_STACK_ERROR to LAUNCH_FAILED,
/// TENSOR_MEMORY_LEAK).
pub(crate) fn is_sticky(result: i32) -> bool {
    matches!(result, 226 | 700 | 702 | 710 | 714..=719 | 721)
}

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
        let recent = &mut self.execution.recent;
        if recent.len() >= RECENT {
            recent.pop_front();
        }
        recent.push_back(RecentWork {
            stream,
            site,
            function: plan.launched.map_or(0, |position| call.argument(position)),
            context: self.model.contexts.current(call.thread).handle,
            accused: false,
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
            work.accused = true;
        }
    }

    /// A host function is about to be enqueued.
    pub(super) fn note_host_function(&mut self, plan: &Plan, call: &Call<'_>, site: Site) {
        self.execution.calls_back = true;
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
        let thread = call.thread as usize;
        if self.execution.succeeded.len() <= thread {
            self.execution.succeeded.resize(thread + 1, false);
        }
        self.execution.succeeded[thread] = true;
        if plan.function.waits != Waits::No && !self.execution.host_functions.is_empty() {
            self.execution.host_functions.clear();
        }
    }

    /// A call has returned an error.
    pub(super) fn note_error(&mut self, plan: &Plan, call: &Call<'_>, site: Site, result: i32) {
        if !is_sticky(result) {
            return;
        }
        let context = self.model.contexts.current(call.thread).handle;
        let asks = plan.effects.submits() || (!plan.destroys && !plan.effects.objects.is_empty());
        if self.execution.sticky.len() >= KEPT {
            self.execution.sticky.clear();
        }
        match self.execution.sticky.get_mut(&context) {
            Some(error) => {
                error.repeats += 1;
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

    /// The call is the last one of its thread from now on.
    pub(crate) fn note_span(&mut self, plan: &Plan, call: &Call<'_>, site: Site) {
        let thread = call.thread as usize;
        if self.execution.spans.len() <= thread {
            self.execution.spans.resize(thread + 1, None);
        }
        if self.execution.spans.len() < 2 {
            return;
        }
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
        self.execution.spans[thread] = Some(Span {
            leave: call.leave.map_or(u64::MAX, |leave| leave.ticks),
            site,
            objects,
            context: self.model.contexts.current(call.thread).object,
            family: plan.function.family,
        });
    }
}
