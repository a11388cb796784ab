//! Virtual Memory Management: reservations, physical memory, mappings, access.

use std::sync::Arc;

use cutape_driver::types::{CUmemAccessDesc, CUmemAllocationProp, CUmemLocation};
use cutape_registry::Kind;

use crate::address::{BLOCK, SLOT};
use crate::answer::{
    Answer, INVALID_DEVICE, INVALID_VALUE, NOT_PERMITTED, NOT_SUPPORTED, OUT_OF_MEMORY,
};
use crate::argument::{In, Out};
use crate::dispatch::{Entry, bind};
use crate::memory::Segment;
use crate::physical::{self, Physical};
use crate::state::{State, check_device, lock};

pub(crate) const ENTRIES: &[Entry] = &[
    ("cuMemAddressReserve", bind(address_reserve)),
    ("cuMemAddressFree", bind(address_free)),
    ("cuMemCreate", bind(create)),
    ("cuMemRelease", bind(release)),
    ("cuMemMap", bind(map)),
    ("cuMemUnmap", bind(unmap)),
    ("cuMemSetAccess", bind(set_access)),
    ("cuMemGetAccess", bind(get_access)),
    (
        "cuMemGetAllocationGranularity",
        bind(get_allocation_granularity),
    ),
    (
        "cuMemGetAllocationPropertiesFromHandle",
        bind(get_properties),
    ),
    ("cuMemRetainAllocationHandle", bind(retain)),
];

/// A virtual memory handle.
#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) memory: Arc<Physical>,
    properties: CUmemAllocationProp,
    references: u32,
}

impl Handle {
    /// Whether the memory is that device's (not the host's).
    pub(crate) fn is_on(&self, device: i32) -> bool {
        self.properties.location.type_.0 == DEVICE && self.properties.location.id == device
    }
}

/// Physical memory at an address.
#[derive(Debug)]
pub(crate) struct Mapping {
    pub(crate) size: u64,
    offset: u64,
    memory: Arc<Physical>,
    handle: u64,
    properties: CUmemAllocationProp,
    /// `CU_MEM_ACCESS_FLAGS` of each device that was given any.
    devices: Vec<(i32, u32)>,
    /// The same for the host.
    host: u32,
}

impl Mapping {
    /// Where the memory is: a device's number, or `None` for the host.
    pub(crate) fn device(&self) -> Option<i32> {
        let location = self.properties.location;
        (location.type_.0 == DEVICE).then_some(location.id)
    }
}

const DEVICE: u32 = 1; // CU_MEM_LOCATION_TYPE_DEVICE
const HOST: u32 = 2;
const HOST_NUMA: u32 = 3;
const HOST_NUMA_CURRENT: u32 = 4;
const PINNED: u32 = 1; // CU_MEM_ALLOCATION_TYPE_PINNED
const READ_WRITE: u32 = 3; // CU_MEM_ACCESS_FLAGS_PROT_READWRITE
const READ: u32 = 1;

impl State {
    /// The mapping that contains an address.
    pub(crate) fn mapping_at(&self, address: u64) -> Option<(u64, &Mapping)> {
        let (&base, mapping) = self.mappings.range(..=address).next_back()?;
        (address - base < mapping.size).then_some((base, mapping))
    }

    /// The pieces of a range that is mapped without holes and accessible to a device or the host; `None` otherwise.
    pub(crate) fn mapped(&self, address: u64, size: u64) -> Option<Vec<Segment>> {
        let mut segments = Vec::new();
        let (mut at, mut left) = (address, size);
        loop {
            let (base, mapping) = self.mapping_at(at)?;
            if mapping.devices.iter().all(|access| access.1 == 0) && mapping.host == 0 {
                return None;
            }
            let inside = at - base;
            let length = left.min(mapping.size - inside);
            segments.push(Segment {
                bytes: mapping.memory.base() + mapping.offset + inside,
                size: length,
            });
            at += length;
            left -= length;
            if left == 0 {
                return Some(segments);
            }
        }
    }

