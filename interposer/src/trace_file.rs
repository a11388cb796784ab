//! The trace file of this process: created at the first call, handed out chunk by chunk.

use core::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::ffi::{CStr, CString};

use cutape_format::layout::{
    BlobRef, CHUNK_ALIGNMENT, CHUNK_CLOSED, CHUNK_HEAD_LENGTH, CHUNK_MAGIC, ChunkHead,
    FILE_HEAD_LENGTH, FileHead, MAGIC, MAJOR, MINOR, chunk_kind,
};

use cutape_format::write::close_chunk;

use crate::errno::{self, Errno};
use crate::{clock, log};

/// The descriptor, −1 while there is none.
static FILE: AtomicI32 = AtomicI32::new(-1);
/// Which file that was: a program may close descriptors that it does not know, and open others in their place.
static DEVICE: AtomicU64 = AtomicU64::new(0);
static INODE: AtomicU64 = AtomicU64::new(0);
/// Where the next chunk begins.
static END: AtomicU64 = AtomicU64::new(0);

/// Descriptors below this are left to the program.
const LOWEST_DESCRIPTOR: i32 = 200;

/// Creates the file and writes its head. Says what went wrong and returns false if it cannot.
pub(crate) fn create(path: &CStr, clock: u32) -> bool {
    let _errno = Errno::keep();
    let mut descriptor = open_new(path);
    let mut name = path.to_owned();
    if descriptor < 0 && errno::get() == libc::EEXIST {
        // Another process of the same program was first.
        name = with_process(path);
        descriptor = open_new(&name);
    }
    if descriptor < 0 {
        complain(b"cannot create the trace ", name.to_bytes());
        return false;
    }
    // SAFETY: the descriptor is ours.
    let high = unsafe { libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, LOWEST_DESCRIPTOR) };
    if high >= 0 {
        // SAFETY: as above; the duplicate stays.
        unsafe { libc::close(descriptor) };
        descriptor = high;
    }
    // SAFETY: all-zero is a valid stat buffer, and it is ours.
    let mut status: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: as above.
    if unsafe { libc::fstat(descriptor, &mut status) } != 0 {
        complain(b"cannot look at the trace ", name.to_bytes());
        return false;
    }
    DEVICE.store(status.st_dev, Ordering::Relaxed);
    INODE.store(status.st_ino, Ordering::Relaxed);
    let head = FileHead {
        magic: MAGIC,
        major: MAJOR,
        minor: MINOR,
        head_length: FILE_HEAD_LENGTH as u32,
        flags: 0,
        process: std::process::id(),
        clock,
        start_unix: clock::nanoseconds(libc::CLOCK_REALTIME),
        start_ticks: clock::ticks(),
        ticks_per_second: 0,
        index: 0,
        checksum: 0,
    };
    FILE.store(descriptor, Ordering::Relaxed);
    END.store(FILE_HEAD_LENGTH as u64, Ordering::Relaxed);
    if !allocate(0, FILE_HEAD_LENGTH as u64) || !write_at(0, &head.encode()) {
        complain(b"cannot write the trace ", name.to_bytes());
        close();
        return false;
    }
    true
}

fn open_new(path: &CStr) -> i32 {
    let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC;
    // SAFETY: the path ends in NUL.
    unsafe { libc::open(path.as_ptr(), flags, 0o600 as libc::c_uint) }
}

/// `run.cutape` → `run.4711.cutape`.
fn with_process(path: &CStr) -> CString {
    let bytes = path.to_bytes();
    let stem = bytes.strip_suffix(b".cutape").unwrap_or(bytes);
    let mut digits = [0; 20];
    let mut name = stem.to_vec();
    name.push(b'.');
    name.extend_from_slice(log::decimal(u64::from(std::process::id()), &mut digits));
    name.extend_from_slice(b".cutape");
    CString::new(name).unwrap_or_default()
}

fn complain(what: &[u8], path: &[u8]) {
    // SAFETY: strerror gives a string that lasts until the next call of this thread.
    let why = unsafe { CStr::from_ptr(libc::strerror(errno::get())) };
    log::line(&[what, path, b": ", why.to_bytes(), b"; nothing is recorded"]);
}

