//! Why a flight recorder kept a trace.

use cutape_format::Trace;
use cutape_render::quantity::{count, utc};
use serde::Serialize;

/// What a trace says that `record --keep-last` wrote.
#[derive(Debug, Serialize)]
pub struct KeptFacts {
    /// What happened, in words.
    pub reason: String,
    /// When it was written, in seconds since 1970.
    pub time: u64,
    /// Calls from before the time that is kept, which made and changed what was live then.
    pub earlier_calls: u64,
}

impl KeptFacts {
    pub(super) fn of(trace: &Trace) -> Option<Self> {
        let number = |key| {
            let value = trace.meta_value(key)?;
            value.parse().ok()
        };
        Some(Self {
            reason: trace.meta_value("kept.reason")?.to_owned(),
            time: number("kept.time").unwrap_or(0),
            earlier_calls: number("kept.earlier-calls").unwrap_or(0),
        })
    }

    /// `the mark now, 2026-11-27 12:00:00 UTC; 35 earlier calls`.
    pub fn text(&self) -> String {
        let time = utc(self.time.saturating_mul(1_000_000_000));
        let earlier = count(self.earlier_calls, "earlier call");
        format!("{}, {time}; {earlier}", self.reason)
    }
}
