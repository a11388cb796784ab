//! Whether a trace still shows what is kept.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use cutape_analyzer::Analyzer;
use cutape_format::Trace;
use cutape_model::Need;
use cutape_replay::{Guard, Report, What};

use super::keep::Kept;
use crate::failure::Failure;
use crate::symbol_context::SymbolContext;
use crate::symbols::Resolver;
use crate::{library, replay};

/// Judges traces.
#[derive(Debug)]
pub(super) struct Judge {
    kept: Kept,
    driver: PathBuf,
    program: PathBuf,
    watchdog: Duration,
    expected: Option<Expected>,
}

/// What the source shows.
#[derive(Clone, Debug)]
enum Expected {
    /// Findings of these rules.
    Findings(BTreeSet<&'static str>),
    /// The first divergence is at this call of the source.
    Divergence(u64, What),
    /// A replay dies in this call.
    Crash(u64, Option<i32>),
    /// This call returns the code.
    Error(u64),
    /// The command says so.
    Test,
}

/// The findings of a trace.
struct Findings {
    rules: BTreeSet<&'static str>,
    /// The call of the first finding of the rule that is kept.
    call: Option<u64>,
}

impl Judge {
    pub(super) fn new(kept: Kept, driver: Option<&Path>, watchdog: u64) -> Result<Self, Failure> {
        let replays = matches!(kept, Kept::Divergence | Kept::Crash | Kept::Error(_));
        Ok(Self {
            driver: match replays {
                true => library::driver(driver)?,
                false => PathBuf::new(),
            },
            kept,
            program: library::own_path()?,
            watchdog: Duration::from_secs(watchdog.max(1)),
            expected: None,
        })
    }

    /// The option, for people.
    pub(super) fn words(&self) -> String {
        match &self.kept {
            Kept::Finding(rule) => format!("--keep-finding {rule}"),
            Kept::Divergence => "--keep-divergence".to_owned(),
            Kept::Crash => "--keep-crash".to_owned(),
            Kept::Error(code) => format!("--keep-error {}", error_name(*code)),
            Kept::Test(command) => format!("--test {command}"),
        }
    }

    /// What a trace that does not show it is like.
    pub(super) fn absence(&self) -> String {
        match &self.kept {
            Kept::Finding(rule) => format!("check has no finding of {rule}"),
            Kept::Divergence => "its replay has no divergence".to_owned(),
            Kept::Crash => "its replay does not crash".to_owned(),
            Kept::Error(code) => format!("no call returns {}", error_name(*code)),
            Kept::Test(_) => "the command does not exit with status 0".to_owned(),
        }
    }

    /// The needs that a call cannot be left without. Without the bytes or the order that calls
    /// need, a replay would diverge for another reason.
    pub(super) fn hard(&self) -> impl Fn(Need) -> bool + use<> {
        let diverges = self.kept == Kept::Divergence;
        move |need| match need {
            Need::Existence => true,
            Need::Content | Need::Order => diverges,
            Need::Setting | Need::Completion => false,
        }
    }

    /// Looks at the whole trace; returns the calls that show it, if there are such.
    pub(super) fn look_at_source(&mut self, trace: &Trace) -> Result<Vec<u64>, Failure> {
        let absent =
            || Failure::unusable(format!("{}: {}", trace.path().display(), self.absence()));
        let (expected, call) = match &self.kept {
            Kept::Finding(rule) => {
                let found = findings(trace, rule)?;
                if !found.rules.contains(rule.as_str()) {
                    return Err(absent());
                }
                (Expected::Findings(found.rules), found.call)
            }
            Kept::Divergence => {
                let report = self.replay(trace, false)?;
                let first = report.divergences.first().ok_or_else(absent)?;
                (
                    Expected::Divergence(first.call, first.what),
                    Some(first.call),
                )
            }
            Kept::Crash => {
                let died = self.replay(trace, true)?.died;
                let died = died.filter(|died| !died.hung).ok_or_else(absent)?;
                let call = died.call.ok_or_else(|| {
                    Failure::unusable(format!(
                        "{}: the replay {}, in no call",
                        trace.path().display(),
                        died.text
                    ))
                })?;
                (Expected::Crash(call, died.signal), Some(call))
            }
            Kept::Error(code) => {
                let mut calls = trace.calls();
                let first = calls.find(|call| call.result() == Some(*code));
                let call = first.ok_or_else(absent)?.index;
                let report = self.replay(trace, true)?;
                if !returns_as_recorded(&report, call) {
                    return Err(Failure::unusable(format!(
                        "{}: call {call} does not return {} in a replay, or is not re-issued",
                        trace.path().display(),
                        error_name(*code)
                    )));
                }
                (Expected::Error(call), Some(call))
            }
            Kept::Test(command) => {
                if !succeeds(command, trace.path())? {
                    return Err(Failure::unusable(format!(
                        "{}: the command of --test does not exit with status 0 for it",
                        trace.path().display()
                    )));
                }
                (Expected::Test, None)
            }
        };
        self.expected = Some(expected);
        Ok(call.into_iter().collect())
    }

