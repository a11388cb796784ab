//! Memory at its recorded address: reservations of 32 MiB slots, granules of 2 MiB mapped in them,
//! host regions.
//!
//! Measured on driver 580: a reservation's hint is honoured if hint and size are multiples of 32
//! MiB and nothing was mapped in the range since before `cuInit`; inside, memory is mapped in units
//! of 2 MiB; pinned host memory as `HOST_NUMA` memory with access for device and host, or outside
//! of the slots as registered pages of this process.

use std::collections::BTreeMap;

use crate::api::{Api, Code, Location};
use crate::plan::{HostRegion, Plan};
use crate::process::mapping::map_exactly;
use crate::process::slots::{SLOT, gaps, union};

/// Unit of mappings.
pub(crate) const GRANULE: u64 = 2 << 20;
/// A joined range of more slots than this is not tried slot by slot.
const SINGLE_SLOTS: u64 = 4096;

/// The granules around some bytes.
pub(crate) fn granules_around(start: u64, length: u64) -> (u64, u64) {
    let end = start.saturating_add(length.max(1));
    (
        start / GRANULE * GRANULE,
        end.div_ceil(GRANULE).saturating_mul(GRANULE),
    )
}

/// Granules mapped in one piece.
#[derive(Clone, Copy, Debug)]
struct Run {
    end: u64,
    location: Location,
    handle: u64,
    /// How many allocations lie in it.
    users: u32,
}

#[derive(Debug)]
struct Region {
    region: HostRegion,
    /// The live context that it is registered in; `None` if it is not.
    registered: Option<u64>,
}

/// Why memory cannot be placed at its recorded address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// No reservation there: the reason in words.
    NotReserved(&'static str),
    /// The driver refused to map.
    Driver(Code),
}

/// All placed memory.
#[derive(Debug, Default)]
pub(crate) struct Placement {
    /// As they were reserved; a mapping lies in one of them.
    reserved: Vec<(u64, u64)>,
    /// The same, joined.
    joined: Vec<(u64, u64)>,
    runs: BTreeMap<u64, Run>,
    regions: Vec<Region>,
    /// Who may access the granules, besides the device that they lie on.
    host_node: i32,
    devices: Vec<i32>,
    /// Ranges that are in use already, by first address.
    pub taken: Vec<u64>,
}

impl Placement {
    /// Reserves every slot and host region of the plan. Needs a current context.
    pub(crate) fn reserve(api: &Api, plan: &Plan, devices: Vec<i32>, host_node: i32) -> Self {
        let mut placement = Self {
            devices,
            host_node: host_node.max(0),
            ..Self::default()
        };
        for &(start, end) in &plan.device_slots {
            if placement.reserve_range(api, start, end) {
                continue;
            }
            if (end - start) / SLOT > SINGLE_SLOTS || end - start == SLOT {
                placement.taken.push(start);
                continue;
            }
            for slot in (start..end).step_by(SLOT as usize) {
                if !placement.reserve_range(api, slot, slot + SLOT) {
                    placement.taken.push(slot);
                }
            }
        }
        placement.reserved.sort_unstable();
        placement.joined = union(placement.reserved.clone());
        for &region in &plan.host_regions {
            if map_region(region) {
                placement.regions.push(Region {
                    region,
                    registered: None,
                });
            } else {
                placement.taken.push(region.start);
            }
        }
        placement
    }

    fn reserve_range(&mut self, api: &Api, start: u64, end: u64) -> bool {
        match api.reserve(end - start, start) {
            Ok(address) if address == start => {
                self.reserved.push((start, end));
                true
            }
            Ok(elsewhere) => {
                if api.free_reservation(elsewhere, end - start).is_err() {
                    tracing::debug!("a reservation at {elsewhere:#x} could not be given back");
                }
                false
            }
            Err(code) => {
                tracing::debug!("no reservation at {start:#x}: result {code}");
                false
            }
        }
    }

    /// True if these bytes lie in the replay's reservations.
    pub(crate) fn reserves(&self, start: u64, length: u64) -> bool {
        let end = start.saturating_add(length.max(1));
        self.joined
            .iter()
            .any(|&(low, high)| start >= low && end <= high)
    }

