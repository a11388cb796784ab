//! Runs B's kernels on A's inputs.

use std::collections::BTreeMap;

use cutape_replay::{Replacement, Tolerance};

use crate::compared::Replays;
use crate::names::Names;
use crate::report::{Changed, Report};

/// By launch of A: what B's kernel writes otherwise on its inputs; `None` if it writes the same.
pub(crate) type Ran = BTreeMap<u64, Option<Changed>>;

/// Runs kernels in place of those of these launches.
pub(crate) fn run(
    replays: &mut dyn Replays,
    wanted: Vec<(u64, Replacement)>,
    (tolerance, names): (&Tolerance, &Names),
    report: &mut Report,
) -> Ran {
    if wanted.is_empty() {
        return Ran::new();
    }
    let calls: Vec<u64> = wanted.iter().map(|(call, _)| *call).collect();
    let outcome = match replays.run(wanted.into_iter().collect(), tolerance) {
        Ok(outcome) => outcome,
        Err(why) => {
            report
                .left_out
                .push(format!("B's kernels on A's inputs: {why}"));
            return Ran::new();
        }
    };
    report.left_out.extend(outcome.notes.into_keys());
    let were_run = |call: &u64| outcome.subjects.iter().any(|subject| subject.call == *call);
    let mut ran: Ran = calls
        .into_iter()
        .filter(were_run)
        .map(|call| (call, None))
        .collect();
    for differing in outcome.mismatches {
        if let Some(changed) = ran.get_mut(&differing.call) {
            let label = names.label(differing.call, differing.address);
            changed.get_or_insert(Changed {
                memory: label.map_or(differing.memory, str::to_owned),
                mismatch: differing.mismatch,
            });
        }
    }
    ran
}
