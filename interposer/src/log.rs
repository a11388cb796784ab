//! Messages to stderr, by `write(2)`: one line each, rare.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::errno::Errno;

const STDERR: i32 = 2;

/// Which file stderr was when the recording began: a program may close it and have something else there.
static DEVICE: AtomicU64 = AtomicU64::new(0);
static INODE: AtomicU64 = AtomicU64::new(0);

fn identity() -> (u64, u64) {
    // SAFETY: all-zero is a valid stat buffer.
    let mut status: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: the buffer is ours; it stays zero if there is no such descriptor.
    unsafe { libc::fstat(STDERR, &raw mut status) };
    (status.st_dev, status.st_ino)
}

/// Takes what stderr is now for stderr.
pub(crate) fn begin() {
    let _errno = Errno::keep();
    let (device, inode) = identity();
    DEVICE.store(device, Ordering::Relaxed);
    INODE.store(inode, Ordering::Relaxed);
}

/// Whether a line can be written without a signal (a pipe that nobody reads) and without waiting (one that is full).
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

/// Writes `cutape: ` and the pieces as one line, if stderr is there to take it.
pub(crate) fn line(pieces: &[&[u8]]) {
    let mut buffer = [0u8; 512];
    let mut filled = 0;
    for piece in [&b"cutape: "[..]].iter().chain(pieces) {
        let room = buffer.len() - 1 - filled;
        let take = piece.len().min(room);
        buffer[filled..filled + take].copy_from_slice(&piece[..take]);
        filled += take;
    }
    buffer[filled] = b'\n';
    let _errno = Errno::keep();
    if is_ready() {
        // SAFETY: the buffer is valid for that many bytes. A failed write of a message is nothing we could report.
        unsafe { libc::write(STDERR, buffer.as_ptr().cast(), filled + 1) };
    }
}

/// A number in decimal digits, for [`line`].
pub(crate) fn decimal(mut number: u64, buffer: &mut [u8; 20]) -> &[u8] {
    let mut at = buffer.len();
    loop {
        at -= 1;
        buffer[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 || at == 0 {
            return &buffer[at..];
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn decimal() {
        for (number, expected) in [
            (0, "0"),
            (7, "7"),
            (4711, "4711"),
            (u64::MAX, "18446744073709551615"),
        ] {
            assert_eq!(super::decimal(number, &mut [0; 20]), expected.as_bytes());
        }
    }
}
