//! Reads the program's memory in a way that fails where a plain read would fault.

use core::sync::atomic::{AtomicBool, Ordering};

use super::errno::{self, Errno};

/// Set once the system has refused `process_vm_readv` (some sandboxes do): then every page is
/// checked by `is_readable`.
static REFUSED: AtomicBool = AtomicBool::new(false);

const PAGE: usize = 4096;
/// Most strings are not longer.
const NAME: usize = 256;

/// Copies up to `target.len()` bytes from `address`. Returns how many could be read from the start.
pub(crate) fn read(address: u64, target: &mut [u8]) -> usize {
    if target.is_empty() || address == 0 {
        return 0;
    }
    let _errno = Errno::keep();
    let mut done = 0;
    while !REFUSED.load(Ordering::Relaxed)
        && let Some(rest) = target.get_mut(done..).filter(|rest| !rest.is_empty())
    {
        let local = libc::iovec {
            iov_base: rest.as_mut_ptr().cast(),
            iov_len: rest.len(),
        };
        let from = address.wrapping_add(done as u64);
        let remote = libc::iovec {
            iov_base: from as *mut _,
            iov_len: rest.len(),
        };
        // SAFETY: both vectors hold one entry; the kernel checks the remote range and writes within
        // `rest`.
        let count = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
        if count > 0 {
            done += count as usize;
            continue;
        }
        if count < 0 && matches!(errno::get(), libc::EPERM | libc::ENOSYS) {
            REFUSED.store(true, Ordering::Relaxed);
        }
        break;
    }
    // Memory that a device driver has mapped can be read here, but not through `process_vm_readv`.
    let rest = target.get_mut(done..).unwrap_or_default();
    done + read_pages(address.wrapping_add(done as u64), rest)
}

/// Copies page by page, after the kernel has checked each. Returns how many bytes could be read.
fn read_pages(address: u64, target: &mut [u8]) -> usize {
    let mut done = 0;
    while let Some(rest) = target.get_mut(done..).filter(|rest| !rest.is_empty()) {
        let from = address.wrapping_add(done as u64);
        if !is_readable(from) {
            break;
        }
        let length = (PAGE - from as usize % PAGE).min(rest.len());
        // SAFETY: the page was readable a moment ago, and `rest` has that many bytes. A program
        // that unmaps the page while its call reads it would make the driver fault as well.
        unsafe {
            core::ptr::copy_nonoverlapping(from as *const u8, rest.as_mut_ptr(), length);
        }
        done += length;
    }
    done
}

/// Whether the page of an address can be read.
pub(crate) fn is_readable(address: u64) -> bool {
    let _errno = Errno::keep();
    // The kernel reads the eight bytes of the set before it rejects the request. No other system
    // call without effect reads so little.
    const NO_REQUEST: u64 = u32::MAX as u64;
    let word = address & !7;
    // SAFETY: the request does not exist, so nothing is changed; an address that cannot be read is
    // answered with EFAULT.
    let answer = unsafe { libc::syscall(libc::SYS_rt_sigprocmask, NO_REQUEST, word, 0_u64, 8_u64) };
    word != 0 && answer != 0 && errno::get() == libc::EINVAL
}

/// Whether all pages of a piece of memory can be read.
pub(crate) fn are_readable(address: u64, length: u64) -> bool {
    let _errno = Errno::keep();
    let page = PAGE as u64;
    let start = address / page * page;
    let end = address.saturating_add(length);
    // One request for all pages is faster than one each.
    // SAFETY: the request changes no memory; where pages cannot be read it fails.
    let answer = unsafe {
        let length = end.saturating_sub(start) as usize;
        libc::madvise(start as *mut _, length, libc::MADV_POPULATE_READ)
    };
    // It also fails before Linux 5.14, and for memory that a device driver has mapped.
    answer == 0
        || (start..end)
            .step_by(PAGE)
            .all(|at| is_readable(at.max(address)))
}

/// Copies `target.len()` bytes. False if not all can be read.
pub(crate) fn read_all(address: u64, target: &mut [u8]) -> bool {
    read(address, target) == target.len()
}

/// The u64 at an address.
pub(crate) fn word(address: u64) -> Option<u64> {
    let mut bytes = [0; 8];
    read_all(address, &mut bytes).then(|| u64::from_le_bytes(bytes))
}

