//! What criterion has written, and what it means: faster, slower, or no change that the threshold lets through.

use std::collections::BTreeMap;

use cutape_replay::{Differing, Measured};
use serde::Serialize;

use crate::bench::measurement::{Benchmark, Change, Results};
use crate::bench::selection::{Chosen, Subject};
use crate::bench::settings::{Comparison, Settings};

/// From which relative change on more time is a regression.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub gpu: f64,
    pub host: f64,
}

/// What a change means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Verdict {
    /// Both intervals lie above the threshold.
    Regression,
    /// Both lie below its negative.
    Improvement,
    /// Neither.
    NoChange,
    /// There is nothing to compare with.
    NotCompared,
}

/// The verdict on a change. A few slow samples move the mean and not the median, so that both must say the same.
pub(super) fn judge(change: Option<&Change>, threshold: f64) -> Verdict {
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

/// All results, in a form that is written as JSON.
#[derive(Debug, Default, Serialize)]
pub(super) struct Report {
    /// Of two drivers the second's; those of both are kept.
    pub benchmarks: Vec<Row>,
    pub subjects: Vec<Subject>,
    pub memory: Vec<Measured>,
    pub not_repeated: Vec<cutape_replay::Skipped>,
    pub deferred: Vec<cutape_replay::Skipped>,
    pub not_reissued: Vec<cutape_replay::Skipped>,
    /// Calls between the measured ones that were issued once.
    pub between: u64,
    /// Bytes that a recorded kernel or its replacement has changed, and that were compared.
    pub compared_bytes: u64,
    pub mismatches: Vec<Differing>,
    pub notes: BTreeMap<String, u64>,
}

/// One benchmark with its verdict.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    #[serde(flatten)]
    pub benchmark: Benchmark,
    /// The driver that was measured.
    pub driver: String,
    #[serde(skip)]
    pub which: &'static str,
    pub verdict: Verdict,
}

impl Report {
    /// Adds what one child has measured.
    ///
    /// `which` tells two drivers apart.
    pub(super) fn add(
        &mut self,
        results: Results,
        settings: &Settings,
        limits: &Limits,
        which: &'static str,
    ) {
        let against = !matches!(settings.comparison, Comparison::Keep(_));
        for benchmark in results.benchmarks {
            let threshold = match benchmark.clock.as_str() {
                "gpu" => limits.gpu,
                _ => limits.host,
            };
            let verdict = judge(benchmark.change.as_ref().filter(|_| against), threshold);
            self.benchmarks.push(Row {
                benchmark,
                driver: settings.driver.display().to_string(),
                which,
                verdict,
            });
        }
        let outcome = results.outcome;
        let replay = outcome.report;
        self.memory = outcome.subjects;
        self.not_repeated = outcome.not_repeated;
        self.deferred = outcome.deferred;
        self.not_reissued = replay.skipped;
        self.between = outcome.between;
        self.compared_bytes += outcome.compared_bytes;
        self.mismatches.extend(outcome.mismatches);
        for (note, count) in outcome.notes.into_iter().chain(replay.notes) {
            *self.notes.entry(note).or_default() += count;
        }
        if let Some(first) = replay.divergences.first() {
            let note = format!(
                "{} calls of the replay answered otherwise than recorded, the first is call {} {}: expected {}, received {}",
                replay.divergence_count, first.call, first.function, first.expected, first.received
            );
            *self.notes.entry(note).or_default() += 1;
        }
    }

    /// Adds what was to be measured.
    pub(super) fn chosen(&mut self, chosen: Chosen) {
        self.subjects = chosen.subjects;
        for (kernel, launches) in chosen.captured {
            let note = format!(
                "{kernel} is not measured: its launches are captured into graphs, which `--calls cuGraphLaunch` measures as a whole"
            );
            *self.notes.entry(note).or_default() += launches;
        }
    }

    /// How many benchmarks had something to be compared with.
    pub(super) fn compared(&self) -> usize {
        let compared = |row: &&Row| row.verdict != Verdict::NotCompared;
        self.benchmarks.iter().filter(compared).count()
    }

    /// A regression, or results that differ.
    pub(super) fn has_findings(&self) -> bool {
        let regressed = |row: &Row| row.verdict == Verdict::Regression;
        self.benchmarks.iter().any(regressed) || !self.mismatches.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::measurement::around;

    #[test]
    fn a_regression_is_wholly_above_the_threshold() {
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