    /// Maps granules so that all these bytes exist in that place.
    pub(crate) fn map(
        &mut self,
        api: &Api,
        start: u64,
        length: u64,
        location: Location,
    ) -> Result<(), Refusal> {
        if !self.reserves(start, length) {
            return Err(Refusal::NotReserved(
                "its 32 MiB slot could not be reserved",
            ));
        }
        let range = granules_around(start, length);
        let touching = self.touching(range);
        let runs = || {
            touching
                .iter()
                .filter_map(|start| self.runs.get_key_value(start))
        };
        if runs().any(|(_, run)| run.location != location) {
            return Err(Refusal::NotReserved(
                "its 2 MiB granule holds memory of another kind",
            ));
        }
        let pieces = runs().map(|(&start, run)| (start, run.end));
        let mut fresh = Vec::new();
        let missing = gaps(range, pieces);
        let missing = missing
            .iter()
            .flat_map(|&gap| self.within_reservations(gap));
        for (low, high) in missing.collect::<Vec<_>>() {
            match self.map_run(api, low, high, location) {
                Ok(run) => fresh.push((low, run)),
                Err(code) => {
                    for (low, run) in fresh {
                        unmap_run(api, low, run);
                    }
                    return Err(Refusal::Driver(code));
                }
            }
        }
        for start in touching {
            if let Some(run) = self.runs.get_mut(&start) {
                run.users += 1;
            }
        }
        self.runs.extend(fresh);
        Ok(())
    }

    /// Cut where one reservation ends and the next begins.
    fn within_reservations(&self, (low, high): (u64, u64)) -> impl Iterator<Item = (u64, u64)> {
        self.reserved
            .iter()
            .map(move |&(start, end)| (start.max(low), end.min(high)))
            .filter(|(start, end)| start < end)
    }

    fn map_run(&self, api: &Api, low: u64, high: u64, location: Location) -> Result<Run, Code> {
        let length = high - low;
        let handle = api.create_memory(length, location)?;
        if let Err(code) = api.map(low, length, handle) {
            let _ = api.release_memory(handle);
            return Err(code);
        }
        let run = Run {
            end: high,
            location,
            handle,
            users: 1,
        };
        let own = match location {
            Location::Device(ordinal) => vec![Location::Device(ordinal)],
            Location::Host(node) => {
                let mut all: Vec<_> = self.devices.iter().copied().map(Location::Device).collect();
                all.push(Location::Host(node));
                all
            }
        };
        if let Err(code) = api.set_access(low, length, &own) {
            unmap_run(api, low, run);
            return Err(code);
        }
        if let Location::Device(ordinal) = location {
            // As cuMemAlloc memory is open to every device that may be its peer; those that cannot
            // refuse.
            for &peer in self.devices.iter().filter(|&&peer| peer != ordinal) {
                let _ = api.set_access(low, length, &[Location::Device(peer)]);
            }
        }
        Ok(run)
    }

    /// Where pinned memory inside slots lies.
    pub(crate) fn host_location(&self) -> Location {
        Location::Host(self.host_node)
    }

    /// Gives back what `map` mapped for these bytes. Nothing may still use them.
    pub(crate) fn unmap(&mut self, api: &Api, start: u64, length: u64) {
        for low in self.touching(granules_around(start, length)) {
            let Some(run) = self.runs.get_mut(&low) else {
                continue;
            };
            run.users = run.users.saturating_sub(1);
            if run.users == 0 {
                let run = *run;
                self.runs.remove(&low);
                unmap_run(api, low, run);
            }
        }
    }

    /// True if granules are mapped in these bytes.
    pub(crate) fn is_mapped(&self, start: u64, length: u64) -> bool {
        !self.touching(granules_around(start, length)).is_empty()
    }

