//! Whether a trace has all calls of its program.

use cutape_format::Trace;
use serde::Serialize;

use crate::quantity;

/// Whether a trace has all calls of its program; as it is in JSON output.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Completeness {
    /// The program was still running when the trace was read.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub still_recording: bool,
    /// The recording ended early, so that calls are missing: why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_early: Option<String>,
    /// Other parts, such as call stacks, are missing: why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lacks_parts: Option<String>,
    /// Recording was paused: what was left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_out: Option<CallsLeftOut>,
}

/// What a recorder left out because it was paused; as it is in JSON output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CallsLeftOut {
    /// Calls of all threads.
    pub calls: u64,
    /// How often recording was paused.
    pub pauses: u64,
    /// It was paused at the end.
    pub paused_at_end: bool,
}

impl Completeness {
    /// Of a trace.
    pub fn of(trace: &Trace) -> Self {
        let shortfall = trace.shortfall();
        let (calls, parts) = match shortfall {
            Some(shortfall) if shortfall.lacks_calls => (Some(shortfall.why), None),
            Some(shortfall) => (None, Some(shortfall.why)),
            None => (None, None),
        };
        Self {
            still_recording: trace.is_still_recorded(),
            ended_early: calls,
            lacks_parts: parts,
            left_out: trace.left_out().map(|left_out| CallsLeftOut {
                calls: left_out.calls,
                pauses: left_out.pauses.into(),
                paused_at_end: left_out.is_paused,
            }),
        }
    }

    /// Joins that of another trace, where several are read together.
    pub fn join(&mut self, other: Self) {
        self.still_recording |= other.still_recording;
        self.ended_early = self.ended_early.take().or(other.ended_early);
        self.lacks_parts = self.lacks_parts.take().or(other.lacks_parts);
        if let Some(other) = other.left_out {
            let own = self.left_out.get_or_insert_default();
            own.calls = own.calls.saturating_add(other.calls);
            own.pauses += other.pauses;
            own.paused_at_end |= other.paused_at_end;
        }
    }

    /// That the recording ended early.
    pub fn end_line(&self) -> Option<String> {
        let why = self.ended_early.as_ref()?;
        Some(format!(
            "the recording ended early, later calls are missing: {why}"
        ))
    }

    /// What to say about it, for people.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::from_iter(self.end_line());
        if let Some(why) = &self.lacks_parts {
            lines.push(format!(
                "some call stacks, markers or facts about the machine are missing: {why}"
            ));
        }
        if let Some(left_out) = self.left_out {
            let times = match left_out.pauses {
                1 => "once".to_owned(),
                pauses => format!("{pauses} times"),
            };
            let end = if left_out.paused_at_end {
                ", the last time until the end"
            } else {
                ""
            };
            lines.push(format!(
                "recording was paused {times}{end}; {} that only gave the device work, waited or \
                 asked are missing",
                quantity::count(left_out.calls, "call"),
            ));
        }
        if self.still_recording {
            lines.push("still recording; this is the trace as it is now".to_owned());
        }
        lines
    }

    /// Adds the members to a JSON object.
    pub fn add_to(&self, object: &mut serde_json::Value) {
        if let (Some(object), serde_json::Value::Object(members)) =
            (object.as_object_mut(), serde_json::json!(self))
        {
            object.extend(members);
        }
    }
}
