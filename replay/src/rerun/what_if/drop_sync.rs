//! `--drop-sync`: waits of the host are left out.

use cutape_render::quantity;

use super::edited::{Edited, Known};
use super::hazards::is_wait;
use super::job::{Applied, WhatIf};
use crate::calls::steps::Step;

pub(super) fn apply(
    edited: &mut Edited,
    _: Known<'_, '_>,
    job: &WhatIf,
) -> Result<Applied, String> {
    let before = edited.steps.len();
    edited.steps.retain(|step| match step {
        Step::Call(issued) => !(job.drop_sync.contains(&issued.index) && is_wait(issued.function)),
        _ => true,
    });
    let dropped = (before - edited.steps.len()) as u64;
    if dropped == 0 {
        return Err(
            "none of the calls waits for a stream, a context or an event (cuStreamSynchronize, \
             cuCtxSynchronize, cuEventSynchronize)"
                .to_owned(),
        );
    }
    let streams = edited.non_blocking.unordered(&edited.steps);
    if streams > 1 {
        edited.conditions.push(format!(
            "events order the work of the {streams} streams where the waits that are left out did \
             (the bytes are compared, the order is not)"
        ));
    }
    Ok(Applied {
        edit: "drop-sync".to_owned(),
        calls: dropped,
        what: format!("{} left out", quantity::count(dropped, "wait")),
    })
}
