//! How many bytes a call copies or fills, and from where to where.

use std::borrow::Cow;
use std::ops::Range;

use cutape_format::Call;
use cutape_format::layout::field;
use cutape_registry::{
    CopyOp, CopyShape, Extent, Family, Function, Kind, MemoryType, Role, Struct, structure_behind,
};

use crate::effects::CallArguments;
use crate::memory_kind::MemoryKind;
use crate::state::State;
use crate::words::words_of;

/// Where bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// Memory of the host, and managed memory.
    Host,
    /// Linear device memory.
    Device,
    /// An array of the device.
    Array,
}

impl Side {
    /// Whether it is memory of the device.
    pub fn is_device(self) -> bool {
        self != Self::Host
    }
}

/// One copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied {
    /// What is read.
    pub from: Side,
    /// What is written.
    pub to: Side,
    /// How many bytes.
    pub bytes: u64,
    /// The call names the contexts of both operands.
    pub is_peer: bool,
}

/// Hands out the copies that a call of [`Family::Copy`] asks for, nearly always one; `None` for one
/// whose size or direction the trace lacks.
pub fn each_copy<X>(
    function: &Function,
    call: &Call<'_>,
    state: &State<X>,
    each: &mut dyn FnMut(Option<Copied>),
) {
    let Family::Copy(op) = function.family else {
        return;
    };
    let argument = |position: u8| call.argument(usize::from(position));
    match op {
        CopyOp::Linear(at) | CopyOp::Peer(at) | CopyOp::Unified(at) => each(Some(Copied {
            from: side(at.from, argument(at.source), state),
            to: side(at.to, argument(at.target), state),
            bytes: argument(at.bytes),
            is_peer: matches!(op, CopyOp::Peer(_)),
        })),
        CopyOp::Described(shape) => each(described(shape, call, state)),
        CopyOp::Batch {
            targets,
            sources,
            sizes,
            ..
        } => match [targets, sources, sizes].map(|at| words(call, at)) {
            [Some(targets), Some(sources), Some(sizes)] => {
                let operands = targets.iter().zip(sources).zip(sizes);
                for ((target, source), bytes) in operands {
                    let side = |address: &[u8; 8]| {
                        side(MemoryType::Unified, u64::from_le_bytes(*address), state)
                    };
                    each(Some(Copied {
                        from: side(source),
                        to: side(target),
                        bytes: u64::from_le_bytes(*bytes),
                        is_peer: false,
                    }));
                }
            }
            _ => each(None),
        },
        CopyOp::Batch3D { .. } => each(None),
    }
}

/// The bytes that a call of [`Family::Memset`] writes.
pub fn filled_bytes(function: &Function, call: &Call<'_>) -> u64 {
    let length = function.params.iter().find_map(|param| match param.role {
        Role::DeviceWrite(length) => Some(length),
        _ => None,
    });
    let extent = length.and_then(|length| length.evaluate(function, &CallArguments(call)));
    extent.map_or(0, |extent| extent.content())
}

/// Whether an asynchronous copy to the host was complete when its call returned, as one to pageable
/// memory is (manual, API synchronization behavior): then the recorder has its bytes at once. The
/// earlier work of the stream was complete as well.
pub(crate) fn was_complete(function: &Function, call: &Call<'_>) -> bool {
    let is_single = matches!(
        function.family,
        Family::Copy(CopyOp::Linear(_) | CopyOp::Unified(_) | CopyOp::Described(_))
    );
    let returned = |leave: cutape_format::Leave<'_>| {
        let mut snapshots = leave.snapshots();
        snapshots.any(|snapshot| matches!(snapshot.field, field::POINTEE | field::HOST_BYTES))
    };
    is_single && function.stream.is_some() && call.succeeded() && call.leave.is_some_and(returned)
}

/// Whether all earlier work of the default stream is complete when a call without a stream has
/// succeeded that copies to or from memory of the host, or managed memory.
pub(crate) fn waits_for_default<X>(function: &Function, call: &Call<'_>, state: &State<X>) -> bool {
    let is_of_host = |&at: &u8| {
        let at = usize::from(at);
        let before = call.snapshot(at, field::HOST_BYTES);
        let after = || call.leave?.snapshot(at, field::HOST_BYTES);
        state.shared_around(call.argument(at)).is_some() || before.or_else(after).is_some()
    };
    let operands = function.unified_without_stream();
    let is_to_host =
        || function.stream.is_none() && described_host_target(function, call).is_some();
    function.waits_for_default_stream() || operands.iter().flatten().any(is_of_host) || is_to_host()
}

