//! The context of a launch: that of its stream, and of its function.

use cutape_registry::{Kind, is_default_stream, rules};

use super::Refused;
use crate::rules::{Draft, code};

/// A function of another context than the one that the stream, or the thread, is in.
pub(super) fn elsewhere(refused: &Refused<'_, '_>) -> Option<Draft> {
    let check = refused.check;
    let stream = refused.launch.stream?;
    // A kernel is not bound to a context.
    let function = refused.function.and_then(|id| check.object(id));
    let home = function
        .filter(|object| object.kind == Kind::Function)
        .and_then(|object| object.context);
    if is_default_stream(stream) {
        return on_default_stream(refused, home);
    }
    let (home, theirs) = (home?, check.state.stream_context(stream)?);
    if home == theirs {
        return None;
    }
    let id = check.state.objects.live(Kind::Stream, stream)?;
    let what = format!(
        "launches {}, which belongs to {}{}, in {}, which belongs to {}{}. A function can be \
         launched only in streams of its own context; get it from a module that is loaded into the \
         stream's context, or use a kernel of a library",
        refused.label(),
        check.label(home),
        on_device(refused, home),
        check.label(id),
        check.label(theirs),
        on_device(refused, theirs),
    );
    let title = "function launched in a stream of another context";
    let rule = rules::EXEC_STREAM_CONTEXT_MISMATCH;
    Some(
        refused
            .draft(rule, title, what)
            .object(id)
            .object(home)
            .object(theirs),
    )
}

fn on_default_stream(
    refused: &Refused<'_, '_>,
    home: Option<cutape_model::ObjectId>,
) -> Option<Draft> {
    let check = refused.check;
    let rule = rules::EXEC_NULL_STREAM_CONTEXT;
    if check.has_no_context() {
        if check.call.result() != Some(code::INVALID_CONTEXT) {
            return None;
        }
        let what = format!(
            "launches {} in a default stream, which is the one of the current context, but thread \
             {} has no current context",
            refused.label(),
            check.call.thread,
        );
        let title = "launch in the default stream of no context";
        return Some(refused.draft(rule, title, what));
    }
    let current = check.state.contexts.current(check.call.thread).object?;
    let home = home.filter(|&home| home != current)?;
    let what = format!(
        "launches {} in a default stream of {}{}, which is current in thread {}, but the function \
         belongs to {}{}. Make its context current, or get the function from a module that is \
         loaded into this one",
        refused.label(),
        check.label(current),
        on_device(refused, current),
        check.call.thread,
        check.label(home),
        on_device(refused, home),
    );
    let title = "function of another context launched in the default stream";
    Some(
        refused
            .draft(rule, title, what)
            .object(current)
            .object(home),
    )
}

/// ` (device 1)`.
fn on_device(refused: &Refused<'_, '_>, context: cutape_model::ObjectId) -> String {
    let device = refused.check.state.device_of(context);
    device.map_or(String::new(), |device| format!(" (device {device})"))
}
