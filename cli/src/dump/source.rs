//! The calls of a cut trace in its source.

use cutape_format::{Provenance, Ranges, Trace};

/// The index of each call in the source.
pub(super) struct SourceCalls {
    source: String,
    indices: Vec<u64>,
    changed: Ranges,
}

impl SourceCalls {
    /// `None` for a trace that was not cut.
    pub(super) fn of(trace: &Trace) -> Option<Self> {
        let provenance = Provenance::of(trace)?;
        Some(Self {
            source: provenance.source.escape_debug().to_string(),
            indices: provenance.calls.iter().collect(),
            changed: provenance.changed,
        })
    }

    /// The index of a call in the source, the file name of the source, and whether the call was
    /// made smaller.
    pub(super) fn of_call(&self, call: u64) -> Option<(u64, &str, bool)> {
        let index = *self.indices.get(usize::try_from(call).ok()?)?;
        Some((index, &self.source, self.changed.contains(index)))
    }
}
