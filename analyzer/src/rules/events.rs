//! Events: times that are not there yet, waits that come before the record, flags.

use cutape_model::{EVENT_DISABLE_TIMING, EVENT_EXTERNAL, EVENT_INTERPROCESS, ObjectId};
use cutape_registry::{Kind, rules};

use super::{Check, Draft, at, code};
use crate::plan::Step;
use crate::state::State;

/// The time between events of which one is not complete.
pub(super) fn elapsed_early(check: &Check<'_, '_>) -> Option<Draft> {
    if check.call.result() != Some(code::NOT_READY) {
        return None;
    }
    let events = check
        .plan
        .steps
        .iter()
        .filter_map(|&(position, step)| match step {
            Step::Use(Kind::Event) => check
                .state
                .objects
                .live(Kind::Event, check.call.argument(position)),
            _ => None,
        });
    let what = "asks for the time between two events before both are complete. It returns no time \
                then, and polling with it does not report errors of the work";
    let title = "elapsed time asked for before the events are complete";
    let draft = check.draft(rules::EVENT_ELAPSED_NOT_COMPLETE, title, what);
    Some(events.fold(draft, Draft::about))
}

/// A record in a stream of another context than the event's.
pub(super) fn record_elsewhere(check: &Check<'_, '_>) -> Option<Draft> {
    if check.call.result() != Some(code::INVALID_HANDLE) {
        return None;
    }
    let event = check.live(Kind::Event)?;
    let home = check.object(event)?.context?;
    let handle = check.plan.effects.stream(check.call)?;
    let current = check.state.contexts.current(check.call.thread).object;
    let stream = match handle {
        0..=2 => current,
        handle => {
            let stream = check.state.objects.live(Kind::Stream, handle)?;
            check.object(stream)?.context
        }
    }?;
    if home == stream {
        return None;
    }
    let what = format!(
        "records {}, which was created in {}, in a stream of {}. An event is recorded only in \
         its own context; a stream of another context may wait for it",
        check.label(event),
        check.label(home),
        check.label(stream),
    );
    let title = "event recorded in a stream of another context";
    let draft = check.draft(rules::EVENT_RECORD_CONTEXT_MISMATCH, title, what);
    Some(draft.object(event).object(home).object(stream))
}

/// Flags that events cannot have, or that this use does not allow.
pub(super) fn flags(check: &Check<'_, '_>) -> Option<Draft> {
    if !check.went_wrong() || check.call.result().is_none() {
        return None;
    }
    let flags = || check.argument("Flags").or_else(|| check.argument("flags"));
    let creates = check.plan.at("phEvent").is_some() && check.plan.at("Flags").is_some();
    let exports = check.plan.at("pHandle").is_some() && check.plan.at("event").is_some();
    let (what, event) = if creates {
        let flags = flags()?;
        if flags & EVENT_INTERPROCESS == 0 || flags & EVENT_DISABLE_TIMING != 0 {
            return None;
        }
        let what = "creates an event with CU_EVENT_INTERPROCESS and without \
                    CU_EVENT_DISABLE_TIMING. Events of several processes cannot have times";
        (what.to_owned(), None)
    } else if exports {
        let event = check.live(Kind::Event)?;
        let created = check.object(event)?.created;
        let flags = check.state.event(event)?.flags?;
        if flags & EVENT_INTERPROCESS != 0 {
            return None;
        }
        let what = format!(
            "exports {}, which {} created without CU_EVENT_INTERPROCESS",
            check.label(event),
            at(created),
        );
        (what, Some(event))
    } else {
        let event = check.live(Kind::Event)?;
        let stream = check.state.ordering.stream?;
        if flags()? & EVENT_EXTERNAL == 0 || check.state.captures.of(stream).is_some() {
            return None;
        }
        let what = "passes the external flag, which makes a node of the graph, for a stream that \
                    does not capture";
        (what.to_owned(), Some(event))
    };
    let title = "event flags that do not fit the use";
    let draft = check.draft(rules::EVENT_FLAGS_MISUSED, title, what);
    Some(event.into_iter().fold(draft, Draft::object))
}

