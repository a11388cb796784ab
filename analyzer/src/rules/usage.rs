//! Contexts and events that are there but not in the state that a call needs.

use cutape_registry::{ContextOp, EventOp, Family, Kind, PrimaryOp};

use super::{Check, Draft, at, code};
use crate::plan::Step;
use crate::state::data::Data;
use cutape_model::Origin;

/// Rules about contexts and events beyond lifetimes.
#[inline]
pub(super) fn check(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    if !drafts.is_empty() {
        return;
    }
    match check.plan.function.family {
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
        let Some(object) = check.state.objects.get(id) else {
            continue;
        };
        let (timing, recorded) = match &object.data {
            Data::Event(event) => (event.timing, event.record),
            _ => continue,
        };
        if object.origin != Origin::Created || (timing && recorded.is_some()) {
            continue;
        }
        let name = check
            .plan
            .function
            .params
            .get(position)
            .map_or("", |param| param.name);
        let why = match recorded {
            None => "has never been recorded".to_owned(),
            Some(site) => format!(
                "was made with CU_EVENT_DISABLE_TIMING (and recorded by {})",
                at(site)
            ),
        };
        let message = format!(
            "{} is given {} as `{name}`, which {} made and which {why}. {}",
            check.plan.function.name,
            check.state.label(id),
            at(object.created),
            check.answer(),
        );
        drafts.push(
            Draft::new(
                "event-elapsed-invalid",
                "a time is asked of an event that has none",
                message,
            )
            .object(id),
        );
        return;
    }
}

fn none_current(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    if check.call.result() != Some(code::INVALID_CONTEXT)
        || check.state.contexts.current(check.call.thread).handle != 0
    {
        return;
    }
    let message = format!(
        "{} works on the current context, and thread {} has none: nothing was made current there, or it was taken off again. {}",
        check.plan.function.name,
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
        "{} releases the primary context of device {device}, which has been released as often as it was retained. {}",
        check.plan.function.name,
        check.answer(),
    );
    drafts.push(Draft::new(
        "context-unbalanced",
        "a primary context is released too often",
        message,
    ));
}

fn popped_too_often(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    if check.call.result() != Some(code::INVALID_CONTEXT)
        || check.state.contexts.current(check.call.thread).handle != 0
    {
        return;
    }
    let message = format!(
        "{} takes a context off the stack of thread {}, which is empty. {}",
        check.plan.function.name,
        check.call.thread,
        check.answer(),
    );
    drafts.push(Draft::new(
        "context-unbalanced",
        "a context is popped from an empty stack",
        message,
    ));
}
