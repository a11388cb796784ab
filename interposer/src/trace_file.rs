//! The trace file of this process: created at the first call, handed out chunk by chunk.

use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU64, Ordering};
use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;

use cutape_format::control::{CONTROL_LENGTH, CONTROL_POSITION, Control};
use cutape_format::layout::{
    BlobRef, CHUNK_ALIGNMENT, CHUNK_CLOSED, CHUNK_HEAD_LENGTH, CHUNK_MAGIC, ChunkHead,
    FILE_HEAD_LENGTH, FileHead, MAGIC, MAJOR, MINOR, chunk_kind,
};

use crate::errno::{self, Errno};
use crate::{clock, log, memory, rank};

/// The descriptor, −1 while there is none.
static FILE: AtomicI32 = AtomicI32::new(-1);
/// Which file that was: a program may close descriptors that it does not know, and open others in their place.
static DEVICE: AtomicU64 = AtomicU64::new(0);
static INODE: AtomicU64 = AtomicU64::new(0);
/// Its absolute name, NULL while there is none.
static PATH: AtomicPtr<CString> = AtomicPtr::new(core::ptr::null_mut());
/// What is shared with the mover, NULL while there is no file. Stays mapped in a forked child, which maps that of its own file.
static CONTROL: AtomicPtr<Control> = AtomicPtr::new(core::ptr::null_mut());
/// Ticks that the file head has; short records count from there.
static START_TICKS: AtomicU64 = AtomicU64::new(0);
/// Programs that one process may become (`exec`) and record; a power of ten.
const MOST_PROGRAMS: u64 = 1000;
/// Descriptors below this are left to the program.
const LOWEST_DESCRIPTOR: i32 = 200;
/// At most so much is allocated before it is needed: writing is faster there.
const MOST_AHEAD: u64 = 16 << 20;
/// Longer writes are made in parts: others that write to the file have to wait meanwhile.
const LONGEST_WRITE: u64 = 16 << 20;

static ZEROS: [u8; CHUNK_ALIGNMENT as usize] = [0; CHUNK_ALIGNMENT as usize];

/// Creates the file and writes its head. Says what went wrong and returns false if it cannot.
pub(crate) fn create(path: &CStr, clock: u32) -> bool {
    let _errno = Errno::keep();
    let ranked = rank::in_name().and_then(|rank| with_rank(path, &rank));
    let path = ranked.as_deref().unwrap_or(path);
    let mut descriptor = open_new(path);
    let mut name = path.to_owned();
    // Another process of the same program was first, or this one before it became another program.
    for attempt in 0..MOST_PROGRAMS {
        if descriptor >= 0 || errno::get() != libc::EEXIST {
            break;
        }
        name = with_process(path, attempt);
        descriptor = open_new(&name);
    }
    if descriptor < 0 {
        complain(b"cannot create the trace ", name.to_bytes());
        return false;
    }
    descriptor = moved_up(descriptor);
    // SAFETY: all-zero is a valid stat buffer, and it is ours.
    let mut status: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: as above.
    if unsafe { libc::fstat(descriptor, &mut status) } != 0 {
        complain(b"cannot look at the trace ", name.to_bytes());
        return false;
    }
    DEVICE.store(status.st_dev, Ordering::Relaxed);
    INODE.store(status.st_ino, Ordering::Relaxed);
    START_TICKS.store(clock::ticks(), Ordering::Relaxed);
    let head = FileHead {
        magic: MAGIC,
        major: MAJOR,
        minor: MINOR,
        head_length: FILE_HEAD_LENGTH as u32,
        flags: 0,
        process: std::process::id(),
        clock,
        start_unix: clock::nanoseconds(libc::CLOCK_REALTIME),
        start_ticks: start_ticks(),
        ticks_per_second: 0,
        index: 0,
        checksum: 0,
    };
    // Leaked on purpose: another thread may be looking at the one before.
    PATH.store(Box::into_raw(Box::new(absolute(&name))), Ordering::Release);
    FILE.store(descriptor, Ordering::Relaxed);
    let signatures = cutape_registry::SIGNATURE_TEXT.as_bytes();
    // Allocating first: a write beyond the size that files may have would end the program.
    let start = CONTROL_POSITION + CONTROL_LENGTH as u64;
    if !allocate(0, start, true)
        || !write_at(0, &head.encode())
        || !share_control(descriptor, start)
        || !put_document(chunk_kind::SIGNATURES, signatures)
    {
        complain(b"cannot write the trace ", name.to_bytes());
        close();
        // Nobody could read what is there.
        // SAFETY: the name ends in NUL.
        unsafe { libc::unlink(name.as_ptr()) };
        return false;
    }
    true
}

