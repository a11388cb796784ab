//! Addresses in host memory that have come into device memory, so that work can get at that memory
//! without being given its address. They are looked for only if what a program sees is recorded for
//! `play`.

use core::sync::atomic::{AtomicBool, Ordering};

use crate::file::rows::Memory;
use crate::hot::host_range_filter::HostRangeFilter;
use crate::process::memory::{self, Scratch};
use crate::process::process_lock::ProcessLock;

/// Longer copies to the device are not searched.
const MOST_SEARCHED: u64 = 1 << 20;

/// The ranges of host memory that are compared.
pub(crate) static RANGES: HostRangeFilter = HostRangeFilter::new();
static IS_ON: AtomicBool = AtomicBool::new(false);
static HAS_ANY: AtomicBool = AtomicBool::new(false);
/// Those that `take` has not returned.
static FOUND: ProcessLock<Vec<u64>> = ProcessLock::new();

/// Sets whether addresses are looked for.
pub(crate) fn configure(is_on: bool) {
    IS_ON.store(is_on, Ordering::Relaxed);
}

/// In a forked child.
pub(crate) fn forget() {
    RANGES.forget();
    HAS_ANY.store(false, Ordering::Relaxed);
    FOUND.forget();
}

/// Whether any has been found, or noted.
#[inline]
pub(crate) fn any() -> bool {
    HAS_ANY.load(Ordering::Relaxed)
}

/// Work gets at some memory without being given its address.
pub(crate) fn note() {
    HAS_ANY.store(true, Ordering::Relaxed);
}

/// The addresses that were found since the last time.
pub(crate) fn take() -> Vec<u64> {
    match any() {
        true => core::mem::take(&mut *FOUND.lock()),
        false => Vec::new(),
    }
}

/// Bytes go to the device.
pub(crate) fn look_in(bytes: &(impl Memory + ?Sized)) {
    if IS_ON.load(Ordering::Relaxed) && RANGES.is_any() && bytes.length() <= MOST_SEARCHED {
        find(bytes);
    }
}

#[cold]
fn find(bytes: &(impl Memory + ?Sized)) {
    let Some(mut copy) = Scratch::new(bytes.length() as usize) else {
        return;
    };
    for (address, length) in bytes.pieces() {
        let Some(piece) = copy.bytes().get_mut(..length as usize) else {
            continue;
        };
        if !memory::read_all(address, piece) {
            continue;
        }
        let words = piece.as_chunks::<8>().0.iter();
        let words = words.map(|word| u64::from_le_bytes(*word));
        let found: Vec<u64> = words
            .filter(|&word| RANGES.may_hold(core::iter::once(word)))
            .collect();
        if !found.is_empty() {
            FOUND.lock().extend(found);
            note();
        }
    }
}
