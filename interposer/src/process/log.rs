//! Messages to stderr, by `write(2)`: one line each, rare.

use super::errno::Errno;
use super::known_file::KnownFile;

const STDERR: i32 = 2;

/// The file that stderr was when the recording began.
static FILE: KnownFile = KnownFile::new();

/// Remembers which file stderr is.
pub(crate) fn begin() {
    let _errno = Errno::keep();
    FILE.remember(STDERR);
}

/// Whether a line of that length can be written without a signal (a pipe without reader, a file of
/// the size that the system allows) and without waiting (a full pipe).
fn is_ready(length: usize) -> bool {
    let Some(status) = FILE.status_at(STDERR) else {
        return false;
    };
    let is_file = status.st_mode & libc::S_IFMT == libc::S_IFREG;
    if is_file && status.st_size.cast_unsigned() + length as u64 > size_limit() {
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

/// The limit on the size of files. A write beyond it raises SIGXFSZ, which would end the program.
pub(crate) fn size_limit() -> u64 {
    let mut limit = libc::rlimit {
        rlim_cur: libc::RLIM_INFINITY,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: the limit is ours to be written; if the call fails, it stays infinite.
    unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) };
    limit.rlim_cur
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
    if is_ready(filled + 1) {
        // SAFETY: the buffer is valid for that many bytes. A failed write cannot be reported.
        unsafe { libc::write(STDERR, buffer.as_ptr().cast(), filled + 1) };
    }
}
