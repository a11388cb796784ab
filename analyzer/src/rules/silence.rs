//! Why a rule says nothing about a call, as far as the engine knows.

use std::fmt;

use cutape_format::{Bytes, Call};
use cutape_registry::{Confidence, Kind};

use super::{Check, Rule, Rules, When, code, decides, init, result_name};
use crate::call_site::label;
use crate::plan::Step;

/// Why a rule says nothing about a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Silence {
    /// It is no rule about single calls: why.
    NotAboutCalls(String),
    /// Nothing of the rule is checked at that function.
    OtherFunction,
    /// cutape does not know the function, or knows other parameters of it.
    UnknownFunction,
    /// The driver refused the call because it is not initialized, or no longer.
    NoDriver(String),
    /// What the rule needs in order to find something does not hold: what.
    Precondition(&'static str),
    /// The call failed, and had it succeeded, the rule would have found something: its result.
    CallFailed(String),
    /// These rules found the cause already.
    EarlierCause(Vec<&'static str>),
    /// The finding repeats an earlier one, and was counted.
    Repeats,
    /// Reported only if something does not come later: what.
    Deferred(&'static str),
    /// What the recording lacks, and which option records it.
    NotRecorded(String),
    /// The rule looked at these objects and found them right.
    Right(Vec<String>),
    /// It is not silent: it found this.
    Found(String),
}

impl fmt::Display for Silence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAboutCalls(why) => write!(f, "the rule is not decided at a call: {why}"),
            Self::OtherFunction => write!(f, "the rule is not about this function"),
            Self::UnknownFunction => write!(
                f,
                "cutape does not know this function, or knows it with other parameters"
            ),
            Self::NoDriver(result) => write!(
                f,
                "the call returned {result}: of such calls, only their time is checked"
            ),
            Self::Precondition(what) => write!(f, "{what}"),
            Self::CallFailed(result) => write!(
                f,
                "the call failed with {result}; had it succeeded, the rule would have a finding"
            ),
            Self::EarlierCause(rules) => {
                write!(f, "{} found the cause, which comes first", rules.join(", "))
            }
            Self::Repeats => write!(
                f,
                "it repeats an earlier finding of the same mistake, and was counted there"
            ),
            Self::Deferred(what) => write!(f, "it is reported only if {what}"),
            Self::NotRecorded(what) => write!(f, "{what}"),
            Self::Right(objects) if objects.is_empty() => write!(
                f,
                "the rule looked at the arguments and the result of the call and found them right"
            ),
            Self::Right(objects) => write!(
                f,
                "the rule looked at {} and found them right",
                objects.join(", ")
            ),
            Self::Found(title) => write!(f, "the rule found: {title}"),
        }
    }
}

/// Of a rule that is not decided at calls: why. `None` if it is.
pub(crate) fn not_about_calls(rule: &str) -> Option<Silence> {
    let entry = cutape_registry::rule(rule)?;
    let why = match (entry.undecidable, entry.area) {
        ("", "ranks") => "it compares processes; check the folder of their traces".to_owned(),
        ("", "performance") => {
            "it counts calls of the whole trace, and reports at its end".to_owned()
        }
        ("", "init") => return None,
        ("", _) if decides::is_decided_at_calls(rule) => return None,
        ("", _) => "it looks at what is missing at the end of the trace".to_owned(),
        (why, _) => format!("a trace cannot decide it. {why}"),
    };
    Some(Silence::NotAboutCalls(why))
}

/// Why the rule says nothing at the call, before its findings are compared with earlier ones.
/// `succeeded` is the same call with success as its result.
pub(crate) fn silence(check: &Check<'_, '_>, rules: &Rules, rule: &str) -> Silence {
    let result = check.call.result();
    if init::is_uninitialized(check.call) || init::fails_in_forked_child(check) {
        let found = init::not_initialized(check).filter(|draft| draft.rule == rule);
        let found = found.map(|draft| Silence::Found(draft.title));
        return found.unwrap_or_else(|| Silence::NoDriver(result_name(result)));
    }
    if result == Some(code::DEINITIALIZED) {
        return Silence::NoDriver(result_name(result));
    }
    let mut best = match decides::is_decided_at_calls(rule) {
        true => Silence::OtherFunction,
        false => Silence::Precondition(
            "the rule looks only at calls that return CUDA_ERROR_NOT_INITIALIZED",
        ),
    };
    let mut drafts = Vec::new();
    for (when, checked) in rules {
        let decides = decides::decided_by(*checked).any(|decided| decided == rule);
        if !when.holds(check.state, check.plan, check.call) {
            if decides && best == Silence::OtherFunction {
                best = Silence::Precondition(unmet(*when));
            }
            continue;
        }
        match checked {
            Rule::Cause(run) => run(check, &mut drafts),
            Rule::Consequence(run) if drafts.is_empty() => drafts.extend(run(check)),
            Rule::Consequence(_) => {
                if decides {
                    let mut found: Vec<&str> = drafts.iter().map(|draft| draft.rule).collect();
                    found.dedup();
                    best = Silence::EarlierCause(found);
                }
                continue;
            }
        }
        if decides && !matches!(best, Silence::EarlierCause(_)) {
            best = Silence::Right(objects(check));
        }
    }
    if let Some(draft) = drafts.iter().find(|draft| draft.rule == rule) {
        return match (&draft.deferral, check.is_reported(draft)) {
            (_, true) => Silence::Repeats,
            (Some(until), _) => Silence::Deferred(until.condition()),
            _ => Silence::Found(draft.title.clone()),
        };
    }
    match best {
        Silence::Right(_) => not_recorded(check, rule).unwrap_or(best),
        _ => best,
    }
}

