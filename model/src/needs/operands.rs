//! What a call names: handles, and the memory that its work reads and writes.

use std::ops::Range;

use cutape_format::layout::field;
use cutape_format::{Call, Snapshot};
use cutape_registry::{
    CopyOp, Extent, Family, Function, Kind, Meaning, MemoryType, Role, StreamMemoryOp, Struct,
};

use crate::copied::described_accesses;
use crate::effects::CallArguments;
use crate::words::words_of;

/// An access to memory of the work that a call enqueues or does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Touch {
    /// It reads these bytes.
    Read(Range<u64>),
    /// It writes all of these bytes.
    Write(Range<u64>),
    /// It may read and write anything in the allocation at the address.
    Any(u64),
    /// It may read anything in the allocation at the address.
    ReadAny(u64),
    /// It names the address only.
    Name(u64),
}

impl Touch {
    /// The first address.
    pub(crate) fn address(&self) -> u64 {
        match self {
            Self::Read(range) | Self::Write(range) => range.start,
            Self::Any(address) | Self::ReadAny(address) | Self::Name(address) => *address,
        }
    }
}

/// What a call names.
#[derive(Debug, Default)]
pub struct Operands {
    /// Handles of objects.
    pub handles: Vec<(Kind, u64)>,
    /// Arrays that the call writes.
    pub(super) written_arrays: Vec<u64>,
    pub(super) touches: Vec<Touch>,
    /// Words that are addresses or handles if such exist: parameters of kernels.
    pub words: Vec<u64>,
}

impl Operands {
    /// Addresses of memory, each the first of what the call names there.
    pub fn addresses(&self) -> impl Iterator<Item = u64> {
        self.touches.iter().map(Touch::address)
    }

    /// The bytes that the call's work reads, as far as the call says which.
    pub fn reads(&self) -> impl Iterator<Item = Range<u64>> {
        self.touches.iter().filter_map(|touch| match touch {
            Touch::Read(range) => Some(range.clone()),
            _ => None,
        })
    }

    /// The bytes that the call's work writes, of parts with gaps between them the first.
    pub fn writes(&self) -> impl Iterator<Item = Range<u64>> {
        self.touches.iter().filter_map(|touch| match touch {
            Touch::Write(range) => Some(range.clone()),
            Touch::Any(start) => Some(*start..start.saturating_add(1)),
            _ => None,
        })
    }

    /// The accesses to memory that the call names itself.
    pub(crate) fn touches(&self) -> &[Touch] {
        &self.touches
    }

    /// Of a call of that function.
    pub fn of(function: &'static Function, call: &Call<'_>) -> Self {
        let mut operands = Self::default();
        for (position, param) in function.params.iter().enumerate() {
            operands.add_parameter(function, call, position, param.role);
        }
        for snapshot in call.snapshots() {
            operands.add_snapshot(function, &snapshot);
        }
        let described = described_accesses(function, call).unwrap_or_default();
        let touches = described.into_iter().map(|access| match access.is_write {
            false => Touch::Read(access.span()),
            true if access.is_whole() => Touch::Write(access.span()),
            true => Touch::Any(access.start),
        });
        operands.touches.extend(touches);
        operands
    }

