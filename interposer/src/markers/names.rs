//! Names that the program registers once: domains and strings. Their handles are small numbers, so
//! that a wrong handle is harmless.

use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::collections::HashMap;

use crate::process::errno::Errno;
use crate::process::process_lock::ProcessLock;

const BLOCK: usize = 1 << 10;
const BLOCKS: usize = 1 << 8;

type Block = [AtomicPtr<Box<[u8]>>; BLOCK];

/// The names by number, in blocks that are made when they are needed and never freed.
static NAMES: [AtomicPtr<Block>; BLOCKS] =
    [const { AtomicPtr::new(core::ptr::null_mut()) }; BLOCKS];
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// The handle of each name, so that a program that registers it again gets the same.
static HANDLES: ProcessLock<HashMap<Box<[u8]>, u64>> = ProcessLock::new();

/// Registers a name. Returns its handle, never 0, or 0 if there is no room.
pub(super) fn register(name: &[u8]) -> u64 {
    let _errno = Errno::keep();
    let mut handles = HANDLES.lock();
    if let Some(&known) = handles.get(name) {
        return known;
    }
    let number = COUNT.load(Ordering::Relaxed);
    let Some(place) = NAMES.get(number / BLOCK) else {
        return 0;
    };
    let mut block = place.load(Ordering::Acquire);
    if block.is_null() {
        let empty: Block = [const { AtomicPtr::new(core::ptr::null_mut()) }; BLOCK];
        block = Box::into_raw(Box::new(empty));
        place.store(block, Ordering::Release);
    }
    // SAFETY: made above by this thread or another, and never freed.
    if let Some(place) = unsafe { &*block }.get(number % BLOCK) {
        place.store(Box::into_raw(Box::new(name.into())), Ordering::Release);
    }
    COUNT.store(number + 1, Ordering::Release);
    let handle = number as u64 + 1;
    handles.insert(name.into(), handle);
    handle
}

/// The name of a handle; empty for 0 and for what is no handle.
pub(super) fn name(handle: u64) -> &'static [u8] {
    let find = || {
        let number = usize::try_from(handle.checked_sub(1)?).ok()?;
        let block = NAMES.get(number / BLOCK)?.load(Ordering::Acquire);
        // SAFETY: NULL, or made by `register` and never freed.
        let place = unsafe { block.as_ref() }?.get(number % BLOCK)?;
        // SAFETY: as above.
        unsafe { place.load(Ordering::Acquire).as_ref() }
    };
    find().map_or(&[], |name| name)
}

/// In a forked child: what was registered stays.
pub(super) fn forget() {
    HANDLES.forget();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_name_what_was_registered() {
        let handles: Vec<u64> = (0..3 * BLOCK)
            .map(|number| register(format!("name {number}").as_bytes()))
            .collect();
        assert_eq!(register(b"name 7"), handles[7]);
        for (number, &handle) in handles.iter().enumerate() {
            assert_eq!(name(handle), format!("name {number}").as_bytes());
        }
        for wrong in [0, handles[3 * BLOCK - 1] + 1000, u64::MAX, 0x7fff_0000_1000] {
            assert_eq!(name(wrong), b"");
        }
    }
}
