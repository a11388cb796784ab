//! Copies whose host side the roles cannot describe: struct-described ones, and those that tell host from device by address.

use cutape_driver::types::{
    CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUDA_MEMCPY3D_PEER, CUmemorytype, CUmemorytype_enum,
    CUpointer_attribute_enum,
};
use cutape_format::layout::field;
use cutape_format::write::Record;
use cutape_registry::{FUNCTIONS, id};

use crate::call::{Frame, payload_policy};
use crate::thread::Thread;
use crate::trace_file::Rows;
use crate::{driver, memory, pending, snapshot};

/// Which struct describes the copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Plane,
    Volume,
    PeerVolume,
}

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
    /// Where the host bytes are, if this side is in host memory.
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

/// Whether an address that may be of any kind is the host's: the driver knows which are not.
pub(super) fn is_host(address: u64) -> bool {
    if address == 0 {
        return false;
    }
    let mut kind = 0u32;
    let attribute = CUpointer_attribute_enum::CU_POINTER_ATTRIBUTE_MEMORY_TYPE.0;
    let words = [(&raw mut kind) as u64, u64::from(attribute), address, 0];
    // SAFETY: `kind` is valid for writing an unsigned int.
    let answer = unsafe { driver::call(id::cuPointerGetAttribute, words) };
    answer != Some(0) || kind == CUmemorytype_enum::CU_MEMORYTYPE_HOST.0
}

/// Reads a struct of the program's; `None` if it cannot be read.
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

fn describe(frame: &Frame, shape: Shape) -> Option<Copy> {
    let address = frame.words[0];
    // SAFETY: the structs hold integers and raw pointers only.
    Some(unsafe {
        match shape {
            Shape::Volume => volume!(read::<CUDA_MEMCPY3D>(address)?),
            Shape::PeerVolume => volume!(read::<CUDA_MEMCPY3D_PEER>(address)?),
            Shape::Plane => {
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
pub(crate) fn host_sides(copy: &CUDA_MEMCPY3D) -> [Option<Rows>; 2] {
    let copy = volume!(copy);
    [copy.memory(&copy.source), copy.memory(&copy.target)]
}

fn is_asynchronous(frame: &Frame) -> bool {
    FUNCTIONS
        .get(frame.function as usize)
        .is_some_and(pending::is_asynchronous)
}

/// Puts the host rows that are copied from.
pub(super) fn before(record: &mut Record<'_>, frame: &Frame, shape: Shape) -> Option<()> {
    let Some(copy) = describe(frame, shape) else {
        return Some(());
    };
    match copy.memory(&copy.source) {
        Some(rows) => snapshot::payload(record, 0, field::HOST_BYTES, &rows, payload_policy().0),
        None => Some(()),
    }
}

/// Notes that the host rows will be written.
pub(super) fn enqueued(state: &Thread, frame: &Frame, shape: Shape) {
    if is_asynchronous(frame)
        && let Some(copy) = describe(frame, shape)
        && let Some(rows) = copy.memory(&copy.target)
    {
        pending::enqueued(state, frame, 0, field::HOST_BYTES, rows);
    }
}

/// Puts the host rows that have been written.
pub(super) fn after(record: &mut Record<'_>, frame: &Frame, shape: Shape) -> Option<()> {
    if frame.result as i32 != 0 || is_asynchronous(frame) {
        return Some(());
    }
    let Some(copy) = describe(frame, shape) else {
        return Some(());
    };
    match copy.memory(&copy.target) {
        Some(rows) => snapshot::payload(record, 0, field::HOST_BYTES, &rows, payload_policy().1),
        None => Some(()),
    }
}

const TARGET: usize = 0;
const SOURCE: usize = 1;
const LENGTH: usize = 2;

/// Puts the bytes that `cuMemcpy` copies from, if they are the host's.
pub(super) fn before_unified(record: &mut Record<'_>, frame: &Frame) -> Option<()> {
    if !is_host(frame.words[SOURCE]) {
        return Some(());
    }
    let rows = Rows::flat(frame.words[SOURCE], frame.words[LENGTH]);
    snapshot::payload(
        record,
        SOURCE as u8,
        field::HOST_BYTES,
        &rows,
        payload_policy().0,
    )
}

/// Notes that host bytes will be written by `cuMemcpyAsync`.
pub(super) fn enqueued_unified(state: &Thread, frame: &Frame) {
    if is_asynchronous(frame) && is_host(frame.words[TARGET]) {
        let rows = Rows::flat(frame.words[TARGET], frame.words[LENGTH]);
        pending::enqueued(state, frame, TARGET as u8, field::HOST_BYTES, rows);
    }
}

/// Puts the host bytes that `cuMemcpy` has written.
pub(super) fn after_unified(record: &mut Record<'_>, frame: &Frame) -> Option<()> {
    if frame.result as i32 != 0 || is_asynchronous(frame) || !is_host(frame.words[TARGET]) {
        return Some(());
    }
    let rows = Rows::flat(frame.words[TARGET], frame.words[LENGTH]);
    snapshot::payload(
        record,
        TARGET as u8,
        field::HOST_BYTES,
        &rows,
        payload_policy().1,
    )
}
