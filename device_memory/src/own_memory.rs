//! Memory of the host that devices write for the recorder.

/// Maps that many bytes, which are zeros and are never unmapped; `None` if the system refuses.
pub(crate) fn map(length: u64) -> Option<u64> {
    let bytes = usize::try_from(length).ok()?;
    // SAFETY: a fresh private mapping.
    let start = unsafe {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        libc::mmap(core::ptr::null_mut(), bytes, access, flags, -1, 0)
    };
    if start == libc::MAP_FAILED {
        return None;
    }
    // Pages that a child shares are copied when they are written: devices would then write to
    // those that the parent no longer has.
    // SAFETY: the mapping made above.
    unsafe { libc::madvise(start, bytes, libc::MADV_DONTFORK) };
    Some(start as u64)
}
