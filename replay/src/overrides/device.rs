//! Devices that are named by their bus address.

use crate::player::{Job, Played};

/// cuDeviceGetByPCIBusId: passes the bus address of the device that replaces the recorded one.
pub(crate) fn by_bus_id(job: &mut Job<'_, '_>) -> Played {
    let device = job
        .call
        .out(0)
        .filter(|_| job.call.succeeded())
        .map(|device| device as i32)
        .filter(|&device| !job.machine.devices.is_same(device))
        .and_then(|device| job.machine.devices.ordinal(device));
    let Some(text) = device.and_then(|device| job.api.bus_id(device).ok()) else {
        return job.plain();
    };
    job.reissue_bytes(1, &text)
}
