//! Compares files of results: what is slower, what no longer replays, what repeats too badly to
//! say.

use cutape_replay::Clock;
use serde::Serialize;

use super::results::{
    Machine, MatrixBenchmark, MatrixSubject, Replayed, Results, TraceResults, WHOLE_TRACE,
};
use super::statistics::{self, ALPHA, Level};
use crate::measurement::Estimate;

/// From which change on one counts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Thresholds {
    /// On the device, as a fraction.
    pub gpu: f64,
    /// On the host, as a fraction.
    pub host: f64,
}

impl Thresholds {
    /// That of a clock.
    pub(crate) fn of(self, clock: Clock) -> f64 {
        match clock {
            Clock::Gpu => self.gpu,
            Clock::Host => self.host,
        }
    }

    /// `thresholds: GPU 2 %, host 10 %`.
    pub(super) fn text(self) -> String {
        // Without what dividing by 100 has added.
        let percent = |part: f64| (part * 1e8).round() / 1e6;
        let (gpu, host) = (percent(self.gpu), percent(self.host));
        format!("thresholds: GPU {gpu} %, host {host} %")
    }
}

/// The meaning of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChangeVerdict {
    /// Slower by more than the threshold.
    Slower,
    /// Too few processes, or they differ too much, to say that the change is below the threshold.
    Uncertain,
    /// The interval of the change is within the threshold.
    Same,
    /// Faster by more than the threshold.
    Faster,
}

/// Files of results, compared with the first.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// The version of cutape that compared.
    pub cutape: &'static str,
    /// The thresholds.
    pub thresholds: Thresholds,
    /// The level of the tests, over all benchmarks.
    pub alpha: f64,
    /// The files: what is compared with, and what is compared.
    pub files: Vec<ComparedFile>,
    /// What is not equal between the machines or settings of the files.
    pub differences: Vec<String>,
    /// Replays, by trace.
    pub replays: Vec<ReplayRow>,
    /// Benchmarks of which both files have times.
    pub rows: Vec<ChangeRow>,
    /// Benchmarks and traces that could not be compared, and why.
    pub not_compared: Vec<NotCompared>,
}

/// A file.
#[derive(Clone, Debug, Serialize)]
pub struct ComparedFile {
    /// Its name for people.
    pub label: String,
    /// When it was measured, in seconds since 1970.
    pub started: u64,
    /// The version of cutape that measured.
    pub cutape: String,
    /// Whether all was measured.
    pub complete: bool,
    /// The machine.
    pub machine: Machine,
}

/// How a trace replays in each file.
#[derive(Clone, Debug, Serialize)]
pub struct ReplayRow {
    /// The trace.
    pub trace: String,
    /// By file.
    pub replays: Vec<Option<Replayed>>,
    /// Places where replaced kernels wrote other results, by file.
    pub mismatches: Vec<u64>,
    /// Whether a later file is worse than the first.
    pub is_worse: bool,
}

/// The change of a benchmark.
#[derive(Clone, Debug, Serialize)]
pub struct ChangeRow {
    /// The number of the file that is compared with the first.
    pub file: usize,
    /// The trace.
    pub trace: String,
    /// The clock that measured.
    pub clock: Clock,
    /// `trace`, or the kernel with its shape.
    pub name: String,
    /// Nanoseconds in the first file, with a 95 % interval over the processes.
    pub before: Estimate,
    /// Nanoseconds in the other file.
    pub after: Estimate,
    /// Processes in both.
    pub rounds: [usize; 2],
    /// The change as a fraction, with a 95 % interval; `None`: one process does not say.
    pub change: Option<Estimate>,
    /// The probability of such times if the change were the threshold, adjusted for the number of
    /// benchmarks.
    pub p: Option<f64>,
    /// Cliff's delta: 1 if each later sample is slower, -1 if each is faster.
    pub effect: f64,
    /// The verdict.
    pub verdict: ChangeVerdict,
    /// Why its measurements do not agree with themselves; empty if they do.
    pub flaky: Vec<String>,
}

/// What could not be compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NotCompared {
    /// The number of the file that is compared with the first.
    pub file: usize,
    /// The trace.
    pub trace: String,
    /// The benchmark; empty for the trace.
    pub name: String,
    /// Why.
    pub reason: String,
    /// The first file has it, and a process of the other has failed.
    pub is_failure: bool,
}

