//! The digest of memory: a kernel that computes it on a device, and the same on the CPU.
//!
//! The memory is read as little-endian words of 8 bytes, the last padded with zeros. Each word that
//! is not zero has a number that depends on it and on its position; the digest is their sum. A sum
//! does not depend on the order in which threads add. Memory that is all zeros has the digest 0.
//! Part of the trace format: a change needs another number for the note.

use core::ffi::CStr;

/// The kernel, as PTX text. Addresses are multiples of [`ALIGNMENT`].
pub const PTX: &CStr =
    match CStr::from_bytes_with_nul(concat!(include_str!("digest.ptx"), "\0").as_bytes()) {
        Ok(text) => text,
        Err(_) => c"",
    };
/// Its name. Parameters, 8 bytes each: address, length in bytes, where the digest goes, and the
/// mark that is written behind it when it is complete.
pub const NAME: &CStr = c"cutape_digest";
/// What the address of the memory is a multiple of.
pub const ALIGNMENT: u64 = 16;
/// Threads of a block.
pub const THREADS: u32 = 256;

/// Blocks of a launch for that many bytes: a thread has at least four pairs of words.
pub const fn blocks(length: u64) -> u32 {
    const PER_BLOCK: u64 = THREADS as u64 * 16 * 4;
    const MOST: u64 = 1024;
    let wanted = length.div_ceil(PER_BLOCK);
    if wanted == 0 {
        1
    } else if wanted > MOST {
        MOST as u32
    } else {
        wanted as u32
    }
}

/// The number of a word at a position, from 0.
pub(crate) const fn number(word: u64, position: u64) -> u64 {
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
    const FACTOR: u64 = 0xd6e8_feb8_6659_fd93;
    if word == 0 {
        return 0;
    }
    let mut mixed = word.wrapping_add(position.wrapping_add(1).wrapping_mul(STEP));
    mixed = (mixed ^ (mixed >> 32)).wrapping_mul(FACTOR);
    mixed = (mixed ^ (mixed >> 32)).wrapping_mul(FACTOR);
    mixed ^ (mixed >> 32)
}

/// The digest of bytes, as the kernel computes it.
pub fn digest(bytes: &[u8]) -> u64 {
    digest_of_piece(bytes, 0)
}

/// The digest of bytes that are a piece of more, from the word at that position on. The sum of the
/// digests of all pieces is the digest of the whole.
pub fn digest_of_piece(bytes: &[u8], first: u64) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut sum = 0u64;
    for (position, word) in (first..).zip(words) {
        sum = sum.wrapping_add(number(u64::from_le_bytes(*word), position));
    }
    let mut last = [0; 8];
    for (target, byte) in last.iter_mut().zip(rest) {
        *target = *byte;
    }
    sum.wrapping_add(number(
        u64::from_le_bytes(last),
        first.wrapping_add(words.len() as u64),
    ))
}

/// Bytes that the kernel is tried with, before it is trusted.
pub fn trial() -> [u8; TRIAL] {
    core::array::from_fn(|at| (at * at / 3) as u8)
}

/// How many. Not a multiple of 16, and more than one warp adds.
pub const TRIAL: usize = 4096 + 13;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_depends_on_bytes_and_positions() {
        assert_eq!(digest(&[]), 0);
        assert_eq!(digest(&[0; 100]), 0);
        let bytes: Vec<u8> = (0..100).collect();
        let whole = digest(&bytes);
        for at in 0..100 {
            let mut other = bytes.clone();
            other[at] ^= 1;
            assert_ne!(digest(&other), whole, "byte {at}");
        }
        let mut swapped = bytes.clone();
        swapped.rotate_left(8);
        assert_ne!(digest(&swapped), whole);
        // The last word is padded with zeros.
        assert_eq!(
            digest(&bytes[..9]),
            digest(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0])
        );
    }

    #[test]
    fn pieces_add_up() {
        let bytes: Vec<u8> = (0..=255).cycle().take(1003).collect();
        let mut sum = 0_u64;
        for (first, piece) in (0..).step_by(8).zip(bytes.chunks(64)) {
            sum = sum.wrapping_add(digest_of_piece(piece, first));
        }
        assert_eq!(sum, digest(&bytes));
    }

    #[test]
    fn known_digests_stay() {
        assert_eq!(digest(b"cutape"), KNOWN);
        assert_ne!(digest(&trial()), 0);
    }

    /// From the definition, computed apart.
    const KNOWN: u64 = 0xd808_1d6a_87ad_b8ed;

    #[test]
    fn every_length_has_blocks() {
        for (length, expected) in [(0, 1), (1, 1), (16384, 1), (16385, 2), (1 << 40, 1024)] {
            assert_eq!(blocks(length), expected, "{length}");
        }
    }
}
