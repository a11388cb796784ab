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
            0..=SHORT => crate::api::buffer::first(&self.short, self.length),
            _ => &self.long,
        }
    }
}

/// Copies memory that the driver may have written.
pub(crate) fn read_memory(address: u64, length: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    append_memory(&mut bytes, address, length);
    bytes
}

/// Appends a copy of memory that the driver may have written.
pub(crate) fn append_memory(bytes: &mut Vec<u8>, address: u64, length: usize) {
    bytes.reserve_exact(length);
    // SAFETY: every caller passes a buffer lent for this call or host memory that a live range
    // covers, which stays mapped while the range lives; `bytes` has room for that many more.
    unsafe {
        let end = bytes.as_mut_ptr().add(bytes.len());
        std::ptr::copy_nonoverlapping(address as *const u8, end, length);
        bytes.set_len(bytes.len() + length);
    }
}

/// Whether memory that the driver may have written holds these bytes. Nothing is copied.
pub(crate) fn holds(address: u64, bytes: &[u8]) -> bool {
    let (here, there) = (address as *const libc::c_void, bytes.as_ptr().cast());
    // SAFETY: as in `append_memory`. No reference to the memory is made: a device may write it.
    bytes.is_empty() || unsafe { libc::memcmp(here, there, bytes.len()) } == 0
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

    #[test]
    fn memory_is_compared_where_it_lies() {
        let bytes: Vec<u8> = (0..200).collect();
        let address = bytes.as_ptr() as u64;
        assert!(holds(address, &bytes));
        assert!(holds(address + 7, &bytes[7..9]));
        assert!(!holds(address + 7, &bytes[8..10]));
        assert!(holds(0, &[]));
        let mut twice = read_memory(address, 3);
        append_memory(&mut twice, address + 1, 2);
        assert_eq!(twice, [0, 1, 2, 1, 2]);
    }
}
