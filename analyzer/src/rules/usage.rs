//! Contexts and events: calls without a current context, unbalanced contexts, times of events.

use cutape_model::Origin;
use cutape_registry::{ContextOp, EventOp, Family, Kind, PrimaryOp};

use super::{Check, Draft, at, code};
use crate::plan::Step;
use crate::state::data::Data;

/// Rules about contexts and events beyond lifetimes.
#[inline]
pub(super) fn check(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    if !drafts.is_empty() {
        return;
    }
    match check.family() {
        Family::Event(EventOp::ElapsedTime) => elapsed(check, drafts),
        Family::PrimaryContext(PrimaryOp::Release) => released_too_often(check, drafts),
        Family::Context(ContextOp::Pop) => popped_too_often(check, drafts),
        _ if check.plan.needs_context => none_current(check, drafts),
        _ => {}
    }
}

fn elapsed(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    // The driver knows of records that a trace does not show, such as those of graphs.
    if !check.went_wrong() {
        return;
    }
    for &(position, step) in &check.plan.steps {
        let Step::Use(Kind::Event) = step else {
            continue;
        };
        let handle = check.call.argument(position);
        let Some(id) = check.state.objects.live(Kind::Event, handle) else {
            continue;
        };
        let Some(object) = check.object(id) else {
            continue;
        };
        let Data::Event(event) = &object.data else {
            continue;
        };
        if object.origin != Origin::Created || (event.timing && event.record.is_some()) {
            continue;
        }
        let why = match event.record {
            None => "was never recorded".to_owned(),
            Some(site) => format!(
                "was created with CU_EVENT_DISABLE_TIMING (and recorded by {})",
                at(site)
            ),
        };
        let message = format!(
            "{} gets {} as `{}`. {} created that event, and it {why}. {}",
            check.function(),
            check.label(id),
            check.parameter(position),
            at(object.created),
            check.answer(),
        );
        let title = "elapsed time of an event that has no time";
        drafts.push(Draft::new("event-elapsed-invalid", title, message).object(id));
        return;
    }
}

/// True if the driver missed a context that the thread does not have.
pub(super) fn lacks_context(check: &Check<'_, '_>) -> bool {
    check.call.result() == Some(code::INVALID_CONTEXT) && check.has_no_context()
}

fn none_current(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    if !lacks_context(check) {
        return;
    }
    let message = format!(
        "{} works on the current context, but thread {} has none: no call made one current there, \
         or a call popped it. {}",
        check.function(),
        check.call.thread,
        check.answer(),
    );
    drafts.push(Draft::new(
        "context-none-current",
        "no context is current",
        message,
    ));
}

fn released_too_often(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    let device = check.call.argument(0) as i32;
    if check.call.result() != Some(code::INVALID_CONTEXT)
        || check.state.contexts.is_retained(device)
    {
        return;
    }
    let message = format!(
        "{} releases the primary context of device {device}, which was already released as often \
         as it was retained. {}",
        check.function(),
        check.answer(),
    );
    let title = "primary context released more often than retained";
    drafts.push(Draft::new("context-unbalanced", title, message));
}

fn popped_too_often(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    if !lacks_context(check) {
        return;
    }
    let message = format!(
        "{} pops the context stack of thread {}, which is empty. {}",
        check.function(),
        check.call.thread,
        check.answer(),
    );
    let title = "context popped from an empty stack";
    drafts.push(Draft::new("context-unbalanced", title, message));
}