    fn touching(&self, range: (u64, u64)) -> Vec<u64> {
        let first = self
            .runs
            .range(..=range.0)
            .next_back()
            .filter(|(_, run)| run.end > range.0)
            .map_or(range.0, |(&start, _)| start);
        self.runs
            .range(first..range.1)
            .map(|(&start, _)| start)
            .collect()
    }

    /// Makes host memory there usable by the device: registers its region with the current context
    /// unless it is.
    pub(crate) fn register(
        &mut self,
        api: &Api,
        start: u64,
        length: u64,
        context: u64,
    ) -> Result<(), Refusal> {
        let end = start.saturating_add(length);
        let region = self
            .regions
            .iter_mut()
            .find(|known| start >= known.region.start && end <= known.region.end)
            .ok_or(Refusal::NotReserved(
                "its pages are taken in the replaying process",
            ))?;
        if region.registered.is_none() {
            let HostRegion { start, end } = region.region;
            api.register_host(start, end - start)
                .map_err(Refusal::Driver)?;
            region.registered = Some(context);
        }
        Ok(())
    }

    /// A live context ended, and its registrations with it.
    pub(crate) fn forget_context(&mut self, context: u64) {
        for region in &mut self.regions {
            if region.registered == Some(context) {
                region.registered = None;
            }
        }
    }
}

fn unmap_run(api: &Api, low: u64, run: Run) {
    for (what, outcome) in [
        ("unmapped", api.unmap(low, run.end - low)),
        ("released", api.release_memory(run.handle)),
    ] {
        if let Err(code) = outcome {
            tracing::debug!("granules at {low:#x} could not be {what}: result {code}");
        }
    }
}

/// Maps the pages of a region for the rest of the process's life; false if something else is there.
fn map_region(region: HostRegion) -> bool {
    map_exactly(region.start, region.end, libc::PROT_READ | libc::PROT_WRITE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::slots::slots_around;

    #[test]
    fn slots_are_32_mib_around_the_bytes() {
        for (start, length, slots) in [
            (
                0x7f00_0000_0000,
                1,
                Some((0x7f00_0000_0000, 0x7f00_0200_0000)),
            ),
            (
                0x7f00_01ff_ffff,
                2,
                Some((0x7f00_0000_0000, 0x7f00_0400_0000)),
            ),
            (
                0x7f00_0020_0000,
                0,
                Some((0x7f00_0000_0000, 0x7f00_0200_0000)),
            ),
            (0, 16, None),
            (u64::MAX - 1, 16, None),
            (1 << 48, 16, None),
        ] {
            assert_eq!(slots_around(start, length), slots, "{start:#x} {length}");
        }
        assert_eq!(
            granules_around(0x20_0001, 0x20_0000),
            (0x20_0000, 0x60_0000)
        );
        assert_eq!(granules_around(u64::MAX, 1).0 % GRANULE, 0, "no overflow");
    }

    #[test]
    fn ranges_are_joined() {
        assert_eq!(
            union(vec![(4, 6), (0, 2), (2, 3), (5, 9)]),
            [(0, 3), (4, 9)]
        );
        assert_eq!(union(vec![]), []);
    }

    #[test]
    fn gaps_are_what_the_pieces_leave() {
        for (range, pieces, expected) in [
            ((0, 10), vec![], vec![(0, 10)]),
            ((0, 10), vec![(2, 4), (6, 8)], vec![(0, 2), (4, 6), (8, 10)]),
            ((3, 10), vec![(0, 5), (9, 20)], vec![(5, 9)]),
            ((3, 10), vec![(0, 20)], vec![]),
            ((3, 10), vec![(12, 20)], vec![(3, 10)]),
        ] {
            assert_eq!(gaps(range, pieces.into_iter()), expected);
        }
    }

    #[test]
    fn host_pages_come_to_lie_where_they_were_or_not_at_all() {
        let region = HostRegion {
            start: 0x6123_4560_0000,
            end: 0x6123_4560_2000,
        };
        assert!(map_region(region));
        assert!(!map_region(region), "taken now");
        // SAFETY: the pages were mapped by this test, and nothing else uses them.
        unsafe { libc::munmap(region.start as *mut libc::c_void, 0x2000) };
    }
}
