//! Arrays: their shapes, and their contents in host memory.

use cutape_registry::id;
use cutape_registry::layout::{offset_of, size_of};

use crate::api::buffer::{Buffer, set_word, word};
use crate::api::{Api, Code};
use crate::observation::job::ArrayShape;

const DESCRIPTOR: &str = "CUDA_ARRAY3D_DESCRIPTOR";
const COPY: &str = "CUDA_MEMCPY3D";
/// CUDA_ARRAY3D_LAYERED, _CUBEMAP: the depth counts layers or faces, which all levels have.
const LAYERED: u32 = 0x01 | 0x04;
/// CUDA_ARRAY3D_SPARSE, _DEFERRED_MAPPING: the program maps memory into the array.
const MAPPED: u32 = 0x40 | 0x80;
/// CUmemorytype.
const HOST: u64 = 1;
const ARRAY: u64 = 3;
/// More levels than an array of 2^31 elements can have.
const MOST_LEVELS: u32 = 32;

impl ArrayShape {
    /// Bytes of an element; `None` for formats whose elements are blocks or planes.
    pub(crate) fn element_bytes(&self) -> Option<u64> {
        // CUarray_format: integers and floating-point numbers, then the normalised integers, whose
        // number of channels is in the format.
        let bytes = match self.format {
            0x01 | 0x08 => u64::from(self.channels),
            0x02 | 0x09 | 0x10 => 2 * u64::from(self.channels),
            0x03 | 0x0a | 0x20 => 4 * u64::from(self.channels),
            0xc0 | 0xc3 => 1,
            0xc1 | 0xc4 | 0xc6 | 0xc9 => 2,
            0xc2 | 0xc5 | 0xc7 | 0xca => 4,
            0xc8 | 0xcb => 8,
            _ => return None,
        };
        (bytes > 0).then_some(bytes)
    }

    /// Bytes of a row, rows and planes of a level.
    pub(crate) fn extent(&self, level: u32) -> [u64; 3] {
        let at_level = |size: u64| size.checked_shr(level).unwrap_or(0).max(1);
        let planes = match self.flags & LAYERED {
            0 => at_level(self.depth),
            _ => self.depth.max(1),
        };
        // The rows of a layered array of one dimension are 0.
        let row = at_level(self.width).saturating_mul(self.element_bytes().unwrap_or(0));
        [row, at_level(self.height), planes]
    }

    fn level_bytes(&self, level: u32) -> u64 {
        let bytes = self.extent(level).into_iter().reduce(u64::saturating_mul);
        bytes.unwrap_or(0)
    }

    /// Bytes of all levels.
    pub(crate) fn bytes(&self) -> u64 {
        let levels = (0..self.levels.max(1)).map(|level| self.level_bytes(level));
        levels.fold(0, u64::saturating_add)
    }

    /// The level that begins at an offset of the contents, and its bytes.
    fn level_at(&self, offset: u64) -> Option<(u32, u64)> {
        let mut start = 0;
        for level in 0..self.levels.max(1) {
            let bytes = self.level_bytes(level);
            if start == offset {
                return Some((level, bytes));
            }
            start += bytes;
        }
        None
    }

    /// Bytes of the level that begins at an offset of the contents.
    pub(crate) fn bytes_at(&self, offset: u64) -> u64 {
        self.level_at(offset).map_or(0, |(_, bytes)| bytes)
    }
}

