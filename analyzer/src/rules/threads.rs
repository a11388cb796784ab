//! Calls of several threads that overlap, calls in host functions, calls that do not return.

use cutape_format::Note;
use cutape_model::ObjectId;
use cutape_registry::{
    Class, Family, Function, GraphOp, Kind, Param, Role, StreamMemoryOp, UserReferenceOp, Waits,
    rules,
};

use super::{Check, Draft, at, code};
use crate::finding::Severity;
use crate::plan::{Plan, Step};
use crate::state::data::MemoryOrigin;
use crate::state::execution::Span;
use crate::state::ordering::memory_origin;

/// The calls of other threads that had not returned when this one began.
fn overlapping<'c>(check: &'c Check<'_, '_>) -> impl Iterator<Item = &'c Span> {
    let (thread, enter) = (check.call.thread as usize, check.call.ticks);
    let spans = check.state.execution.spans.iter().enumerate();
    let others = spans.filter(move |&(other, _)| other != thread);
    others
        .filter_map(|(_, span)| span.as_ref())
        .filter(move |span| span.leave > enter)
}

/// An object that is destroyed while another thread is inside a call with it.
pub(super) fn destroyed_in_use(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    drafts.extend(ended_in_use(check));
}

fn ended_in_use(check: &Check<'_, '_>) -> Option<Draft> {
    let (kind, id) = check
        .plan
        .steps
        .iter()
        .find_map(|&(position, step)| match step {
            Step::Destroy(
                kind @ (Kind::Context
                | Kind::Stream
                | Kind::Event
                | Kind::Module
                | Kind::Library
                | Kind::Graph
                | Kind::GraphExec),
            ) => {
                let handle = check.call.argument(position);
                Some((kind, check.state.objects.live(kind, handle)?))
            }
            _ => None,
        })?;
    if check.went_wrong() && check.call.result().is_some() {
        return None;
    }
    let objects = &check.state.objects;
    let belongs = |used: ObjectId| used == id || objects.ancestors(used).any(|owner| owner == id);
    let is_context = kind == Kind::Context;
    let span = overlapping(check).find(|span| {
        let named = span.objects.iter().flatten().any(|&used| belongs(used));
        named || (is_context && span.context == Some(id))
    })?;
    let message = format!(
        "{} ends {} while thread {} is inside {}, which uses it. Neither call had returned when \
         the other began, so nothing in the program orders them. {}",
        check.function(),
        check.label(id),
        span.site.thread,
        at(span.site),
        check.answer(),
    );
    let title = format!(
        "{} destroyed while another thread is inside a call with it",
        kind.name()
    );
    let mut draft = Draft::new(rules::THREADING_DESTROY_WHILE_IN_USE, title, message)
        .object(id)
        .chain(vec![
            check.label(id),
            format!("used by {} in thread {}", at(span.site), span.site.thread),
            format!(
                "ended by {} in thread {}",
                at(check.site),
                check.call.thread
            ),
        ]);
    if !is_context {
        draft = draft.severity(Severity::Warning);
    }
    Some(draft)
}

/// Whether calls of a family change objects of a kind.
fn changes(family: Family, kind: Kind) -> bool {
    let Family::Graph(operation) = family else {
        return false;
    };
    match operation {
        GraphOp::AddNode(_) | GraphOp::SetNode(_) => kind == Kind::Graph,
        GraphOp::SetExecNode(_)
        | GraphOp::SetEnabled
        | GraphOp::Update
        | GraphOp::DestroyExec
        | GraphOp::Upload
        | GraphOp::Launch => kind == Kind::GraphExec,
        _ => false,
    }
}

