//! Stream captures: calls that a capture forbids, forks that are not joined, captures that are not
//! ended. The driver detects these; the rules say which capture, stream and event are concerned.

use cutape_model::{Capture, ObjectId, Site};
use cutape_registry::{EventOp, Family, Kind, StreamOp, Waits, rules};

use super::{Check, Draft, at, code};
use crate::state::State;

/// CU_STREAM_CAPTURE_MODE_GLOBAL.
const GLOBAL: u32 = 0;

/// A call that the driver refused because of a capture.
pub(super) fn refused(check: &Check<'_, '_>) -> Option<Draft> {
    let result = check.call.result()?;
    let family = check.family();
    // The first call that breaks a capture leads.
    let broken = concerned(check)
        .is_some_and(|capture| check.state.broken_captures.contains(&capture.begun.index));
    if broken {
        return None;
    }
    match result {
        code::CAPTURE_UNSUPPORTED if asks_captured_work(check) => waited(check),
        // The rule about times says which event has none.
        code::CAPTURED_EVENT if family != Family::Event(EventOp::ElapsedTime) => waited(check),
        code::CAPTURE_UNSUPPORTED => forbidden(check),
        code::CAPTURE_UNJOINED => unjoined(check),
        code::CAPTURE_MERGE | code::CAPTURE_ISOLATION => crossing(check),
        // A query leaves the capture as it is.
        code::CAPTURE_IMPLICIT
            if !asks(check) && family != Family::Stream(StreamOp::BeginCapture) =>
        {
            legacy(check)
        }
        code::CAPTURE_UNMATCHED | code::CAPTURE_WRONG_THREAD => bracket(check),
        code::ILLEGAL_STATE
            if matches!(
                family,
                Family::Stream(StreamOp::EndCapture | StreamOp::BeginCapture)
            ) =>
        {
            bracket(check)
        }
        code::CAPTURE_IMPLICIT | code::INVALID_VALUE
            if family == Family::Stream(StreamOp::BeginCapture) =>
        {
            bracket(check)
        }
        _ => None,
    }
}

/// True for a call that asks about a capture.
fn asks(check: &Check<'_, '_>) -> bool {
    matches!(check.family(), Family::Stream(StreamOp::CaptureInfo { .. }))
        || check.plan.at("captureStatus").is_some()
}

/// The event that a call names, if it was recorded last in a capture.
fn captured_event(check: &Check<'_, '_>) -> Option<(ObjectId, Site)> {
    let id = check.live(Kind::Event)?;
    Some((id, check.state.event(id)?.captured_by()?))
}

/// True for a call that waits for captured work, or asks whether it is complete. Waits for other
/// work are calls that a capture may forbid.
fn asks_captured_work(check: &Check<'_, '_>) -> bool {
    let captures = &check.state.captures;
    match check.plan.function.waits {
        Waits::No => false,
        Waits::Event(_) => captured_event(check).is_some(),
        Waits::Stream(_) => {
            let stream = check.state.ordering.stream;
            stream.is_some_and(|stream| captures.of(stream).is_some())
        }
        Waits::Context => {
            let named = check.plan.handle_of(check.call, Kind::Context);
            let current = check.state.contexts.current(check.call.thread).handle;
            let context = named.filter(|&named| named != 0).unwrap_or(current);
            captures.iter().any(|capture| capture.context == context)
        }
    }
}

/// A question about an event that was recorded in a capture which has ended. The driver refuses it
/// with INVALID_VALUE (NVIDIA/warp#556 and #983).
pub(super) fn asked_after(check: &Check<'_, '_>) -> Option<Draft> {
    (check.call.result() == Some(code::INVALID_VALUE)).then_some(())?;
    captured_event(check).and_then(|_| waited(check))
}

/// The capture that a call is most likely refused for.
fn concerned<'s>(check: &Check<'s, '_>) -> Option<&'s Capture> {
    check.state.concerned_capture(check.call.thread)
}

/// The capture in words.
fn described(capture: &Capture) -> String {
    let mode = match capture.mode {
        GLOBAL => "global",
        1 => "thread-local",
        _ => "relaxed",
    };
    format!(
        "the capture that {} began in thread {} ({mode} mode)",
        at(capture.begun),
        capture.thread,
    )
}

fn draft(check: &Check<'_, '_>, rule: &'static str, title: &str, what: String) -> Draft {
    let mut chain = Vec::new();
    if let Some(capture) = concerned(check) {
        chain.push(format!("capture begun by {}", at(capture.begun)));
    }
    chain.push(format!(
        "{} returned {}",
        at(check.site),
        check.result_name()
    ));
    check.draft(rule, title, what).chain(chain)
}

fn forbidden(check: &Check<'_, '_>) -> Option<Draft> {
    let capture = concerned(check)?;
    let elsewhere = match capture.thread == check.call.thread {
        true => String::new(),
        false => format!(
            "It is called in thread {}; a capture in global mode forbids such calls in all \
             threads. ",
            check.call.thread,
        ),
    };
    let what = format!(
        "cannot be captured, and is called while {} is open. {elsewhere}That capture is now \
         invalid",
        described(capture),
    );
    let title = "call that an open stream capture forbids";
    Some(draft(
        check,
        rules::STREAM_CAPTURE_FORBIDDEN_CALL,
        title,
        what,
    ))
}