impl Api {
    /// The shape of a live array, or mipmapped array.
    ///
    /// # Errors
    /// Why its contents cannot be read, in a phrase.
    pub(crate) fn array_shape(&self, array: u64, is_mipmapped: bool) -> Result<ArrayShape, String> {
        let refused = |code| {
            let code = crate::api::result_name(code);
            format!("asking for the shape of an array returned {code}")
        };
        let levels = match is_mipmapped {
            // There is no function that tells their number.
            true => (0..MOST_LEVELS)
                .take_while(|&level| self.level(array, level).is_ok())
                .count() as u32,
            false => 0,
        };
        let largest = match is_mipmapped {
            true => self.level(array, 0).map_err(refused)?,
            false => array,
        };
        let descriptor = Buffer::zeroed(size_of(DESCRIPTOR));
        let args = [descriptor.address(), largest];
        self.own(id::cuArray3DGetDescriptor_v2, &args)
            .map_err(refused)?;
        let at = |member| word(descriptor.bytes(), offset_of(DESCRIPTOR, member));
        let shape = ArrayShape {
            width: at("Width"),
            height: at("Height"),
            depth: at("Depth"),
            format: at("Format") as u32,
            channels: at("NumChannels") as u32,
            flags: at("Flags") as u32,
            levels,
        };
        if shape.flags & MAPPED != 0 {
            return Err("the program maps memory into an array".into());
        }
        if shape.element_bytes().is_none() {
            return Err(format!("an array has the format {:#x}", shape.format));
        }
        Ok(shape)
    }

    fn level(&self, array: u64, level: u32) -> Result<u64, Code> {
        self.get(id::cuMipmappedArrayGetLevel, &[array, u64::from(level)])
    }

    /// Whether a live array is a level of a live mipmapped array.
    pub(crate) fn is_level_of(&self, array: u64, mipmapped: u64, shape: &ArrayShape) -> bool {
        let mut levels = 0..shape.levels;
        levels.any(|level| self.level(mipmapped, level) == Ok(array))
    }

    /// Reads the level of a live array whose contents begin at an offset.
    pub(crate) fn read_array(
        &self,
        array: u64,
        shape: &ArrayShape,
        offset: u64,
        bytes: &mut [u8],
    ) -> Result<(), Code> {
        let Some((level, _)) = shape.level_at(offset) else {
            return Ok(());
        };
        let source = match shape.levels {
            0 => array,
            _ => self.level(array, level)?,
        };
        let [row, rows, planes] = shape.extent(level);
        let mut copy = Buffer::zeroed(size_of(COPY));
        for (member, value) in [
            ("srcMemoryType", ARRAY),
            ("srcArray", source),
            ("dstMemoryType", HOST),
            ("dstHost", bytes.as_mut_ptr() as u64),
            ("dstPitch", row),
            ("dstHeight", rows),
            ("WidthInBytes", row),
            ("Height", rows),
            ("Depth", planes),
        ] {
            set_word(copy.bytes_mut(), offset_of(COPY, member), value);
        }
        self.own(id::cuMemcpy3D_v2, &[copy.address()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_follow_one_another() {
        let shape = |[width, height, depth]: [u64; 3], flags, levels| ArrayShape {
            width,
            height,
            depth,
            format: 0x20,
            channels: 2,
            flags,
            levels,
        };
        for (shape, levels) in [
            (shape([5, 0, 0], 0, 0), &[[40, 1, 1]][..]),
            (shape([5, 3, 0], 0, 0), &[[40, 3, 1]]),
            (shape([5, 3, 4], 0, 0), &[[40, 3, 4]]),
            (shape([5, 0, 4], 1, 0), &[[40, 1, 4]]),
            (shape([4, 4, 0], 0, 2), &[[32, 4, 1], [16, 2, 1]]),
            (shape([4, 1, 4], 0, 3), &[[32, 1, 4], [16, 1, 2], [8, 1, 1]]),
            (shape([4, 4, 6], 4, 2), &[[32, 4, 6], [16, 2, 6]]),
        ] {
            let mut offset = 0;
            for (level, &extent) in (0..).zip(levels) {
                assert_eq!(shape.extent(level), extent, "{shape:?}");
                let bytes = extent.iter().product();
                assert_eq!(shape.level_at(offset), Some((level, bytes)), "{shape:?}");
                offset += bytes;
            }
            assert_eq!(shape.bytes(), offset);
            assert_eq!(shape.level_at(offset), None);
        }
        for (format, channels, bytes) in [
            (0x01, 4, Some(4)),
            (0x10, 1, Some(2)),
            (0x03, 0, None),
            (0xc8, 4, Some(8)),
            (0x91, 4, None),
        ] {
            let shape = ArrayShape {
                format,
                channels,
                ..ArrayShape::default()
            };
            assert_eq!(shape.element_bytes(), bytes, "{format:#x}");
        }
    }
}
