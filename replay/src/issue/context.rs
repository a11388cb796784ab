//! Handles and ranges that end with their context, and the primary contexts that the replay holds.

use cutape_registry::{ContextOp, Family, Kind, PrimaryOp};

use crate::objects::handles::{Key, Resolved};
use crate::player::{Job, Played};

/// cuDevicePrimaryCtxSetFlags: while nothing is allocated in the primary context, the replay
/// releases it, because the program set the flags before the context was active.
pub(crate) fn set_flags(job: &mut Job<'_, '_>) -> Played {
    let device = live_device(job, 0);
    let steps_back = job.machine.held.contains(&device)
        && job.report.placed.allocations == 0
        && job.api.release_primary(device).is_ok();
    let played = job.plain();
    if steps_back && job.api.retain_primary(device).is_err() {
        job.machine.held.remove(&device);
    }
    played
}

/// The device that replaces the one of a parameter; -1, which is no ordinal, if there is none.
fn live_device(job: &Job<'_, '_>, position: usize) -> i32 {
    let recorded = job.call.argument(position) as i32;
    job.machine.devices.ordinal(recorded).unwrap_or(-1)
}

/// Follows a call that succeeded, in the recording and here.
pub(crate) fn after(job: &mut Job<'_, '_>) {
    match job.function.family {
        Family::PrimaryContext(PrimaryOp::Retain) => {
            // The program's own reference holds it from here on; its release counts as recorded.
            let device = live_device(job, 1);
            let context = job
                .call
                .out(0)
                .map(|context| job.handles.resolve(Kind::Context, context));
            if let Some(Resolved::Live(live)) = context {
                job.machine.primaries.insert(device, live);
            }
            if job.machine.held.contains(&device) && job.api.release_primary(device).is_ok() {
                job.machine.held.remove(&device);
            }
        }
        Family::PrimaryContext(operation @ (PrimaryOp::Release | PrimaryOp::Reset)) => {
            let device = live_device(job, 0);
            if operation == PrimaryOp::Reset {
                job.machine.held.remove(&device);
            }
            if job.api.primary_is_active(device) == Ok(false) {
                primary_ended(job, device);
            }
        }
        // Only the last use destroys the context.
        Family::Context(ContextOp::Detach) => {
            let context = job.call.argument(0);
            if let Resolved::Live(live) = job.handles.resolve(Kind::Context, context)
                && job.api.current_context() != Ok(live)
            {
                let site = job.site();
                let ended = job.handles.end((Kind::Context, context), site);
                job.player.end_ranges(job.call.index, &ended, Some(live));
            }
        }
        _ => {}
    }
}

fn primary_ended(job: &mut Job<'_, '_>, device: i32) {
    let primary = job.machine.primaries.remove(&device);
    let Some(live) = primary else { return };
    let site = job.site();
    let ended: Vec<Key> = job.handles.end_context_content(live, site);
    job.player.end_ranges(job.call.index, &ended, Some(live));
}
