//! Measures: the rounds, and the file of results that is written after each process.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::ValueEnum as _;
use cutape_measure::matrix::{
    Machine, MatrixSettings, MatrixSubject, Process, ReplayOutcome, Replayed, Results, SCHEMA,
    TraceResults, digest_of,
};
use cutape_measure::{Benchmark, GpuStates, Selection};
use cutape_terminal::failure::Failure;
use cutape_terminal::overwrite::Overwrite;
use cutape_terminal::private_folder::PrivateFolder;
use cutape_terminal::progress::{Progress, Unit};
use cutape_terminal::{input, library, message, output};
use serde::Deserialize;

use super::Arguments;
use crate::verb_process::{self as process, Limit};

/// Where `replay` and `bench` write theirs.
const REPORT: &str = "--report";

/// What `bench --report` writes, as far as it is kept.
#[derive(Deserialize)]
struct Bench {
    benchmarks: Vec<Benchmark>,
    mismatches: Vec<serde::de::IgnoredAny>,
}

/// Measures all traces; returns whether there are findings.
pub(super) fn measure(arguments: &Arguments) -> Result<bool, Failure> {
    if arguments.guarded.keeps_placement() {
        return Err(Failure::unusable(
            "--keep-placement is for one trace; give it to `replay` or `bench`",
        ));
    }
    let target = arguments.output.as_deref().unwrap_or(Path::new(""));
    let report = arguments.report.prepare()?;
    let traces = traces(&arguments.inputs)?;
    let driver = library::driver(arguments.driver.as_deref())?;
    let new = planned(arguments, &traces, &driver)?;
    let mut results = begun(target, new, arguments.overwrite)?;
    let runner = Runner {
        program: library::own_path()?,
        folder: PrivateFolder::create("matrix")?,
        driver,
        arguments,
        target,
        is_input: target.canonicalize().is_ok_and(|target| {
            traces
                .iter()
                .any(|(_, path)| path.canonicalize().is_ok_and(|path| path == target))
        }),
    };
    runner.rounds(&traces, &mut results)?;
    results.complete = true;
    results.after = GpuStates::now().gpus;
    runner.save(&mut results)?;
    report.write(&results, &results.text(arguments.thresholds()))?;
    message!(
        "{}: complete; compare it with another one: cutape matrix --compare BEFORE AFTER",
        output::shown(target)
    );
    Ok(results.has_findings())
}

/// The traces with their names, which are unique.
fn traces(inputs: &[PathBuf]) -> Result<Vec<(String, PathBuf)>, Failure> {
    let mut files = Vec::new();
    for path in inputs {
        match path.is_dir() {
            true => files.extend(input::traces_of(path)?),
            false => files.push(path.clone()),
        }
    }
    let stem = |path: &Path| {
        path.file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned()
    };
    let mut known = HashSet::new();
    let named = |path: PathBuf| {
        let folder = path.parent().and_then(Path::file_name);
        let longer = folder.map(|folder| format!("{}/{}", folder.to_string_lossy(), stem(&path)));
        let names = [Some(stem(&path)), longer].into_iter().flatten();
        let name = names.into_iter().find(|name| known.insert(name.clone()));
        (name.unwrap_or_else(|| path.display().to_string()), path)
    };
    Ok(files.into_iter().map(named).collect())
}

