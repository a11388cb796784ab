//! Contexts and events: calls without a current context, unbalanced contexts, times of events.

use cutape_model::Origin;
use cutape_registry::{Kind, rules};

use super::{Check, Draft, at, code};
use crate::plan::Step;
use crate::state::data::Data;

/// The time between events of which one has none. The driver, which refused it, knows of records
/// that a trace does not show, such as those of graphs.
pub(super) fn elapsed(check: &Check<'_, '_>) -> Option<Draft> {
    check.plan.steps.iter().find_map(|&(position, step)| {
        let Step::Use(Kind::Event) = step else {
            return None;
        };
        let handle = check.call.argument(position);
        let id = check.state.objects.live(Kind::Event, handle)?;
        let object = check.object(id)?;
        let Data::Event(event) = &object.data else {
            return None;
        };
        if object.origin != Origin::Created || (event.timing && event.record.is_some()) {
            return None;
        }
        let why = match event.record {
            None => "was never recorded".to_owned(),
            Some(site) => format!(
                "was created with CU_EVENT_DISABLE_TIMING (and recorded by {})",
                at(site)
            ),
        };
        let what = format!(
            "gets {} as `{}`. {} created that event, and it {why}",
            check.label(id),
            check.parameter(position),
            at(object.created),
        );
        let title = "elapsed time of an event that has no time";
        Some(
            check
                .draft(rules::EVENT_ELAPSED_INVALID, title, what)
                .object(id),
        )
    })
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
