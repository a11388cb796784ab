//! Reads memory that is known to be readable without a system call.
//!
//! A page counts as readable once a checked read of it has succeeded, and is then read directly. A
//! pointer that leads anywhere else is followed by a checked read, which fails where a plain one
//! would fault. The caller must have a reason why what it reads is alive: a page that is unmapped
//! later still counts.

use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering};

use super::memory;

const PAGE: u64 = 4096;
/// Pages that a place holds. Pages that are too many for their place replace each other, and are
/// then read with a system call each time. With fifty pages in constant use, as deep stacks of
/// Python have, that happens in one process of 500,000 (computed); with one page a place, in every
/// fourth.
const WAYS: usize = 4;
/// Places. A page may be replaced by another at any moment.
const SETS: usize = 1 << 10;

/// Pages that are known to be readable.
struct Pages([[AtomicU64; WAYS]; SETS]);

static PAGES: Pages = Pages::new();

impl Pages {
    const fn new() -> Self {
        Self([const { [const { AtomicU64::new(0) }; WAYS] }; SETS])
    }

    fn set_of(&self, page: u64) -> &[AtomicU64; WAYS] {
        let hash = page.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let at = (hash >> (64 - SETS.trailing_zeros())) as usize;
        self.0.get(at).unwrap_or(&self.0[0])
    }

    #[inline]
    fn has(&self, page: u64) -> bool {
        let mut ways = self.set_of(page).iter();
        page != 0 && ways.any(|way| way.load(Ordering::Relaxed) == page)
    }

    /// Adds a page, if need be in the place of another.
    #[cold]
    fn add(&self, page: u64) {
        /// Which one is replaced next.
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let set = self.set_of(page);
        let free = set.iter().find(|way| way.load(Ordering::Relaxed) == 0);
        let replaced = || set.get(NEXT.fetch_add(1, Ordering::Relaxed) as usize % WAYS);
        if let Some(way) = free.or_else(replaced) {
            way.store(page, Ordering::Relaxed);
        }
    }
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
        if PAGES.has(page) {
            // SAFETY: the page was readable, and the caller says that what it reads is alive.
            unsafe { copy(at, part) };
        } else if memory::read_all(at, part) {
            PAGES.add(page);
        } else {
            return false;
        }
        at += length as u64;
    }
    true
}

/// Copies from that address without memcpy, which AddressSanitizer replaces in a program that was
/// compiled with it: what is read may extend beyond an object, up to the end of the page.
///
/// # Safety
/// All bytes are readable.
unsafe fn copy(address: u64, target: &mut [u8]) {
    let mut at = address;
    let (words, bytes) = target.as_chunks_mut::<8>();
    for target in words {
        let word: u64;
        // SAFETY: as the caller says; it changes nothing.
        unsafe {
            asm!(
                "mov {}, qword ptr [{}]", out(reg) word, in(reg) at,
                options(pure, readonly, nostack, preserves_flags),
            );
        }
        *target = word.to_le_bytes();
        at += 8;
    }
    for target in bytes {
        let byte: u8;
        // SAFETY: as above.
        unsafe {
            asm!(
                "mov {}, byte ptr [{}]", out(reg_byte) byte, in(reg) at,
                options(pure, readonly, nostack, preserves_flags),
            );
        }
        *target = byte;
        at += 1;
    }
}

/// In a forked child, which may lack some of the pages: nothing is known.
pub(crate) fn forget() {
    for way in PAGES.0.iter().flatten() {
        way.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_with_the_same_place_stay_known() {
        static TABLE: Pages = Pages::new();
        let first = 0x5_5555_5554;
        let same = |page: &u64| core::ptr::eq(TABLE.set_of(*page), TABLE.set_of(first));
        let pages: Vec<u64> = (first..).filter(same).take(WAYS + 1).collect();
        for (count, &page) in (1..).zip(&pages) {
            assert!(!TABLE.has(page));
            TABLE.add(page);
            assert!(TABLE.has(page));
            let known = pages.iter().filter(|&&page| TABLE.has(page));
            assert_eq!(known.count(), count.min(WAYS));
        }
    }

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
