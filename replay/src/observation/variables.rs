//! Variables of modules.

use std::collections::HashSet;

use cutape_registry::Kind;
use rustc_hash::FxHashMap;

use crate::api::{Api, NOT_FOUND, result_name};
use crate::observation::memory::{Reader, Region};
use crate::observation::observer::Pending;
use crate::observation::places::FirstSeen;
use crate::place::address::Ranges;

/// The variables of those names in a live module that the call `loaded` has loaded. Those that
/// cannot be found are added to `left_out`.
pub(crate) fn variables_of(
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
pub(crate) fn named_addresses(ranges: &Ranges) -> HashSet<u64> {
    let globals = ranges.all_live().filter(|range| range.kind == Kind::Global);
    globals.map(|range| range.live).collect()
}

/// Hashes of variables, by name.
pub(crate) fn hashes_of(
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
pub(crate) fn mark_as_loaded(
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