impl Comparison {
    /// Compares files with the first; each has a label.
    pub fn of(files: &[(String, Results)], thresholds: Thresholds) -> Self {
        let mut comparison = Self {
            cutape: env!("CARGO_PKG_VERSION"),
            thresholds,
            alpha: ALPHA,
            files: files
                .iter()
                .map(|(label, file)| compared(label, file))
                .collect(),
            differences: Vec::new(),
            replays: Vec::new(),
            rows: Vec::new(),
            not_compared: Vec::new(),
        };
        let Some(((_, first), others)) = files.split_first() else {
            return comparison;
        };
        let mut tests = Vec::new();
        for (number, (label, other)) in others.iter().enumerate() {
            comparison
                .differences
                .extend(differences(first, other, label));
            for trace in &first.traces {
                match other.traces.iter().find(|one| one.digest == trace.digest) {
                    Some(after) => {
                        comparison.add(number + 1, (trace, after), &mut tests);
                        comparison.add_failures(number + 1, trace, after);
                    }
                    None => comparison.miss(number + 1, trace, other),
                }
            }
            for trace in &other.traces {
                if !first.traces.iter().any(|one| one.digest == trace.digest) {
                    comparison.not_compared.push(NotCompared {
                        file: number + 1,
                        trace: trace.name.clone(),
                        name: String::new(),
                        reason: "only this file has the trace".to_owned(),
                        is_failure: false,
                    });
                }
            }
        }
        for trace in &first.traces {
            comparison.replays.push(replay_row(trace, others));
        }
        comparison.judge(&tests);
        comparison
    }

    /// The benchmarks of a trace that two files have.
    fn add(
        &mut self,
        file: usize,
        (before, after): (&TraceResults, &TraceResults),
        tests: &mut Vec<Test>,
    ) {
        for benchmark in &before.benchmarks {
            let key = (benchmark.clock, &benchmark.name);
            let mut others = after.benchmarks.iter();
            let other = others.find(|other| (other.clock, &other.name) == key);
            if let Some((row, test)) = other
                .and_then(|other| change(file, &before.name, benchmark, other, self.thresholds))
            {
                self.rows.push(row);
                tests.push(test);
                continue;
            }
            let subject = match benchmark.name == WHOLE_TRACE {
                true => MatrixSubject::Trace,
                false => MatrixSubject::Kernels,
            };
            let (failed, _) = failures(after, subject);
            let failure = failed.first();
            self.not_compared.push(NotCompared {
                file,
                trace: before.name.clone(),
                name: format!("{}/{}", clock_name(benchmark.clock), benchmark.name),
                reason: failure.map_or("not measured there", |why| why).to_owned(),
                is_failure: failure.is_some(),
            });
        }
    }

    /// Processes that failed where others of the file measured, and none of the first file failed.
    fn add_failures(&mut self, file: usize, before: &TraceResults, after: &TraceResults) {
        for subject in [MatrixSubject::Trace, MatrixSubject::Kernels] {
            let (failed_before, _) = failures(before, subject);
            let (failed, all) = failures(after, subject);
            if let (true, Some(reason)) = (
                failed.len() < all && failed_before.is_empty(),
                failed.first(),
            ) {
                self.not_compared.push(NotCompared {
                    file,
                    trace: before.name.clone(),
                    name: String::new(),
                    reason: format!("{} of {all} processes failed: {reason}", failed.len()),
                    is_failure: true,
                });
            }
        }
    }

    fn miss(&mut self, file: usize, trace: &TraceResults, other: &Results) {
        let same_name = other.traces.iter().any(|one| one.name == trace.name);
        self.not_compared.push(NotCompared {
            file,
            trace: trace.name.clone(),
            name: String::new(),
            reason: match same_name {
                true => "another trace has this name there".to_owned(),
                false => "not measured there".to_owned(),
            },
            is_failure: false,
        });
    }

