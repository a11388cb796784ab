//! Memory Management: linear device memory, pinned and registered host memory.

use crate::address::Class;
use crate::answer::{
    Answer, HOST_MEMORY_ALREADY_REGISTERED, HOST_MEMORY_NOT_REGISTERED, INVALID_VALUE,
    OUT_OF_MEMORY,
};
use crate::argument::Out;
use crate::dispatch::{Entry, bind};
use crate::settings;
use crate::state::{State, lock};

pub(crate) const ENTRIES: &[Entry] = &[
    ("cuMemGetInfo", bind(get_info)),
    ("cuMemAlloc", bind(alloc)),
    ("cuMemAllocPitch", bind(alloc_pitch)),
    ("cuMemFree", bind(free)),
    ("cuMemGetAddressRange", bind(get_address_range)),
    ("cuMemAllocHost", bind(alloc_host)),
    ("cuMemFreeHost", bind(free_host)),
    ("cuMemHostAlloc", bind(host_alloc)),
    ("cuMemHostGetDevicePointer", bind(host_get_device_pointer)),
    ("cuMemHostGetFlags", bind(host_get_flags)),
    ("cuMemHostRegister", bind(host_register)),
    ("cuMemHostUnregister", bind(host_unregister)),
    ("cuMemAllocManaged", bind(alloc_managed)),
];

/// What an allocation is, which decides how it may be used and freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// `cuMemAlloc`, `cuMemAllocPitch`.
    Device,
    /// `cuMemAllocHost`, `cuMemHostAlloc`.
    Host,
    /// `cuMemAllocManaged`.
    Managed,
    /// `cuMemAllocAsync`; the pool.
    Pool(u64),
    /// A variable of a module.
    Global,
}

/// A piece of linear memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allocation {
    /// Bytes asked for.
    pub(crate) size: u64,
    pub(crate) purpose: Purpose,
    /// 0 for memory that outlives contexts.
    pub(crate) context: u64,
    pub(crate) device: i32,
    /// Where the bytes are.
    pub(crate) bytes: u64,
    pub(crate) flags: u32,
    /// `CU_POINTER_ATTRIBUTE_BUFFER_ID`.
    pub(crate) id: u64,
    pub(crate) sync_memops: bool,
}

/// Bytes of ours that stand for a range of the program's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) bytes: u64,
    pub(crate) size: u64,
}

/// What a range of addresses is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Memory that the driver knows, in order of address.
    Known(Vec<Segment>),
    /// The driver knows nothing about it: ordinary memory of the program, or a wild pointer.
    Unknown,
    /// In the driver's address space, but not within one living allocation.
    Invalid,
}

/// `CU_MEMHOSTALLOC_PORTABLE | DEVICEMAP | WRITECOMBINED`.
const HOST_ALLOC_FLAGS: u32 = 7;
/// `CU_MEMHOSTREGISTER_PORTABLE | DEVICEMAP | IOMEMORY | READ_ONLY`.
const HOST_REGISTER_FLAGS: u32 = 15;
/// `CU_MEMHOSTALLOC_DEVICEMAP`: always set on 64-bit systems with unified addressing.
const DEVICEMAP: u32 = 2;

impl State {
    /// Makes an allocation in the current context.
    pub(crate) fn allocate(&mut self, size: u64, purpose: Purpose, flags: u32) -> Answer<u64> {
        let context = self.current()?;
        let device = self.contexts[&context].device;
        let class = match purpose {
            Purpose::Host => Class::Host,
            Purpose::Managed => Class::Managed,
            Purpose::Pool(_) => Class::Pool(device),
            Purpose::Device => Class::Device(device),
            Purpose::Global => Class::Variable(device),
        };
        let on_host = matches!(class, Class::Host | Class::Managed);
        if !on_host && !self.space.fits_in_use(class, size) {
            self.check_room(device, size)?;
        }
        if on_host && size > settings::get().memory {
            return Err(OUT_OF_MEMORY);
        }
        let placed = self.space.allocate(class, size).ok_or(OUT_OF_MEMORY)?;
        let id = self.new_id();
        let owner = if matches!(purpose, Purpose::Pool(_)) {
            0
        } else {
            context
        };
        let bytes = placed.bytes;
        self.allocations.insert(
            placed.address,
            Allocation {
                size,
                purpose,
                context: owner,
                device,
                bytes,
                flags,
                id,
                sync_memops: false,
            },
        );
        Ok(placed.address)
    }

    /// `OUT_OF_MEMORY` where a device has no room for so many bytes more.
    pub(crate) fn check_room(&self, device: i32, size: u64) -> Answer {
        let total = settings::get().memory;
        if size > total || self.used(device) + size > total {
            Err(OUT_OF_MEMORY)
        } else {
            Ok(())
        }
    }