/// The words of an array that a parameter points at.
fn words<'c>(call: &Call<'c>, position: u8) -> Option<&'c [[u8; 8]]> {
    let snapshot = call.snapshot(usize::from(position), field::POINTEE)?;
    Some(snapshot.bytes.inline()?.as_chunks().0)
}

fn side<X>(memory: MemoryType, address: u64, state: &State<X>) -> Side {
    match memory {
        MemoryType::Host => Side::Host,
        MemoryType::Array => Side::Array,
        MemoryType::Device => Side::Device,
        MemoryType::Unified if is_device_memory(address, state) => Side::Device,
        MemoryType::Unified => Side::Host,
    }
}

/// Whether an address lies in allocated device memory; managed memory counts as the host's.
fn is_device_memory<X>(address: u64, state: &State<X>) -> bool {
    let object = state
        .memory_at(address)
        .and_then(|id| state.objects.get(id));
    object.is_some_and(|object| {
        object.kind == Kind::Memory
            && MemoryKind::allocated_by(object.kind, object.created.function)
                != Some(MemoryKind::Managed)
    })
}

/// Linear memory that one copy of a call reads or writes, where no parameter is its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DescribedAccess {
    /// Which copy of the call.
    pub copy: usize,
    /// It writes the memory.
    pub is_write: bool,
    /// Where the description says that the memory is.
    pub memory: MemoryType,
    /// The address that the description has.
    pub base: u64,
    /// The first byte.
    pub start: u64,
    /// The rows: those of the first layer if the layers do not follow each other.
    pub extent: Extent,
    /// How many times these rows are, and how many bytes apart: the layers that do not follow each
    /// other.
    pub layers: (u64, u64),
    /// The address past the last byte.
    pub end: u64,
    /// It is in the order of the call's stream. A batch may read before that, when it is enqueued.
    pub is_in_order: bool,
}

impl DescribedAccess {
    fn new(
        copy: usize,
        is_write: bool,
        memory: MemoryType,
        at: &Placement,
        size: [u64; 3],
    ) -> Self {
        let [row, height, depth] = size;
        let pitch = if at.pitch == 0 { row } else { at.pitch };
        let layer = if at.layer == 0 { height } else { at.layer };
        let address = |z: u64, y: u64, x: u64| {
            let rows = z.wrapping_mul(layer).wrapping_add(y);
            rows.wrapping_mul(pitch).wrapping_add(x)
        };
        let [x, y, z] = at.origin;
        let start = at.base.wrapping_add(address(z, y, x));
        let is_dense = layer == height || depth == 1;
        let rows = if is_dense {
            height.saturating_mul(depth)
        } else {
            height
        };
        // Rows that follow each other are one.
        let extent = match pitch == row {
            true => Extent::flat(row.saturating_mul(rows)),
            false => Extent { row, pitch, rows },
        };
        let layers = if is_dense { 1 } else { depth };
        let length = address(depth.saturating_sub(1), height.saturating_sub(1), row);
        Self {
            copy,
            is_write,
            memory,
            base: at.base,
            start,
            extent,
            layers: (layers, layer.wrapping_mul(pitch)),
            end: start.saturating_add(length),
            is_in_order: true,
        }
    }

    /// The addresses from the first byte to the last, padding included.
    pub fn span(&self) -> Range<u64> {
        self.start..self.end
    }

    /// Whether it is every byte from the first to the last.
    pub fn is_whole(&self) -> bool {
        self.extent.rows == 1 && self.start.saturating_add(self.extent.row) == self.end
    }
}

/// Where a description puts the bytes of one side.
struct Placement {
    base: u64,
    pitch: u64,
    /// Rows of a layer.
    layer: u64,
    /// Bytes, rows and layers before the first byte.
    origin: [u64; 3],
}

/// What a parameter of a call points at.
type Read<'r> = &'r dyn Fn(usize) -> Option<Cow<'r, [u8]>>;

