//! Memory of this process, through addresses that may be wrong.

use std::ffi::c_void;

/// A string of the program longer than this is cut.
const LONGEST_STRING: usize = 1 << 20;
const PAGE: u64 = 4096;

fn part(address: u64, length: usize) -> libc::iovec {
    libc::iovec {
        iov_base: address as *mut c_void,
        iov_len: length,
    }
}

/// The bytes at an address; `None` if one of them cannot be read.
pub(crate) fn read(address: u64, length: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; length];
    let (own, program) = (
        part(bytes.as_mut_ptr() as u64, length),
        part(address, length),
    );
    // SAFETY: it writes `bytes` alone; where the program's memory cannot be read, it fails.
    let read = unsafe {
        libc::process_vm_readv(
            std::process::id() as i32,
            &raw const own,
            1,
            &raw const program,
            1,
            0,
        )
    };
    (read == length as isize).then_some(bytes)
}

/// Most ranges that one call of the system reads (`IOV_MAX` of Linux).
const MOST_RANGES: usize = 1024;

/// The bytes at these addresses with these lengths, one after the other; `None` if one of them cannot
/// be read.
pub(crate) fn gather(ranges: &[(u64, u64)]) -> Option<Vec<u8>> {
    let lengths = ranges.iter().map(|&(_, length)| length as usize);
    let mut bytes = vec![0; lengths.sum()];
    let mut rest = &mut bytes[..];
    for ranges in ranges.chunks(MOST_RANGES) {
        let parts: Vec<libc::iovec> = ranges
            .iter()
            .map(|&(address, length)| part(address, length as usize))
            .collect();
        let length = parts.iter().map(|part| part.iov_len).sum();
        let own = part(rest.as_mut_ptr() as u64, length);
        // SAFETY: it writes `length` bytes of `rest`, which has them; where the program's memory cannot
        // be read, it fails.
        let read = unsafe {
            libc::process_vm_readv(
                std::process::id() as i32,
                &raw const own,
                1,
                parts.as_ptr(),
                parts.len() as libc::c_ulong,
                0,
            )
        };
        rest = rest.split_at_mut_checked(length)?.1;
        if read != length as isize {
            return None;
        }
    }
    Some(bytes)
}

/// Writes bytes to an address; false if one of them cannot be written.
pub(crate) fn write(address: u64, bytes: &[u8]) -> bool {
    let length = bytes.len();
    let (own, program) = (part(bytes.as_ptr() as u64, length), part(address, length));
    // SAFETY: it reads `bytes`, and writes where a driver would write for this call of the program.
    let written = unsafe {
        libc::process_vm_writev(
            std::process::id() as i32,
            &raw const own,
            1,
            &raw const program,
            1,
            0,
        )
    };
    written == length as isize
}

/// The u64 at an address.
pub(crate) fn word(address: u64) -> Option<u64> {
    let bytes = read(address, 8)?;
    Some(u64::from_le_bytes(*bytes.first_chunk()?))
}

/// The string at an address, with its NUL.
pub(crate) fn string(address: u64) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    while bytes.len() < LONGEST_STRING {
        let at = address.checked_add(bytes.len() as u64)?;
        // Not across a page: the next one may not be mapped.
        let piece = read(at, (PAGE - at % PAGE) as usize)?;
        let end = piece.iter().position(|&byte| byte == 0);
        bytes.extend(piece.iter().take(end.map_or(usize::MAX, |end| end + 1)));
        if end.is_some() {
            return Some(bytes);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_addresses_are_no_faults() {
        let mut bytes = *b"name\0rest";
        let address = bytes.as_mut_ptr() as u64;
        assert_eq!(string(address).as_deref(), Some(&b"name\0"[..]));
        assert!(write(address, b"same"));
        assert_eq!(read(address, 5).as_deref(), Some(&b"same\0"[..]));
        assert_eq!((read(8, 1), string(8), word(8)), (None, None, None));
        assert!(!write(8, b"x"));
    }
}
