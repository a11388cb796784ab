//! Compares what two kernels wrote: bit by bit, or as numbers with a tolerance.

use crate::api::buffer::{copy_common, first};
use serde::{Deserialize, Serialize};

/// The type of a buffer's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Element {
    /// IEEE half precision.
    F16,
    /// The upper half of a single.
    Bf16,
    /// IEEE single precision.
    F32,
    /// IEEE double precision.
    F64,
}

impl Element {
    /// The type that the command line calls so.
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "f16" => Self::F16,
            "bf16" => Self::Bf16,
            "f32" => Self::F32,
            "f64" => Self::F64,
            _ => return None,
        })
    }

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::F32 => "f32",
            Self::F64 => "f64",
        }
    }

    fn bytes(self) -> usize {
        match self {
            Self::F16 | Self::Bf16 => 2,
            Self::F32 => 4,
            Self::F64 => 8,
        }
    }

    fn value(self, bytes: &[u8]) -> f64 {
        let mut word = [0; 8];
        copy_common(&mut word, bytes);
        let bits = u64::from_le_bytes(word);
        match self {
            Self::F16 => half(bits as u16),
            Self::Bf16 => f64::from(f32::from_bits((bits as u32) << 16)),
            Self::F32 => f64::from(f32::from_bits(bits as u32)),
            Self::F64 => f64::from_bits(bits),
        }
    }
}

/// The value of an IEEE half.
fn half(bits: u16) -> f64 {
    let sign = if bits & 0x8000 == 0 { 1.0 } else { -1.0 };
    let (exponent, fraction) = (i32::from(bits >> 10 & 0x1f), f64::from(bits & 0x3ff));
    sign * match exponent {
        0 => fraction * 2f64.powi(-24),
        0x1f if fraction == 0.0 => f64::INFINITY,
        0x1f => f64::NAN,
        _ => (1024.0 + fraction) * 2f64.powi(exponent - 25),
    }
}

/// The first difference between what two kernels wrote to one allocation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mismatch {
    /// How the bytes were compared: `bytes`, or the name of an element type.
    pub compared_as: String,
    /// Offset in bytes of the first element that differs.
    pub offset: u64,
    /// What the recorded kernel wrote there.
    pub expected: String,
    /// What the other kernel wrote there.
    pub received: String,
    /// How many elements differ.
    pub differing: u64,
    /// Number of elements compared.
    pub elements: u64,
    /// Of numbers: the largest difference between two that do not agree.
    #[serde(default)]
    pub largest: Option<f64>,
}

/// Element types with the tolerance of each. Empty: compare bits.
pub type Tolerance = Vec<(Element, f64)>;

/// Compares two buffers of the same length. With tolerances, they agree if all their elements agree
/// as numbers of one of the types. Numbers agree if they differ by at most the tolerance times the
/// largest of 1 and their magnitudes.
pub fn compare(expected: &[u8], received: &[u8], tolerance: &Tolerance) -> Option<Mismatch> {
    if expected == received {
        return None;
    }
    let mut least: Option<Mismatch> = None;
    for &(element, tolerance) in tolerance {
        let mismatch = compare_as(expected, received, element, tolerance)?;
        let fewer = |known: &Mismatch| mismatch.differing < known.differing;
        if least.as_ref().is_none_or(fewer) {
            least = Some(mismatch);
        }
    }
    least.or_else(|| compare_bytes(expected, received))
}

fn compare_bytes(expected: &[u8], received: &[u8]) -> Option<Mismatch> {
    let pairs = || expected.iter().zip(received).enumerate();
    let (offset, _) = pairs().find(|(_, (a, b))| a != b)?;
    let shown = |bytes: &[u8]| {
        let bytes = first(bytes.get(offset..).unwrap_or_default(), 8);
        let words: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        words.join(" ")
    };
    Some(Mismatch {
        compared_as: "bytes".to_owned(),
        offset: offset as u64,
        expected: shown(expected),
        received: shown(received),
        differing: pairs().filter(|(_, (a, b))| a != b).count() as u64,
        elements: expected.len() as u64,
        largest: None,
    })
}

/// `None` if all elements agree, and the bytes after the last whole one.
fn compare_as(
    expected: &[u8],
    received: &[u8],
    element: Element,
    tolerance: f64,
) -> Option<Mismatch> {
    let size = element.bytes();
    let whole = expected.len() / size * size;
    let pairs = || {
        let pairs = expected.chunks_exact(size).zip(received.chunks_exact(size));
        pairs
            .enumerate()
            .filter(|(_, (a, b))| a != b)
            .map(|(at, (a, b))| (at, element.value(a), element.value(b)))
            .filter(|&(_, a, b)| !agree(a, b, tolerance))
    };
    let Some((at, a, b)) = pairs().next() else {
        return compare_bytes(
            expected.get(whole..).unwrap_or_default(),
            received.get(whole..).unwrap_or_default(),
        )
        .map(|rest| Mismatch {
            offset: rest.offset + whole as u64,
            ..rest
        });
    };
    Some(Mismatch {
        compared_as: element.name().to_owned(),
        offset: (at * size) as u64,
        expected: format!("{a:e}"),
        received: format!("{b:e}"),
        differing: pairs().count() as u64,
        elements: (whole / size) as u64,
        largest: pairs()
            .map(|(_, a, b)| (a - b).abs())
            .filter(|difference| !difference.is_nan())
            .reduce(f64::max),
    })
}

fn agree(a: f64, b: f64, tolerance: f64) -> bool {
    if a == b || (a.is_nan() && b.is_nan()) {
        return true;
    }
    (a - b).abs() <= tolerance * a.abs().max(b.abs()).max(1.0) && a.is_finite() && b.is_finite()
}

