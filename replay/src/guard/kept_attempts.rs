//! What is kept of a replay, so that the next one of the same traces begins with what fitted.

use std::fs;
use std::io;
use std::path::Path;

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

/// The attempt that one trace was replayed with.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct KeptAttempt {
    /// How many calls the trace has: lessons are about calls of that trace.
    calls: u64,
    assignment: Assignment,
    randomise: bool,
}

impl KeptAttempts {
    /// What an earlier replay has kept; `None` if there is no file yet.
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
        serde_json::from_str(&text).map_err(|error| failed(&error))
    }

    pub(crate) fn of_trace(calls: u64, attempt: &Attempt) -> Self {
        Self::OfTrace(KeptAttempt::of(calls, attempt))
    }

    /// Of ranks: the calls of each trace, and the attempt.
    pub(crate) fn of_ranks<'a>(ranks: impl Iterator<Item = (u64, &'a Attempt)>) -> Self {
        let kept = ranks.map(|(calls, attempt)| KeptAttempt::of(calls, attempt));
        Self::OfRanks(kept.collect())
    }

    /// The attempt for a trace, or for one of the ranks (its number, and how many there are). `None`
    /// if the file is about another trace or strategy.
    pub(crate) fn attempt(
        &self,
        rank: Option<(usize, usize)>,
        calls: u64,
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
        (kept.calls == calls && is_chosen)
            .then(|| Attempt::again(kept.assignment.clone(), kept.randomise, guard))
    }

    /// Keeps them for the next replay.
    pub(crate) fn write(&self, guard: &Guard) -> Result<(), Error> {
        let Some(path) = &guard.keep_placement else {
            return Ok(());
        };
        let failed = |why: &dyn ToString| failed(path, "cannot be written", why);
        let text = serde_json::to_string_pretty(self).map_err(|error| failed(&error))?;
        fs::write(path, text + "\n").map_err(|error| failed(&error))
    }
}

impl KeptAttempt {
    fn of(calls: u64, attempt: &Attempt) -> Self {
        Self {
            calls,
            assignment: attempt.assignment.clone(),
            randomise: attempt.randomise,
        }
    }
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
    use crate::place::lesson::Lesson;
    use crate::place::strategy::PlacementStrategy;

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
            attempt
        };
        let lessons = |rank, calls, placement| {
            let guard = guard(placement);
            let kept = KeptAttempts::read(&guard).unwrap().unwrap();
            let attempt = kept.attempt(rank, calls, &guard)?;
            Some(attempt.assignment.lessons)
        };
        let (first, second) = (attempt_at(3), attempt_at(5));
        KeptAttempts::of_trace(7, &first).write(&any).unwrap();
        let natural = Some(PlacementStrategy::Natural);
        let granules = Some(PlacementStrategy::Granules);
        for (rank, calls, placement, is_kept) in [
            (None, 7, None, true),
            (None, 7, natural, true),
            (None, 7, granules, false),
            (None, 8, None, false),
            (Some((0, 1)), 7, None, false),
        ] {
            let expected = is_kept.then(|| first.assignment.lessons.clone());
            let kept = lessons(rank, calls, placement);
            assert_eq!(kept, expected, "{rank:?} {calls} {placement:?}");
        }
        let ranks = [(7, &first), (9, &second)];
        KeptAttempts::of_ranks(ranks.into_iter())
            .write(&any)
            .unwrap();
        for (rank, calls, expected) in [
            (Some((0, 2)), 7, Some(&first)),
            (Some((1, 2)), 9, Some(&second)),
            (Some((1, 2)), 7, None),
            (Some((0, 3)), 7, None),
            (None, 7, None),
        ] {
            let expected = expected.map(|attempt| attempt.assignment.lessons.clone());
            assert_eq!(lessons(rank, calls, natural), expected, "{rank:?} {calls}");
        }
        fs::write(&path, "{").unwrap();
        let error = KeptAttempts::read(&any).unwrap_err().to_string();
        assert!(error.contains("cannot be read"), "{error}");
        fs::remove_dir_all(&folder).unwrap();
    }
}
