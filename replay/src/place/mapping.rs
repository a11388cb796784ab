//! Mappings of this process at addresses that are given.

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

/// Unmaps pages.
///
/// # Safety
///
/// They were mapped by [`map_exactly`], and nothing uses them.
pub(crate) unsafe fn unmap(start: u64, end: u64) {
    // SAFETY: as the caller says.
    unsafe { libc::munmap(start as *mut _, end.saturating_sub(start) as usize) };
}