/// Maps the chunk that is shared with the mover; chunks may begin at `start`.
fn share_control(descriptor: i32, start: u64) -> bool {
    // SAFETY: maps a part of our file that was just allocated, which nobody else has yet.
    let place = unsafe {
        libc::mmap(
            core::ptr::null_mut(),
            CONTROL_LENGTH,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            descriptor,
            CONTROL_POSITION as i64,
        )
    };
    if place == libc::MAP_FAILED {
        return false;
    }
    let place: *mut Control = place.cast();
    // What a reader meets must be allocated, since a hole takes memory that there may not be; and where the file is in memory,
    // allocating takes as long as writing.
    let most_ahead = if is_in_memory(descriptor) {
        0
    } else {
        MOST_AHEAD
    };
    let head = head(chunk_kind::CONTROL, CONTROL_LENGTH as u64);
    // SAFETY: the mapping is as long as that, all zero, and stays for ever; the mover has it as atomics as well.
    unsafe { &*place }.begin(start, most_ahead, &head.encode());
    CONTROL.store(place, Ordering::Release);
    true
}

/// What is shared with the mover; `None` while there is no file.
pub(crate) fn control() -> Option<&'static Control> {
    // SAFETY: NULL, or mapped for ever by `share_control`.
    unsafe { CONTROL.load(Ordering::Acquire).as_ref() }
}

/// Whether a file is in a tmpfs.
fn is_in_memory(descriptor: i32) -> bool {
    // SAFETY: all-zero is a valid buffer, and it is ours.
    let mut status: libc::statfs = unsafe { core::mem::zeroed() };
    // SAFETY: as above.
    (unsafe { libc::fstatfs(descriptor, &raw mut status) }) == 0
        && status.f_type == libc::TMPFS_MAGIC
}

/// Ticks when the recording began.
#[inline]
pub(crate) fn start_ticks() -> u64 {
    START_TICKS.load(Ordering::Relaxed)
}

fn open_new(path: &CStr) -> i32 {
    let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC;
    // SAFETY: the path ends in NUL.
    unsafe { libc::open(path.as_ptr(), flags, 0o600 as libc::c_uint) }
}

/// `run.cutape` → `run.rank3.cutape`; `None` if the launcher has already put the rank into the name.
fn with_rank(path: &CStr, rank: &[u8]) -> Option<CString> {
    let bytes = path.to_bytes();
    let stem = bytes.strip_suffix(b".cutape").unwrap_or(bytes);
    let ending = [b".rank", rank].concat();
    if stem.ends_with(&ending) {
        return None;
    }
    CString::new([stem, &ending, b".cutape"].concat()).ok()
}

/// `run.cutape` → `run.4711.cutape`, and for further programs in the same process `run.4711001.cutape` and so on: digits
/// only, by which the launcher knows the family.
fn with_process(path: &CStr, attempt: u64) -> CString {
    let bytes = path.to_bytes();
    let stem = bytes.strip_suffix(b".cutape").unwrap_or(bytes);
    let mut number = u64::from(std::process::id());
    if attempt > 0 {
        number = number * MOST_PROGRAMS + attempt;
    }
    let mut digits = [0; 20];
    let name = [stem, b".", log::decimal(number, &mut digits), b".cutape"].concat();
    CString::new(name).unwrap_or_default()
}

/// The same name from the root, so that it holds when the program changes its directory.
fn absolute(path: &CStr) -> CString {
    if path.to_bytes().starts_with(b"/") {
        return path.to_owned();
    }
    let Ok(directory) = std::env::current_dir() else {
        return path.to_owned();
    };
    let name = [directory.as_os_str().as_bytes(), b"/", path.to_bytes()].concat();
    CString::new(name).unwrap_or_default()
}

fn complain(what: &[u8], path: &[u8]) {
    // SAFETY: strerror gives a string that lasts until the next call of this thread.
    let why = unsafe { CStr::from_ptr(libc::strerror(errno::get())) };
    log::line(&[what, path, b": ", why.to_bytes(), b"; nothing is recorded"]);
}

/// Lets go of the file, in a forked child or after an error; what was written stays.
pub(crate) fn close() {
    CONTROL.store(core::ptr::null_mut(), Ordering::Release);
    let descriptor = FILE.swap(-1, Ordering::Relaxed);
    if descriptor >= 0 && is_ours(descriptor) {
        // SAFETY: the descriptor is ours, as was just seen.
        unsafe { libc::close(descriptor) };
    }
}