/// Two threads inside calls with one graph, of which one changes it.
pub(super) fn graph_shared(check: &Check<'_, '_>) -> Option<Draft> {
    let used = check
        .plan
        .steps
        .iter()
        .filter_map(|&(position, step)| match step {
            Step::Use(kind @ (Kind::Graph | Kind::GraphExec)) => check
                .state
                .objects
                .live(kind, check.call.argument(position)),
            _ => None,
        });
    let used: Vec<ObjectId> = used.collect();
    let (span, id) = overlapping(check).find_map(|span| {
        let shared = used.iter().find(|&&id| {
            let kind = check.kind(id);
            let changed = kind
                .is_some_and(|kind| changes(check.family(), kind) || changes(span.family, kind));
            changed && span.objects.contains(&Some(id))
        })?;
        Some((span, *shared))
    })?;
    let message = format!(
        "{} (thread {}) and {} (thread {}) use {} at the same time, and one of them changes it. \
         The driver does not lock graphs: the program must. {}",
        at(check.site),
        check.call.thread,
        at(span.site),
        span.site.thread,
        check.label(id),
        check.answer(),
    );
    let title = "graph used by two threads at once";
    Some(
        Draft::new(rules::THREADING_GRAPH_CONCURRENT_USE, title, message)
            .object(id)
            .chain(vec![
                check.label(id),
                format!("{} in thread {}", at(span.site), span.site.thread),
                format!("{} in thread {}", at(check.site), check.call.thread),
            ]),
    )
}

/// True for functions that answer NOT_PERMITTED in any thread, without a context: what is shared
/// between processes needs rights (manual, cuMemCreate and cuMemPoolCreate: an IMEX channel for
/// fabric handles), and so do core dumps, checkpoints and the profiler.
fn forbids_by_itself(function: &Function) -> bool {
    const SECTIONS: [&str; 2] = ["Virtual Memory Management", "Multicast Object Management"];
    let makes_pool = |param: &Param| matches!(param.role, Role::Make(Kind::MemoryPool, _));
    matches!(function.class, Class::Opaque | Class::Unreplayable)
        || SECTIONS.contains(&function.section)
        || function.params.iter().any(makes_pool)
}

/// A call that the driver refuses because a host function makes it, or that does not return.
pub(super) fn in_host_function(check: &Check<'_, '_>) -> Option<Draft> {
    let execution = &check.state.execution;
    let thread = check.call.thread as usize;
    let succeeded = execution.succeeded.get(thread).copied().unwrap_or(false);
    if succeeded || !execution.hands_over_function {
        return None;
    }
    let is_refused =
        check.call.result() == Some(code::NOT_PERMITTED) && !forbids_by_itself(check.plan.function);
    // The program's own threads make a context current first.
    let is_stuck = check.call.leave.is_none() && check.plan.needs_context && check.has_no_context();
    if !is_refused && !is_stuck {
        return None;
    }
    let what = format!(
        "was called in thread {}. No call except queries has succeeded in that thread, so cutape \
         takes it for a thread of the driver that runs host functions, callbacks of streams and \
         destructors of user objects. They must not call the driver, directly or through other \
         code",
        check.call.thread,
    );
    let title = "driver called by a host function";
    Some(check.draft(rules::THREADING_HOST_FUNCTION_CALLS_CUDA, title, what))
}

/// Whether calls can drop the last reference to a user object, whose destructor then runs in the
/// thread of the call, before it returns.
pub(super) fn may_run_destructor(plan: &Plan) -> bool {
    use UserReferenceOp::{Release, ReleaseOfGraph};
    let ends_holder = |&(_, step): &(usize, Step)| {
        matches!(
            step,
            Step::Destroy(Kind::Graph | Kind::GraphExec | Kind::GraphNode)
        )
    };
    let drops = matches!(
        plan.function.family,
        Family::UserReferences(Release | ReleaseOfGraph)
    );
    drops || plan.steps.iter().any(ends_holder)
}

