//! Handle values: heap-like addresses, reused soon after their object is destroyed.

use std::collections::HashMap;

use cutape_registry::Kind;

/// Address space that handles come from; it holds zeros only.
const ARENA: usize = 256 << 20;
/// Distance of two handles.
const CELL: u64 = 0x120;

/// Assigns handle values; last in, first out for each kind, so that a stale handle often names a
/// new object, as on the real driver.
pub(crate) struct Handles {
    next: u64,
    end: u64,
    free: HashMap<Kind, Vec<u64>>,
}

impl Default for Handles {
    fn default() -> Self {
        // SAFETY: a new anonymous mapping at an address of the kernel's choice.
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
        // Without address space every creation answers OUT_OF_MEMORY.
        let (base, size) = match base {
            libc::MAP_FAILED => (0, 0),
            base => (base as u64, ARENA as u64),
        };
        Handles {
            next: base + 0x2a0,
            end: base + size,
            free: HashMap::new(),
        }
    }
}

impl Handles {
    /// A handle that no living object has.
    pub(crate) fn create(&mut self, kind: Kind) -> Option<u64> {
        if let Some(handle) = self.free.get_mut(&kind).and_then(Vec::pop) {
            return Some(handle);
        }
        if self.next + CELL > self.end {
            return None;
        }
        self.next += CELL;
        Some(self.next - CELL)
    }

    /// Takes back the handle of a destroyed object.
    pub(crate) fn release(&mut self, kind: Kind, handle: u64) {
        self.free.entry(kind).or_default().push(handle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_released_handle_is_reused_for_its_kind_only() {
        let mut handles = Handles::default();
        let first = handles.create(Kind::Stream).expect("space");
        let second = handles.create(Kind::Stream).expect("space");
        assert_ne!(first, second);
        handles.release(Kind::Stream, first);
        assert_ne!(handles.create(Kind::Event), Some(first));
        assert_eq!(handles.create(Kind::Stream), Some(first));
    }
}
