//! In which row of its thread a range is drawn: below the ranges around it.

use rustc_hash::FxHashMap;

/// The ends of the last range of each row, by thread.
#[derive(Debug, Default)]
pub(crate) struct RangeRows(FxHashMap<Option<u32>, Vec<u64>>);

impl RangeRows {
    /// The first row that is free when the range begins. Ranges come in the order of their begins.
    pub(crate) fn row_of(&mut self, thread: Option<u32>, begin: u64, end: u64) -> u64 {
        let rows = self.0.entry(thread).or_default();
        let free = rows.iter().position(|&last| last <= begin);
        match free.and_then(|row| Some((row, rows.get_mut(row)?))) {
            Some((row, last)) => {
                *last = end;
                row as u64
            }
            None => {
                rows.push(end);
                rows.len() as u64 - 1
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_do_not_overlap() {
        let mut rows = RangeRows::default();
        for (thread, begin, end, row) in [
            (Some(0), 0, 100, 0),
            (Some(0), 10, 50, 1),
            (Some(0), 20, 30, 2),
            (Some(0), 30, 40, 2),
            (Some(0), 60, 70, 1),
            (Some(1), 20, 30, 0),
            (None, 20, 30, 0),
            (Some(0), 100, 110, 0),
        ] {
            assert_eq!(
                rows.row_of(thread, begin, end),
                row,
                "{thread:?} {begin}..{end}"
            );
        }
    }
}