/// The linear memory that the copies of a call read and write, where its parameters do not have it;
/// `None` if the records lack a description. Copies of no bytes are left out.
pub fn described_accesses(function: &Function, call: &Call<'_>) -> Option<Vec<DescribedAccess>> {
    let read = |position| {
        let bytes = call.snapshot(position, field::POINTEE)?.bytes.inline()?;
        Some(Cow::Borrowed(bytes))
    };
    described_accesses_in(function, &read)
}

/// The same, from what a caller reads, which may be stored outside the records.
pub fn described_accesses_in(function: &Function, read: Read<'_>) -> Option<Vec<DescribedAccess>> {
    match function.family {
        Family::Copy(CopyOp::Described(_)) => {
            let structure = structure_behind(function.params.first()?.c_type)?;
            let bytes = read(0)?;
            described_copy(&|name| member(structure, &bytes, name))
        }
        Family::Copy(CopyOp::Batch {
            targets,
            sources,
            sizes,
            attributes,
            starts,
            ..
        }) => {
            let words = |position: u8| {
                let bytes = read(position.into())?;
                Some(words_of(&bytes).collect::<Vec<u64>>())
            };
            let starts = words(starts).unwrap_or_default();
            let orders = source_orders(&starts, &read(attributes.into()).unwrap_or_default());
            let (targets, sources, sizes) = (words(targets)?, words(sources)?, words(sizes)?);
            let operands = targets.into_iter().zip(sources).zip(sizes).enumerate();
            let sides = operands.flat_map(|(copy, ((target, source), size))| {
                let mut orders = orders.iter().rev();
                let order = orders.find(|(start, _)| *start <= copy as u64);
                let is_in_order = order.is_none_or(|(_, order)| *order == IN_ORDER);
                let side = |base: u64, is_write| {
                    let at = Placement {
                        base,
                        pitch: 0,
                        layer: 0,
                        origin: [0; 3],
                    };
                    let size = [size, 1, 1];
                    DescribedAccess {
                        is_in_order: is_write || is_in_order,
                        ..DescribedAccess::new(copy, is_write, MemoryType::Unified, &at, size)
                    }
                };
                let sides = [side(source, false), side(target, true)];
                sides.into_iter().filter(move |_| size > 0)
            });
            Some(sides.collect())
        }
        Family::Copy(CopyOp::Batch3D { operations, .. }) => {
            let structure = cutape_registry::structure("CUDA_MEMCPY3D_BATCH_OP")?;
            let bytes = read(operations.into())?;
            let list = bytes.chunks_exact(structure.size as usize).enumerate();
            let sides = list.flat_map(|(copy, bytes)| batched(structure, bytes, copy));
            Some(sides.collect())
        }
        _ => Some(Vec::new()),
    }
}

/// CUmemcpySrcAccessOrder: CU_MEMCPY_SRC_ACCESS_ORDER_STREAM.
const IN_ORDER: u64 = 1;

/// The order in which copies of a batch read, from which copy on.
fn source_orders(starts: &[u64], attributes: &[u8]) -> Vec<(u64, u64)> {
    let Some(structure) = cutape_registry::structure("CUmemcpyAttributes") else {
        return Vec::new();
    };
    let orders = attributes.chunks_exact(structure.size as usize);
    let orders = orders.filter_map(|bytes| member(structure, bytes, "srcAccessOrder"));
    starts.iter().copied().zip(orders).collect()
}

/// Both sides of the copy of a `CUDA_MEMCPY3D_BATCH_OP`, but for arrays.
fn batched(structure: &Struct, bytes: &[u8], copy: usize) -> Vec<DescribedAccess> {
    // CUmemcpy3DOperandType: CU_MEMCPY_OPERAND_TYPE_POINTER.
    const POINTER: u64 = 1;
    let value = |name: &str| member(structure, bytes, name).unwrap_or(0);
    let size = ["width", "height", "depth"].map(|name| value(&format!("extent.{name}")));
    let mut sides = Vec::new();
    for (side, is_write) in [("src", false), ("dst", true)] {
        if size.contains(&0) || value(&format!("{side}.type")) != POINTER {
            continue;
        }
        let of = |name: &str| value(&format!("{side}.op.ptr.{name}"));
        let at = Placement {
            base: of("ptr"),
            pitch: of("rowLength"),
            layer: of("layerHeight"),
            origin: [0; 3],
        };
        sides.push(DescribedAccess {
            is_in_order: is_write || value("srcAccessOrder") == IN_ORDER,
            ..DescribedAccess::new(copy, is_write, MemoryType::Unified, &at, size)
        });
    }
    sides
}

