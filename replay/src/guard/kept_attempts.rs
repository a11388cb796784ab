//! What is kept of a replay, so that the next one of the same traces begins with what fitted.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use cutape_format::{TemporaryFile, Trace};
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::guard::attempt::{Assignment, Attempt, Guard};

/// The attempts that a replay ended with, in the file of [`Guard::keep_placement`].
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum KeptAttempts {
    OfTrace(KeptAttempt),
    /// In the order of the ranks.
    OfRanks(Vec<KeptAttempt>),
}

/// Which trace an attempt was for: lessons are about its calls. Another recording of the program has
/// other addresses, a part of this one other numbers of calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TraceIdentity {
    process: u32,
    /// Nanoseconds since 1970.
    start_unix: u64,
    start_ticks: u64,
    calls: u64,
}

impl TraceIdentity {
    pub(crate) fn of(trace: &Trace) -> Self {
        let head = trace.head();
        let count = || trace.calls().count() as u64;
        Self {
            process: head.process,
            start_unix: head.start_unix,
            start_ticks: head.start_ticks,
            calls: trace.counted_calls().unwrap_or_else(count),
        }
    }
}

/// The attempt that one trace was replayed with.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct KeptAttempt {
    trace: TraceIdentity,
    assignment: Assignment,
    randomise: bool,
}

impl KeptAttempts {
    /// What an earlier replay has kept; `None` if there is no file yet, or one that is cut off or of
    /// another version: it is replaced.
    pub(crate) fn read(guard: &Guard) -> Result<Option<Self>, Error> {
        let Some(path) = &guard.keep_placement else {
            return Ok(None);
        };
        let failed = |why: &dyn ToString| failed(path, "cannot be read", why);
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(&error)),
        };
        match serde_json::from_str(&text) {
            Ok(kept) => Ok(Some(kept)),
            Err(error) if text.is_empty() || text.starts_with(['{', '[']) => {
                let path = path.display();
                (guard.tell)(&format!(
                    "{path}: not used, and replaced: no kept placement of this version: {error}"
                ));
                Ok(None)
            }
            // It may be a file of the user's.
            Err(error) => Err(failed(&error)),
        }
    }

    pub(crate) fn of_trace(trace: TraceIdentity, attempt: &Attempt) -> Self {
        Self::OfTrace(KeptAttempt::of(trace, attempt))
    }

    /// Of ranks: the trace of each, and the attempt.
    pub(crate) fn of_ranks<'a>(ranks: impl Iterator<Item = (TraceIdentity, &'a Attempt)>) -> Self {
        let kept = ranks.map(|(trace, attempt)| KeptAttempt::of(trace, attempt));
        Self::OfRanks(kept.collect())
    }

    /// The attempt for a trace, or for one of the ranks (its number, and how many there are). `None`
    /// if the file is about another trace or strategy.
    pub(crate) fn attempt(
        &self,
        rank: Option<(usize, usize)>,
        trace: &TraceIdentity,
        guard: &Guard,
    ) -> Option<Attempt> {
        let kept = match (self, rank) {
            (Self::OfTrace(kept), None) => kept,
            (Self::OfRanks(kept), Some((number, count))) if kept.len() == count => {
                kept.get(number)?
            }
            _ => return None,
        };
        let is_chosen = guard
            .placement
            .is_none_or(|strategy| strategy == kept.assignment.strategy);
        (kept.trace == *trace && is_chosen)
            .then(|| Attempt::again(kept.assignment.clone(), kept.randomise, guard))
    }

    /// Keeps them for the next replay. A file is replaced in one step.
    pub(crate) fn write(&self, guard: &Guard) -> Result<(), Error> {
        let Some(path) = &guard.keep_placement else {
            return Ok(());
        };
        let failed = |why: &dyn ToString| failed(path, "cannot be written", why);
        let text = serde_json::to_string_pretty(self).map_err(|error| failed(&error))?;
        write_whole(path, &(text + "\n")).map_err(|error| failed(&error))
    }
}

impl KeptAttempt {
    fn of(trace: TraceIdentity, attempt: &Attempt) -> Self {
        Self {
            trace,
            assignment: attempt.assignment.clone(),
            randomise: attempt.randomise,
        }
    }
}

