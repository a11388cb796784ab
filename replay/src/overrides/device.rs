//! Devices that are named by their bus address.

use crate::issue::player::{Job, Played};

/// cuDeviceGetByPCIBusId: passes the bus address of the device that replaces the recorded one.
pub(crate) fn by_bus_id(Job(player, call, function): Job<'_, '_>) -> Played {
    let device = call
        .out(0)
        .filter(|_| call.succeeded())
        .map(|device| device as i32)
        .filter(|&device| !player.machine.devices.is_same(device))
        .and_then(|device| player.machine.devices.ordinal(device));
    let Some(text) = device.and_then(|device| player.api.bus_id(device).ok()) else {
        return player.plain(call, function);
    };
    player.reissue_with(call, function, &[(1, &text)])
}