    /// Bytes of a device that are in use.
    pub(crate) fn used(&self, device: i32) -> u64 {
        let created: u64 = self
            .physical
            .values()
            .filter(|handle| handle.is_on(device))
            .map(|h| h.memory.size)
            .sum();
        let arrays: u64 = self
            .arrays
            .values()
            .map(|array| array.size_on(device))
            .sum();
        self.space.used(device) + created + arrays
    }

    /// Ends an allocation, whatever it is.
    pub(crate) fn remove_allocation(&mut self, address: u64) {
        if self.park(address) {
            return;
        }
        if let Some(allocation) = self.allocations.remove(&address) {
            self.advice.remove(&address);
            self.space.release(address, allocation.size);
        }
    }

    /// The allocation that an address lies in (its last byte's successor excluded).
    pub(crate) fn allocation_at(&self, address: u64) -> Option<(u64, &Allocation)> {
        let (&base, allocation) = self.allocations.range(..=address).next_back()?;
        (address - base < allocation.size).then_some((base, allocation))
    }

    /// The registered host range that an address lies in: (base, bytes, flags, context).
    pub(crate) fn registration_at(&self, address: u64) -> Option<(u64, u64, u32, u64)> {
        let (&base, &(size, flags, context)) = self.registrations.range(..=address).next_back()?;
        (address - base < size).then_some((base, size, flags, context))
    }

    /// What the range is, as far as the driver knows.
    pub(crate) fn place(&self, address: u64, size: u64) -> Place {
        if let Some((base, allocation)) = self.allocation_at(address) {
            let offset = address - base;
            if size > allocation.size - offset {
                return Place::Invalid;
            }
            return Place::Known(vec![Segment {
                bytes: allocation.bytes + offset,
                size,
            }]);
        }
        if let Some((base, length, ..)) = self.registration_at(address) {
            let fits = size <= length - (address - base);
            return if fits {
                Place::Known(vec![Segment {
                    bytes: address,
                    size,
                }])
            } else {
                Place::Invalid
            };
        }
        if let Some(segments) = self.mapped(address, size) {
            return Place::Known(segments);
        }
        if self.space.is_ours(address) {
            Place::Invalid
        } else {
            Place::Unknown
        }
    }

    /// The bytes of a device range; `INVALID_VALUE` unless it lies in living memory that the driver knows.
    pub(crate) fn device_range(&self, address: u64, size: u64) -> Answer<Vec<Segment>> {
        match self.place(address, size) {
            Place::Known(segments) => Ok(segments),
            Place::Unknown | Place::Invalid => Err(INVALID_VALUE),
        }
    }

    /// The bytes of a range that may also be ordinary host memory.
    pub(crate) fn any_range(&self, address: u64, size: u64) -> Answer<Vec<Segment>> {
        match self.place(address, size) {
            Place::Known(segments) => Ok(segments),
            Place::Unknown if address != 0 => Ok(vec![Segment {
                bytes: address,
                size,
            }]),
            Place::Unknown | Place::Invalid => Err(INVALID_VALUE),
        }
    }
}

fn get_info(free: Out<usize>, total: Out<usize>) -> Answer {
    let state = lock();
    let device = state.current_device()?;
    free.check()?;
    total.check()?;
    let memory = settings::get().memory;
    total.set_if(memory as usize);
    free.set(memory.saturating_sub(state.used(device)) as usize)
}

fn alloc(address: Out<u64>, size: u64) -> Answer {
    let mut state = lock();
    state.current()?;
    address.check()?;
    if size == 0 {
        return Err(INVALID_VALUE);
    }
    address.set(state.allocate(size, Purpose::Device, 0)?)
}

fn alloc_pitch(
    address: Out<u64>,
    pitch: Out<usize>,
    width: u64,
    height: u64,
    element: u32,
) -> Answer {
    let mut state = lock();
    state.current()?;
    address.check()?;
    pitch.check()?;
    if width == 0 || height == 0 || !matches!(element, 4 | 8 | 16) {
        return Err(INVALID_VALUE);
    }
    let row = width.checked_next_multiple_of(512).ok_or(OUT_OF_MEMORY)?;
    let size = row.checked_mul(height).ok_or(OUT_OF_MEMORY)?;
    let base = state.allocate(size, Purpose::Device, 0)?;
    pitch.set_if(row as usize);
    address.set(base)
}

