//! Primary contexts: their handles are known before the call that retains them.
//!
//! The runtime library learns a primary context's handle from a private table of the driver and makes it current before
//! it retains it (seen with cudart 13 on driver 580). So what `cuDevicePrimaryCtxRetain` returned anywhere in the recording
//! stands for the device's primary context from the start. The replay holds each of these until the program does.

use cutape_registry::Kind;

use crate::error::Error;
use crate::issue::player::{Player, setup};

impl Player<'_> {
    /// Retains the primary context of each device whose handle is recorded, and books the handles. Needs `cuInit`.
    pub(crate) fn know_primaries(&mut self) -> Result<(), Error> {
        for &(recorded, device, call) in &self.plan.primary_contexts {
            // A device that is not here: the calls that use it are left out by name.
            let Some(here) = self.devices.pair(device).and(self.devices.ordinal(device)) else {
                continue;
            };
            let live = self.hold_primary(here)?;
            self.handles.find(
                (Kind::Context, recorded),
                Some(live),
                None,
                0,
                call,
                "cuDevicePrimaryCtxRetain",
            );
        }
        Ok(())
    }

    /// The devices here that stand for those that the trace uses; the first one if it uses none.
    pub(crate) fn devices_in_use(&self) -> Vec<i32> {
        let used = self.plan.needs.devices.iter();
        let mut here: Vec<i32> = used
            .filter(|&&device| self.devices.pair(device).is_some())
            .filter_map(|&device| self.devices.ordinal(device))
            .collect();
        if here.is_empty() && self.devices.counts().1 > 0 {
            here.push(0);
        }
        here
    }

    /// Holds a device's primary context; returns its live handle.
    pub(crate) fn hold_primary(&mut self, device: i32) -> Result<u64, Error> {
        let context = self
            .api
            .retain_primary(device)
            .map_err(|code| setup("cuDevicePrimaryCtxRetain", code))?;
        if !self.held.insert(device) {
            // Held already; one reference is enough.
            self.api
                .release_primary(device)
                .map_err(|code| setup("cuDevicePrimaryCtxRelease", code))?;
        }
        Ok(context)
    }
}