    /// Judges all rows, after their tests are adjusted for their number: those for slower ones,
    /// which accuse, and those for faster ones.
    fn judge(&mut self, tests: &[Test]) {
        let adjusted =
            |of: fn(&Test) -> f64| statistics::holm(&tests.iter().map(of).collect::<Vec<_>>());
        let (slower, faster) = (adjusted(|test| test.slower), adjusted(|test| test.faster));
        for (row, (slower, faster)) in self.rows.iter_mut().zip(slower.into_iter().zip(faster)) {
            let Some(change) = row.change else {
                continue;
            };
            let threshold = self.thresholds.of(row.clock);
            let is_within = change.upper <= threshold && change.lower >= -threshold;
            row.p = Some(slower.min(faster));
            row.verdict = match () {
                () if slower < ALPHA => ChangeVerdict::Slower,
                () if faster < ALPHA => ChangeVerdict::Faster,
                () if is_within => ChangeVerdict::Same,
                () => ChangeVerdict::Uncertain,
            };
        }
    }

    /// The number of benchmarks with a verdict.
    pub fn count(&self, verdict: ChangeVerdict) -> usize {
        let rows = self.rows.iter();
        rows.filter(|row| row.verdict == verdict).count()
    }

    /// Whether something is slower, replays worse, or can no longer be measured.
    pub fn has_findings(&self) -> bool {
        self.count(ChangeVerdict::Slower) > 0
            || self.replays.iter().any(|row| row.is_worse)
            || self.not_compared.iter().any(|one| one.is_failure)
    }
}

/// Why processes of a trace failed, and how many there are.
fn failures(trace: &TraceResults, subject: MatrixSubject) -> (Vec<&str>, usize) {
    let processes = trace.processes.iter();
    let own: Vec<_> = processes.filter(|one| one.subject == subject).collect();
    let failed = own.iter().filter_map(|one| one.failure.as_deref());
    (failed.collect(), own.len())
}

/// The probabilities of a row, before they are adjusted.
struct Test {
    slower: f64,
    faster: f64,
}

/// The change of a benchmark; `None` if one side has no times.
fn change(
    file: usize,
    trace: &str,
    before: &MatrixBenchmark,
    after: &MatrixBenchmark,
    thresholds: Thresholds,
) -> Option<(ChangeRow, Test)> {
    let threshold = thresholds.of(before.clock);
    let (samples_before, samples_after) = (before.samples(), after.samples());
    let levels = (before.level()?, after.level()?);
    // A change that is smaller than what processes of the same code differ by accuses nobody.
    let disagreements = [&samples_before, &samples_after]
        .map(|samples| statistics::disagreement(samples, threshold).unwrap_or(0.0));
    let least = disagreements.into_iter().fold(threshold, f64::max);
    let difference = statistics::difference(&levels.0, &levels.1, least);
    let mut flaky = Vec::new();
    for (side, samples) in [("before", &samples_before), ("after", &samples_after)] {
        flaky.extend(
            flaws(samples, threshold)
                .into_iter()
                .map(|why| format!("{side}: {why}")),
        );
    }
    let row = ChangeRow {
        file,
        trace: trace.to_owned(),
        clock: before.clock,
        name: before.name.clone(),
        before: time(&levels.0),
        after: time(&levels.1),
        rounds: [samples_before.len(), samples_after.len()],
        change: difference.map(|difference| Estimate {
            lower: difference.lower,
            point: difference.point,
            upper: difference.upper,
        }),
        p: None,
        effect: statistics::effect(&samples_before.concat(), &samples_after.concat()),
        verdict: ChangeVerdict::Uncertain,
        flaky,
    };
    let test = Test {
        slower: difference.map_or(1.0, |difference| difference.slower),
        faster: difference.map_or(1.0, |difference| difference.faster),
    };
    Some((row, test))
}

/// How measurements of the same code disagree with each other.
pub(crate) fn flaws(processes: &[&[f64]], threshold: f64) -> Vec<String> {
    let percent = |part: f64| format!("{:.1} %", part * 100.0);
    let mut flaws = Vec::new();
    if let Some(far) = statistics::disagreement(processes, threshold) {
        flaws.push(format!("processes differ by up to {}", percent(far)));
    }
    let gaps = processes
        .iter()
        .filter_map(|samples| statistics::two_modes(samples));
    if let Some(gap) = gaps.max_by(f64::total_cmp) {
        flaws.push(format!(
            "two modes within a process, {} apart",
            percent(gap)
        ));
    }
    flaws
}

/// Nanoseconds, with a 95 % interval if there are several processes.
pub(crate) fn time(level: &Level) -> Estimate {
    let margin = statistics::margin(level).unwrap_or(0.0);
    Estimate {
        lower: (level.log - margin).exp(),
        point: level.log.exp(),
        upper: (level.log + margin).exp(),
    }
}

