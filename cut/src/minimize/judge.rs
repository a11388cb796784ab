//! Whether a trace still shows what is kept.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};

use cutape_analyzer::Analyzer;
use cutape_format::{Trace, file_hash};
use cutape_model::Need;
use cutape_replay::{CallImage, Died, Divergence, Report, What};
use cutape_symbols::{Resolver, SymbolContext};

use crate::error::Error;
use crate::minimize::environment::{Environment, OtherReplay};

/// What a smaller trace must still show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kept {
    /// A finding of a rule.
    Finding(String),
    /// The first divergence.
    Divergence,
    /// The crash.
    Crash,
    /// The first call with this result.
    Error(i32),
    /// What a command finds.
    Test(String),
}

impl Kept {
    /// Whether replays tell if a trace shows it.
    pub fn is_of_replays(&self) -> bool {
        matches!(self, Self::Divergence | Self::Crash | Self::Error(_))
    }
}

/// Judges traces.
pub(super) struct Judge<'e> {
    environment: &'e dyn Environment,
    kept: Kept,
    /// Images that replays load instead of the recorded ones, by call of the source.
    images: Vec<CallImage>,
    expected: Option<Expected>,
}

/// What the source shows.
#[derive(Clone, Debug)]
enum Expected {
    /// Findings of these rules.
    Findings(BTreeSet<&'static str>),
    /// The first divergence.
    Divergence(Diverging),
    /// A replay dies in this call.
    Crash {
        call: u64,
        signal: Option<i32>,
        /// Only if it re-issues what the recorded program died in.
        reissues_fatal: bool,
    },
    /// This call returns the code.
    Error(u64),
    /// The command says so.
    Test,
}

/// The first divergence of the source.
#[derive(Clone, Debug)]
struct Diverging {
    /// The call of the source.
    call: u64,
    what: What,
    cause: Cause,
}

/// What tells a divergence from another one at the same call.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Cause {
    /// Other images: with the recorded ones a replay agrees.
    Images,
    /// Two replays receive different values.
    Nondeterminism,
    /// The replay receives the same value as that of the source.
    Value(Received),
    /// Nothing does: the values are addresses or handles.
    Unknown,
}

/// What a replay received: the text, and the hash of long bytes.
type Received = (String, Option<String>);

fn received(divergence: &Divergence) -> Received {
    (
        divergence.received.clone(),
        divergence.received_hash.clone(),
    )
}

/// The findings of a trace.
struct Findings {
    rules: BTreeSet<&'static str>,
    /// The call of the first finding of the rule that is kept.
    call: Option<u64>,
}

impl<'e> Judge<'e> {
    pub(super) fn new(
        environment: &'e dyn Environment,
        kept: Kept,
        images: Vec<CallImage>,
    ) -> Self {
        Self {
            environment,
            kept,
            images,
            expected: None,
        }
    }

    /// The option, for people.
    pub(super) fn words(&self) -> String {
        let mut words = match &self.kept {
            Kept::Finding(rule) => format!("--keep-finding {rule}"),
            Kept::Divergence => "--keep-divergence".to_owned(),
            Kept::Crash => "--keep-crash".to_owned(),
            Kept::Error(code) => format!("--keep-error {}", error_name(*code)),
            Kept::Test(command) => format!("--test {command}"),
        };
        for image in &self.images {
            words += &format!(" --replace-image {}", image.to_argument().display());
        }
        words
    }

    /// Hashes of the images that replays of the source load.
    pub(super) fn image_hashes(&self, source: &Trace) -> Result<Vec<String>, Error> {
        CallImage::read_all(source, &self.images)
            .map_err(|error| Error::Unusable(error.to_string()))?;
        let hash = |image: &CallImage| {
            file_hash(&image.file).map_err(|error| Error::unreadable(&image.file, &error))
        };
        self.images.iter().map(hash).collect()
    }

    /// The options with which `replay` shows it for an attempt, if it needs any.
    pub(super) fn replay_options(&self, original: &[u64]) -> String {
        let mut options = String::new();
        if let Some(Expected::Crash {
            reissues_fatal: true,
            ..
        }) = self.expected
        {
            options += " --reissue-fatal";
        }
        for image in self.images_of(original) {
            options += &format!(" --replace-image {}", image.to_argument().display());
        }
        options
    }

