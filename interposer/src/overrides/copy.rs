//! Copies whose host side the roles cannot describe: those that a struct describes, and those that
//! tell host from device by the address.

use cutape_driver::types::{
    CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUDA_MEMCPY3D_PEER, CUmemorytype, CUmemorytype_enum,
};
use cutape_format::layout::field;
use cutape_registry::{CopyShape, FUNCTIONS, Transfer};

use crate::file::rows::Rows;
use crate::hot::frame::Frame;
use crate::hot::recording::payload_policy;
use crate::hot::thread::{Draft, Thread};
use crate::process::memory;
use crate::queries::is_host;
use crate::{async_readback, snapshot};

/// One side of a copy: what kind of memory, and where.
struct Side {
    kind: CUmemorytype,
    host: u64,
    device: u64,
    offset: u64,
    pitch: u64,
    slice_pitch: u64,
}

impl Side {
    /// Its address, if this side is in host memory.
    fn host_address(&self) -> Option<u64> {
        let start = match self.kind {
            CUmemorytype_enum::CU_MEMORYTYPE_HOST => self.host,
            CUmemorytype_enum::CU_MEMORYTYPE_UNIFIED if is_host(self.device) => self.device,
            _ => return None,
        };
        (start != 0).then(|| start.wrapping_add(self.offset))
    }
}

struct Copy {
    source: Side,
    target: Side,
    row: u64,
    rows: u64,
    slices: u64,
}

impl Copy {
    fn memory(&self, side: &Side) -> Option<Rows> {
        let pitch = if side.pitch == 0 {
            self.row
        } else {
            side.pitch
        };
        Some(Rows {
            address: side.host_address()?,
            row: self.row,
            pitch,
            rows: self.rows,
            slice_pitch: side.slice_pitch,
            slices: self.slices,
        })
    }
}

/// Reads a struct of the program; `None` if it cannot be read.
///
/// # Safety
/// Every bit pattern is a `T`.
unsafe fn read<T: Default>(address: u64) -> Option<T> {
    let mut value = T::default();
    // SAFETY: `value` is valid for its size, and any bytes make a `T`, as the caller says.
    let bytes =
        unsafe { core::slice::from_raw_parts_mut((&raw mut value).cast::<u8>(), size_of::<T>()) };
    memory::read_all(address, bytes).then_some(value)
}

/// Describes a volume's copy; the two structs differ in members that do not matter here.
macro_rules! volume {
    ($copy:expr) => {{
        let copy = $copy;
        let side =
            |kind, host: u64, device, x: usize, y: usize, z: usize, pitch: usize, height: usize| {
                let (pitch, height) = (pitch as u64, height as u64);
                let slice_pitch = pitch.wrapping_mul(height);
                let offset = (z as u64)
                    .wrapping_mul(slice_pitch)
                    .wrapping_add((y as u64).wrapping_mul(pitch))
                    .wrapping_add(x as u64);
                Side {
                    kind,
                    host,
                    device,
                    offset,
                    pitch,
                    slice_pitch,
                }
            };
        Copy {
            source: side(
                copy.srcMemoryType,
                copy.srcHost as u64,
                copy.srcDevice,
                copy.srcXInBytes,
                copy.srcY,
                copy.srcZ,
                copy.srcPitch,
                copy.srcHeight,
            ),
            target: side(
                copy.dstMemoryType,
                copy.dstHost as u64,
                copy.dstDevice,
                copy.dstXInBytes,
                copy.dstY,
                copy.dstZ,
                copy.dstPitch,
                copy.dstHeight,
            ),
            row: copy.WidthInBytes as u64,
            rows: copy.Height as u64,
            slices: copy.Depth as u64,
        }
    }};
}

fn describe(frame: &Frame, shape: CopyShape) -> Option<Copy> {
    let address = frame.word(0);
    // SAFETY: the structs hold integers and raw pointers only.
    Some(unsafe {
        match shape {
            CopyShape::Volume => volume!(read::<CUDA_MEMCPY3D>(address)?),
            CopyShape::PeerVolume => volume!(read::<CUDA_MEMCPY3D_PEER>(address)?),
            CopyShape::Plane => {
                let copy = read::<CUDA_MEMCPY2D>(address)?;
                let side = |kind, host: u64, device, x: usize, y: usize, pitch: usize| Side {
                    kind,
                    host,
                    device,
                    offset: (y as u64).wrapping_mul(pitch as u64).wrapping_add(x as u64),
                    pitch: pitch as u64,
                    slice_pitch: 0,
                };
                Copy {
                    source: side(
                        copy.srcMemoryType,
                        copy.srcHost as u64,
                        copy.srcDevice,
                        copy.srcXInBytes,
                        copy.srcY,
                        copy.srcPitch,
                    ),
                    target: side(
                        copy.dstMemoryType,
                        copy.dstHost as u64,
                        copy.dstDevice,
                        copy.dstXInBytes,
                        copy.dstY,
                        copy.dstPitch,
                    ),
                    row: copy.WidthInBytes as u64,
                    rows: copy.Height as u64,
                    slices: 1,
                }
            }
        }
    })
}

