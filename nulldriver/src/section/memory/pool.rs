//! Stream Ordered Memory Allocator: the default pool and pools of the program's own.
//!
//! All work is done when it is enqueued, so an allocation is usable when the call returns, and
//! memory is free when the call that frees it returns.

use cutape_driver::types::{
    CUDA_MEM_ALLOC_NODE_PARAMS, CUmemAccessDesc, CUmemLocation, CUmemPoolProps,
};

use crate::call::answer::{
    Answer, INVALID_VALUE, NOT_SUPPORTED, OUT_OF_MEMORY, invalid_if, valid_if,
};
use crate::call::argument::{In, Out, OutRef, Stream};
use crate::call::entry::entries;
use crate::object::device::check_device;
use crate::object::memory::{DEVICE, FILE_DESCRIPTOR, PINNED, Pool, Purpose, READ_WRITE};
use crate::object::shared_file::{IpcHandle, SharedFile, Sharing};
use crate::object::stream_key::Key;
use crate::state::{Action, Current, Locked, State, lock};
use crate::work::node;

entries! {
    cuDeviceGetDefaultMemPool: |pool: OutRef<u64>, device: i32|
        pool.set(default_pool(&mut lock(), device)?);
    cuDeviceGetMemPool: |pool: OutRef<u64>, device: i32|
        pool.set(current_pool(&mut lock(), device)?);
    cuMemGetDefaultMemPool: |pool: OutRef<u64>, location: In<CUmemLocation>, kind: u32| {
        let device = device_of(location, kind)?;
        pool.set(default_pool(&mut lock(), device)?)
    };
    cuMemGetMemPool: |pool: OutRef<u64>, location: In<CUmemLocation>, kind: u32| {
        let device = device_of(location, kind)?;
        pool.set(current_pool(&mut lock(), device)?)
    };
    cuMemSetMemPool: |state: Locked, location: In<CUmemLocation>, kind: u32, pool: u64|
        set_current(state, device_of(location, kind)?, pool);
    cuDeviceSetMemPool: set_current;
    cuMemAllocAsync: alloc;
    cuMemAllocFromPoolAsync: alloc_from;
    cuMemFreeAsync: free;
    cuMemPoolCreate: create;
    cuMemPoolDestroy: destroy;
    // Blocks are released as soon as they are unused, so there is nothing to trim.
    cuMemPoolTrimTo: |pool: u64| lock().pools.find(pool).map(|_| ());
    cuMemPoolGetAttribute: get_attribute;
    cuMemPoolSetAttribute: set_attribute;
    cuMemPoolSetAccess: set_access;
    cuMemPoolGetAccess: get_access;
    cuMemPoolExportToShareableHandle: export;
    cuMemPoolImportFromShareableHandle: import;
    cuMemPoolExportPointer: export_pointer;
    cuMemPoolImportPointer: import_pointer;
}

/// The device's default pool, created by the first query.
fn default_pool(state: &mut State, device: i32) -> Answer<u64> {
    check_device(device)?;
    let is_default = |pool: &Pool| pool.is_default && pool.device == device;
    let found = state.pools.iter().find(|(_, pool)| is_default(pool));
    if let Some((&pool, _)) = found {
        return Ok(pool);
    }
    state.pools.add(Pool::new(device, true))
}

fn current_pool(state: &mut State, device: i32) -> Answer<u64> {
    check_device(device)?;
    match state.primaries[device as usize].pool {
        Some(pool) if state.pools.contains_key(&pool) => Ok(pool),
        _ => default_pool(state, device),
    }
}

/// Bytes allocated from a pool.
fn used(state: &State, pool: u64) -> u64 {
    let memory = state.allocations.values();
    let memory = memory.filter(|memory| memory.purpose == Purpose::Pool(pool));
    memory.map(|memory| memory.size).sum()
}

fn allocate_from(state: &mut State, pool: u64, size: u64) -> Answer<u64> {
    valid_if(size != 0)?;
    let address = state.allocate(size, Purpose::Pool(pool), 0)?;
    let used = used(state, pool);
    let pool = state.pools.find_mut(pool)?;
    pool.high = pool.high.max(used);
    Ok(address)
}

/// The device of a location, for pinned memory; pools of the host or of managed memory do not exist
/// here.
fn device_of(location: In<CUmemLocation>, kind: u32) -> Answer<i32> {
    let location = location.get()?;
    match (location.type_.0, kind) {
        (DEVICE, PINNED) => Ok(location.id),
        (1..=4, 1..=3) => Err(NOT_SUPPORTED),
        _ => Err(INVALID_VALUE),
    }
}

