//! Variables of modules.

use std::collections::HashSet;

use cutape_registry::Kind;
use rustc_hash::FxHashMap;

use crate::api::{Api, NOT_FOUND, result_name};
use crate::objects::handles::Resolved;
use crate::observation::memory::{Reader, Region};
use crate::observation::observer::{Observer, Pending};
use crate::observation::places::FirstSeen;
use crate::player::Job;

/// The variables of those names in a live module that the call `loaded` has loaded. Those that
/// cannot be found are added to `left_out`.
pub(super) fn variables_of(
    api: &Api,
    module: u64,
    (names, loaded): (&[String], u64),
    left_out: &mut Vec<String>,
) -> Vec<Region> {
    let mut variables = Vec::new();
    for name in names {
        match api.variable(module, name) {
            Ok((_, 0)) => {}
            Ok(place) => variables.push(Region::variable(name, place, loaded)),
            // A fatbin has variables that are for other devices only.
            Err(NOT_FOUND) => {}
            Err(code) => left_out.push(format!(
                "variable {name}: cuModuleGetGlobal returned {}",
                result_name(code)
            )),
        }
    }
    variables
}

/// Where variables lie that calls of the program can name.
pub(super) fn named_addresses(job: &Job<'_, '_>) -> HashSet<u64> {
    let globals = job
        .ranges
        .all_live()
        .filter(|range| range.kind == Kind::Global);
    globals.map(|range| range.live).collect()
}

/// Hashes of variables, by name.
pub(super) fn hashes_of(
    reader: &mut Reader<'_>,
    variables: &[Region],
) -> FxHashMap<String, blake3::Hash> {
    let mut hashes = FxHashMap::default();
    for variable in variables {
        if let Ok(hash) = reader.hash(variable) {
            hashes.insert(variable.name.clone(), hash);
        }
    }
    hashes
}

/// Marks the variables that hold what they held before the first launch, and that no call of the
/// program can name: `named` has the addresses of those that one can.
pub(super) fn mark_as_loaded(
    reader: &mut Reader<'_>,
    first_seen: &FirstSeen,
    named: &HashSet<u64>,
    pending: &mut Pending,
) {
    for (region, entry) in pending.regions.iter().zip(&mut pending.observed.memory) {
        let seen = first_seen.get(&region.made);
        let Some(seen) = seen.and_then(|seen| seen.get(&region.name)) else {
            continue;
        };
        let is_named = named.contains(&region.live);
        entry.as_loaded = !is_named && reader.hash(region).ok().as_ref() == Some(seen);
    }
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
