//! What a length is evaluated from, and to.

/// The arguments of one call, as the evaluator asks for them.
pub trait Arguments {
    /// The argument at that position; bits beyond its C type are ignored.
    fn word(&self, position: u8) -> u64;

    /// The integer of `bytes` bytes (4 or 8) that the argument points at; `None` if it is not
    /// known.
    fn pointee(&self, position: u8, bytes: usize) -> Option<u64>;
}

/// Memory as rows: bytes, or elements for arrays of handles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// Bytes of a row.
    pub row: u64,
    /// Bytes from the start of a row to the start of the next.
    pub pitch: u64,
    /// How many rows.
    pub rows: u64,
}

impl Extent {
    /// One row.
    pub const fn flat(bytes: u64) -> Self {
        Self {
            row: bytes,
            pitch: bytes,
            rows: 1,
        }
    }

    /// Bytes that are read or written; saturates.
    pub const fn content(self) -> u64 {
        self.row.saturating_mul(self.rows)
    }

    /// Bytes from the first to the last, padding between the rows included; saturates.
    pub const fn span(self) -> u64 {
        if self.row == 0 || self.rows == 0 {
            return 0;
        }
        (self.rows - 1)
            .saturating_mul(self.pitch)
            .saturating_add(self.row)
    }
}
