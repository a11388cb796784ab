//! The exports and imports of one trace.

use std::collections::BTreeMap;
use std::ops::Range;

use cutape_format::layout::{DescriptorNote, SharedMappingNote, field};
use cutape_format::{Call, Note};
use cutape_registry::{
    Family, HostMemoryOp, MemoryOp, Shared, SharedKind, SharingOp, VirtualMemoryOp, Width,
};

use crate::effects::Effects;
use crate::trace_state::function_of;

/// `st_mode` of a character device, and the bits that tell it.
const TYPE: u32 = 0o170_000;
const CHARACTER_DEVICE: u32 = 0o020_000;

/// By what one end of an exchange can be recognised at the other.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Identity {
    /// The handle itself.
    Bytes(Vec<u8>),
    /// The file that a descriptor names: device and number.
    File(u64, u64),
    /// An open file of a device driver by the recorder's mark: the process that exported it first,
    /// and the number of that export.
    MarkedFile(u32, u32),
    /// A descriptor of a device driver without a mark: all that it opens have the same number.
    DeviceFile(u64, u64),
    /// The trace does not say.
    Unknown,
}

/// A call that exports or imports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// Index of the call.
    pub call: u64,
    /// Its exported name.
    pub function: &'static str,
    /// What is exchanged.
    pub kind: SharedKind,
    /// Ticks of the enter for an import, of the leave for an export.
    pub ticks: u64,
    /// By what the other end is found.
    pub identity: Identity,
    /// The handle or address of the object in its process.
    pub object: u64,
    /// Its bytes, if the trace says.
    pub size: Option<u64>,
    /// At an export of physical memory: the `CUmemAllocationProp` that it was created with, as it
    /// is in memory.
    pub properties: Option<Vec<u8>>,
}

/// A part of registered host memory that other processes can map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappedFile {
    /// The call that registers it.
    pub call: u64,
    /// Where it is.
    pub mapping: SharedMappingNote,
    /// The name of the file.
    pub name: String,
    /// What changed there while it was registered.
    pub changes: HostChanges,
}

/// Changes of host memory that calls found. Who made them, a kernel or a thread of any process, the
/// trace does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostChanges {
    /// How many; what the memory held when the recorder looked first is none.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// What one process exchanges with others.
#[derive(Clone, Debug, Default)]
pub struct Exchanges {
    /// In order of the calls.
    pub exports: Vec<Exchange>,
    /// In order of the calls.
    pub imports: Vec<Exchange>,
    /// Imports that the driver refused, in order of the calls; they have no object.
    pub refused: Vec<Exchange>,
    /// Shared host memory that it registers.
    pub mapped: Vec<MappedFile>,
}

/// Collects them while calls are given in order.
#[derive(Debug, Default)]
pub struct ExchangeBuilder {
    found: Exchanges,
    /// Sizes of live memory and allocations, by address or handle.
    sizes: BTreeMap<u64, u64>,
    /// What live allocations were created with, by handle.
    properties: BTreeMap<u64, Vec<u8>>,
    /// Position in `imports` of allocations that are not mapped yet, by handle.
    unmapped: BTreeMap<u64, usize>,
    /// Registered host memory that other processes can map, by address.
    registered: BTreeMap<u64, Registered>,
}

#[derive(Debug)]
struct Registered {
    end: u64,
    /// Positions in `mapped`.
    parts: Range<usize>,
    /// The call that looked at it first.
    first: Option<u64>,
}