/// Both sides of the copy that the members of a struct describe, but for arrays.
pub(crate) fn described_copy(value: &dyn Fn(&str) -> Option<u64>) -> Option<Vec<DescribedAccess>> {
    let size = [
        value("WidthInBytes")?,
        value("Height")?,
        value("Depth").unwrap_or(1),
    ];
    let mut sides = Vec::new();
    for (side, is_write) in [("src", false), ("dst", true)] {
        let of = |name: &str| value(&format!("{side}{name}"));
        let Some(memory) = MemoryType::of(of("MemoryType")?) else {
            continue;
        };
        let base = match memory {
            MemoryType::Host => of("Host")?,
            MemoryType::Device | MemoryType::Unified => of("Device")?,
            MemoryType::Array => continue,
        };
        let at = Placement {
            base,
            pitch: of("Pitch").unwrap_or(0),
            layer: of("Height").unwrap_or(0),
            origin: [of("XInBytes")?, of("Y")?, of("Z").unwrap_or(0)],
        };
        if !size.contains(&0) {
            sides.push(DescribedAccess::new(0, is_write, memory, &at, size));
        }
    }
    Some(sides)
}

/// A member of a struct.
fn member(structure: &Struct, bytes: &[u8], name: &str) -> Option<u64> {
    let field = structure.fields.iter().find(|field| field.name == name)?;
    let (start, size) = (field.offset as usize, field.size as usize);
    let mut word = [0; 8];
    let value = bytes.get(start..start.checked_add(size)?)?;
    word.get_mut(..size)?.copy_from_slice(value);
    Some(u64::from_le_bytes(word))
}

/// A member of the struct that describes a copy.
fn described_value(call: &Call<'_>, name: &str) -> Option<u64> {
    let structure = structure_behind(&call.signature.parameters.first()?.c_type)?;
    member(
        structure,
        call.snapshot(0, field::POINTEE)?.bytes.inline()?,
        name,
    )
}

/// The kind of memory and the device address of one side, `src` or `dst`, of a copy that a struct
/// describes.
pub fn described_side(call: &Call<'_>, side: &str) -> Option<(MemoryType, u64)> {
    let value = |member| described_value(call, &format!("{side}{member}"));
    Some((MemoryType::of(value("MemoryType")?)?, value("Device")?))
}

/// The host memory that a copy which a struct describes writes.
pub(crate) fn described_host_target(function: &Function, call: &Call<'_>) -> Option<u64> {
    let Family::Copy(CopyOp::Described(_)) = function.family else {
        return None;
    };
    let sides = described_accesses(function, call)?;
    let mut targets = sides.iter().filter(|side| side.is_write);
    let target = targets.find(|side| side.memory == MemoryType::Host)?;
    Some(target.base)
}

/// The addresses of memory that copies of a call read, where its parameters do not have them.
pub fn described_sources(function: &Function, call: &Call<'_>) -> Vec<u64> {
    let sides = described_accesses(function, call).unwrap_or_default();
    let sources = sides.iter().filter(|side| !side.is_write);
    sources.map(|side| side.base).collect()
}

/// The memory that copies of a call write, where its parameters do not have it, and whether they write
/// all of it.
pub(crate) fn described_targets(function: &Function, call: &Call<'_>) -> Vec<(Range<u64>, bool)> {
    let sides = described_accesses(function, call).unwrap_or_default();
    let targets = sides.iter().filter(|side| side.is_write);
    targets.map(|side| (side.span(), side.is_whole())).collect()
}

/// A copy that a struct describes.
fn described<X>(shape: CopyShape, call: &Call<'_>, state: &State<X>) -> Option<Copied> {
    let value = |member: &str| described_value(call, member);
    let side = |name: &str| {
        let (memory, address) = described_side(call, name)?;
        Some(side(memory, address, state))
    };
    let rows = value("Height")?.saturating_mul(value("Depth").unwrap_or(1));
    let total = value("WidthInBytes")?.saturating_mul(rows);
    Some(Copied {
        from: side("src")?,
        to: side("dst")?,
        bytes: total,
        is_peer: shape == CopyShape::PeerVolume,
    })
}