/// The bytes of a region, if it changed.
pub(super) fn bytes_of(changes: &[(usize, Vec<u8>)], number: usize) -> Option<&[u8]> {
    let change = changes.iter().find(|change| change.0 == number);
    change.map(|change| &change.1[..])
}

/// Compares each region that one of two kernels changed, starting from the same memory.
pub(super) fn compare_regions(
    before: &[&[u8]],
    recorded: &[(usize, Vec<u8>)],
    other: &[(usize, Vec<u8>)],
    tolerance: &Tolerance,
) -> Vec<(usize, Option<Mismatch>)> {
    let regions = before.iter().enumerate();
    regions
        .filter_map(|(number, &before)| {
            let (expected, received) = match (bytes_of(recorded, number), bytes_of(other, number)) {
                (None, None) => return None,
                (expected, received) => (expected.unwrap_or(before), received.unwrap_or(before)),
            };
            Some((number, compare(expected, received, tolerance)))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_region_that_one_of_two_kernels_has_changed_is_compared() {
        let before: [&[u8]; 5] = [b"aaaa", b"bbbb", b"cccc", b"dddd", b"eeee"];
        let recorded = vec![
            (0, b"1aaa".to_vec()),
            (1, b"bb2b".to_vec()),
            (3, b"3333".to_vec()),
        ];
        let other = vec![
            (0, b"1aaa".to_vec()),
            (2, b"ccc4".to_vec()),
            (3, b"3339".to_vec()),
        ];
        let found: Vec<_> = compare_regions(&before, &recorded, &other, &vec![])
            .into_iter()
            .map(|(number, mismatch)| (number, mismatch.map(|mismatch| mismatch.offset)))
            .collect();
        // The same; only the recorded one wrote; only the other one wrote; both wrote something
        // else.
        assert_eq!(found, [(0, None), (1, Some(2)), (2, Some(3)), (3, Some(3))]);
    }

    #[test]
    fn halves_have_their_values() {
        for (bits, value) in [
            (0x0000, 0.0),
            (0x3c00, 1.0),
            (0xc000, -2.0),
            (0x3555, 0.333_251_953_125),
            (0x7bff, 65504.0),
            (0x0001, 2f64.powi(-24)),
            (0x0400, 2f64.powi(-14)),
            (0x7c00, f64::INFINITY),
            (0xfc00, f64::NEG_INFINITY),
        ] {
            assert_eq!(half(bits), value, "{bits:#x}");
        }
        assert!(half(0x7e00).is_nan());
        assert_eq!(Element::Bf16.value(&[0x80, 0x3f]), 1.0);
        for name in ["f16", "bf16", "f32", "f64"] {
            assert_eq!(Element::from_name(name).map(Element::name), Some(name));
        }
    }

    #[test]
    fn bits_are_compared_unless_a_tolerance_is_given() {
        assert_eq!(compare(b"same", b"same", &vec![]), None);
        let mismatch = compare(b"abcdef", b"abXdeY", &vec![]).unwrap();
        assert_eq!((mismatch.offset, mismatch.differing), (2, 2));
        assert_eq!(mismatch.elements, 6);
        assert_eq!(mismatch.expected, "63 64 65 66");
        assert_eq!(mismatch.received, "58 64 65 59");
    }

    #[test]
    fn numbers_agree_within_the_tolerance() {
        let singles = |values: &[f32]| -> Vec<u8> {
            values
                .iter()
                .flat_map(|value| value.to_le_bytes())
                .collect()
        };
        let expected = singles(&[1.0, 1000.0, 0.0, f32::NAN]);
        for (received, tolerance, differing) in [
            (singles(&[1.000_01, 1000.005, 0.0, f32::NAN]), 1e-4, None),
            (singles(&[1.001, 1000.0, 0.0, f32::NAN]), 1e-4, Some((0, 1))),
            (singles(&[1.0, 1001.0, 0.1, f32::NAN]), 1e-4, Some((4, 2))),
            (singles(&[1.0, 1000.0, 5e-5, f32::NAN]), 1e-4, None),
            (singles(&[1.0, 1000.0, -0.0, f32::NAN]), 0.0, None),
            (singles(&[1.0, 1000.0, 0.0, 0.0]), 1e9, Some((12, 1))),
            (
                singles(&[1.0, f32::INFINITY, 0.0, f32::NAN]),
                1e9,
                Some((4, 1)),
            ),
        ] {
            let mismatch = compare(&expected, &received, &vec![(Element::F32, tolerance)]);
            let found = mismatch.map(|found| (found.offset, found.differing));
            assert_eq!(found, differing, "{received:?}");
        }
    }

    #[test]
    fn one_of_the_types_is_enough_and_the_rest_is_compared_by_bytes() {
        let expected = [1.0f64.to_le_bytes(), 2.0f64.to_le_bytes()].concat();
        let received = [1.0f64.to_le_bytes(), 2.000_000_1f64.to_le_bytes()].concat();
        let both = vec![(Element::F32, 1e-6), (Element::F64, 1e-6)];
        assert_eq!(compare(&expected, &received, &both), None);
        let strict = vec![(Element::F64, 1e-9)];
        let mismatch = compare(&expected, &received, &strict).unwrap();
        assert_eq!(mismatch.compared_as, "f64");
        assert!(
            mismatch
                .largest
                .is_some_and(|largest| (9e-8..2e-7).contains(&largest))
        );
        assert_eq!(mismatch.offset, 8);
        // Three bytes behind the last whole single.
        let (a, b) = ([0u8, 0, 0x80, 0x3f, 1, 2, 3], [0u8, 0, 0x80, 0x3f, 1, 9, 3]);
        let mismatch = compare(&a, &b, &vec![(Element::F32, 1.0)]).unwrap();
        assert_eq!((mismatch.offset, mismatch.differing), (5, 1));
    }
}