    /// Whether an attempt shows it; `original` has the indices of its calls in the source.
    pub(super) fn shows(&self, path: &Path, original: &[u64]) -> Result<bool, Failure> {
        let at = |call: u64| original.get(call as usize).copied();
        let trace = || Trace::open(path).map_err(Failure::from);
        Ok(match (&self.kept, &self.expected) {
            (Kept::Test(command), _) => succeeds(command, path)?,
            (Kept::Finding(rule), Some(Expected::Findings(rules))) => {
                let found = findings(&trace()?, rule)?;
                found.rules.contains(rule.as_str()) && found.rules.is_subset(rules)
            }
            (_, Some(Expected::Divergence(call, what))) => {
                let report = self.replay(&trace()?, false);
                let report = report.ok();
                let first = report
                    .as_ref()
                    .and_then(|report| report.divergences.first());
                first.is_some_and(|first| at(first.call) == Some(*call) && first.what == *what)
            }
            (_, Some(Expected::Crash(call, signal))) => {
                let died = self
                    .replay(&trace()?, true)
                    .ok()
                    .and_then(|report| report.died);
                died.is_some_and(|died| {
                    !died.hung && died.signal == *signal && died.call.and_then(at) == Some(*call)
                })
            }
            (_, Some(Expected::Error(call))) => match original.binary_search(call) {
                Ok(place) => {
                    let report = self.replay(&trace()?, true);
                    report.is_ok_and(|report| returns_as_recorded(&report, place as u64))
                }
                Err(_) => false,
            },
            _ => false,
        })
    }

    /// Replays a trace in a guarded child.
    fn replay(&self, trace: &Trace, keeps_going: bool) -> Result<Report, Failure> {
        let plan = cutape_replay::plan(trace);
        let command = || replay::child_for(&self.program, &self.driver, trace.path(), keeps_going);
        let guard = Guard {
            watchdog: self.watchdog,
            ..Guard::default()
        };
        cutape_replay::run_guarded(trace, &plan, &command, &guard, &mut |_| {})
            .map_err(Failure::unusable)
    }
}

/// Whether a call was re-issued and returned what is recorded.
fn returns_as_recorded(report: &Report, call: u64) -> bool {
    let diverges = report
        .divergences
        .iter()
        .any(|divergence| divergence.call == call && divergence.what == What::Result);
    let is_skipped = report.skipped.iter().any(|skipped| skipped.first == call);
    let is_reached = report
        .died
        .as_ref()
        .is_none_or(|died| died.call.is_some_and(|last| last > call));
    !diverges && !is_skipped && is_reached
}

/// The rules of all findings, and the call of the first one of a rule.
fn findings(trace: &Trace, rule: &str) -> Result<Findings, Failure> {
    let resolver = Resolver::default();
    let context = SymbolContext::new(trace, &resolver);
    let mut analyzer = Analyzer::new();
    let mut found = Findings {
        rules: BTreeSet::new(),
        call: None,
    };
    let mut take = |findings: Vec<cutape_analyzer::Finding>| {
        for finding in findings {
            found.rules.insert(finding.rule);
            if finding.rule == rule && found.call.is_none() {
                found.call = finding.call.map(|site| site.index);
            }
        }
    };
    trace.walk().run(|call| {
        take(analyzer.push(&context, call));
        Ok::<_, Failure>(())
    })?;
    take(analyzer.finish(&context));
    Ok(found)
}

/// Whether a command exits with status 0 for a trace.
fn succeeds(command: &str, path: &Path) -> Result<bool, Failure> {
    let with_path = match command.contains("{}") {
        true => command.replace("{}", "\"$1\""),
        false => format!("{command} \"$1\""),
    };
    let status = Command::new("sh")
        .args(["-c", &with_path, "sh"])
        .arg(path)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .map_err(|error| Failure::unusable(format!("--test: cannot run sh: {error}")))?;
    match status.code() {
        // What the shell says of a command that is not there or cannot be run (POSIX).
        Some(code @ (126 | 127)) => Err(Failure::unusable(format!(
            "--test: the command cannot be run: sh exits with status {code}"
        ))),
        code => Ok(code == Some(0)),
    }
}

fn error_name(code: i32) -> String {
    let name = cutape_registry::result_name(code);
    name.map_or_else(|| code.to_string(), str::to_owned)
}