/// The host memory that a copy of a graph reads, and that which it writes.
pub(super) fn host_sides(copy: &CUDA_MEMCPY3D) -> [Option<Rows>; 2] {
    let copy = volume!(copy);
    [copy.memory(&copy.source), copy.memory(&copy.target)]
}

fn is_asynchronous(frame: &Frame) -> bool {
    FUNCTIONS
        .get(frame.index())
        .is_some_and(|function| function.stream.is_some())
}

/// The host memory that a described copy reads.
fn source(frame: &Frame, shape: CopyShape) -> Option<Rows> {
    let copy = describe(frame, shape)?;
    copy.memory(&copy.source)
}

/// The host memory that a described copy writes.
fn target(frame: &Frame, shape: CopyShape) -> Option<Rows> {
    let copy = describe(frame, shape)?;
    copy.memory(&copy.target)
}

/// The same for a copy of bytes from or to any address.
fn unified(frame: &Frame, address: u8, transfer: Transfer) -> Option<Rows> {
    let address = frame.word(address);
    is_host(address).then(|| Rows::flat(address, frame.word(transfer.bytes)))
}

/// Writes the bytes of host memory that is read, if there is any.
fn put_read(draft: &mut Draft<'_>, position: u8, rows: Option<Rows>) -> Option<()> {
    rows.map_or(Some(()), |rows| {
        snapshot::payload(
            draft,
            position,
            field::HOST_BYTES,
            &rows,
            payload_policy().0,
        )
    })
}

/// The same for host memory that was written, if the call has succeeded and copied before it
/// returned.
fn put_written(
    draft: &mut Draft<'_>,
    frame: &Frame,
    position: u8,
    rows: impl FnOnce() -> Option<Rows>,
) -> Option<()> {
    if !frame.succeeded() || is_asynchronous(frame) {
        return Some(());
    }
    rows().map_or(Some(()), |rows| {
        snapshot::payload(
            draft,
            position,
            field::HOST_BYTES,
            &rows,
            payload_policy().1,
        )
    })
}

/// Adds a readback for host memory that will be written, if the copy is asynchronous.
fn await_written(
    thread: &Thread,
    frame: &Frame,
    position: u8,
    rows: impl FnOnce() -> Option<Rows>,
) {
    if is_asynchronous(frame)
        && let Some(rows) = rows()
    {
        async_readback::add(thread, frame, position, field::HOST_BYTES, rows);
    }
}

pub(super) fn put_source(draft: &mut Draft<'_>, frame: &Frame, shape: CopyShape) -> Option<()> {
    put_read(draft, 0, source(frame, shape))
}

pub(super) fn enqueued(thread: &Thread, frame: &Frame, shape: CopyShape) {
    await_written(thread, frame, 0, || target(frame, shape));
}

pub(super) fn put_target(draft: &mut Draft<'_>, frame: &Frame, shape: CopyShape) -> Option<()> {
    put_written(draft, frame, 0, || target(frame, shape))
}

pub(super) fn put_unified_source(
    draft: &mut Draft<'_>,
    frame: &Frame,
    transfer: Transfer,
) -> Option<()> {
    let rows = unified(frame, transfer.source, transfer);
    put_read(draft, transfer.source, rows)
}

pub(super) fn enqueued_unified(thread: &Thread, frame: &Frame, transfer: Transfer) {
    let rows = || unified(frame, transfer.target, transfer);
    await_written(thread, frame, transfer.target, rows);
}

pub(super) fn put_unified_target(
    draft: &mut Draft<'_>,
    frame: &Frame,
    transfer: Transfer,
) -> Option<()> {
    let rows = || unified(frame, transfer.target, transfer);
    put_written(draft, frame, transfer.target, rows)
}
