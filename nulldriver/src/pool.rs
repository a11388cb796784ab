//! Stream Ordered Memory Allocator: the default pool and pools of the program's own.
//!
//! Everything enqueued is done at once, so an allocation is usable when the call returns and a freed one is gone.

use std::collections::HashMap;

use cutape_driver::types::{
    CUDA_MEM_ALLOC_NODE_PARAMS, CUmemAccessDesc, CUmemLocation, CUmemPoolProps,
};
use cutape_registry::Kind;

use crate::answer::{Answer, INVALID_VALUE, NOT_SUPPORTED};
use crate::argument::{In, Out, Stream};
use crate::capture::Key;
use crate::dispatch::{Entry, bind};
use crate::graph_work::{allocation, freeing};
use crate::memory::Purpose;
use crate::state::{State, check_device, lock};

pub(crate) const ENTRIES: &[Entry] = &[
    ("cuDeviceGetDefaultMemPool", bind(get_default)),
    ("cuDeviceGetMemPool", bind(get_current)),
    (
        "cuMemGetDefaultMemPool",
        bind(|pool: Out<u64>, place: In<CUmemLocation>, kind: u32| {
            get_default(pool, device_of(place, kind)?)
        }),
    ),
    (
        "cuMemGetMemPool",
        bind(|pool: Out<u64>, place: In<CUmemLocation>, kind: u32| {
            get_current(pool, device_of(place, kind)?)
        }),
    ),
    (
        "cuMemSetMemPool",
        bind(|place: In<CUmemLocation>, kind: u32, pool: u64| {
            set_current(device_of(place, kind)?, pool)
        }),
    ),
    ("cuDeviceSetMemPool", bind(set_current)),
    ("cuMemAllocAsync", bind(alloc)),
    ("cuMemAllocFromPoolAsync", bind(alloc_from)),
    ("cuMemFreeAsync", bind(free)),
    ("cuMemPoolCreate", bind(create)),
    ("cuMemPoolDestroy", bind(destroy)),
    ("cuMemPoolTrimTo", bind(trim)),
    ("cuMemPoolGetAttribute", bind(get_attribute)),
    ("cuMemPoolSetAttribute", bind(set_attribute)),
    ("cuMemPoolSetAccess", bind(set_access)),
    ("cuMemPoolGetAccess", bind(get_access)),
];

/// A memory pool.
#[derive(Debug)]
pub(crate) struct Pool {
    device: i32,
    is_default: bool,
    /// Attributes 1 to 3: what reuse is allowed.
    reuse: [u32; 3],
    release_threshold: u64,
    /// `USED_MEM_HIGH`, in bytes.
    high: u64,
    /// `CU_MEM_ACCESS_FLAGS` of other devices.
    peers: HashMap<i32, u32>,
}

impl Pool {
    fn new(device: i32, is_default: bool) -> Pool {
        Pool {
            device,
            is_default,
            reuse: [1; 3],
            release_threshold: 0,
            high: 0,
            peers: HashMap::new(),
        }
    }
}

impl State {
    /// The device's default pool, made when first asked for.
    fn default_pool(&mut self, device: i32) -> Answer<u64> {
        check_device(device)?;
        let found = self
            .pools
            .iter()
            .find(|(_, pool)| pool.is_default && pool.device == device);
        if let Some((&pool, _)) = found {
            return Ok(pool);
        }
        let pool = self.make(Kind::MemoryPool)?;
        self.pools.insert(pool, Pool::new(device, true));
        Ok(pool)
    }

    fn current_pool(&mut self, device: i32) -> Answer<u64> {
        check_device(device)?;
        match self.primaries[device as usize].pool {
            Some(pool) if self.pools.contains_key(&pool) => Ok(pool),
            _ => self.default_pool(device),
        }
    }

    fn used_of(&self, pool: u64) -> u64 {
        self.allocations
            .values()
            .filter(|one| one.purpose == Purpose::Pool(pool))
            .map(|one| one.size)
            .sum()
    }

    fn allocate_from(&mut self, pool: u64, size: u64) -> Answer<u64> {
        if size == 0 {
            return Err(INVALID_VALUE);
        }
        let address = self.allocate(size, Purpose::Pool(pool), 0)?;
        let used = self.used_of(pool);
        if let Some(pool) = self.pools.get_mut(&pool) {
            pool.high = pool.high.max(used);
        }
        Ok(address)
    }
}

/// The device of a location, for pinned memory; pools of the host or of managed memory do not exist here.
fn device_of(place: In<CUmemLocation>, kind: u32) -> Answer<i32> {
    let place = place.get()?;
    match (place.type_.0, kind) {
        (1, 1) => Ok(place.id),
        (1..=4, 1..=3) => Err(NOT_SUPPORTED),
        _ => Err(INVALID_VALUE),
    }
}

fn get_default(pool: Out<u64>, device: i32) -> Answer {
    pool.check()?;
    let handle = lock().default_pool(device)?;
    pool.set(handle)
}

fn get_current(pool: Out<u64>, device: i32) -> Answer {
    pool.check()?;
    let handle = lock().current_pool(device)?;
    pool.set(handle)
}

fn set_current(device: i32, pool: u64) -> Answer {
    let mut state = lock();
    check_device(device)?;
    if state
        .pools
        .get(&pool)
        .is_none_or(|pool| pool.device != device)
    {
        return Err(INVALID_VALUE);
    }
    state.primaries[device as usize].pool = Some(pool);
    Ok(())
}