fn is_ours(descriptor: i32) -> bool {
    // SAFETY: all-zero is a valid stat buffer, and it is ours.
    let mut status: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: as above.
    (unsafe { libc::fstat(descriptor, &mut status) }) == 0
        && status.st_dev == DEVICE.load(Ordering::Relaxed)
        && status.st_ino == INODE.load(Ordering::Relaxed)
}

/// The descriptor, if it still is our file; otherwise a new one.
pub(crate) fn descriptor() -> Option<i32> {
    let known = FILE.load(Ordering::Relaxed);
    if known < 0 {
        return None;
    }
    if is_ours(known) {
        return Some(known);
    }
    // The program has closed it, as daemons do; what may stand in its place is the program's.
    let path = PATH.load(Ordering::Acquire);
    // SAFETY: NULL, or leaked by `create`.
    let path = unsafe { path.as_ref() }?;
    // SAFETY: the path ends in NUL.
    let reopened = unsafe { libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
    if reopened < 0 {
        return None;
    }
    let reopened = moved_up(reopened);
    if is_ours(reopened)
        && FILE
            .compare_exchange(known, reopened, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    {
        return Some(reopened);
    }
    // Another file of that name, or another thread was first.
    // SAFETY: the descriptor was just opened here.
    unsafe { libc::close(reopened) };
    let now = FILE.load(Ordering::Relaxed);
    (now != known && is_ours(now)).then_some(now)
}

/// Moves a descriptor out of the way of the program's own, which it may expect to be the lowest numbers.
fn moved_up(descriptor: i32) -> i32 {
    // The second for programs whose limit is low.
    for lowest in [LOWEST_DESCRIPTOR, LOWEST_DESCRIPTOR / 4] {
        // SAFETY: the descriptor is ours.
        let high = unsafe { libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, lowest) };
        if high >= 0 {
            // SAFETY: as above; the duplicate stays.
            unsafe { libc::close(descriptor) };
            return high;
        }
    }
    descriptor
}

/// Allocates a part of the file on disk, so that a full disk is an error here and never a fault later; makes the file longer if
/// it ends before, never shorter. Where the file system cannot, zeros are written if the part is `is_own`: then nobody else
/// writes there. (posix_fallocate would write to places of others as well.)
fn allocate(position: u64, length: u64, is_own: bool) -> bool {
    let Some(descriptor) = descriptor() else {
        return false;
    };
    if position.saturating_add(length) > size_limit() {
        errno::set(libc::EFBIG);
        return false;
    }
    loop {
        // SAFETY: no memory is involved.
        if unsafe { libc::fallocate(descriptor, 0, position as i64, length as i64) } == 0 {
            return true;
        }
        match errno::get() {
            libc::EINTR => {}
            libc::EOPNOTSUPP | libc::ENOSYS if is_own => return write_zeros(position, length),
            _ => return false,
        }
    }
}

fn write_zeros(position: u64, length: u64) -> bool {
    (position..position + length)
        .step_by(ZEROS.len())
        .all(|at| {
            let rest = (position + length - at).min(ZEROS.len() as u64);
            write_at(at, ZEROS.get(..rest as usize).unwrap_or(&ZEROS))
        })
}

/// How long files may become: who writes beyond that gets SIGXFSZ, which would end the program.
fn size_limit() -> u64 {
    let mut limit = libc::rlimit {
        rlim_cur: libc::RLIM_INFINITY,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: the limit is ours to be written; if it cannot be asked for, it stays without bound.
    unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) };
    limit.rlim_cur
}

pub(crate) fn write_at(position: u64, bytes: &[u8]) -> bool {
    let Some(descriptor) = descriptor() else {
        return false;
    };
    // SAFETY: the bytes are valid for reading.
    let written = unsafe {
        libc::pwrite(
            descriptor,
            bytes.as_ptr().cast(),
            bytes.len(),
            position as i64,
        )
    };
    written == bytes.len() as isize
}

/// The length of a chunk with that much body.
pub(crate) fn chunk_length(body: u64) -> u64 {
    (body + CHUNK_HEAD_LENGTH as u64).next_multiple_of(CHUNK_ALIGNMENT)
}

