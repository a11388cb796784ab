//! Which call wrote the bytes of memory last.

use std::ops::Range;

use crate::memory::IntervalMap;

/// The last writer of each byte; bytes that no call has written have none.
#[derive(Debug, Default)]
pub(super) struct Contents(IntervalMap<u32>);

impl Contents {
    /// Nothing is known of these bytes any more.
    pub(super) fn forget(&mut self, range: &Range<u64>) {
        self.0.cut(range);
    }

    /// A call has written all of these bytes.
    pub(super) fn write(&mut self, range: &Range<u64>, call: u32) {
        self.0.overwrite(range, call);
    }

    /// The last writer of each of these bytes, in order; bytes without one are left out.
    pub(super) fn pieces(&self, range: &Range<u64>) -> impl Iterator<Item = (Range<u64>, u32)> {
        self.0.pieces(range).map(|(piece, &writer)| (piece, writer))
    }

    /// The last writers of these bytes.
    pub(super) fn writers(&self, range: &Range<u64>) -> Vec<u32> {
        let mut writers: Vec<u32> = self.pieces(range).map(|(_, writer)| writer).collect();
        writers.sort_unstable();
        writers.dedup();
        writers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_writer_of_each_byte() {
        let mut contents = Contents::default();
        contents.write(&(0..100), 1);
        contents.write(&(40..60), 2);
        contents.write(&(90..120), 3);
        let pieces: Vec<_> = contents.pieces(&(50..95)).collect();
        assert_eq!(pieces, [(50..60, 2), (60..90, 1), (90..95, 3)]);
        for (range, expected) in [
            (0..40, &[1][..]),
            (39..41, &[1, 2]),
            (60..90, &[1]),
            (0..200, &[1, 2, 3]),
            (100..101, &[3]),
            (120..200, &[]),
            (50..50, &[]),
        ] {
            assert_eq!(contents.writers(&range), expected, "{range:?}");
        }
        contents.forget(&(10..95));
        assert_eq!(contents.writers(&(0..200)), [1, 3]);
        assert_eq!(contents.writers(&(10..95)), []);
        contents.write(&(0..200), 4);
        assert_eq!(contents.writers(&(0..200)), [4]);
        contents.forget(&(50..60));
        assert_eq!(contents.writers(&(49..51)), [4]);
        assert_eq!(contents.writers(&(50..60)), []);
        assert_eq!(contents.writers(&(60..61)), [4]);
    }
}
