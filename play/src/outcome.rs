//! How far a program has come, in a file that outlives it however it ends.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use cutape_diff::Masks;
use cutape_format::{Call, Trace};
use serde_json::Value;

use crate::query::{Sort, sort_of};
use crate::unset::add_unset;

/// Bytes of a number.
const WORD: u64 = 8;
/// Behind the numbers; then a line of JSON for each mismatch.
const LINES: u64 = 2 * WORD;

/// Whether a call is one that the program must make in its place.
pub(crate) fn has_effect(call: &Call<'_>) -> bool {
    let function = cutape_registry::function(&call.signature.name);
    function.is_none_or(|function| sort_of(function) == Sort::Effect)
}

/// The recorded calls that the program must make: how many have returned.
pub fn effects(trace: &Trace) -> u64 {
    let calls = trace.calls();
    calls
        .filter(|call| call.leave.is_some() && has_effect(call))
        .count() as u64
}

/// Writes it.
#[derive(Debug)]
pub(crate) struct OutcomeFile(Option<File>);

impl OutcomeFile {
    /// Creates the file; `None` if another process has it, which is then the one that plays.
    pub(crate) fn create(path: Option<&Path>) -> Option<Self> {
        let Some(path) = path else {
            return Some(Self(None));
        };
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(path)
            .ok()?;
        let mut file = Self(Some(file));
        file.set(0, 0);
        Some(file)
    }

    /// Says how many calls were played, and which is the first that the program has not made.
    pub(crate) fn set(&mut self, played: u64, next: u64) {
        if let Some(file) = &self.0 {
            let words = [played, next].map(u64::to_le_bytes).concat();
            // Whoever reads it finds the earlier numbers.
            let _ = file.write_all_at(&words, 0);
        }
    }

    /// Adds a mismatch, or bytes that nothing has set.
    pub(crate) fn add(&mut self, mismatch: &Value) {
        if let Some(file) = &mut self.0 {
            use std::io::Seek;
            let _ = file.seek(io::SeekFrom::End(0));
            let _ = writeln!(file, "{mismatch}");
        }
    }
}

/// What it says.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Calls with an effect that were played.
    pub played: u64,
    /// Index of the first of them that the program has not made.
    pub next: u64,
    /// The mismatches, in the order in which they were found.
    pub mismatches: Vec<Value>,
    /// Bytes of kernel parameters that differed and were to be learned.
    pub unset: Masks,
}

impl Outcome {
    /// Reads the file; `None` if no process has called the driver.
    ///
    /// # Errors
    /// If it exists and cannot be read.
    pub fn read(path: &Path) -> io::Result<Option<Self>> {
        let bytes = match std::fs::read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            bytes => bytes?,
        };
        let (words, _) = bytes.as_chunks::<8>();
        let word = |at: usize| words.get(at).map_or(0, |word| u64::from_le_bytes(*word));
        let lines = bytes.get(LINES as usize..).unwrap_or_default();
        let lines = lines.split(|&byte| byte == b'\n');
        // A line that is not complete is the last of a process that was killed.
        let lines = lines.filter_map(|line| serde_json::from_slice(line).ok());
        let mut unset = Masks::default();
        let mismatches = lines.filter(|line| add_unset(&mut unset, line).is_none());
        Ok(Some(Self {
            played: word(0),
            next: word(1),
            mismatches: mismatches.collect(),
            unset,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let path = std::env::temp_dir().join(format!("cutape-outcome-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        assert!(Outcome::read(&path).expect("no error").is_none());
        let mut file = OutcomeFile::create(Some(&path)).expect("it is new");
        file.set(3, 17);
        file.add(&serde_json::json!({"kind": "arguments"}));
        file.set(4, 18);
        assert!(
            OutcomeFile::create(Some(&path)).is_none(),
            "another process has it"
        );
        let read = Outcome::read(&path).expect("readable").expect("there");
        std::fs::remove_file(&path).expect("removable");
        assert_eq!((read.played, read.next, read.mismatches.len()), (4, 18, 1));
    }
}
