//! Unified Addressing: what an address is.

use cutape_registry::enumeration;

use crate::call::answer::{Answer, INVALID_VALUE, NOT_SUPPORTED, invalid_if, valid_if};
use crate::call::argument::{In, Out, OutRef};
use crate::call::entry::entries;
use crate::object::memory::{Purpose, READ_WRITE, device_of};
use crate::state::{Locked, State, lock};

entries! {
    cuPointerGetAttribute: get_attribute;
    cuPointerGetAttributes: get_attributes;
    cuPointerSetAttribute: set_attribute;
}

// CUpointer_attribute.
const SYNC_MEMOPS: u32 = 6;
const IS_MANAGED: u32 = 8;
const MAPPED: u32 = 13;

/// What is known of an address.
#[derive(Default)]
struct PointerInfo {
    base: u64,
    size: u64,
    context: u64,
    /// A device's number, or `None` for host memory.
    device: Option<i32>,
    is_managed: bool,
    is_host_accessible: bool,
    pool: u64,
    id: u64,
    sync_memops: bool,
}

fn info(state: &State, address: u64) -> Option<PointerInfo> {
    if let Some((base, memory)) = state.allocation_at(address) {
        let is_managed = memory.purpose == Purpose::Managed;
        let is_host = memory.purpose == Purpose::Host;
        return Some(PointerInfo {
            base,
            size: memory.size,
            context: memory.context,
            device: (!is_host).then_some(memory.device),
            is_managed,
            is_host_accessible: is_host || is_managed,
            pool: match memory.purpose {
                Purpose::Pool(pool) => pool,
                _ => 0,
            },
            id: memory.id,
            sync_memops: memory.sync_memops,
        });
    }
    if let Some((base, memory)) = state.registration_at(address) {
        return Some(PointerInfo {
            base,
            size: memory.size,
            context: memory.context,
            is_host_accessible: true,
            id: base,
            ..PointerInfo::default()
        });
    }
    let (base, mapping) = state.mapping_at(address)?;
    let device = device_of(&mapping.properties);
    Some(PointerInfo {
        base,
        size: mapping.size,
        device,
        is_host_accessible: device.is_none(),
        id: base,
        ..PointerInfo::default()
    })
}

fn check_attribute(attribute: u32) -> Answer {
    let list = enumeration("CUpointer_attribute");
    let name = list.and_then(|list| list.name_of(i64::from(attribute)));
    valid_if(name.is_some())
}

/// The value of an attribute; all but its low [`width_of`] bytes are 0.
fn value_of(state: &State, attribute: u32, address: u64) -> Answer<u64> {
    check_attribute(attribute)?;
    let Some(info) = info(state, address) else {
        // Only these two have a value for memory that the driver does not know.
        let has_value = matches!(attribute, MAPPED | IS_MANAGED);
        return valid_if(has_value).map(|()| 0);
    };
    Ok(match attribute {
        1 => info.context,                                   // CONTEXT
        2 => u64::from(1 + u8::from(info.device.is_some())), // MEMORY_TYPE: host, device
        3 => address,                                        // DEVICE_POINTER
        4 if info.is_host_accessible => address,             // HOST_POINTER
        4 => return Err(INVALID_VALUE),
        SYNC_MEMOPS => u64::from(info.sync_memops),
        7 | 20 => info.id, // BUFFER_ID, MEMORY_BLOCK_ID
        IS_MANAGED => u64::from(info.is_managed),
        9 => info.device.unwrap_or(0) as u64, // DEVICE_ORDINAL
        10 => u64::from(info.device.is_some()), // IS_LEGACY_CUDA_IPC_CAPABLE
        11 => info.base,                      // RANGE_START_ADDR
        12 => info.size,                      // RANGE_SIZE
        MAPPED => 1,
        // ALLOWED_HANDLE_TYPES, IS_GPU_DIRECT_RDMA_CAPABLE, IS_HW_DECOMPRESS_CAPABLE
        14 | 15 | 21 => 0,
        16 => u64::from(READ_WRITE), // ACCESS_FLAGS
        17 => info.pool,             // MEMPOOL_HANDLE
        18 => info.size,             // MAPPING_SIZE
        19 => info.base,             // MAPPING_BASE_ADDR
        _ => return Err(NOT_SUPPORTED),
    })
}

/// Bytes of an attribute's type.
fn width_of(attribute: u32) -> usize {
    match attribute {
        MAPPED => 1,
        2 | SYNC_MEMOPS | IS_MANAGED | 9 | 10 | 15 | 16 | 21 => 4,
        _ => 8,
    }
}

fn write(target: Out<u8>, attribute: u32, value: u64) {
    let bytes = value.to_le_bytes();
    for (index, byte) in bytes.into_iter().take(width_of(attribute)).enumerate() {
        target.set_at(index, byte);
    }
}

fn get_attribute(state: Locked, data: OutRef<u8>, attribute: u32, address: u64) -> Answer {
    write(*data, attribute, value_of(&state, attribute, address)?);
    Ok(())
}

fn get_attributes(count: u32, attributes: In<u32>, data: In<u64>, address: u64) -> Answer {
    let state = lock();
    invalid_if(count == 0 || count > 4096)?;
    let attributes = attributes.list(count as usize)?;
    let targets = data.list(count as usize)?;
    for (attribute, target) in attributes.into_iter().zip(targets) {
        let target = Out::at(target);
        target.check()?;
        check_attribute(attribute)?;
        // Unlike the single query, an address without the attribute gives zeros and no error.
        write(
            target,
            attribute,
            value_of(&state, attribute, address).unwrap_or(0),
        );
    }
    Ok(())
}

fn set_attribute(mut state: Locked, value: In<i32>, attribute: u32, address: u64) -> Answer {
    let value = value.get()?;
    valid_if(attribute == SYNC_MEMOPS)?;
    let (base, _) = state.allocation_at(address).ok_or(INVALID_VALUE)?;
    if let Some(allocation) = state.allocations.get_mut(&base) {
        allocation.sync_memops = value != 0;
    }
    Ok(())
}
