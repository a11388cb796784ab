//! Objects by handle. Handle values are heap-like addresses, reused soon after their object is
//! destroyed.

use std::collections::HashMap;
use std::ops::{Deref, DerefMut, Range};
use std::sync::{LazyLock, Mutex, PoisonError};

use crate::call::answer::{Answer, CUresult, OUT_OF_MEMORY};

/// Address space that handles come from; it holds zeros only.
const ARENA: usize = 256 << 20;
/// Distance of two handles.
const CELL: u64 = 0x120;

/// The part of the address space that no handle was taken from yet.
static UNUSED: LazyLock<Mutex<Range<u64>>> = LazyLock::new(|| {
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
    Mutex::new(match base {
        // Without address space every creation answers OUT_OF_MEMORY.
        libc::MAP_FAILED => 0..0,
        base => base as u64 + 0x2a0..base as u64 + ARENA as u64,
    })
});

/// Takes the address space of handles now, so that where it lies does not depend on which call makes
/// the first object: the runtime has a context's handle from a private table, a replay from a call.
pub(crate) fn prepare() {
    LazyLock::force(&UNUSED);
}

/// Whether some object has or had that handle.
pub(crate) fn was_handle(handle: u64) -> bool {
    let unused = UNUSED.lock().unwrap_or_else(PoisonError::into_inner);
    let first = unused.end.saturating_sub(ARENA as u64);
    (first..unused.start).contains(&handle)
}

/// An object with a handle.
pub(crate) trait Object {
    /// What a call answers to a handle that names no such object.
    const MISSING: CUresult;
}

/// The objects of one kind. Freed handles are reused last in, first out, so that a stale handle
/// often names a new object, as on the real driver.
pub(crate) struct Table<T> {
    objects: HashMap<u64, T>,
    free: Vec<u64>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Table {
            objects: HashMap::new(),
            free: Vec::new(),
        }
    }
}

impl<T> Table<T> {
    /// A handle that no living object has.
    pub(crate) fn new_handle(&mut self) -> Answer<u64> {
        if let Some(handle) = self.free.pop() {
            return Ok(handle);
        }
        let mut unused = UNUSED.lock().unwrap_or_else(PoisonError::into_inner);
        let handle = unused.start;
        unused.start += CELL;
        let is_left = unused.start <= unused.end;
        is_left.then_some(handle).ok_or(OUT_OF_MEMORY)
    }

    /// Adds an object and returns its new handle.
    pub(crate) fn add(&mut self, object: T) -> Answer<u64> {
        let handle = self.new_handle()?;
        self.objects.insert(handle, object);
        Ok(handle)
    }

    /// Ends an object; its handle is free.
    pub(crate) fn remove(&mut self, handle: u64) -> Option<T> {
        let object = self.objects.remove(&handle)?;
        self.free.push(handle);
        Some(object)
    }
}

impl<T: Object> Table<T> {
    pub(crate) fn find(&self, handle: u64) -> Answer<&T> {
        self.objects.get(&handle).ok_or(T::MISSING)
    }

    pub(crate) fn find_mut(&mut self, handle: u64) -> Answer<&mut T> {
        self.objects.get_mut(&handle).ok_or(T::MISSING)
    }
}

impl<T> Deref for Table<T> {
    type Target = HashMap<u64, T>;

    fn deref(&self) -> &HashMap<u64, T> {
        &self.objects
    }
}

impl<T> DerefMut for Table<T> {
    fn deref_mut(&mut self) -> &mut HashMap<u64, T> {
        &mut self.objects
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Thing;

    impl Object for Thing {
        const MISSING: CUresult = OUT_OF_MEMORY;
    }

    #[test]
    fn a_freed_handle_is_reused_for_its_kind_only() {
        let (mut streams, mut events) = (Table::default(), Table::default());
        let first = streams.add(Thing).expect("space");
        let second = streams.add(Thing).expect("space");
        assert_ne!(first, second);
        assert!(streams.remove(first).is_some() && streams.find(first).is_err());
        assert_ne!(events.add(Thing), Ok(first));
        assert_eq!(streams.add(Thing), Ok(first));
    }
}