fn set_current(mut state: Locked, device: i32, pool: u64) -> Answer {
    check_device(device)?;
    let object = state.pools.find(pool)?;
    // An imported pool allocates nothing here.
    invalid_if(object.device != device || object.is_imported())?;
    state.primaries[device as usize].pool = Some(pool);
    Ok(())
}

fn alloc(mut state: Locked, address: Out<u64>, size: u64, stream: Stream) -> Answer {
    let device = state.current_device()?;
    state.check_stream(stream)?;
    address.set(0)?;
    if let Some(site) = state.capture_of(stream)? {
        return capture_allocation(&mut state, site, address, size);
    }
    let pool = current_pool(&mut state, device)?;
    if size == 0 {
        // Measured: tests/gpu/failed_outputs.c. That it does not succeed in a capture is assumed.
        return Ok(());
    }
    // It orders nothing, not even in the legacy stream (measured: tests/gpu/waits.c).
    address.set(allocate_from(&mut state, pool, size)?)
}

fn alloc_from(address: Out<u64>, size: u64, pool: u64, stream: Stream) -> Answer {
    let mut state = lock();
    state.current()?;
    state.check_stream(stream)?;
    address.set(0)?;
    invalid_if(state.pools.find(pool)?.is_imported())?;
    if let Some(site) = state.capture_of(stream)? {
        return capture_allocation(&mut state, site, address, size);
    }
    address.set(allocate_from(&mut state, pool, size)?)
}

/// Captures an allocation as a node.
fn capture_allocation(state: &mut State, site: Key, address: Out<u64>, size: u64) -> Answer {
    // SAFETY: the struct consists of numbers and pointers, for which all-zero bytes are valid.
    let mut params: CUDA_MEM_ALLOC_NODE_PARAMS = unsafe { std::mem::zeroed() };
    params.poolProps.allocType.0 = PINNED;
    params.poolProps.location.type_.0 = DEVICE;
    params.poolProps.location.id = state.current_device()?;
    params.bytesize = size as usize;
    let after = state.captured_before(site);
    let work = node::allocate(state, &after, &mut params)?;
    state.add_captured(site, work)?;
    address.set(params.dptr)
}

fn free(mut state: Current, address: u64, stream: Stream) -> Answer {
    state.check_stream(stream)?;
    if let Some(site) = state.capture_of(stream)? {
        let work = node::free(&state, address)?;
        return state.add_captured(site, work);
    }
    // Memory of cuMemAlloc may be freed in stream order, too.
    let purpose = state.purpose_at(address);
    valid_if(matches!(purpose, Some(Purpose::Pool(_) | Purpose::Device)))?;
    // In the legacy stream, it orders blocking ones (measured: tests/gpu/waits.c).
    state.enqueue(stream, Action::Nothing)?;
    state.remove_allocation(address);
    Ok(())
}

fn create(mut state: Locked, pool: OutRef<u64>, properties: In<CUmemPoolProps>) -> Answer {
    let properties = properties.get()?;
    let (kind, location) = (properties.allocType.0, properties.location.type_.0);
    let handles = properties.handleTypes.0;
    invalid_if(kind != PINNED || location != DEVICE || handles > FILE_DESCRIPTOR)?;
    let device = properties.location.id;
    check_device(device)?;
    let file = match handles {
        FILE_DESCRIPTOR => {
            let file = SharedFile::new(Sharing::Pool, 0, (DEVICE, device));
            Some(file.ok_or(OUT_OF_MEMORY)?)
        }
        _ => None,
    };
    pool.set(state.pools.add(Pool {
        file,
        ..Pool::new(device, false)
    })?)
}

fn destroy(mut state: Locked, pool: u64) -> Answer {
    // The default pool cannot be destroyed (measured INVALID_VALUE).
    invalid_if(state.pools.find(pool)?.is_default)?;
    state.pools.remove(pool);
    Ok(())
}

