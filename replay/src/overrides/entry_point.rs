//! cuGetProcAddress: found or not, never where. cuGetExportTable: private tables are not asked for.

use crate::issue::player::{Job, Played};
use crate::issue::skip::skip;
use crate::report::What;

/// Asks again; compares the result, the status, and whether there was an address.
pub(crate) fn proc_address(Job(player, call, function): Job<'_, '_>) -> Played {
    let frame = player.marshal(call, function, &[])?;
    let result = player.issue(call, function, &frame)?;
    if player.is_compared()
        && call.succeeded()
        && result == 0
        && let (Some(recorded), Some(received)) = (call.out(1), frame.word_at(1))
        && (recorded == 0) != (received == 0)
        && !player.machine.asks_for_machine(call, function)
    {
        let text = |address: u64| if address == 0 { "not found" } else { "found" }.to_owned();
        let texts = (text(recorded), text(received));
        player.diverge(call, function, What::OutParameter, Some(1), texts);
    }
    player.conclude(call, function, frame, result)
}

/// The tables are of the driver's own concern; what they are used for is not recorded either.
pub(crate) fn export_table(_: Job<'_, '_>) -> Played {
    skip("private table")
}
