//! Copies that a struct describes: which memory they name.

use cutape_registry::{CopyShape, MemoryType, layout};

use crate::file::rows::Rows;
use crate::hot::frame::Frame;
use crate::process::memory;
use crate::queries::{is_host, is_of_device};

/// Where the struct of a copy has its members.
struct Description {
    bytes: usize,
    source: Side,
    target: Side,
    row: usize,
    rows: usize,
    slices: usize,
}

struct Side {
    kind: usize,
    host: usize,
    device: usize,
    x: usize,
    y: usize,
    z: usize,
    pitch: usize,
    height: usize,
}

/// A member that the struct of a plane does not have; it reads as 0.
const ABSENT: usize = usize::MAX;

/// The members of one side; those that only a volume has are given by name.
macro_rules! side {
    ($structure:literal, $side:literal $(, $z:literal, $height:literal)?) => {
        Side {
            kind: layout::offset_of($structure, concat!($side, "MemoryType")),
            host: layout::offset_of($structure, concat!($side, "Host")),
            device: layout::offset_of($structure, concat!($side, "Device")),
            x: layout::offset_of($structure, concat!($side, "XInBytes")),
            y: layout::offset_of($structure, concat!($side, "Y")),
            z: [$(layout::offset_of($structure, concat!($side, $z)),)? ABSENT][0],
            pitch: layout::offset_of($structure, concat!($side, "Pitch")),
            height: [$(layout::offset_of($structure, concat!($side, $height)),)? ABSENT][0],
        }
    };
}

macro_rules! description {
    ($structure:literal $(, $depth:literal, $z:literal, $height:literal)?) => {
        Description {
            bytes: layout::size_of($structure),
            source: side!($structure, "src" $(, $z, $height)?),
            target: side!($structure, "dst" $(, $z, $height)?),
            row: layout::offset_of($structure, "WidthInBytes"),
            rows: layout::offset_of($structure, "Height"),
            slices: [$(layout::offset_of($structure, $depth),)? ABSENT][0],
        }
    };
}

static PLANE: Description = const { description!("CUDA_MEMCPY2D") };
static VOLUME: Description = const { description!("CUDA_MEMCPY3D", "Depth", "Z", "Height") };
static PEER_VOLUME: Description =
    const { description!("CUDA_MEMCPY3D_PEER", "Depth", "Z", "Height") };

/// Longer than any of these structs.
const LONGEST: usize = 256;

/// The struct of a copy.
pub(crate) struct Copy {
    description: &'static Description,
    bytes: [u8; LONGEST],
}

impl Copy {
    /// Reads the struct; `None` if it cannot be read.
    pub(crate) fn read(address: u64, shape: CopyShape) -> Option<Self> {
        let description = match shape {
            CopyShape::Plane => &PLANE,
            CopyShape::Volume => &VOLUME,
            CopyShape::PeerVolume => &PEER_VOLUME,
        };
        let mut bytes = [0; LONGEST];
        let target = bytes.get_mut(..description.bytes)?;
        memory::read_all(address, target).then_some(Self { description, bytes })
    }

    fn member(&self, offset: usize) -> u64 {
        let bytes = self.bytes.get(offset..).and_then(<[u8]>::first_chunk);
        bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }

    fn side(&self, end: End) -> &Side {
        match end {
            End::Source => &self.description.source,
            End::Target => &self.description.target,
        }
    }

    /// The memory that a side names, and whether it is of the host; `None` for arrays.
    pub(crate) fn memory(&self, end: End) -> Option<(u64, bool)> {
        let side = self.side(end);
        let device = self.member(side.device);
        // Enums have 32 bits.
        let (start, is_of_host) = match MemoryType::of(self.member(side.kind) & 0xffff_ffff)? {
            MemoryType::Host => (self.member(side.host), true),
            MemoryType::Device => (device, false),
            MemoryType::Unified => (device, is_host(device)),
            MemoryType::Array => return None,
        };
        (start != 0).then_some((start, is_of_host))
    }

    /// Where a side begins that is no array, and whether that is in memory of the host.
    pub(crate) fn start(&self, end: End) -> Option<(u64, bool)> {
        let (start, is_of_host) = self.memory(end)?;
        Some((start.wrapping_add(self.offset(self.side(end))), is_of_host))
    }

    /// How far behind that memory's start a side begins.
    fn offset(&self, side: &Side) -> u64 {
        let rows = self
            .member(side.z)
            .wrapping_mul(self.member(side.height))
            .wrapping_add(self.member(side.y));
        rows.wrapping_mul(self.member(side.pitch))
            .wrapping_add(self.member(side.x))
    }

    /// The host memory of a side; `None` if it is not in host memory.
    pub(crate) fn host_memory(&self, end: End) -> Option<Rows> {
        let side = self.side(end);
        let (start, _) = self.memory(end).filter(|&(_, is_of_host)| is_of_host)?;
        let row = self.member(self.description.row);
        let pitch = self.member(side.pitch);
        let slice_pitch = pitch.wrapping_mul(self.member(side.height));
        Some(Rows {
            address: start.wrapping_add(self.offset(side)),
            row,
            pitch: if pitch == 0 { row } else { pitch },
            rows: self.member(self.description.rows),
            slice_pitch,
            slices: match self.description.slices {
                ABSENT => 1,
                offset => self.member(offset),
            },
        })
    }
}

/// One side of a copy.
#[derive(Clone, Copy)]
pub(crate) enum End {
    Source,
    Target,
}

/// Whether a copy that a struct describes has both sides in memory of the device; true if the struct
/// cannot be read.
pub(crate) fn is_within_device(frame: &Frame, shape: CopyShape) -> bool {
    let copy = Copy::read(frame.word(0), shape);
    let sides = [End::Source, End::Target].map(|end| copy.as_ref()?.memory(end));
    sides
        .iter()
        .flatten()
        .all(|&(start, _)| is_of_device(start))
}

/// The host memory that a copy of a graph reads, and that which it writes, given its
/// `CUDA_MEMCPY3D`; `None` if that cannot be read.
pub(crate) fn host_sides(address: u64) -> Option<[Option<Rows>; 2]> {
    let copy = Copy::read(address, CopyShape::Volume)?;
    Some([End::Source, End::Target].map(|end| copy.host_memory(end)))
}
