//! Address reservations of the program, inside the replayer's own.

use cutape_format::Call;
use cutape_registry::Function;

use crate::issue::player::{Played, Player};
use crate::place::address::Way;

/// cuMemAddressReserve: the slots around it are reserved already.
pub(crate) fn reserve<'t>(
    player: &mut Player<'t>,
    call: &Call<'t>,
    function: &'static Function,
) -> Played {
    let length = call.argument(1);
    let Some(start) = call.out(0).filter(|_| call.succeeded()) else {
        return player.plain(call, function);
    };
    if player.placement.reserves(start, length) && !player.placement.is_mapped(start, length) {
        let mut frame = player.marshal(call, function, &[])?;
        frame.answer(0, start);
        frame.way = Some(Way::Reserved);
        return player.answer(call, function, frame, 0);
    }
    // The hint is what makes the driver choose that place.
    let mut frame = player.marshal(call, function, &[(3, start)])?;
    frame.refusal = Some("its range could not be reserved".to_owned());
    player.reissue(call, function, frame)
}

/// cuMemAddressFree.
pub(crate) fn free<'t>(
    player: &mut Player<'t>,
    call: &Call<'t>,
    function: &'static Function,
) -> Played {
    let reserved = player.ranges.reservation_at(call.argument(0));
    if call.succeeded() && reserved.is_some_and(|range| range.way == Way::Reserved) {
        let frame = player.marshal(call, function, &[])?;
        return player.answer(call, function, frame, 0);
    }
    player.plain(call, function)
}