fn waited(check: &Check<'_, '_>) -> Option<Draft> {
    let event = captured_event(check);
    let what = match (event, concerned(check)) {
        (Some((id, record)), _) => format!(
            "waits for {}, which {} recorded last while its stream was capturing. Captured work \
             does not run, so the event never completes",
            check.label(id),
            at(record),
        ),
        (_, Some(capture)) => format!(
            "waits for work while {} is open. Captured work does not run, so there is nothing to \
             wait for",
            described(capture),
        ),
        _ => return None,
    };
    let title = "wait for work that is captured and does not run";
    let found = draft(check, rules::STREAM_CAPTURE_WAIT_ON_CAPTURED, title, what);
    Some(
        event
            .into_iter()
            .fold(found, |found, (id, _)| found.object(id)),
    )
}

fn unjoined(check: &Check<'_, '_>) -> Option<Draft> {
    let capture = concerned(check)?;
    let forks: Vec<String> = capture
        .unjoined()
        .map(|(fork, last)| {
            format!(
                "the stream that {} brought in, whose last captured work is {}",
                at(fork.joined),
                at(last.site),
            )
        })
        .collect();
    let forks = match forks.is_empty() {
        true => "a stream that an event brought in".to_owned(),
        false => forks.join("; "),
    };
    let what = format!(
        "ends {}, but its stream does not wait for all work of the capture. Missing: {forks}. \
         The graph is lost",
        described(capture),
    );
    let title = "stream capture ended before its other streams were joined";
    Some(draft(check, rules::STREAM_CAPTURE_UNJOINED, title, what))
}

fn crossing(check: &Check<'_, '_>) -> Option<Draft> {
    let event = check.live(Kind::Event);
    let record = event.and_then(|id| check.state.event(id)?.record);
    let record = record.map_or_else(String::new, |site| {
        format!(", recorded last by {},", at(site))
    });
    let event_label = event.map_or_else(|| "an event".to_owned(), |id| check.label(id));
    let what = match check.call.result() {
        Some(code::CAPTURE_MERGE) => format!(
            "would join two separate captures: {event_label}{record} belongs to another capture \
             than the stream",
        ),
        _ => format!(
            "makes a capture depend on work outside it: {event_label}{record} and the stream are \
             not in the same capture. The capture is now invalid",
        ),
    };
    let title = "dependency between a stream capture and work outside it";
    let found = draft(check, rules::STREAM_CAPTURE_CROSS_DEPENDENCY, title, what);
    Some(event.into_iter().fold(found, Draft::object))
}

fn legacy(check: &Check<'_, '_>) -> Option<Draft> {
    let capture = concerned(check)?;
    let what = format!(
        "uses the legacy default stream while {} is open in a blocking stream. The default stream \
         would wait for the captured work, so the capture is now invalid",
        described(capture),
    );
    let title = "legacy default stream used during the capture of a blocking stream";
    Some(draft(
        check,
        rules::STREAM_CAPTURE_LEGACY_STREAM,
        title,
        what,
    ))
}

fn bracket(check: &Check<'_, '_>) -> Option<Draft> {
    let begins = check.family() == Family::Stream(StreamOp::BeginCapture);
    let captures = &check.state.captures;
    let stream = check.plan.effects.stream(check.call);
    let own = check
        .state
        .ordering
        .stream
        .and_then(|stream| captures.of(stream));
    let what = match (begins, own, check.call.result()) {
        (true, Some(capture), _) => format!(
            "begins a capture in a stream that already takes part in {}",
            described(capture),
        ),
        (true, None, _) if stream.is_some_and(|handle| handle < 2) => {
            "begins a capture in the legacy default stream, which cannot be captured".to_owned()
        }
        (true, ..) => return None,
        (false, Some(capture), Some(code::CAPTURE_WRONG_THREAD)) => format!(
            "ends {} in thread {}. Only a relaxed capture may be ended by another thread",
            described(capture),
            check.call.thread,
        ),
        (false, Some(capture), _) => format!(
            "ends {} in a stream that did not begin it. The capture stays open",
            described(capture),
        ),
        (false, None, _) => {
            let open = captures
                .iter()
                .next()
                .map(|capture| format!(". Still open: {}", described(capture)));
            format!(
                "ends a capture in a stream that does not capture{}",
                open.unwrap_or_default()
            )
        }
    };
    let title = "stream capture begun or ended in the wrong place";
    Some(draft(check, rules::STREAM_CAPTURE_BRACKET, title, what))
}

/// A stream that is destroyed while its capture is open.
pub(super) fn open_at_destroy(check: &Check<'_, '_>) -> Option<Draft> {
    if check.went_wrong() {
        return None;
    }
    let id = check.live(Kind::Stream)?;
    let stream = check.state.ordering.stream?;
    let capture = check.state.captures.of(stream)?;
    (capture.origin() == stream).then(|| {
        let what = format!(
            "destroys {} while {} is open in it. The captured work is lost",
            check.label(id),
            described(capture),
        );
        let title = "stream destroyed during its capture";
        draft(check, rules::STREAM_CAPTURE_BRACKET, title, what).object(id)
    })
}

/// Captures that are open when the trace ends.
pub(super) fn open_at_end(state: &State) -> Vec<Draft> {
    let drafts = state.captures.iter().map(|capture| {
        let message = format!(
            "{} was never ended: the captured work was lost when the program ended.",
            described(capture),
        );
        let mut message = message;
        if let Some(first) = message.get_mut(..1) {
            first.make_ascii_uppercase();
        }
        let title = "stream capture begun and never ended";
        let chain = vec![format!("capture begun by {}", at(capture.begun))];
        Draft::new(rules::STREAM_CAPTURE_BRACKET, title, message).chain(chain)
    });
    drafts.collect()
}
