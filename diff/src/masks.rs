//! Which bytes of kernel parameters do not count.

use std::collections::BTreeMap;
use std::ops::Range;

use rustc_hash::FxHashMap;

use crate::part::{KERNEL_PARAMETERS, Label, Part, WORD};

/// Bytes of kernel parameters that differ from run to run, by kernel and offset: padding of structs
/// that a program leaves uninitialised.
#[derive(Clone, Debug, Default)]
pub struct Masks {
    /// A set bit does not count.
    by_kernel: FxHashMap<Box<str>, FxHashMap<u32, u64>>,
}

impl Masks {
    pub(crate) fn is_empty(&self) -> bool {
        self.by_kernel.is_empty()
    }

    /// The bits of the eight bytes at an offset that do not count, besides those that are known.
    pub(crate) fn add(&mut self, kernel: &str, byte: u32, bits: u64) {
        let bytes = self.by_kernel.entry(kernel.into()).or_default();
        *bytes.entry(byte).or_default() |= bits;
    }

    /// Those of the parameters of a kernel, by offset.
    pub(crate) fn bits(&self, kernel: &str) -> BTreeMap<u32, u64> {
        let bytes = self.by_kernel.get(kernel).into_iter().flatten();
        bytes.map(|(&byte, &bits)| (byte, bits)).collect()
    }

    /// Bytes of the parameters of a kernel do not count.
    pub fn add_bytes(&mut self, kernel: &str, bytes: Range<u32>) {
        for byte in bytes {
            self.add(kernel, byte / 8 * 8, 0xff << (8 * (byte % 8)));
        }
    }

    /// The bytes that do not count, by kernel.
    pub fn bytes(&self) -> BTreeMap<&str, Vec<Range<u32>>> {
        let kernels = self.by_kernel.keys();
        kernels
            .map(|kernel| (&**kernel, ranges(&self.bits(kernel))))
            .collect()
    }

    /// The bits of the eight bytes at an offset that do not count.
    pub(crate) fn at(&self, kernel: &str, byte: u32) -> u64 {
        let bytes = self.by_kernel.get(kernel);
        let bits = bytes.and_then(|bytes| bytes.get(&byte));
        bits.copied().unwrap_or(0)
    }

    /// Adds those of another table.
    pub fn extend(&mut self, other: &Self) {
        for (kernel, bytes) in &other.by_kernel {
            for (&byte, &bits) in bytes {
                self.add(kernel, byte, bits);
            }
        }
    }

    /// A part of a launch of that kernel without what does not count; `None` if nothing of it
    /// counts.
    pub(crate) fn apply<'p>(
        &self,
        kernel: Option<&str>,
        label: &Label,
        part: Part<'p>,
    ) -> Option<Part<'p>> {
        let mask = match label.byte {
            Some(byte) if label.name == KERNEL_PARAMETERS => {
                self.at(kernel.unwrap_or_default(), byte)
            }
            _ => 0,
        };
        match (mask, part) {
            (u64::MAX, _) => None,
            (mask, Part::Number(word, WORD)) => Some(Part::Number(word & !mask, WORD)),
            (_, part) => Some(part),
        }
    }
}

/// The ranges of bytes whose bits are set.
pub(crate) fn ranges(bits: &BTreeMap<u32, u64>) -> Vec<Range<u32>> {
    let mut ranges: Vec<Range<u32>> = Vec::new();
    for (&offset, &bits) in bits {
        for at in (0..8).filter(|at| bits >> (8 * at) & 0xff != 0) {
            let byte = offset.saturating_add(at);
            match ranges.last_mut() {
                Some(last) if last.end == byte => last.end += 1,
                _ => ranges.push(byte..byte.saturating_add(1)),
            }
        }
    }
    ranges
}