/// The results before anything is measured.
fn planned<'t>(
    arguments: &Arguments,
    traces: &'t [(String, PathBuf)],
    driver: &Path,
) -> Result<Results, Failure> {
    let states = GpuStates::now();
    let mut known: HashMap<String, &Path> = HashMap::new();
    let plan = |(name, path): &'t (String, PathBuf)| {
        let trace = input::open(path)?;
        let digest = digest_of(path)?;
        if let Some(other) = known.insert(digest.clone(), path) {
            return Err(Failure::unusable(format!(
                "{}: the same trace as {}; give it once",
                path.display(),
                other.display()
            )));
        }
        Ok::<_, Failure>(TraceResults {
            name: name.clone(),
            digest,
            calls: trace.calls().count() as u64,
            has_kernels: Selection::has_kernels(&trace),
            ..TraceResults::default()
        })
    };
    let driver = match library::is_null_driver(driver) {
        true => "null".to_owned(),
        false => driver.display().to_string(),
    };
    Ok(Results {
        schema: SCHEMA.to_owned(),
        cutape: env!("CARGO_PKG_VERSION").to_owned(),
        started: now(),
        settings: MatrixSettings {
            each_kernel: arguments.each_kernel,
            replace: arguments.replace.clone(),
            clocks: arguments.clock.clocks().to_vec(),
            rounds: arguments.rounds,
            samples: arguments.samples,
            measure_seconds: arguments.measure_seconds,
            warm_up_seconds: arguments.warm_up_seconds,
            restore: !arguments.no_restore,
        },
        machine: Machine {
            cpu: cpu(),
            cpus: std::thread::available_parallelism().map_or(0, usize::from),
            driver,
            driver_version: states.driver_version,
            cuda: states.cuda,
            gpus: states.gpus.iter().map(|gpu| gpu.name.clone()).collect(),
        },
        before: states.gpus,
        traces: traces.iter().map(plan).collect::<Result<_, _>>()?,
        ..Results::default()
    })
}

/// The results to go on with: those of the file, if an earlier run of the same command wrote them
/// and did not end.
fn begun(target: &Path, new: Results, overwrite: Overwrite) -> Result<Results, Failure> {
    if overwrite.overwrite || target.symlink_metadata().is_err() {
        overwrite.replaces(target)?;
        return Ok(new);
    }
    let exists = || Failure::exists(target);
    let known = Results::read(target).map_err(|_| exists())?;
    let what = |results: &Results| -> Vec<_> {
        let traces = results.traces.iter();
        let traces = traces.map(|trace| (trace.name.clone(), trace.digest.clone()));
        traces.collect()
    };
    if known.complete {
        return Err(exists());
    }
    if known.settings != new.settings
        || known.machine != new.machine
        || known.cutape != new.cutape
        || what(&known) != what(&new)
    {
        return Err(Failure::unusable(format!(
            "cannot continue {}: it was begun with other options, traces, or on another machine; \
             choose another name, or replace it with --overwrite",
            target.display()
        )));
    }
    let done: usize = known.traces.iter().map(|trace| trace.processes.len()).sum();
    message!(
        "{}: continued after {done} processes",
        output::shown(target)
    );
    Ok(known)
}

/// Starts processes and keeps what they measure.
struct Runner<'a> {
    program: PathBuf,
    folder: PrivateFolder,
    driver: PathBuf,
    arguments: &'a Arguments,
    target: &'a Path,
    /// The file of results replaces one of the traces, when all is measured.
    is_input: bool,
}