fn get_attribute(state: Locked, pool: u64, attribute: u32, value: OutRef<u32>) -> Answer {
    let used = used(&state, pool);
    let object = state.pools.find(pool)?;
    let wide = match attribute {
        1..=3 => return value.set(object.reuse[attribute as usize - 1]),
        4 => object.release_threshold,
        5 | 7 => used,        // RESERVED_MEM_CURRENT, USED_MEM_CURRENT
        6 | 8 => object.high, // RESERVED_MEM_HIGH, USED_MEM_HIGH
        _ => return Err(INVALID_VALUE),
    };
    value.set_at(0, wide as u32);
    value.set_at(1, (wide >> 32) as u32);
    Ok(())
}

fn set_attribute(mut state: Locked, pool: u64, attribute: u32, value: In<u32>) -> Answer {
    let low = value.get()?;
    let used = used(&state, pool);
    let object = state.pools.find_mut(pool)?;
    match attribute {
        1..=3 => object.reuse[attribute as usize - 1] = u32::from(low != 0),
        4 => object.release_threshold = u64::from(low) | u64::from(value.get_at(1)?) << 32,
        // A high-water mark can only be reset.
        6 | 8 if low == 0 && value.get_at(1)? == 0 => object.high = used,
        _ => return Err(INVALID_VALUE),
    }
    Ok(())
}

fn set_access(mut state: Locked, pool: u64, list: In<CUmemAccessDesc>, count: usize) -> Answer {
    let device = state.pools.find(pool)?.device;
    invalid_if(count > 4096)?;
    let mut accesses = Vec::new();
    for access in list.list(count)? {
        let (location, flags) = (access.location, access.flags.0);
        invalid_if(location.type_.0 != DEVICE || !matches!(flags, 0 | READ_WRITE))?;
        check_device(location.id)?;
        // The pool's own device keeps its access.
        invalid_if(location.id == device && flags != READ_WRITE)?;
        accesses.push((location.id, flags));
    }
    state.pools.find_mut(pool)?.peers.extend(accesses);
    Ok(())
}

fn get_access(state: Locked, flags: OutRef<u32>, pool: u64, location: In<CUmemLocation>) -> Answer {
    let location = location.get()?;
    let pool = state.pools.find(pool)?;
    invalid_if(location.type_.0 != DEVICE)?;
    check_device(location.id)?;
    flags.set(match location.id == pool.device {
        true => READ_WRITE,
        false => pool.peers.get(&location.id).copied().unwrap_or(0),
    })
}

/// What the real driver answers to a pool that was not created for it is assumed.
fn export(state: Locked, result: OutRef<i32>, pool: u64, kind: u32, flags: u64) -> Answer {
    let pool = state.pools.find(pool)?;
    invalid_if(kind != FILE_DESCRIPTOR || flags != 0 || pool.is_imported())?;
    let file = pool.file.as_ref().ok_or(INVALID_VALUE)?;
    result.set(file.export().ok_or(OUT_OF_MEMORY)?)
}

fn import(mut state: Locked, pool: OutRef<u64>, descriptor: i32, kind: u32, flags: u64) -> Answer {
    valid_if(kind == FILE_DESCRIPTOR && flags == 0)?;
    let file = SharedFile::of_descriptor(descriptor).ok_or(INVALID_VALUE)?;
    let device = file.description.location.1;
    check_device(device)?;
    // Importing it in the process that made it: the answer is assumed.
    valid_if(file.description.sharing == Sharing::Pool && !file.is_own())?;
    pool.set(state.pools.add(Pool {
        file: Some(file),
        ..Pool::new(device, false)
    })?)
}

fn export_pointer(mut state: Locked, result: OutRef<IpcHandle>, address: u64) -> Answer {
    let Some(Purpose::Pool(pool)) = state.purpose_at(address) else {
        return Err(INVALID_VALUE);
    };
    let pool = state.pools.find(pool)?;
    invalid_if(pool.is_imported())?;
    let id = pool.file.as_ref().ok_or(INVALID_VALUE)?.description.id;
    let size = state.allocations[&address].size;
    let handle = state.space.share(address, size).ok_or(OUT_OF_MEMORY)?;
    result.set(handle.of_pool(id))
}

fn import_pointer(
    mut state: Current,
    result: OutRef<u64>,
    pool: u64,
    data: In<IpcHandle>,
) -> Answer {
    let handle = data.get()?;
    let object = state.pools.find(pool)?;
    let id = object.file.as_ref().map(|file| file.description.id);
    valid_if(object.is_imported() && id == Some(handle.pool))?;
    let file = SharedFile::of_handle(&handle).ok_or(INVALID_VALUE)?;
    result.set(state.import(&file, &handle, Purpose::Pool(pool))?)
}
