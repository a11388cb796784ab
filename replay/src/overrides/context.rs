//! Handles and ranges that end with their context, and the primary contexts that the replay holds.

use cutape_format::Call;
use cutape_registry::{ContextOp, Family, Function, Kind, PrimaryOp};

use crate::issue::handles::{By, Key, Resolved};
use crate::issue::player::{Job, Played, Player};

/// cuDevicePrimaryCtxSetFlags: while nothing is allocated in the primary context, the replay
/// releases it, because the program set the flags before the context was active.
pub(crate) fn set_flags(Job(player, call, function): Job<'_, '_>) -> Played {
    let device = live_device(player, call, 0);
    let steps_back = player.machine.held.contains(&device)
        && player.report.placed.allocations == 0
        && player.api.release_primary(device).is_ok();
    let played = player.plain(call, function);
    if steps_back && player.api.retain_primary(device).is_err() {
        player.machine.held.remove(&device);
    }
    played
}

/// The device that stands for the one of a parameter; -1 for none, which no book knows.
fn live_device(player: &Player<'_>, call: &Call<'_>, position: usize) -> i32 {
    let recorded = call.argument(position) as i32;
    player.machine.devices.ordinal(recorded).unwrap_or(-1)
}

/// Follows a call that succeeded, in the recording and here.
pub(crate) fn after<'t>(player: &mut Player<'t>, call: &Call<'t>, function: &'static Function) {
    match function.family {
        Family::PrimaryContext(PrimaryOp::Retain) => {
            // The program's own reference holds it from here on; its release counts as recorded.
            let device = live_device(player, call, 1);
            let context = call
                .out(0)
                .map(|context| player.handles.resolve(Kind::Context, context));
            if let Some(Resolved::Live(live)) = context {
                player.machine.primaries.insert(device, live);
            }
            if player.machine.held.contains(&device) && player.api.release_primary(device).is_ok() {
                player.machine.held.remove(&device);
            }
        }
        Family::PrimaryContext(operation @ (PrimaryOp::Release | PrimaryOp::Reset)) => {
            let device = live_device(player, call, 0);
            if operation == PrimaryOp::Reset {
                player.machine.held.remove(&device);
            }
            if player.api.primary_is_active(device) == Ok(false) {
                primary_ended(player, call, function, device);
            }
        }
        // Only the last use destroys the context.
        Family::Context(ContextOp::Detach) => {
            let context = call.argument(0);
            if let Resolved::Live(live) = player.handles.resolve(Kind::Context, context)
                && player.api.current_context() != Ok(live)
            {
                let ended = player
                    .handles
                    .end((Kind::Context, context), By::call(call, function));
                player.end_ranges(call.index, &ended, Some(live));
            }
        }
        _ => {}
    }
}

fn primary_ended<'t>(
    player: &mut Player<'t>,
    call: &Call<'t>,
    function: &'static Function,
    device: i32,
) {
    let primary = player.machine.primaries.remove(&device);
    let Some(live) = primary else { return };
    let ended: Vec<Key> = player
        .handles
        .end_context_content(live, By::call(call, function));
    player.end_ranges(call.index, &ended, Some(live));
}
