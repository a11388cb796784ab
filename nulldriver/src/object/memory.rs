//! Linear memory, pools, and virtual memory.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use cutape_driver::types::{CUmemAllocationProp, CUmemLocation};

use crate::call::answer::{Answer, INVALID_DEVICE, INVALID_VALUE};
use crate::call::argument::{Argument, Call};
use crate::object::device::check_device;
use crate::object::shared_file::{IpcHandle, Physical, SharedFile};

/// What an allocation is, which decides how it may be used and freed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// `cuMemAlloc`, `cuMemAllocPitch`.
    Device,
    /// `cuMemAllocHost`, `cuMemHostAlloc`.
    Host,
    /// `cuMemAllocManaged`.
    Managed,
    /// `cuMemAllocAsync`; the pool.
    Pool(u64),
    /// A variable of a module.
    Global,
    /// `cuIpcOpenMemHandle`: memory of another process.
    Imported,
}

/// A piece of linear memory.
#[derive(Clone, Copy)]
pub(crate) struct Allocation {
    /// Bytes asked for.
    pub(crate) size: u64,
    pub(crate) purpose: Purpose,
    /// 0 for memory that outlives contexts.
    pub(crate) context: u64,
    pub(crate) device: i32,
    /// Where the bytes are.
    pub(crate) bytes: u64,
    pub(crate) flags: u32,
    /// `CU_POINTER_ATTRIBUTE_BUFFER_ID`.
    pub(crate) id: u64,
    pub(crate) sync_memops: bool,
}

/// Memory that `cuIpcOpenMemHandle` has opened.
pub(crate) struct Import {
    pub(crate) handle: IpcHandle,
    /// How often it was opened and not closed.
    pub(crate) references: u32,
}

/// Registered host memory.
#[derive(Clone, Copy)]
pub(crate) struct Registration {
    pub(crate) size: u64,
    pub(crate) flags: u32,
    pub(crate) context: u64,
}

/// A memory pool.
pub(crate) struct Pool {
    pub(crate) device: i32,
    pub(crate) is_default: bool,
    /// Attributes 1 to 3: which reuse is allowed.
    pub(crate) reuse: [u32; 3],
    pub(crate) release_threshold: u64,
    /// `USED_MEM_HIGH`, in bytes.
    pub(crate) high: u64,
    /// `CU_MEM_ACCESS_FLAGS` of other devices.
    pub(crate) peers: HashMap<i32, u32>,
    /// What other processes know it by, if it was created for that or imported.
    pub(crate) file: Option<SharedFile>,
}

impl Pool {
    pub(crate) fn new(device: i32, is_default: bool) -> Pool {
        Pool {
            device,
            is_default,
            reuse: [1; 3],
            release_threshold: 0,
            high: 0,
            peers: HashMap::new(),
            file: None,
        }
    }

    /// Whether another process created it.
    pub(crate) fn is_imported(&self) -> bool {
        self.file.as_ref().is_some_and(|file| !file.is_own())
    }
}

// CUmemLocationType.
pub(crate) const DEVICE: u32 = 1;
pub(crate) const HOST: u32 = 2;
pub(crate) const HOST_NUMA: u32 = 3;
pub(crate) const HOST_NUMA_CURRENT: u32 = 4;
/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
pub(crate) const FILE_DESCRIPTOR: u32 = 1;
/// `CU_MEM_ALLOCATION_TYPE_PINNED`.
pub(crate) const PINNED: u32 = 1;
/// `CU_MEM_ACCESS_FLAGS_PROT_READ`.
pub(crate) const READ: u32 = 1;
/// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`.
pub(crate) const READ_WRITE: u32 = 3;

/// `CU_DEVICE_INVALID`: no location.
pub(crate) const NOWHERE: i32 = -2;

/// A `CUmemLocation`; by value it takes one register.
#[derive(Clone, Copy)]
pub(crate) struct Location {
    kind: u32,
    id: i32,
}

impl Argument for Location {
    fn read(call: &Call, index: usize) -> Answer<Self> {
        const { assert!(size_of::<CUmemLocation>() == 8) };
        let [kind, id] = u64::read(call, index).map(|word| [word as u32, (word >> 32) as u32])?;
        Ok(Location {
            kind,
            id: id as i32,
        })
    }
}

impl From<CUmemLocation> for Location {
    fn from(location: CUmemLocation) -> Self {
        Location {
            kind: location.type_.0,
            id: location.id,
        }
    }
}

impl Location {
    /// As the older calls give it: a device, or `CU_DEVICE_CPU`.
    pub(crate) fn of_device(device: i32) -> Location {
        Location {
            kind: if device == -1 { HOST } else { DEVICE },
            id: device,
        }
    }

    pub(crate) fn check(self) -> Answer {
        match self.kind {
            DEVICE => check_device(self.id),
            HOST | HOST_NUMA_CURRENT => Ok(()),
            // One NUMA node.
            HOST_NUMA if self.id == 0 => Ok(()),
            HOST_NUMA => Err(INVALID_DEVICE),
            _ => Err(INVALID_VALUE),
        }
    }

    /// The device, or -1 for the host.
    pub(crate) fn device(self) -> i32 {
        if self.kind == DEVICE { self.id } else { -1 }
    }
}

