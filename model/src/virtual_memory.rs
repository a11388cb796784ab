//! Virtual memory as calls show it: reserved addresses, mappings, and who has access to them.

use std::ops::Range;

use cutape_format::Call;
use cutape_format::layout::field;
use cutape_registry::layout::{offset_of, size_of};
use cutape_registry::{Family, Function, VirtualMemoryOp};

use crate::memory::IntervalMap;
use crate::objects::ObjectId;
use crate::site::Site;

/// CUmemLocationType: memory of a device.
const DEVICE: u32 = 1;
/// CU_MEM_ACCESS_FLAGS_PROT_READWRITE.
const READ_WRITE: u32 = 3;

/// The kind and the number of a location.
type Location = (u32, i32);

/// The access that a location has to a mapping.
#[derive(Clone, Copy, Debug)]
struct Access {
    location: Location,
    /// CUmemAccess_flags.
    flags: u32,
    /// It was given to all of the mapping.
    is_whole: bool,
}

/// Physical memory mapped at addresses.
#[derive(Clone, Debug)]
pub struct Mapping {
    /// The call that mapped it.
    pub site: Site,
    /// The physical memory.
    pub allocation: Option<ObjectId>,
    /// Access was given by a call whose description is not in the trace.
    unknown: bool,
    access: Vec<Access>,
}

impl Mapping {
    /// The access that a device has to some of it; `None` if that is not known.
    pub fn access_of(&self, device: i32) -> Option<u32> {
        let mut access = self.access.iter();
        let found = access.find(|access| access.location == (DEVICE, device));
        let flags = found.map_or(0, |access| access.flags);
        (!self.unknown).then_some(flags)
    }

    /// The devices that may read and write all of it, as far as descriptions are in the trace.
    pub fn writers(&self) -> impl Iterator<Item = i32> {
        let writes = |access: &&Access| {
            access.is_whole && access.flags == READ_WRITE && access.location.0 == DEVICE
        };
        let writers = self.access.iter().filter(writes);
        writers.map(|access| access.location.1)
    }

    /// True if no call has given anything access.
    pub fn has_no_access(&self) -> bool {
        !self.unknown && self.access.iter().all(|access| access.flags == 0)
    }
}

/// Reserved addresses and mappings.
#[derive(Clone, Debug, Default)]
pub struct VirtualMemory {
    /// Reserved addresses, with the call that reserved them.
    pub reservations: IntervalMap<Site>,
    /// What is mapped there.
    pub mappings: IntervalMap<Mapping>,
    /// How many mappings nothing has access to.
    pub without_access: usize,
    /// How often this has changed.
    pub changes: u64,
}

impl VirtualMemory {
    /// Applies a successful call, which maps that physical memory if it maps any. Calls of other
    /// families change nothing.
    pub fn apply(&mut self, function: &Function, call: &Call<'_>, allocation: Option<ObjectId>) {
        let Family::VirtualMemory(operation) = function.family else {
            return;
        };
        self.changes += 1;
        let argument = |position: u8| call.argument(usize::from(position));
        let named = |name: &str| function.position(name).map(|at| call.argument(at));
        let site = Site::of(function.name, call);
        match operation {
            VirtualMemoryOp::FreeReservation => {
                if let (Some(start), Some(size)) = (named("ptr"), named("size")) {
                    self.unmap(start, size);
                    self.reservations.remove(start);
                }
            }
            VirtualMemoryOp::Map { address, size, .. } => {
                let (start, size) = (argument(address), argument(size));
                self.unmap(start, size);
                let mapping = Mapping {
                    site,
                    allocation,
                    unknown: false,
                    access: Vec::new(),
                };
                self.mappings.insert(start, size, mapping);
                self.without_access += 1;
            }
            VirtualMemoryOp::Unmap { address, size } => {
                self.unmap(argument(address), argument(size));
            }
            VirtualMemoryOp::SetAccess { address, size } => {
                let access = described(function, call);
                self.set_access(argument(address), argument(size), access);
            }
            // Addresses are reserved when their object exists.
            VirtualMemoryOp::Reserve
            | VirtualMemoryOp::Create { .. }
            | VirtualMemoryOp::Release => {}
        }
    }

    /// A call has reserved addresses.
    pub(crate) fn reserve(&mut self, start: u64, size: u64, site: Site) {
        self.changes += 1;
        self.unmap(start, size);
        self.reservations.remove_overlapping(start, size);
        self.reservations.insert(start, size, site);
    }

    fn unmap(&mut self, start: u64, size: u64) {
        for (_, mapping) in self.mappings.remove_overlapping(start, size) {
            self.without_access -= usize::from(mapping.has_no_access());
        }
    }

    fn set_access(&mut self, start: u64, size: u64, access: Option<Vec<(Location, u32)>>) {
        let end = start.saturating_add(size);
        let mut at = start;
        while at < end {
            let Some((range, _)) = self.mappings.find(at) else {
                return;
            };
            at = range.end;
            let is_whole = start <= range.start && range.end <= end;
            let Some(mapping) = self.mappings.get_mut(range.start) else {
                return;
            };
            let had_none = mapping.has_no_access();
            match &access {
                None => mapping.unknown = true,
                Some(access) => {
                    for &(location, flags) in access {
                        mapping.access.retain(|known| known.location != location);
                        mapping.access.push(Access {
                            location,
                            flags,
                            is_whole,
                        });
                    }
                }
            }
            let has_none = mapping.has_no_access();
            self.without_access -= usize::from(had_none);
            self.without_access += usize::from(has_none);
        }
    }

    /// The physical memory that is mapped at an address.
    pub fn allocation_at(&self, address: u64) -> Option<ObjectId> {
        self.mappings.find(address)?.1.allocation
    }

    /// True if whole mappings make up these addresses.
    pub fn are_whole_mappings(&self, start: u64, size: u64) -> bool {
        let end = start.saturating_add(size);
        let mut at = start;
        while at < end {
            match self.mappings.find(at) {
                Some((range, _)) if range.start == at => at = range.end,
                _ => return false,
            }
        }
        at == end && size > 0
    }

    /// The addresses before this one that mappings with access make up without a gap.
    pub fn mapped_before(&self, address: u64) -> Option<Range<u64>> {
        let mut start = address;
        while let Some(last) = start.checked_sub(1)
            && let Some((range, mapping)) = self.mappings.find(last)
            && !mapping.has_no_access()
        {
            start = range.start;
        }
        (start < address).then_some(start..address)
    }

    /// True if every byte is mapped.
    pub fn is_mapped(&self, start: u64, size: u64) -> bool {
        let end = start.saturating_add(size);
        let mut at = start;
        while at < end {
            let Some((range, _)) = self.mappings.find(at) else {
                return false;
            };
            at = range.end;
        }
        true
    }
}

/// The access that a call gives: location and flags of each description.
fn described(function: &Function, call: &Call<'_>) -> Option<Vec<(Location, u32)>> {
    const BYTES: usize = size_of("CUmemAccessDesc");
    const KIND: usize = offset_of("CUmemAccessDesc", "location.type");
    const NUMBER: usize = offset_of("CUmemAccessDesc", "location.id");
    const FLAGS: usize = offset_of("CUmemAccessDesc", "flags");
    let snapshot = call.snapshot(function.position("desc")?, field::POINTEE)?;
    let descriptions = snapshot.bytes.inline()?.chunks_exact(BYTES);
    let read = |bytes: &[u8]| {
        let word = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        Some(((word(KIND)?, word(NUMBER)? as i32), word(FLAGS)?))
    };
    descriptions.map(read).collect()
}
