//! Reads the memory of an observed call, before and after.

use std::collections::HashSet;

use rustc_hash::FxHashMap;

use crate::api::{Api, NOT_FOUND, result_name};
use crate::observe::memory::{Reached, Reader, Region};
use crate::observe::observer::{FirstSeen, Pending};

/// Reads all regions before a call, or what its launch can reach, with the variables of its
/// kernel's module. `is_wanted`: contents are read, not only places.
pub(super) fn read_before(
    reader: &mut Reader<'_>,
    (regions, variables): (&[Region], &[Region]),
    longest: u64,
    pending: &mut Pending,
    is_wanted: bool,
) {
    let parameters = pending.observed.launch.as_ref();
    let parameters = parameters.map(|launch| launch.parameters.clone());
    let mut read = |region: &Region, look: &mut dyn FnMut(&[u8])| {
        let mut entry = region.entry();
        if is_wanted {
            match reader.read(region, look) {
                Ok(pieces) => entry.before = pieces,
                Err(why) => {
                    let text = format!("{}: {why}", region.describe());
                    return pending.observed.left_out.push(text);
                }
            }
        }
        pending.observed.memory.push(entry);
        pending.regions.push(region.clone());
    };
    let Some(parameters) = parameters else {
        return regions.iter().for_each(|region| read(region, &mut |_| ()));
    };
    let mut reached = Reached::new(regions, longest);
    reached.add(&parameters, 4);
    let first = reached.parts();
    let mut further = Reached::new(regions, longest);
    for region in first.iter().chain(variables) {
        read(region, &mut |bytes| further.add(bytes, 8));
    }
    for region in further.parts_besides(&first) {
        read(&region, &mut |_| ());
    }
}

/// Reads the memory again, as far as it still lives.
///
/// # Errors
/// Which memory cannot be read, and why.
pub(super) fn read_after(
    reader: &mut Reader<'_>,
    still_lives: impl Fn(&Region) -> bool,
    pending: &mut Pending,
) -> Result<(), String> {
    for (region, entry) in pending.regions.iter().zip(&mut pending.observed.memory) {
        if !still_lives(region) {
            continue;
        }
        entry.after = reader
            .read(region, |_| ())
            .map_err(|why| format!("memory is left out: {}: {why}", region.describe()))?;
    }
    Ok(())
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