pub(super) fn compared(label: &str, file: &Results) -> ComparedFile {
    ComparedFile {
        label: label.to_owned(),
        started: file.started,
        cutape: file.cutape.clone(),
        complete: file.complete,
        machine: file.machine.clone(),
    }
}

fn replay_row(trace: &TraceResults, others: &[(String, Results)]) -> ReplayRow {
    let same = others.iter().map(|(_, other)| {
        let mut traces = other.traces.iter();
        traces.find(|one| one.digest == trace.digest)
    });
    let each: Vec<_> = std::iter::once(Some(trace)).chain(same).collect();
    let replays: Vec<Option<Replayed>> = each
        .iter()
        .map(|one| one.and_then(|one| one.replay.clone()))
        .collect();
    let mismatches: Vec<u64> = each
        .iter()
        .map(|one| one.map_or(0, TraceResults::mismatches))
        .collect();
    let first = replays.first().and_then(Option::as_ref);
    let later = replays.iter().skip(1).flatten();
    let is_worse = first.is_some_and(|first| later.into_iter().any(|one| one.is_worse_than(first)));
    let more = mismatches
        .iter()
        .skip(1)
        .any(|now| Some(now) > mismatches.first());
    ReplayRow {
        trace: trace.name.clone(),
        is_worse: is_worse || more,
        replays,
        mismatches,
    }
}

/// What is not equal, so that changes may have other causes than the one that is looked for.
pub(super) fn differences(first: &Results, other: &Results, label: &str) -> Vec<String> {
    let facts = circumstances(first).into_iter().zip(circumstances(other));
    facts
        .filter(|(before, after)| before != after)
        .map(|((what, before), (_, after))| format!("{label}: {what}: {after}; before: {before}"))
        .collect()
}