impl Runner<'_> {
    /// All rounds. Each visits all traces, so that the processes of a benchmark are spread over the
    /// run.
    fn rounds(&self, traces: &[(String, PathBuf)], results: &mut Results) -> Result<(), Failure> {
        let subjects: &[MatrixSubject] = match self.arguments {
            Arguments { replace, .. } if !replace.is_empty() => &[MatrixSubject::Kernels],
            Arguments {
                each_kernel: true, ..
            } => &[MatrixSubject::Trace, MatrixSubject::Kernels],
            _ => &[MatrixSubject::Trace],
        };
        let all =
            traces.len() as u64 * (u64::from(self.arguments.rounds) * subjects.len() as u64 + 1);
        let mut progress = Progress::new("measuring", Unit::Things("processes"), Some(all));
        for (at, (_, path)) in traces.iter().enumerate() {
            progress.step();
            if results.traces[at].replay.is_none() {
                results.traces[at].replay = Some(self.replay(path)?);
                self.save(results)?;
            }
        }
        for round in 1..=self.arguments.rounds {
            for (at, (_, path)) in traces.iter().enumerate() {
                for &subject in subjects {
                    progress.step();
                    let trace = &results.traces[at];
                    let has_none = subject == MatrixSubject::Kernels && !trace.has_kernels;
                    if has_none || trace.has(round, subject) {
                        continue;
                    }
                    let (process, measured) = self.bench(path, round, subject)?;
                    results.traces[at].add(process, measured);
                    self.save(results)?;
                }
            }
        }
        Ok(())
    }

    /// Writes the file, whole at any moment.
    fn save(&self, results: &mut Results) -> Result<(), Failure> {
        if self.is_input && !results.complete {
            return Ok(());
        }
        results.finished = now();
        let text = serde_json::to_string(results).unwrap_or_default() + "\n";
        Overwrite { overwrite: true }.write(self.target, |path| {
            fs::write(path, &text).map_err(|error| Failure::cannot_write(self.target, &error))
        })
    }

    /// The words of a verb and what all processes get.
    fn words(&self, verb: &str, trace: &Path) -> Vec<OsString> {
        let mut words = vec![verb.into(), "--driver".into(), self.driver.clone().into()];
        words.extend(self.arguments.guarded.for_process());
        words.push(trace.into());
        words
    }

    fn limit(&self) -> Limit {
        Limit {
            time: Duration::from_secs(self.arguments.time_limit),
            option: " (--time-limit)",
        }
    }

    fn replay(&self, trace: &Path) -> Result<Replayed, Failure> {
        let mut words = self.words("replay", trace);
        words.extend(["--keep-going".into(), "--allow-incomplete".into()]);
        let ended = process::run::<cutape_replay::Report>(
            &self.program,
            &words,
            REPORT,
            &self.folder,
            self.limit(),
        )?;
        let report = match ended.report {
            Ok(report) => report,
            Err(why) => {
                return Ok(Replayed {
                    reason: Some(why),
                    ..Replayed::default()
                });
            }
        };
        let agrees = report.agrees_but_for(&[]);
        let died = report.died.map(|died| died.text);
        let first = report.divergences.first().map(|first| {
            format!(
                "call {} {}: expected {}, received {}",
                first.call, first.function, first.expected, first.received
            )
        });
        let follows = report
            .consequences
            .first()
            .map(|cause| format!("what follows from {} is not known", cause.cause));
        Ok(Replayed {
            outcome: match (&died, agrees) {
                (Some(_), _) => ReplayOutcome::Failed,
                (None, true) => ReplayOutcome::Agrees,
                (None, false) => ReplayOutcome::Diverges,
            },
            reason: died.or(first).or(follows),
            calls_replayed: report.calls_replayed,
            divergences: report.divergence_count,
            left_out: report.skipped.iter().map(|skipped| skipped.count).sum(),
            bytes_compared: report.bytes_compared,
        })
    }

    fn bench(
        &self,
        trace: &Path,
        round: u32,
        subject: MatrixSubject,
    ) -> Result<(Process, Vec<Benchmark>), Failure> {
        let arguments = self.arguments;
        let mut words = self.words("bench", trace);
        let clock = arguments.clock.to_possible_value();
        let clock = clock.map_or_else(String::new, |value| value.get_name().to_owned());
        for (option, value) in [
            ("--clock", clock),
            ("--samples", arguments.samples.to_string()),
            ("--measure-seconds", arguments.measure_seconds.to_string()),
            ("--warm-up-seconds", arguments.warm_up_seconds.to_string()),
        ] {
            words.extend([option.into(), value.into()]);
        }
        let measurements = self.folder.path("measurements");
        words.extend(["--no-plots".into(), "--output".into(), measurements.into()]);
        if arguments.no_restore {
            words.push("--no-restore".into());
        }
        if subject == MatrixSubject::Kernels && arguments.replace.is_empty() {
            words.push("--each-kernel".into());
        }
        for replaced in &arguments.replace {
            words.extend(["--replace".into(), replaced.into()]);
        }
        let ended =
            process::run::<Bench>(&self.program, &words, REPORT, &self.folder, self.limit())?;
        let (measured, mismatches, failure) = match ended.report {
            Ok(bench) => (bench.benchmarks, bench.mismatches.len() as u64, None),
            Err(why) => (Vec::new(), 0, Some(why)),
        };
        let process = Process {
            round,
            subject,
            seconds: ended.seconds,
            failure,
            mismatches,
        };
        Ok((process, measured))
    }
}

/// The name of the processor.
fn cpu() -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    let (_, name) = line.split_once(':')?;
    Some(name.trim().to_owned())
}

/// Seconds since 1970.
fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| now.as_secs())
}
