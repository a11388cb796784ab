//! Where a cut trace comes from.

use cutape_cut::Provenance;
use cutape_format::Trace;
use serde::Serialize;

/// The source of a trace that `trim` or `minimize` wrote.
#[derive(Debug, Serialize)]
pub(crate) struct CutFacts {
    /// Its file name.
    pub(crate) source: String,
    /// Of its bytes.
    pub(crate) source_blake3: String,
    /// How many calls it has.
    pub(crate) source_calls: u64,
    /// What was asked for.
    pub(crate) choice: String,
    /// The version of cutape that cut it.
    pub(crate) version: String,
    /// The indices of the calls in the source, as ranges without their ends.
    pub(crate) calls: String,
    /// Those of which arguments or bytes were made smaller.
    pub(crate) changed: String,
    #[serde(skip)]
    changed_count: u64,
}

impl CutFacts {
    pub(crate) fn of(trace: &Trace) -> Option<Self> {
        let found = Provenance::of(trace)?;
        Some(Self {
            source: found.source,
            source_blake3: found.hash,
            source_calls: found.of,
            choice: found.choice,
            version: found.version,
            calls: found.calls.to_string(),
            changed: found.changed.to_string(),
            changed_count: found.changed.count(),
        })
    }

    /// For people: `app.cutape, by trim --last 5: 11 of 43 calls`.
    pub(crate) fn text(&self, calls: u64) -> String {
        let (source, choice) = (self.source.escape_debug(), self.choice.escape_debug());
        let changed = match self.changed_count {
            0 => String::new(),
            count => format!(", {count} of them made smaller"),
        };
        format!(
            "{source}, by {choice}: {calls} of {} calls{changed}",
            self.source_calls
        )
    }
}
