//! Looks for changes along files of results that were measured one after the other.

use std::collections::BTreeSet;

use cutape_replay::Clock;
use serde::Serialize;

use super::comparison::{ComparedFile, Thresholds, compared, differences, flaws, time};
use super::results::{MatrixBenchmark, ReplayOutcome, Results, TraceResults};
use super::statistics::{self, ALPHA, Level};
use crate::measurement::Estimate;

/// Files of results, in the order in which they were measured.
#[derive(Clone, Debug, Serialize)]
pub struct History {
    /// The version of cutape that looked.
    pub cutape: &'static str,
    /// The thresholds.
    pub thresholds: Thresholds,
    /// The level of the tests, over all benchmarks and files.
    pub alpha: f64,
    /// The files.
    pub files: Vec<ComparedFile>,
    /// How machines and settings differ from those of the file before.
    pub differences: Vec<String>,
    /// Replays of traces that do not agree in all files.
    pub replays: Vec<ReplayHistory>,
    /// The benchmarks.
    pub rows: Vec<Trend>,
}

/// How a trace replays in each file.
#[derive(Clone, Debug, Serialize)]
pub struct ReplayHistory {
    /// The trace.
    pub trace: String,
    /// By file; `None`: the file lacks the trace.
    pub outcomes: Vec<Option<ReplayOutcome>>,
    /// Whether the newest one is worse than an earlier one.
    pub is_worse: bool,
}

/// The times of a benchmark.
#[derive(Clone, Debug, Serialize)]
pub struct Trend {
    /// The trace.
    pub trace: String,
    /// The clock that measured.
    pub clock: Clock,
    /// `trace`, or the kernel with its shape.
    pub name: String,
    /// Files that have it, in order.
    pub points: Vec<TrendPoint>,
    /// Where it has changed by more than the threshold, in order.
    pub changes: Vec<TrendChange>,
}

/// The time in one file.
#[derive(Clone, Debug, Serialize)]
pub struct TrendPoint {
    /// The number of the file.
    pub file: usize,
    /// Nanoseconds, with a 95 % interval over the processes.
    pub time: Estimate,
    /// Why its measurements do not agree with themselves; empty if they do.
    pub flaky: Vec<String>,
}

/// A change.
#[derive(Clone, Debug, Serialize)]
pub struct TrendChange {
    /// The number of the first file after it.
    pub file: usize,
    /// The change as a fraction, with a 95 % interval: of the times up to the next change from
    /// those since the last one.
    pub change: Estimate,
    /// Whether it has become slower.
    pub is_slower: bool,
}

impl History {
    /// Sorts files by the time when they were measured, and looks for changes; each has a label.
    pub fn of(mut files: Vec<(String, Results)>, thresholds: Thresholds) -> Self {
        files.sort_by(|(label, file), (other_label, other)| {
            (file.started, label).cmp(&(other.started, other_label))
        });
        let pairs = files.windows(2).filter_map(|pair| match pair {
            [(_, before), (label, after)] => Some(differences(before, after, label)),
            _ => None,
        });
        let mut rows = trends(&files, thresholds);
        // Each place between two files of each benchmark may be accused by mistake.
        let places = rows
            .iter()
            .map(|(_, levels)| levels.len().saturating_sub(1));
        let places = places.sum::<usize>().max(1) as f64;
        for (trend, levels) in &mut rows {
            let threshold = thresholds.of(trend.clock);
            trend.changes = changes(trend, levels, threshold, ALPHA / places);
        }
        let rows: Vec<Trend> = rows.into_iter().map(|(trend, _)| trend).collect();
        Self {
            cutape: env!("CARGO_PKG_VERSION"),
            thresholds,
            alpha: ALPHA,
            differences: pairs.flatten().collect(),
            replays: replays(&files),
            files: files
                .iter()
                .map(|(label, file)| compared(label, file))
                .collect(),
            rows,
        }
    }

