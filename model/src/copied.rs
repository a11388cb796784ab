//! How many bytes a call copies or fills, and from where to where.

use std::ops::Range;

use cutape_format::Call;
use cutape_format::layout::field;
use cutape_registry::layout::{offset_of, size_of};
use cutape_registry::{CopyOp, CopyShape, Family, Function, Kind, MemoryType, Role};

use crate::effects::CallArguments;
use crate::memory_kind::MemoryKind;
use crate::state::State;

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
    function.waits_for_default_stream() || operands.iter().flatten().any(is_of_host)
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

/// A member of the struct that describes a copy.
fn described_value(call: &Call<'_>, member: &str) -> Option<u64> {
    let c_type = call.signature.parameters.first()?.c_type.as_str();
    let name = c_type.trim_start_matches("const ");
    let structure = cutape_registry::structure(name.trim_end_matches([' ', '*']))?;
    let bytes = call.snapshot(0, field::POINTEE)?.bytes.inline()?;
    let field = structure.fields.iter().find(|field| field.name == member)?;
    let (start, size) = (field.offset as usize, field.size as usize);
    let mut word = [0; 8];
    let value = bytes.get(start..start.checked_add(size)?)?;
    word.get_mut(..size)?.copy_from_slice(value);
    Some(u64::from_le_bytes(word))
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
    let (kind, address) = described_memory(call, "dst")?;
    (kind == MemoryType::Host).then_some(address)
}

/// The addresses of memory that copies of a call read, where its parameters do not have them.
pub fn described_sources(function: &Function, call: &Call<'_>) -> Vec<u64> {
    match function.family {
        Family::Copy(CopyOp::Described(_)) => {
            let source = described_memory(call, "src");
            source.into_iter().map(|(_, address)| address).collect()
        }
        Family::Copy(CopyOp::Batch { sources, .. }) => {
            let words = words(call, sources).unwrap_or_default();
            let words = words.iter().copied();
            words.map(u64::from_le_bytes).collect()
        }
        Family::Copy(CopyOp::Batch3D { operations, .. }) => {
            const LENGTH: usize = size_of("CUDA_MEMCPY3D_BATCH_OP");
            const SOURCE: usize = offset_of("CUDA_MEMCPY3D_BATCH_OP", "src.op.ptr.ptr");
            let operations = call.snapshot(usize::from(operations), field::POINTEE);
            let bytes = operations.and_then(|list| list.bytes.inline());
            let operations = bytes.unwrap_or_default().chunks_exact(LENGTH);
            // Of an array it is a handle, at which no memory of the host lies.
            let word = |operation: &[u8]| operation.get(SOURCE..)?.first_chunk().copied();
            operations
                .filter_map(word)
                .map(u64::from_le_bytes)
                .collect()
        }
        _ => Vec::new(),
    }
}

/// The memory that copies of a call write, where its parameters do not have it, and whether they write
/// all of it.
pub(crate) fn described_targets(function: &Function, call: &Call<'_>) -> Vec<(Range<u64>, bool)> {
    let bytes = |start: u64, length: u64| start..start.saturating_add(length);
    match function.family {
        Family::Copy(CopyOp::Described(_)) => described_target(call).into_iter().collect(),
        Family::Copy(CopyOp::Batch { targets, sizes, .. }) => {
            let [targets, sizes] = [targets, sizes].map(|at| words(call, at).unwrap_or_default());
            let pairs = targets.iter().zip(sizes);
            let pairs = pairs.map(|(&start, &length)| {
                let [start, length] = [start, length].map(u64::from_le_bytes);
                (bytes(start, length), true)
            });
            pairs.collect()
        }
        _ => Vec::new(),
    }
}

/// The memory that a copy which a struct describes writes, and whether it writes all of it.
fn described_target(call: &Call<'_>) -> Option<(Range<u64>, bool)> {
    let (_, address) = described_memory(call, "dst")?;
    let value = |member| described_value(call, member);
    let (row, height) = (value("WidthInBytes")?, value("Height")?);
    let depth = value("Depth").unwrap_or(1);
    let pitch = value("dstPitch").filter(|&pitch| pitch != 0).unwrap_or(row);
    let layer = value("dstHeight")
        .filter(|&rows| rows != 0)
        .unwrap_or(height);
    let at = |z: u64, y: u64, x: u64| {
        let rows = z.wrapping_mul(layer).wrapping_add(y);
        rows.wrapping_mul(pitch).wrapping_add(x)
    };
    let first = value("dstZ").unwrap_or(0);
    let start = at(first, value("dstY")?, value("dstXInBytes")?);
    let start = address.wrapping_add(start);
    let last = at(depth.checked_sub(1)?, height.checked_sub(1)?, row);
    let is_whole = (height == 1 || pitch == row) && (depth == 1 || layer == height);
    Some((start..start.saturating_add(last), is_whole))
}

/// The kind and the address of memory, `src` or `dst`, of a copy that a struct describes; `None` for
/// an array.
fn described_memory(call: &Call<'_>, side: &str) -> Option<(MemoryType, u64)> {
    let value = |member| described_value(call, &format!("{side}{member}"));
    let kind = MemoryType::of(value("MemoryType")?)?;
    let address = match kind {
        MemoryType::Host => value("Host")?,
        MemoryType::Device | MemoryType::Unified => value("Device")?,
        MemoryType::Array => return None,
    };
    Some((kind, address))
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
