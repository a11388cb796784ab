//! Copies of memory that the driver may have written.

use std::ops::Deref;

/// Bytes that most outputs are no longer than.
const SHORT: usize = 64;

/// A copy of what a call has written, without an allocation if it is short.
pub(crate) struct Received {
    short: [u8; SHORT],
    length: usize,
    long: Vec<u8>,
}

impl Received {
    /// Copies memory that was lent for a call, or host memory that a live range covers.
    pub(crate) fn of(address: u64, length: usize) -> Self {
        let mut received = Self {
            short: [0; SHORT],
            length,
            long: Vec::new(),
        };
        if length > SHORT {
            received.long = read_memory(address, length);
        } else {
            // SAFETY: as in `read_memory`; `short` is long enough.
            unsafe {
                std::ptr::copy_nonoverlapping(
                    address as *const u8,
                    received.short.as_mut_ptr(),
                    length,
                );
            }
        }
        received
    }
}

impl Deref for Received {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self.length {
            0..=SHORT => crate::buffer::first(&self.short, self.length),
            _ => &self.long,
        }
    }
}

/// Copies memory that the driver may have written.
pub(crate) fn read_memory(address: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    // SAFETY: every caller passes a buffer lent for this call or host memory that a live range
    // covers, which stays mapped while the range lives; `bytes` is fresh.
    unsafe { std::ptr::copy_nonoverlapping(address as *const u8, bytes.as_mut_ptr(), length) };
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_long_outputs_are_copied_whole() {
        let bytes: Vec<u8> = (0..200).collect();
        for length in [0, 1, SHORT - 1, SHORT, SHORT + 1, 200] {
            let received = Received::of(bytes.as_ptr() as u64, length);
            assert_eq!(*received, bytes[..length], "{length}");
        }
    }
}
