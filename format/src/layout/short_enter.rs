//! The numbers of an `ENTER_SHORT`: behind the head a code of four bits for each, low ones first,
//! in whole bytes; then their bytes. The numbers are the ticks since the file head's `start_ticks`,
//! the caller, and the arguments, zero-extended.

use core::hint::select_unpredictable;

/// A call with more arguments gets an `ENTER`.
pub const MOST_ARGUMENTS: usize = 14;
/// A higher code is itself a number.
const MOST_BYTES: u64 = 8;

/// The code of a number: 0 to 8 is how many bytes it has, 9 to 15 are the numbers 1 to 7.
#[inline]
pub const fn code(number: u64) -> u64 {
    let bytes = u64::BITS.div_ceil(8) as u64 - number.leading_zeros() as u64 / 8;
    match number {
        0 => 0,
        1..MOST_BYTES => number + MOST_BYTES,
        _ => bytes,
    }
}

/// The code of each number below 8 and, behind these, of each higher number by its highest bit.
const FORMS: [u8; 128] = {
    let mut forms = [0; 128];
    let mut at = 0;
    while at < 8 + 64 {
        // The entries of the lowest bits are not used.
        forms[at] = code(if at < 8 { at as u64 } else { 1 << (at - 8) }) as u8;
        at += 1;
    }
    forms
};

/// How many bytes the numbers of `FORMS` take.
const LENGTHS: [u8; 128] = {
    let mut lengths = [0; 128];
    let mut at = 0;
    while at < lengths.len() {
        lengths[at] = bytes(FORMS[at] as u64) as u8;
        at += 1;
    }
    lengths
};

/// The code of a number and how many bytes it takes, without a branch, since numbers of all sizes
/// are mixed.
#[inline(always)]
pub fn form(number: u64) -> (u64, usize) {
    let highest_bit = 63 - (number | MOST_BYTES).leading_zeros();
    let at = select_unpredictable(number < 8, number as u32, 8 + highest_bit) as usize % 128;
    (FORMS[at].into(), LENGTHS[at].into())
}

/// How many bytes a number of that code takes.
#[inline]
pub const fn bytes(code: u64) -> usize {
    if code > MOST_BYTES { 0 } else { code as usize }
}

/// How many bytes all numbers of a word of codes take: the sum of [`bytes`], without a loop.
#[inline]
const fn total_bytes(codes: u64) -> usize {
    const ONES: u64 = 0x1111_1111_1111_1111;
    const LOW: u64 = 0x0f0f_0f0f_0f0f_0f0f;
    // Codes above 8 have the high bit and another one.
    let themselves = (codes >> 3) & (codes | codes >> 1 | codes >> 2) & ONES;
    let lengths = codes & !(themselves * 15);
    let pairs = (lengths & LOW) + (lengths >> 4 & LOW);
    (pairs.wrapping_mul(0x0101_0101_0101_0101) >> 56) as usize
}

/// The lowest bytes of a word, at most eight.
#[inline]
const fn low_bytes(word: u64, bytes: u64) -> u64 {
    let unused = 64 - 8 * bytes as u32;
    match word.checked_shl(unused) {
        Some(high) => high >> unused,
        None => 0,
    }
}

/// For each code: the mask of the word where the number begins, the number that the code itself is,
/// and how many bytes follow.
#[cfg(feature = "read")]
const CODES: [[u64; 4]; 16] = {
    let mut codes = [[0; 4]; 16];
    let mut code = 0;
    while code < 16 {
        let length = bytes(code) as u64;
        let itself = code.saturating_sub(MOST_BYTES);
        codes[code as usize] = [low_bytes(u64::MAX, length), itself, length, 0];
        code += 1;
    }
    codes
};

/// How many bytes the codes of a call with that many arguments take.
#[inline]
pub const fn codes_length(arguments: usize) -> usize {
    (arguments + 2).div_ceil(2)
}

/// Walks over the numbers of a record, whose bytes behind the head are given.
#[derive(Clone, Debug)]
pub struct NumberReader<'a> {
    codes: u64,
    rest: &'a [u8],
}

impl<'a> NumberReader<'a> {
    /// The numbers of a call with that many arguments; `None` if the record is too short for the
    /// codes.
    #[inline]
    pub fn new(record: &'a [u8], arguments: usize) -> Option<Self> {
        let length = codes_length(arguments);
        if arguments > MOST_ARGUMENTS {
            return None;
        }
        let (given, rest) = record.split_at_checked(length)?;
        let codes = match record.first_chunk::<8>() {
            // Nearly always.
            Some(word) => low_bytes(u64::from_le_bytes(*word), length as u64),
            None => {
                let mut codes = [0; 8];
                codes.get_mut(..length)?.copy_from_slice(given);
                u64::from_le_bytes(codes)
            }
        };
        Some(Self { codes, rest })
    }

    /// Passes over that many numbers; `None` if the record ends too early.
    #[inline]
    pub(crate) fn pass(&mut self, count: usize) -> Option<()> {
        let behind = 4 * count as u32;
        let passed = self.codes & !u64::MAX.checked_shl(behind).unwrap_or(0);
        self.rest = self.rest.get(total_bytes(passed)..)?;
        self.codes = self.codes.checked_shr(behind).unwrap_or(0);
        Some(())
    }

