//! Calls without an effect here, because memory does not migrate and nothing is profiled. Their
//! arguments are checked.

use crate::call::answer::{
    Answer, INVALID_DEVICE, INVALID_VALUE, NOT_FOUND, NOT_SUPPORTED, invalid_if, reject_if,
};
use crate::call::argument::{In, Out, OutRef, Stream, Text};
use crate::call::entry::entries;
use crate::object::device::check_device;
use crate::object::memory::{Location, NOWHERE};
use crate::settings;
use crate::state::{Current, Locked, lock};

entries! {
    cuMemPrefetchAsync: prefetch;
    [symbol] cuMemPrefetchAsync: |a: u64, n: u64, device: i32, s: Stream|
        prefetch(a, n, Location::of_device(device), 0, s);
    cuMemAdvise: advise;
    [symbol] cuMemAdvise: |state: Current, a: u64, n: u64, advice: u32, device: i32|
        advise(state, a, n, advice, Location::of_device(device));
    cuMemRangeGetAttribute: range_attribute;
    cuMemRangeGetAttributes: range_attributes;
    cuProfilerStart: || lock().current().map(|_| ());
    cuProfilerStop: || lock().current().map(|_| ());
    cuFlushGPUDirectRDMAWrites: || Err(NOT_SUPPORTED);
    cuDeviceGetP2PAttribute: peer_attribute;
    cuModuleGetTexRef: reference;
    cuModuleGetSurfRef: reference;
}

fn prefetch(address: u64, size: u64, location: Location, flags: u32, stream: Stream) -> Answer {
    let mut state = lock();
    state.current()?;
    state.check_uncaptured(stream)?;
    let base = state.managed(address, size)?;
    location.check()?;
    invalid_if(flags != 0)?;
    state.note_prefetch(base, location);
    Ok(())
}

fn advise(mut state: Current, address: u64, size: u64, advice: u32, location: Location) -> Answer {
    let base = state.managed(address, size)?;
    if matches!(advice, 3 | 5 | 6) {
        location.check()?;
    }
    let kept = state.advice.entry(base).or_default();
    match advice {
        1 => kept.read_mostly = true,
        2 => kept.read_mostly = false,
        3 => kept.preferred = location.device(),
        4 => kept.preferred = NOWHERE,
        5 | 6 => {}
        _ => return Err(INVALID_VALUE),
    }
    Ok(())
}

/// `cuMemRangeGetAttribute`; ACCESSED_BY is not kept.
fn range_attribute(
    data: Out<i32>,
    size: usize,
    attribute: u32,
    address: u64,
    count: u64,
) -> Answer {
    let state = lock();
    data.check()?;
    let base = state.managed(address, count)?;
    let advice = state.advice.get(&base).copied().unwrap_or_default();
    // READ_MOSTLY, PREFERRED_LOCATION, ACCESSED_BY, LAST_PREFETCH_LOCATION.
    let value = match attribute {
        1 => i32::from(advice.read_mostly),
        2 => advice.preferred,
        3 => return Err(NOT_SUPPORTED),
        4 => advice.prefetched,
        _ => return Err(INVALID_VALUE),
    };
    invalid_if(size != 4)?;
    data.set(value)
}

/// The same for each attribute, with its own output and size.
fn range_attributes(
    data: In<u64>,
    sizes: In<usize>,
    attributes: In<u32>,
    count: usize,
    address: u64,
    length: u64,
) -> Answer {
    invalid_if(count == 0 || count > 4096)?;
    let (outputs, sizes) = (data.list(count)?, sizes.list(count)?);
    let queries = outputs.into_iter().zip(sizes).zip(attributes.list(count)?);
    for ((output, size), attribute) in queries {
        range_attribute(Out::at(output), size, attribute, address, length)?;
    }
    Ok(())
}

fn peer_attribute(value: OutRef<i32>, attribute: u32, from: i32, to: i32) -> Answer {
    check_device(from)?;
    check_device(to)?;
    reject_if(from == to, INVALID_DEVICE)?;
    invalid_if(!(1..=5).contains(&attribute))?;
    // ACCESS_SUPPORTED; no atomic operations, no arrays.
    value.set(i32::from(
        attribute == 2 && settings::get().are_peers(from, to),
    ))
}

/// No module here has texture or surface references, which only old toolkits compile.
fn reference(state: Locked, found: Out<u64>, module: u64, name: Text) -> Answer {
    state.modules.find(module)?;
    found.check()?;
    name.get()?;
    Err(NOT_FOUND)
}
