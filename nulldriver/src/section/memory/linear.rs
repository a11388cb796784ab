//! Memory Management: linear device memory, pinned and registered host memory. An allocation that
//! fails leaves 0 as its address, and one of 0 bytes of host memory succeeds with 0 (measured:
//! tests/gpu/failed_outputs.c).

use crate::call::answer::{
    Answer, HOST_MEMORY_ALREADY_REGISTERED, HOST_MEMORY_NOT_REGISTERED, INVALID_VALUE, NOT_FOUND,
    OUT_OF_MEMORY, invalid_if, reject_if, require, valid_if,
};
use crate::call::argument::{Out, OutRef};
use crate::call::entry::entries;
use crate::object::memory::{Purpose, Registration};
use crate::settings;
use crate::state::{Current, Locked, State};

entries! {
    cuMemGetInfo: get_info;
    cuMemAlloc: alloc;
    cuMemAllocPitch: alloc_pitch;
    cuMemFree: free;
    cuMemGetAddressRange: get_address_range;
    cuMemAllocHost: |state: Current, address: OutRef<u64>, size: u64|
        host_alloc(state, address, size, 0);
    cuMemFreeHost: free_host;
    cuMemHostAlloc: host_alloc;
    cuMemHostGetDevicePointer: host_get_device_pointer;
    cuMemHostGetFlags: host_get_flags;
    cuMemHostRegister: host_register;
    cuMemHostUnregister: host_unregister;
    cuMemAllocManaged: alloc_managed;
}

/// `CU_MEMHOSTALLOC_PORTABLE | DEVICEMAP | WRITECOMBINED`.
const HOST_ALLOC_FLAGS: u32 = 7;
/// `CU_MEMHOSTREGISTER_PORTABLE | DEVICEMAP | IOMEMORY | READ_ONLY`.
const HOST_REGISTER_FLAGS: u32 = 15;
/// `CU_MEMHOSTALLOC_DEVICEMAP`: always set on 64-bit systems with unified addressing.
const DEVICEMAP: u32 = 2;

fn get_info(state: Locked, free: Out<usize>, total: Out<usize>) -> Answer {
    let device = state.current_device()?;
    free.check()?;
    total.check()?;
    let memory = settings::get().memory;
    total.set_if(memory as usize);
    free.set(memory.saturating_sub(state.used(device)) as usize)
}

fn alloc(mut state: Current, address: OutRef<u64>, size: u64) -> Answer {
    address.set(0)?;
    invalid_if(size == 0)?;
    address.set(state.allocate(size, Purpose::Device, 0)?)
}

fn alloc_pitch(
    mut state: Current,
    address: OutRef<u64>,
    pitch: OutRef<usize>,
    width: u64,
    height: u64,
    element: u32,
) -> Answer {
    address.set(0)?;
    invalid_if(width == 0 || height == 0 || !matches!(element, 4 | 8 | 16))?;
    let row = width.checked_next_multiple_of(512).ok_or(OUT_OF_MEMORY)?;
    let size = row.checked_mul(height).ok_or(OUT_OF_MEMORY)?;
    let base = state.allocate(size, Purpose::Device, 0)?;
    pitch.set_if(row as usize);
    address.set(base)
}

fn free(mut state: Locked, address: u64) -> Answer {
    if address == 0 {
        // Nothing to free is no error (measured; that it needs a context is assumed).
        return state.current().map(|_| ());
    }
    // The address is checked before the context: memory of a destroyed context is INVALID_VALUE
    // (measured).
    let is_host = matches!(
        state.purpose_at(address),
        None | Some(Purpose::Host | Purpose::Global | Purpose::Imported)
    );
    invalid_if(is_host)?;
    state.current()?;
    state.remove_allocation(address);
    Ok(())
}

fn get_address_range(state: Current, base: Out<u64>, size: Out<usize>, address: u64) -> Answer {
    let range = match state.allocation_at(address) {
        Some((base, allocation)) => Some((base, allocation.size)),
        None => state
            .mapping_at(address)
            .map(|(base, mapping)| (base, mapping.size)),
    };
    // The documented answer for an address that no allocation contains.
    let (start, length) = range.ok_or(NOT_FOUND)?;
    base.set_if(start);
    size.set_if(length as usize);
    Ok(())
}

fn host_alloc(mut state: Current, address: OutRef<u64>, size: u64, flags: u32) -> Answer {
    address.set(0)?;
    invalid_if(flags & !HOST_ALLOC_FLAGS != 0)?;
    if size == 0 {
        return Ok(());
    }
    address.set(state.allocate(size, Purpose::Host, flags | DEVICEMAP)?)
}

fn free_host(mut state: Current, address: u64) -> Answer {
    let is_host = state.purpose_at(address) == Some(Purpose::Host);
    valid_if(is_host)?;
    state.remove_allocation(address);
    Ok(())
}

/// The flags of the pinned allocation that an address lies in.
fn pinned_flags(state: &State, address: u64) -> Option<u32> {
    let (_, memory) = state.allocation_at(address)?;
    (memory.purpose == Purpose::Host).then_some(memory.flags)
}

fn host_get_device_pointer(state: Current, device: OutRef<u64>, host: u64, flags: u32) -> Answer {
    invalid_if(flags != 0)?;
    let is_known = pinned_flags(&state, host).is_some() || state.registration_at(host).is_some();
    valid_if(is_known)?;
    device.set(host)
}

fn host_get_flags(state: Current, flags: OutRef<u32>, host: u64) -> Answer {
    if let Some(pinned) = pinned_flags(&state, host) {
        return flags.set(pinned);
    }
    // The flags of registered memory are those of an allocation: portable and mapped have the same
    // bits.
    let (_, registered) = state.registration_at(host).ok_or(INVALID_VALUE)?;
    flags.set(registered.flags & 3 | DEVICEMAP)
}

fn host_register(mut state: Current, host: u64, size: u64, flags: u32) -> Answer {
    let context = state.context;
    let end = host.checked_add(size).ok_or(INVALID_VALUE)?;
    let is_empty = host == 0 || size == 0;
    invalid_if(is_empty || flags & !HOST_REGISTER_FLAGS != 0)?;
    let registered = state.registrations.range(..end).next_back();
    let is_registered = registered.is_some_and(|(base, memory)| host < base + memory.size);
    reject_if(is_registered, HOST_MEMORY_ALREADY_REGISTERED)?;
    let allocated = state.allocations.range(..end).next_back();
    let is_allocated = allocated.is_some_and(|(base, memory)| host < base + memory.size);
    invalid_if(is_allocated)?;
    let registration = Registration {
        size,
        flags,
        context,
    };
    state.registrations.insert(host, registration);
    Ok(())
}

fn host_unregister(mut state: Current, host: u64) -> Answer {
    invalid_if(host == 0)?;
    let removed = state.registrations.remove(&host);
    require(removed.is_some(), HOST_MEMORY_NOT_REGISTERED)
}

fn alloc_managed(mut state: Current, address: OutRef<u64>, size: u64, flags: u32) -> Answer {
    address.set(0)?;
    // CU_MEM_ATTACH_GLOBAL or CU_MEM_ATTACH_HOST, one of them.
    invalid_if(size == 0 || !matches!(flags, 1 | 2))?;
    address.set(state.allocate(size, Purpose::Managed, flags)?)
}
