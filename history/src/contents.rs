//! Contents of memory that a replay has read, and the same memory in another replay.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use cutape_replay::{ObservedMemory, Piece};

/// The contents that a replay has read.
#[derive(Debug)]
pub struct Contents(File);

impl From<File> for Contents {
    fn from(file: File) -> Self {
        Self(file)
    }
}

impl Contents {
    /// Those of a file.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn open(path: &Path) -> io::Result<Self> {
        File::open(path).map(Self)
    }

    /// All bytes of some memory, of whose contents these are the pieces.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn read(&self, memory: &ObservedMemory, pieces: &[Piece]) -> io::Result<Vec<u8>> {
        self.read_part(0..memory.length, pieces)
    }

    /// A part of the same: offsets in the memory.
    pub(crate) fn read_part(&self, part: Range<u64>, pieces: &[Piece]) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; part.end.saturating_sub(part.start) as usize];
        for piece in pieces {
            let start = piece.at.max(part.start);
            let end = piece.at.saturating_add(piece.length).min(part.end);
            let range =
                start.wrapping_sub(part.start) as usize..end.wrapping_sub(part.start) as usize;
            if start < end
                && let Some(place) = bytes.get_mut(range)
            {
                self.0
                    .read_exact_at(place, piece.file + (start - piece.at))?;
            }
        }
        Ok(bytes)
    }
}

/// Whether a live address is in some memory.
pub fn contains(memory: &ObservedMemory, address: u64) -> bool {
    (memory.live..memory.live.saturating_add(memory.length)).contains(&address)
}

/// Memory of a replay A, and the memory of a replay B that corresponds to it.
pub struct MemoryPairs<'a> {
    a: &'a [ObservedMemory],
    b: &'a [ObservedMemory],
    pairs: Vec<Option<usize>>,
    /// By live address: the memory of each.
    by_address: [BTreeMap<u64, usize>; 2],
}

impl<'a> MemoryPairs<'a> {
    /// For each of A which one of B it is.
    pub fn new(
        a: &'a [ObservedMemory],
        b: &'a [ObservedMemory],
        pairs: Vec<Option<usize>>,
    ) -> Self {
        let by_address = [a, b].map(|memory| {
            let numbered = memory.iter().zip(0..);
            numbered
                .map(|(memory, number)| (memory.live, number))
                .collect()
        });
        Self {
            a,
            b,
            pairs,
            by_address,
        }
    }

    /// Of two replays of one trace.
    pub(crate) fn as_recorded(a: &'a [ObservedMemory], b: &'a [ObservedMemory]) -> Self {
        let place = |memory: &ObservedMemory| (memory.recorded, memory.length);
        let places: BTreeMap<_, _> = b.iter().map(place).zip(0..).collect();
        let pairs = a.iter().map(|memory| places.get(&place(memory)).copied());
        Self::new(a, b, pairs.collect())
    }

    /// The memory of B for one of A.
    pub fn other(&self, number: usize) -> Option<&'a ObservedMemory> {
        self.b.get((*self.pairs.get(number)?)?)
    }

    /// Gives words of B that point to the same place as those of A the value of A.
    pub fn as_in_a(&self, a: &[u8], b: &mut [u8]) {
        let (words_a, words_b) = (a.as_chunks::<8>().0, b.as_chunks_mut::<8>().0);
        for (of_a, of_b) in words_a.iter().zip(words_b) {
            if of_a != of_b && self.are_same(u64::from_le_bytes(*of_a), u64::from_le_bytes(*of_b)) {
                *of_b = *of_a;
            }
        }
    }

    fn are_same(&self, a: u64, b: u64) -> bool {
        let [by_a, by_b] = &self.by_address;
        let place = |memory: &[ObservedMemory], by: &BTreeMap<u64, usize>, address| {
            let (_, &number) = by.range(..=address).next_back()?;
            let memory = memory.get(number)?;
            contains(memory, address).then(|| (number, address - memory.live))
        };
        let (Some((number_a, offset_a)), Some((number_b, offset_b))) =
            (place(self.a, by_a, a), place(self.b, by_b, b))
        else {
            return false;
        };
        offset_a == offset_b && self.pairs.get(number_a) == Some(&Some(number_b))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn memory(live: u64) -> ObservedMemory {
        ObservedMemory {
            recorded: live,
            live,
            length: 64,
            ..ObservedMemory::default()
        }
    }

    #[test]
    fn addresses_are_equal_if_they_point_to_the_same_place() {
        let (a, b) = ([memory(0x1000)], [memory(0x9000)]);
        let pairs = MemoryPairs::new(&a, &b, vec![Some(0)]);
        for (word_a, word_b, expected) in [
            (0x1008u64, 0x9008u64, true),
            (0x1008, 0x9010, false),
            (0x1040, 0x9040, false),
            (7, 8, false),
        ] {
            let mut bytes = word_b.to_le_bytes();
            pairs.as_in_a(&word_a.to_le_bytes(), &mut bytes);
            assert_eq!(
                bytes == word_a.to_le_bytes(),
                expected,
                "{word_a:#x} {word_b:#x}"
            );
        }
    }

    #[test]
    fn a_part_is_read_of_the_pieces_that_it_shares_bytes_with() {
        let path = std::env::temp_dir().join(format!("cutape-contents-{}", std::process::id()));
        File::create(&path)
            .unwrap()
            .write_all(&[1, 2, 3, 4, 5, 6, 7, 8])
            .unwrap();
        let contents = Contents::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let piece = |at, length, file| Piece { at, length, file };
        let pieces = [piece(2, 4, 0), piece(8, 4, 4)];
        for (part, expected) in [
            (0..4, &[0, 0, 1, 2][..]),
            (3..10, &[2, 3, 4, 0, 0, 5, 6]),
            (12..14, &[0, 0]),
        ] {
            assert_eq!(contents.read_part(part, &pieces).unwrap(), expected);
        }
    }
}
