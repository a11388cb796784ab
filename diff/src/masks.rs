//! Which bytes of kernel parameters do not count.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::part::{KERNEL_PARAMETERS, Label, Part, WORD};

/// Bytes of kernel parameters that differ from run to run, by kernel and offset: padding of structs
/// that a program leaves uninitialised.
#[derive(Clone, Debug, Default)]
pub(crate) struct Masks {
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

    /// Adds those of another table.
    pub(crate) fn extend(&mut self, other: &Self) {
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
        let mask = match (kernel, label.byte) {
            (Some(kernel), Some(byte)) if label.name == KERNEL_PARAMETERS => {
                let bytes = self.by_kernel.get(kernel);
                bytes.and_then(|bytes| bytes.get(&byte)).copied()
            }
            _ => None,
        };
        match (mask, part) {
            (Some(u64::MAX), _) => None,
            (Some(mask), Part::Number(word, WORD)) => Some(Part::Number(word & !mask, WORD)),
            (_, part) => Some(part),
        }
    }
}
