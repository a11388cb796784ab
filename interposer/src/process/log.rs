//! Messages to stderr, by `write(2)`: one line each, rare.

use core::sync::atomic::{AtomicU64, Ordering};

use super::errno::Errno;

const STDERR: i32 = 2;

/// The file that stderr was when the recording began: the program may close it and open something
/// else in its place.
static DEVICE: AtomicU64 = AtomicU64::new(0);
static INODE: AtomicU64 = AtomicU64::new(0);

fn identity() -> (u64, u64) {
    // SAFETY: all-zero is a valid stat buffer.
    let mut status: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: the buffer is ours; it stays zero if there is no such descriptor.
    unsafe { libc::fstat(STDERR, &raw mut status) };
    (status.st_dev, status.st_ino)
}

/// Remembers which file stderr is.
pub(crate) fn begin() {
    let _errno = Errno::keep();
    let (device, inode) = identity();
    DEVICE.store(device, Ordering::Relaxed);
    INODE.store(inode, Ordering::Relaxed);
}

/// Whether a line can be written without a signal (a pipe without reader) and without waiting (a
/// full pipe).
fn is_ready() -> bool {
    let known = (
        DEVICE.load(Ordering::Relaxed),
        INODE.load(Ordering::Relaxed),
    );
    if known != identity() {
        return false;
    }
    let mut poll = libc::pollfd {
        fd: STDERR,
        events: libc::POLLOUT,
        revents: 0,
    };
    // SAFETY: one entry, ours; a timeout of zero does not wait.
    unsafe { libc::poll(&raw mut poll, 1, 0) == 1 && poll.revents == libc::POLLOUT }
}

/// Writes `cutape: ` and the pieces as one line, if stderr can take it at once.
pub(crate) fn line(pieces: &[&[u8]]) {
    let mut buffer = [0u8; 512];
    let mut filled = 0;
    // The last byte is for the newline.
    for piece in [&b"cutape: "[..]].iter().chain(pieces) {
        let rest = buffer.iter_mut().skip(filled).take(511 - filled);
        filled += rest.zip(*piece).map(|(place, &byte)| *place = byte).count();
    }
    if let Some(end) = buffer.get_mut(filled) {
        *end = b'\n';
    }
    let _errno = Errno::keep();
    if is_ready() {
        // SAFETY: the buffer is valid for that many bytes. A failed write cannot be reported.
        unsafe { libc::write(STDERR, buffer.as_ptr().cast(), filled + 1) };
    }
}
