//! Batches of copies, whose addresses may be the host's or the device's, and of memory operations.

use core::mem::offset_of;

use cutape_driver::types::{
    CUDA_MEMCPY3D_BATCH_OP, CUmemcpy3DOperandType_enum, CUmemcpyAttributes,
    CUmemcpySrcAccessOrder_enum, CUstreamBatchMemOpParams,
    CUstreamBatchMemOpParams_union_CUstreamMemOpWriteValueParams_st, CUstreamBatchMemOpType_enum,
};
use cutape_format::layout::field;
use cutape_registry::CopyOp;

use crate::file::rows::Rows;
use crate::host_memory::{Access, Operand};
use crate::hot::frame::Frame;
use crate::hot::recording::Direction;
use crate::hot::thread::{Draft, Thread};
use crate::process::memory;
use crate::queries::is_host;
use crate::{async_readback, snapshot};

/// The host memory of a batch with more copies or operations is not recorded.
const MOST_COPIES: u64 = 1 << 16;
/// That of a copy with more rows is not either: its description is wrong.
const MOST_ROWS: u64 = 1 << 26;

/// The memory of a copy.
#[derive(Default)]
struct Sides {
    /// Where it writes and reads; 0 for an array.
    addresses: [u64; 2],
    /// What of that is host memory and recorded with the copy.
    target: Option<Rows>,
    source: Option<Rows>,
    /// One side is an array, or there are too many rows: host memory is not recorded.
    is_left_out: bool,
    /// `DURING_API_CALL`. Only such a copy to pageable memory is complete when the call returns
    /// (driver 580.159, H100, 2026-11-22: 240 of 240; not with the orders `STREAM` and `ANY`).
    during_call: bool,
}

/// The copies of a batch, in its order; none if its description cannot be read.
fn copies(frame: &Frame, op: CopyOp) -> Vec<Sides> {
    let copy = |index: u64| match op {
        CopyOp::Batch {
            targets,
            sources,
            sizes,
            attributes,
            starts,
            attribute_count,
            ..
        } => {
            let [targets, sources, sizes] = [targets, sources, sizes].map(|at| frame.word(at));
            let [attributes, starts, count] =
                [attributes, starts, attribute_count].map(|at| frame.word(at));
            let sides = line([targets, sources, sizes], index)?;
            Some(Sides {
                during_call: order_of(attributes, starts, count, index)? == DURING_CALL,
                ..sides
            })
        }
        CopyOp::Batch3D { operations, .. } => volume(frame.word(operations), index),
        _ => None,
    };
    match count_of(frame, op) {
        count if count > MOST_COPIES => Vec::new(),
        count => (0..count).map_while(copy).collect(),
    }
}

fn count_of(frame: &Frame, op: CopyOp) -> u64 {
    match op {
        CopyOp::Batch { count, .. } | CopyOp::Batch3D { count, .. } => frame.word(count),
        _ => 0,
    }
}

const DURING_CALL: u32 = CUmemcpySrcAccessOrder_enum::CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL.0;

/// The order of a copy of a batch: that of the last of `count` attributes that starts at the copy
/// or before it.
fn order_of(attributes: u64, starts: u64, count: u64, index: u64) -> Option<u32> {
    let start = |at: u64| memory::word(starts.checked_add(at * 8)?);
    let mut last = 0;
    for at in 1..count.min(MOST_COPIES) {
        if start(at)? > index {
            break;
        }
        last = at;
    }
    let size = size_of::<CUmemcpyAttributes>() as u64;
    let offset = offset_of!(CUmemcpyAttributes, srcAccessOrder) as u64;
    let mut order = [0; 4];
    let address = attributes.checked_add(last * size + offset)?;
    memory::read_all(address, &mut order).then(|| u32::from_ne_bytes(order))
}

/// A copy of arrays of targets, sources and sizes.
fn line(arrays: [u64; 3], index: u64) -> Option<Sides> {
    let [target, source, size] = arrays.map(|array| memory::word(array.checked_add(index * 8)?));
    let (target, source, size) = (target?, source?, size?);
    let side = |address| is_host(address).then(|| Rows::flat(address, size));
    Some(Sides {
        addresses: [target, source],
        target: side(target),
        source: side(source),
        ..Sides::default()
    })
}

