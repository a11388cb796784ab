//! Virtual Memory Management: reservations, physical memory, mappings, access.

use std::sync::Arc;

use cutape_driver::types::{CUmemAccessDesc, CUmemAllocationProp, CUmemLocation};

use crate::call::answer::{
    Answer, INVALID_VALUE, NOT_PERMITTED, NOT_SUPPORTED, OUT_OF_MEMORY, invalid_if, reject_if,
    valid_if,
};
use crate::call::argument::{In, Out, OutRef};
use crate::call::entry::entries;
use crate::object::address_space::{BLOCK, SLOT};
use crate::object::device::check_device;
use crate::object::memory::{
    DEVICE, FILE_DESCRIPTOR, HOST, HOST_NUMA, HOST_NUMA_CURRENT, Location, Mapping, MemoryHandle,
    PINNED, READ, READ_WRITE, device_of,
};
use crate::object::pages;
use crate::object::shared_file::{Physical, SharedFile, Sharing};
use crate::player;
use crate::state::{Locked, State, lock};

entries! {
    cuMemAddressReserve: address_reserve;
    cuMemAddressFree: address_free;
    cuMemCreate: create;
    cuMemRelease: release;
    cuMemMap: map;
    cuMemUnmap: unmap;
    cuMemSetAccess: set_access;
    cuMemGetAccess: get_access;
    cuMemGetAllocationGranularity: get_allocation_granularity;
    cuMemGetAllocationPropertiesFromHandle: |result: OutRef<CUmemAllocationProp>, handle: u64|
        result.set(lock().memory_handles.find(handle)?.properties);
    cuMemRetainAllocationHandle: retain;
    cuMemExportToShareableHandle: export;
    cuMemImportFromShareableHandle: import;
}

/// The bases of mappings that make up exactly this range.
fn mappings_of(state: &State, address: u64, size: u64) -> Answer<Vec<u64>> {
    invalid_if(size == 0)?;
    let end = address.checked_add(size).ok_or(INVALID_VALUE)?;
    let mut bases = Vec::new();
    let mut at = address;
    while at < end {
        let mapping = state.mappings.get(&at).ok_or(INVALID_VALUE)?;
        bases.push(at);
        at += mapping.size;
    }
    valid_if(at == end)?;
    Ok(bases)
}

/// Whether a size is one or more blocks.
fn is_whole(size: u64) -> bool {
    size > 0 && size.is_multiple_of(BLOCK)
}

fn address_reserve(address: Out<u64>, size: u64, alignment: u64, hint: u64, flags: u64) -> Answer {
    let mut state = lock();
    address.check()?;
    let is_power = alignment == 0 || alignment.is_power_of_two();
    valid_if(is_whole(size) && is_power && flags == 0)?;
    reject_if(alignment > SLOT, NOT_SUPPORTED)?;
    if let Some(recorded) = player::address()
        && state.space.reserve_at(recorded, size)
    {
        return address.set(recorded);
    }
    // The real driver refuses what is beyond the address space; the code is assumed.
    address.set(state.space.reserve(size, hint).ok_or(OUT_OF_MEMORY)?)
}

fn address_free(mut state: Locked, address: u64, size: u64) -> Answer {
    invalid_if(state.space.reservation_at(address) != Some(size))?;
    // Mappings must be unmapped first.
    let mut mappings = state.mappings.range(address..address + size);
    invalid_if(mappings.next().is_some())?;
    state.space.unreserve(address);
    Ok(())
}

fn check_properties(properties: &CUmemAllocationProp) -> Answer {
    // The real driver refused managed physical memory.
    invalid_if(properties.type_.0 != PINNED)?;
    Location::from(properties.location).check()
}

fn create(handle: Out<u64>, size: u64, properties: In<CUmemAllocationProp>, flags: u64) -> Answer {
    let mut state = lock();
    handle.check()?;
    let properties = properties.get()?;
    check_properties(&properties)?;
    // Of shareable handles only POSIX file descriptors exist.
    valid_if(is_whole(size) && flags == 0 && properties.requestedHandleTypes.0 <= FILE_DESCRIPTOR)?;
    state.check_free(device_of(&properties).unwrap_or(0), size)?;
    let location = (properties.location.type_.0, properties.location.id);
    let memory = Arc::new(Physical::new(size, location).ok_or(OUT_OF_MEMORY)?);
    handle.set(state.memory_handles.add(MemoryHandle {
        memory,
        properties,
        references: 1,
    })?)
}

/// The code for a handle type that was not asked for at the creation is assumed.
fn export(state: Locked, result: OutRef<i32>, handle: u64, kind: u32, flags: u64) -> Answer {
    let object = state.memory_handles.find(handle)?;
    let is_asked_for = object.properties.requestedHandleTypes.0 == FILE_DESCRIPTOR;
    valid_if(kind == FILE_DESCRIPTOR && flags == 0 && is_asked_for)?;
    result.set(object.memory.file.export().ok_or(OUT_OF_MEMORY)?)
}

