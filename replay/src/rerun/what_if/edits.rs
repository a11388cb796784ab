//! All edits, in the order in which they are applied.

use super::edited::{Edited, Known};
use super::job::{Applied, WhatIf};
use super::{batch_copies, drop_sync, graph, kernels, launch_shape, overlap, pin_memory};

/// Applies one edit; the error says why it is not possible.
type Apply = fn(&mut Edited, Known<'_, '_>, &WhatIf) -> Result<Applied, String>;

/// An edit, and whether it is asked for.
type Edit = (fn(&WhatIf) -> bool, Apply);

/// What replaces calls or leaves some out, in the order in which they are applied.
const EDITS: [Edit; 4] = [
    (|job| !job.replacements.is_empty(), kernels::apply),
    (|job| !job.shapes.is_empty(), launch_shape::apply),
    (|job| !job.drop_sync.is_empty(), drop_sync::apply),
    (|job| !job.pin_memory.is_empty(), pin_memory::apply),
];

/// What joins calls or orders them in another way, after that.
const JOINING: [Edit; 3] = [
    (|job| !job.batch_copies.is_empty(), batch_copies::apply),
    (|job| !job.overlap.is_empty(), overlap::apply),
    (|job| !job.graph.is_empty(), graph::apply),
];

/// Applies all edits that are asked for.
pub(super) fn apply(
    edited: &mut Edited,
    known: Known<'_, '_>,
    job: &WhatIf,
) -> Result<Vec<Applied>, String> {
    let mut applied = Vec::new();
    for edits in [&EDITS[..], &JOINING[..]] {
        for (_, apply) in edits.iter().filter(|(is_wanted, _)| is_wanted(job)) {
            applied.push(apply(edited, known, job)?);
        }
        if edited.unjoined.is_empty() {
            edited.unjoined = edited.steps.clone();
        }
    }
    Ok(applied)
}
