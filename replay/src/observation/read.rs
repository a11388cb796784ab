//! Reads the memory of an observed call, before and after.

use crate::observation::memory::{Reached, Reader, Region};
use crate::observation::observer::Pending;
use crate::observation::places::Places;
use crate::observation::texture::linear_memory;

/// What an observed call may reach.
pub(crate) struct Reachable<'a> {
    /// All live memory, sorted by live address. A launch reads what its parameters lead to.
    pub(crate) regions: &'a [Region],
    /// Of a launch: the variables of its kernel's module.
    pub(crate) variables: &'a [Region],
    /// Of a launch: the arrays of its texture and surface objects.
    pub(crate) arrays: &'a [Region],
    /// Of longer memory that many bytes are read from each address.
    pub(crate) longest: u64,
}

/// Reads all regions before a call, or what its launch can reach. `is_wanted`: contents are read,
/// not only places.
pub(crate) fn read_before(
    reader: &mut Reader<'_>,
    reachable: &Reachable<'_>,
    pending: &mut Pending,
    is_wanted: bool,
) {
    let &Reachable {
        regions,
        variables,
        arrays,
        longest,
    } = reachable;
    pending.places = Places::of(regions.iter().chain(variables));
    let mut read = |region: &Region, look: &mut dyn FnMut(&[u8])| {
        let mut entry = region.entry();
        if is_wanted {
            let mut addresses = Ok(());
            let pieces = reader.read(region, |offset, bytes| {
                look(bytes);
                if addresses.is_ok() && region.array.is_none() {
                    let found = &mut entry.addresses_before;
                    addresses = pending.places.find(offset, bytes, found);
                }
            });
            match addresses.and(pieces) {
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
    let Some(launch) = pending.observed.launch.clone() else {
        return regions.iter().for_each(|region| read(region, &mut |_| ()));
    };
    let mut reached = Reached::new(regions, longest);
    reached.add(&launch.parameters, 4);
    let mut outside = Vec::new();
    for address in linear_memory(&launch.textures) {
        if !reached.add_address(address) {
            outside.push(format!("linear memory of a texture object, {address:#x}"));
        }
    }
    let first = reached.parts();
    let mut further = Reached::new(regions, longest);
    for region in first.iter().chain(variables) {
        read(region, &mut |bytes| further.add(bytes, 8));
    }
    for region in further.parts_besides(&first).iter().chain(arrays) {
        read(region, &mut |_| ());
    }
    let outside = outside
        .iter()
        .map(|what| format!("{what}: the replay does not have it"));
    pending.observed.left_out.extend(outside);
}

/// Reads the memory again, as far as it still lives.
///
/// # Errors
/// Which memory cannot be read, and why.
pub(crate) fn read_after(
    reader: &mut Reader<'_>,
    still_lives: impl Fn(&Region) -> bool,
    pending: &mut Pending,
) -> Result<(), String> {
    for (region, entry) in pending.regions.iter().zip(&mut pending.observed.memory) {
        if !still_lives(region) {
            entry.has_ended = true;
            continue;
        }
        let mut addresses = Ok(());
        let pieces = reader.read(region, |offset, bytes| {
            if addresses.is_ok() && region.array.is_none() {
                let found = &mut entry.addresses_after;
                addresses = pending.places.find(offset, bytes, found);
            }
        });
        entry.after = addresses
            .and(pieces)
            .map_err(|why| format!("memory is left out: {}: {why}", region.describe()))?;
    }
    Ok(())
}
