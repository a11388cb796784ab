//! A call as a line of the list.

use std::fmt::Write as _;

use cutape_analyzer::decode::write_joined;
use cutape_format::Call;

use cutape_format::TraceClock;
use cutape_render::{RenderedCall, Renderer};
use cutape_terminal::output;

/// More characters of arguments than this are not shown in a line.
const LONGEST: usize = 300;
/// Characters of a kernel's name.
const LONGEST_NAME: usize = 48;

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Success,
    /// With the name of the result.
    Failure(String),
    /// It has not returned.
    InFlight,
}

/// A call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) index: u64,
    pub(super) thread: u32,
    /// Nanoseconds since the recording began.
    pub(super) time: Option<u64>,
    pub(super) function: String,
    /// Without parentheses.
    pub(super) arguments: String,
    /// What it returned through pointers.
    pub(super) outputs: String,
    pub(super) outcome: Outcome,
}

impl Row {
    /// Of a call that the renderer has observed.
    pub(super) fn of(renderer: &mut Renderer<'_>, call: &Call<'_>, clock: TraceClock) -> Self {
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
        Self {
            index: call.index,
            thread: call.thread,
            time: clock.since_start(call.ticks),
            function: call.signature.name.to_string(),
            arguments: line(&arguments),
            outputs: line(&outputs(&rendered)),
            outcome: outcome(call, &rendered),
        }
    }

    /// Whether the line contains a text, which is in lower case.
    pub(super) fn contains(&self, text: &str) -> bool {
        let result = match &self.outcome {
            Outcome::Failure(name) => name.as_str(),
            _ => "",
        };
        let parts = [&self.function, &self.arguments, &self.outputs, result];
        parts
            .into_iter()
            .any(|part| part.to_lowercase().contains(text))
            || format!("{}({}) {}", self.function, self.arguments, self.outputs)
                .to_lowercase()
                .contains(text)
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

fn outputs(rendered: &RenderedCall<'_>) -> String {
    let mut text = String::new();
    write_joined(&rendered.decoded.outputs, &mut text, |output, out| {
        out.push_str(output.name);
        if let Some(piece) = output.piece {
            // Writing to a String never fails.
            let _ = write!(out, ".{piece}");
        }
        out.push_str(" = ");
        output.value.write(out);
    });
    text
}

fn line(text: &str) -> String {
    output::printable(&output::shortened(text, LONGEST)).into_owned()
}
