//! Host memory that the copies of a launched graph use, as the recorder described it.

use crate::api::buffer::number;

/// Most rows of host memory of one copy in a graph.
const MOST_ROWS: u64 = 1 << 26;

/// Host memory that a copy of a launched graph reads or writes, as the recorder described it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct HostRange {
    pub is_source: bool,
    pub address: u64,
    pub rows: Vec<(u64, usize)>,
}

/// Reads the description: eight numbers each (`field::HOST_RANGES`).
pub(crate) fn host_ranges(bytes: &[u8]) -> Vec<HostRange> {
    let describe = |words: &[u8]| {
        let word = |at: usize| number(words.get(at * 8..at * 8 + 8).unwrap_or_default());
        let (address, row, pitch, rows) = (word(1), word(2), word(3), word(4));
        let (slice_pitch, slices) = (word(5), word(6));
        if rows.checked_mul(slices)? > MOST_ROWS {
            return None;
        }
        let row = usize::try_from(row).ok()?;
        let at = |slice: u64, index: u64| {
            let offset = slice.wrapping_mul(slice_pitch);
            let offset = offset.wrapping_add(index.wrapping_mul(pitch));
            (address.wrapping_add(offset), row)
        };
        let rows = (0..slices).flat_map(|slice| (0..rows).map(move |index| (slice, index)));
        Some(HostRange {
            is_source: word(0) == 1,
            address,
            rows: rows.map(|(slice, index)| at(slice, index)).collect(),
        })
    };
    bytes.chunks_exact(64).filter_map(describe).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_ranges_are_read_as_they_were_described() {
        let words = [
            [1u64, 0x1000, 8, 8, 1, 0, 1, 5],
            [2, 0x2000, 4, 16, 2, 64, 2, 6],
            [1, 0, 1, 1, u64::MAX, 0, 2, 7],
        ];
        let mut bytes: Vec<u8> = words
            .iter()
            .flatten()
            .flat_map(|word| word.to_le_bytes())
            .collect();
        bytes.push(0);
        let ranges = host_ranges(&bytes);
        assert_eq!(ranges.len(), 2, "too many rows are left out");
        assert!(ranges[0].is_source && !ranges[1].is_source);
        assert_eq!(ranges[0].rows, [(0x1000, 8)]);
        assert_eq!(
            ranges[1].rows,
            [(0x2000, 4), (0x2010, 4), (0x2040, 4), (0x2050, 4)]
        );
    }
}
