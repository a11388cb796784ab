//! Which child is tried next: how it places memory, and what was kept of an earlier replay.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::process::lesson::{Lesson, Misplaced};
use crate::process::strategy::PlacementStrategy;
use crate::report::Report;

/// How many children are tried with the driver placing memory.
const NATURAL_ATTEMPTS: u32 = 4;
/// So many more may find the place of program memory taken, each of other memory.
const MORE_FOR_PROGRAM_MEMORY: usize = 8;

/// How to guard a replay.
#[derive(Clone, Debug)]
pub struct Guard {
    /// How many children are tried until every address range is free; the last one falls back to
    /// translation.
    pub attempts: u32,
    /// How long one call may take; the child is killed then.
    pub watchdog: Duration,
    /// How memory comes to lie at its recorded address. `None`: the driver places it if the trace
    /// says how the process's address space was; where that does not suffice, by granules.
    pub placement: Option<PlacementStrategy>,
    /// Keeps how memory was placed, for the next replay of the trace or ranks to begin with.
    pub keep_placement: Option<PathBuf>,
    /// Gets a line when half of `watchdog` has passed in a call: what it may wait for.
    pub tell: fn(&str),
}

impl Default for Guard {
    fn default() -> Self {
        Self {
            attempts: 8,
            watchdog: Duration::from_secs(60),
            placement: None,
            keep_placement: None,
            tell: |_| {},
        }
    }
}

/// How a child places memory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Assignment {
    pub(crate) strategy: PlacementStrategy,
    pub(crate) lessons: Vec<Lesson>,
    /// Launches whose kernels were seen waiting for bytes of host memory.
    #[serde(default)]
    pub(crate) waiting_launches: Vec<u64>,
    /// No other attempt follows: the child replays what does not fit as well.
    pub(crate) is_last: bool,
}

/// One child of a guarded replay.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    pub(crate) assignment: Assignment,
    pub(crate) randomise: bool,
    /// How many more may follow with this strategy.
    left: u32,
    /// What happened in the attempt before, if it taught nothing: the driver's own threads take
    /// part in placing memory, so it may go otherwise in the next.
    unexplained: Option<Misplaced>,
}

impl Attempt {
    /// The first attempt with a strategy.
    pub(crate) fn first(strategy: PlacementStrategy, guard: &Guard) -> Self {
        let attempts = match strategy {
            PlacementStrategy::Natural => NATURAL_ATTEMPTS,
            PlacementStrategy::Granules => guard.attempts.max(1),
            PlacementStrategy::None => 1,
        };
        let assignment = Assignment {
            strategy,
            lessons: Vec::new(),
            waiting_launches: Vec::new(),
            is_last: false,
        };
        Self {
            assignment,
            randomise: false,
            left: attempts,
            unexplained: None,
        }
        .next(guard)
    }

    /// The attempt that an earlier replay ended with; others may follow it as ever.
    pub(crate) fn again(assignment: Assignment, randomise: bool, guard: &Guard) -> Self {
        let first = Self::first(assignment.strategy, guard);
        Self {
            assignment,
            randomise,
            ..first
        }
        .with_last(guard)
    }

    /// What a complete replay has found out, for the next one.
    pub(crate) fn learn(&mut self, report: &Report) {
        let known = &mut self.assignment.waiting_launches;
        known.extend(&report.waiting_launches);
        known.sort_unstable();
        known.dedup();
    }

    fn next(mut self, guard: &Guard) -> Self {
        self.left = self.left.saturating_sub(1);
        self.with_last(guard)
    }

    /// Knows whether it is the last.
    fn with_last(mut self, guard: &Guard) -> Self {
        let others =
            self.assignment.strategy == PlacementStrategy::Natural && guard.placement.is_none();
        self.assignment.is_last = self.left == 0 && !others;
        self
    }

    /// What to try after a child that did not fit; the error if there is nothing.
    pub(crate) fn after(mut self, error: Error, guard: &Guard) -> Result<Self, Error> {
        match error {
            // The same layout as before would meet the same conflict.
            Error::Conflict { .. } if !self.assignment.is_last => {
                self.randomise = true;
                Ok(self.next(guard))
            }
            Error::Misplaced(misplaced) => {
                let lesson = Lesson::of(&misplaced, &self.assignment.lessons);
                let is_again = self.unexplained.as_ref() == Some(&misplaced);
                // It names places, of which a trace has few.
                if lesson.is_some()
                    && misplaced.is_of_program()
                    && self.assignment.lessons.len() < MORE_FOR_PROGRAM_MEMORY
                {
                    self.left = self.left.saturating_add(1);
                }
                self.unexplained = lesson.is_none().then_some(misplaced);
                if self.left == 0 || is_again {
                    if guard.placement.is_none() {
                        return Ok(Self::first(PlacementStrategy::Granules, guard));
                    }
                    self.left = 1;
                }
                self.assignment.lessons.extend(lesson);
                Ok(self.next(guard))
            }
            error => Err(error),
        }
    }
}

/// The attempts that did not fit.
#[derive(Debug, Default)]
pub(crate) struct Misfits {
    count: u32,
    misplaced: Vec<Misplaced>,
}

impl Misfits {
    pub(crate) fn add(&mut self, error: &Error) {
        self.count += 1;
        if let Error::Misplaced(misplaced) = error {
            self.misplaced.push(misplaced.clone());
        }
    }

    pub(crate) fn report_in(self, report: Report) -> Report {
        Report {
            attempts: self.count,
            misplaced: self.misplaced,
            ..report
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What follows when the driver places the memory of some calls lower than in the recording,
    /// which teaches nothing, and of others higher.
    #[test]
    fn natural_placement_is_given_up_for_what_happens_again() {
        const LOWER: u64 = 0x7f00_0000_0000;
        const HIGHER: u64 = 0x7f20_0000_0000;
        let guard = Guard::default();
        let natural = |asked: &[(u64, u64)]| {
            let mut attempt = Attempt::first(PlacementStrategy::Natural, &guard);
            let mut count = 0;
            for &(call, here) in asked {
                if attempt.assignment.strategy != PlacementStrategy::Natural {
                    break;
                }
                let misplaced = Misplaced {
                    call,
                    recorded: 0x7f10_0000_0000,
                    here,
                    since: call,
                    ..Misplaced::default()
                };
                attempt = attempt.after(Error::Misplaced(misplaced), &guard).unwrap();
                count += 1;
            }
            (count, attempt.assignment.strategy)
        };
        let (given_up, goes_on) = (PlacementStrategy::Granules, PlacementStrategy::Natural);
        for (asked, expected) in [
            (&[(3, LOWER)][..], (1, goes_on)),
            (&[(3, LOWER), (3, LOWER)], (2, given_up)),
            (&[(3, LOWER), (4, LOWER), (3, LOWER)], (3, goes_on)),
            (&[(3, LOWER), (4, HIGHER), (3, LOWER)], (3, goes_on)),
            (
                &[(3, LOWER), (4, LOWER), (3, LOWER), (5, LOWER)],
                (4, given_up),
            ),
        ] {
            assert_eq!(natural(asked), expected, "{asked:?}");
        }
    }
}
