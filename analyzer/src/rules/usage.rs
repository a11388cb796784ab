//! Contexts and events: calls without a current context, unbalanced contexts, times of events.

use cutape_model::{ObjectId, Origin};
use cutape_registry::{Kind, rules};

use super::{Check, Draft, at, code};
use crate::finding::Severity;
use crate::plan::Step;
use crate::state::State;

/// The time between events of which one has none, or of two contexts. The driver, which refused it,
/// knows of records that a trace does not show, such as those of graphs.
pub(super) fn elapsed(check: &Check<'_, '_>) -> Option<Draft> {
    if !matches!(
        check.call.result(),
        Some(code::INVALID_VALUE | code::INVALID_HANDLE | code::CAPTURED_EVENT)
    ) {
        return None;
    }
    let events =
        check.plan.steps.iter().filter_map(|&(position, step)| {
            matches!(step, Step::Use(Kind::Event)).then_some(position)
        });
    let events: Vec<usize> = events.collect();
    let without_time = events.iter().find_map(|&at| without_time(check, at));
    let (what, objects) = without_time.or_else(|| of_two_contexts(check, &events))?;
    let title = "elapsed time of an event that has no time";
    let draft = check.draft(rules::EVENT_ELAPSED_INVALID, title, what);
    Some(objects.into_iter().fold(draft, Draft::object))
}

/// Why the event in a parameter has no time.
fn without_time(check: &Check<'_, '_>, position: usize) -> Option<(String, Vec<ObjectId>)> {
    let (handle, parameter) = (check.call.argument(position), check.parameter(position));
    if handle == 0 {
        let what = format!("gets NULL as `{parameter}`, where an event belongs");
        return Some((what, Vec::new()));
    }
    let id = check.state.objects.live(Kind::Event, handle)?;
    let object = check.object(id)?;
    let event = check.state.event(id)?;
    if object.origin != Origin::Created {
        return None;
    }
    let why = match (event.captured_by(), event.record) {
        (Some(site), _) => format!(
            "was recorded last by {}, in a stream that captured. A captured record orders work and \
             measures nothing; cuEventRecordWithFlags with CU_EVENT_RECORD_EXTERNAL makes a node \
             that records the event when the graph runs",
            at(site)
        ),
        (_, None) => "was never recorded".to_owned(),
        (_, Some(site)) if !event.timing => format!(
            "was created with CU_EVENT_DISABLE_TIMING (and recorded by {})",
            at(site)
        ),
        _ => return None,
    };
    let what = format!(
        "gets {} as `{parameter}`. {} created that event, and it {why}",
        check.label(id),
        at(object.created),
    );
    Some((what, vec![id]))
}

/// Events of two contexts; those of two devices always are.
fn of_two_contexts(check: &Check<'_, '_>, events: &[usize]) -> Option<(String, Vec<ObjectId>)> {
    let owned = events.iter().filter_map(|&position| {
        let handle = check.call.argument(position);
        let id = check.state.objects.live(Kind::Event, handle)?;
        Some((id, check.object(id)?.context?))
    });
    let owned: Vec<(ObjectId, ObjectId)> = owned.collect();
    let &[(start, first), (end, second)] = owned.as_slice() else {
        return None;
    };
    let what = format!(
        "gets {} of {} and {} of {}. Times are measured between events of one context",
        check.label(start),
        check.label(first),
        check.label(end),
        check.label(second),
    );
    (first != second).then(|| (what, vec![start, end]))
}

/// True if the driver missed a context that the thread does not have.
pub(super) fn lacks_context(check: &Check<'_, '_>) -> bool {
    check.call.result() == Some(code::INVALID_CONTEXT) && check.has_no_context()
}

/// A call on the current context of a thread that has none.
pub(super) fn none_current(check: &Check<'_, '_>) -> Option<Draft> {
    if !lacks_context(check) {
        return None;
    }
    if let Some(pop) = check.state.contexts.surplus_pop(check.call.thread) {
        let what = format!(
            "works on the current context, but thread {} has none. {} popped the last one, which \
             no call had pushed there: it was made current by cuCtxSetCurrent or by the runtime",
            check.call.thread,
            at(pop),
        );
        let title = "context popped that was not pushed";
        let draft = check.draft(rules::CONTEXT_UNBALANCED, title, what);
        return Some(draft.culprit(pop));
    }
    let what = format!(
        "works on the current context, but thread {} has none: no call made one current there, \
         or a call popped it",
        check.call.thread,
    );
    let title = "no context is current";
    Some(check.draft(rules::CONTEXT_NONE_CURRENT, title, what))
}

/// A release of a primary context that is not retained.
pub(super) fn released_too_often(check: &Check<'_, '_>) -> Option<Draft> {
    let device = check.call.argument(0) as i32;
    if check.call.result() != Some(code::INVALID_CONTEXT)
        || check.state.contexts.is_retained(device)
    {
        return None;
    }
    let what = format!(
        "releases the primary context of device {device}, which was already released as often as \
         it was retained"
    );
    let title = "primary context released more often than retained";
    Some(check.draft(rules::CONTEXT_UNBALANCED, title, what))
}

/// So many pushes of one place in one thread are more than scopes that nest explain, and so many
/// retains more than an object for each user (assumed).
const MANY: u32 = 8;

/// Pushes that were not popped, and retains that were not released, when the trace ends.
pub(super) fn unbalanced_at_end(state: &State) -> Vec<Draft> {
    let rule = rules::CONTEXT_UNBALANCED;
    let pushes = state.contexts.left_pushes().into_iter();
    let pushes = pushes.filter(|left| left.count >= u64::from(MANY));
    let pushes = pushes.map(|left| {
        let message = format!(
            "{} contexts were left on the stack of thread {} when the program ended, the first by \
             {}. One place of the program pushed them all: it is left without a pop, for example \
             by an early return.",
            left.count,
            left.first.thread,
            at(left.first),
        );
        let draft = Draft::new(rule, "context pushed and never popped", message);
        draft.site(left.first).culprit(left.first)
    });
    let retains = state
        .contexts
        .retains()
        .filter(|(.., count)| *count >= MANY);
    let retains = retains.map(|(context, first, count)| {
        let message = format!(
            "{} retains {} and does so {count} times without a release. The context and its \
             memory live until the process ends.",
            at(first),
            state.label(context),
        );
        let draft = Draft::new(rule, "primary context retained and never released", message);
        let draft = draft.site(first).culprit(first).about(context);
        draft.severity(Severity::Advice)
    });
    pushes.chain(retains).collect()
}

/// A pop from an empty stack of contexts.
pub(super) fn popped_too_often(check: &Check<'_, '_>) -> Option<Draft> {
    if !lacks_context(check) {
        return None;
    }
    let what = format!(
        "pops the context stack of thread {}, which is empty",
        check.call.thread,
    );
    let title = "context popped from an empty stack";
    Some(check.draft(rules::CONTEXT_UNBALANCED, title, what))
}
