//! Which parts of a GGUF file are tensors. Its header has a list of keys with values, then of each
//! tensor the name, dimensions, type and offset, all in little-endian binary.
//!
//! The length of a tensor is not in it; up to the next one, a tensor has at most some bytes of
//! padding.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::tensors::{MOST_HEADER, Tensor, Tensors};
use crate::process::memory::Scratch;

/// The first bytes of a file.
pub(super) const MAGIC: &[u8] = b"GGUF";
/// The key that says at which multiples of bytes tensors begin, which are else `ALIGNMENT`.
const ALIGNMENT_KEY: &[u8; 17] = b"general.alignment";
const ALIGNMENT: u64 = 32;
/// Bytes that are read at once.
const PIECE: usize = 64 << 10;

/// Types of values.
const U32: u32 = 4;
const STRING: u32 = 8;
const ARRAY: u32 = 9;

/// The tensors of a file of that length.
pub(super) fn tensors(file: &File, file_length: u64) -> Option<Tensors> {
    let mut header = Header {
        file,
        end: file_length.min(MOST_HEADER),
        position: MAGIC.len() as u64,
        buffer: Scratch::new(PIECE)?,
        start: 0,
        filled: 0,
    };
    // Version 1 has shorter numbers.
    if header.u32()? < 2 {
        return None;
    }
    let (tensors, values) = (header.u64()?, header.u64()?);
    let mut alignment = ALIGNMENT;
    for _ in 0..values {
        let is_alignment = header.key_is_alignment()?;
        match header.u32()? {
            U32 if is_alignment => alignment = u64::from(header.u32()?),
            kind => header.skip_value(kind)?,
        }
    }
    let mut offsets = Vec::new();
    for _ in 0..tensors {
        header.skip_string()?;
        let dimensions = header.u32()?;
        header.skip(u64::from(dimensions) * 8 + 4)?;
        offsets.try_reserve(1).ok()?;
        offsets.push(header.u64()?);
    }
    let start = header.position.checked_next_multiple_of(alignment)?;
    offsets.sort_unstable();
    let ends = offsets.iter().skip(1).copied();
    let ends = ends.chain(file_length.checked_sub(start));
    let parts = offsets.iter().zip(ends).filter_map(|(&begin, end)| {
        Some(Tensor {
            offset: start.checked_add(begin)?,
            length: end.checked_sub(begin)?,
        })
    });
    Tensors::new(start, parts, file_length)
}

/// The header of a file, read from the beginning.
struct Header<'a> {
    file: &'a File,
    /// Nothing is read from there on.
    end: u64,
    /// Of the next byte.
    position: u64,
    buffer: Scratch,
    /// The part of the file that the buffer has.
    start: u64,
    filled: usize,
}

impl Header<'_> {
    fn skip(&mut self, count: u64) -> Option<()> {
        let position = self.position.checked_add(count)?;
        self.position = Some(position).filter(|&position| position <= self.end)?;
        Some(())
    }

    fn bytes<const COUNT: usize>(&mut self) -> Option<[u8; COUNT]> {
        let from = self.position;
        self.skip(COUNT as u64)?;
        if from < self.start || self.position > self.start + self.filled as u64 {
            self.filled = self.file.read_at(self.buffer.bytes(), from).ok()?;
            self.start = from;
        }
        let at = usize::try_from(from - self.start).ok()?;
        let filled = self.buffer.bytes().get(at..self.filled)?;
        filled.first_chunk().copied()
    }

    fn u32(&mut self) -> Option<u32> {
        self.bytes().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.bytes().map(u64::from_le_bytes)
    }

    fn skip_string(&mut self) -> Option<()> {
        let length = self.u64()?;
        self.skip(length)
    }

    fn key_is_alignment(&mut self) -> Option<bool> {
        let length = self.u64()?;
        if length != ALIGNMENT_KEY.len() as u64 {
            self.skip(length)?;
            return Some(false);
        }
        self.bytes().map(|key| key == *ALIGNMENT_KEY)
    }

    fn skip_value(&mut self, kind: u32) -> Option<()> {
        match kind {
            STRING => self.skip_string(),
            ARRAY => {
                let (kind, count) = (self.u32()?, self.u64()?);
                if kind == STRING {
                    return (0..count).try_for_each(|_| self.skip_string());
                }
                self.skip(length(kind)?.checked_mul(count)?)
            }
            number => self.skip(length(number)?),
        }
    }
}

