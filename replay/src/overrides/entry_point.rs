//! cuGetProcAddress: found or not, never where. cuGetExportTable: private tables are not asked for.

use cutape_format::Call;
use cutape_registry::Function;

use crate::issue::player::{Played, Player};
use crate::issue::skip::Skip;
use crate::report::What;

/// Asks again; compares the result, the status, and whether there was an address.
pub(crate) fn proc_address<'t>(
    player: &mut Player<'t>,
    call: &Call<'t>,
    function: &'static Function,
) -> Played {
    let frame = player.marshal(call, function, &[])?;
    let result = player.issue(call, function, &frame)?;
    let received = frame
        .place(1)
        .map(|place| crate::buffer::number(&frame.received(place)));
    if player.is_compared()
        && call.succeeded()
        && result == 0
        && let (Some(recorded), Some(received)) = (call.out(1), received)
        && (recorded == 0) != (received == 0)
        && !player.machine.asks_for_machine(call, function)
    {
        let text = |address: u64| if address == 0 { "not found" } else { "found" }.to_owned();
        let texts = (text(recorded), text(received));
        player.diverge(
            call,
            function,
            What::OutParameter,
            Some(1),
            texts.0,
            texts.1,
            None,
            None,
        );
    }
    player.conclude(call, function, frame, result);
    Ok(())
}

/// The tables are of the driver's own concern; what they are used for is not recorded either.
pub(crate) fn export_table<'t>(_: &mut Player<'t>, _: &Call<'t>, _: &'static Function) -> Played {
    Err(Skip::because("private table"))
}
