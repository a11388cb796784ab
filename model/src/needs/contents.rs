//! Which calls used the bytes of memory last.

use std::ops::Range;

use crate::memory::IntervalMap;

/// The stream of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Stream {
    pub(super) number: u32,
    /// It waits for the default stream, and that for it.
    pub(super) is_blocking: bool,
}

/// A call whose work uses memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Access {
    pub(super) call: u32,
    pub(super) stream: Option<Stream>,
}

/// The last writer of each byte, and who has read it since in each stream. Bytes that no call has
/// written have no writer.
#[derive(Debug, Default)]
pub(super) struct Contents {
    written: IntervalMap<Access>,
    read: IntervalMap<Vec<Access>>,
}

impl Contents {
    /// Nothing is known of these bytes any more.
    pub(super) fn forget(&mut self, range: &Range<u64>) {
        self.written.cut(range);
        self.read.cut(range);
    }

    /// A call has written all of these bytes.
    pub(super) fn write(&mut self, range: &Range<u64>, access: Access) {
        self.written.overwrite(range, access);
        self.read.cut(range);
    }

    /// A call has read these bytes.
    pub(super) fn read(&mut self, range: &Range<u64>, access: Access) {
        let known: Vec<_> = self.read.pieces(range).collect();
        let known: Vec<_> = known
            .into_iter()
            .map(|(at, all)| (at, all.clone()))
            .collect();
        self.read.overwrite(range, vec![access]);
        for (piece, mut readers) in known {
            readers.retain(|reader| reader.stream != access.stream);
            readers.push(access);
            self.read.overwrite(&piece, readers);
        }
    }

    /// The last writer of each of these bytes, in order; bytes without one are left out.
    pub(super) fn pieces(&self, range: &Range<u64>) -> impl Iterator<Item = (Range<u64>, u32)> {
        let pieces = self.written.pieces(range);
        pieces.map(|(piece, writer)| (piece, writer.call))
    }

    /// The last writers of these bytes.
    pub(super) fn writers(&self, range: &Range<u64>) -> Vec<Access> {
        let pieces = self.written.pieces(range);
        let mut writers: Vec<Access> = pieces.map(|(_, &writer)| writer).collect();
        writers.sort_unstable();
        writers.dedup();
        writers
    }

    /// Who has read these bytes since they were written.
    pub(super) fn readers(&self, range: &Range<u64>) -> Vec<Access> {
        let pieces = self.read.pieces(range);
        let mut readers: Vec<Access> = pieces.flat_map(|(_, all)| all.clone()).collect();
        readers.sort_unstable();
        readers.dedup();
        readers
    }

    /// The last writers of all bytes.
    pub(super) fn all_writers(&self) -> impl Iterator<Item = Access> {
        self.written.iter().map(|(_, &writer)| writer)
    }

    /// The last writers of all bytes, and who has read them since.
    pub(super) fn all(&self) -> impl Iterator<Item = Access> {
        let readers = self
            .read
            .iter()
            .flat_map(|(_, readers)| readers.iter().copied());
        self.all_writers().chain(readers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(call: u32) -> Access {
        Access {
            call,
            stream: Some(Stream {
                number: call % 10,
                is_blocking: false,
            }),
        }
    }

    fn calls(accesses: Vec<Access>) -> Vec<u32> {
        accesses.into_iter().map(|access| access.call).collect()
    }

    #[test]
    fn the_last_writer_of_each_byte() {
        let mut contents = Contents::default();
        contents.write(&(0..100), access(1));
        contents.write(&(40..60), access(2));
        contents.write(&(90..120), access(3));
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
            assert_eq!(calls(contents.writers(&range)), expected, "{range:?}");
        }
        contents.forget(&(10..95));
        assert_eq!(calls(contents.writers(&(0..200))), [1, 3]);
        assert_eq!(calls(contents.writers(&(10..95))), []);
        contents.write(&(0..200), access(4));
        assert_eq!(calls(contents.writers(&(0..200))), [4]);
        contents.forget(&(50..60));
        assert_eq!(calls(contents.writers(&(49..51))), [4]);
        assert_eq!(calls(contents.writers(&(50..60))), []);
        assert_eq!(calls(contents.writers(&(60..61))), [4]);
    }

    #[test]
    fn the_last_reader_in_each_stream_since_the_bytes_were_written() {
        let mut contents = Contents::default();
        contents.read(&(0..100), access(11));
        contents.read(&(50..150), access(12));
        contents.read(&(60..70), access(21));
        for (range, expected) in [
            (0..50, &[11][..]),
            (50..60, &[11, 12]),
            (60..70, &[12, 21]),
            (100..150, &[12]),
            (0..200, &[11, 12, 21]),
            (150..200, &[]),
        ] {
            assert_eq!(calls(contents.readers(&range)), expected, "{range:?}");
        }
        contents.write(&(50..100), access(33));
        assert_eq!(calls(contents.readers(&(50..100))), []);
        assert_eq!(calls(contents.readers(&(0..200))), [11, 12]);
        contents.forget(&(0..50));
        assert_eq!(calls(contents.readers(&(0..200))), [12]);
    }
}
