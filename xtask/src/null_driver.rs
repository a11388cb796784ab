//! Programs on the null driver: each is run bare, recorded, checked and replayed; a table of that.
//!
//! The null driver runs almost no kernels, so what a program computes may be wrong, but it is the
//! same bare and recorded.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::Failure;
use crate::parts::{self, replace_folder};
use crate::step;

/// What is done with a program, in this order.
const STEPS: [&str; 4] = ["run", "recorded", "checked", "replayed"];
/// Most lines of output in the description of a problem.
const LINES: usize = 40;

/// How to run a program. The variables are also set when it is replayed.
#[derive(Debug)]
pub(crate) struct Program<'a> {
    pub(crate) words: Vec<PathBuf>,
    pub(crate) variables: Vec<(&'a str, &'a OsStr)>,
}

impl Program<'_> {
    fn command<W: AsRef<OsStr>>(&self, program: &Path, words: &[W]) -> Command {
        let mut command = Command::new(program);
        command.args(words).envs(self.variables.iter().copied());
        command
    }
}

/// How far a program got.
#[derive(Debug)]
pub(crate) struct Outcome {
    name: String,
    /// Whether each step passed; none if it was not tried.
    passed: [Option<bool>; STEPS.len()],
    problem: Option<String>,
    launches: u64,
    time: Duration,
}

impl Outcome {
    fn line(&self) -> String {
        let cells = self.passed.map(|passed| match passed {
            Some(true) => "yes",
            Some(false) => "NO",
            None => "-",
        });
        let seconds = format!("{:.1}", self.time.as_secs_f64());
        row(&self.name, &cells, &self.launches.to_string(), &seconds)
    }
}

fn row(name: &str, cells: &[&str], launches: &str, seconds: &str) -> String {
    let cells: String = cells.iter().map(|cell| format!(" {cell:>8}")).collect();
    format!("{name:<42}{cells} {launches:>8} {seconds:>7}")
}

/// A debug build of cutape, and where traces go.
#[derive(Debug)]
pub(crate) struct Tools {
    cutape: PathBuf,
    pub(crate) null_driver: PathBuf,
    results: PathBuf,
}

impl Tools {
    /// Builds cutape, and makes `results` an empty folder.
    pub(crate) fn build(root: &Path, results: PathBuf) -> Result<Self, Failure> {
        parts::build(root)?;
        replace_folder(&results)?;
        let built = step::target(root).join("debug");
        Ok(Self {
            cutape: built.join("cutape"),
            null_driver: built.join("libcutape_null.so"),
            results,
        })
    }

    /// Tries a program, or reports why there is none. `name` may have several columns of the table.
    pub(crate) fn test(
        &self,
        name: String,
        start: Instant,
        program: Result<Program<'_>, Failure>,
    ) -> Outcome {
        let words: Vec<&str> = name.split_whitespace().collect();
        let trace = self.results.join(words.join("-") + ".cutape");
        let mut outcome = Outcome {
            name,
            passed: [None; STEPS.len()],
            problem: None,
            launches: 0,
            time: Duration::ZERO,
        };
        let done = program.and_then(|program| self.try_steps(&program, &trace, &mut outcome));
        outcome.problem = done.err().map(|failure| failure.to_string());
        outcome.time = start.elapsed();
        outcome
    }

