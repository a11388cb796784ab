//! Results and comparisons for people.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use cutape_render::quantity;

use super::comparison::{
    ChangeRow, ChangeVerdict, Comparison, Thresholds, clock_name, flaws, time,
};
use super::history::{History, TrendPoint};
use super::results::{ReplayOutcome, Replayed, Results, TraceResults};
use crate::measurement::Estimate;
use crate::text::{per_cent, shown};

impl Results {
    /// What was measured, a line for each benchmark.
    pub fn text(&self, thresholds: Thresholds) -> String {
        let mut out = String::new();
        for trace in &self.traces {
            let replay = trace.replay.as_ref();
            let replay = replay.map_or_else(|| "not replayed yet".to_owned(), replay_text);
            let _ = writeln!(out, "{}: {replay}", trace.name);
            measured(&mut out, trace, thresholds);
            failures(&mut out, trace);
            if trace.mismatches() > 0 {
                let places = quantity::count(trace.mismatches(), "place");
                let _ = writeln!(
                    out,
                    "  RESULTS DIFFER: replaced kernels wrote others in {places}"
                );
            }
        }
        let benchmarks = self
            .traces
            .iter()
            .map(|trace| trace.benchmarks.len() as u64);
        let diverging = self.traces.iter().filter(|trace| {
            let replay = trace.replay.as_ref();
            replay.is_some_and(|replay| replay.outcome != ReplayOutcome::Agrees)
        });
        let _ = writeln!(
            out,
            "{}, {} in {} each: {} replay otherwise, {} failed",
            quantity::count(self.traces.len() as u64, "trace"),
            quantity::count(benchmarks.sum(), "benchmark"),
            match self.settings.rounds {
                1 => "1 process".to_owned(),
                rounds => format!("{rounds} processes"),
            },
            diverging.count(),
            self.failures(),
        );
        out
    }
}

fn measured(out: &mut String, trace: &TraceResults, thresholds: Thresholds) {
    for benchmark in &trace.benchmarks {
        let samples = benchmark.samples();
        let Some(level) = benchmark.level() else {
            continue;
        };
        let name = format!("{}/{}", clock_name(benchmark.clock), benchmark.name);
        let flaws = flaws(&samples, thresholds.of(benchmark.clock));
        let _ = writeln!(
            out,
            "  {name:<44} {}{}",
            estimate(time(&level)),
            flaky(&flaws)
        );
    }
}

/// A line for each reason.
fn failures(out: &mut String, trace: &TraceResults) {
    let mut reasons: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
    for process in &trace.processes {
        if let Some(why) = &process.failure {
            reasons.entry(why).or_default().insert(process.round);
        }
    }
    for (why, rounds) in reasons {
        let rounds: Vec<String> = rounds.iter().map(u32::to_string).collect();
        let _ = writeln!(out, "  not measured in round {}: {why}", rounds.join(", "));
    }
}

impl Comparison {
    /// What has changed, a line for each benchmark.
    pub fn text(&self) -> String {
        let mut out = String::new();
        for difference in &self.differences {
            let _ = writeln!(out, "differs: {difference}");
        }
        for file in self.files.iter().filter(|file| !file.complete) {
            let _ = writeln!(out, "incomplete: {}", file.label);
        }
        for row in &self.replays {
            let replays = row.replays.iter().map(|replay| {
                let replay = replay.as_ref();
                replay.map_or_else(|| "not replayed".to_owned(), replay_text)
            });
            let mut replays: Vec<String> = replays.collect();
            replays.dedup();
            let worse = if row.is_worse { "  WORSE" } else { "" };
            let _ = writeln!(out, "{}: {}{worse}", row.trace, replays.join(" -> "));
            if row.mismatches.iter().any(|count| *count > 0) {
                let counts = row.mismatches.iter().map(u64::to_string);
                let counts = counts.collect::<Vec<_>>().join(" -> ");
                let _ = writeln!(
                    out,
                    "  places where replaced kernels write other results: {counts}"
                );
            }
            for change in self.rows.iter().filter(|change| change.trace == row.trace) {
                self.change(&mut out, change);
            }
        }
        for one in &self.not_compared {
            let what = match one.name.is_empty() {
                true => one.trace.clone(),
                false => format!("{} {}", one.trace, one.name),
            };
            let failed = if one.is_failure { "  FAILED" } else { "" };
            let _ = writeln!(out, "not compared: {what}: {}{failed}", one.reason);
        }
        let _ = writeln!(
            out,
            "{} compared: {} slower, {} faster, {} same, {} uncertain ({})",
            quantity::count(self.rows.len() as u64, "benchmark"),
            self.count(ChangeVerdict::Slower),
            self.count(ChangeVerdict::Faster),
            self.count(ChangeVerdict::Same),
            self.count(ChangeVerdict::Uncertain),
            self.thresholds.text(),
        );
        out
    }

