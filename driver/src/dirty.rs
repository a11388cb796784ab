//! Which pages of memory have changed since they were last looked at: a kernel that finds out on a
//! device, and the same on the CPU.
//!
//! A table in device memory has a [`Page`] for each page, behind a [`Header`]. A look digests each
//! page. Of a page whose digest differs, the numbers are looked at: which of them lie in a range,
//! for each of four [types](TYPES). A page is *hit* if a number has come into its range.

use core::ffi::CStr;

use crate::digest;

/// The kernel, as PTX text.
pub const PTX: &CStr =
    match CStr::from_bytes_with_nul(concat!(include_str!("dirty.ptx"), "\0").as_bytes()) {
        Ok(text) => text,
        Err(_) => c"",
    };
/// Its name. Parameters, 8 bytes each: the address of the table, the first of its pages to look at
/// and the end of them, and the number of the look.
pub const NAME: &CStr = c"cutape_dirty_pages";
/// Threads of a block.
pub const THREADS: u32 = 256;
/// The most bytes of a page. A device looks at all of each 16 bytes of which a page has some.
pub const PAGE: u64 = 16 << 10;
/// The types of numbers: bits, and how many of these are the exponent.
pub const TYPES: [(u32, u32); 4] = [(16, 5), (16, 8), (32, 8), (64, 11)];
/// Words of 8 bytes of the table's header.
pub const HEADER_WORDS: usize = 32;
/// Words of 8 bytes of a page in the table.
pub const PAGE_WORDS: usize = 8;

/// Which absolute values of a type are hits: the first and the last one, as bits.
pub type Bits = (u64, u64);
/// No value is.
pub const NEVER: Bits = (1, 0);

/// The bits of infinity.
const fn infinity((bits, exponent): (u32, u32)) -> u64 {
    ((1 << exponent) - 1) << (bits - 1 - exponent)
}

/// NaN is a hit.
pub const fn nan(kind: (u32, u32)) -> Bits {
    (infinity(kind) + 1, u64::MAX >> 1)
}

/// Infinity is.
pub const fn infinite(kind: (u32, u32)) -> Bits {
    (infinity(kind), infinity(kind))
}

/// What a look finds, and what it looks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// By type.
    pub ranges: [Bits; 4],
    /// Pages that have changed.
    pub dirty: u64,
    /// The sum of their digests, each times twice its [number](Page::number) plus 1.
    pub written: u64,
    /// By type: pages that are hit.
    pub hit: [u64; 4],
    /// By type: the position of the first of them in the table; `u64::MAX` before a look.
    pub first: [u64; 4],
}

impl Header {
    /// Before a look.
    pub fn new(ranges: [Bits; 4]) -> Self {
        Self {
            ranges,
            first: [u64::MAX; 4],
            ..Self::default()
        }
    }

    /// As words of the table.
    pub fn words(&self) -> [u64; HEADER_WORDS] {
        let ranges = self.ranges.iter().flat_map(|&(low, high)| [low, high]);
        let found = [self.dirty].into_iter().chain(self.hit).chain(self.first);
        let mut all = ranges.chain(found).chain([self.written]);
        core::array::from_fn(|_| all.next().unwrap_or(0))
    }

    /// From words of the table.
    pub fn of(words: &[u64; HEADER_WORDS]) -> Self {
        Self {
            ranges: core::array::from_fn(|at| (words[2 * at], words[2 * at + 1])),
            dirty: words[8],
            hit: core::array::from_fn(|at| words[9 + at]),
            first: core::array::from_fn(|at| words[13 + at]),
            written: words[17],
        }
    }
}

/// A page, as it was when it was last looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Its address.
    pub address: u64,
    /// Bytes, at most [`PAGE`].
    pub length: u32,
    /// Which page of its memory it is, from 0, modulo 2 to the 16: equal in the memory of two replays,
    /// wherever it lies.
    pub number: u16,
    /// It was looked at.
    pub is_known: bool,
    /// Its digest.
    pub digest: u64,
    /// By type: how many numbers are hits (the low 16 bits), and which (the rest).
    pub hits: [u64; 4],
    /// The last look at which it had changed.
    pub look: u64,
}

impl Page {
    /// As words of the table.
    pub fn words(&self) -> [u64; PAGE_WORDS] {
        let number = u64::from(self.number) << 16;
        let length = u64::from(self.length) | number | u64::from(self.is_known) << 32;
        let [half, bfloat, single, double] = self.hits;
        let (address, digest, look) = (self.address, self.digest, self.look);
        [address, length, digest, half, bfloat, single, double, look]
    }

    /// From words of the table.
    pub fn of(words: &[u64; PAGE_WORDS]) -> Self {
        let [address, length, digest, half, bfloat, single, double, look] = *words;
        Self {
            address,
            length: length as u32 & 0xffff,
            number: (length >> 16) as u16,
            is_known: length >> 32 != 0,
            digest,
            hits: [half, bfloat, single, double],
            look,
        }
    }
}

/// How many numbers of a page are hits, of a value of [`Page::hits`].
pub const fn count(hits: u64) -> u64 {
    hits & 0xffff
}