/// Bytes of a number or bool.
fn length(kind: u32) -> Option<u64> {
    match kind {
        0 | 1 | 7 => Some(1),
        2 | 3 => Some(2),
        4..=6 => Some(4),
        10..=12 => Some(8),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::data_files::SHORTEST;
    use super::*;

    fn string(text: &[u8]) -> Vec<u8> {
        [&(text.len() as u64).to_le_bytes(), text].concat()
    }

    fn value(key: &[u8], kind: u32, bytes: &[u8]) -> Vec<u8> {
        [&string(key), &kind.to_le_bytes()[..], bytes].concat()
    }

    fn array(kind: u32, count: u64, elements: &[u8]) -> Vec<u8> {
        let count = count.to_le_bytes();
        value(
            b"array",
            ARRAY,
            &[&kind.to_le_bytes(), &count[..], elements].concat(),
        )
    }

    /// Values and tensors at these offsets, with the alignment, if there is one.
    fn header(alignment: Option<u32>, values: &[Vec<u8>], offsets: &[u64]) -> Vec<u8> {
        let aligned = alignment.map(|bytes| value(ALIGNMENT_KEY, U32, &bytes.to_le_bytes()));
        let values: Vec<_> = values.iter().chain(&aligned).collect();
        let mut header = [MAGIC, &3_u32.to_le_bytes()].concat();
        header.extend((offsets.len() as u64).to_le_bytes());
        header.extend((values.len() as u64).to_le_bytes());
        header.extend(values.into_iter().flatten());
        for offset in offsets {
            header.extend(string(b"blk.0.attn_q.weight"));
            header.extend([&2_u32.to_le_bytes()[..], &[0; 8 * 2 + 4]].concat());
            header.extend(offset.to_le_bytes());
        }
        header
    }

    /// The tensors of a file with that header and that many bytes of data.
    fn read(header: &[u8], alignment: usize, data: u64) -> Option<(u64, Vec<(u64, u64)>)> {
        let name = format!("cutape-gguf-{}-{:p}", std::process::id(), header);
        let path = std::env::temp_dir().join(name);
        let start = header.len().next_multiple_of(alignment);
        let mut content = header.to_vec();
        content.resize(start + data as usize, 0);
        std::fs::write(&path, &content).unwrap();
        let found = super::tensors(&File::open(&path).unwrap(), content.len() as u64);
        std::fs::remove_file(&path).unwrap();
        let found = found?;
        let parts = found
            .all
            .iter()
            .map(|part| (part.offset - found.start, part.length));
        assert!(found.all.is_empty() || found.start == start as u64);
        Some((found.start, parts.collect()))
    }

    #[test]
    fn tensors_of_headers() {
        let long = SHORTEST;
        let words: Vec<u8> = (0..20_000_u32)
            .flat_map(|at| string(&at.to_le_bytes()))
            .collect();
        let values = [
            value(b"general.architecture", STRING, &string(b"llama")),
            value(b"a number of 17 ch", 10, &[1; 8]),
            value(b"bool", 7, &[1]),
            array(STRING, 20_000, &words),
            array(6, 20_000, &[0; 80_000]),
        ];
        let offsets = [3 * long, 0, long, long + 64];
        let expected = vec![(0, long), (long + 64, 2 * long - 64), (3 * long, long)];
        for (alignment, bytes) in [(None, 32), (Some(64), 64), (Some(4096), 4096)] {
            let header = header(alignment, &values, &offsets);
            let (_, found) = read(&header, bytes, 4 * long).unwrap();
            assert_eq!(found, expected, "{alignment:?}");
        }
        let whole = header(None, &values, &offsets);
        // The last tensors are beyond the end of the file.
        let (_, found) = read(&whole, 32, 2 * long).unwrap();
        assert_eq!(found, [(0, long)]);
        for length in (0..whole.len()).step_by(9973).chain([whole.len() - 1]) {
            assert_eq!(read(&whole[..length], 1, 0), None, "{length}");
        }
        for damaged in [
            header(Some(0), &[], &[0]),
            header(None, &[array(STRING, u64::MAX, &words)], &[0]),
            header(None, &[array(12, u64::MAX / 8, &words)], &[0]),
            header(None, &[array(ARRAY, 1, &words)], &[0]),
            header(None, &[value(b"key", 13, &[0; 8])], &[0]),
            header(None, &[value(b"key", STRING, &[0xff; 8])], &[0]),
            [MAGIC, &1_u32.to_le_bytes(), &[0; 64]].concat(),
            [MAGIC, &3_u32.to_le_bytes(), &[0xff; 64]].concat(),
        ] {
            assert_eq!(read(&damaged, 32, long), None, "{damaged:?}");
        }
        let (_, found) = read(&header(None, &[], &[u64::MAX, u64::MAX - 1]), 32, long).unwrap();
        assert_eq!(found, []);
    }
}