    /// Runs a program on the answers of a recording; what it prints.
    pub(crate) fn play(&self, program: &Program<'_>, trace: &Path) -> Result<String, Failure> {
        let mut play = program.command(&self.cutape, &["play"]);
        let output = succeeded(play.arg(trace).arg("--").args(&program.words))?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn try_steps(
        &self,
        program: &Program<'_>,
        trace: &Path,
        outcome: &mut Outcome,
    ) -> Result<(), Failure> {
        let [run, recorded, checked, replayed] = &mut outcome.passed;
        let cutape = |words: &[&str]| program.command(&self.cutape, words);
        let bare = tried(
            run,
            &mut program.command(&program.words[0], &program.words[1..]),
        )?;
        let mut record = cutape(&["record", "--driver", "null", "-o"]);
        record.arg(trace).arg("--").args(&program.words);
        let output = tried(recorded, &mut record)?;
        if output.stdout != bare.stdout || output.stderr != bare.stderr {
            *recorded = Some(false);
            return Err(failure!(
                "recorded, it prints\n{}bare, it prints\n{}",
                text(&output),
                text(&bare)
            ));
        }
        // A replay is tried whatever the check says.
        let findings = tried(
            checked,
            cutape(&["check", "--fail-on", "warning"]).arg(trace),
        );
        let replay = tried(replayed, cutape(&["replay", "--driver", "null"]).arg(trace));
        outcome.launches = replay.as_ref().map_or(0, launches);
        findings.and(replay)?;
        if outcome.launches == 0 {
            *replayed = Some(false);
            return Err(Failure::new("replayed without a launch"));
        }
        Ok(())
    }
}

/// Runs the jobs, as many at a time as there are processors; prints a table whose first column has
/// that heading, and why programs failed.
pub(crate) fn test_all<J: Sync>(
    heading: &str,
    jobs: &[J],
    test: impl Fn(&J) -> Vec<Outcome> + Sync,
) -> Result<(), Failure> {
    let next = AtomicUsize::new(0);
    let outcomes = Mutex::new(Vec::new());
    let work = || {
        while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let of_job = test(job);
            for outcome in &of_job {
                println!("{}", outcome.line());
            }
            if let Ok(mut outcomes) = outcomes.lock() {
                outcomes.extend(of_job);
            }
        }
    };
    println!("{}", row(heading, &STEPS, "launches", "seconds"));
    let workers = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(work);
        }
    });
    report(&outcomes.into_inner().unwrap_or_default())
}

/// Prints how many programs passed each step, and why the others did not.
fn report(outcomes: &[Outcome]) -> Result<(), Failure> {
    println!();
    for (index, step) in STEPS.iter().enumerate() {
        let passed = outcomes
            .iter()
            .filter(|outcome| outcome.passed[index] == Some(true));
        println!("{step:<9} {:>3} of {}", passed.count(), outcomes.len());
    }
    let failed: Vec<_> = outcomes
        .iter()
        .filter_map(|outcome| Some((outcome, outcome.problem.as_ref()?)))
        .collect();
    for (outcome, problem) in &failed {
        println!("\n{}: {problem}", outcome.name);
    }
    match (failed.len(), outcomes.len()) {
        (_, 0) => Err(Failure::new("no program has such a name")),
        (0, _) => Ok(()),
        (count, all) => Err(failure!("{count} of {all} programs failed")),
    }
}

/// Whether a program is one of those that were asked for, by a part of its name; all are if there
/// are no words.
pub(crate) fn is_wanted(name: &str, words: &[&str]) -> bool {
    words.is_empty() || words.iter().any(|word| name.contains(word))
}

/// Runs a step and notes whether it passed.
fn tried(passed: &mut Option<bool>, command: &mut Command) -> Result<Output, Failure> {
    let output = succeeded(command);
    *passed = Some(output.is_ok());
    output
}

/// Runs it; fails with its output unless its status is 0.
pub(crate) fn succeeded(command: &mut Command) -> Result<Output, Failure> {
    let output = step::output(command)?;
    if output.status.success() {
        return Ok(output);
    }
    Err(failure!(
        "{}\n{}\n{}",
        output.status,
        step::shown(command),
        text(&output)
    ))
}

/// The beginning of what it printed.
fn text(output: &Output) -> String {
    let all = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    let lines = all.iter().flat_map(|part| part.lines()).take(LINES);
    lines.fold(String::new(), |text, line| text + "  " + line + "\n")
}

/// How many launches a replay says that it issued.
fn launches(replayed: &Output) -> u64 {
    let text = String::from_utf8_lossy(&replayed.stdout);
    let before = text.split(" launch").next().unwrap_or_default();
    let number = before.rsplit(' ').next().unwrap_or_default();
    number.parse().unwrap_or(0)
}
