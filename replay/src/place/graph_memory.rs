//! Host memory of the program that copies in graphs read and write: it must stay where it is as
//! long as any graph may run.

use std::collections::BTreeMap;

use crate::api::buffer::Buffer;

/// Most bytes that stand in for pageable memory of the program in all graphs together.
const LARGEST: u64 = 16 << 30;
/// Pieces before an address that are looked at for one that reaches over it.
const LOOKED_AT: usize = 64;

/// Stand-ins for pageable host memory, by recorded address and length.
#[derive(Debug, Default)]
pub(crate) struct GraphMemory {
    pieces: BTreeMap<(u64, u64), Buffer>,
    bytes: u64,
}

impl GraphMemory {
    /// Where recorded bytes are now, if a graph was given them or more around them.
    pub(crate) fn find(&self, address: u64, length: u64) -> Option<u64> {
        if let Some(buffer) = self.pieces.get(&(address, length)) {
            return Some(buffer.address());
        }
        let end = address.checked_add(length)?;
        self.pieces
            .range(..=(address, u64::MAX))
            .rev()
            .take(LOOKED_AT)
            .find(|&(&(start, size), _)| start.saturating_add(size) >= end)
            .map(|(&(start, _), buffer)| buffer.address() + (address - start))
    }

    /// As `find`; provides zeroed memory where there is none. `None` if that would be too much.
    pub(crate) fn place(&mut self, address: u64, length: u64) -> Option<u64> {
        if let Some(live) = self.find(address, length) {
            return Some(live);
        }
        self.bytes = self
            .bytes
            .checked_add(length)
            .filter(|&bytes| bytes <= LARGEST)?;
        let buffer = Buffer::zeroed(usize::try_from(length).ok()?);
        let live = buffer.address();
        self.pieces.insert((address, length), buffer);
        Some(live)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_stands_in_for_what_lies_in_it() {
        let mut memory = GraphMemory::default();
        let whole = memory.place(0x1000, 0x100).unwrap();
        for (address, length, expected) in [
            (0x1000, 0x100, Some(whole)),
            (0x1010, 0x10, Some(whole + 0x10)),
            (0x10f0, 0x10, Some(whole + 0xf0)),
            (0x10f0, 0x11, None),
            (0xfff, 1, None),
            (0x1100, 1, None),
            (u64::MAX, 2, None),
        ] {
            assert_eq!(memory.find(address, length), expected, "{address:#x}");
        }
        let larger = memory.place(0x1000, 0x200).unwrap();
        assert_ne!(larger, whole);
        assert_eq!(memory.find(0x1000, 0x100), Some(whole), "that one first");
        assert_eq!(memory.place(1, u64::MAX / 2), None, "too much");
    }
}
