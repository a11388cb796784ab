//! Contents that take the place of payloads.

use std::io;

use crate::layout::BlobRef;
use crate::pack::record::blob_of;

/// What takes the place of bytes that were copied to devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Contents {
    /// Their number only; a replay copies zeros.
    #[default]
    Zeros,
    /// The f32 1.0, again and again.
    Pattern,
    /// Random f32 of the range that the bytes have as f32; zeros if they are no such numbers.
    Statistics,
}

impl Contents {
    /// All of them.
    pub const EVERY: [Self; 3] = [Self::Zeros, Self::Pattern, Self::Statistics];

    /// Its word in options.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Zeros => "zeros",
            Self::Pattern => "pattern",
            Self::Statistics => "statistics",
        }
    }
}

/// Fewer numbers than that have no statistics: these would tell the numbers.
const LEAST_NUMBERS: usize = 1024;
/// Numbers beyond that are rare in payloads, and common where integers are read as f32.
const LARGEST: f32 = 1e6;
/// The share of numbers that must be usual for the bytes to count as f32, in percent.
const USUAL: usize = 99;

/// Bytes that are computed from a few numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Synthetic {
    length: u64,
    /// Bits of the least and the largest f32; `None` for the pattern.
    range: Option<(u32, u32)>,
}

impl Synthetic {
    /// Bytes in the place of others, of which `read` gives the bytes; `None` for zeros.
    pub(crate) fn new(
        contents: Contents,
        length: u64,
        read: impl FnOnce() -> Option<Vec<u8>>,
    ) -> Option<Self> {
        let range = match contents {
            Contents::Zeros => return None,
            Contents::Pattern => None,
            Contents::Statistics => Some(range_of(&read()?)?),
        };
        Some(Self { length, range })
    }

    /// The blob with these bytes.
    pub(crate) fn blob(&self) -> BlobRef {
        let (low, high) = self.range.unwrap_or_default();
        let is_pattern = [u8::from(self.range.is_none())];
        let length = self.length.to_le_bytes();
        let words = [
            &length[..],
            &low.to_le_bytes(),
            &high.to_le_bytes(),
            &is_pattern,
        ];
        BlobRef {
            length: self.length,
            ..blob_of(&words.concat())
        }
    }

    /// The bytes. A payload that is only hashed may claim more than memory holds.
    pub(crate) fn bytes(&self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let length = usize::try_from(self.length).map_err(io::Error::other)?;
        let reserved = bytes.try_reserve_exact(length.saturating_add(3));
        reserved.map_err(|_| {
            let what = format!("no memory for the {length} bytes in the place of a payload");
            io::Error::new(io::ErrorKind::OutOfMemory, what)
        })?;
        let mut state = self.length;
        while bytes.len() < length {
            let number = match self.range {
                None => 1.0,
                Some((low, high)) => {
                    let (low, high) = (f32::from_bits(low), f32::from_bits(high));
                    // SplitMix64.
                    state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
                    let mut word = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                    word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
                    let share = ((word ^ word >> 31) >> 40) as f32 / (1u32 << 24) as f32;
                    low + share * (high - low)
                }
            };
            bytes.extend(number.to_le_bytes());
        }
        bytes.truncate(length);
        Ok(bytes)
    }
}

/// Powers of two that enclose the bytes' numbers; `None` if they are few, or not f32.
fn range_of(bytes: &[u8]) -> Option<(u32, u32)> {
    let numbers = bytes.as_chunks::<4>().0;
    if numbers.len() < LEAST_NUMBERS {
        return None;
    }
    let is_usual = |number: &f32| {
        let size = number.abs();
        size == 0.0 || (1.0 / LARGEST..=LARGEST).contains(&size)
    };
    let numbers = numbers.iter().map(|bytes| f32::from_le_bytes(*bytes));
    let mut usual = 0;
    let (mut low, mut high) = (f32::INFINITY, f32::NEG_INFINITY);
    let mut count = 0;
    for number in numbers {
        count += 1;
        if is_usual(&number) {
            usual += 1;
            (low, high) = (low.min(number), high.max(number));
        }
    }
    let is_f32 = usual * 100 >= count * USUAL && low < high;
    is_f32.then(|| (outward(low, false).to_bits(), outward(high, true).to_bits()))
}

/// The nearest power of two, or its negative, that is not above (or not below) the number, so that
/// a limit tells no number of the payload.
fn outward(number: f32, is_upper: bool) -> f32 {
    if number == 0.0 {
        return 0.0;
    }
    let exponent = number.abs().log2();
    let grows = is_upper == (number > 0.0);
    let exponent = if grows {
        exponent.ceil()
    } else {
        exponent.floor()
    };
    exponent.exp2().copysign(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(count: usize, of: impl Fn(usize) -> f32) -> Vec<u8> {
        (0..count).flat_map(|at| of(at).to_le_bytes()).collect()
    }

    #[test]
    fn ranges_enclose_numbers_and_tell_none() {
        let wave = |at: usize| (at as f32 / 100.0).sin() * 3.0 + 0.5;
        for (bytes, expected) in [
            (floats(4096, wave), Some((-4.0, 4.0))),
            (floats(4096, |at| at as f32 / 4096.0), Some((0.0, 1.0))),
            (
                floats(4096, |at| 0.3 + at as f32 / 40960.0),
                Some((0.25, 0.5)),
            ),
            // Too few, all equal, and integers.
            (floats(1023, wave), None),
            (floats(4096, |_| 0.7), None),
            (floats(4096, |at| f32::from_bits(at as u32)), None),
            (Vec::new(), None),
        ] {
            let range = range_of(&bytes);
            let range = range.map(|(low, high)| (f32::from_bits(low), f32::from_bits(high)));
            assert_eq!(range, expected);
        }
    }

    #[test]
    fn bytes_have_their_length_and_range() {
        let source = floats(5000, |at| (at % 7) as f32 - 3.0);
        let read = || Some(source.clone());
        let made = Synthetic::new(Contents::Statistics, 20_003, read).unwrap();
        let bytes = made.bytes().unwrap();
        assert_eq!(bytes.len(), 20_003);
        let numbers = bytes.as_chunks::<4>().0.iter();
        let numbers: Vec<f32> = numbers.map(|word| f32::from_le_bytes(*word)).collect();
        assert!(numbers.iter().all(|number| (-4.0..=4.0).contains(number)));
        let mean = numbers.iter().sum::<f32>() / numbers.len() as f32;
        assert!(mean.abs() < 0.2, "{mean}");
        assert_eq!(made.bytes().unwrap(), bytes);
        let pattern = Synthetic::new(Contents::Pattern, 6, || None).unwrap();
        assert_eq!(pattern.bytes().unwrap(), [0, 0, 0x80, 0x3f, 0, 0]);
        assert_ne!(made.blob(), Synthetic { length: 6, ..made }.blob());
        assert_eq!(Synthetic::new(Contents::Zeros, 6, || None), None);
        for length in [1 << 60, u64::MAX] {
            let long = Synthetic::new(Contents::Pattern, length, || None).unwrap();
            assert!(long.bytes().is_err());
        }
    }
}