/// The positions, from 0, of the numbers of a type that are hits.
pub fn hits(bytes: &[u8], kind: (u32, u32), range: Bits) -> impl Iterator<Item = u32> {
    let size = (kind.0 / 8) as usize;
    let numbers = (0..).zip(bytes.chunks_exact(size));
    numbers.filter_map(move |(at, number)| {
        let mut value = [0; 8];
        value[..size].copy_from_slice(number);
        let absolute = u64::from_le_bytes(value) & (u64::MAX >> (65 - kind.0));
        (range.0..=range.1).contains(&absolute).then_some(at)
    })
}

/// Looks at a page, at a position in the table, whose bytes are these.
pub fn look(header: &mut Header, page: &mut Page, at: u64, look: u64, bytes: &[u8]) {
    let digest = digest::digest(bytes);
    if page.is_known && page.digest == digest {
        return;
    }
    for (kind, &range) in header.ranges.iter().enumerate() {
        let sum = hits(bytes, TYPES[kind], range).fold(0u64, |sum, at| {
            sum.wrapping_add(digest::number(1, at.into()) << 16 | 1)
        });
        let before = core::mem::replace(&mut page.hits[kind], sum);
        if page.is_known && sum != before && count(sum) > 0 && count(sum) >= count(before) {
            header.hit[kind] += 1;
            header.first[kind] = header.first[kind].min(at);
        }
    }
    page.digest = digest;
    if core::mem::replace(&mut page.is_known, true) {
        header.dirty += 1;
        let times = 2 * u64::from(page.number) + 1;
        header.written = header.written.wrapping_add(digest.wrapping_mul(times));
        page.look = look;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_words() {
        let header = Header {
            ranges: [(1, 2), (3, 4), (5, 6), (7, 8)],
            dirty: 9,
            hit: [10, 11, 12, 13],
            first: [14, 15, 16, 17],
            written: 18,
        };
        assert_eq!(Header::of(&header.words()), header);
        let numbers: Vec<u64> = header.words()[..18].to_vec();
        assert_eq!(numbers, (1..=18).collect::<Vec<u64>>());
        let page = Page {
            address: 0x1000,
            length: PAGE as u32,
            number: u16::MAX,
            is_known: true,
            digest: 1,
            hits: [2, 3, 4, 5],
            look: 6,
        };
        assert_eq!(Page::of(&page.words()), page);
    }

    #[test]
    fn numbers_are_hits_by_their_absolute_values() {
        let single = TYPES[2];
        let bytes: Vec<u8> = [1.0, f32::NAN, -f32::NAN, f32::INFINITY, -f32::INFINITY]
            .iter()
            .flat_map(|number| number.to_le_bytes())
            .collect();
        let found = |range| hits(&bytes, single, range).collect::<Vec<_>>();
        assert_eq!(found(nan(single)), [1, 2]);
        assert_eq!(found(infinite(single)), [3, 4]);
        assert_eq!(found(NEVER), [0; 0]);
        let above = (f32::to_bits(0.5).into(), infinite(single).1);
        assert_eq!(found(above), [0, 3, 4]);
        let half = hits(&[0, 0x7e, 0, 0xfc, 0, 0x7c], TYPES[0], nan(TYPES[0]));
        assert_eq!(half.collect::<Vec<_>>(), [0]);
        let double = f64::NAN.to_le_bytes();
        assert_eq!(hits(&double, TYPES[3], nan(TYPES[3])).count(), 1);
    }

    #[test]
    fn pages_are_hit_when_a_number_comes_into_its_range() {
        let single = TYPES[2];
        let mut header = Header::new([NEVER, NEVER, nan(single), NEVER]);
        let mut page = Page {
            length: 16,
            ..Page::default()
        };
        let nan = f32::NAN;
        // The numbers, and whether the page has changed and is hit then.
        for (number, (numbers, dirty, hit)) in [
            // What it holds first is not a change.
            ([nan, 0.0, 0.0, 0.0], 0, 0),
            ([nan, 0.0, 0.0, 0.0], 0, 0),
            ([nan, 1.0, 0.0, 0.0], 1, 0),
            ([nan, 1.0, 0.0, nan], 1, 1),
            ([0.0, nan, 0.0, nan], 1, 1),
            // Fewer than before.
            ([0.0, nan, 0.0, 0.0], 1, 0),
            ([0.0; 4], 1, 0),
            ([0.0, 0.0, nan, 0.0], 1, 1),
        ]
        .into_iter()
        .enumerate()
        {
            let bytes = numbers.map(f32::to_le_bytes).concat();
            let before = header;
            look(&mut header, &mut page, 7, number as u64, &bytes);
            let found = (header.dirty - before.dirty, header.hit[2] - before.hit[2]);
            assert_eq!(found, (dirty, hit), "{number}");
        }
        assert_eq!((header.first[2], page.look), (7, 7));
    }

    #[test]
    fn what_was_written_depends_on_the_page() {
        let written = |pages: [(u16, u8); 2]| {
            let mut header = Header::new([NEVER; 4]);
            for (number, byte) in pages {
                let mut page = Page {
                    length: 16,
                    number,
                    ..Page::default()
                };
                look(&mut header, &mut page, 0, 1, &[9; 16]);
                look(&mut header, &mut page, 0, 2, &[byte; 16]);
            }
            (header.dirty, header.written)
        };
        let one = written([(0, 1), (1, 2)]);
        assert_eq!(one, written([(1, 2), (0, 1)]));
        assert_ne!(one, written([(0, 2), (1, 1)]));
        assert_ne!(one, written([(0, 1), (2, 2)]));
        assert_eq!(written([(0, 9), (1, 9)]), (0, 0), "nothing has changed");
    }
}
