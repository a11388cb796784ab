//! Unified Addressing: what an address is.

use cutape_registry::enumeration;

use crate::answer::{Answer, INVALID_VALUE, NOT_SUPPORTED};
use crate::argument::{In, Out};
use crate::dispatch::{Entry, bind};
use crate::memory::Purpose;
use crate::state::{State, lock};

pub(crate) const ENTRIES: &[Entry] = &[
    ("cuPointerGetAttribute", bind(get_attribute)),
    ("cuPointerGetAttributes", bind(get_attributes)),
    ("cuPointerSetAttribute", bind(set_attribute)),
];

/// `CU_POINTER_ATTRIBUTE_SYNC_MEMOPS`.
const SYNC_MEMOPS: u32 = 6;

/// What is known of an address.
#[derive(Clone, Copy, Debug)]
struct Facts {
    base: u64,
    size: u64,
    context: u64,
    /// A device's number, or `None` for host memory.
    device: Option<i32>,
    managed: bool,
    host_accessible: bool,
    pool: u64,
    id: u64,
    sync_memops: bool,
}

/// A value of an attribute and how many bytes of it are written.
type Value = (u64, usize);

impl State {
    fn facts(&self, address: u64) -> Option<Facts> {
        if let Some((base, one)) = self.allocation_at(address) {
            let host = matches!(one.purpose, Purpose::Host | Purpose::Managed);
            let device = if one.purpose == Purpose::Host {
                None
            } else {
                Some(one.device)
            };
            let pool = if let Purpose::Pool(pool) = one.purpose {
                pool
            } else {
                0
            };
            return Some(Facts {
                base,
                size: one.size,
                context: one.context,
                device,
                managed: one.purpose == Purpose::Managed,
                host_accessible: host,
                pool,
                id: one.id,
                sync_memops: one.sync_memops,
            });
        }
        let plain = Facts {
            base: 0,
            size: 0,
            context: 0,
            device: None,
            managed: false,
            host_accessible: true,
            pool: 0,
            id: 0,
            sync_memops: false,
        };
        if let Some((base, size, _, context)) = self.registration_at(address) {
            return Some(Facts {
                base,
                size,
                context,
                id: base,
                ..plain
            });
        }
        let (base, mapping) = self.mapping_at(address)?;
        let device = mapping.device();
        Some(Facts {
            base,
            size: mapping.size,
            device,
            host_accessible: device.is_none(),
            id: base,
            ..plain
        })
    }

    /// The value of an attribute, or why there is none.
    fn pointer_attribute(&self, attribute: u32, address: u64) -> Answer<Value> {
        let known =
            enumeration("CUpointer_attribute").and_then(|list| list.name_of(i64::from(attribute)));
        if known.is_none() {
            return Err(INVALID_VALUE);
        }
        let facts = self.facts(address);
        // Asked of memory that the driver does not know, these two have an answer.
        match (attribute, facts) {
            (13, None) => return Ok((0, 1)), // MAPPED
            (8, None) => return Ok((0, 4)),  // IS_MANAGED
            _ => {}
        }
        let facts = facts.ok_or(INVALID_VALUE)?;
        Ok(match attribute {
            1 => (facts.context, 8),                              // CONTEXT
            2 => (if facts.device.is_some() { 2 } else { 1 }, 4), // MEMORY_TYPE
            3 => (address, 8),                                    // DEVICE_POINTER
            4 if facts.host_accessible => (address, 8),           // HOST_POINTER
            4 => return Err(INVALID_VALUE),
            6 => (u64::from(facts.sync_memops), 4), // SYNC_MEMOPS
            7 | 20 => (facts.id, 8),                // BUFFER_ID, MEMORY_BLOCK_ID
            8 => (u64::from(facts.managed), 4),     // IS_MANAGED
            9 => (facts.device.unwrap_or(0) as u64, 4), // DEVICE_ORDINAL
            10 => (u64::from(facts.device.is_some()), 4), // IS_LEGACY_CUDA_IPC_CAPABLE
            11 => (facts.base, 8),                  // RANGE_START_ADDR
            12 => (facts.size, 8),                  // RANGE_SIZE
            13 => (1, 1),                           // MAPPED
            14 => (0, 8),                           // ALLOWED_HANDLE_TYPES
            15 | 21 => (0, 4), // IS_GPU_DIRECT_RDMA_CAPABLE, IS_HW_DECOMPRESS_CAPABLE
            16 => (3, 4),      // ACCESS_FLAGS: read and write
            17 => (facts.pool, 8), // MEMPOOL_HANDLE
            18 => (facts.size, 8), // MAPPING_SIZE
            19 => (facts.base, 8), // MAPPING_BASE_ADDR
            _ => return Err(NOT_SUPPORTED),
        })
    }
}

fn write(target: u64, (value, bytes): Value) {
    for (index, byte) in value.to_le_bytes().iter().take(bytes).enumerate() {
        // SAFETY: by the C prototype the caller gives room for the attribute's type, which has that many bytes.
        unsafe { (target as *mut u8).add(index).write(*byte) };
    }
}

fn get_attribute(data: Out<u8>, attribute: u32, address: u64) -> Answer {
    let state = lock();
    data.check()?;
    let value = state.pointer_attribute(attribute, address)?;
    write(data.address(), value);
    Ok(())
}

fn get_attributes(count: u32, attributes: In<u32>, data: In<u64>, address: u64) -> Answer {
    let state = lock();
    if count == 0 || count > 4096 {
        return Err(INVALID_VALUE);
    }
    let wanted = attributes.list(count as usize)?;
    let targets = data.list(count as usize)?;
    for (attribute, target) in wanted.into_iter().zip(targets) {
        if target == 0 {
            return Err(INVALID_VALUE);
        }
        // Unlike the single query, an address without the attribute gives zeros and no error; a bad attribute does not.
        match state.pointer_attribute(attribute, address) {
            Ok(value) => write(target, value),
            Err(_)
                if enumeration("CUpointer_attribute")
                    .and_then(|e| e.name_of(i64::from(attribute)))
                    .is_none() =>
            {
                return Err(INVALID_VALUE);
            }
            Err(_) => write(target, (0, width_of(attribute))),
        }
    }
    Ok(())
}

/// Bytes of an attribute's type.
fn width_of(attribute: u32) -> usize {
    match attribute {
        13 => 1,
        2 | 6 | 8 | 9 | 10 | 15 | 16 | 21 => 4,
        _ => 8,
    }
}

fn set_attribute(value: In<i32>, attribute: u32, address: u64) -> Answer {
    let mut state = lock();
    let value = value.get()?;
    if attribute != SYNC_MEMOPS {
        return Err(INVALID_VALUE);
    }
    let (base, _) = state.allocation_at(address).ok_or(INVALID_VALUE)?;
    if let Some(allocation) = state.allocations.get_mut(&base) {
        allocation.sync_memops = value != 0;
    }
    Ok(())
}
