//! Memory: what lies where, and how much of it a device has.

use crate::call::answer::{Answer, INVALID_VALUE, OUT_OF_MEMORY, reject_if, valid_if};
use crate::object::address_space::Class;
use crate::object::memory::{
    AddressRange, Allocation, Location, Mapping, Place, Purpose, Registration, Segment, device_of,
};
use crate::object::shared_file::{IpcHandle, SharedFile};
use crate::player;
use crate::settings;
use crate::state::store::State;

impl State {
    /// Makes an allocation in the current context.
    pub(crate) fn allocate(&mut self, size: u64, purpose: Purpose, flags: u32) -> Answer<u64> {
        let context = self.current()?;
        let device = self.contexts[&context].device;
        let is_pooled = matches!(purpose, Purpose::Pool(_));
        let owner = if is_pooled { 0 } else { context };
        self.allocate_for(owner, device, size, purpose, flags)
    }

    /// The same for a context that need not be current; 0 for memory that outlives contexts.
    pub(crate) fn allocate_for(
        &mut self,
        context: u64,
        device: i32,
        size: u64,
        purpose: Purpose,
        flags: u32,
    ) -> Answer<u64> {
        let class = match purpose {
            Purpose::Host => Class::Host,
            Purpose::Managed => Class::Managed,
            Purpose::Pool(_) => Class::Pool(device),
            Purpose::Device => Class::Device(device),
            Purpose::Global => Class::Variable(device),
            Purpose::Imported => Class::Imported,
        };
        let is_on_host = matches!(class, Class::Host | Class::Managed | Class::Imported);
        if !is_on_host && !self.space.fits_in_use(class, size) {
            self.check_free(device, size)?;
        }
        reject_if(is_on_host && size > settings::get().memory, OUT_OF_MEMORY)?;
        let recorded = player::address();
        let placed = recorded.and_then(|address| self.space.allocate_at(class, size, address));
        let placed = placed.or_else(|| self.space.allocate(class, size));
        let placed = placed.ok_or(OUT_OF_MEMORY)?;
        let allocation = Allocation {
            size,
            purpose,
            context,
            device,
            bytes: placed.bytes,
            flags,
            id: self.new_id(),
            sync_memops: false,
        };
        self.allocations.insert(placed.address, allocation);
        Ok(placed.address)
    }

    /// Makes memory of a file that another process described, in the current context.
    pub(crate) fn import(
        &mut self,
        file: &SharedFile,
        handle: &IpcHandle,
        purpose: Purpose,
    ) -> Answer<u64> {
        let context = self.current()?;
        let end = handle
            .offset
            .checked_add(handle.size)
            .ok_or(INVALID_VALUE)?;
        valid_if(end <= file.size && handle.size > 0)?;
        let pages = file.pages().ok_or(OUT_OF_MEMORY)?;
        let placed = self.space.import(file.size, pages).ok_or(OUT_OF_MEMORY)?;
        let is_pooled = matches!(purpose, Purpose::Pool(_));
        let allocation = Allocation {
            size: handle.size,
            purpose,
            context: if is_pooled { 0 } else { context },
            device: self.contexts[&context].device,
            bytes: placed.bytes + handle.offset,
            flags: 0,
            id: self.new_id(),
            sync_memops: false,
        };
        let address = placed.address + handle.offset;
        self.allocations.insert(address, allocation);
        Ok(address)
    }

    /// `OUT_OF_MEMORY` unless that many bytes of a device are free.
    pub(crate) fn check_free(&self, device: i32, size: u64) -> Answer {
        let total = settings::get().memory;
        reject_if(
            size > total || self.used(device) + size > total,
            OUT_OF_MEMORY,
        )
    }

    /// Bytes of a device that are in use.
    pub(crate) fn used(&self, device: i32) -> u64 {
        let handles = self.memory_handles.values();
        let handles = handles.filter(|handle| device_of(&handle.properties) == Some(device));
        let handles = handles.filter(|handle| handle.memory.file.is_own());
        let handles: u64 = handles.map(|handle| handle.memory.size()).sum();
        let arrays = self.arrays.values().filter(|array| array.device == device);
        let arrays: u64 = arrays.map(|array| array.size).sum();
        self.space.used(device) + handles + arrays
    }

    /// Ends an allocation, whatever it is.
    pub(crate) fn remove_allocation(&mut self, address: u64) {
        if self.deactivate(address) {
            return;
        }
        if let Some(allocation) = self.allocations.remove(&address) {
            self.advice.remove(&address);
            self.retire(move |state| state.space.release(address, allocation.size));
        }
    }

    /// Ends an array.
    pub(crate) fn remove_array(&mut self, handle: u64) {
        if let Some(array) = self.arrays.remove(handle) {
            self.drop_later(array.pages);
        }
    }

