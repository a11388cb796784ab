//! Columns of numbers in few bytes: what `page/script/data.js` reads.
//!
//! A number is LEB128: seven bits a byte, the low ones first, the top bit set on all but the last.
//! Ascending columns hold differences. Deflate then takes out what repeats.

use serde::Serialize;

/// The largest number that JavaScript holds exactly.
const LARGEST: u64 = (1 << 53) - 1;

/// What numbers a column holds, and as what the page reads them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Coding {
    /// Below 2^32.
    Small,
    /// Below 2^53.
    Large,
    /// Below 2^32, each at least the one before.
    Ascending,
    /// Below 2^53, each at least the one before.
    Times,
}

impl Coding {
    fn largest(self) -> u64 {
        match self {
            Self::Small | Self::Ascending => u64::from(u32::MAX),
            Self::Large | Self::Times => LARGEST,
        }
    }

    fn is_ascending(self) -> bool {
        matches!(self, Self::Ascending | Self::Times)
    }
}

/// A column, coded as it grows.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    coding: Coding,
    bytes: Vec<u8>,
    count: usize,
    last: u64,
}

impl Column {
    pub(crate) fn new(coding: Coding) -> Self {
        Self {
            coding,
            bytes: Vec::new(),
            count: 0,
            last: 0,
        }
    }

    /// Adds a number; one that the coding cannot hold becomes the nearest that it can.
    pub(crate) fn push(&mut self, value: u64) {
        let mut value = value.min(self.coding.largest());
        self.count += 1;
        if self.coding.is_ascending() {
            let difference = value.saturating_sub(self.last);
            self.last = self.last.max(value);
            value = difference;
        }
        while value > 127 {
            self.bytes.push(value as u8 | 128);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }
}

impl Extend<u64> for Column {
    fn extend<I: IntoIterator<Item = u64>>(&mut self, values: I) {
        for value in values {
            self.push(value);
        }
    }
}

/// Where a column is among the bytes of all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Entry {
    name: &'static str,
    coding: Coding,
    count: usize,
    offset: usize,
}

/// All columns, one behind the other.
#[derive(Debug, Default)]
pub(crate) struct Columns {
    pub(crate) directory: Vec<Entry>,
    pub(crate) bytes: Vec<u8>,
}

impl Columns {
    pub(crate) fn add(&mut self, name: &'static str, column: Column) {
        self.directory.push(Entry {
            name,
            coding: column.coding,
            count: column.count,
            offset: self.bytes.len(),
        });
        self.bytes.extend_from_slice(&column.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_as_bytes() {
        let cases: &[(Coding, &[u64], &[u8])] = &[
            (Coding::Small, &[], &[]),
            (
                Coding::Small,
                &[0, 127, 128, 300],
                &[0, 127, 128, 1, 172, 2],
            ),
            (Coding::Small, &[u64::MAX], &[255, 255, 255, 255, 15]),
            (
                Coding::Large,
                &[u64::MAX],
                &[255, 255, 255, 255, 255, 255, 255, 15],
            ),
            (Coding::Ascending, &[5, 5, 7, 200], &[5, 0, 2, 193, 1]),
            // A clock that steps back does not.
            (Coding::Times, &[5, 4, 6], &[5, 0, 1]),
        ];
        for (coding, values, bytes) in cases {
            let mut column = Column::new(*coding);
            column.extend(values.iter().copied());
            assert_eq!(
                (column.count, &*column.bytes),
                (values.len(), *bytes),
                "{coding:?} {values:?}"
            );
        }
    }

    #[test]
    fn the_directory_says_where_columns_are() {
        let mut columns = Columns::default();
        for (name, values) in [("a", vec![1, 2]), ("b", vec![]), ("c", vec![300])] {
            let mut column = Column::new(Coding::Small);
            column.extend(values);
            columns.add(name, column);
        }
        let places: Vec<_> = columns
            .directory
            .iter()
            .map(|entry| (entry.name, entry.count, entry.offset))
            .collect();
        assert_eq!(places, [("a", 2, 0), ("b", 0, 2), ("c", 1, 2)]);
        assert_eq!(columns.bytes, [1, 2, 172, 2]);
    }
}
