//! `what-if`: what a change of the program's calls would gain, predicted and measured.
//!
//! `selection` chooses the calls of each edit, a guarded child tries them
//! ([`cutape_replay::WhatIf`]), [`Tried`] says what came of it and `text` puts it into words.

mod selection;
mod settings;
mod text;

use std::process::Command;

use cutape_format::Trace;
use cutape_profile::{Prediction, Profile, Spread};
use cutape_replay::{Applied, Guard, Measuring, Options, Other, Skipped, Tolerance};
use serde::Serialize;

use crate::error::Error;
use crate::host_time::while_recorded;
pub use selection::EditSelection;
pub use settings::EditSettings;

/// Of the calls as recorded and edited.
#[derive(Clone, Debug, Serialize)]
pub struct Pair {
    /// From the first call to the end of all work, in nanoseconds: as recorded.
    pub recorded_ns: Spread,
    /// The same, edited.
    pub edited_ns: Spread,
    /// By how much the edited calls take less time, as a part of the recorded ones' time.
    pub gain: f64,
    /// How often the calls ran in each round.
    pub iterations: u64,
    /// How long the program itself took for them while it was recorded, in nanoseconds; `None` if the
    /// last one does not wait for work.
    pub program_ns: Option<u64>,
}

/// What came of the edits.
#[derive(Clone, Debug, Serialize)]
pub struct Tried {
    /// The edits.
    pub edits: Vec<Applied>,
    /// The first and the last of the measured calls.
    pub calls: (u64, u64),
    /// How many of them were repeated.
    pub repeated: u64,
    /// Why the edits are not possible.
    pub refused: Option<String>,
    /// What the program would have to heed, which the trace cannot show.
    pub conditions: Vec<String>,
    /// What a profile lets expect; `None` without one.
    pub predicted: Option<Prediction>,
    /// What was measured; `None` if nothing was.
    pub measured: Option<Pair>,
    /// Pieces of memory and copies to the host that were compared.
    pub compared: u64,
    /// Their bytes.
    pub compared_bytes: u64,
    /// Those that the recorded calls fill with other bytes each time.
    pub unsteady: u64,
    /// Those that differ.
    pub differing: Vec<Other>,
    /// Calls that were issued once, by reason and name.
    pub not_repeated: Vec<Skipped>,
    /// Calls that were deferred because they end what the others use.
    pub deferred: Vec<Skipped>,
    /// Further notes, with how often each applies.
    pub notes: std::collections::BTreeMap<String, u64>,
}

impl Tried {
    /// Whether the edits are possible, and leave the same bytes.
    pub fn is_valid(&self) -> bool {
        self.refused.is_none() && self.differing.is_empty()
    }
}

/// Tries the edits in a child process that `command` starts and that calls [`try_as_child`];
/// `progress` gets how many calls and iterations are done.
///
/// # Errors
/// If the child could not measure.
pub fn try_edits(
    trace: &Trace,
    selection: &EditSelection,
    profile: Option<&Profile>,
    command: &dyn Fn() -> Command,
    guard: &Guard,
    progress: &mut dyn FnMut(u64),
) -> Result<Tried, Error> {
    let measured = cutape_replay::rerun_guarded(trace, command, guard, progress)
        .map_err(|error| Error(error.to_string()))?;
    let outcome = measured.outcome;
    let tried = outcome.tried.unwrap_or_default();
    let spread = |times: &[f64]| Spread::of(times.iter().copied());
    let (recorded_ns, edited_ns) = (spread(&tried.recorded_ns), spread(&tried.edited_ns));
    let measured = (recorded_ns.count > 0).then(|| Pair {
        gain: 1.0 - edited_ns.median / recorded_ns.median.max(1.0),
        recorded_ns,
        edited_ns,
        iterations: tried.iterations,
        program_ns: while_recorded(trace, selection.span()),
    });
    Ok(Tried {
        edits: tried.applied,
        calls: selection.span(),
        repeated: outcome.subjects.first().map_or(0, |subject| subject.calls),
        predicted: profile.map(|profile| selection.predict(profile)),
        refused: tried.refused,
        conditions: tried.conditions,
        measured,
        compared: tried.compared,
        compared_bytes: tried.compared_bytes,
        unsteady: tried.unsteady,
        differing: tried.differing,
        not_repeated: outcome.not_repeated,
        deferred: outcome.deferred,
        notes: outcome.notes,
    })
}

/// The child's side of [`try_edits`]: tries them, and reports through a pipe to its parent. Returns
/// the exit status for the process.
pub fn try_as_child(
    trace: &Trace,
    selection: EditSelection,
    tolerance: Tolerance,
    options: Options,
) -> i32 {
    let options = Options {
        keep_going: true,
        timing: Measuring::Calls,
        until: Some(selection.span().1 + 1),
        ..options
    };
    let job = selection.job(tolerance);
    let unused = Box::new(|_, _: &mut cutape_replay::Work<'_>| Ok(()));
    cutape_replay::rerun_as_child(trace, &options, job, unused, &|| serde_json::Value::Null)
}
