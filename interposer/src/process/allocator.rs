//! The recorder's memory: that of the C library, and a reserve for when the program has none left.
//!
//! Rust ends a process that gets no memory. What the recorder needs within a call is little, so it
//! comes from the reserve then, and recording stops: the program goes on, and may free memory.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::alloc::System;

use crate::file::trace_file;

/// Takes no memory until it is used. Tables of the recorder are much smaller.
const RESERVE: usize = 1 << 20;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator {
    reserve: Reserve(UnsafeCell::new([0; RESERVE])),
    used: AtomicUsize::new(0),
};

#[repr(align(4096))]
struct Reserve(UnsafeCell<[u8; RESERVE]>);

// SAFETY: each part is given out once.
unsafe impl Sync for Reserve {}

struct Allocator {
    reserve: Reserve,
    /// Bytes given out; never less.
    used: AtomicUsize,
}

impl Allocator {
    fn start(&self) -> *mut u8 {
        self.reserve.0.get().cast()
    }

    fn has(&self, memory: *const u8) -> bool {
        let offset = memory.addr().wrapping_sub(self.start().addr());
        offset < RESERVE
    }

    /// A part of the reserve, zeroed; NULL if too little is left.
    #[cold]
    fn take(&self, layout: Layout) -> *mut u8 {
        let align = layout.align().max(16);
        let place = |used: usize| {
            let from = used.checked_next_multiple_of(align)?;
            let end = from.checked_add(layout.size())?;
            (align <= align_of::<Reserve>() && end <= RESERVE).then_some((from, end))
        };
        let taken = self
            .used
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, |used| {
                place(used).map(|(_, end)| end)
            });
        let Some((from, _)) = taken.ok().and_then(place) else {
            return core::ptr::null_mut();
        };
        trace_file::end_without_memory();
        self.start().wrapping_add(from)
    }
}

// SAFETY: memory is the system's, or a part of the reserve that nothing else has.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller says.
        let memory = unsafe { System.alloc(layout) };
        if memory.is_null() {
            return self.take(layout);
        }
        memory
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller says.
        let memory = unsafe { System.alloc_zeroed(layout) };
        if memory.is_null() {
            return self.take(layout);
        }
        memory
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        if !self.has(memory) {
            // SAFETY: as the caller says; the system has given it.
            unsafe { System.dealloc(memory, layout) }
        }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let is_own = self.has(memory);
        if !is_own {
            // SAFETY: as the caller says; the system has given it.
            let moved = unsafe { System.realloc(memory, layout, size) };
            if !moved.is_null() {
                return moved;
            }
        }
        let Ok(wanted) = Layout::from_size_align(size, layout.align()) else {
            return core::ptr::null_mut();
        };
        // SAFETY: the size is not zero, as the caller says.
        let moved = unsafe { self.alloc(wanted) };
        if !moved.is_null() {
            // SAFETY: both are that long, and the new one is nobody else's.
            unsafe { core::ptr::copy_nonoverlapping(memory, moved, layout.size().min(size)) };
            // SAFETY: as the caller says; it is not used any more.
            unsafe { self.dealloc(memory, layout) };
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_the_reserve() {
        static SMALL: Allocator = Allocator {
            reserve: Reserve(UnsafeCell::new([0; RESERVE])),
            used: AtomicUsize::new(0),
        };
        let layout = |size, align| Layout::from_size_align(size, align).unwrap();
        let first = SMALL.take(layout(5, 1));
        let second = SMALL.take(layout(100, 64));
        assert_eq!(second.addr() - first.addr(), 64);
        assert!(SMALL.has(second) && !SMALL.has((&raw const SMALL.used).cast()));
        // SAFETY: both parts were just given out, with these sizes.
        unsafe {
            first.write_bytes(7, 5);
            let longer = SMALL.realloc(first, layout(5, 1), 8);
            assert_eq!(core::slice::from_raw_parts(longer, 5), [7; 5]);
            SMALL.dealloc(longer, layout(8, 1));
        }
        assert!(SMALL.take(layout(RESERVE, 1)).is_null());
        assert!(SMALL.take(layout(8, 8192)).is_null());
        assert!(!SMALL.take(layout(RESERVE / 2, 1)).is_null());
    }
}