    fn change(&self, out: &mut String, row: &ChangeRow) {
        let name = format!("{}/{}", clock_name(row.clock), row.name);
        let verdict = match row.verdict {
            ChangeVerdict::Slower => "SLOWER",
            ChangeVerdict::Faster => "faster",
            ChangeVerdict::Same => "same",
            ChangeVerdict::Uncertain => "uncertain",
        };
        let change = match row.change {
            Some(change) => per_cent(change),
            None => "one process: more rounds are needed".to_owned(),
        };
        let which = match self.files.get(row.file).filter(|_| self.files.len() > 2) {
            Some(file) => format!("{}: ", file.label),
            None => String::new(),
        };
        let _ = writeln!(
            out,
            "  {which}{name:<44} {:>11} -> {:>11}  {change}  effect {:+.2}  {verdict}{}",
            shown(row.before.point),
            shown(row.after.point),
            row.effect,
            flaky(&row.flaky)
        );
    }
}

impl History {
    /// The trend of each benchmark, and where it has changed.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let label = |file: usize| self.files.get(file).map_or("?", |file| &*file.label);
        for difference in &self.differences {
            let _ = writeln!(out, "differs: {difference}");
        }
        for replay in &self.replays {
            let outcomes = replay.outcomes.iter().zip(&self.files);
            let outcomes = outcomes.filter_map(|(outcome, file)| Some((outcome.as_ref()?, file)));
            let outcomes: Vec<String> = outcomes
                .map(|(outcome, file)| format!("{} {}", file.label, outcome.word()))
                .collect();
            let worse = if replay.is_worse { "  WORSE" } else { "" };
            let _ = writeln!(
                out,
                "{} replay: {}{worse}",
                replay.trace,
                outcomes.join(", ")
            );
        }
        let mut last = "";
        for row in &self.rows {
            if row.trace != last {
                last = &row.trace;
                let _ = writeln!(out, "{last}");
            }
            let name = format!("{}/{}", clock_name(row.clock), row.name);
            let time = |point: Option<&TrendPoint>| point.map_or(0.0, |point| point.time.point);
            let flaky_files = row.points.iter().filter(|point| !point.flaky.is_empty());
            let flaky = match flaky_files.count() {
                0 => String::new(),
                count => format!("  flaky in {count} of {}", row.points.len()),
            };
            let verdict = if row.is_slower() { "  SLOWER" } else { "" };
            let _ = writeln!(
                out,
                "  {name:<44} {:>11} -> {:>11}{verdict}{flaky}",
                shown(time(row.points.first())),
                shown(time(row.points.last())),
            );
            for change in &row.changes {
                let word = if change.is_slower { "slower" } else { "faster" };
                let (label, change) = (label(change.file), per_cent(change.change));
                let _ = writeln!(out, "    {word} since {label}: {change}");
            }
        }
        let changed = self.rows.iter().filter(|row| !row.changes.is_empty());
        let _ = writeln!(
            out,
            "{} of {}: {} changed, {} slower at the end ({})",
            quantity::count(self.files.len() as u64, "file"),
            quantity::count(self.rows.len() as u64, "benchmark"),
            changed.count(),
            self.rows.iter().filter(|row| row.is_slower()).count(),
            self.thresholds.text(),
        );
        out
    }
}

/// `replays (15 calls, 2 left out)`.
fn replay_text(replay: &Replayed) -> String {
    let calls = quantity::count(replay.calls_replayed, "call");
    let left_out = match replay.left_out {
        0 => String::new(),
        count => format!(", {count} left out"),
    };
    let reason = replay.reason.as_deref().unwrap_or("no reason is known");
    match replay.outcome {
        ReplayOutcome::Agrees => format!("replays ({calls}{left_out})"),
        ReplayOutcome::Diverges => format!(
            "diverges ({calls}{left_out}, {}): {reason}",
            quantity::count(replay.divergences, "divergence")
        ),
        ReplayOutcome::Failed => format!("does not replay: {reason}"),
    }
}

fn flaky(flaws: &[String]) -> String {
    match flaws.is_empty() {
        true => String::new(),
        false => format!("  flaky ({})", flaws.join("; ")),
    }
}

/// One process has no interval.
fn estimate(time: Estimate) -> String {
    let interval = match time.lower < time.upper {
        true => format!(" [{} .. {}]", shown(time.lower), shown(time.upper)),
        false => String::new(),
    };
    format!("{:>11}{interval}", shown(time.point))
}
