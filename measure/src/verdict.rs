//! Judges measurements: regression, improvement or no change.

use std::collections::BTreeMap;
use std::path::Path;

use cutape_replay::{Clock, Differing, ExchangeCounts, Measured};
use serde::Serialize;

use crate::error::Error;
use crate::measurement::{Benchmark, Change, Results};
use crate::selection::{Selection, Subject};
use crate::settings::{Comparison, Round, Settings};

/// The meaning of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Verdict {
    /// Mean and median intervals lie above the threshold.
    Regression,
    /// Both lie below the negated threshold.
    Improvement,
    /// Neither.
    NoChange,
    /// There is nothing to compare with.
    NotCompared,
}

/// Judges a change. A few slow samples move the mean but not the median, so both must agree.
pub(crate) fn judge(change: Option<&Change>, threshold: f64) -> Verdict {
    match change {
        None => Verdict::NotCompared,
        Some(change) if change.mean.lower > threshold && change.median.lower > threshold => {
            Verdict::Regression
        }
        Some(change) if change.mean.upper < -threshold && change.median.upper < -threshold => {
            Verdict::Improvement
        }
        Some(_) => Verdict::NoChange,
    }
}

/// All results, as JSON and for the text.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    /// With two drivers, the results of both.
    pub(crate) benchmarks: Vec<Row>,
    pub(crate) subjects: Vec<Subject>,
    pub(crate) memory: Vec<Measured>,
    pub(crate) not_repeated: Vec<cutape_replay::Skipped>,
    /// Launches that the replay did not issue, so that they are not measured: call, reason.
    pub(crate) not_issued: Vec<(u64, String)>,
    pub(crate) deferred: Vec<cutape_replay::Skipped>,
    pub(crate) not_reissued: Vec<cutape_replay::Skipped>,
    /// Calls between the measured ones, issued once.
    pub(crate) between: u64,
    /// Compared bytes that a recorded kernel or its replacement changed.
    pub(crate) compared_bytes: u64,
    pub(crate) mismatches: Vec<Differing>,
    /// What was left out because other ranks are not here, and what was put back before the
    /// measured calls.
    pub(crate) exchanges: ExchangeCounts,
    pub(crate) notes: BTreeMap<String, u64>,
}

/// One benchmark with its verdict.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    #[serde(flatten)]
    pub benchmark: Benchmark,
    /// The measured driver.
    pub driver: String,
    #[serde(skip)]
    pub which: &'static str,
    pub verdict: Verdict,
}

impl Report {
    /// Adds the results of a round.
    pub fn add(&mut self, results: Results, settings: &Settings, round: &Round, driver: &Path) {
        let against = !matches!(round.comparison, Comparison::Save(_));
        for benchmark in results.benchmarks {
            let threshold = match benchmark.clock {
                Clock::Gpu => settings.threshold,
                Clock::Host => settings.host_threshold,
            };
            let change = benchmark.change.as_ref().filter(|_| against);
            let verdict = judge(change, threshold / 100.0);
            self.benchmarks.push(Row {
                benchmark,
                driver: driver.display().to_string(),
                which: round.driver,
                verdict,
            });
        }
        let outcome = results.outcome;
        let replay = outcome.report;
        self.memory = outcome.subjects;
        self.not_repeated = outcome.not_repeated;
        self.not_issued = outcome.not_issued;
        self.deferred = outcome.deferred;
        self.not_reissued = replay.skipped;
        self.exchanges = replay.exchanges;
        self.between = outcome.between;
        self.compared_bytes += outcome.compared_bytes;
        self.mismatches.extend(outcome.mismatches);
        for (note, count) in outcome.notes.into_iter().chain(replay.notes) {
            *self.notes.entry(note).or_default() += count;
        }
        for cause in &replay.consequences {
            let note = format!(
                "{} calls were not re-issued because of {}, the first call {}",
                cause.left_out, cause.cause, cause.first
            );
            *self.notes.entry(note).or_default() += 1;
        }
        if let Some(first) = replay.divergences.first() {
            let note = format!(
                "{} calls diverged from the recording, first call {} {}: expected {}, received {}",
                replay.divergence_count, first.call, first.function, first.expected, first.received
            );
            *self.notes.entry(note).or_default() += 1;
        }
    }

    /// Adds the names of the subjects, after all rounds.
    ///
    /// # Errors
    /// If nothing could be compared with the baseline.
    pub fn finish(&mut self, selection: Selection, settings: &Settings) -> Result<(), Error> {
        self.subjects = selection.subjects;
        for (kernel, launches) in selection.captured {
            let note = format!(
                "{kernel} is not measured: its launches are captured into graphs; `--calls \
                 cuGraphLaunch` measures those as a whole"
            );
            *self.notes.entry(note).or_default() += launches;
        }
        match &settings.comparison {
            Comparison::Against(name) if self.compared() == 0 => Err(Error(format!(
                "--baseline {name}: it contains none of these measurements; measure once with \
                 --save-baseline {name}"
            ))),
            _ => Ok(()),
        }
    }

    /// The number of benchmarks that were compared.
    pub(crate) fn compared(&self) -> usize {
        let compared = |row: &&Row| row.verdict != Verdict::NotCompared;
        self.benchmarks.iter().filter(compared).count()
    }

    /// Whether there is a regression or results differ.
    pub fn has_findings(&self) -> bool {
        let regressed = |row: &Row| row.verdict == Verdict::Regression;
        self.benchmarks.iter().any(regressed) || !self.mismatches.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measurement::around;

    #[test]
    fn verdicts() {
        for (mean, median, verdict) in [
            (around(0.20, 0.01), around(0.20, 0.01), Verdict::Regression),
            (around(0.06, 0.02), around(0.06, 0.02), Verdict::NoChange),
            (around(0.20, 0.01), around(0.00, 0.01), Verdict::NoChange),
            (around(0.00, 0.01), around(0.20, 0.01), Verdict::NoChange),
            (around(0.01, 0.01), around(0.01, 0.01), Verdict::NoChange),
            (around(-0.2, 0.01), around(-0.2, 0.01), Verdict::Improvement),
            (around(-0.2, 0.18), around(-0.2, 0.01), Verdict::NoChange),
        ] {
            let change = Change { mean, median };
            assert_eq!(judge(Some(&change), 0.05), verdict, "{change:?}");
        }
        assert_eq!(judge(None, 0.05), Verdict::NotCompared);
    }
}