    /// Whether the newest change of a benchmark made it slower, or the newest replay of a trace is
    /// worse than an earlier one.
    pub fn has_findings(&self) -> bool {
        self.rows.iter().any(Trend::is_slower) || self.replays.iter().any(|replay| replay.is_worse)
    }
}

impl Trend {
    /// Whether its newest change made it slower.
    pub fn is_slower(&self) -> bool {
        self.changes.last().is_some_and(|change| change.is_slower)
    }
}

/// The benchmarks of all files, with their levels.
fn trends(files: &[(String, Results)], thresholds: Thresholds) -> Vec<(Trend, Vec<Level>)> {
    let mut rows: Vec<(String, Trend, Vec<Level>)> = Vec::new();
    for (number, (_, file)) in files.iter().enumerate() {
        for trace in &file.traces {
            for benchmark in &trace.benchmarks {
                let Some(level) = benchmark.level() else {
                    continue;
                };
                let place = place_of(&mut rows, trace, benchmark);
                let Some((_, trend, levels)) = rows.get_mut(place) else {
                    continue;
                };
                // Of a trace that was measured twice, the first one counts.
                if trend.points.last().is_some_and(|last| last.file == number) {
                    continue;
                }
                levels.push(level);
                trend.points.push(TrendPoint {
                    file: number,
                    time: time(&level),
                    flaky: flaws(&benchmark.samples(), thresholds.of(benchmark.clock)),
                });
            }
        }
    }
    rows.into_iter()
        .map(|(_, trend, levels)| (trend, levels))
        .collect()
}

/// The row of a benchmark; the digest says which trace it is.
fn place_of(
    rows: &mut Vec<(String, Trend, Vec<Level>)>,
    trace: &TraceResults,
    benchmark: &MatrixBenchmark,
) -> usize {
    let known = rows.iter().position(|(digest, trend, _)| {
        (digest, trend.clock, &trend.name) == (&trace.digest, benchmark.clock, &benchmark.name)
    });
    known.unwrap_or_else(|| {
        let trend = Trend {
            trace: trace.name.clone(),
            clock: benchmark.clock,
            name: benchmark.name.clone(),
            points: Vec::new(),
            changes: Vec::new(),
        };
        rows.push((trace.digest.clone(), trend, Vec::new()));
        rows.len() - 1
    })
}

/// The changes of a benchmark.
fn changes(trend: &Trend, levels: &[Level], threshold: f64, alpha: f64) -> Vec<TrendChange> {
    let steps = statistics::steps(levels, threshold, alpha).into_iter();
    let changes = steps.filter_map(|(at, step)| {
        Some(TrendChange {
            file: trend.points.get(at)?.file,
            change: Estimate {
                lower: step.lower,
                point: step.point,
                upper: step.upper,
            },
            is_slower: step.point > 0.0,
        })
    });
    changes.collect()
}

/// Traces that do not agree in all files.
fn replays(files: &[(String, Results)]) -> Vec<ReplayHistory> {
    let names: BTreeSet<(&str, &str)> = files
        .iter()
        .flat_map(|(_, file)| &file.traces)
        .map(|trace| (&*trace.name, &*trace.digest))
        .collect();
    let each = names.into_iter().map(|(name, digest)| {
        let outcomes = files.iter().map(|(_, file)| {
            let trace = file.traces.iter().find(|trace| trace.digest == digest)?;
            trace.replay.as_ref().map(|replay| replay.outcome)
        });
        let outcomes: Vec<_> = outcomes.collect();
        let known: Vec<_> = outcomes.iter().flatten().copied().collect();
        ReplayHistory {
            trace: name.to_owned(),
            is_worse: known.last() > known.iter().min(),
            outcomes,
        }
    });
    let differs = |replay: &ReplayHistory| {
        let mut outcomes = replay.outcomes.iter().flatten();
        outcomes.any(|outcome| *outcome != ReplayOutcome::Agrees)
    };
    each.filter(differs).collect()
}