impl ExchangeBuilder {
    /// Takes the next call.
    pub fn observe(&mut self, call: &Call<'_>) {
        self.add_changes(call);
        let Some(function) = function_of(call.signature) else {
            return;
        };
        if !call.succeeded() {
            if let Family::Sharing(SharingOp::Import(shared)) = function.family
                && call.leave.is_some()
            {
                let import = self.exchange(call, shared, function.name, false);
                self.found.refused.push(import);
            }
            return;
        }
        let argument = |position: u8| call.argument(usize::from(position));
        match function.family {
            Family::Sharing(SharingOp::Export(shared)) => {
                let export = self.exchange(call, shared, function.name, true);
                self.found.exports.push(export);
            }
            Family::Sharing(SharingOp::Import(shared)) => {
                let import = self.exchange(call, shared, function.name, false);
                if import.kind == SharedKind::Allocation {
                    let position = self.found.imports.len();
                    self.unmapped.insert(import.object, position);
                }
                self.found.imports.push(import);
            }
            Family::Memory(
                MemoryOp::Allocate | MemoryOp::AllocatePitch { .. } | MemoryOp::AllocateAsync,
            ) => {
                let size = Effects::of(function).size_of(call, cutape_registry::Kind::Memory);
                if let Some(address) = call.out(0) {
                    self.sizes.insert(address, size);
                }
            }
            Family::Memory(MemoryOp::Free | MemoryOp::FreeAsync) => {
                self.sizes.remove(&call.argument(0));
            }
            Family::VirtualMemory(VirtualMemoryOp::Create { size, properties }) => {
                if let Some(handle) = call.out(0) {
                    self.sizes.insert(handle, argument(size));
                    let given = call.snapshot(usize::from(properties), field::POINTEE);
                    let given = given.and_then(|given| given.bytes.inline());
                    if let Some(given) = given {
                        self.properties.insert(handle, given.to_vec());
                    }
                }
            }
            Family::VirtualMemory(VirtualMemoryOp::Map {
                size, allocation, ..
            }) => {
                let import = self.unmapped.remove(&argument(allocation));
                if let Some(import) = import.and_then(|at| self.found.imports.get_mut(at)) {
                    import.size = Some(argument(size));
                }
            }
            Family::HostMemory(HostMemoryOp::Register) => {
                let mapped = call.notes().filter_map(|note| match note {
                    Note::SharedMapping(mapping, name) => Some(MappedFile {
                        call: call.index,
                        mapping,
                        name,
                        changes: HostChanges::default(),
                    }),
                    _ => None,
                });
                let before = self.found.mapped.len();
                self.found.mapped.extend(mapped);
                let parts = before..self.found.mapped.len();
                if !parts.is_empty() {
                    let registered = Registered {
                        end: call.argument(0).saturating_add(call.argument(1)),
                        parts,
                        first: None,
                    };
                    self.registered.insert(call.argument(0), registered);
                }
            }
            Family::HostMemory(HostMemoryOp::Unregister) => {
                self.registered.remove(&call.argument(0));
            }
            _ => {}
        }
    }

    /// Counts changes of shared host memory that the call found.
    fn add_changes(&mut self, call: &Call<'_>) {
        if self.registered.is_empty() {
            return;
        }
        for note in call.notes() {
            let Note::HostChanged(note, snapshot) = note else {
                continue;
            };
            let start = note.address;
            let end = start.saturating_add(snapshot.bytes.length().unwrap_or(0));
            let before = self.registered.range_mut(..=start).next_back();
            let Some((_, registered)) = before.filter(|(_, known)| start < known.end) else {
                continue;
            };
            if *registered.first.get_or_insert(call.index) == call.index {
                continue;
            }
            let parts = self.found.mapped.get_mut(registered.parts.clone());
            for part in parts.unwrap_or_default() {
                let mapping = &part.mapping;
                let until = mapping.address.saturating_add(mapping.length).min(end);
                let bytes = until.saturating_sub(mapping.address.max(start));
                part.changes.count += u64::from(bytes > 0);
                part.changes.bytes += bytes;
            }
        }
    }

    /// All of them.
    pub fn finish(self) -> Exchanges {
        self.found
    }

    fn exchange(
        &self,
        call: &Call<'_>,
        shared: Shared,
        function: &'static str,
        is_export: bool,
    ) -> Exchange {
        let position = usize::from(shared.object);
        let object = match is_export {
            true => call.argument(position),
            false => call.out(position).unwrap_or(0),
        };
        let left = call.leave.map_or(call.ticks, |leave| leave.ticks);
        Exchange {
            call: call.index,
            function,
            kind: shared.kind,
            ticks: if is_export { left } else { call.ticks },
            identity: identity(call, shared, is_export),
            object,
            size: self.sizes.get(&object).copied().filter(|_| is_export),
            properties: match is_export && shared.kind == SharedKind::Allocation {
                true => self.properties.get(&object).cloned(),
                false => None,
            },
        }
    }
}

fn identity(call: &Call<'_>, shared: Shared, is_export: bool) -> Identity {
    let descriptor = call.notes().find_map(|note| match note {
        Note::Descriptor(note) => Some(note),
        _ => None,
    });
    if let Some(DescriptorNote {
        mode,
        device,
        inode,
        owner,
        mark,
        ..
    }) = descriptor
    {
        return match (mode & TYPE == CHARACTER_DEVICE, owner) {
            (false, _) => Identity::File(device, inode),
            (true, 0) => Identity::DeviceFile(device, inode),
            (true, _) => Identity::MarkedFile(owner, mark),
        };
    }
    let position = usize::from(shared.handle);
    let is_by_value = function_of(call.signature)
        .and_then(|function| function.params.get(position))
        .is_some_and(|param| matches!(param.width, Width::Memory(_)));
    let bytes = match (is_export, is_by_value) {
        (true, _) => call.out_bytes(position).map(<[u8]>::to_vec),
        (false, true) => Some(call.argument_bytes(position).into_owned()),
        (false, false) => call
            .snapshot(position, field::POINTEE)
            .and_then(|snapshot| Some(snapshot.bytes.inline()?.to_vec())),
    };
    // The number of a descriptor says nothing in another process.
    match bytes.filter(|bytes| bytes.len() > 4) {
        Some(bytes) => Identity::Bytes(bytes),
        None => Identity::Unknown,
    }
}
