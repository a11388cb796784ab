//! Texts of the program, copied without a system call in steady state, and without a fault where a
//! pointer leads nowhere.

use crate::process::memory::Scratch;
use crate::process::readable;

/// Longer texts are cut.
const LONGEST: usize = 4096;
/// Longer ones are not on the stack, of which a signal handler may have little.
const SHORT: usize = 256;
/// What is read at once: never across a page.
const BLOCK: u64 = 64;

/// A text in UTF-8, of at most `LONGEST` bytes.
pub(super) struct Text {
    short: [u8; SHORT],
    /// In place of `short`.
    long: Option<Scratch>,
    length: usize,
}

impl Text {
    /// None.
    pub(super) const EMPTY: Self = Self {
        short: [0; SHORT],
        long: None,
        length: 0,
    };

    /// A NUL-terminated text of bytes; empty if it cannot be read.
    pub(super) fn of_bytes(address: u64) -> Self {
        let mut text = Self::EMPTY;
        walk(address, |piece| {
            let end = piece.iter().position(|&byte| byte == 0);
            let piece = piece.get(..end.unwrap_or(piece.len())).unwrap_or(&[]);
            end.is_none() & text.push(piece)
        });
        text
    }

    /// A NUL-terminated text of `wchar_t`, which are code points.
    pub(super) fn of_wide(address: u64) -> Self {
        let mut text = Self::EMPTY;
        // The C standard aligns it; another address would have characters across pages.
        if !address.is_multiple_of(4) {
            return text;
        }
        walk(address, |piece| {
            let (points, _) = piece.as_chunks::<4>();
            points.iter().all(|point| match u32::from_le_bytes(*point) {
                0 => false,
                point => {
                    let point = char::from_u32(point).unwrap_or(char::REPLACEMENT_CHARACTER);
                    text.push(point.encode_utf8(&mut [0; 4]).as_bytes())
                }
            })
        });
        text
    }

    /// Appends bytes; false if not all fit.
    fn push(&mut self, bytes: &[u8]) -> bool {
        if self.long.is_none() && self.length + bytes.len() > SHORT {
            self.long = Scratch::new(LONGEST);
            if let Some(space) = self
                .long
                .as_mut()
                .and_then(|long| long.bytes().first_chunk_mut())
            {
                *space = self.short;
            }
        }
        let space = match &mut self.long {
            None => &mut self.short[..],
            Some(long) => long.bytes(),
        };
        let space = space.get_mut(self.length..).unwrap_or_default();
        let count = space.len().min(bytes.len());
        if let (Some(space), Some(bytes)) = (space.get_mut(..count), bytes.get(..count)) {
            space.copy_from_slice(bytes);
            self.length += count;
        }
        count == bytes.len()
    }

    /// Its bytes.
    pub(super) fn bytes(&mut self) -> &[u8] {
        let bytes = match &mut self.long {
            None => &self.short[..],
            Some(long) => long.bytes(),
        };
        bytes.get(..self.length).unwrap_or(&[])
    }
}

/// Gives the memory from an address on to `take`, in blocks, while that returns true.
fn walk(address: u64, mut take: impl FnMut(&[u8]) -> bool) {
    let mut at = address;
    let mut block = [0; BLOCK as usize];
    loop {
        let length = (BLOCK - at % BLOCK) as usize;
        let Some(piece) = block.get_mut(..length) else {
            return;
        };
        if at == 0 || !readable::read_all(at, piece) || !take(piece) {
            return;
        }
        at = at.wrapping_add(length as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts() {
        let long = [vec![b'x'; 5000], vec![0]].concat();
        for (bytes, expected) in [
            (&b"step 3\0behind"[..], &b"step 3"[..]),
            (b"\0", b""),
            ("Füße\0".as_bytes(), "Füße".as_bytes()),
            (&long, &long[..LONGEST]),
        ] {
            assert_eq!(Text::of_bytes(bytes.as_ptr() as u64).bytes(), expected);
        }
        for (points, expected) in [
            (&['s' as u32, 'ü' as u32, '😀' as u32, 0][..], "sü😀"),
            (&[0xd800, 0], "\u{fffd}"),
            (&[0], ""),
        ] {
            let mut text = Text::of_wide(points.as_ptr() as u64);
            assert_eq!(text.bytes(), expected.as_bytes());
        }
        for nowhere in [0, 8, u64::MAX, 1 << 47] {
            assert_eq!(Text::of_bytes(nowhere).bytes(), b"");
            assert_eq!(Text::of_wide(nowhere).bytes(), b"");
        }
    }
}
