//! Where a cut trace comes from: entries in its table of facts.

use std::fs::File;
use std::io;
use std::path::Path;

use crate::read::ranges::Ranges;
use crate::read::trace::Trace;

const SOURCE: &str = "cut.source";
const HASH: &str = "cut.source-blake3";
const CHOICE: &str = "cut.choice";
const VERSION: &str = "cut.version";
const CALLS: &str = "cut.calls";
const OF: &str = "cut.source-calls";
const CHANGED: &str = "cut.changed";
const STATE: &str = "cut.state";
const STATE_DRIVER: &str = "cut.state-driver";
const STATE_DEVICES: &str = "cut.state-devices";
const STATE_CALL: &str = "cut.state-call";
const STATE_BYTES: &str = "cut.state-bytes";
/// The value of [`STATE`].
const REPLAY: &str = "replay";

/// Where a cut trace comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Provenance {
    /// The file name of the source, without its folder.
    pub source: String,
    /// The blake3 hash of the source's bytes, in hexadecimal digits.
    pub hash: String,
    /// What was asked for, e.g. `trim --last 10`.
    pub choice: String,
    /// The version of cutape that cut it.
    pub version: String,
    /// The indices of its calls in the source.
    pub calls: Ranges,
    /// How many calls the source has.
    pub of: u64,
    /// Those of its calls that differ from the source in more than notes, by their indices there.
    pub changed: Ranges,
    /// Where its contents of memory are from; `None` if its calls compute them.
    pub state: Option<StateOrigin>,
}

/// The replay that has read what memory held where a part begins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StateOrigin {
    /// The driver, e.g. `CUDA 13.0, libcuda.so.580.65.06`.
    pub driver: String,
    /// Its devices, e.g. `NVIDIA H100 80GB HBM3`.
    pub devices: String,
    /// The call of the source before which memory was read.
    pub call: u64,
    /// Bytes of memory that were read.
    pub bytes: u64,
}

impl Provenance {
    /// What a trace says; `None` if it was not cut.
    pub fn of(trace: &Trace) -> Option<Self> {
        let value = |key| trace.meta_value(key).unwrap_or_default();
        let calls = Ranges::parse(trace.meta_value(CALLS)?)?;
        // A damaged or hostile entry may name more calls than memory holds.
        let limit = trace.path().metadata().map_or(0, |file| file.len());
        let changed = Ranges::parse(value(CHANGED)).unwrap_or_default();
        let most = limit.saturating_mul(64);
        if calls.count() > most || changed.count() > most {
            return None;
        }
        Some(Self {
            calls,
            source: value(SOURCE).to_owned(),
            hash: value(HASH).to_owned(),
            choice: value(CHOICE).to_owned(),
            version: value(VERSION).to_owned(),
            of: value(OF).parse().unwrap_or(0),
            changed,
            state: (value(STATE) == REPLAY).then(|| StateOrigin {
                driver: value(STATE_DRIVER).to_owned(),
                devices: value(STATE_DEVICES).to_owned(),
                call: value(STATE_CALL).parse().unwrap_or(0),
                bytes: value(STATE_BYTES).parse().unwrap_or(0),
            }),
        })
    }

    /// As entries of the table of facts.
    pub fn entries(&self) -> Vec<(String, String)> {
        let mut entries = vec![
            (SOURCE, self.source.clone()),
            (HASH, self.hash.clone()),
            (CHOICE, self.choice.clone()),
            (VERSION, self.version.clone()),
            (CALLS, self.calls.to_string()),
            (OF, self.of.to_string()),
        ];
        if self.changed.count() > 0 {
            entries.push((CHANGED, self.changed.to_string()));
        }
        if let Some(state) = &self.state {
            entries.extend([
                (STATE, REPLAY.to_owned()),
                (STATE_DRIVER, state.driver.clone()),
                (STATE_DEVICES, state.devices.clone()),
                (STATE_CALL, state.call.to_string()),
                (STATE_BYTES, state.bytes.to_string()),
            ]);
        }
        let entries = entries.into_iter();
        entries
            .map(|(key, value)| (key.to_owned(), value))
            .collect()
    }
}

/// The blake3 hash of a file, in hexadecimal digits.
///
/// # Errors
/// Errors of reading.
pub fn file_hash(path: &Path) -> io::Result<String> {
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(File::open(path)?)?;
    Ok(hasher.finalize().to_hex().to_string())
}
