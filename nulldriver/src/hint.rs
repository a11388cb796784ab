//! Calls that have nothing to do here, because memory does not migrate and nothing is profiled: their arguments are
//! checked.

use cutape_driver::types::CUmemLocation;

use crate::answer::{
    Answer, INVALID_DEVICE, INVALID_HANDLE, INVALID_VALUE, NOT_FOUND, NOT_SUPPORTED,
};
use crate::argument::{Argument, Call, In, Out, Stream, Text};
use crate::dispatch::{Entry, bind};
use crate::memory::Purpose;
use crate::state::{State, check_device, lock};

pub(crate) const ENTRIES: &[Entry] = &[
    ("cuMemPrefetchAsync", bind(prefetch)),
    (
        "=cuMemPrefetchAsync",
        bind(|a: u64, n: u64, device: i32, s: Stream| {
            prefetch(a, n, Place::of_device(device), 0, s)
        }),
    ),
    ("cuMemAdvise", bind(advise)),
    (
        "=cuMemAdvise",
        bind(|a: u64, n: u64, advice: u32, device: i32| {
            advise(a, n, advice, Place::of_device(device))
        }),
    ),
    ("cuMemRangeGetAttribute", bind(range_attribute)),
    ("cuMemRangeGetAttributes", bind(range_attributes)),
    ("cuProfilerStart", bind(|| lock().current().map(|_| ()))),
    ("cuProfilerStop", bind(|| lock().current().map(|_| ()))),
    ("cuFlushGPUDirectRDMAWrites", bind(|| Err(NOT_SUPPORTED))),
    ("cuDeviceGetP2PAttribute", bind(peer_attribute)),
    ("cuModuleGetTexRef", bind(reference)),
    ("cuModuleGetSurfRef", bind(reference)),
];

/// A `CUmemLocation` by value: eight bytes in one register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    kind: u32,
    id: i32,
}

impl Argument for Place {
    fn read(call: &Call, index: usize) -> Self {
        const { assert!(size_of::<CUmemLocation>() == 8) };
        let word = u64::read(call, index);
        Place {
            kind: word as u32,
            id: (word >> 32) as i32,
        }
    }
}

impl Place {
    pub(crate) fn of(location: CUmemLocation) -> Place {
        Place {
            kind: location.type_.0,
            id: location.id,
        }
    }

    /// As the older calls give it: a device, or `CU_DEVICE_CPU`.
    fn of_device(device: i32) -> Place {
        Place {
            kind: if device == -1 { 2 } else { 1 },
            id: device,
        }
    }

    pub(crate) fn check(self) -> Answer {
        match self.kind {
            1 => check_device(self.id),
            2 | 4 => Ok(()),
            3 if self.id == 0 => Ok(()),
            3 => Err(INVALID_DEVICE),
            _ => Err(INVALID_VALUE),
        }
    }

    /// What `PREFERRED_LOCATION` and the like answer.
    fn device(self) -> i32 {
        if self.kind == 1 { self.id } else { -1 }
    }
}

/// `CU_DEVICE_INVALID`.
const NOWHERE: i32 = -2;

/// Advice given to a managed allocation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Advice {
    read_mostly: bool,
    preferred: i32,
    prefetched: i32,
}

impl Default for Advice {
    fn default() -> Self {
        Advice {
            read_mostly: false,
            preferred: NOWHERE,
            prefetched: NOWHERE,
        }
    }
}

impl State {
    /// Notes where a managed allocation was prefetched to last.
    pub(crate) fn prefetched(&mut self, base: u64, place: Place) {
        self.advice.entry(base).or_default().prefetched = place.device();
    }

    /// The managed allocation that a range lies in.
    pub(crate) fn managed(&self, address: u64, size: u64) -> Answer<u64> {
        let (base, one) = self.allocation_at(address).ok_or(INVALID_VALUE)?;
        let fits = size > 0 && size <= one.size - (address - base);
        if one.purpose == Purpose::Managed && fits {
            Ok(base)
        } else {
            Err(INVALID_VALUE)
        }
    }
}

fn prefetch(address: u64, size: u64, place: Place, flags: u32, stream: Stream) -> Answer {
    let mut state = lock();
    state.current()?;
    state.check_stream(stream)?;
    let base = state.managed(address, size)?;
    place.check()?;
    if flags != 0 {
        return Err(INVALID_VALUE);
    }
    state.prefetched(base, place);
    Ok(())
}

fn advise(address: u64, size: u64, advice: u32, place: Place) -> Answer {
    let mut state = lock();
    state.current()?;
    let base = state.managed(address, size)?;
    if matches!(advice, 3 | 5 | 6) {
        place.check()?;
    }
    let kept = state.advice.entry(base).or_default();
    match advice {
        1 => kept.read_mostly = true,
        2 => kept.read_mostly = false,
        3 => kept.preferred = place.device(),
        4 => kept.preferred = NOWHERE,
        5 | 6 => {}
        _ => return Err(INVALID_VALUE),
    }
    Ok(())
}

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
    // READ_MOSTLY, PREFERRED_LOCATION, LAST_PREFETCH_LOCATION; the list of ACCESSED_BY is not kept.
    let value = match attribute {
        1 => i32::from(advice.read_mostly),
        2 => advice.preferred,
        4 => advice.prefetched,
        3 => return Err(NOT_SUPPORTED),
        _ => return Err(INVALID_VALUE),
    };
    if size != 4 {
        return Err(INVALID_VALUE);
    }
    data.set(value)
}

/// As the single query, for each attribute with its own place and size.
fn range_attributes(
    data: In<u64>,
    sizes: In<usize>,
    attributes: In<u32>,
    count: usize,
    address: u64,
    length: u64,
) -> Answer {
    if count == 0 || count > 4096 {
        return Err(INVALID_VALUE);
    }
    let (places, sizes) = (data.list(count)?, sizes.list(count)?);
    for ((place, size), attribute) in places.into_iter().zip(sizes).zip(attributes.list(count)?) {
        range_attribute(Out::at(place), size, attribute, address, length)?;
    }
    Ok(())
}

fn peer_attribute(value: Out<i32>, attribute: u32, from: i32, to: i32) -> Answer {
    value.check()?;
    check_device(from)?;
    check_device(to)?;
    if from == to {
        return Err(INVALID_DEVICE);
    }
    if !(1..=5).contains(&attribute) {
        return Err(INVALID_VALUE);
    }
    // ACCESS_SUPPORTED; no atomic operations, no arrays.
    value.set(i32::from(attribute == 2))
}

/// Texture and surface references went with the toolkits that made them; no module has one here.
fn reference(found: Out<u64>, module: u64, name: Text) -> Answer {
    let state = lock();
    state.modules.get(&module).ok_or(INVALID_HANDLE)?;
    found.check()?;
    name.get()?;
    Err(NOT_FOUND)
}
