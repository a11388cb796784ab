//! Where a cut trace comes from.

use cutape_format::{Provenance, Trace};
use serde::Serialize;

use cutape_render::quantity;

/// The source of a trace that `trim` or `minimize` wrote.
#[derive(Debug, Serialize)]
pub struct CutFacts {
    /// Its file name.
    pub source: String,
    /// Of its bytes.
    pub source_blake3: String,
    /// How many calls it has.
    pub source_calls: u64,
    /// What was asked for.
    pub choice: String,
    /// The version of cutape that cut it.
    pub version: String,
    /// The indices of the calls in the source, as ranges without their ends.
    pub calls: String,
    /// Those of which arguments or bytes were made smaller.
    pub changed: String,
    #[serde(skip)]
    changed_count: u64,
    /// The replay that has read what memory held where the part begins.
    pub state: Option<StateFacts>,
}

/// A replay that has read memory.
#[derive(Debug, Serialize)]
pub struct StateFacts {
    /// Its driver.
    pub driver: String,
    /// The devices.
    pub devices: String,
    /// The call of the source before which memory was read.
    pub call: u64,
    /// Bytes of memory that were read.
    pub bytes: u64,
}

impl CutFacts {
    pub(super) fn of(trace: &Trace) -> Option<Self> {
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
            state: found.state.map(|state| StateFacts {
                driver: state.driver,
                devices: state.devices,
                call: state.call,
                bytes: state.bytes,
            }),
        })
    }

    /// For people: `app.cutape, by trim --last 5: 11 of 43 calls`.
    pub fn text(&self, calls: u64) -> String {
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

impl StateFacts {
    /// For people: `12 MiB before call 57 of the source, by a replay on CUDA 13.0, ...; NVIDIA H100`.
    pub fn text(&self) -> String {
        let (driver, devices) = (self.driver.escape_debug(), self.devices.escape_debug());
        format!(
            "{} before call {} of the source, by a replay on {driver}; {devices}",
            quantity::bytes(self.bytes),
            self.call
        )
    }
}