/// Calls that the driver refuses because a destructor makes them, inside such a call.
pub(super) fn in_destructor(check: &Check<'_, '_>) -> Option<Draft> {
    if !check.state.execution.hands_over_function {
        return None;
    }
    let signatures = check.context.signatures();
    let refused = check.call.notes().filter_map(|note| match note {
        Note::NestedCall(nested) if nested.result == code::NOT_PERMITTED => {
            let name = &signatures.function(nested.function)?.name;
            let function = cutape_registry::function(name);
            (!function.is_some_and(forbids_by_itself)).then_some((name.as_str(), nested.caller))
        }
        _ => None,
    });
    let refused: Vec<(&str, u64)> = refused.collect();
    let &(_, caller) = refused.first()?;
    let mut names: Vec<&str> = refused.iter().map(|&(name, _)| name).collect();
    names.dedup();
    let (names, graphs) = (names.join(", "), &check.state.graphs);
    let handle = |kind| check.plan.handle_of(check.call, kind);
    let object = match handle(Kind::UserObject) {
        Some(object) => graphs.user_object(object),
        None => handle(Kind::Graph).and_then(|graph| graphs.user_object_of(graph)),
    };
    let object = match object {
        Some(object) => format!("the user object of {}", at(object.created)),
        None => "a user object".to_owned(),
    };
    let message = format!(
        "{} dropped the last reference to {object} and ran its destructor, which called {names}. \
         The driver refused that with CUDA_ERROR_NOT_PERMITTED. Destructors must not call the \
         driver, nor may what they call.",
        check.function(),
    );
    let title = "driver called by a destructor";
    Some(
        Draft::new(rules::THREADING_HOST_FUNCTION_CALLS_CUDA, title, message)
            .subject(caller)
            .chain(vec![
                object,
                format!("destructor run by {}", at(check.site)),
                format!("{names} called by the destructor"),
            ]),
    )
}

/// A load that does not return while kernels may run.
pub(super) fn stuck_load(check: &Check<'_, '_>) -> Option<Draft> {
    // A crash does not return either.
    let signal = check
        .context
        .meta("exit.signal")
        .and_then(|text| text.parse::<i32>().ok());
    const CRASHES: [i32; 6] = [4, 6, 7, 8, 11, 31];
    if check.call.leave.is_some() || signal.is_some_and(|signal| CRASHES.contains(&signal)) {
        return None;
    }
    let state = check.state;
    let mut recent = state.execution.recent.iter().rev();
    // Only the first launch of a function loads it; a later one may wait for room in the queue.
    let launched = check.plan.launched.filter(|_| check.plan.effects.submits());
    let launched = launched.map(|position| check.call.argument(position));
    if launched.is_some_and(|function| recent.clone().any(|work| work.function == function)) {
        return None;
    }
    let kernel = recent.find(|work| {
        (work.function != 0 || work.is_graph) && !state.order.is_done(work.stream.0, work.stream.1)
    })?;
    let name = state
        .objects
        .resolve(Kind::Function, kernel.function)
        .known();
    let name = match name {
        Some(id) => check.label(id),
        None if kernel.is_graph => "a graph".to_owned(),
        None => "a kernel".to_owned(),
    };
    let others: Vec<String> = overlapping(check)
        .filter(|span| span.leave == u64::MAX)
        .map(|span| format!("thread {} is inside {}", span.site.thread, at(span.site)))
        .collect();
    let others = match others.is_empty() {
        true => String::new(),
        false => format!(" Meanwhile {}.", others.join(", and ")),
    };
    let message = format!(
        "{} (thread {}) never returned. It was called while {name}, launched by {}, may have been \
         running: no call had waited for it. A load, which a lookup or the first launch of a \
         function may do as well, can wait for the kernels of its context, so a kernel that waits \
         for the host or for another stream keeps it waiting for ever.{others}",
        check.function(),
        check.call.thread,
        at(kernel.site),
    );
    let title = "load that waits for a running kernel";
    Some(
        Draft::new(rules::LIBRARY_LOAD_BEHIND_RUNNING_KERNEL, title, message)
            .subject(kernel.site.caller)
            .chain(vec![
                format!("{name} launched by {}", at(kernel.site)),
                format!(
                    "{} in thread {} waits for it",
                    at(check.site),
                    check.call.thread
                ),
            ]),
    )
}

