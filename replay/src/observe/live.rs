//! The memory that is live in a replay, and the variables of the modules that are.

use std::collections::HashSet;

use cutape_registry::Kind;

use crate::objects::handles::Resolved;
use crate::observation::memory::Region;
use crate::observation::observer::Observer;
use crate::observation::variables::variables_of;
use crate::player::{Job, Player};

/// All live memory, sorted by live address. Mapped memory in one piece is one region.
pub(super) fn all_live(player: &Player<'_>, observer: &Observer) -> Vec<Region> {
    let live = player.ranges.all_live();
    let live = live.filter(|range| !observer.is_unallocated(range));
    let mut regions: Vec<Region> = live.filter_map(Region::of).collect();
    for region in &mut regions {
        if !player.handles.is_taken(Kind::Context, region.context) {
            region.context = 0;
        }
    }
    let mut last: Option<usize> = None;
    for (bytes, mapping) in player.mapped.mappings.iter() {
        let (recorded, length) = (bytes.start, bytes.end - bytes.start);
        let live = player.ranges.translate(recorded);
        if let Some(before) = last.and_then(|last| regions.get_mut(last))
            && (before.recorded + before.length, before.end()) == (recorded, live)
        {
            before.length += length;
            continue;
        }
        last = Some(regions.len());
        regions.push(Region::mapped((recorded, live), length, mapping.site.index));
    }
    regions.sort_by_key(|region| region.live);
    regions
}

/// What of some regions lies in recorded ranges, of first bytes and ends.
pub(super) fn clipped(regions: &[Region], ranges: &[(u64, u64)]) -> Vec<Region> {
    let mut parts = Vec::new();
    for region in regions {
        for &(start, end) in ranges {
            let start = start.max(region.recorded);
            let end = end.min(region.recorded.saturating_add(region.length));
            if start < end {
                let live = |address: u64| region.live + (address - region.recorded);
                parts.push(region.part(live(start), live(end)));
            }
        }
    }
    parts
}

/// Replaces variables that calls have found by all variables of the modules that live, with their
/// names. A launch knows the modules whose kernels were launched and whose variables were found.
pub(super) fn add_variables(job: &Job<'_, '_>, observer: &mut Observer, regions: &mut Vec<Region>) {
    let found = job
        .ranges
        .all_live()
        .filter(|range| range.kind == Kind::Global);
    let owners: HashSet<(Kind, u64)> = found.filter_map(|range| range.owner).collect();
    for owner in owners {
        let Some(loaded) = job.handles.object(owner).map(|object| object.created.index) else {
            continue;
        };
        if observer.variables.contains_key(&loaded) {
            continue;
        }
        let Resolved::Live(live) = job.handles.resolve(owner.0, owner.1) else {
            continue;
        };
        let module = match owner.0 {
            Kind::Library => job.api.module_of_library(live),
            _ => Ok(live),
        };
        if let (Ok(module), Some(names)) = (module, observer.job.variables.get(&loaded)) {
            let variables = variables_of(&job.api, module, (names, loaded), &mut Vec::new());
            observer.variables.insert(loaded, variables);
        }
    }
    let live_code = job.handles.live_code();
    observer
        .variables
        .retain(|loaded, _| live_code.contains(loaded));
    let known: Vec<&Region> = observer.variables.values().flatten().collect();
    let addresses: HashSet<u64> = known.iter().map(|variable| variable.live).collect();
    regions.retain(|region| !addresses.contains(&region.live));
    regions.extend(known.into_iter().cloned());
    regions.sort_by_key(|region| region.live);
}