fn alloc(address: Out<u64>, size: u64, stream: Stream) -> Answer {
    let mut state = lock();
    let device = state.current_device()?;
    state.stream_is_there(stream)?;
    address.check()?;
    if let Some(site) = state.capture_of(stream)? {
        return capture_allocation(&mut state, site, address, size);
    }
    let pool = state.current_pool(device)?;
    address.set(state.allocate_from(pool, size)?)
}

fn alloc_from(address: Out<u64>, size: u64, pool: u64, stream: Stream) -> Answer {
    let mut state = lock();
    state.current()?;
    state.stream_is_there(stream)?;
    address.check()?;
    if !state.pools.contains_key(&pool) {
        return Err(INVALID_VALUE);
    }
    if let Some(site) = state.capture_of(stream)? {
        return capture_allocation(&mut state, site, address, size);
    }
    address.set(state.allocate_from(pool, size)?)
}

/// An allocation on a stream that captures becomes a node.
fn capture_allocation(state: &mut State, site: Key, address: Out<u64>, size: u64) -> Answer {
    // SAFETY: the struct consists of numbers and pointers, for which all-zero bytes are valid.
    let mut params: CUDA_MEM_ALLOC_NODE_PARAMS = unsafe { std::mem::zeroed() };
    // Pinned memory of the current device.
    params.poolProps.allocType.0 = 1;
    params.poolProps.location.type_.0 = 1;
    params.poolProps.location.id = state.current_device()?;
    params.bytesize = size as usize;
    let work = allocation(state, &mut params)?;
    state.add_captured(site, work)?;
    address.set(params.dptr)
}

fn free(address: u64, stream: Stream) -> Answer {
    let mut state = lock();
    state.current()?;
    state.stream_is_there(stream)?;
    if let Some(site) = state.capture_of(stream)? {
        let work = freeing(&state, address)?;
        return state.add_captured(site, work).map(|_| ());
    }
    match state.allocations.get(&address).map(|one| one.purpose) {
        // Memory of cuMemAlloc may be freed in stream order, too.
        Some(Purpose::Pool(_) | Purpose::Device) => {
            state.remove_allocation(address);
            Ok(())
        }
        _ => Err(INVALID_VALUE),
    }
}

fn create(pool: Out<u64>, properties: In<CUmemPoolProps>) -> Answer {
    let mut state = lock();
    pool.check()?;
    let properties = properties.get()?;
    // Pinned memory of a device.
    if properties.allocType.0 != 1
        || properties.location.type_.0 != 1
        || properties.handleTypes.0 > 1
    {
        return Err(INVALID_VALUE);
    }
    check_device(properties.location.id)?;
    let handle = state.make(Kind::MemoryPool)?;
    state
        .pools
        .insert(handle, Pool::new(properties.location.id, false));
    pool.set(handle)
}

fn destroy(pool: u64) -> Answer {
    let mut state = lock();
    // The default pool cannot be destroyed (measured INVALID_VALUE).
    if state.pools.get(&pool).is_none_or(|pool| pool.is_default) {
        return Err(INVALID_VALUE);
    }
    state.pools.remove(&pool);
    state.release(Kind::MemoryPool, pool);
    Ok(())
}

fn trim(pool: u64, _keep: u64) -> Answer {
    // Blocks are given back as soon as they are unused, so there is never anything to trim.
    if lock().pools.contains_key(&pool) {
        Ok(())
    } else {
        Err(INVALID_VALUE)
    }
}

fn get_attribute(pool: u64, attribute: u32, value: Out<u32>) -> Answer {
    let state = lock();
    value.check()?;
    let used = state.used_of(pool);
    let object = state.pools.get(&pool).ok_or(INVALID_VALUE)?;
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

fn set_attribute(pool: u64, attribute: u32, value: In<u32>) -> Answer {
    let mut state = lock();
    let low = value.get()?;
    let used = state.used_of(pool);
    let object = state.pools.get_mut(&pool).ok_or(INVALID_VALUE)?;
    match attribute {
        1..=3 => object.reuse[attribute as usize - 1] = u32::from(low != 0),
        4 => object.release_threshold = u64::from(low) | u64::from(value.get_at(1)?) << 32,
        // A high-water mark can only be reset.
        6 | 8 if low == 0 && value.get_at(1)? == 0 => object.high = used,
        _ => return Err(INVALID_VALUE),
    }
    Ok(())
}

fn set_access(pool: u64, list: In<CUmemAccessDesc>, count: usize) -> Answer {
    let mut state = lock();
    let device = state.pools.get(&pool).ok_or(INVALID_VALUE)?.device;
    if count > 4096 {
        return Err(INVALID_VALUE);
    }
    let mut accesses = Vec::new();
    for access in list.list(count)? {
        if access.location.type_.0 != 1 || !matches!(access.flags.0, 0 | 3) {
            return Err(INVALID_VALUE);
        }
        check_device(access.location.id)?;
        // The pool's own device keeps its access.
        if access.location.id == device && access.flags.0 != 3 {
            return Err(INVALID_VALUE);
        }
        accesses.push((access.location.id, access.flags.0));
    }
    if let Some(pool) = state.pools.get_mut(&pool) {
        pool.peers.extend(accesses);
    }
    Ok(())
}

fn get_access(flags: Out<u32>, pool: u64, location: In<CUmemLocation>) -> Answer {
    let state = lock();
    flags.check()?;
    let location = location.get()?;
    let pool = state.pools.get(&pool).ok_or(INVALID_VALUE)?;
    if location.type_.0 != 1 {
        return Err(INVALID_VALUE);
    }
    check_device(location.id)?;
    flags.set(match location.id == pool.device {
        true => 3,
        false => pool.peers.get(&location.id).copied().unwrap_or(0),
    })
}