/// The code for a descriptor of something else is assumed.
fn import(mut state: Locked, handle: OutRef<u64>, descriptor: i32, kind: u32) -> Answer {
    valid_if(kind == FILE_DESCRIPTOR)?;
    let file = SharedFile::of_descriptor(descriptor).ok_or(INVALID_VALUE)?;
    valid_if(file.description.sharing == Sharing::Physical)?;
    // SAFETY: the struct consists of numbers and pointers, for which all-zero bytes are valid.
    let mut properties: CUmemAllocationProp = unsafe { std::mem::zeroed() };
    properties.type_.0 = PINNED;
    properties.requestedHandleTypes.0 = FILE_DESCRIPTOR;
    (properties.location.type_.0, properties.location.id) = file.description.location;
    check_properties(&properties)?;
    let memory = Arc::new(Physical::of(file).ok_or(OUT_OF_MEMORY)?);
    handle.set(state.memory_handles.add(MemoryHandle {
        memory,
        properties,
        references: 1,
    })?)
}

fn release(mut state: Locked, handle: u64) -> Answer {
    let object = state.memory_handles.find_mut(handle)?;
    object.references -= 1;
    if object.references == 0 {
        // Mappings keep the memory itself alive.
        state.memory_handles.remove(handle);
    }
    Ok(())
}

fn map(mut state: Locked, address: u64, size: u64, offset: u64, handle: u64, flags: u64) -> Answer {
    let object = state.memory_handles.find_mut(handle)?;
    let (memory, properties) = (Arc::clone(&object.memory), object.properties);
    // The offset must be zero for now (cuMemMap).
    let fits = size <= memory.size() && offset == 0;
    let is_aligned = address.is_multiple_of(BLOCK);
    valid_if(fits && is_aligned && flags == 0 && state.space.is_reserved(address, size))?;
    // Measured with 100,000 bytes of 2 MiB; that anything else is refused first is assumed.
    reject_if(!is_whole(size), NOT_SUPPORTED)?;
    let below = state.mappings.range(..address + size).next_back();
    invalid_if(below.is_some_and(|(base, mapping)| base + mapping.size > address))?;
    let mapping = Mapping {
        size,
        memory,
        handle,
        properties,
        devices: Vec::new(),
        host: 0,
    };
    state.mappings.insert(address, mapping);
    Ok(())
}

fn unmap(mut state: Locked, address: u64, size: u64) -> Answer {
    for base in mappings_of(&state, address, size)? {
        if let Some(mapping) = state.mappings.remove(&base) {
            if mapping.host != 0 {
                pages::close_range(base, mapping.size);
            }
            state.drop_later(mapping.memory);
        }
    }
    Ok(())
}

fn set_access(address: u64, size: u64, list: In<CUmemAccessDesc>, count: usize) -> Answer {
    let mut state = lock();
    invalid_if(count == 0 || count > 4096)?;
    let descriptions = list.list(count)?;
    let bases = mappings_of(&state, address, size)?;
    for description in &descriptions {
        let (location, flags) = (description.location, description.flags.0);
        invalid_if(!matches!(flags, 0 | READ | READ_WRITE))?;
        match location.type_.0 {
            DEVICE => check_device(location.id)?,
            HOST | HOST_NUMA | HOST_NUMA_CURRENT => {
                // Without a coherent link, the CPU cannot access device memory.
                let properties = |base| &state.mappings[base].properties;
                let is_on_device = bases
                    .iter()
                    .any(|base| device_of(properties(base)).is_some());
                reject_if(is_on_device, NOT_SUPPORTED)?;
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
            let shown = match flags {
                0 => pages::close_range(base, mapping.size),
                _ => mapping.memory.file.show_at(base, mapping.size),
            };
            reject_if(!shown, OUT_OF_MEMORY)?;
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
            let mut devices = mapping.devices.iter();
            devices
                .find(|access| access.0 == location.id)
                .map_or(0, |access| access.1)
        }
        HOST | HOST_NUMA | HOST_NUMA_CURRENT => mapping.host,
        _ => return Err(INVALID_VALUE),
    };
    flags.set(u64::from(access))
}

fn get_allocation_granularity(
    size: OutRef<usize>,
    properties: In<CUmemAllocationProp>,
    option: u32,
) -> Answer {
    check_properties(&properties.get()?)?;
    // Minimum or recommended: both 2 MiB.
    invalid_if(option > 1)?;
    size.set(BLOCK as usize)
}

fn retain(mut state: Locked, handle: OutRef<u64>, address: u64) -> Answer {
    let (_, mapping) = state.mapping_at(address).ok_or(INVALID_VALUE)?;
    let (key, memory) = (mapping.handle, Arc::clone(&mapping.memory));
    // A handle that was released while its memory stayed mapped cannot come back: its value may be
    // in use.
    let object = state.memory_handles.get_mut(&key);
    let object = object.filter(|object| Arc::ptr_eq(&object.memory, &memory));
    object.ok_or(NOT_PERMITTED)?.references += 1;
    handle.set(key)
}