    /// Reads that many numbers at once, all of which end in the record. `bytes` begins with theirs
    /// and continues behind the record. False, and nothing is read, if it is too short.
    #[cfg(feature = "read")]
    #[inline]
    pub(crate) fn read_all(&self, bytes: &[u8], count: usize, into: &mut Vec<u64>) -> bool {
        // Eight bytes are read where a number begins, which is never behind this.
        const END: usize = (8 * MOST_ARGUMENTS).next_power_of_two();
        let Some(bytes) = bytes.first_chunk::<{ END + 7 }>() else {
            return false;
        };
        let count = count.min(MOST_ARGUMENTS);
        into.reserve(count);
        let (mut codes, mut at) = (self.codes, 0);
        let places = into.spare_capacity_mut().get_mut(..count);
        for place in places.unwrap_or_default() {
            let [mask, itself, length, _] = CODES[(codes & 15) as usize];
            codes >>= 4;
            let word = bytes.get(at..).and_then(<[u8]>::first_chunk);
            let word = word.map_or(0, |word| u64::from_le_bytes(*word));
            at = (at + length as usize) % END;
            place.write(word & mask | itself);
        }
        // SAFETY: `count` more were reserved, and each has been written.
        unsafe { into.set_len(into.len() + count) };
        true
    }

    /// What follows the numbers that have been read.
    #[inline]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

impl Iterator for NumberReader<'_> {
    type Item = u64;

    /// `None` if the record ends too early. Not to be called behind the last number.
    #[inline]
    fn next(&mut self) -> Option<u64> {
        let code = self.codes & 15;
        self.codes >>= 4;
        if code > MOST_BYTES {
            return Some(code - MOST_BYTES);
        }
        let length = code as usize;
        // Nearly always, eight bytes can be read at once.
        if let Some(word) = self.rest.first_chunk::<8>() {
            self.rest = self.rest.get(length..)?;
            return Some(low_bytes(u64::from_le_bytes(*word), code));
        }
        let (bytes, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        let mut number = [0; 8];
        number.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(u64::from_le_bytes(number))
    }

    #[inline]
    fn nth(&mut self, count: usize) -> Option<u64> {
        self.pass(count)?;
        self.next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_codes_and_their_bytes() {
        let powers = (0..64).flat_map(|bit| {
            let power = 1_u64 << bit;
            [power - 1, power, power + 1, power | power >> 1]
        });
        for number in powers.chain(0..300).chain([u64::MAX]) {
            let expected = (code(number), bytes(code(number)));
            assert_eq!(form(number), expected, "{number:#x}");
        }
        assert_eq!(
            (code(0), code(1), code(7), code(8), code(255)),
            (0, 9, 15, 1, 1)
        );
        assert_eq!((code(256), code(u64::MAX)), (2, 8));
    }

    #[cfg(feature = "read")]
    #[test]
    fn numbers_one_by_one_or_passed_over() {
        let values = [
            0,
            1,
            7,
            8,
            255,
            256,
            1 << 40,
            u64::MAX,
            0x0123_4567_89ab_cdef,
            9,
        ];
        for behind in [0, 3, 20] {
            let mut codes = 0_u64;
            let mut bytes = Vec::new();
            for (place, &value) in values.iter().enumerate() {
                let code = code(value);
                codes |= code << (4 * place);
                bytes.extend_from_slice(&value.to_le_bytes()[..super::bytes(code)]);
            }
            let arguments = values.len() - 2;
            let length = codes_length(arguments);
            let mut record = codes.to_le_bytes()[..length].to_vec();
            record.extend_from_slice(&bytes);
            record.resize(record.len() + behind, 0xee);
            let numbers = NumberReader::new(&record, arguments);
            let Some(numbers) = numbers else {
                panic!("there is room for the codes");
            };
            for (place, &value) in values.iter().enumerate() {
                assert_eq!(numbers.clone().nth(place), Some(value), "{place} {behind}");
                assert_eq!(numbers.clone().take(place + 1).last(), Some(value));
            }
            let mut all = vec![5];
            let mut further = record[length..].to_vec();
            assert!(!numbers.read_all(&further, values.len(), &mut all));
            further.resize(further.len() + 128, 0xdd);
            assert!(numbers.read_all(&further, values.len(), &mut all));
            assert_eq!((all[0], &all[1..]), (5, &values[..]), "{behind}");
            let mut passed = numbers.clone();
            assert_eq!(passed.pass(values.len()), Some(()));
            assert_eq!(passed.rest(), &[0xee].repeat(behind)[..]);
            let cut = NumberReader::new(&record[..record.len() - behind - 1], arguments);
            assert_eq!(cut.and_then(|mut cut| cut.pass(values.len() - 1)), Some(()));
        }
        let cut = NumberReader::new(&[0x88, 1, 2, 3], 0);
        assert_eq!(cut.clone().and_then(|mut cut| cut.next()), None);
        assert_eq!(cut.and_then(|mut cut| cut.pass(1)), None);
    }

    #[cfg(feature = "read")]
    #[test]
    fn numbers_are_passed_over_as_they_are_read() {
        // Every code next to every other, and in every place.
        for code in 0..=15_u64 {
            for other in 0..=15_u64 {
                for count in 0..=MOST_ARGUMENTS + 2 {
                    let codes = (0..16).fold(0, |codes, place| {
                        codes | if place % 2 == 0 { code } else { other } << (4 * place)
                    });
                    let mut record = codes.to_le_bytes().to_vec();
                    record.resize(200, 0x5a);
                    let Some(mut passed) = NumberReader::new(&record, MOST_ARGUMENTS) else {
                        panic!("there is room for the codes");
                    };
                    let mut read = passed.clone();
                    assert_eq!(read.by_ref().take(count).count(), count);
                    assert_eq!(passed.pass(count), Some(()));
                    assert_eq!(passed.rest(), read.rest(), "{code} {other} {count}");
                    if count < 16 {
                        assert_eq!(passed.next(), read.next(), "{code} {other} {count}");
                    }
                }
            }
        }
    }
}