/// Takes that many bytes of the file, a multiple of the chunk alignment, and as many more as let the next claim begin at a
/// multiple of `alignment`; where they begin and how many they are. They are allocated on disk.
pub(crate) fn claim(least: u64, alignment: u64) -> Option<(u64, u64)> {
    let (position, length) = control()?.claim(least, alignment, allocate)?;
    if position + length > size_limit() {
        errno::set(libc::EFBIG);
        return None;
    }
    Some((position, length))
}

/// Writes a chunk that was claimed: its open head and its body, and when these are complete the closed head. With zeros up to the
/// end of its last page: where all of a page is written, the kernel has not to find out what else is in it.
pub(crate) fn write_chunk(position: u64, open: &[u8], body: &[u8], closed: &[u8]) -> bool {
    let Some(descriptor) = descriptor() else {
        return false;
    };
    let piece = |bytes: &[u8]| libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    let length = open.len() + body.len();
    let padded = length.next_multiple_of(ZEROS.len());
    let padding = ZEROS.get(..padded - length).unwrap_or(&ZEROS);
    let pieces = [piece(open), piece(body), piece(padding)];
    // SAFETY: all pieces are valid for reading.
    let written = unsafe { libc::pwritev(descriptor, pieces.as_ptr(), 3, position as i64) };
    if written != padded as isize {
        return false;
    }
    // SAFETY: the bytes are valid for reading.
    let written = unsafe {
        libc::pwrite(
            descriptor,
            closed.as_ptr().cast(),
            closed.len(),
            position as i64,
        )
    };
    written == closed.len() as isize
}

/// A head with what all chunks share.
pub(crate) fn head(kind: u16, length: u64) -> ChunkHead {
    ChunkHead {
        magic: CHUNK_MAGIC,
        kind,
        flags: 0,
        length,
        thread: 0,
        sequence: 0,
        used: 0,
        first: 0,
        ticks: clock::ticks(),
        nanoseconds: clock::nanoseconds(libc::CLOCK_MONOTONIC),
        body_checksum: 0,
        head_checksum: 0,
    }
}

/// Memory of the program's: rows of bytes at a distance, in slices at a distance.
#[derive(Clone, Copy)]
pub(crate) struct Rows {
    pub(crate) address: u64,
    /// Bytes in a row.
    pub(crate) row: u64,
    /// From the start of a row to the next.
    pub(crate) pitch: u64,
    pub(crate) rows: u64,
    /// From the start of a slice to the next.
    pub(crate) slice_pitch: u64,
    pub(crate) slices: u64,
}

impl Rows {
    /// So many bytes in one piece.
    pub(crate) fn flat(address: u64, length: u64) -> Self {
        Self {
            address,
            row: length,
            pitch: length,
            rows: 1,
            slice_pitch: length,
            slices: 1,
        }
    }

    /// Bytes in all.
    pub(crate) fn length(&self) -> u64 {
        self.row
            .saturating_mul(self.rows)
            .saturating_mul(self.slices)
    }

    /// Whether the first and the last byte can be read.
    fn ends_are_readable(&self) -> bool {
        if self.length() == 0 {
            return true;
        }
        let last = (self.slices - 1)
            .wrapping_mul(self.slice_pitch)
            .wrapping_add((self.rows - 1).wrapping_mul(self.pitch))
            .wrapping_add(self.row - 1);
        memory::is_readable(self.address) && memory::is_readable(self.address.wrapping_add(last))
    }

    /// The pieces, (address, length) each; as few as the distances allow.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = (u64, u64)> + use<> {
        let mut all = *self;
        if all.pitch == all.row || all.rows == 1 {
            all = Self {
                row: all.row.saturating_mul(all.rows),
                rows: 1,
                ..all
            };
        }
        if all.rows == 1 && (all.slice_pitch == all.row || all.slices == 1) {
            all = Self {
                row: all.row.saturating_mul(all.slices),
                slices: 1,
                ..all
            };
        }
        (0..all.slices).flat_map(move |slice| {
            (0..all.rows).map(move |row| {
                let offset = slice
                    .wrapping_mul(all.slice_pitch)
                    .wrapping_add(row.wrapping_mul(all.pitch));
                (all.address.wrapping_add(offset), all.row)
            })
        })
    }
}

/// No machine has more memory to copy at once; a longer length is an argument gone wrong.
const LONGEST_BLOB: u64 = 1 << 42;

/// Why bytes are not in the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotKept {
    /// The memory cannot be read.
    Unreadable,
    /// The file cannot be written.
    Disk,
}