/// The call with success as its result, if it failed.
pub(crate) fn succeeded<'t>(call: &Call<'t>) -> Option<Call<'t>> {
    let mut leave = call.leave.filter(|leave| leave.result != 0)?;
    leave.result = 0;
    let mut call = call.clone();
    call.leave = Some(leave);
    Some(call)
}

/// The objects that the call names and uses.
fn objects(check: &Check<'_, '_>) -> Vec<String> {
    let objects = &check.state.objects;
    let mut found = Vec::new();
    for &(position, step) in &check.plan.steps {
        let value = check.call.argument(position);
        found.extend(match step {
            Step::Use(kind) | Step::Destroy(kind) if value != 0 => {
                objects.resolve(kind, value).known()
            }
            Step::Device(_) => check.state.memory_at(value),
            _ => None,
        });
    }
    if let Some(handle) = check.plan.launched.map(|at| check.call.argument(at)) {
        let kinds = [Kind::Function, Kind::Kernel].into_iter();
        let mut known = kinds.filter_map(|kind| objects.resolve(kind, handle).known());
        found.extend(known.next());
    }
    found.extend(
        check
            .state
            .ordering
            .current
            .iter()
            .map(|access| access.object),
    );
    let mut labels: Vec<String> = found.into_iter().map(|id| label(objects, id)).collect();
    let mut seen = std::collections::HashSet::new();
    labels.retain(|label| seen.insert(label.clone()));
    labels
}

/// What the recording lacks of the bytes that the rule's findings rest on.
fn not_recorded(check: &Check<'_, '_>, rule: &str) -> Option<Silence> {
    let confidence = cutape_registry::rule(rule)?.confidence;
    if confidence == Confidence::Certain {
        return None;
    }
    let plan = check.plan;
    let left_out = check.call.snapshots().find_map(|piece| {
        let why = match piece.bytes {
            Bytes::Omitted(_) | Bytes::Hashed(..) => "were not kept: record with `--payloads all`",
            Bytes::Unreadable => "could not be read when the call was made",
            Bytes::InFile(range) if check.context.file_range(range).is_none() => {
                "are in a file that is not here: record with `--payloads all`, or pack the trace \
                 where the file is"
            }
            _ => return None,
        };
        let name = plan.function.params.get(usize::from(piece.parameter))?.name;
        Some(format!("the bytes behind `{name}` {why}"))
    });
    let without_layout = || {
        let is_needed = plan.launched.is_some() && check.launch_layout().is_none();
        is_needed.then(|| {
            "the recording does not say how the kernel takes its parameters: neither its image nor \
             the driver told"
                .to_owned()
        })
    };
    left_out.or_else(without_layout).map(Silence::NotRecorded)
}

/// Why a gate is closed.
fn unmet(when: When) -> &'static str {
    match when {
        When::Always => "",
        When::Wrong => "the rule looks only at calls that failed, and this one succeeded",
        When::Ended => "no object of a kind that the call uses had ended before the call",
        When::Freed => "no memory had been freed before the call",
        When::Undefined => {
            "no earlier call of this thread had failed and left its output undefined"
        }
        When::Libraries => "the program had not used libraries before the call",
        When::Captured => "the call did not fail in a way that a stream capture explains",
        When::Devices => "the program had contexts on one device only",
        When::Unaccessed => {
            "every mapping had been given access, and the program had contexts on one device only"
        }
        When::ReservedWrong => "the call succeeded, or no addresses were reserved or mapped",
        When::Lent => "no live object relied on memory of the program",
        When::Sticky => "the call returned no error of earlier work",
        When::Threads => "only one thread had called the driver",
        When::Capturing => "no stream was capturing",
        When::Textures => {
            "no texture or surface object existed, or nothing that it needs had ended"
        }
        When::TensorMaps => "there was no tensor map, or no memory had been freed",
        When::PassesExtra => "the launch passes no `extra`",
        When::PassesAttributes => "the launch passes no attributes",
        When::KernelUses => "no kernel was loaded whose code asks for something at a launch",
        When::LaunchEvents => "no event had been recorded by an attribute of a launch",
        When::Accessing => {
            "the call accesses no known memory, or no earlier work may still run on any"
        }
        When::Fresh => "the call accesses no known memory, or all of it had been written",
        When::Sourced | When::Uploading => {
            "no copy from page-locked memory whose bytes were recorded may still run"
        }
        When::Busy => "no work on memory may still run",
        When::FreedBusy => "no work may still use memory that was freed in the order of a stream",
    }
}