    fn add_parameter(
        &mut self,
        function: &'static Function,
        call: &Call<'_>,
        position: usize,
        role: Role,
    ) {
        let argument = || call.argument(position);
        let arguments = CallArguments(call);
        let moves = matches!(
            function.family,
            Family::Copy(_) | Family::Memset | Family::StreamMemory(StreamMemoryOp::Write)
        );
        match role {
            Role::Use(kind) | Role::Destroy(kind) => {
                let handle = argument();
                if kind != Kind::Device {
                    self.handles.push((kind, handle));
                    let writes_array = matches!(
                        function.family,
                        Family::Copy(CopyOp::Linear(copy))
                            if copy.to == MemoryType::Array && usize::from(copy.target) == position
                    );
                    if kind == Kind::Array && writes_array {
                        self.written_arrays.push(handle);
                    }
                }
            }
            Role::UseMany(kind, _) => {
                let snapshot = call.snapshot(position, field::POINTEE);
                let bytes = snapshot.and_then(|snapshot| snapshot.bytes.inline());
                let words = words_of(bytes.unwrap_or_default());
                let handles = words.filter(|&word| word != 0 && kind != Kind::Device);
                self.handles.extend(handles.map(|handle| (kind, handle)));
            }
            Role::DeviceRead(length) | Role::DeviceWrite(length) if moves => {
                let writes = matches!(role, Role::DeviceWrite(_));
                let extent = length.evaluate(function, &arguments);
                self.touches.push(match (extent, writes) {
                    (Some(extent), false) => Touch::Read(span(argument(), extent)),
                    (Some(extent), true) if extent.rows <= 1 || extent.row >= extent.pitch => {
                        Touch::Write(span(argument(), extent))
                    }
                    _ => Touch::Any(argument()),
                });
            }
            Role::HostWrite(length) if moves => {
                if let Some(extent) = length.evaluate(function, &arguments) {
                    self.touches.push(Touch::Write(span(argument(), extent)));
                }
            }
            Role::DeviceRead(_)
            | Role::DeviceWrite(_)
            | Role::HostRead(_)
            | Role::HostWrite(_)
            | Role::HostAddress => {
                let address = argument();
                self.touches.push(match function.family {
                    Family::StreamMemory(StreamMemoryOp::Wait) => Touch::ReadAny(address),
                    Family::StreamMemory(_) => Touch::Any(address),
                    _ => Touch::Name(address),
                });
            }
            _ => {}
        }
    }

    fn add_snapshot(&mut self, function: &'static Function, snapshot: &Snapshot<'_>) {
        let Some(bytes) = snapshot.bytes.inline() else {
            return;
        };
        match snapshot.field {
            field::KERNEL_PARAMETERS => self.words.extend(words_of(bytes)),
            field::ATTRIBUTES => {
                if let Some(structure) = cutape_registry::structure("CUlaunchAttribute") {
                    self.add_structs(function, structure, bytes);
                }
            }
            field::POINTEE => {
                let param = function.params.get(usize::from(snapshot.parameter));
                let Some(param) = param.filter(|param| {
                    matches!(param.role, Role::In(_) | Role::InOut(_) | Role::Pointer)
                }) else {
                    return;
                };
                let name = param.c_type.trim_start_matches("const ");
                let name = name.trim_end_matches([' ', '*']);
                if let Some(structure) = cutape_registry::structure(name) {
                    self.add_structs(function, structure, bytes);
                } else if name == "CUdeviceptr" && !matches!(function.family, Family::Copy(_)) {
                    self.touches.extend(words_of(bytes).map(Touch::Any));
                }
            }
            _ => {}
        }
    }

    fn add_structs(&mut self, function: &Function, structure: &'static Struct, bytes: &[u8]) {
        let copies = matches!(function.family, Family::Copy(_));
        let moves = matches!(
            function.family,
            Family::Copy(_) | Family::Graph(_) | Family::StreamMemory(_)
        );
        for element in bytes.chunks_exact((structure.size as usize).max(1)) {
            for member in structure.fields {
                if !matches!(member.meaning, Meaning::Handle(_) | Meaning::Address)
                    || member.when.is_some_and(|when| !when.holds(element))
                {
                    continue;
                }
                let start = member.offset as usize;
                let value = element.get(start..start + member.size as usize);
                let Some(value) = value.and_then(|value| value.first_chunk()) else {
                    continue;
                };
                let value = u64::from_le_bytes(*value);
                if value == 0 {
                    continue;
                }
                let last = member.name.rsplit('.').next().unwrap_or(member.name);
                let is_source = last.starts_with("src") || member.name.starts_with("src");
                match member.meaning {
                    Meaning::Handle(kind) => {
                        self.handles.push((kind, value));
                        if kind == Kind::Array && moves && !is_source {
                            self.written_arrays.push(value);
                        }
                    }
                    // What a copy describes are rows.
                    _ if copies => {}
                    _ => self.touches.push(match (moves, is_source) {
                        (true, true) => Touch::ReadAny(value),
                        (true, false) => Touch::Any(value),
                        (false, _) => Touch::Name(value),
                    }),
                }
            }
        }
    }
}

fn span(start: u64, extent: Extent) -> Range<u64> {
    start..start.saturating_add(extent.span())
}