    /// The purpose of the allocation that begins at an address.
    pub(crate) fn purpose_at(&self, address: u64) -> Option<Purpose> {
        Some(self.allocations.get(&address)?.purpose)
    }

    /// The allocation that an address lies in.
    pub(crate) fn allocation_at(&self, address: u64) -> Option<(u64, &Allocation)> {
        let (&base, allocation) = self.allocations.range(..=address).next_back()?;
        (address - base < allocation.size).then_some((base, allocation))
    }

    /// The registered host range that an address lies in.
    pub(crate) fn registration_at(&self, address: u64) -> Option<(u64, Registration)> {
        let (&base, registration) = self.registrations.range(..=address).next_back()?;
        (address - base < registration.size).then_some((base, *registration))
    }

    /// What kind of memory an address lies in.
    pub(crate) fn place_at(&self, address: u64) -> Place {
        match self.allocation_at(address) {
            Some((_, allocation)) => match allocation.purpose {
                Purpose::Host => Place::Pinned,
                Purpose::Managed => Place::Managed,
                Purpose::Device | Purpose::Pool(_) | Purpose::Global | Purpose::Imported => {
                    Place::Device
                }
            },
            None if self.registration_at(address).is_some() => Place::Pinned,
            None if self.mapping_at(address).is_some() => Place::Device,
            None => Place::Pageable,
        }
    }

    /// The mapping that an address lies in.
    pub(crate) fn mapping_at(&self, address: u64) -> Option<(u64, &Mapping)> {
        let (&base, mapping) = self.mappings.range(..=address).next_back()?;
        (address - base < mapping.size).then_some((base, mapping))
    }

    /// What the range is, as far as the driver knows.
    fn range(&self, address: u64, size: u64) -> AddressRange {
        let within = |offset: u64, length: u64, bytes: u64| match size <= length - offset {
            true => AddressRange::Known(vec![Segment {
                bytes,
                size,
                is_shared: bytes == address,
            }]),
            false => AddressRange::Invalid,
        };
        if let Some((base, allocation)) = self.allocation_at(address) {
            let offset = address - base;
            return within(offset, allocation.size, allocation.bytes + offset);
        }
        if let Some((base, allocation)) = self.in_launch(address) {
            let offset = address - base;
            return within(offset, allocation.size, allocation.bytes + offset);
        }
        if let Some((base, registration)) = self.registration_at(address) {
            return within(address - base, registration.size, address);
        }
        match self.mapped(address, size) {
            Some(segments) => AddressRange::Known(segments),
            None if self.space.is_ours(address) => AddressRange::Invalid,
            None => AddressRange::Unknown,
        }
    }

    /// The bytes of a device range; `INVALID_VALUE` unless it lies in living memory that the driver
    /// knows.
    pub(crate) fn device_range(&self, address: u64, size: u64) -> Answer<Vec<Segment>> {
        match self.range(address, size) {
            AddressRange::Known(segments) => Ok(segments),
            AddressRange::Unknown | AddressRange::Invalid => Err(INVALID_VALUE),
        }
    }

    /// The bytes of a range that may also be ordinary host memory.
    pub(crate) fn any_range(&self, address: u64, size: u64) -> Answer<Vec<Segment>> {
        match self.range(address, size) {
            AddressRange::Known(segments) => Ok(segments),
            AddressRange::Unknown if address != 0 => Ok(vec![Segment {
                bytes: address,
                size,
                is_shared: true,
            }]),
            AddressRange::Unknown | AddressRange::Invalid => Err(INVALID_VALUE),
        }
    }

    /// The segments of a range that is mapped without holes and accessible to a device or the host;
    /// `None` otherwise.
    fn mapped(&self, address: u64, size: u64) -> Option<Vec<Segment>> {
        let mut segments = Vec::new();
        let (mut at, mut left) = (address, size);
        loop {
            let (base, mapping) = self.mapping_at(at)?;
            if mapping.devices.iter().all(|access| access.1 == 0) && mapping.host == 0 {
                return None;
            }
            let offset = at - base;
            let length = left.min(mapping.size - offset);
            let bytes = mapping.memory.base() + offset;
            segments.push(Segment {
                bytes,
                size: length,
                is_shared: bytes == at,
            });
            at += length;
            left -= length;
            if left == 0 {
                return Some(segments);
            }
        }
    }

    /// The managed allocation that a range lies in.
    pub(crate) fn managed(&self, address: u64, size: u64) -> Answer<u64> {
        let (base, memory) = self.allocation_at(address).ok_or(INVALID_VALUE)?;
        let fits = size > 0 && size <= memory.size - (address - base);
        valid_if(memory.purpose == Purpose::Managed && fits)?;
        Ok(base)
    }

    /// Notes where a managed allocation was prefetched to last.
    pub(crate) fn note_prefetch(&mut self, base: u64, location: Location) {
        self.advice.entry(base).or_default().prefetched = location.device();
    }
}