/// Writes the rows as one blob, straight from the program's memory: the kernel says so where they cannot be read.
pub(crate) fn blob(rows: &Rows) -> Result<BlobRef, NotKept> {
    let _errno = Errno::keep();
    let length = rows.length();
    // A length gone wrong is not to take the whole disk.
    if length > LONGEST_BLOB || !rows.ends_are_readable() {
        return Err(NotKept::Unreadable);
    }
    let chunk = chunk_length(length);
    let (position, chunk) = claim(chunk, CHUNK_ALIGNMENT).ok_or(NotKept::Disk)?;
    let descriptor = descriptor().ok_or(NotKept::Disk)?;
    let head = ChunkHead {
        first: position,
        used: length,
        ..head(chunk_kind::BLOB, chunk)
    };
    let head = head.encode();
    // What of it is still to be written.
    let mut head = &head[..];
    let mut at = position;
    for (address, length) in rows.pieces() {
        let mut done = 0;
        while done < length {
            // All but the first and the last write are of whole pages.
            let room = LONGEST_WRITE - (at - position + head.len() as u64) % LONGEST_WRITE;
            let pieces = [
                libc::iovec {
                    iov_base: head.as_ptr().cast_mut().cast(),
                    iov_len: head.len(),
                },
                libc::iovec {
                    iov_base: address.wrapping_add(done) as *mut _,
                    iov_len: (length - done).min(room) as usize,
                },
            ];
            // SAFETY: the kernel checks the source ranges and answers EFAULT where they cannot be read.
            let written = unsafe { libc::pwritev(descriptor, pieces.as_ptr(), 2, at as i64) };
            if written <= 0 {
                match errno::get() {
                    libc::EINTR if written < 0 => continue,
                    libc::EFAULT if written < 0 => return Err(NotKept::Unreadable),
                    _ => return Err(NotKept::Disk),
                }
            }
            let of_head = head.len().min(written as usize);
            head = &head[of_head..];
            done += (written as usize - of_head) as u64;
            at += written as u64;
        }
    }
    if !head.is_empty() && !write_at(at, head) {
        return Err(NotKept::Disk);
    }
    Ok(BlobRef { position, length })
}

/// Writes a closed chunk of another kind.
pub(crate) fn document(kind: u16, body: &[u8]) -> bool {
    let _errno = Errno::keep();
    put_document(kind, body)
}

/// The same, leaving the reason of a failure in `errno`.
fn put_document(kind: u16, body: &[u8]) -> bool {
    let length = chunk_length(body.len() as u64);
    let Some((position, length)) = claim(length, CHUNK_ALIGNMENT) else {
        return false;
    };
    let head = ChunkHead {
        flags: CHUNK_CLOSED,
        used: body.len() as u64,
        body_checksum: cutape_format::checksum(body),
        ..head(kind, length)
    };
    // The head last: a reader takes the chunk for not yet begun until then.
    write_at(position + CHUNK_HEAD_LENGTH as u64, body) && write_at(position, &head.encode())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_ranks() {
        for (path, rank, expected) in [
            (c"/t/run.cutape", "3", Some(c"/t/run.rank3.cutape")),
            (c"run", "12", Some(c"run.rank12.cutape")),
            (c"run.rank2.cutape", "12", Some(c"run.rank2.rank12.cutape")),
            (c"run.rank12.cutape", "12", None),
        ] {
            assert_eq!(with_rank(path, rank.as_bytes()).as_deref(), expected);
        }
    }

    #[test]
    fn rows_become_as_few_pieces_as_can_be() {
        let rows = |row, pitch, rows, slice_pitch, slices| Rows {
            address: 100,
            row,
            pitch,
            rows,
            slice_pitch,
            slices,
        };
        let table: [(Rows, &[(u64, u64)]); 6] = [
            (Rows::flat(100, 7), &[(100, 7)]),
            (rows(4, 4, 3, 0, 1), &[(100, 12)]),
            (rows(4, 6, 2, 0, 1), &[(100, 4), (106, 4)]),
            (rows(4, 4, 2, 8, 2), &[(100, 16)]),
            (rows(4, 4, 2, 10, 2), &[(100, 8), (110, 8)]),
            (
                rows(4, 6, 2, 20, 2),
                &[(100, 4), (106, 4), (120, 4), (126, 4)],
            ),
        ];
        for (memory, expected) in table {
            assert_eq!(memory.pieces().collect::<Vec<_>>(), expected);
            assert_eq!(
                memory.length(),
                expected.iter().map(|piece| piece.1).sum::<u64>()
            );
        }
    }
}