    /// The images that replays of an attempt load.
    fn images_of(&self, original: &[u64]) -> Vec<CallImage> {
        let images = self.images.iter().filter_map(|image| {
            let call = original.binary_search(&image.call).ok()? as u64;
            let file = image.file.clone();
            Some(CallImage { call, file })
        });
        images.collect()
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

    /// The needs that a call cannot be left without. Without the order that calls need, a replay
    /// diverges now and then for another reason.
    pub(super) fn hard(&self) -> impl Fn(Need) -> bool + use<> {
        let diverges = self.kept == Kept::Divergence;
        move |need| match need {
            Need::Existence => true,
            Need::Order => diverges,
            Need::Content | Need::Setting | Need::Completion => false,
        }
    }

    /// Whether what changes in a call can be told from another cause. A replay that copies or
    /// launches less diverges for that reason alone.
    pub(super) fn permits_changes(&self) -> bool {
        let Some(Expected::Divergence(Diverging { cause, .. })) = &self.expected else {
            return true;
        };
        *cause != Cause::Unknown
    }

    /// Whether the source must be looked at without digests: a smaller trace has none, because what
    /// memory holds depends on all calls.
    pub(super) fn leaves_digests_out(&self, trace: &Trace) -> bool {
        self.kept == Kept::Divergence && trace.meta_value("digests").is_some()
    }

    /// Looks at all calls; returns those that show it, if there are such. `name` is the source's.
    pub(super) fn look_at_source(&mut self, trace: &Trace, name: &Path) -> Result<Vec<u64>, Error> {
        let failure = |what: &str| Error::Unusable(format!("{}: {what}", name.display()));
        let absent = || failure(&self.absence());
        let images = &self.images;
        let (expected, call) = match &self.kept {
            Kept::Finding(rule) => {
                let found = findings(trace, rule)?;
                if !found.rules.contains(rule.as_str()) {
                    return Err(absent());
                }
                (Expected::Findings(found.rules), found.call)
            }
            Kept::Divergence => {
                let report = self.replay(trace, OtherReplay::with(images.clone()))?;
                let missing = report.exchanges.first_missing.as_ref();
                let none = || match missing {
                    None => absent(),
                    Some(missing) => failure(&format!(
                        "its replay has no divergence; what call {} changed is missing ({}), so \
                         that bytes are not compared from there on",
                        missing.call, missing.why
                    )),
                };
                let first = report.divergences.first().ok_or_else(none)?;
                let again = self.replay(trace, OtherReplay::with(Vec::new()))?;
                let again = again.divergences.first();
                let cause = if !images.is_empty() {
                    if let Some(earlier) = again.filter(|again| again.call <= first.call) {
                        return Err(failure(&format!(
                            "its replay diverges at call {} without --replace-image too",
                            earlier.call
                        )));
                    }
                    Cause::Images
                } else if again.is_none_or(|again| received(again) != received(first)) {
                    Cause::Nondeterminism
                } else if first.what == What::OutParameter {
                    Cause::Unknown
                } else {
                    Cause::Value(received(first))
                };
                let (call, what) = (first.call, first.what);
                let diverging = Diverging { call, what, cause };
                (Expected::Divergence(diverging), Some(call))
            }
            Kept::Crash => {
                let (died, reissues_fatal) = self.crash(trace)?.ok_or_else(absent)?;
                let call = died
                    .call
                    .ok_or_else(|| failure(&format!("the replay {}, in no call", died.text)))?;
                let expected = Expected::Crash {
                    call,
                    signal: died.signal,
                    reissues_fatal,
                };
                (expected, Some(call))
            }
            Kept::Error(code) => {
                let mut calls = trace.calls();
                let first = calls.find(|call| call.result() == Some(*code));
                let call = first.ok_or_else(absent)?.index;
                let report =
                    self.replay(trace, OtherReplay::with(images.clone()).keeping_going())?;
                if !returns_as_recorded(&report, call) {
                    return Err(failure(&format!(
                        "call {call} does not return {} in a replay, or is not re-issued",
                        error_name(*code)
                    )));
                }
                (Expected::Error(call), Some(call))
            }
            Kept::Test(command) => {
                if !succeeds(command, trace.path())? {
                    return Err(failure(
                        "the command of --test does not exit with status 0 for it",
                    ));
                }
                (Expected::Test, None)
            }
        };
        self.expected = Some(expected);
        Ok(call.into_iter().collect())
    }

    /// How a replay of the source dies, and whether it had to re-issue what may crash the driver.
    fn crash(&self, trace: &Trace) -> Result<Option<(Died, bool)>, Error> {
        for reissues_fatal in [false, true] {
            let other = OtherReplay {
                reissues_fatal,
                ..OtherReplay::with(self.images.clone()).keeping_going()
            };
            let died = self.replay(trace, other)?.died;
            if let Some(died) = died.filter(|died| !died.hung) {
                return Ok(Some((died, reissues_fatal)));
            }
        }
        Ok(None)
    }

    /// Whether an attempt shows it; `original` has the indices of its calls in the source.
    pub(super) fn shows(&self, path: &Path, original: &[u64]) -> Result<bool, Error> {
        let at = |call: u64| original.get(call as usize).copied();
        let trace = || Trace::open(path).map_err(Error::from);
        let other = || OtherReplay::with(self.images_of(original));
        Ok(match (&self.kept, &self.expected) {
            (Kept::Test(command), _) => succeeds(command, path)?,
            (Kept::Finding(rule), Some(Expected::Findings(rules))) => {
                let found = findings(&trace()?, rule)?;
                found.rules.contains(rule.as_str()) && found.rules.is_subset(rules)
            }
            (_, Some(Expected::Divergence(expected))) => {
                self.shows_divergence(&trace()?, expected, at, &other())
            }
            (
                _,
                Some(Expected::Crash {
                    call,
                    signal,
                    reissues_fatal,
                }),
            ) => {
                let other = OtherReplay {
                    reissues_fatal: *reissues_fatal,
                    ..other().keeping_going()
                };
                let died = self.replay(&trace()?, other).ok();
                died.and_then(|report| report.died).is_some_and(|died| {
                    !died.hung && died.signal == *signal && died.call.and_then(at) == Some(*call)
                })
            }
            (_, Some(Expected::Error(call))) => match original.binary_search(call) {
                Ok(place) => {
                    let report = self.replay(&trace()?, other().keeping_going());
                    report.is_ok_and(|report| returns_as_recorded(&report, place as u64))
                }
                Err(_) => false,
            },
            _ => false,
        })
    }

    /// Whether an attempt diverges as the source does; `at` has the calls of the source.
    fn shows_divergence(
        &self,
        trace: &Trace,
        expected: &Diverging,
        at: impl Fn(u64) -> Option<u64>,
        other: &OtherReplay,
    ) -> bool {
        let first = || {
            let report = self.replay(trace, other.clone()).ok()?;
            let first = report.divergences.into_iter().next()?;
            let is_expected = at(first.call) == Some(expected.call) && first.what == expected.what;
            is_expected.then(|| received(&first))
        };
        let Some(value) = first() else {
            return false;
        };
        match &expected.cause {
            Cause::Images => self.agrees_until(trace, expected.call, at),
            Cause::Nondeterminism => first().is_some_and(|again| again != value),
            Cause::Value(known) => value == *known,
            Cause::Unknown => true,
        }
    }

    /// Whether a replay with the recorded images agrees with the recording up to a call of the
    /// source: else the divergence has another cause than the images.
    fn agrees_until(&self, trace: &Trace, call: u64, at: impl Fn(u64) -> Option<u64>) -> bool {
        let report = self.replay(trace, OtherReplay::default());
        report.is_ok_and(|report| {
            let first = report.divergences.first();
            report.died.is_none() && first.is_none_or(|first| at(first.call) > Some(call))
        })
    }

    fn replay(&self, trace: &Trace, other: OtherReplay) -> Result<Report, Error> {
        let other = OtherReplay {
            // What a driver prints when it dies is said once, for the source.
            is_quiet: self.expected.is_some(),
            ..other
        };
        self.environment.replay(trace, &other)
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
fn findings(trace: &Trace, rule: &str) -> Result<Findings, Error> {
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
        Ok::<_, Error>(())
    })?;
    take(analyzer.finish(&context, trace.has_all_calls()));
    Ok(found)
}

/// Whether a command exits with status 0 for a trace.
fn succeeds(command: &str, path: &Path) -> Result<bool, Error> {
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
        .map_err(|error| Error::Unusable(format!("--test: cannot run sh: {error}")))?;
    match status.code() {
        // What the shell says of a command that is not there or cannot be run (POSIX).
        Some(code @ (126 | 127)) => Err(Error::Unusable(format!(
            "--test: the command cannot be run: sh exits with status {code}"
        ))),
        code => Ok(code == Some(0)),
    }
}

fn error_name(code: i32) -> String {
    let name = cutape_registry::result_name(code);
    name.map_or_else(|| code.to_string(), str::to_owned)
}
