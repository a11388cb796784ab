//! Memory that is lent to the driver: aligned, zeroed, at a fixed place while it lives.

/// What addresses are a multiple of: a tensor map has to lie at one of 64 (cuTensorMapEncodeTiled).
const ALIGNMENT: usize = 64;

/// Bytes at an aligned address.
#[derive(Debug)]
pub(crate) struct Buffer {
    words: Vec<u128>,
    /// Words before the first aligned one.
    skipped: usize,
    length: usize,
}

impl Buffer {
    /// Zeroed bytes; at least one is allocated, so that the address is a real one.
    pub(crate) fn zeroed(length: usize) -> Self {
        // Three more words of 16 bytes, so that an aligned one is among the first four.
        let words = vec![0u128; length.div_ceil(16).max(1) + 3];
        let behind = words.as_ptr() as usize % ALIGNMENT;
        let skipped = (ALIGNMENT - behind) % ALIGNMENT / 16;
        Self {
            words,
            skipped,
            length,
        }
    }

    /// The same memory for other bytes, zeroed; `None` if it is too short.
    pub(crate) fn again(mut self, length: usize) -> Option<Self> {
        if length > (self.words.len() - self.skipped) * 16 {
            return None;
        }
        self.length = length;
        self.bytes_mut().fill(0);
        Some(self)
    }

    /// A copy of some bytes.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let mut buffer = Self::zeroed(bytes.len());
        buffer.bytes_mut().copy_from_slice(bytes);
        buffer
    }

    /// Numbers one after the other.
    pub(crate) fn of_words(words: &[u64]) -> Self {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        Self::of(&bytes)
    }

    /// Where it lies; valid for writing by the driver while the buffer lives.
    pub(crate) fn address(&self) -> u64 {
        self.words.as_ptr() as u64 + 16 * self.skipped as u64
    }

    pub(crate) fn len(&self) -> usize {
        self.length
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: from the aligned word on `words` holds at least `length` initialised bytes, and
        // u8 has no alignment or invalid values.
        unsafe {
            std::slice::from_raw_parts(self.words.as_ptr().add(self.skipped).cast(), self.length)
        }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and the buffer is borrowed mutably.
        unsafe {
            std::slice::from_raw_parts_mut(
                self.words.as_mut_ptr().add(self.skipped).cast(),
                self.length,
            )
        }
    }
}

/// Keeps a buffer for a call; returns its address.
pub(crate) fn lend(buffers: &mut Vec<Buffer>, buffer: Buffer) -> u64 {
    let address = buffer.address();
    buffers.push(buffer);
    address
}

/// The little-endian number in the first eight bytes or fewer.
#[inline]
pub(crate) fn number(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    copy_common(&mut word, bytes);
    u64::from_le_bytes(word)
}

/// The number at an offset; what lies behind the end counts as zeros.
pub(crate) fn word(bytes: &[u8], at: usize) -> u64 {
    number(bytes.get(at..).unwrap_or_default())
}

/// Writes a number at an offset, as far as the bytes reach.
pub(crate) fn set_word(bytes: &mut [u8], at: usize, value: u64) {
    copy_common(
        bytes.get_mut(at..).unwrap_or_default(),
        &value.to_le_bytes(),
    );
}

/// Copies as many bytes as there are on both sides.
#[inline]
pub(crate) fn copy_common(into: &mut [u8], from: &[u8]) {
    for (place, &byte) in into.iter_mut().zip(from) {
        *place = byte;
    }
}

/// The first bytes, at most `length`.
pub(crate) fn first(bytes: &[u8], length: usize) -> &[u8] {
    bytes.get(..length).unwrap_or(bytes)
}

/// Text up to a NUL, lossy where it is not UTF-8.
pub(crate) fn text(bytes: &[u8]) -> String {
    let text = bytes.split(|&byte| byte == 0).next();
    String::from_utf8_lossy(text.unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_and_hold_what_they_are_given() {
        for length in [0, 1, 15, 16, 17, 4096] {
            let bytes: Vec<u8> = (0..length).map(|i| i as u8).collect();
            let buffer = Buffer::of(&bytes);
            assert_eq!(buffer.address() % ALIGNMENT as u64, 0);
            assert_eq!(buffer.bytes(), bytes);
            let moved = Box::new(buffer);
            assert_eq!(moved.bytes(), bytes);
        }
        let again = Buffer::of(&[7; 16]).again(16).expect("long enough");
        assert_eq!(again.bytes(), [0; 16]);
        assert!(again.again(4096).is_none());
        assert_eq!(Buffer::of_words(&[7, 9]).len(), 16);
        assert_eq!(number(&[1, 2]), 0x201);
        assert_eq!(number(&[]), 0);
    }
}
