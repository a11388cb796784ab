//! Handle values: heap-like addresses, given out again soon after their object is destroyed.

use std::collections::HashMap;

use cutape_registry::Kind;

/// Address space that handles come from; nothing is stored there but zeros.
const ARENA: usize = 256 << 20;
/// Distance of two handles.
const CELL: u64 = 0x120;

/// Gives out handle values; last in, first out for each kind, so that stale handles meet new objects as in real life.
#[derive(Debug)]
pub(crate) struct Handles {
    next: u64,
    end: u64,
    free: HashMap<Kind, Vec<u64>>,
}

impl Handles {
    pub(crate) fn new() -> Self {
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice; nobody else holds a pointer into it.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                ARENA,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        // Without address space there are no handles, and every creation answers OUT_OF_MEMORY.
        let base = if base == libc::MAP_FAILED {
            0
        } else {
            base as u64
        };
        let end = if base == 0 { 0 } else { base + ARENA as u64 };
        Handles {
            next: base + 0x2a0,
            end,
            free: HashMap::new(),
        }
    }

    /// A handle that no living object has.
    pub(crate) fn make(&mut self, kind: Kind) -> Option<u64> {
        if let Some(handle) = self.free.get_mut(&kind).and_then(Vec::pop) {
            return Some(handle);
        }
        if self.next + CELL > self.end {
            return None;
        }
        self.next += CELL;
        Some(self.next - CELL)
    }

    /// Takes a handle back whose object is gone.
    pub(crate) fn release(&mut self, kind: Kind, handle: u64) {
        self.free.entry(kind).or_default().push(handle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_released_handle_comes_again_for_its_kind_only() {
        let mut handles = Handles::new();
        let first = handles.make(Kind::Stream).expect("space");
        let second = handles.make(Kind::Stream).expect("space");
        assert_ne!(first, second);
        handles.release(Kind::Stream, first);
        assert_ne!(handles.make(Kind::Event), Some(first));
        assert_eq!(handles.make(Kind::Stream), Some(first));
    }
}