    /// The bases of mappings that make up exactly this range.
    fn mappings_of(&self, address: u64, size: u64) -> Answer<Vec<u64>> {
        let end = address
            .checked_add(size)
            .filter(|_| size > 0)
            .ok_or(INVALID_VALUE)?;
        let mut bases = Vec::new();
        let mut at = address;
        while at < end {
            let mapping = self.mappings.get(&at).ok_or(INVALID_VALUE)?;
            bases.push(at);
            at += mapping.size;
        }
        if at == end {
            Ok(bases)
        } else {
            Err(INVALID_VALUE)
        }
    }
}

fn address_reserve(address: Out<u64>, size: u64, alignment: u64, hint: u64, flags: u64) -> Answer {
    let mut state = lock();
    address.check()?;
    let aligned = alignment == 0 || alignment.is_power_of_two();
    if size == 0 || !size.is_multiple_of(BLOCK) || !aligned || flags != 0 {
        return Err(INVALID_VALUE);
    }
    if alignment > SLOT {
        return Err(NOT_SUPPORTED);
    }
    // Beyond the address space the real driver refused; the code is an assumption.
    address.set(state.space.reserve(size, hint).ok_or(OUT_OF_MEMORY)?)
}

fn address_free(address: u64, size: u64) -> Answer {
    let mut state = lock();
    if state.space.reservation_at(address) != Some(size) {
        return Err(INVALID_VALUE);
    }
    // What is still mapped must be unmapped first.
    if state
        .mappings
        .range(address..address + size)
        .next()
        .is_some()
    {
        return Err(INVALID_VALUE);
    }
    state.space.unreserve(address);
    Ok(())
}

fn check_properties(properties: &CUmemAllocationProp) -> Answer {
    // Managed physical memory was refused by the real driver.
    if properties.type_.0 != PINNED {
        return Err(INVALID_VALUE);
    }
    match properties.location.type_.0 {
        DEVICE => check_device(properties.location.id),
        // One NUMA node.
        HOST_NUMA if properties.location.id == 0 => Ok(()),
        HOST | HOST_NUMA_CURRENT => Ok(()),
        HOST_NUMA => Err(INVALID_DEVICE),
        _ => Err(INVALID_VALUE),
    }
}

fn create(handle: Out<u64>, size: u64, properties: In<CUmemAllocationProp>, flags: u64) -> Answer {
    let mut state = lock();
    handle.check()?;
    let properties = properties.get()?;
    check_properties(&properties)?;
    // Shareable handles: POSIX file descriptors are plain memory here, all other kinds do not exist.
    if size == 0
        || !size.is_multiple_of(BLOCK)
        || flags != 0
        || properties.requestedHandleTypes.0 > 1
    {
        return Err(INVALID_VALUE);
    }
    let device = if properties.location.type_.0 == DEVICE {
        properties.location.id
    } else {
        0
    };
    state.check_room(device, size)?;
    let memory = Arc::new(Physical::new(size).ok_or(OUT_OF_MEMORY)?);
    let key = state.make(Kind::Allocation)?;
    state.physical.insert(
        key,
        Handle {
            memory,
            properties,
            references: 1,
        },
    );
    handle.set(key)
}

fn release(handle: u64) -> Answer {
    let mut state = lock();
    let object = state.physical.get_mut(&handle).ok_or(INVALID_VALUE)?;
    object.references -= 1;
    if object.references == 0 {
        // Mappings keep the memory itself alive.
        state.physical.remove(&handle);
        state.release(Kind::Allocation, handle);
    }
    Ok(())
}

fn map(address: u64, size: u64, offset: u64, handle: u64, flags: u64) -> Answer {
    let mut state = lock();
    let object = state.physical.get(&handle).ok_or(INVALID_VALUE)?;
    let fits = offset
        .checked_add(size)
        .is_some_and(|end| end <= object.memory.size);
    let aligned = [address, size, offset]
        .iter()
        .all(|value| value.is_multiple_of(BLOCK))
        && size > 0;
    // The offset must be zero for now (cuMemMap).
    if !fits || !aligned || offset != 0 || flags != 0 || !state.space.is_reserved(address, size) {
        return Err(INVALID_VALUE);
    }
    let below = state.mappings.range(..address + size).next_back();
    if below.is_some_and(|(base, mapping)| base + mapping.size > address) {
        return Err(INVALID_VALUE);
    }
    let mapping = Mapping {
        size,
        offset,
        memory: Arc::clone(&object.memory),
        handle,
        properties: object.properties,
        devices: Vec::new(),
        host: 0,
    };
    state.mappings.insert(address, mapping);
    Ok(())
}

