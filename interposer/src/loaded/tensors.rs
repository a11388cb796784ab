//! Where in a file its tensors are.

use super::data_files::SHORTEST;

/// Longer headers are not read. safetensors allows 100 MB; a header of 100,000 tensors has 10 MB.
/// That of a GGUF file has the words of a tokenizer: 16 MB for 260,000 (computed).
pub(super) const MOST_HEADER: u64 = 32 << 20;

/// A part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Tensor {
    pub(super) offset: u64,
    pub(super) length: u64,
}

/// Where the tensors of a file are.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Tensors {
    /// The end of the header.
    pub(super) start: u64,
    /// Those that are not too short to be looked for, by offset.
    pub(super) all: Vec<Tensor>,
}

impl Tensors {
    /// Those of these parts that are in the file and not too short.
    pub(super) fn new(
        start: u64,
        parts: impl Iterator<Item = Tensor>,
        file_length: u64,
    ) -> Option<Self> {
        let mut all = Vec::new();
        for part in parts {
            let end = part.offset.checked_add(part.length);
            if part.length >= SHORTEST && end.is_some_and(|end| end <= file_length) {
                all.try_reserve(1).ok()?;
                all.push(part);
            }
        }
        all.sort_unstable();
        Some(Self { start, all })
    }
}
