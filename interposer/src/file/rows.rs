//! Memory of the program: rows of bytes at a distance, in slices at a distance.

use crate::process::memory;

/// Rows of bytes, in slices of rows.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Rows {
    pub(crate) address: u64,
    /// Bytes of a row.
    pub(crate) row: u64,
    /// From the start of a row to the next.
    pub(crate) pitch: u64,
    pub(crate) rows: u64,
    /// From the start of a slice to the next.
    pub(crate) slice_pitch: u64,
    pub(crate) slices: u64,
}

/// Memory whose bytes follow each other in the trace.
pub(crate) trait Memory {
    /// All bytes.
    fn length(&self) -> u64;

    /// Whether the first and the last byte of all rows can be read.
    fn ends_are_readable(&self) -> bool;

    /// (address, length) of each piece, as few as the pitches allow.
    fn pieces(&self) -> impl Iterator<Item = (u64, u64)>;

    /// The same memory as (address, length), if it is one piece.
    fn in_one_piece(&self) -> Option<(u64, u64)> {
        let mut pieces = self.pieces();
        let first = pieces.next()?;
        pieces.next().is_none().then_some(first)
    }

    /// What the same memory has in common each time that it is read; `None` if that is not looked
    /// for.
    fn key(&self) -> Option<Rows>;
}

/// Why bytes are not in the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotKept {
    /// The memory cannot be read.
    Unreadable,
    /// The file cannot be written.
    Disk,
    /// The room that is left is for other payloads, or for calls.
    NoRoom,
}

impl Rows {
    /// That many bytes in one piece.
    pub(crate) fn flat(address: u64, length: u64) -> Self {
        Self {
            address,
            row: length,
            pitch: length,
            rows: 1,
            slice_pitch: length,
            slices: 1,
        }
    }
}

impl Memory for Rows {
    fn length(&self) -> u64 {
        self.row
            .saturating_mul(self.rows)
            .saturating_mul(self.slices)
    }

    fn ends_are_readable(&self) -> bool {
        if self.length() == 0 {
            return true;
        }
        let last = (self.slices - 1)
            .wrapping_mul(self.slice_pitch)
            .wrapping_add((self.rows - 1).wrapping_mul(self.pitch))
            .wrapping_add(self.row - 1);
        memory::is_readable(self.address) && memory::is_readable(self.address.wrapping_add(last))
    }

    fn pieces(&self) -> impl Iterator<Item = (u64, u64)> {
        let mut all = *self;
        if all.pitch == all.row || all.rows == 1 {
            all = Self {
                row: all.row.saturating_mul(all.rows),
                rows: 1,
                ..all
            };
        }
        if all.rows == 1 && (all.slice_pitch == all.row || all.slices == 1) {
            all = Self {
                row: all.row.saturating_mul(all.slices),
                slices: 1,
                ..all
            };
        }
        (0..all.slices).flat_map(move |slice| {
            (0..all.rows).map(move |row| {
                let offset = slice
                    .wrapping_mul(all.slice_pitch)
                    .wrapping_add(row.wrapping_mul(all.pitch));
                (all.address.wrapping_add(offset), all.row)
            })
        })
    }

    fn key(&self) -> Option<Rows> {
        let flat = self.in_one_piece();
        Some(flat.map_or(*self, |(address, length)| Self::flat(address, length)))
    }
}

/// The rows of several copies, one after the other.
impl Memory for [Rows] {
    fn length(&self) -> u64 {
        let lengths = self.iter().map(Rows::length);
        lengths.fold(0, u64::saturating_add)
    }

    fn ends_are_readable(&self) -> bool {
        self.iter().all(Rows::ends_are_readable)
    }

    fn pieces(&self) -> impl Iterator<Item = (u64, u64)> {
        self.iter().flat_map(Rows::pieces)
    }

    fn key(&self) -> Option<Rows> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_become_as_few_pieces_as_can_be() {
        let rows = |row, pitch, rows, slice_pitch, slices| Rows {
            address: 100,
            row,
            pitch,
            rows,
            slice_pitch,
            slices,
        };
        let table: [(Rows, &[(u64, u64)]); 6] = [
            (Rows::flat(100, 7), &[(100, 7)]),
            (rows(4, 4, 3, 0, 1), &[(100, 12)]),
            (rows(4, 6, 2, 0, 1), &[(100, 4), (106, 4)]),
            (rows(4, 4, 2, 8, 2), &[(100, 16)]),
            (rows(4, 4, 2, 10, 2), &[(100, 8), (110, 8)]),
            (
                rows(4, 6, 2, 20, 2),
                &[(100, 4), (106, 4), (120, 4), (126, 4)],
            ),
        ];
        for (memory, expected) in table {
            assert_eq!(memory.pieces().collect::<Vec<_>>(), expected);
            assert_eq!(
                memory.length(),
                expected.iter().map(|piece| piece.1).sum::<u64>()
            );
        }
    }
}
