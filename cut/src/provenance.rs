//! Where a cut trace comes from: entries in its table of facts.

use std::fs::File;
use std::io;
use std::path::Path;

use cutape_format::Trace;

use crate::ranges::Ranges;

const SOURCE: &str = "cut.source";
const HASH: &str = "cut.source-blake3";
const CHOICE: &str = "cut.choice";
const VERSION: &str = "cut.version";
const CALLS: &str = "cut.calls";
const OF: &str = "cut.source-calls";
const CHANGED: &str = "cut.changed";

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
        let entries = entries.into_iter();
        entries
            .map(|(key, value)| (key.to_owned(), value))
            .collect()
    }
}

/// The blake3 hash of a trace's file, in hexadecimal digits.
///
/// # Errors
/// Errors of reading.
pub fn source_hash(trace: &Trace) -> io::Result<String> {
    file_hash(trace.path())
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
