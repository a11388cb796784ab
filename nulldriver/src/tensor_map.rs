//! Tensor Map Object Management: the documented conditions are checked; the descriptor is an encoding of our own.

use crate::answer::{Answer, INVALID_VALUE};
use crate::argument::{In, Out};
use crate::dispatch::{Entry, bind};

pub(crate) const ENTRIES: &[Entry] = &[
    ("cuTensorMapEncodeTiled", bind(encode_tiled)),
    ("cuTensorMapEncodeIm2col", bind(encode_im2col)),
    ("cuTensorMapEncodeIm2colWide", bind(encode_im2col_wide)),
    ("cuTensorMapReplaceAddress", bind(replace_address)),
];

/// A descriptor: 128 bytes, aligned to 64.
type Map = [u64; 16];

/// First word of a descriptor that was encoded here.
const MARK: u64 = 0x6375_7461_7065_0001;
const ADDRESS: usize = 1;
const MOST_DIMENSIONS: usize = 5;
/// Longest side, and first stride that is too long.
const LONGEST_SIDE: u64 = 1 << 32;
const STRIDE_LIMIT: u64 = 1 << 40;

/// Bytes of an element of a `CUtensorMapDataType`; of the packed ones, bytes of sixteen elements.
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

/// What all encodings have in common.
struct Common {
    words: Vec<u64>,
    rank: usize,
    element: u64,
}

#[allow(clippy::too_many_arguments)]
fn common(
    map: Out<Map>,
    data_type: u32,
    rank: u32,
    address: u64,
    sides: In<u64>,
    strides: In<u64>,
    steps: In<u32>,
    interleave: u32,
    enums: [u32; 3],
) -> Answer<Common> {
    map.check()?;
    if !map.address().is_multiple_of(64) {
        return Err(INVALID_VALUE);
    }
    let element = element_bytes(data_type)?;
    let rank = rank as usize;
    let least = if interleave == 0 { 1 } else { 3 };
    // CU_TENSOR_MAP_INTERLEAVE_32B asks for 32 bytes of alignment.
    let alignment = if interleave == 2 { 32 } else { 16 };
    let [swizzle, promotion, fill] = enums;
    let known = interleave <= 2 && swizzle <= 6 && promotion <= 3 && fill <= 1;
    if !(least..=MOST_DIMENSIONS).contains(&rank) || !known || !address.is_multiple_of(alignment) {
        return Err(INVALID_VALUE);
    }
    // Filling with NaN is for floating point only.
    if fill == 1 && !matches!(data_type, 6..=12) {
        return Err(INVALID_VALUE);
    }
    let sides = sides.list(rank)?;
    let strides = if rank > 1 {
        strides.list(rank - 1)?
    } else {
        Vec::new()
    };
    let steps = steps.list(rank)?;
    let sound = sides.iter().all(|&side| (1..=LONGEST_SIDE).contains(&side))
        && strides
            .iter()
            .all(|&stride| stride.is_multiple_of(alignment) && stride < STRIDE_LIMIT)
        && steps.iter().all(|&step| (1..=8).contains(&step));
    if !sound {
        return Err(INVALID_VALUE);
    }
    let mut words = vec![MARK, address, u64::from(data_type) << 32 | rank as u64];
    words.push(
        u64::from(interleave)
            | u64::from(swizzle) << 8
            | u64::from(promotion) << 16
            | u64::from(fill) << 24,
    );
    words.extend(&sides);
    words.extend(&strides);
    words.extend(steps.iter().map(|&step| u64::from(step)));
    Ok(Common {
        words,
        rank,
        element,
    })
}

/// Folds the words into a descriptor: the first three as they are, the rest mixed so that all of them count.
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

#[allow(clippy::too_many_arguments)]
fn encode_tiled(
    map: Out<Map>,
    data_type: u32,
    rank: u32,
    address: u64,
    sides: In<u64>,
    strides: In<u64>,
    boxes: In<u32>,
    steps: In<u32>,
    interleave: u32,
    swizzle: u32,
    promotion: u32,
    fill: u32,
) -> Answer {
    let enums = [swizzle, promotion, fill];
    let mut tensor = common(
        map, data_type, rank, address, sides, strides, steps, interleave, enums,
    )?;
    let boxes = boxes.list(tensor.rank)?;
    let row = u64::from(boxes[0]) * tensor.element;
    // The inner side of the box is whole 16-byte pieces, and no longer than the swizzle pattern.
    let widest = match (interleave, swizzle) {
        (0, 1) => 32,
        (0, 2) => 64,
        (0, 3..) => 128,
        _ => u64::MAX,
    };
    let sound = boxes.iter().all(|&side| (1..=256).contains(&side));
    if !sound || interleave == 0 && (!row.is_multiple_of(16) || row > widest) {
        return Err(INVALID_VALUE);
    }
    tensor
        .words
        .extend(boxes.iter().map(|&side| u64::from(side)));
    write(map, &tensor.words)
}

/// Pixels of a column and channels of a pixel.
fn check_pixels(channels: u32, pixels: u32) -> Answer {
    if (1..=256).contains(&channels) && (1..=1024).contains(&pixels) {
        Ok(())
    } else {
        Err(INVALID_VALUE)
    }
}

#[allow(clippy::too_many_arguments)]
fn encode_im2col(
    map: Out<Map>,
    data_type: u32,
    rank: u32,
    address: u64,
    sides: In<u64>,
    strides: In<u64>,
    lower: In<i32>,
    upper: In<i32>,
    channels: u32,
    pixels: u32,
    steps: In<u32>,
    interleave: u32,
    swizzle: u32,
    promotion: u32,
    fill: u32,
) -> Answer {
    let enums = [swizzle, promotion, fill];
    let mut tensor = common(
        map, data_type, rank, address, sides, strides, steps, interleave, enums,
    )?;
    if tensor.rank < 3 {
        return Err(INVALID_VALUE);
    }
    check_pixels(channels, pixels)?;
    for corner in [lower.list(tensor.rank - 2)?, upper.list(tensor.rank - 2)?] {
        tensor.words.extend(corner.iter().map(|&at| at as u64));
    }
    tensor
        .words
        .push(u64::from(channels) << 32 | u64::from(pixels));
    write(map, &tensor.words)
}

#[allow(clippy::too_many_arguments)]
fn encode_im2col_wide(
    map: Out<Map>,
    data_type: u32,
    rank: u32,
    address: u64,
    sides: In<u64>,
    strides: In<u64>,
    lower: i32,
    upper: i32,
    channels: u32,
    pixels: u32,
    steps: In<u32>,
    interleave: u32,
    mode: u32,
    swizzle: u32,
    promotion: u32,
    fill: u32,
) -> Answer {
    // Wide modes are of compute capability 10 and later; this device is older.
    let _ = (
        map, data_type, rank, address, sides, strides, lower, upper, channels, pixels, steps,
        interleave, mode, swizzle, promotion, fill,
    );
    Err(INVALID_VALUE)
}

fn replace_address(map: Out<Map>, address: u64) -> Answer {
    let mut encoded = map.get()?;
    if encoded[0] != MARK || !address.is_multiple_of(16) {
        return Err(INVALID_VALUE);
    }
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