/// Lets go of the file, in a forked child or after an error; what was written stays.
pub(crate) fn close() {
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

/// The descriptor, if it still is our file.
fn descriptor() -> Option<i32> {
    let descriptor = FILE.load(Ordering::Relaxed);
    if descriptor < 0 {
        return None;
    }
    if is_ours(descriptor) {
        return Some(descriptor);
    }
    // The program has closed it; what stands in its place is the program's.
    FILE.store(-1, Ordering::Relaxed);
    None
}

/// Allocates on disk, so that a full disk is an error here and never a fault later.
fn allocate(position: u64, length: u64) -> bool {
    let Some(descriptor) = descriptor() else {
        return false;
    };
    loop {
        // SAFETY: no memory is involved.
        let error = unsafe { libc::posix_fallocate(descriptor, position as i64, length as i64) };
        match error {
            0 => return true,
            libc::EINTR => {}
            _ => return false,
        }
    }
}

fn write_at(position: u64, bytes: &[u8]) -> bool {
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

/// Takes that many bytes of the file, a multiple of the chunk alignment; where they begin.
fn claim(length: u64) -> Option<u64> {
    let position = END.fetch_add(length, Ordering::Relaxed);
    allocate(position, length).then_some(position)
}

/// A head with what all chunks share.
fn head(kind: u16, length: u64) -> ChunkHead {
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

/// A chunk of calls, mapped.
pub(crate) struct MappedChunk {
    /// Its first byte, which is its head's.
    pub(crate) start: *mut u8,
    /// Bytes, head included.
    pub(crate) length: usize,
}

/// Opens a chunk for calls of a thread.
pub(crate) fn open_chunk(
    length: u64,
    thread: u32,
    sequence: u32,
    first: u64,
) -> Option<MappedChunk> {
    let _errno = Errno::keep();
    let position = claim(length)?;
    let descriptor = descriptor()?;
    // SAFETY: maps a part of our file that was just allocated and that nobody else has claimed.
    let start = unsafe {
        libc::mmap(
            core::ptr::null_mut(),
            length as usize,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_POPULATE,
            descriptor,
            position as i64,
        )
    };
    if start == libc::MAP_FAILED {
        return None;
    }
    let head = ChunkHead {
        thread,
        sequence,
        first,
        ..head(chunk_kind::CALLS, length)
    };
    let bytes = head.encode();
    // SAFETY: the mapping is at least a page long and ours.
    unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), start.cast(), bytes.len()) };
    Some(MappedChunk {
        start: start.cast(),
        length: length as usize,
    })
}

impl MappedChunk {
    /// Writes the final head over `used` bytes of body, and unmaps the chunk.
    pub(crate) fn close(self, used: usize) {
        let _errno = Errno::keep();
        // SAFETY: the chunk is mapped and ours alone, and longer than its head.
        let bytes = unsafe { core::slice::from_raw_parts_mut(self.start, self.length) };
        if let Some((place, body)) = bytes.split_first_chunk_mut::<CHUNK_HEAD_LENGTH>()
            && let Some(body) = body.get(..used)
        {
            // A head that is no longer sound was overwritten by the program; the reader says so.
            close_chunk(place, used as u64, cutape_format::checksum(body));
        }
        // SAFETY: mapped by `open_chunk` with that length; nobody refers to it any more.
        unsafe { libc::munmap(self.start.cast(), self.length) };
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
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotKept {
    /// The memory cannot be read.
    Unreadable,
    /// The file cannot be written.
    Disk,
}

/// Writes the rows as one blob, straight from the program's memory: the kernel says so where they cannot be read.
pub(crate) fn blob(memory: &Rows) -> Result<BlobRef, NotKept> {
    let _errno = Errno::keep();
    let length = memory.length();
    if length > LONGEST_BLOB {
        return Err(NotKept::Unreadable);
    }
    let chunk = chunk_length(length);
    let position = claim(chunk).ok_or(NotKept::Disk)?;
    let descriptor = descriptor().ok_or(NotKept::Disk)?;
    let head = ChunkHead {
        first: position,
        used: length,
        ..head(chunk_kind::BLOB, chunk)
    };
    if !write_at(position, &head.encode()) {
        return Err(NotKept::Disk);
    }
    let mut at = position + CHUNK_HEAD_LENGTH as u64;
    for (address, length) in memory.pieces() {
        let mut done = 0;
        while done < length {
            // SAFETY: the kernel checks the source range and answers EFAULT where it cannot be read.
            let written = unsafe {
                libc::pwrite(
                    descriptor,
                    address.wrapping_add(done) as *const _,
                    (length - done) as usize,
                    at as i64,
                )
            };
            if written <= 0 {
                match errno::get() {
                    libc::EINTR if written < 0 => continue,
                    libc::EFAULT if written < 0 => return Err(NotKept::Unreadable),
                    _ => return Err(NotKept::Disk),
                }
            }
            done += written as u64;
            at += written as u64;
        }
    }
    Ok(BlobRef { position, length })
}

/// Writes a closed chunk of another kind.
pub(crate) fn document(kind: u16, body: &[u8]) -> bool {
    let _errno = Errno::keep();
    let length = chunk_length(body.len() as u64);
    let Some(position) = claim(length) else {
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
