//! Reads memory that is known to be readable without a system call.
//!
//! A page counts as readable once a checked read of it has succeeded, and is then read directly. A
//! pointer that leads anywhere else is followed by a checked read, which fails where a plain one
//! would fault. The caller must have a reason why what it reads is alive: a page that is unmapped
//! later still counts.

use core::sync::atomic::{AtomicU64, Ordering};

use super::memory;

const PAGE: u64 = 4096;
/// Pages that are remembered; each may be replaced by another at any moment.
const PLACES: usize = 1 << 12;

static PAGES: [AtomicU64; PLACES] = [const { AtomicU64::new(0) }; PLACES];

fn place(page: u64) -> &'static AtomicU64 {
    let at = (page.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - PLACES.trailing_zeros())) as usize;
    PAGES.get(at).unwrap_or(&PAGES[0])
}

/// Copies `target.len()` bytes. False if not all can be read.
pub(crate) fn read_all(address: u64, target: &mut [u8]) -> bool {
    let Some(end) = address.checked_add(target.len() as u64) else {
        return false;
    };
    let mut at = address;
    while at < end {
        let page = at / PAGE;
        let length = (((page + 1) * PAGE).min(end) - at) as usize;
        let start = (at - address) as usize;
        let Some(part) = target.get_mut(start..start + length) else {
            return false;
        };
        let place = place(page);
        if place.load(Ordering::Relaxed) == page && page != 0 {
            // SAFETY: the page was readable, and the caller says that what it reads is alive;
            // `part` has that many bytes.
            unsafe { core::ptr::copy_nonoverlapping(at as *const u8, part.as_mut_ptr(), length) };
        } else if memory::read_all(at, part) {
            place.store(page, Ordering::Relaxed);
        } else {
            return false;
        }
        at += length as u64;
    }
    true
}

/// In a forked child, which may lack some of the pages: nothing is known.
pub(crate) fn forget() {
    for place in &PAGES {
        place.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_across_pages_until_memory_ends() {
        let bytes: Vec<u8> = (0..3 * PAGE).map(|at| (at % 251) as u8).collect();
        let mut target = [0; 5000];
        for _ in 0..2 {
            for offset in [0, 1, 4000, 6000] {
                target.fill(0);
                assert!(read_all(bytes.as_ptr() as u64 + offset, &mut target));
                assert_eq!(target, bytes[offset as usize..][..5000]);
            }
        }
        for address in [0, 8, u64::MAX - 10, 1 << 47] {
            assert!(!read_all(address, &mut target), "{address:#x}");
        }
        forget();
        assert!(read_all(bytes.as_ptr() as u64, &mut target));
    }
}