/// An event whose only waits came before its record, or that had none, when it is destroyed.
pub(super) fn waited_early(check: &Check<'_, '_>, drafts: &mut Vec<Draft>) {
    if !check.went_wrong()
        && let Some(id) = check.live(Kind::Event)
    {
        drafts.extend(early_wait(check.state, id, true));
    }
}

/// The same for events that live when the trace ends; of one that `was_cut`, a record may be missing.
pub(super) fn waited_early_at_end(state: &State, was_cut: bool) -> Vec<Draft> {
    let events = state.objects.all_live(Kind::Event).into_iter();
    events
        .filter_map(|id| early_wait(state, id, !was_cut))
        .collect()
}

fn early_wait(state: &State, id: ObjectId, has_ended: bool) -> Option<Draft> {
    if state.records_elsewhere {
        return None;
    }
    let event = state.event(id)?;
    let wait = event.early_wait?;
    if event.waited || event.unobserved || event.interprocess || event.captured.is_some() {
        return None;
    }
    let label = state.label(id);
    let begin = format!("{} lets a stream wait for {label}", at(wait));
    let (title, message, record) = match event.record {
        Some(record) => (
            "stream waits for an event that is recorded only afterwards",
            format!(
                "{begin} before any call had recorded it, so it waits for nothing. {} recorded the \
                 event afterwards, and nothing has waited for it since. A ring of events that is \
                 not full yet looks the same and is correct.",
                at(record),
            ),
            format!("recorded first by {}", at(record)),
        ),
        None if has_ended => (
            "stream waits for an event that is never recorded",
            format!("{begin}, which no call has ever recorded, so it waits for nothing."),
            "never recorded".to_owned(),
        ),
        None => return None,
    };
    let chain = vec![label, format!("waited for by {}", at(wait)), record];
    let draft = Draft::new(rules::EVENT_WAIT_UNRECORDED, title, message);
    Some(draft.about(id).culprit(wait).chain(chain))
}

/// An attachment of managed memory that no driver accepts.
pub(super) fn attachment(check: &Check<'_, '_>) -> Option<Draft> {
    const SINGLE: u64 = 4;
    if check.call.result() != Some(code::INVALID_VALUE) {
        return None;
    }
    let address = check.argument("dptr")?;
    let length = check.argument("length")?;
    let single = check.argument("flags")? & SINGLE != 0;
    let stream = check.plan.effects.stream(check.call)?;
    let id = check.state.memory_at(address);
    let size = id.and_then(|id| check.object(id)).map(|object| object.size);
    let what = if single && stream <= 1 {
        "attaches managed memory to the NULL stream alone. Only a stream of the program can have \
         memory for itself"
            .to_owned()
    } else if length != 0 && size.is_some_and(|size| size != length) {
        format!(
            "attaches {length} bytes of an allocation of {}. The length must be 0 or the whole \
             size",
            size.unwrap_or(0),
        )
    } else {
        return None;
    };
    let title = "managed memory attached to a stream in a way that is not possible";
    let draft = check.draft(rules::MEMORY_MANAGED_STREAM_ATTACHMENT, title, what);
    Some(id.into_iter().fold(draft, Draft::object))
}

/// Managed memory that is allocated without a flag that says to what it is attached.
pub(super) fn unattached(check: &Check<'_, '_>) -> Option<Draft> {
    const GLOBAL_OR_HOST: [u64; 2] = [1, 2];
    let flags = check.argument("flags")? & 0xffff_ffff;
    let is_refused = check.call.result() == Some(code::INVALID_VALUE);
    if !is_refused || GLOBAL_OR_HOST.contains(&flags) {
        return None;
    }
    let what = format!(
        "gets {flags:#x} as `flags`. It must be CU_MEM_ATTACH_GLOBAL or CU_MEM_ATTACH_HOST; there \
         is no default"
    );
    let title = "managed memory allocated without an attachment";
    Some(check.draft(rules::MEMORY_MANAGED_STREAM_ATTACHMENT, title, what))
}