#[cfg(test)]
mod tests {
    use super::super::comparison::tests::{benchmark, file};
    use super::*;
    use crate::matrix::{Replayed, TraceResults};

    const THRESHOLDS: Thresholds = Thresholds {
        gpu: 0.02,
        host: 0.1,
    };

    /// Files whose benchmark has these times, about.
    fn history(times: &[f64]) -> History {
        let files = times.iter().enumerate().map(|(number, time)| {
            let off = 1.0 + 0.0003 * f64::from([0, 1, -1, 2, 0, -2][number % 6]);
            let medians = [0.9999, 1.0, 1.0001].map(|part| time * off * part);
            let trace = TraceResults {
                name: "step".to_owned(),
                digest: "a".to_owned(),
                benchmarks: vec![benchmark("k", &medians)],
                ..TraceResults::default()
            };
            let results = Results {
                started: number as u64,
                ..file(vec![trace])
            };
            (format!("commit-{number}"), results)
        });
        // In another order than they were measured.
        History::of(files.rev().collect(), THRESHOLDS)
    }

    #[test]
    fn changes_are_found_where_they_are() {
        for (times, expected, findings) in [
            (&[100.0; 8][..], &[][..], false),
            (&[100.0, 100.0, 100.0, 100.0, 105.0], &[(4, 5)], true),
            (&[100.0, 105.0], &[(1, 5)], true),
            (
                &[100.0, 100.0, 100.0, 105.0, 105.0, 105.0, 100.0, 100.0],
                &[(3, 5), (6, -5)],
                false,
            ),
            (
                &[100.0, 100.0, 100.0, 105.0, 105.0, 110.0, 110.0, 110.0],
                &[(3, 5), (5, 5)],
                true,
            ),
            (&[100.0, 101.0, 101.0, 101.0], &[], false),
            (&[], &[], false),
        ] {
            let history = history(times);
            let changes = history.rows.iter().flat_map(|row| &row.changes);
            let found: Vec<_> = changes
                .map(|change| (change.file, (change.change.point * 100.0).round() as i32))
                .collect();
            assert_eq!(found, expected, "{times:?}");
            assert_eq!(history.has_findings(), findings, "{times:?}");
        }
    }

    #[test]
    fn a_trace_counts_once_in_a_file() {
        let twice = |number: u64, times: [f64; 2]| {
            let trace = |time: f64| TraceResults {
                digest: "a".to_owned(),
                benchmarks: vec![benchmark("k", &[time, time * 1.0001])],
                ..TraceResults::default()
            };
            let results = Results {
                started: number,
                ..file(times.map(trace).to_vec())
            };
            (number.to_string(), results)
        };
        let files = vec![twice(1, [100.0, 150.0]), twice(2, [100.0, 150.0])];
        let history = History::of(files, THRESHOLDS);
        let points = history.rows.iter().map(|row| row.points.len());
        assert_eq!(points.collect::<Vec<_>>(), [2]);
        assert!(!history.has_findings());
    }

    #[test]
    fn a_worse_replay_is_a_finding() {
        use ReplayOutcome::{Agrees, Diverges, Failed};
        for (outcomes, shown, worse) in [
            (&[Agrees, Agrees][..], 0, false),
            (&[Agrees, Diverges], 1, true),
            (&[Diverges, Agrees], 1, false),
            (&[Diverges, Diverges], 1, false),
            (&[Failed, Diverges], 1, false),
        ] {
            let files = outcomes.iter().enumerate().map(|(number, outcome)| {
                let trace = TraceResults {
                    replay: Some(Replayed {
                        outcome: *outcome,
                        ..Replayed::default()
                    }),
                    ..TraceResults::default()
                };
                (number.to_string(), file(vec![trace]))
            });
            let history = History::of(files.collect(), THRESHOLDS);
            assert_eq!(history.replays.len(), shown, "{outcomes:?}");
            assert_eq!(history.has_findings(), worse, "{outcomes:?}");
        }
    }
}
