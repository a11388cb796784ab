//! One program: compiled, run, recorded, checked, replayed.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use super::toolkit::Toolkit;
use crate::{Failure, files, step};

/// What is done with a program, in this order.
pub(super) const STEPS: [&str; 5] = ["compiled", "run", "recorded", "checked", "replayed"];
/// Most lines of output in the description of a problem.
const LINES: usize = 40;

/// How far a program got.
#[derive(Debug)]
pub(super) struct Outcome {
    /// The program, the toolkit, and how it is linked.
    pub(super) name: String,
    /// Which steps passed. The last two are tried whatever the other says.
    pub(super) passed: [bool; STEPS.len()],
    pub(super) problem: Option<String>,
    launches: u64,
    time: Duration,
}

impl Outcome {
    pub(super) fn header() -> String {
        format!(
            "{:<42} {:>9} {:>8}  steps",
            "program, toolkit, runtime", "launches", "seconds"
        )
    }

    pub(super) fn line(&self) -> String {
        let failed = self.passed.iter().position(|passed| !passed);
        let outcome = match failed {
            Some(step) => format!("not {}", STEPS[step]),
            None => "all".to_owned(),
        };
        let seconds = self.time.as_secs_f64();
        format!(
            "{:<42} {:>9} {seconds:>8.1}  {outcome}",
            self.name, self.launches
        )
    }
}

/// Where programs and results are.
#[derive(Debug)]
pub(super) struct Tools {
    pub(super) cutape: PathBuf,
    pub(super) programs: PathBuf,
    pub(super) results: PathBuf,
}

impl Tools {
    /// Compiles a program once, and tries it with the static and with the shared runtime.
    pub(super) fn test(&self, source: &Path, toolkit: &Toolkit) -> Vec<Outcome> {
        let program = files::name(source).replace(".cu", "");
        let name = format!("{program}-{}", toolkit.name);
        let object = self.programs.join(format!("{name}.o"));
        let start = Instant::now();
        let compiled = options_of(source).and_then(|options| {
            if !is_newer(&object, source) {
                let mut compile = toolkit.compiler();
                compile.arg("-c").arg(source).arg("-o").arg(&object);
                succeeded(compile.args(&options))?;
            }
            Ok(options)
        });
        let mut time = start.elapsed();
        ["static", "shared"]
            .map(|runtime| {
                let start = Instant::now();
                let mut outcome = Outcome {
                    name: format!("{name}-{runtime}"),
                    passed: [false; STEPS.len()],
                    problem: None,
                    launches: 0,
                    time: Duration::ZERO,
                };
                let done = match &compiled {
                    Ok(options) => self.try_with(toolkit, runtime, &object, options, &mut outcome),
                    Err(failure) if runtime == "static" => Err(failure!("{failure}")),
                    Err(_) => Err(Failure::new("as with the static runtime")),
                };
                outcome.problem = done.err().map(|failure| failure.to_string());
                outcome.time = start.elapsed() + std::mem::take(&mut time);
                outcome
            })
            .into()
    }

    fn try_with(
        &self,
        toolkit: &Toolkit,
        runtime: &str,
        object: &Path,
        options: &[String],
        outcome: &mut Outcome,
    ) -> Result<(), Failure> {
        let program = self.programs.join(&outcome.name);
        let trace = self.results.join(format!("{}.cutape", outcome.name));
        if !is_newer(&program, object) {
            let mut link = toolkit.compiler();
            link.args(["-cudart", runtime]).arg(object).arg("-o");
            succeeded(link.arg(&program).args(options))?;
        }
        outcome.passed[0] = true;
        let command = |program: &OsStr| {
            let mut command = Command::new(program);
            command
                .env("LD_LIBRARY_PATH", &toolkit.libraries)
                .env("CUTAPE_NULL_VERSION", toolkit.driver_version);
            command
        };
        let cutape = |words: &[&str]| {
            let mut command = command(self.cutape.as_os_str());
            command.args(words);
            command
        };
        let bare = succeeded(&mut command(program.as_os_str()))?;
        outcome.passed[1] = true;
        let mut record = cutape(&["record", "--driver", "null", "-o"]);
        let recorded = succeeded(record.arg(&trace).arg("--").arg(&program))?;
        if recorded.stdout != bare.stdout || recorded.stderr != bare.stderr {
            return Err(failure!(
                "recorded, it prints\n{}bare, it prints\n{}",
                text(&recorded),
                text(&bare)
            ));
        }
        outcome.passed[2] = true;
        let checked = succeeded(cutape(&["check", "--fail-on", "warning"]).arg(&trace));
        let replayed = succeeded(cutape(&["replay", "--driver", "null"]).arg(&trace));
        outcome.launches = replayed.as_ref().map_or(0, launches);
        outcome.passed[3] = checked.is_ok();
        outcome.passed[4] = replayed.is_ok() && outcome.launches > 0;
        checked.and(replayed)?;
        match outcome.launches {
            0 => Err(Failure::new("replayed without a launch")),
            _ => Ok(()),
        }
    }
}

/// The options for nvcc in a source's first line.
fn options_of(source: &Path) -> Result<Vec<String>, Failure> {
    let text = files::read(source)?;
    let first = text.lines().next().unwrap_or_default();
    let options = first.strip_prefix("// nvcc:").unwrap_or_default();
    Ok(options.split_whitespace().map(str::to_owned).collect())
}

/// Whether a file is there and newer than what it is made from.
fn is_newer(made: &Path, from: &Path) -> bool {
    let time = |path: &Path| path.metadata().and_then(|data| data.modified()).ok();
    time(made).is_some_and(|made| Some(made) > time(from))
}

/// Runs it; fails with its output unless its status is 0.
fn succeeded(command: &mut Command) -> Result<Output, Failure> {
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
