//! Mappings of this process at addresses that are given.

use std::os::fd::{AsRawFd, BorrowedFd};

/// Maps zeroed private pages exactly there; false if something else is there. They stay until
/// [`unmap`].
pub(crate) fn map_exactly(start: u64, end: u64, access: libc::c_int) -> bool {
    let flags =
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
    let length = end.saturating_sub(start) as usize;
    // SAFETY: MAP_FIXED_NOREPLACE never touches existing mappings.
    let address = unsafe { libc::mmap(start as *mut _, length, access, flags, -1, 0) };
    if address == libc::MAP_FAILED {
        return false;
    }
    if address as u64 != start {
        // A kernel before 4.17 takes the address as a hint.
        // SAFETY: the mapping was just made here and nothing uses it.
        unsafe { libc::munmap(address, length) };
        return false;
    }
    true
}

/// Maps fresh private pages wherever there is room. They stay until [`unmap`].
pub(crate) fn map_anywhere(length: u64) -> Option<u64> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a fresh mapping touches no other.
    let address =
        unsafe { libc::mmap(std::ptr::null_mut(), length as usize, access, flags, -1, 0) };
    (address != libc::MAP_FAILED).then_some(address as u64)
}

/// Replaces pages by those of a file, shared, or by zeroed private ones without one. False if the
/// system refuses; the pages are as before then.
///
/// # Safety
///
/// The pages were mapped by [`map_exactly`], [`map_anywhere`] or here, and nothing has a reference
/// to them.
pub(crate) unsafe fn replace(start: u64, length: u64, file: Option<(BorrowedFd<'_>, u64)>) -> bool {
    let (kind, descriptor, offset) = match file {
        Some((file, offset)) => (libc::MAP_SHARED, file.as_raw_fd(), offset),
        None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0),
    };
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: by the caller, nothing but those pages is replaced, and nothing uses them.
    let address = unsafe {
        libc::mmap(
            start as *mut _,
            length as usize,
            access,
            kind | libc::MAP_FIXED,
            descriptor,
            offset as libc::off_t,
        )
    };
    address != libc::MAP_FAILED
}

/// Unmaps pages.
///
/// # Safety
///
/// They were mapped by [`map_exactly`] or [`map_anywhere`], and nothing uses them.
pub(crate) unsafe fn unmap(start: u64, end: u64) {
    // SAFETY: as the caller says.
    unsafe { libc::munmap(start as *mut _, end.saturating_sub(start) as usize) };
}
