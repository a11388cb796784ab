//! Tensor Map Object Management: the documented conditions are checked; the descriptor is an
//! encoding of this driver's own.

use crate::call::answer::{Answer, INVALID_VALUE, invalid_if};
use crate::call::argument::{In, Out, arguments};
use crate::call::entry::entries;
use crate::player;

entries! {
    cuTensorMapEncodeTiled: tiled;
    cuTensorMapEncodeIm2col:
        |tensor: Tensor, lower: In<i32>, upper: In<i32>, channels: u32, pixels: u32, steps: In<u32>,
         modes: Modes|
        im2col(tensor, [lower, upper], channels, pixels, steps, modes);
    // Wide modes need compute capability 10; this device is older.
    cuTensorMapEncodeIm2colWide: || Err(INVALID_VALUE);
    cuTensorMapReplaceAddress: replace_address;
}

/// A descriptor: 128 bytes, aligned to 64.
type Map = [u64; 16];

/// First word of a descriptor that was encoded here.
const MARK: u64 = 0x6375_7461_7065_0001;
const ADDRESS: usize = 1;
const MAX_DIMENSIONS: usize = 5;
/// Longest side, and the first stride that is too long.
const LONGEST_SIDE: u64 = 1 << 32;
const STRIDE_LIMIT: u64 = 1 << 40;

/// Bytes of an element of a `CUtensorMapDataType`.
fn element_bytes(data_type: u32) -> Answer<u64> {
    Ok(match data_type {
        0 => 1,                               // UINT8
        1 | 6 | 9 => 2,                       // UINT16, FLOAT16, BFLOAT16
        2 | 3 | 7 | 10 | 11 | 12 => 4,        // UINT32, INT32, FLOAT32 and its relatives
        4 | 5 | 8 => 8,                       // UINT64, INT64, FLOAT64
        13..=15 => return Err(INVALID_VALUE), // packed formats of later devices
        _ => return Err(INVALID_VALUE),
    })
}

arguments! {
    /// The parameters with which all encodings begin.
    struct Tensor {
        map: Out<Map>,
        data_type: u32,
        rank: usize,
        address: u64,
        sides: In<u64>,
        strides: In<u64>,
    }
}

arguments! {
    /// The parameters with which they end.
    struct Modes {
        interleave: u32,
        swizzle: u32,
        promotion: u32,
        fill: u32,
    }
}

impl Tensor {
    /// Checks what all encodings have in common, and returns the first words of the descriptor.
    fn check(&self, steps: In<u32>, modes: &Modes) -> Answer<Vec<u64>> {
        self.map.check()?;
        invalid_if(!self.map.address().is_multiple_of(64))?;
        element_bytes(self.data_type)?;
        let rank = self.rank;
        let least = if modes.interleave == 0 { 1 } else { 3 };
        // CU_TENSOR_MAP_INTERLEAVE_32B requires an alignment of 32 bytes.
        let alignment = if modes.interleave == 2 { 32 } else { 16 };
        let is_known =
            modes.interleave <= 2 && modes.swizzle <= 6 && modes.promotion <= 3 && modes.fill <= 1;
        let is_ranked = (least..=MAX_DIMENSIONS).contains(&rank);
        let is_aligned = self.address.is_multiple_of(alignment);
        invalid_if(!is_ranked || !is_known || !is_aligned)?;
        // Filling with NaN is for floating point only.
        let is_float = matches!(self.data_type, 6..=12);
        invalid_if(modes.fill == 1 && !is_float)?;
        let sides = self.sides.list(rank)?;
        let strides = self.strides.list(rank - 1)?;
        let steps = steps.list(rank)?;
        let is_stride = |&stride: &u64| stride.is_multiple_of(alignment) && stride < STRIDE_LIMIT;
        let is_valid = sides.iter().all(|side| (1..=LONGEST_SIDE).contains(side))
            && strides.iter().all(is_stride)
            && steps.iter().all(|step| (1..=8).contains(step));
        invalid_if(!is_valid)?;
        let shape = u64::from(self.data_type) << 32 | rank as u64;
        let modes = u64::from(modes.interleave)
            | u64::from(modes.swizzle) << 8
            | u64::from(modes.promotion) << 16
            | u64::from(modes.fill) << 24;
        let mut words = vec![MARK, self.address, shape, modes];
        words.extend(&sides);
        words.extend(&strides);
        words.extend(steps.iter().map(|&step| u64::from(step)));
        Ok(words)
    }
}

/// Folds the words into a descriptor: the first three as they are, the rest mixed so that each
/// counts.
fn write(map: Out<Map>, words: &[u64]) -> Answer {
    let mut encoded: Map = [0; 16];
    for (index, &word) in words.iter().enumerate() {
        if index < 3 {
            encoded[index] = word;
            continue;
        }
        let place = &mut encoded[3 + (index - 3) % 13];
        *place = place
            .rotate_left(17)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .wrapping_add(word);
    }
    map.set(encoded)
}

fn tiled(tensor: Tensor, boxes: In<u32>, steps: In<u32>, modes: Modes) -> Answer {
    let mut words = tensor.check(steps, &modes)?;
    let boxes = boxes.list(tensor.rank)?;
    let row = u64::from(boxes[0]) * element_bytes(tensor.data_type)?;
    // The inner side of the box is a multiple of 16 bytes, and no longer than the swizzle pattern.
    let widest = match (modes.interleave, modes.swizzle) {
        (0, 1) => 32,
        (0, 2) => 64,
        (0, 3..) => 128,
        _ => u64::MAX,
    };
    let is_valid = boxes.iter().all(|side| (1..=256).contains(side));
    let is_row_wrong = modes.interleave == 0 && (!row.is_multiple_of(16) || row > widest);
    invalid_if(!is_valid || is_row_wrong)?;
    words.extend(boxes.iter().map(|&side| u64::from(side)));
    write(tensor.map, &words)
}

fn im2col(
    tensor: Tensor,
    corners: [In<i32>; 2],
    channels: u32,
    pixels: u32,
    steps: In<u32>,
    modes: Modes,
) -> Answer {
    let mut words = tensor.check(steps, &modes)?;
    let is_sized = (1..=256).contains(&channels) && (1..=1024).contains(&pixels);
    invalid_if(tensor.rank < 3 || !is_sized)?;
    for corner in corners {
        words.extend(corner.list(tensor.rank - 2)?.iter().map(|&at| at as u64));
    }
    words.push(u64::from(channels) << 32 | u64::from(pixels));
    write(tensor.map, &words)
}

fn replace_address(map: Out<Map>, address: u64) -> Answer {
    let mut encoded = map.get()?;
    if player::is_playing() {
        // The map is the recorded one, and so is what this call makes of it.
        return Ok(());
    }
    invalid_if(encoded[0] != MARK || !address.is_multiple_of(16))?;
    encoded[ADDRESS] = address;
    map.set(encoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn element_sizes_follow_the_names() {
        let names = cutape_registry::enumeration("CUtensorMapDataType").expect("known");
        for (number, bytes) in (0..16).map(|number| (number, element_bytes(number).ok())) {
            let Some(name) = names.name_of(i64::from(number)) else {
                assert_eq!(bytes, None, "{number}");
                continue;
            };
            let expected = match name {
                name if name.contains("16U") => None,
                name if name.contains("64") => Some(8),
                name if name.contains("32") => Some(4),
                name if name.contains("16") => Some(2),
                _ => Some(1),
            };
            assert_eq!(bytes, expected, "{name}");
        }
    }
}
