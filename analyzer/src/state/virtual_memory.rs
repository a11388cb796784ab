//! Virtual memory as calls show it: reserved addresses, mappings, and who has access to them.

use std::ops::Range;

use cutape_format::Call;
use cutape_format::layout::field;
use cutape_model::{IntervalMap, ObjectId, Site};
use cutape_registry::VirtualMemoryOp;

use crate::context::TraceContext;
use crate::plan::Plan;

/// CUmemLocationType: memory of a device.
const DEVICE: u32 = 1;

/// Physical memory mapped at addresses.
#[derive(Debug)]
pub(crate) struct Mapping {
    pub(crate) site: Site,
    /// The physical memory.
    pub(crate) allocation: Option<ObjectId>,
    /// Access was given by a call whose description is not in the trace.
    unknown: bool,
    /// By kind and number of the location: CUmemAccess_flags.
    access: Vec<((u32, i32), u32)>,
}

impl Mapping {
    /// The access that a device has; `None` if that is not known.
    pub(crate) fn access_of(&self, device: i32) -> Option<u32> {
        let mut access = self.access.iter();
        let found = access.find(|(location, _)| *location == (DEVICE, device));
        let flags = found.map_or(0, |(_, flags)| *flags);
        (!self.unknown).then_some(flags)
    }

    /// True if no call has given anything access.
    pub(crate) fn has_no_access(&self) -> bool {
        !self.unknown && self.access.iter().all(|(_, flags)| *flags == 0)
    }
}

/// Reserved addresses and mappings.
#[derive(Debug, Default)]
pub(crate) struct VirtualMemory {
    pub(crate) reservations: IntervalMap<Site>,
    pub(crate) mappings: IntervalMap<Mapping>,
    /// How many mappings nothing has access to.
    pub(crate) without_access: usize,
    /// How often mappings were added or removed.
    pub(crate) changes: u64,
}

impl VirtualMemory {
    /// A call has succeeded, which maps that physical memory if it maps any.
    pub(super) fn follow(
        &mut self,
        plan: &Plan,
        call: &Call<'_>,
        context: &dyn TraceContext,
        (site, allocation): (Site, Option<ObjectId>),
        operation: VirtualMemoryOp,
    ) {
        self.changes += 1;
        let argument = |position: u8| call.argument(usize::from(position));
        let named = |name: &str| plan.at(name).map(|position| call.argument(position));
        match operation {
            VirtualMemoryOp::Reserve => {
                let start = plan.at("ptr").and_then(|position| call.out(position));
                if let (Some(start), Some(size)) = (start, named("size")) {
                    self.unmap(start, size);
                    self.reservations.remove_overlapping(start, size);
                    self.reservations.insert(start, size, site);
                }
            }
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
                let access = described(plan, call, context);
                self.set_access(argument(address), argument(size), access);
            }
            VirtualMemoryOp::Create { .. } | VirtualMemoryOp::Release => {}
        }
    }

    fn unmap(&mut self, start: u64, size: u64) {
        for (_, mapping) in self.mappings.remove_overlapping(start, size) {
            self.without_access -= usize::from(mapping.has_no_access());
        }
    }

    fn set_access(&mut self, start: u64, size: u64, access: Option<Vec<((u32, i32), u32)>>) {
        let end = start.saturating_add(size);
        let mut at = start;
        while at < end {
            let Some((range, _)) = self.mappings.find(at) else {
                return;
            };
            at = range.end;
            let Some(mapping) = self.mappings.get_mut(range.start) else {
                return;
            };
            let had_none = mapping.has_no_access();
            match &access {
                None => mapping.unknown = true,
                Some(access) => {
                    for &(location, flags) in access {
                        mapping.access.retain(|(other, _)| *other != location);
                        mapping.access.push((location, flags));
                    }
                }
            }
            let has_none = mapping.has_no_access();
            self.without_access -= usize::from(had_none);
            self.without_access += usize::from(has_none);
        }
    }

    /// The mappings that share a byte with these addresses.
    pub(crate) fn mappings_in(
        &self,
        bytes: &Range<u64>,
    ) -> impl Iterator<Item = (Range<u64>, &Mapping)> {
        self.mappings.pieces(bytes)
    }

    /// The physical memory that is mapped at an address.
    pub(crate) fn allocation_at(&self, address: u64) -> Option<ObjectId> {
        self.mappings.find(address)?.1.allocation
    }

    /// The mappings that make up these addresses; `None` if they are not exactly that.
    pub(crate) fn exactly(&self, start: u64, size: u64) -> Option<()> {
        let end = start.checked_add(size)?;
        let mut at = start;
        while at < end {
            let (range, _) = self.mappings.find(at)?;
            if range.start != at {
                return None;
            }
            at = range.end;
        }
        (at == end && size > 0).then_some(())
    }

    /// The addresses before this one that mappings with access make up without a gap.
    pub(crate) fn mapped_before(&self, address: u64) -> Option<Range<u64>> {
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
    pub(crate) fn is_mapped(&self, start: u64, size: u64) -> bool {
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
fn described(
    plan: &Plan,
    call: &Call<'_>,
    context: &dyn TraceContext,
) -> Option<Vec<((u32, i32), u32)>> {
    let layout = context.signatures().structure("CUmemAccessDesc")?;
    let snapshot = call.snapshot(plan.at("desc")?, field::POINTEE)?;
    let bytes = snapshot.bytes.inline()?;
    let descriptions = bytes.chunks_exact(layout.size);
    let read = |bytes: &[u8]| {
        let kind = layout.number(bytes, "location.type")? as u32;
        let number = layout.number(bytes, "location.id")? as i32;
        Some(((kind, number), layout.number(bytes, "flags")? as u32))
    };
    descriptions.map(read).collect()
}