/// The length of the NUL-terminated string at an address, its NUL included, up to `limit`; `None`
/// if it cannot be read or has no NUL within the limit.
pub(crate) fn string_length(address: u64, limit: usize) -> Option<usize> {
    // On the stack, of which a signal handler may have little.
    let mut first = [0; NAME];
    let mut long = None;
    let mut length = 0;
    while length < limit {
        let buffer = match &mut long {
            None => &mut first[..],
            Some(long) => Scratch::bytes(long),
        };
        let at = address.checked_add(length as u64)?;
        // Not across a page: the next one may not be mapped.
        let want = (PAGE - (at as usize % PAGE))
            .min(limit - length)
            .min(buffer.len());
        let got = read(at, buffer.get_mut(..want)?);
        if let Some(end) = buffer.get(..got)?.iter().position(|&byte| byte == 0) {
            return Some(length + end + 1);
        }
        if got < want {
            return None;
        }
        length += got;
        if long.is_none() {
            long = Some(Scratch::new(PAGE)?);
        }
    }
    None
}

/// Scratch memory from the kernel, not from the program's allocator.
pub(crate) struct Scratch {
    start: *mut u8,
    length: usize,
}

impl Scratch {
    /// That many zero bytes; `None` if the system has none.
    pub(crate) fn new(length: usize) -> Option<Self> {
        let _errno = Errno::keep();
        let length = length.max(1);
        // SAFETY: a fresh private mapping.
        let start = unsafe {
            libc::mmap(
                core::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        (start != libc::MAP_FAILED).then_some(Self {
            start: start.cast(),
            length,
        })
    }

    /// The bytes.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the mapping is ours alone, initialised by the kernel, and lives as long as
        // `self`.
        unsafe { core::slice::from_raw_parts_mut(self.start, self.length) }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _errno = Errno::keep();
        // SAFETY: the mapping was made by `new` with that length, and no reference to it is left.
        unsafe { libc::munmap(self.start.cast(), self.length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two pages, of which the second cannot be read.
    struct Guarded(*mut u8);

    impl Guarded {
        fn new() -> Self {
            // SAFETY: a fresh mapping, whose second page is then closed.
            unsafe {
                let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
                let access = libc::PROT_READ | libc::PROT_WRITE;
                let start = libc::mmap(core::ptr::null_mut(), 2 * PAGE, access, flags, -1, 0);
                assert_ne!(start, libc::MAP_FAILED);
                assert_eq!(
                    libc::mprotect(start.byte_add(PAGE), PAGE, libc::PROT_NONE),
                    0
                );
                Self(start.cast())
            }
        }

        /// Puts bytes right before the closed page; their address.
        fn put(&self, bytes: &[u8]) -> u64 {
            // SAFETY: the bytes fit the open page.
            unsafe {
                let place = self.0.add(PAGE - bytes.len());
                core::ptr::copy_nonoverlapping(bytes.as_ptr(), place, bytes.len());
                place as u64
            }
        }
    }

    #[test]
    fn reads_end_where_memory_ends() {
        let memory = Guarded::new();
        let address = memory.put(b"abcd");
        let mut target = [0; 8];
        assert!(read_all(address, &mut target[..4]));
        assert_eq!(&target[..4], b"abcd");
        assert!(!read_all(address, &mut target));
        assert!(!read_all(memory.0 as u64 + PAGE as u64, &mut target[..1]));
        assert!(!read_all(0, &mut target[..1]));
        assert!(are_readable(address, 4));
        assert!(!are_readable(address, 5) && !are_readable(address, u64::MAX));
        assert!(!read_all(8, &mut target[..1]));
        assert_eq!(word(address), None);
    }

    #[test]
    fn strings_end_at_their_nul_or_not_at_all() {
        let memory = Guarded::new();
        assert_eq!(string_length(memory.put(b"abc\0"), 100), Some(4));
        assert_eq!(string_length(memory.put(b"abc\0"), 3), None);
        assert_eq!(string_length(memory.put(b"\0"), 100), Some(1));
        assert_eq!(string_length(memory.put(b"abcd"), 100), None);
        assert_eq!(string_length(0, 100), None);
        let long = [vec![b'x'; 9000], vec![0]].concat();
        assert_eq!(string_length(long.as_ptr() as u64, 1 << 20), Some(9001));
    }
}