fn volume(list: u64, index: u64) -> Option<Sides> {
    let size = size_of::<CUDA_MEMCPY3D_BATCH_OP>() as u64;
    let mut bytes = [0u8; size_of::<CUDA_MEMCPY3D_BATCH_OP>()];
    if !memory::read_all(list.checked_add(index * size)?, &mut bytes) {
        return None;
    }
    // SAFETY: the struct holds integers and unions of them, so any bytes make one.
    let copy: CUDA_MEMCPY3D_BATCH_OP = unsafe {
        bytes
            .as_ptr()
            .cast::<CUDA_MEMCPY3D_BATCH_OP>()
            .read_unaligned()
    };
    let pointer = CUmemcpy3DOperandType_enum::CU_MEMCPY_OPERAND_TYPE_POINTER;
    let addresses = [copy.dst, copy.src].map(|side| match side.type_ == pointer {
        // SAFETY: `type_` says that the union holds `ptr`.
        true => unsafe { side.op.ptr.ptr },
        false => 0,
    });
    // Elements are bytes if neither side is an array; the element size of an array is not known
    // here.
    let linear = copy.src.type_ == pointer && copy.dst.type_ == pointer;
    let (row, rows, slices) = (
        copy.extent.width as u64,
        copy.extent.height as u64,
        copy.extent.depth as u64,
    );
    if !linear || rows.saturating_mul(slices) > MOST_ROWS {
        return Some(Sides {
            addresses,
            is_left_out: true,
            ..Sides::default()
        });
    }
    let side = |address: u64, length: usize, height: usize| {
        let pitch = if length == 0 { row } else { length as u64 };
        let height = if height == 0 { rows } else { height as u64 };
        is_host(address).then_some(Rows {
            address,
            row,
            pitch,
            rows,
            slice_pitch: pitch.wrapping_mul(height),
            slices,
        })
    };
    // SAFETY: `type_` says that the union holds `ptr`.
    let (source, target) = unsafe { (copy.src.op.ptr, copy.dst.op.ptr) };
    Some(Sides {
        addresses,
        target: side(target.ptr, target.rowLength, target.layerHeight),
        source: side(source.ptr, source.rowLength, source.layerHeight),
        during_call: copy.srcAccessOrder.0 == DURING_CALL,
        is_left_out: false,
    })
}

/// What the copies of a batch do to memory.
pub(super) fn operands(frame: &Frame, op: CopyOp) -> Vec<Operand> {
    let of_copy = |sides: Sides| {
        let [target, source] = sides.addresses;
        let write = match sides.target {
            Some(_) => Access::Readback(0),
            None => Access::Write(0),
        };
        // What it reads in host memory is recorded with it.
        let read = sides.source.is_none().then_some((source, Access::Read));
        read.into_iter().chain([(target, write)])
    };
    copies(frame, op).into_iter().flat_map(of_copy).collect()
}

/// What the operations of a `cuStreamBatchMemOp` do to memory.
pub(super) fn memory_operations(frame: &Frame) -> Vec<Operand> {
    use CUstreamBatchMemOpType_enum as Type;
    let [_, count, list, ..] = frame.words;
    let operation = |index: u64| {
        let at = list.checked_add(index * size_of::<CUstreamBatchMemOpParams>() as u64)?;
        let mut kind = [0; 4];
        // The members of waits and writes begin alike.
        let address = offset_of!(
            CUstreamBatchMemOpParams_union_CUstreamMemOpWriteValueParams_st,
            address
        );
        let value = offset_of!(
            CUstreamBatchMemOpParams_union_CUstreamMemOpWriteValueParams_st,
            __bindgen_anon_1
        );
        let [address, value] =
            [address, value].map(|offset| memory::word(at.checked_add(offset as u64)?));
        let operation = (address?, value?);
        memory::read_all(at, &mut kind).then_some((Type(u32::from_ne_bytes(kind)), operation))
    };
    let operations = (0..u64::from(count as u32).min(MOST_COPIES)).map_while(operation);
    let operands = operations.filter_map(|(kind, (address, value))| match kind {
        Type::CU_STREAM_MEM_OP_WAIT_VALUE_32 | Type::CU_STREAM_MEM_OP_WAIT_VALUE_64 => {
            Some((address, Access::Await))
        }
        Type::CU_STREAM_MEM_OP_WRITE_VALUE_32 => Some((address, Access::Value(value, 4))),
        Type::CU_STREAM_MEM_OP_WRITE_VALUE_64 => Some((address, Access::Value(value, 8))),
        _ => None,
    });
    operands.collect()
}

/// Writes the host bytes that all copies read, one after the other. Without any, a snapshot that
/// has no bytes says that some may have been left out.
pub(super) fn put_sources(draft: &mut Draft<'_>, frame: &Frame, op: CopyOp) -> Option<()> {
    let copies = copies(frame, op);
    let sources = copies.iter().filter_map(|sides| sides.source);
    let sources: Vec<Rows> = sources.collect();
    let direction = Direction::ToDevice;
    let (parameter, field) = (1, field::HOST_BYTES);
    let lacks_host_memory =
        |sides: &Sides| sides.is_left_out && sides.addresses.into_iter().any(is_host);
    match sources.as_slice() {
        [only] => snapshot::payload(draft, parameter, field, only, direction),
        [_, ..] => snapshot::payload(draft, parameter, field, &*sources, direction),
        [] if count_of(frame, op) > MOST_COPIES || copies.iter().any(lacks_host_memory) => {
            snapshot::unreadable(draft, parameter, field)
        }
        [] => Some(()),
    }
}

/// Adds a readback for each copy to host memory, or notes its bytes if it is complete.
pub(super) fn enqueued(thread: &Thread, frame: &Frame, op: CopyOp) {
    for sides in copies(frame, op) {
        if let Some(target) = sides.target {
            async_readback::add_one_of_several(thread, frame, target, sides.during_call);
        }
    }
}
