//! Address reservations of the program, inside the replayer's own.

use crate::issue::player::{Job, Played};
use crate::place::address::Way;

/// cuMemAddressReserve: the slots around it are reserved already.
pub(crate) fn reserve(Job(player, call, function): Job<'_, '_>) -> Played {
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
pub(crate) fn free(Job(player, call, function): Job<'_, '_>) -> Played {
    let reserved = player.ranges.reservation_at(call.argument(0));
    if call.succeeded() && reserved.is_some_and(|range| range.way == Way::Reserved) {
        let frame = player.marshal(call, function, &[])?;
        return player.answer(call, function, frame, 0);
    }
    player.plain(call, function)
}