/// Under which circumstances a file was measured: what, and its value.
fn circumstances(file: &Results) -> [(&'static str, String); 8] {
    let Machine {
        cpu,
        cpus,
        driver_version,
        cuda,
        gpus,
        ..
    } = &file.machine;
    let shown = |value: &Option<String>| value.clone().unwrap_or_else(|| "unknown".to_owned());
    let settings = &file.settings;
    let restored = match settings.restore {
        true => "",
        false => ", memory not restored",
    };
    let mut states = file.before.iter().chain(&file.after);
    let lowered = states.find_map(|state| state.lowered.first());
    [
        ("GPUs", gpus.join(", ")),
        ("driver", shown(driver_version)),
        ("CUDA", shown(cuda)),
        ("processor", shown(cpu)),
        ("processors", cpus.to_string()),
        ("cutape", file.cutape.clone()),
        (
            "measured",
            format!(
                "{} rounds of {} samples in {} s{restored}",
                settings.rounds, settings.samples, settings.measure_seconds
            ),
        ),
        (
            "clocks",
            match lowered {
                Some(why) => format!("lowered ({why})"),
                None => "not lowered".to_owned(),
            },
        ),
    ]
}

/// Its name in reports.
pub(crate) fn clock_name(clock: Clock) -> &'static str {
    crate::settings::folder_of(clock)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::results::{Process, ReplayOutcome, Round};
    use super::*;

    /// A benchmark whose processes have these medians.
    pub(crate) fn benchmark(name: &str, medians: &[f64]) -> MatrixBenchmark {
        let rounds = medians.iter().zip(1..).map(|(middle, round)| Round {
            round,
            samples: vec![middle * 0.9995, *middle, middle * 1.0005],
            ..Round::default()
        });
        MatrixBenchmark {
            clock: Clock::Gpu,
            name: name.to_owned(),
            call: 0,
            rounds: rounds.collect(),
        }
    }

    pub(crate) fn file(traces: Vec<TraceResults>) -> Results {
        Results {
            schema: super::super::results::SCHEMA.to_owned(),
            complete: true,
            traces,
            ..Results::default()
        }
    }

    fn trace(digest: &str, benchmarks: Vec<MatrixBenchmark>) -> TraceResults {
        TraceResults {
            name: "step".to_owned(),
            digest: digest.to_owned(),
            benchmarks,
            ..TraceResults::default()
        }
    }

    const THRESHOLDS: Thresholds = Thresholds {
        gpu: 0.02,
        host: 0.1,
    };

    fn compare(before: TraceResults, after: TraceResults) -> Comparison {
        let files = [before, after].map(|trace| ("one".to_owned(), file(vec![trace])));
        Comparison::of(&files, THRESHOLDS)
    }

    #[test]
    fn verdicts() {
        let same = [100.0, 100.1, 99.9];
        for (after, verdict, findings, flaky) in [
            (&[105.0, 105.1, 104.9][..], ChangeVerdict::Slower, true, 0),
            (&[101.0, 101.1, 100.9], ChangeVerdict::Same, false, 0),
            (&[95.0, 95.1, 94.9], ChangeVerdict::Faster, false, 0),
            (&[100.0, 110.0, 105.0], ChangeVerdict::Uncertain, false, 1),
            (&[105.0], ChangeVerdict::Uncertain, false, 0),
        ] {
            let compared = compare(
                trace("a", vec![benchmark("k", &same)]),
                trace("a", vec![benchmark("k", after)]),
            );
            let row = &compared.rows[0];
            assert_eq!((row.verdict, row.flaky.len()), (verdict, flaky), "{row:?}");
            assert_eq!(compared.has_findings(), findings);
            assert_eq!(row.change.is_some(), after.len() > 1);
        }
    }

    #[test]
    fn a_worse_replay_is_a_finding() {
        let replay = |(outcome, divergences, left_out)| {
            let replay = Replayed {
                outcome,
                divergences,
                left_out,
                ..Replayed::default()
            };
            TraceResults {
                replay: Some(replay),
                ..trace("a", Vec::new())
            }
        };
        use ReplayOutcome::{Agrees, Diverges, Failed};
        for (before, after, worse) in [
            ((Agrees, 0, 0), (Agrees, 0, 0), false),
            ((Agrees, 0, 0), (Agrees, 0, 3), true),
            ((Agrees, 0, 0), (Diverges, 1, 0), true),
            ((Diverges, 1, 0), (Diverges, 1, 0), false),
            ((Diverges, 1, 0), (Diverges, 2, 0), true),
            ((Diverges, 2, 0), (Diverges, 1, 5), true),
            ((Diverges, 1, 0), (Agrees, 0, 0), false),
            ((Diverges, 1, 0), (Failed, 0, 0), true),
            ((Failed, 0, 0), (Diverges, 2, 5), false),
        ] {
            let compared = compare(replay(before), replay(after));
            assert_eq!(compared.has_findings(), worse, "{before:?} {after:?}");
        }
        // Nothing is known of the replay in the first file.
        let compared = compare(trace("a", Vec::new()), replay((Diverges, 1, 0)));
        assert!(!compared.has_findings());
    }

    #[test]
    fn what_is_missing_has_a_reason() {
        let times = [100.0, 100.1];
        let measured = || vec![benchmark("trace", &times)];
        let crash = Process {
            failure: Some("killed by SIGSEGV".to_owned()),
            ..Process::default()
        };
        let failed = TraceResults {
            processes: vec![crash.clone()],
            ..trace("a", Vec::new())
        };
        let partly_failed = TraceResults {
            processes: vec![Process::default(), crash, Process::default()],
            ..trace("a", measured())
        };
        for (after, reason, is_failure) in [
            (failed, "killed by SIGSEGV", true),
            (
                partly_failed,
                "1 of 3 processes failed: killed by SIGSEGV",
                true,
            ),
            (trace("a", Vec::new()), "not measured there", false),
            (
                trace("b", measured()),
                "another trace has this name there",
                false,
            ),
        ] {
            let compared = compare(trace("a", measured()), after);
            let found = &compared.not_compared[0];
            assert_eq!((&*found.reason, found.is_failure), (reason, is_failure));
            assert_eq!(compared.has_findings(), is_failure);
        }
    }

    #[test]
    fn thresholds_are_shown_as_given() {
        let thresholds = Thresholds {
            gpu: 7.0 / 100.0,
            host: 0.1 / 100.0,
        };
        assert_eq!(thresholds.text(), "thresholds: GPU 7 %, host 0.1 %");
    }

    #[test]
    fn other_machines_are_named() {
        let mut other = file(Vec::new());
        other.machine.driver_version = Some("2".to_owned());
        let files = [("a".to_owned(), file(Vec::new())), ("b".to_owned(), other)];
        let compared = Comparison::of(&files, THRESHOLDS);
        assert_eq!(compared.differences, ["b: driver: 2; before: unknown"]);
    }
}