/// Replaces a file, or that which a link names; a device is written to.
fn write_whole(path: &Path, text: &str) -> io::Result<()> {
    let target = match fs::canonicalize(path) {
        Ok(target) if !target.is_file() => return fs::write(target, text),
        Ok(target) => target,
        Err(_) => path.to_owned(),
    };
    let new = TemporaryFile::beside(&target)?;
    new.file().write_all(text.as_bytes())?;
    new.replace(&target)
}

fn failed(path: &Path, what: &str, why: &dyn ToString) -> Error {
    Error::KeptPlacement {
        path: path.to_owned(),
        what: what.to_owned().into(),
        why: why.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::lesson::Lesson;
    use crate::process::strategy::PlacementStrategy;
    use crate::report::Report;

    #[test]
    fn attempts_are_kept_for_their_traces_and_strategy() {
        let folder = std::env::temp_dir().join(format!("cutape-kept-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("placement.json");
        let guard = |placement| Guard {
            placement,
            keep_placement: Some(path.clone()),
            ..Guard::default()
        };
        let any = guard(None);
        assert!(KeptAttempts::read(&any).unwrap().is_none(), "no file");
        let attempt_at = |call| {
            let mut attempt = Attempt::first(PlacementStrategy::Natural, &any);
            attempt.assignment.lessons.push(Lesson {
                call,
                above: Some(4096),
                filled: Vec::new(),
            });
            // Twice in the same report, as after a second replay.
            for launches in [vec![call + 2, call], vec![call]] {
                attempt.learn(&Report {
                    waiting_launches: launches,
                    ..Report::default()
                });
            }
            attempt
        };
        let identity = |calls, start_ticks| TraceIdentity {
            process: 42,
            start_unix: 1_700_000_000_000_000_000,
            start_ticks,
            calls,
        };
        let lessons = |rank, (calls, ticks), placement| {
            let guard = guard(placement);
            let kept = KeptAttempts::read(&guard).unwrap().unwrap();
            let attempt = kept.attempt(rank, &identity(calls, ticks), &guard)?;
            let Assignment {
                lessons,
                waiting_launches,
                ..
            } = attempt.assignment;
            Some((lessons, waiting_launches))
        };
        let (first, second) = (attempt_at(3), attempt_at(5));
        assert_eq!(first.assignment.waiting_launches, [3, 5]);
        let known = |attempt: &Attempt| {
            let Assignment {
                lessons,
                waiting_launches,
                ..
            } = attempt.assignment.clone();
            (lessons, waiting_launches)
        };
        KeptAttempts::of_trace(identity(7, 1), &first)
            .write(&any)
            .unwrap();
        let natural = Some(PlacementStrategy::Natural);
        let granules = Some(PlacementStrategy::Granules);
        for (rank, calls, placement, is_kept) in [
            (None, (7, 1), None, true),
            (None, (7, 1), natural, true),
            (None, (7, 1), granules, false),
            (None, (8, 1), None, false),
            (None, (7, 2), None, false),
            (Some((0, 1)), (7, 1), None, false),
        ] {
            let expected = is_kept.then(|| known(&first));
            let kept = lessons(rank, calls, placement);
            assert_eq!(kept, expected, "{rank:?} {calls:?} {placement:?}");
        }
        let ranks = [(identity(7, 1), &first), (identity(9, 1), &second)];
        KeptAttempts::of_ranks(ranks.into_iter())
            .write(&any)
            .unwrap();
        for (rank, calls, expected) in [
            (Some((0, 2)), (7, 1), Some(&first)),
            (Some((1, 2)), (9, 1), Some(&second)),
            (Some((1, 2)), (7, 1), None),
            (Some((0, 3)), (7, 1), None),
            (None, (7, 1), None),
        ] {
            let expected = expected.map(known);
            assert_eq!(
                lessons(rank, calls, natural),
                expected,
                "{rank:?} {calls:?}"
            );
        }
        for cut in ["", "{", "[{}]"] {
            fs::write(&path, cut).unwrap();
            assert!(KeptAttempts::read(&any).unwrap().is_none(), "{cut:?}");
        }
        fs::write(&path, "# Notes\n").unwrap();
        let error = KeptAttempts::read(&any).unwrap_err().to_string();
        assert!(error.contains("cannot be read"), "{error}");
        let link = folder.join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        write_whole(&link, "new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2, "nothing is left");
        fs::remove_dir_all(&folder).unwrap();
    }
}
