//! The memory that copies go to: mapped before the program's first call, so that the driver finds
//! it where a replay can keep the place free, and page-locked when a context comes to life.

use core::sync::atomic::{AtomicU64, Ordering};

use cutape_registry::id;

use crate::driver;
use crate::process::errno::Errno;

/// CU_MEMHOSTREGISTER_PORTABLE and _DEVICEMAP.
const PORTABLE_MAPPED: u64 = 3;
/// CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED: by a context that has ended.
const ALREADY_REGISTERED: i32 = 712;

/// Where it begins, its bytes; 0 if there is none.
static START: AtomicU64 = AtomicU64::new(0);
static LENGTH: AtomicU64 = AtomicU64::new(0);
/// The address by which devices write there.
static FOR_DEVICES: AtomicU64 = AtomicU64::new(0);

/// Maps that many bytes; false if the system refuses.
pub(super) fn map(length: u64) -> bool {
    let _errno = Errno::keep();
    let Ok(bytes) = usize::try_from(length) else {
        return false;
    };
    // SAFETY: a fresh private mapping.
    let start = unsafe {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        libc::mmap(core::ptr::null_mut(), bytes, access, flags, -1, 0)
    };
    if start == libc::MAP_FAILED {
        return false;
    }
    // Pages that a child shares are copied when they are written: devices would then write to
    // those that the parent no longer has.
    // SAFETY: the mapping made above.
    unsafe { libc::madvise(start, bytes, libc::MADV_DONTFORK) };
    START.store(start as u64, Ordering::Relaxed);
    LENGTH.store(length, Ordering::Relaxed);
    true
}

/// In a forked child, which does not have the mapping.
pub(super) fn forget() {
    START.store(0, Ordering::Relaxed);
    LENGTH.store(0, Ordering::Relaxed);
}

/// Its bytes.
pub(super) fn length() -> u64 {
    LENGTH.load(Ordering::Relaxed)
}

/// Page-locks it for all contexts, on behalf of the current one.
pub(super) fn register() -> bool {
    let (start, length) = (START.load(Ordering::Relaxed), length());
    if start == 0 {
        return false;
    }
    let arguments = [start, length, PORTABLE_MAPPED, 0];
    // SAFETY: memory of ours, which stays mapped.
    let register = || unsafe { driver::call(id::cuMemHostRegister_v2, arguments) };
    let result = beside_captures(register);
    if !matches!(result, Some(0 | ALREADY_REGISTERED)) {
        return false;
    }
    let arguments = |place| [place, start, 0, 0];
    // SAFETY: it writes an address.
    let address = unsafe { driver::ask::<u64>(id::cuMemHostGetDevicePointer_v2, arguments) };
    let Some(address) = address else { return false };
    FOR_DEVICES.store(address, Ordering::Relaxed);
    true
}

/// Makes a call that would end a capture in progress, of this thread or another.
fn beside_captures<T>(act: impl FnOnce() -> T) -> T {
    // CU_STREAM_CAPTURE_MODE_RELAXED
    let mut mode = 2_i32;
    let mut exchange = || {
        let arguments = [(&raw mut mode) as u64, 0, 0, 0];
        // SAFETY: it reads and writes the mode.
        unsafe { driver::call(id::cuThreadExchangeStreamCaptureMode, arguments) == Some(0) }
    };
    let is_changed = exchange();
    let result = act();
    if is_changed {
        exchange();
    }
    result
}

/// Ends that, in the same context.
pub(super) fn unregister() {
    let start = START.load(Ordering::Relaxed);
    // SAFETY: registered by `register`; a failure means that it has ended already.
    let unregister = || unsafe { driver::call(id::cuMemHostUnregister, [start, 0, 0, 0]) };
    let _ = beside_captures(unregister);
}

/// The bytes in a place of the ring that no device writes to any more.
pub(super) fn bytes(place: u64, length: u64) -> &'static [u8] {
    let start = START.load(Ordering::Relaxed);
    if start == 0 || place.saturating_add(length) > self::length() {
        return &[];
    }
    // SAFETY: inside the mapping, which is never unmapped and was zeroed by the system; the
    // callers hold the place, and the device has finished with it.
    unsafe { core::slice::from_raw_parts((start + place) as *const u8, length as usize) }
}

/// Copies device memory to a place of the ring, in the order of a stream.
pub(super) fn copy(place: u64, source: u64, length: u64, stream: u64) -> bool {
    let target = START.load(Ordering::Relaxed) + place;
    // SAFETY: the place is ours and page-locked; the driver checks the other arguments.
    unsafe { driver::call(id::cuMemcpyDtoHAsync_v2, [target, source, length, stream]) == Some(0) }
}

/// Has a stream write a mark behind the copies.
pub(super) fn mark(place: u64, mark: u32, stream: u64) -> bool {
    let target = FOR_DEVICES.load(Ordering::Relaxed) + place;
    let arguments = [stream, target, mark.into(), 0];
    // SAFETY: as in `copy`.
    unsafe { driver::call(id::cuStreamWriteValue32_v2, arguments) == Some(0) }
}

/// Takes away a mark, before a device may write one.
pub(super) fn clear_mark(place: u64) {
    let address = START.load(Ordering::Relaxed) + place;
    // SAFETY: the place is ours, and no device writes there.
    unsafe { (address as *mut u32).write_volatile(0) };
}

/// Whether a device has written that mark.
pub(super) fn has_mark(place: u64, mark: u32) -> bool {
    let address = START.load(Ordering::Relaxed) + place;
    // SAFETY: the place is ours.
    let found = unsafe { (address as *const u32).read_volatile() };
    core::sync::atomic::fence(Ordering::Acquire);
    found == mark
}