fn free(address: u64) -> Answer {
    let mut state = lock();
    if address == 0 {
        // Nothing to free is no error (measured; that it needs a context is an assumption).
        return state.current().map(|_| ());
    }
    // The address is looked at before the context: memory of a destroyed context is INVALID_VALUE (measured).
    match state
        .allocations
        .get(&address)
        .map(|allocation| allocation.purpose)
    {
        Some(Purpose::Device | Purpose::Managed | Purpose::Pool(_)) => {
            state.current()?;
            state.remove_allocation(address);
            Ok(())
        }
        _ => Err(INVALID_VALUE),
    }
}

fn get_address_range(base: Out<u64>, size: Out<usize>, address: u64) -> Answer {
    let state = lock();
    state.current()?;
    let range = match state.allocation_at(address) {
        Some((base, allocation)) => Some((base, allocation.size)),
        None => state
            .mapping_at(address)
            .map(|(base, mapping)| (base, mapping.size)),
    };
    // Not found is the documented answer for an address that no allocation contains.
    let (start, length) = range.ok_or(crate::answer::NOT_FOUND)?;
    base.set_if(start);
    size.set_if(length as usize);
    Ok(())
}

fn alloc_host(address: Out<u64>, size: u64) -> Answer {
    host_alloc(address, size, 0)
}

fn host_alloc(address: Out<u64>, size: u64, flags: u32) -> Answer {
    let mut state = lock();
    state.current()?;
    address.check()?;
    if size == 0 || flags & !HOST_ALLOC_FLAGS != 0 {
        return Err(INVALID_VALUE);
    }
    address.set(state.allocate(size, Purpose::Host, flags | DEVICEMAP)?)
}

fn free_host(address: u64) -> Answer {
    let mut state = lock();
    state.current()?;
    match state
        .allocations
        .get(&address)
        .map(|allocation| allocation.purpose)
    {
        Some(Purpose::Host) => {
            state.remove_allocation(address);
            Ok(())
        }
        _ => Err(INVALID_VALUE),
    }
}

fn host_get_device_pointer(device: Out<u64>, host: u64, flags: u32) -> Answer {
    let state = lock();
    state.current()?;
    device.check()?;
    if flags != 0 {
        return Err(INVALID_VALUE);
    }
    let pinned = state
        .allocation_at(host)
        .is_some_and(|(_, one)| one.purpose == Purpose::Host);
    if !pinned && state.registration_at(host).is_none() {
        return Err(INVALID_VALUE);
    }
    device.set(host)
}

fn host_get_flags(flags: Out<u32>, host: u64) -> Answer {
    let state = lock();
    state.current()?;
    flags.check()?;
    if let Some((_, allocation)) = state
        .allocation_at(host)
        .filter(|(_, one)| one.purpose == Purpose::Host)
    {
        return flags.set(allocation.flags);
    }
    // The flags of registered memory are those of an allocation: portable and mapped have the same bits.
    let (_, _, registered, _) = state.registration_at(host).ok_or(INVALID_VALUE)?;
    flags.set(registered & 3 | DEVICEMAP)
}

fn host_register(host: u64, size: u64, flags: u32) -> Answer {
    let mut state = lock();
    let context = state.current()?;
    let Some(end) = host.checked_add(size) else {
        return Err(INVALID_VALUE);
    };
    if host == 0 || size == 0 || flags & !HOST_REGISTER_FLAGS != 0 {
        return Err(INVALID_VALUE);
    }
    let overlaps = |base: u64, length: u64| base < end && host < base + length;
    let registered = state
        .registrations
        .range(..end)
        .next_back()
        .is_some_and(|(&b, r)| overlaps(b, r.0));
    if registered {
        return Err(HOST_MEMORY_ALREADY_REGISTERED);
    }
    let allocated = state
        .allocations
        .range(..end)
        .next_back()
        .is_some_and(|(&b, a)| overlaps(b, a.size));
    if allocated {
        return Err(INVALID_VALUE);
    }
    state.registrations.insert(host, (size, flags, context));
    Ok(())
}

fn host_unregister(host: u64) -> Answer {
    let mut state = lock();
    state.current()?;
    if host == 0 {
        return Err(INVALID_VALUE);
    }
    state
        .registrations
        .remove(&host)
        .map(|_| ())
        .ok_or(HOST_MEMORY_NOT_REGISTERED)
}

fn alloc_managed(address: Out<u64>, size: u64, flags: u32) -> Answer {
    let mut state = lock();
    state.current()?;
    address.check()?;
    // CU_MEM_ATTACH_GLOBAL or CU_MEM_ATTACH_HOST, one of them.
    if size == 0 || !matches!(flags, 1 | 2) {
        return Err(INVALID_VALUE);
    }
    address.set(state.allocate(size, Purpose::Managed, flags)?)
}
