//! Bytes that back device memory: anonymous pages, or those of a file that can be mapped at several
//! addresses and by several processes.

use std::os::fd::RawFd;

/// Pages of this process, unmapped when dropped.
pub(crate) struct Pages {
    base: u64,
    size: u64,
}

impl Pages {
    /// Zeroed private memory of that many bytes.
    pub(crate) fn anonymous(size: u64) -> Option<Pages> {
        Self::map(size, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1)
    }

    /// The first bytes of a file.
    pub(crate) fn shared(size: u64, file: RawFd) -> Option<Pages> {
        Self::map(size, libc::MAP_SHARED, file)
    }

    fn map(size: u64, flags: i32, file: RawFd) -> Option<Pages> {
        let flags = flags | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
        let base = unsafe { map(0, size, ACCESSIBLE, flags, file) }?;
        Some(Pages { base, size })
    }

    /// The address of the bytes.
    pub(crate) fn base(&self) -> u64 {
        self.base
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // `map` mapped the range, which this value alone owns.
        unmap(self.base, self.size);
    }
}

const ACCESSIBLE: i32 = libc::PROT_READ | libc::PROT_WRITE;

/// # Safety
/// With `MAP_FIXED` the caller owns the range.
unsafe fn map(address: u64, size: u64, protection: i32, flags: i32, file: i32) -> Option<u64> {
    let address = address as *mut libc::c_void;
    // SAFETY: without MAP_FIXED no mapping is replaced; with it, the caller owns the range.
    let base = unsafe { libc::mmap(address, size as usize, protection, flags, file, 0) };
    (base != libc::MAP_FAILED).then_some(base as u64)
}

fn unmap(address: u64, size: u64) {
    // SAFETY: callers pass only ranges that they mapped and no longer use.
    unsafe { libc::munmap(address as *mut libc::c_void, size as usize) };
}

/// Replaces a range of reserved address space by zeroed memory that the CPU may use.
pub(crate) fn open_range(address: u64, size: u64) -> bool {
    replace(address, size, ACCESSIBLE)
}

/// Makes the first bytes of a file visible to the CPU at `address`, in a range of this library.
pub(crate) fn show_file_at(file: RawFd, address: u64, size: u64) -> bool {
    let flags = libc::MAP_SHARED | libc::MAP_FIXED | libc::MAP_NORESERVE;
    // SAFETY: callers pass only ranges inside address space that this library has reserved.
    unsafe { map(address, size, ACCESSIBLE, flags, file) }.is_some()
}

/// Makes a range reserved and inaccessible again; its bytes are lost.
pub(crate) fn close_range(address: u64, size: u64) -> bool {
    replace(address, size, libc::PROT_NONE)
}

fn replace(address: u64, size: u64, protection: i32) -> bool {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
    // SAFETY: callers pass only ranges inside address space that this library has reserved.
    unsafe { map(address, size, protection, flags, -1) }.is_some()
}

/// Reserves exactly that range, if nothing is mapped there.
pub(crate) fn reserve_exactly(address: u64, size: u64) -> bool {
    let flags =
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: NOREPLACE never touches an existing mapping.
    let base = unsafe { map(address, size, libc::PROT_NONE, flags, -1) };
    if let Some(base) = base.filter(|&base| base != address) {
        // A kernel before 4.17 takes the address for a hint.
        unmap(base, size);
    }
    base == Some(address)
}

/// Reserves a range at a multiple of `alignment`, a power of two, as high as the kernel finds room.
pub(crate) fn reserve_anywhere(size: u64, alignment: u64) -> Option<u64> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let whole = size.checked_add(alignment)?;
    // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
    let start = unsafe { map(0, whole, libc::PROT_NONE, flags, -1) }?;
    let base = (start + alignment) / alignment * alignment;
    for (from, to) in [(start, base), (base + size, start + whole)] {
        if from < to {
            unmap(from, to - from);
        }
    }
    Some(base)
}

/// Returns a reserved range to the system.
pub(crate) fn release_range(address: u64, size: u64) {
    unmap(address, size);
}
