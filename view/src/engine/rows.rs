//! Calls as lines of the list.

use std::ops::ControlFlow;

use cutape_format::{Call, Error, TraceClock};
use cutape_render::{RenderedCall, Renderer};
use cutape_terminal::output;

use super::shared::SharedTrace;
use super::worker::IsCancelled;
use crate::state::reply::Reply;
use crate::state::row::{Outcome, Row};

/// More characters of arguments than this are not shown in a line.
const LONGEST: usize = 300;
/// Characters of a kernel's name.
const LONGEST_NAME: usize = 48;

/// The lines of calls.
pub(super) fn rows(
    shared: &SharedTrace,
    wanted: &[u64],
    is_cancelled: IsCancelled<'_>,
) -> Result<Reply, Error> {
    let trace = shared.trace();
    let clock = TraceClock::of(&trace);
    let segments = shared.segments();
    let mut rows = Vec::new();
    let mut rest = wanted;
    while let Some(&first) = rest.first() {
        // What lies between two checkpoints is read at once.
        let segment = segments.partition_point(|segment| segment.start <= first);
        let end = segments
            .get(segment.max(1) - 1)
            .map_or(u64::MAX, |segment| segment.end);
        let (now, later) = rest.split_at(rest.partition_point(|&call| call < end).max(1));
        rest = later;
        let calls = first..now.last().map_or(first, |last| last + 1);
        let mut each = |renderer: &mut Renderer<'_>, call: &Call<'_>| {
            if now.binary_search(&call.index).is_ok() {
                rows.push(row(renderer, call, clock));
            }
            match is_cancelled() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        };
        match shared.is_far(first) {
            true => shared.read_labelled(&trace, calls, &mut each)?,
            false => shared.read(&trace, calls, &mut each)?,
        }
    }
    Ok(Reply::Rows(rows))
}

/// The line of a call that the renderer has observed.
pub(super) fn row(renderer: &mut Renderer<'_>, call: &Call<'_>, clock: TraceClock) -> Row {
    let rendered = renderer.render(call);
    let mut arguments = String::new();
    match &rendered.launch {
        // The kernel's name comes first, so that it is on the screen.
        Some(launch) if launch.kernel_name().is_some() => {
            let name = launch.kernel_name().unwrap_or_default();
            arguments.push_str(&output::without_middle(&name, LONGEST_NAME));
            arguments.push_str(", ");
            launch.write_shape(&mut arguments);
        }
        _ => rendered.write_inputs_first(&mut arguments),
    }
    let mut outputs = String::new();
    rendered.write_outputs(&mut outputs);
    Row {
        index: call.index,
        thread: call.thread,
        time: clock.since_start(call.ticks),
        function: call.signature.name.to_string(),
        arguments: line(&arguments),
        outputs: line(&outputs),
        outcome: outcome(call, &rendered),
    }
}

/// How a call ended.
pub(super) fn outcome(call: &Call<'_>, rendered: &RenderedCall<'_>) -> Outcome {
    match (call.result(), &rendered.result) {
        (None, _) => Outcome::InFlight,
        // A function that returns another type than CUresult does not fail.
        (Some(0), _) | (Some(_), None) => Outcome::Success,
        (Some(_), Some(name)) => Outcome::Failure(name.clone()),
    }
}

fn line(text: &str) -> String {
    output::printable(&output::shortened(text, LONGEST)).into_owned()
}
