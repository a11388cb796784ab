//! Batches of copies, whose addresses may be the host's or the device's: each is told by itself.

use cutape_driver::types::{CUDA_MEMCPY3D_BATCH_OP, CUmemcpy3DOperandType_enum};
use cutape_format::PayloadPolicy;
use cutape_format::layout::field;
use cutape_format::write::Record;

use super::copy::is_host;
use crate::call::{Frame, payload_policy};
use crate::thread::Thread;
use crate::trace_file::Rows;
use crate::{memory, pending, snapshot};

/// How a batch is described.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Arrays of targets, sources and sizes, and a count.
    Lines,
    /// A count and an array of structs.
    Boxes,
}

/// More copies in one batch are not looked at.
const MOST_COPIES: u64 = 1 << 16;
/// Most rows of one copy between pointers; more make no sense.
const MOST_ROWS: u64 = 1 << 26;

/// A copy's two sides, where they are the host's.
struct Sides {
    target: Option<Rows>,
    source: Option<Rows>,
}

/// What the batch copies, in its order; nothing where its description cannot be read.
fn copies(frame: &Frame, shape: Shape) -> Vec<Sides> {
    let count = match shape {
        Shape::Lines => frame.words[3],
        Shape::Boxes => frame.words[0],
    };
    if count > MOST_COPIES {
        return Vec::new();
    }
    (0..count)
        .map_while(|index| match shape {
            Shape::Lines => line(frame, index),
            Shape::Boxes => volume(frame.words[1], index),
        })
        .collect()
}

fn line(frame: &Frame, index: u64) -> Option<Sides> {
    let word = |array: usize| memory::word(frame.words[array].checked_add(index * 8)?);
    let (target, source, size) = (word(0)?, word(1)?, word(2)?);
    let side = |address| is_host(address).then(|| Rows::flat(address, size));
    Some(Sides {
        target: side(target),
        source: side(source),
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
    // Elements are bytes where neither side is an array; the length of another's elements is not known here.
    let linear = copy.src.type_ == pointer && copy.dst.type_ == pointer;
    let (row, rows, slices) = (
        copy.extent.width as u64,
        copy.extent.height as u64,
        copy.extent.depth as u64,
    );
    if !linear || rows.saturating_mul(slices) > MOST_ROWS {
        return Some(Sides {
            target: None,
            source: None,
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
        target: side(target.ptr, target.rowLength, target.layerHeight),
        source: side(source.ptr, source.rowLength, source.layerHeight),
    })
}

/// Puts the host bytes that all copies read, one after the other.
pub(super) fn before(record: &mut Record<'_>, frame: &Frame, shape: Shape) -> Option<()> {
    let sources: Vec<Rows> = copies(frame, shape)
        .into_iter()
        .filter_map(|sides| sides.source)
        .collect();
    if sources.is_empty() {
        return Some(());
    }
    let total = sources
        .iter()
        .fold(0u64, |sum, rows| sum.saturating_add(rows.length()));
    if let [only] = sources.as_slice() {
        return snapshot::payload(record, 1, field::HOST_BYTES, only, payload_policy().0);
    }
    let mut bytes: Vec<u8> = Vec::new();
    if payload_policy().0 != PayloadPolicy::None {
        let Some(()) = gather(&sources, total, &mut bytes) else {
            return snapshot::unreadable(record, 1, field::HOST_BYTES);
        };
    }
    // Without payloads only the length is looked at.
    let rows = Rows::flat(bytes.as_ptr() as u64, total);
    snapshot::payload(record, 1, field::HOST_BYTES, &rows, payload_policy().0)
}

/// All rows without gaps; `None` if they cannot be read, or there is no memory for them.
fn gather(sources: &[Rows], total: u64, bytes: &mut Vec<u8>) -> Option<()> {
    bytes.try_reserve_exact(usize::try_from(total).ok()?).ok()?;
    for (address, length) in sources.iter().flat_map(Rows::pieces) {
        let start = bytes.len();
        bytes.resize(start + usize::try_from(length).ok()?, 0);
        if !memory::read_all(address, bytes.get_mut(start..)?) {
            return None;
        }
    }
    Some(())
}

/// Notes that host memory will be written, copy after copy.
pub(super) fn enqueued(state: &Thread, frame: &Frame, shape: Shape) {
    for target in copies(frame, shape)
        .into_iter()
        .filter_map(|sides| sides.target)
    {
        pending::enqueued(state, frame, 0, field::HOST_BYTES, target);
    }
}
