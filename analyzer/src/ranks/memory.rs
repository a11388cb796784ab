//! Which shared memory the launches of a process reach.

use std::collections::BTreeSet;

use cutape_format::layout::field;
use cutape_format::{Call, Note};
use cutape_model::{Changes, ObjectId, filled_bytes};
use cutape_reach::{Addresses, Area, Areas, Memory, PARAMETER_STEP, Place, words};
use cutape_registry::{CopyOp, Family, HostMemoryOp, Kind, VirtualMemoryOp};

use super::process::{Process, Uses};
use crate::context::{TraceContext, bytes_of};

/// How many addresses in memory are remembered for a process: about 100 MB.
const ADDRESSES: usize = 1 << 20;
/// How many bytes of a copy are looked at.
const LOOKED_AT: usize = 16 << 20;
/// How far memory goes whose length the trace does not say: a page of a device.
const GRANULE: u64 = 2 << 20;

/// What memory is, for all processes: the object of the process that created it, or a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Identity {
    /// Process, and number of the object in it.
    Object(usize, u64),
    /// Device and number of the file.
    File(u64, u64),
}

/// The memory of a process, and the addresses in it.
#[derive(Debug)]
pub(super) struct ProcessMemory {
    areas: Known,
    addresses: Addresses<Place>,
}

#[derive(Debug, Default)]
struct Known(Areas<Identity>);

impl Memory for Known {
    type Place = Place;

    fn find(&self, address: u64) -> Option<(Place, u64)> {
        let area = self.0.get(address)?;
        Some((area.place(), area.start))
    }
}

impl Default for ProcessMemory {
    fn default() -> Self {
        Self {
            areas: Known::default(),
            addresses: Addresses::new(ADDRESSES),
        }
    }
}

impl ProcessMemory {
    /// Takes note of a call that has been applied; `identity` says what an object is.
    pub(super) fn observe(
        &mut self,
        process: &Process,
        (context, call): (&dyn TraceContext, &Call<'_>),
        changes: Option<&Changes>,
        identity: &dyn Fn(ObjectId) -> Identity,
    ) {
        let objects = &process.trace.state.objects;
        if let Some(changes) = changes {
            let gone = changes.ended.iter().chain(&changes.superseded);
            for object in gone.filter_map(|id| objects.get(*id)) {
                match object.kind {
                    Kind::Memory => {
                        let removed = self.areas.0.remove(object.handle);
                        self.forget(removed);
                    }
                    Kind::Registration => self.remove_overlapping(object.handle, object.size),
                    _ => {}
                }
            }
            for id in &changes.created {
                let Some(object) = objects
                    .get(*id)
                    .filter(|object| object.kind == Kind::Memory)
                else {
                    continue;
                };
                let length = match object.size {
                    0 => GRANULE - object.handle % GRANULE,
                    size => size,
                };
                self.insert(object.handle, length, identity(*id));
            }
        }
        let Some(uses) = process.uses(call).filter(|_| call.succeeded()) else {
            return;
        };
        let argument = |position: u8| call.argument(usize::from(position));
        match uses.function.family {
            Family::VirtualMemory(VirtualMemoryOp::Map {
                address,
                size,
                allocation,
            }) => {
                if let Some(id) = objects.live(Kind::Allocation, argument(allocation)) {
                    self.insert(argument(address), argument(size), identity(id));
                }
            }
            Family::VirtualMemory(VirtualMemoryOp::Unmap { address, size }) => {
                self.remove_overlapping(argument(address), argument(size));
            }
            Family::HostMemory(HostMemoryOp::Register) => {
                for note in call.notes() {
                    if let Note::SharedMapping(part, _) = note {
                        let file = Identity::File(part.device, part.inode);
                        self.insert(part.address, part.length, file);
                    }
                }
            }
            Family::Copy(CopyOp::Linear(copy) | CopyOp::Unified(copy)) => {
                let (target, source) = (argument(copy.target), argument(copy.source));
                let bytes_of_source = |field| call.snapshot(usize::from(copy.source), field);
                // The latter if the call does not say that its source is on the host.
                let snapshot =
                    bytes_of_source(field::POINTEE).or_else(|| bytes_of_source(field::HOST_BYTES));
                match snapshot.map(|snapshot| bytes_of(context, snapshot.bytes)) {
                    Some(Some(bytes)) => {
                        let bytes = bytes.get(..LOOKED_AT).unwrap_or(&bytes);
                        self.addresses.note_bytes(&self.areas, target, bytes);
                    }
                    Some(None) => {
                        let length = argument(copy.bytes);
                        self.addresses.overwrite(&self.areas, target, length);
                    }
                    None => {
                        let length = argument(copy.bytes);
                        self.addresses
                            .note_copy(&self.areas, (target, source), length);
                    }
                }
            }
            Family::Memset => {
                let target = uses.addresses.first().map_or(0, |at| call.argument(*at));
                let length = filled_bytes(uses.function, call);
                self.addresses.overwrite(&self.areas, target, length);
            }
            _ => {}
        }
    }

    fn insert(&mut self, start: u64, length: u64, identity: Identity) {
        let overwritten = self.areas.0.insert(start, length, identity);
        self.forget(overwritten);
    }

    fn remove_overlapping(&mut self, start: u64, length: u64) {
        let removed = self.areas.0.remove_overlapping(start, length);
        self.forget(removed);
    }

    fn forget(&mut self, areas: impl IntoIterator<Item = Area<Identity>>) {
        for area in areas {
            self.addresses.forget(area.place());
        }
    }

    /// The first address of memory that a launch's parameters have, and all memory that it reaches;
    /// `None` if they have none.
    pub(super) fn reached(
        &self,
        uses: &Uses,
        call: &Call<'_>,
    ) -> Option<((Place, u64), BTreeSet<Identity>)> {
        if !matches!(uses.function.family, Family::Launch(_)) {
            return None;
        }
        let mut pieces = call.snapshots();
        let parameters = pieces.find(|piece| piece.field == field::KERNEL_PARAMETERS)?;
        let parameters = parameters.bytes.inline()?;
        let first = words(parameters, 8).find_map(|word| {
            let (place, _) = self.areas.find(word)?;
            Some((place, word))
        })?;
        let roots = words(parameters, PARAMETER_STEP);
        let reached = self.addresses.reach(&self.areas, roots);
        let known = reached.filter_map(|reached| self.areas.0.get(reached.address));
        Some((first, known.map(|area| area.what).collect()))
    }
}
