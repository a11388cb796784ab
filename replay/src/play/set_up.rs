//! Matches the trace to this machine before the first call is issued.
//!
//! The handles of primary contexts are known before the call that retains them: the runtime library
//! learns a primary context's handle from a private table of the driver and makes it current before
//! it retains it (seen with cudart 13 on driver 580). So what `cuDevicePrimaryCtxRetain` returned
//! anywhere in the recording stands for the device's primary context from the start. The replay
//! holds each of these until the program does.

use cutape_registry::Kind;

use crate::api::{refused, result_name};
use crate::error::Error;
use crate::machine::check::{
    devices_here, is_other_driver, is_other_kind, match_devices, of_devices, of_driver, of_peers,
    reason, recorded_devices, too_little_memory,
};
use crate::objects::handles::{Belongs, other_site};
use crate::place::placement::Placement;
use crate::player::Player;
use crate::process::strategy::PlacementStrategy;
use crate::report::Difference;

impl Player<'_> {
    /// What must be done before the first call.
    pub(crate) fn begin(&mut self) -> Result<(), Error> {
        self.report.machine = of_driver(self.trace, self.plan, &self.api);
        if is_other_kind(self.trace, &self.api) {
            self.comparer.bytes_comparable = false;
            self.report.note(
                "recorded on another kind of driver, and the null driver runs no kernels: bytes are not compared",
            );
        }
        // Where the program saw what an uninitialised driver answers, the devices have to wait for
        // its cuInit.
        if self.plan.needs.starts_uninitialised || self.plan.calls == 0 {
            return self.refuse_misfit();
        }
        self.follow_address_space(self.plan.first_init);
        match self.api.init() {
            Ok(()) => self.set_up(),
            Err(code) if self.plan.first_init.is_some() => self.no_driver(code),
            Err(code) => Err(refused("cuInit", code)),
        }
    }

    /// Looks at the machine and puts the recorded address space in place. Needs `cuInit`.
    pub(crate) fn set_up(&mut self) -> Result<(), Error> {
        self.machine.is_ready = true;
        self.fit()?;
        self.know_primaries()?;
        let needed = !self.plan.device_slots.is_empty() || !self.plan.host_regions.is_empty();
        let devices = self.devices_in_use();
        let first = devices
            .first()
            .filter(|_| self.options.placement == PlacementStrategy::Granules && needed);
        let held = first.map(|&first| Ok((first, self.hold_primary(first)?)));
        let held = held.transpose()?;
        self.fit_memory()?;
        let Some((first, context)) = held else {
            return Ok(());
        };
        let before = self.current_context()?;
        self.set_current(context)?;
        // CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID
        let node = self.api.device_attribute(134, first).unwrap_or(0);
        self.placement = Placement::reserve(&self.api, self.plan, devices, node);
        self.set_current(before)?;
        if !self.placement.taken.is_empty() && self.options.refuse_conflicts {
            return Err(Error::Conflict {
                taken: self.placement.taken.clone(),
                total: self.plan.device_slots.len() + self.plan.host_regions.len(),
            });
        }
        Ok(())
    }

    /// Gives this process the gaps that the recorded one had before a call.
    fn follow_address_space(&mut self, call: Option<u64>) {
        let known = call.and_then(|call| self.plan.address_spaces.get_key_value(&call));
        if let Some((&call, recorded)) = known.filter(|_| self.is_natural()) {
            self.follow(call, recorded.clone());
            let later = &self.plan.device_slots;
            self.fillers.before(call, later);
        }
    }

    /// The same with what was noted.
    pub(crate) fn follow(&mut self, call: u64, recorded: Vec<(u64, u64)>) {
        let coming = self.plan.coming_arenas.get(&call);
        self.fillers
            .follow(call, recorded, coming.map_or(&[], Vec::as_slice));
    }

    fn current_context(&self) -> Result<u64, Error> {
        let context = self.api.current_context();
        context.map_err(|code| refused("cuCtxGetCurrent", code))
    }

    fn set_current(&self, context: u64) -> Result<(), Error> {
        let set = self.api.set_current(context);
        set.map_err(|code| refused("cuCtxSetCurrent", code))
    }

    /// Compares driver, devices and what the trace needs, matches the devices, and refuses what
    /// does not fit. Needs `cuInit`, and no call to have been re-issued that depends on it.
    pub(crate) fn fit(&mut self) -> Result<(), Error> {
        let is_alone = self.options.alone.is_some();
        let wanted = &self.options.devices;
        let peers = self.options.peers.clone();
        let of_ranks = peers.as_ref().map(|peers| peers.devices());
        self.machine.devices = match of_ranks {
            Some((rank, all)) => {
                let here = devices_here(&self.api);
                let recorded = recorded_devices(self.trace, here.len());
                // Devices to which a rank only gives access are not refused here.
                let used = &self.plan.needs.context_devices;
                all.matched(rank, (recorded, here), used, wanted)?
            }
            None => match_devices(self.trace, self.plan, &self.api, wanted, is_alone)?,
        };
        self.machine.is_other_driver = is_other_driver(self.trace, &self.api);
        let found = of_devices(self.trace, self.plan, &self.machine.devices, is_alone);
        self.report.machine.extend(found);
        let found = of_peers(self.plan, &self.machine.devices, &self.api);
        self.report.machine.extend(found);
        if let Some((rank, all)) = of_ranks {
            let can_access = |device: u32, peer: u32| {
                self.api.can_access_peer(device as i32, peer as i32) != Ok(false)
            };
            let found = all.misfits(self.machine.devices.here(), &can_access)?;
            // Any rank refuses with all reasons; as warnings each has its own.
            let is_forced = self.options.force;
            let is_told = |&(user, _): &(usize, _)| !is_forced || user == rank;
            let found = found.into_iter().filter(is_told);
            self.report.machine.extend(found.map(|(_, reason)| reason));
        }
        if let Some(map) = self.machine.devices.text() {
            self.report.note(format!("devices (recorded=here): {map}"));
        }
        self.refuse_misfit()
    }

    /// Compares the memory that is free with what the trace needs, on the devices whose primary
    /// contexts are held.
    pub(crate) fn fit_memory(&mut self) -> Result<(), Error> {
        for (&ordinal, &needed) in &self.plan.needs.device_bytes {
            let Some(here) = self.machine.devices.ordinal(ordinal) else {
                continue;
            };
            if !self.machine.held.contains(&here) {
                continue;
            }
            let before = self.current_context()?;
            let context = self.hold_primary(here)?;
            self.set_current(context)?;
            let free = self.api.free_memory();
            self.set_current(before)?;
            // More than the device has at all is in the report already.
            let total = self
                .machine
                .devices
                .pair(ordinal)
                .and_then(|pair| pair.1.memory);
            if let Ok(free) = free
                && needed > free
                && total.is_none_or(|total| needed <= total)
            {
                let found = too_little_memory(ordinal, needed, free, "free");
                self.report.machine.push(found);
            }
        }
        self.refuse_misfit()
    }

    /// An error with every reason why this machine does not fit, unless the replay is forced.
    pub(crate) fn refuse_misfit(&self) -> Result<(), Error> {
        let reasons: Vec<String> = self
            .report
            .machine
            .iter()
            .filter(|difference| difference.fatal)
            .map(Difference::text)
            .collect();
        if reasons.is_empty() || self.options.force {
            return Ok(());
        }
        Err(Error::Machine { reasons })
    }

    /// Reports that the driver cannot be initialised here, where it was in the recording.
    pub(crate) fn no_driver(&mut self, code: i32) -> Result<(), Error> {
        let why = "there may be no device, or the driver may not fit the kernel's module";
        let found = reason("cuInit", "CUDA_SUCCESS", result_name(code), why);
        self.report.machine.push(found);
        self.refuse_misfit()
    }

    /// Retains the primary context of each device whose handle is recorded, and notes the handles.
    /// Needs `cuInit`.
    pub(crate) fn know_primaries(&mut self) -> Result<(), Error> {
        for &(recorded, device, call) in &self.plan.primary_contexts {
            // A device that is not here: the calls that use it are left out by name.
            let Some(here) = self
                .machine
                .devices
                .pair(device)
                .and(self.machine.devices.ordinal(device))
            else {
                continue;
            };
            self.follow_address_space(Some(call));
            let live = self.hold_primary(here)?;
            let site = other_site(call, "cuDevicePrimaryCtxRetain");
            let key = (Kind::Context, recorded);
            self.handles.find(key, Some(live), Belongs::default(), site);
        }
        Ok(())
    }

    /// The devices here that stand for those that the trace uses; the first one if it uses none.
    pub(crate) fn devices_in_use(&self) -> Vec<i32> {
        let used = self.plan.needs.devices.iter();
        let mut here: Vec<i32> = used
            .filter(|&&device| self.machine.devices.pair(device).is_some())
            .filter_map(|&device| self.machine.devices.ordinal(device))
            .collect();
        if here.is_empty() && self.machine.devices.counts().1 > 0 {
            here.push(0);
        }
        here
    }

    /// Holds a device's primary context; returns its live handle.
    pub(crate) fn hold_primary(&mut self, device: i32) -> Result<u64, Error> {
        let context = self
            .api
            .retain_primary(device)
            .map_err(|code| refused("cuDevicePrimaryCtxRetain", code))?;
        if !self.machine.held.insert(device) {
            // Held already; one reference is enough.
            self.api
                .release_primary(device)
                .map_err(|code| refused("cuDevicePrimaryCtxRelease", code))?;
        }
        Ok(context)
    }
}