fn unmap(address: u64, size: u64) -> Answer {
    let mut state = lock();
    for base in state.mappings_of(address, size)? {
        if let Some(mapping) = state.mappings.remove(&base)
            && mapping.host != 0
        {
            physical::close_range(base, mapping.size);
        }
    }
    Ok(())
}

fn set_access(address: u64, size: u64, list: In<CUmemAccessDesc>, count: usize) -> Answer {
    let mut state = lock();
    if count == 0 || count > 4096 {
        return Err(INVALID_VALUE);
    }
    let descriptions = list.list(count)?;
    let bases = state.mappings_of(address, size)?;
    for description in &descriptions {
        let (location, flags) = (description.location, description.flags.0);
        if !matches!(flags, 0 | READ | READ_WRITE) {
            return Err(INVALID_VALUE);
        }
        match location.type_.0 {
            DEVICE => check_device(location.id)?,
            HOST | HOST_NUMA | HOST_NUMA_CURRENT => {
                // The CPU cannot be given device memory here, which has no coherent link.
                if bases
                    .iter()
                    .any(|base| state.mappings[base].device().is_some())
                {
                    return Err(NOT_SUPPORTED);
                }
            }
            _ => return Err(INVALID_VALUE),
        }
    }
    for base in bases {
        let Some(mapping) = state.mappings.get_mut(&base) else {
            continue;
        };
        for description in &descriptions {
            let (location, flags) = (description.location, description.flags.0);
            if location.type_.0 == DEVICE {
                mapping.devices.retain(|access| access.0 != location.id);
                mapping.devices.push((location.id, flags));
                continue;
            }
            let shown = if flags == 0 {
                physical::close_range(base, mapping.size)
            } else {
                mapping.memory.show_at(base, mapping.size, mapping.offset)
            };
            if !shown {
                return Err(OUT_OF_MEMORY);
            }
            mapping.host = flags;
        }
    }
    Ok(())
}

fn get_access(flags: Out<u64>, location: In<CUmemLocation>, address: u64) -> Answer {
    let state = lock();
    flags.check()?;
    let location = location.get()?;
    let (_, mapping) = state.mapping_at(address).ok_or(INVALID_VALUE)?;
    let access = match location.type_.0 {
        DEVICE => {
            check_device(location.id)?;
            mapping
                .devices
                .iter()
                .find(|access| access.0 == location.id)
                .map_or(0, |access| access.1)
        }
        HOST | HOST_NUMA | HOST_NUMA_CURRENT => mapping.host,
        _ => return Err(INVALID_VALUE),
    };
    flags.set(u64::from(access))
}

fn get_allocation_granularity(
    size: Out<usize>,
    properties: In<CUmemAllocationProp>,
    option: u32,
) -> Answer {
    size.check()?;
    check_properties(&properties.get()?)?;
    // Minimum or recommended: both 2 MiB.
    if option > 1 {
        return Err(INVALID_VALUE);
    }
    size.set(BLOCK as usize)
}

fn get_properties(properties: Out<CUmemAllocationProp>, handle: u64) -> Answer {
    let state = lock();
    properties.check()?;
    properties.set(state.physical.get(&handle).ok_or(INVALID_VALUE)?.properties)
}

fn retain(handle: Out<u64>, address: u64) -> Answer {
    let mut state = lock();
    handle.check()?;
    let (_, mapping) = state.mapping_at(address).ok_or(INVALID_VALUE)?;
    let (key, memory) = (mapping.handle, Arc::clone(&mapping.memory));
    // A handle that was released while its memory stayed mapped cannot be revived: its number may be another's.
    let object = state
        .physical
        .get_mut(&key)
        .filter(|object| Arc::ptr_eq(&object.memory, &memory));
    object.ok_or(NOT_PERMITTED)?.references += 1;
    handle.set(key)
}