/// Advice given to a managed allocation.
#[derive(Clone, Copy)]
pub(crate) struct Advice {
    pub(crate) read_mostly: bool,
    pub(crate) preferred: i32,
    pub(crate) prefetched: i32,
}

impl Default for Advice {
    fn default() -> Self {
        Advice {
            read_mostly: false,
            preferred: NOWHERE,
            prefetched: NOWHERE,
        }
    }
}

/// A handle of `cuMemCreate`.
pub(crate) struct MemoryHandle {
    pub(crate) memory: Arc<Physical>,
    pub(crate) properties: CUmemAllocationProp,
    pub(crate) references: u32,
}

/// Physical memory at an address.
pub(crate) struct Mapping {
    pub(crate) size: u64,
    pub(crate) memory: Arc<Physical>,
    pub(crate) handle: u64,
    pub(crate) properties: CUmemAllocationProp,
    /// `CU_MEM_ACCESS_FLAGS` of each device that was given any.
    pub(crate) devices: Vec<(i32, u32)>,
    /// The same for the host.
    pub(crate) host: u32,
}

/// Where physical memory is: a device's number, or `None` for the host.
pub(crate) fn device_of(properties: &CUmemAllocationProp) -> Option<i32> {
    let location = properties.location;
    (location.type_.0 == DEVICE).then_some(location.id)
}

/// What kind of memory an address lies in, as far as calls wait for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// Host memory that the driver does not know.
    Pageable,
    /// Page-locked host memory: allocated or registered.
    Pinned,
    Managed,
    Device,
}

impl Place {
    pub(crate) fn is_host(self) -> bool {
        matches!(self, Place::Pageable | Place::Pinned)
    }
}

/// Bytes of this process that back a range of the program's addresses.
#[derive(Clone, Copy)]
pub(crate) struct Segment {
    pub(crate) bytes: u64,
    pub(crate) size: u64,
    /// The program has the same bytes at this address.
    pub(crate) is_shared: bool,
}

/// What a range of addresses is.
pub(crate) enum AddressRange {
    /// Memory that the driver knows, in order of address.
    Known(Vec<Segment>),
    /// Unknown to the driver: ordinary memory of the program, or a wild pointer.
    Unknown,
    /// In the driver's address space, but not within one living allocation.
    Invalid,
}

impl Segment {
    /// Bytes that only the driver has.
    pub(crate) fn own(bytes: u64, size: u64) -> Segment {
        Segment {
            bytes,
            size,
            is_shared: false,
        }
    }

    /// The bytes of a slice.
    pub(crate) fn of(bytes: &[u8]) -> Segment {
        Segment::own(bytes.as_ptr() as u64, bytes.len() as u64)
    }

    /// The bytes of a slice that is written.
    pub(crate) fn of_mut(bytes: &mut [u8]) -> Segment {
        Segment::own(bytes.as_mut_ptr() as u64, bytes.len() as u64)
    }
}

/// Copies between lists of segments of the same total size. Where they overlap, the result is
/// unspecified, as on the device.
pub(crate) fn move_bytes(target: &[Segment], source: &[Segment]) {
    let mut targets = target.iter().copied();
    let mut to = Segment::own(0, 0);
    for piece in source {
        let mut from = *piece;
        while from.size > 0 {
            if to.size == 0 {
                let Some(next) = targets.next() else { return };
                to = next;
                continue;
            }
            let size = from.size.min(to.size);
            // SAFETY: known segments lie in memory of the driver, which lives until the work that
            // was enqueued before its end is complete (`State::retire`); host segments are the
            // program's own pointers, for which the C API makes it responsible.
            unsafe { move_part(from.bytes, to.bytes, size) };
            for side in [&mut from, &mut to] {
                side.bytes += size;
                side.size -= size;
            }
        }
    }
}

/// Copies bytes, which may overlap. A number is stored once: memmove stores four bytes twice, and the
/// second store would undo what a program writes that polls them.
///
/// # Safety
/// Both addresses have that many bytes.
unsafe fn move_part(from: u64, to: u64, size: u64) {
    let (source, target) = (from as *const u8, to as *mut u8);
    // SAFETY: the caller's; an address of aligned numbers is one of atomic numbers.
    unsafe {
        match size {
            4 if to.is_multiple_of(4) => {
                let number = source.cast::<u32>().read_unaligned();
                AtomicU32::from_ptr(target.cast()).store(number, Ordering::Release);
            }
            8 if to.is_multiple_of(8) => {
                let number = source.cast::<u64>().read_unaligned();
                AtomicU64::from_ptr(target.cast()).store(number, Ordering::Release);
            }
            _ => std::ptr::copy(source, target, size as usize),
        }
    }
}

/// Repeats the unit over the segments. Segments are multiples of 2 MiB but for the ends, so no unit
/// straddles two.
pub(crate) fn fill_bytes(segments: &[Segment], unit: &[u8]) {
    for segment in segments {
        // SAFETY: the segment lies in memory of the driver, which lives until the work that was
        // enqueued before its end is complete (`State::retire`).
        let bytes = unsafe {
            std::slice::from_raw_parts_mut(segment.bytes as *mut u8, segment.size as usize)
        };
        if unit.iter().all(|byte| *byte == unit[0]) {
            bytes.fill(unit[0]);
            continue;
        }
        for place in bytes.chunks_mut(unit.len()) {
            place.copy_from_slice(&unit[..place.len()]);
        }
    }
}