/// An operand that stream memory operations do not take.
pub(super) fn value_operand(check: &Check<'_, '_>) -> Option<Draft> {
    const BATCH: u64 = 256;
    if !matches!(
        check.call.result(),
        Some(code::INVALID_VALUE | code::NOT_SUPPORTED)
    ) {
        return None;
    }
    let what = if check.family() == Family::StreamMemory(StreamMemoryOp::Batch) {
        let count = check.argument("count")? & 0xffff_ffff;
        if count < BATCH {
            return None;
        }
        format!("gets {count} operations; a batch has fewer than {BATCH}")
    } else {
        let address = check.argument("addr")?;
        match check.state.place_at(address) {
            Some(id) => {
                let object = check.object(id)?;
                if memory_origin(object) != Some(MemoryOrigin::Managed) {
                    return None;
                }
                format!(
                    "gets {address:#x}, which lies in managed memory, {}. Stream memory \
                     operations take device memory and page-locked host memory",
                    check.label(id),
                )
            }
            None if check.state.freed_at(address).is_none() => format!(
                "gets {address:#x}, an address that no call has returned. Stream memory \
                 operations take device memory and page-locked host memory",
            ),
            None => return None,
        }
    };
    let title = "operand that stream memory operations do not take";
    Some(check.draft(rules::STREAM_MEMOP_OPERAND, title, what))
}

/// A value that one stream waits for and another writes, with no order that the driver knows.
pub(super) fn hidden_order(check: &Check<'_, '_>) -> Option<Draft> {
    // A write that was enqueued before the wait for it cannot be blocked.
    if check.went_wrong() || check.family() != Family::StreamMemory(StreamMemoryOp::Write) {
        return None;
    }
    let (address, stream) = (check.argument("addr")?, check.state.ordering.stream?);
    let mut operations = check.state.execution.value_operations.iter().rev();
    let other = operations.find(|other| {
        other.address == address
            && other.stream.0 != stream
            && other.waits
            && !check.state.order.is_done(other.stream.0, other.stream.1)
    })?;
    let order = &check.state.order;
    if order.has_waited(stream, other.stream.0) || order.has_waited(other.stream.0, stream) {
        return None;
    }
    let (wait, write) = (other.site, check.site);
    let message = format!(
        "{} waits for a value at {address:#x} that {} writes in another stream. The driver does \
         not know that order; if it puts both streams into one hardware queue, the wait may block \
         the write for ever.",
        at(wait),
        at(write),
    );
    let title = "order between streams that only a value in memory makes";
    Some(
        Draft::new(rules::STREAM_MEMOP_HIDDEN_ORDER, title, message)
            .culprit(wait)
            .chain(vec![
                format!("wait by {}", at(wait)),
                format!("write by {}", at(write)),
            ]),
    )
}

/// A wait of the host that does not return, for a stream that waits for a value which only work
/// behind that wait writes.
pub(super) fn stuck_value(check: &Check<'_, '_>) -> Option<Draft> {
    if check.call.leave.is_some() || check.plan.function.waits == Waits::No {
        return None;
    }
    let state = check.state;
    let stuck = state.execution.value_operations.iter().find(|wait| {
        let memory = state
            .memory_at(wait.address)
            .and_then(|id| check.object(id));
        let device = memory.and_then(memory_origin);
        wait.waits
            && matches!(device, Some(MemoryOrigin::Device | MemoryOrigin::Pool))
            && !state.order.is_done(wait.stream.0, wait.stream.1)
            // Work of other streams may write the value.
            && state.execution.recent.iter().all(|work| {
                work.stream.0 == wait.stream.0
                    || state.order.is_done(work.stream.0, work.stream.1)
            })
    })?;
    let mut operations = state.execution.value_operations.iter();
    let write = operations.find(|write| {
        !write.waits && write.address == stuck.address && write.site.index > stuck.site.index
    });
    let write = write.map_or_else(
        || "No other stream has work that could write it".to_owned(),
        |write| {
            format!(
                "{} writes it after the wait in the same stream",
                at(write.site)
            )
        },
    );
    let message = format!(
        "{} never returned. {} lets the stream wait for a value at {:#x}, in device memory. \
         {write}, so the wait never ends.",
        check.function(),
        at(stuck.site),
        stuck.address,
    );
    let title = "stream waits for a value that only work after the wait writes";
    Some(
        Draft::new(rules::STREAM_MEMOP_SELF_DEADLOCK, title, message).chain(vec![
            format!("wait for a value by {}", at(stuck.site)),
            format!("host waits in {}", at(check.site)),
        ]),
    )
}
