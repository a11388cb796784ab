//! CUDA arrays. Their bytes are rows without gaps.

use cutape_driver::types::CUDA_ARRAY3D_DESCRIPTOR;

use crate::call::answer::{Answer, INVALID_VALUE};
use crate::object::pages::Pages;

/// An array.
pub(crate) struct Array {
    pub(crate) context: u64,
    pub(crate) device: i32,
    pub(crate) shape: CUDA_ARRAY3D_DESCRIPTOR,
    pub(crate) pages: Pages,
    /// Bytes.
    pub(crate) size: u64,
    /// The mipmapped array that it is a level of, or 0.
    pub(crate) levels: u64,
}

/// A mipmapped array: its levels, the largest first.
pub(crate) struct MipmappedArray {
    pub(crate) context: u64,
    pub(crate) levels: Vec<u64>,
}

/// The bytes of an array, seen as planes of rows.
pub(crate) struct Layout {
    pub(crate) base: u64,
    /// Bytes of a row.
    pub(crate) row: u64,
    /// Rows of a plane.
    pub(crate) rows: u64,
    pub(crate) planes: u64,
}

impl Array {
    /// Bytes of an element.
    pub(crate) fn element(&self) -> u64 {
        element_bytes(self.shape.Format.0, self.shape.NumChannels).unwrap_or(1)
    }

    /// Whether surfaces may be made of it (`CUDA_ARRAY3D_SURFACE_LDST`).
    pub(crate) fn is_for_surfaces(&self) -> bool {
        self.shape.Flags & 2 != 0
    }

    pub(crate) fn layout(&self) -> Layout {
        Layout {
            base: self.pages.base(),
            row: self.shape.Width as u64 * self.element(),
            rows: self.shape.Height.max(1) as u64,
            planes: self.shape.Depth.max(1) as u64,
        }
    }
}

/// Bytes of an element of a `CUarray_format` with that many channels; the plain formats only.
pub(crate) fn element_bytes(format: u32, channels: u32) -> Answer<u64> {
    let channel = match format {
        0x01 | 0x08 => 1,
        0x02 | 0x09 | 0x10 => 2,
        0x03 | 0x0a | 0x20 => 4,
        _ => return Err(INVALID_VALUE),
    };
    match channels {
        1 | 2 | 4 => Ok(channel * u64::from(channels)),
        _ => Err(INVALID_VALUE),
    }
}
