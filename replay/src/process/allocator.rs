//! An allocator that keeps large allocations of this process out of the gaps that the driver's
//! memory belongs to.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::process::mapping::{map_anywhere, map_exactly};

/// The C library maps allocations from this size on (mallopt(3), `M_MMAP_THRESHOLD`).
const LARGE: usize = 128 << 10;
/// Where large allocations lie: above what the driver maps at fixed addresses, below executables.
const START: usize = 0x3000_0000_0000;
const END: usize = 0x5000_0000_0000;
const PAGE: usize = 4096;

/// Where the next large allocation will lie; 0 while they are left to the system.
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator, but for large allocations once a replay has the driver place memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct Allocator;

/// From now on, large allocations lie apart.
pub(crate) fn keep_apart() {
    let _ = NEXT.compare_exchange(0, START, Ordering::Relaxed, Ordering::Relaxed);
}

/// Maps fresh pages: apart, once large allocations lie there. They stay until they are unmapped.
pub(crate) fn map_pages(length: u64) -> Option<u64> {
    let layout = Layout::from_size_align(length as usize, PAGE).ok()?;
    match map_apart(layout) {
        Some(address) => Some(address as u64),
        None => map_anywhere(length),
    }
}

/// The pages of a large allocation that lies apart.
fn pages(layout: Layout) -> usize {
    layout.size().next_multiple_of(PAGE)
}

fn is_apart(address: *mut u8) -> bool {
    (START..END).contains(&(address as usize))
}

// SAFETY: allocations between START and END are mappings of their own, made with the layout's size
// at page addresses; all others are the system allocator's, which is far from that range (the heap
// lies above executables, mappings below the stack).
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match map_apart(layout) {
            Some(address) => address,
            // SAFETY: as the caller says.
            None => unsafe { System.alloc(layout) },
        }
    }

    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        // SAFETY: as the caller says; a mapping has the length that `alloc` gave it.
        unsafe {
            match is_apart(address) {
                true => {
                    libc::munmap(address.cast(), pages(layout));
                }
                false => System.dealloc(address, layout),
            }
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        match map_apart(layout) {
            // Fresh pages are zero.
            Some(address) => address,
            // SAFETY: as the caller says.
            None => unsafe { System.alloc_zeroed(layout) },
        }
    }
}

/// Maps zeroed pages for a large allocation; `None` for others, and where something else lies.
fn map_apart(layout: Layout) -> Option<*mut u8> {
    if layout.size() < LARGE || layout.align() > PAGE || NEXT.load(Ordering::Relaxed) == 0 {
        return None;
    }
    let length = pages(layout);
    let address = NEXT.fetch_add(length + PAGE, Ordering::Relaxed);
    if address.checked_add(length)? > END {
        return None;
    }
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let is_mapped = map_exactly(address as u64, (address + length) as u64, access);
    is_mapped.then_some(address as *mut u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_allocations_lie_apart_once_that_is_wanted() {
        let layout = |size| Layout::from_size_align(size, 16).unwrap();
        // SAFETY: each allocation is freed with its layout, and only its own bytes are touched.
        unsafe {
            let before = Allocator.alloc(layout(LARGE));
            assert!(!is_apart(before));
            keep_apart();
            let small = Allocator.alloc(layout(LARGE - 1));
            assert!(!is_apart(small));
            let large = Allocator.alloc_zeroed(layout(LARGE + 1));
            assert!(is_apart(large));
            assert_eq!((*large, *large.add(LARGE)), (0, 0));
            *large = 7;
            let larger = Allocator.realloc(large, layout(LARGE + 1), 3 * LARGE);
            assert!(is_apart(larger) && larger != large);
            assert_eq!(*larger, 7);
            Allocator.dealloc(larger, layout(3 * LARGE));
            Allocator.dealloc(small, layout(LARGE - 1));
            Allocator.dealloc(before, layout(LARGE));
        }
    }
}
