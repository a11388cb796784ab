//! Bytes that stand for device memory: anonymous pages, or a memory file that can be mapped at several addresses.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Pages of our own, given back when dropped.
#[derive(Debug)]
pub(crate) struct Pages {
    base: u64,
    size: u64,
}

impl Pages {
    /// Zeroed private memory of that many bytes, at an address of the kernel's choice.
    pub(crate) fn anonymous(size: u64) -> Option<Pages> {
        Self::map(
            size,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
        )
    }

    fn map(size: u64, flags: i32, file: i32) -> Option<Pages> {
        // SAFETY: a fresh mapping at an address of the kernel's choice; it overlaps nothing.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                size as usize,
                libc::PROT_READ | libc::PROT_WRITE,
                flags,
                file,
                0,
            )
        };
        (base != libc::MAP_FAILED).then_some(Pages {
            base: base as u64,
            size,
        })
    }

    /// Where the bytes lie.
    pub(crate) fn base(&self) -> u64 {
        self.base
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `map`, is owned by this value alone, and nobody uses it after its owner.
        unsafe { libc::munmap(self.base as *mut libc::c_void, self.size as usize) };
    }
}

/// Physical memory of `cuMemCreate`: a memory file, mapped once for our own use.
#[derive(Debug)]
pub(crate) struct Physical {
    file: OwnedFd,
    pages: Pages,
    pub(crate) size: u64,
}

impl Physical {
    pub(crate) fn new(size: u64) -> Option<Physical> {
        // SAFETY: the name is a NUL-terminated constant; the descriptor that comes back is nobody else's.
        let raw = unsafe { libc::memfd_create(c"cutape-null".as_ptr(), libc::MFD_CLOEXEC) };
        if raw < 0 {
            return None;
        }
        // SAFETY: `raw` is an open descriptor that we have just made.
        let file = unsafe { OwnedFd::from_raw_fd(raw) };
        // SAFETY: the descriptor is open and ours.
        if unsafe { libc::ftruncate(file.as_raw_fd(), i64::try_from(size).ok()?) } != 0 {
            return None;
        }
        let pages = Pages::map(
            size,
            libc::MAP_SHARED | libc::MAP_NORESERVE,
            file.as_raw_fd(),
        )?;
        Some(Physical { file, pages, size })
    }

    /// Where our own view of the bytes lies.
    pub(crate) fn base(&self) -> u64 {
        self.pages.base()
    }

    /// Makes the bytes from `offset` visible to the CPU at `address`, in a range that is reserved for it.
    pub(crate) fn show_at(&self, address: u64, size: u64, offset: u64) -> bool {
        // SAFETY: the caller owns the reserved range [address, address + size); only it is replaced.
        let mapped = unsafe {
            libc::mmap(
                address as *mut libc::c_void,
                size as usize,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_FIXED | libc::MAP_NORESERVE,
                self.file.as_raw_fd(),
                offset as i64,
            )
        };
        mapped != libc::MAP_FAILED
    }
}

/// Replaces a range of reserved address space by fresh zeroed memory that the CPU may use.
pub(crate) fn open_range(address: u64, size: u64) -> bool {
    fixed(address, size, libc::PROT_READ | libc::PROT_WRITE)
}

/// Takes a range back to reserved and inaccessible; its bytes are gone.
pub(crate) fn close_range(address: u64, size: u64) -> bool {
    fixed(address, size, libc::PROT_NONE)
}

fn fixed(address: u64, size: u64, protection: i32) -> bool {
    // SAFETY: callers pass only ranges inside address space that this library has reserved and owns.
    let mapped = unsafe {
        libc::mmap(
            address as *mut libc::c_void,
            size as usize,
            protection,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    mapped != libc::MAP_FAILED
}

/// Reserves exactly that range, if nobody has it.
pub(crate) fn reserve_exactly(address: u64, size: u64) -> bool {
    // SAFETY: NOREPLACE never touches an existing mapping.
    let got = unsafe {
        libc::mmap(
            address as *mut libc::c_void,
            size as usize,
            libc::PROT_NONE,
            libc::MAP_PRIVATE
                | libc::MAP_ANONYMOUS
                | libc::MAP_NORESERVE
                | libc::MAP_FIXED_NOREPLACE,
            -1,
            0,
        )
    };
    if got == libc::MAP_FAILED {
        return false;
    }
    if got as u64 != address {
        // A kernel before 4.17 takes the address for a hint.
        // SAFETY: this is the mapping that was made just now.
        unsafe { libc::munmap(got, size as usize) };
        return false;
    }
    true
}

/// Gives a reserved range back to the system.
pub(crate) fn give_back(address: u64, size: u64) {
    // SAFETY: callers pass only ranges that `reserve_exactly` gave them and that they no longer use.
    unsafe { libc::munmap(address as *mut libc::c_void, size as usize) };
}
