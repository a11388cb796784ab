//! The trace file of this process: created at the first call, handed out chunk by chunk.

use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU64, Ordering};
use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;

use cutape_format::control::{self, CONTROL_LENGTH, CONTROL_POSITION, Control, Incomplete};
use cutape_format::layout::{
    BlobRef, CHUNK_ALIGNMENT, CHUNK_CLOSED, CHUNK_HEAD_LENGTH, ChunkHead, FILE_HEAD_LENGTH,
    FileHead, MAGIC, MAJOR, MINOR, chunk_kind,
};
use cutape_format::rank;

use super::rows::{Memory, NotKept};
use super::{free_space, mapping};
use crate::hot::{clock, recording};
use crate::process::errno::{self, Errno};
use crate::process::known_file::KnownFile;
use crate::process::settings::Settings;
use crate::process::{env, log};

/// The descriptor; -1 while there is none.
static FILE: AtomicI32 = AtomicI32::new(-1);
/// The file that it is open for.
static IDENTITY: KnownFile = KnownFile::new();
/// Its absolute name; NULL while there is none.
static PATH: AtomicPtr<CString> = AtomicPtr::new(core::ptr::null_mut());
/// The control chunk; NULL while there is no file. Stays mapped in a forked child, which maps the
/// chunk of its own file.
static CONTROL: AtomicPtr<Control> = AtomicPtr::new(core::ptr::null_mut());
/// The file is allocated on disk up to there.
static ALLOCATED: AtomicU64 = AtomicU64::new(0);
/// Most bytes that are allocated before they are needed.
static MOST_AHEAD: AtomicU64 = AtomicU64::new(0);
/// The most bytes of the file.
static LIMIT: AtomicU64 = AtomicU64::new(u64::MAX);
/// The ticks in the file head. Short records count from there.
static START_TICKS: AtomicU64 = AtomicU64::new(0);
/// The error of the system for which the file could last not be written, or `AT_LIMIT`.
static ERROR: AtomicI32 = AtomicI32::new(0);
/// The file is as long as the user allows.
const AT_LIMIT: i32 = -1;
/// Programs that one process may become (`exec`) and record; a power of ten.
const MOST_PROGRAMS: u64 = 1000;
/// Lower descriptors are left to the program.
const LOWEST_DESCRIPTOR: i32 = 200;
/// `MOST_AHEAD` on disk: writing is faster where the file is already allocated.
const MOST_AHEAD_ON_DISK: u64 = 16 << 20;
/// Longer writes are split: other writers of the file wait for each.
const LONGEST_WRITE: u64 = 16 << 20;
/// A flight recorder is awaited for that many milliseconds at most.
const LONGEST_WAIT: u32 = 100;
/// A longer blob is a mistake of the program: no machine has more memory to copy at once.
const LONGEST_BLOB: u64 = 1 << 42;

static ZEROS: [u8; CHUNK_ALIGNMENT as usize] = [0; CHUNK_ALIGNMENT as usize];

/// Creates the file and writes its head. If that fails, logs why and returns false.
pub(crate) fn create(path: &CStr, clock: u32, pauses: Pauses) -> bool {
    let _errno = Errno::keep();
    let ranked = rank::in_name(env::bytes).and_then(|rank| with_rank(path, &rank));
    let path = ranked.as_deref().unwrap_or(path);
    let mut descriptor = open_new(path);
    let mut name = path.to_owned();
    // The name is taken: by another process of the program, or by this one before it called `exec`.
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
    if !IDENTITY.remember(descriptor) {
        complain(b"cannot stat the trace ", name.to_bytes());
        return false;
    }
    let (ticks, start_unix) = start_times();
    START_TICKS.store(ticks, Ordering::Relaxed);
    let head = FileHead {
        magic: MAGIC,
        major: MAJOR,
        minor: MINOR,
        head_length: FILE_HEAD_LENGTH as u32,
        flags: 0,
        process: std::process::id(),
        clock,
        start_unix,
        start_ticks: start_ticks(),
        ticks_per_second: 0,
        index: 0,
        checksum: 0,
    };
    // Leaked on purpose: another thread may still read the old one.
    PATH.store(Box::into_raw(Box::new(absolute(&name))), Ordering::Release);
    FILE.store(descriptor, Ordering::Relaxed);
    mapping::begin();
    let signatures = cutape_registry::SIGNATURE_TEXT.as_bytes();
    let start = CONTROL_POSITION + CONTROL_LENGTH as u64;
    ALLOCATED.store(0, Ordering::Relaxed);
    // In memory, allocating takes as long as writing.
    let most_ahead = if is_in_memory(descriptor) {
        0
    } else {
        MOST_AHEAD_ON_DISK
    };
    MOST_AHEAD.store(most_ahead, Ordering::Relaxed);
    // Allocating first: a write beyond the file size limit would end the program.
    if !allocate(0, start, true)
        || !write_at(0, &head.encode())
        || !begin_control(start, pauses)
        || !put_document(chunk_kind::SIGNATURES, signatures)
    {
        complain(b"cannot write the trace ", name.to_bytes());
        close();
        // The file is useless.
        // SAFETY: the name ends in NUL.
        unsafe { libc::unlink(name.as_ptr()) };
        return false;
    }
    free_space::begin(descriptor, start);
    true
}

/// Whether recording can be paused, and whether it begins with a pause.
#[derive(Clone, Copy)]
pub(crate) struct Pauses {
    pub(crate) can_pause: bool,
    pub(crate) is_paused: bool,
}

/// Sets the most bytes of the file.
pub(super) fn set_limit(bytes: u64) {
    LIMIT.store(bytes, Ordering::Relaxed);
}

/// The most bytes of the file.
pub(super) fn limit() -> u64 {
    LIMIT.load(Ordering::Relaxed)
}

/// Writes and maps the control chunk; chunks begin at `start`.
fn begin_control(start: u64, pauses: Pauses) -> bool {
    let Pauses {
        can_pause,
        is_paused,
    } = pauses;
    let Some(place) = map(CONTROL_POSITION, CONTROL_LENGTH) else {
        return false;
    };
    let control: *mut Control = place.cast();
    // SAFETY: the mapping is as long, begins with a page and is never unmapped. All that changes in
    // it are atomics, also for other processes.
    unsafe { &*control }.begin(start, can_pause, is_paused.then(clock::ticks));
    CONTROL.store(control, Ordering::Release);
    // By the head a reader knows that the end is set.
    let head = head(chunk_kind::CONTROL, CONTROL_LENGTH as u64);
    write_at(CONTROL_POSITION, &head.encode())
}

/// Whether a file is in a tmpfs.
fn is_in_memory(descriptor: i32) -> bool {
    // SAFETY: all-zero is a valid buffer, and it is ours.
    let mut status: libc::statfs = unsafe { core::mem::zeroed() };
    // SAFETY: as above.
    (unsafe { libc::fstatfs(descriptor, &raw mut status) }) == 0
        && status.f_type == libc::TMPFS_MAGIC
}

/// The ticks and the system's time now, read close to each other: readers tell by them whether two
/// traces have the same counter. Between the two reads the thread may lose its processor.
fn start_times() -> (u64, u64) {
    const ATTEMPTS: usize = 8;
    // Some 20 microseconds.
    const CLOSE: u64 = 1 << 16;
    let mut best = (u64::MAX, 0, 0);
    for _ in 0..ATTEMPTS {
        let ticks = clock::ticks();
        let time = clock::nanoseconds(libc::CLOCK_REALTIME);
        let apart = clock::ticks().wrapping_sub(ticks);
        best = best.min((apart, ticks, time));
        if apart < CLOSE {
            break;
        }
    }
    (best.1, best.2)
}

/// The ticks at which the recording began.
#[inline]
pub(crate) fn start_ticks() -> u64 {
    START_TICKS.load(Ordering::Relaxed)
}

fn open_new(path: &CStr) -> i32 {
    let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC;
    loop {
        // SAFETY: the path ends in NUL.
        let file = unsafe { libc::open(path.as_ptr(), flags, 0o600 as libc::c_uint) };
        if file >= 0 || errno::get() != libc::EINTR {
            return file;
        }
    }
}

/// `run.cutape` → `run.rank3.cutape`; `None` if the launcher has already put the rank into the
/// name.
fn with_rank(path: &CStr, rank: &[u8]) -> Option<CString> {
    let bytes = path.to_bytes();
    let stem = bytes.strip_suffix(b".cutape").unwrap_or(bytes);
    let ending = [b".rank", rank].concat();
    if stem.ends_with(&ending) {
        return None;
    }
    CString::new([stem, &ending, b".cutape"].concat()).ok()
}

/// `run.cutape` → `run.4711.cutape`, and for further programs in the same process
/// `run.4711001.cutape` and so on: digits only, by which the launcher recognizes the traces of one
/// recording.
fn with_process(path: &CStr, attempt: u64) -> CString {
    let bytes = path.to_bytes();
    let stem = bytes.strip_suffix(b".cutape").unwrap_or(bytes);
    let mut number = u64::from(std::process::id());
    if attempt > 0 {
        number = number * MOST_PROGRAMS + attempt;
    }
    let name = [stem, b".", number.to_string().as_bytes(), b".cutape"].concat();
    CString::new(name).unwrap_or_default()
}

/// The absolute name, so that it stays valid when the program changes its directory.
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
    let why = text_of(errno::get());
    log::line(&[what, path, b": ", why, b"; nothing is recorded"]);
    tell_launcher([what, path, b": ", why].concat());
}

/// The program may have no stderr, and `record` must not say that no call was seen. Making a link
/// needs neither a descriptor nor space for data.
fn tell_launcher(why: Vec<u8>) {
    let link = Settings::read().not_recorded;
    if let (Some(link), Ok(why)) = (link, CString::new(why)) {
        // SAFETY: both end in NUL. If it fails, the line above is all that there is.
        unsafe { libc::symlink(why.as_ptr(), link.as_ptr()) };
    }
}

/// What a trace lacks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lacking {
    Calls,
    PayloadsByLimit,
    /// The disk is nearly full.
    PayloadsByDisk,
    Others,
}

/// Says in the trace that something is missing because the file could not grow. The place for that
/// is in the control chunk, which the file has from the start.
pub(crate) fn mark_incomplete(lacking: Lacking) {
    let Some(control) = control() else {
        return;
    };
    let place = &control.incomplete;
    let error = ERROR.load(Ordering::Relaxed);
    let by_disk = lacking == Lacking::PayloadsByDisk;
    let error = if by_disk { libc::ENOSPC } else { error };
    let is_limited = lacking == Lacking::PayloadsByLimit || error == AT_LIMIT;
    let now = Incomplete {
        lacks_calls: lacking == Lacking::Calls,
        lacks_payloads: by_disk || lacking == Lacking::PayloadsByLimit,
        lacks_others: lacking == Lacking::Others,
        is_limited,
        error: if is_limited { 0 } else { error.cast_unsigned() },
    };
    let after = |before| Some(now.after(Incomplete::from_word(before)).word());
    let _ = place.fetch_update(Ordering::AcqRel, Ordering::Relaxed, after);
}

/// Why the file could not grow, for people, in two parts.
pub(crate) fn why_it_cannot_grow() -> [&'static [u8]; 2] {
    match ERROR.load(Ordering::Relaxed) {
        AT_LIMIT => [b"the trace is as long as --max-size allows", b""],
        error => [b"the trace cannot grow: ", text_of(error)],
    }
}

/// The system's words for an error.
fn text_of(error: i32) -> &'static [u8] {
    // SAFETY: strerror gives a string without end for every error that the system has.
    unsafe { CStr::from_ptr(libc::strerror(error)) }.to_bytes()
}

/// Ends the recording, since the process gets no more memory.
#[cold]
pub(crate) fn end_without_memory() {
    ERROR.store(libc::ENOMEM, Ordering::Relaxed);
    if recording::stop() {
        mark_incomplete(Lacking::Calls);
        log::line(&[b"no memory is left; recording stops, the program continues"]);
    }
}

/// Keeps the error for `mark_incomplete`.
pub(super) fn failed() {
    ERROR.store(errno::get(), Ordering::Relaxed);
}

/// The control chunk of the file, if there is one.
pub(crate) fn control() -> Option<&'static Control> {
    // SAFETY: NULL, or mapped for good by `begin_control`.
    unsafe { CONTROL.load(Ordering::Acquire).as_ref() }
}

/// Closes the file, in a forked child or after an error. What was written stays.
pub(crate) fn close() {
    CONTROL.store(core::ptr::null_mut(), Ordering::Release);
    let descriptor = FILE.swap(-1, Ordering::Relaxed);
    if descriptor >= 0 && IDENTITY.is_at(descriptor) {
        // SAFETY: the descriptor is ours (checked above).
        unsafe { libc::close(descriptor) };
    }
}

/// The descriptor, if it still is our file; otherwise a new one. `None` if the file was truncated or
/// deleted: nobody can read what is written to it now.
pub(super) fn descriptor() -> Option<i32> {
    let known = FILE.load(Ordering::Relaxed);
    if known < 0 || mapping::is_lost() {
        return None;
    }
    // First, since another thread may extend the file meanwhile.
    let least = ALLOCATED.load(Ordering::Acquire);
    if let Some(status) = IDENTITY.status_at(known) {
        let done = match status {
            _ if status.st_nlink == 0 => mapping::DELETED,
            _ if status.st_size.cast_unsigned() < least => mapping::TRUNCATED,
            _ => return Some(known),
        };
        mapping::lose(done);
        return None;
    }
    // The program has closed it, as daemons do. What has the number now is the program's.
    let path = PATH.load(Ordering::Acquire);
    // SAFETY: NULL, or leaked by `create`.
    let path = unsafe { path.as_ref() }?;
    // SAFETY: the path ends in NUL.
    let reopened = unsafe { libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
    if reopened < 0 {
        return None;
    }
    let reopened = moved_up(reopened);
    if IDENTITY.is_at(reopened)
        && FILE
            .compare_exchange(known, reopened, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    {
        return Some(reopened);
    }
    // Another file of that name, or another thread was first.
    // SAFETY: the descriptor was just opened here.
    unsafe { libc::close(reopened) };
    errno::set(libc::ESTALE);
    let now = FILE.load(Ordering::Relaxed);
    (now != known && IDENTITY.is_at(now)).then_some(now)
}

/// Says if another program has truncated or deleted the file.
pub(crate) fn notice_loss() {
    descriptor();
}

/// Moves a descriptor to a high number: the program may expect its own to be the lowest.
fn moved_up(descriptor: i32) -> i32 {
    // The second is for programs with a low limit.
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

/// Allocates a part of the file on disk and extends the file to its end, so that a full disk is an
/// error here and not a fault later. If the file system cannot allocate, and the part `is_own` (no
/// other thread writes there), zeros are written. `posix_fallocate` would write to the parts of
/// other threads as well.
fn allocate(position: u64, length: u64, is_own: bool) -> bool {
    let Some(descriptor) = descriptor() else {
        return false;
    };
    if position.saturating_add(length) > log::size_limit() {
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

fn write_at(position: u64, bytes: &[u8]) -> bool {
    descriptor().is_some_and(|descriptor| write_to(descriptor, position, bytes))
}

/// Reads a part of the file that was written.
pub(super) fn read_at(position: u64, bytes: &mut [u8]) -> bool {
    let _errno = Errno::keep();
    descriptor().is_some_and(|descriptor| {
        let (start, length) = (bytes.as_mut_ptr().cast(), bytes.len());
        // SAFETY: the bytes are valid for writing.
        unsafe { libc::pread(descriptor, start, length, position as i64) == length as isize }
    })
}

/// Writes all of the bytes: network file systems write a part of them if a signal comes.
fn write_to(descriptor: i32, position: u64, bytes: &[u8]) -> bool {
    let mut done = 0;
    while let Some(rest @ [_, ..]) = bytes.get(done..) {
        let (start, at) = (rest.as_ptr().cast(), position + done as u64);
        // SAFETY: the bytes are valid for reading.
        let written = unsafe { libc::pwrite(descriptor, start, rest.len(), at as i64) };
        if !is_progress(written) {
            failed();
            return false;
        }
        done += written.max(0) as usize;
    }
    true
}

/// Whether a write has written something, or is to be repeated since a signal came first.
fn is_progress(written: isize) -> bool {
    written > 0 || written < 0 && errno::get() == libc::EINTR
}

fn piece(bytes: &[u8]) -> libc::iovec {
    libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    }
}

/// The length of a chunk with a body of that many bytes.
pub(super) fn chunk_length(body: u64) -> u64 {
    (body + CHUNK_HEAD_LENGTH as u64).next_multiple_of(CHUNK_ALIGNMENT)
}

/// Takes `least` bytes of the file, a multiple of the chunk alignment, and as many more as let the
/// next claim begin at a multiple of `alignment`. Returns where they begin and how many they are.
/// They are allocated on disk, so that whenever the process ends, the file is not cut within a
/// chunk.
pub(super) fn claim(least: u64, alignment: u64) -> Option<(u64, u64)> {
    let (position, end) = control::claim(&control()?.end, least, alignment)?;
    if end > limit() {
        ERROR.store(AT_LIMIT, Ordering::Relaxed);
        return None;
    }
    if end > log::size_limit() {
        errno::set(libc::EFBIG);
        failed();
        return None;
    }
    if free_space::is_due(end) {
        free_space::look(FILE.load(Ordering::Relaxed), end);
    }
    let claimed = Some((position, end - position));
    let allocated = ALLOCATED.load(Ordering::Acquire);
    if end <= allocated {
        return claimed;
    }
    let most_ahead = MOST_AHEAD.load(Ordering::Relaxed);
    let ahead = (end / 4).min(most_ahead) / CHUNK_ALIGNMENT * CHUNK_ALIGNMENT;
    // From the end of the file, so that no hole is left where another thread is still allocating.
    let start = allocated.min(position);
    let most = end.saturating_add(ahead).min(limit());
    for end in [most, end] {
        if allocate(start, end - start, false) {
            ALLOCATED.fetch_max(end, Ordering::AcqRel);
            return claimed;
        }
    }
    let claimed = claimed.filter(|&(position, length)| allocate(position, length, true));
    if claimed.is_none() {
        failed();
    }
    claimed
}

/// Waits while a flight recorder erases, if the file grows faster than that: for a moment only, and
/// with no chunk begun, which it would wait for.
pub(super) fn await_room() {
    let Some(control) = control() else { return };
    let now = || {
        let nanoseconds = clock::nanoseconds(libc::CLOCK_MONOTONIC);
        (clock::ticks(), nanoseconds)
    };
    let millisecond = libc::timespec {
        tv_sec: 0,
        tv_nsec: 1_000_000,
    };
    for _ in 0..LONGEST_WAIT {
        if !control.is_at_bound(now) {
            return;
        }
        // SAFETY: the time is readable; what is left of it is not asked for.
        unsafe { libc::nanosleep(&raw const millisecond, core::ptr::null_mut()) };
    }
}

/// Where the next chunk of the file begins; 0 while there is none.
pub(super) fn end() -> u64 {
    control().map_or(0, |control| control.end.load(Ordering::Relaxed))
}

/// Maps a claimed part of the file.
pub(super) fn map(position: u64, length: usize) -> Option<*mut u8> {
    map_for(libc::PROT_READ | libc::PROT_WRITE, position, length)
}

/// Maps a part of the file that was written.
pub(super) fn map_to_read(position: u64, length: usize) -> Option<*const u8> {
    let _errno = Errno::keep();
    map_for(libc::PROT_READ, position, length).map(<*mut u8>::cast_const)
}

fn map_for(access: i32, position: u64, length: usize) -> Option<*mut u8> {
    let start = mapping::map(descriptor()?, access, position, length);
    if start.is_none() {
        failed();
    }
    start
}

/// Writes a claimed chunk: its open head and its body, and when these are complete the closed head.
/// Zeros fill the last page: when a page is written as a whole, the kernel need not read it first.
pub(super) fn write_chunk(position: u64, open: &[u8], body: &[u8], closed: &[u8]) -> bool {
    let Some(descriptor) = descriptor() else {
        return false;
    };
    let length = open.len() + body.len();
    let padded = length.next_multiple_of(ZEROS.len());
    let padding = ZEROS.get(..padded - length).unwrap_or(&ZEROS);
    let pieces = [open, body, padding];
    let vectors = pieces.map(piece);
    // SAFETY: all pieces are valid for reading.
    let written = unsafe { libc::pwritev(descriptor, vectors.as_ptr(), 3, position as i64) };
    if !is_progress(written) {
        failed();
        return false;
    }
    // Nearly always nothing is left.
    let mut done = written.max(0) as usize;
    let mut at = position;
    for piece in pieces {
        let skipped = done.min(piece.len());
        done -= skipped;
        let rest = piece.get(skipped..).unwrap_or_default();
        if !write_to(descriptor, at + skipped as u64, rest) {
            return false;
        }
        at += piece.len() as u64;
    }
    write_to(descriptor, position, closed)
}

/// A chunk head with the members that all chunks share.
pub(super) fn head(kind: u16, length: u64) -> ChunkHead {
    ChunkHead {
        length,
        ticks: clock::ticks(),
        nanoseconds: clock::nanoseconds(libc::CLOCK_MONOTONIC),
        ..ChunkHead::new(kind)
    }
}

/// Writes the rows as one blob, straight from the program's memory: the kernel reports memory that
/// cannot be read.
pub(super) fn blob(rows: &(impl Memory + ?Sized)) -> Result<BlobRef, NotKept> {
    let _errno = Errno::keep();
    let length = rows.length();
    // A wrong length must not fill the disk.
    if length > LONGEST_BLOB || !rows.ends_are_readable() {
        return Err(NotKept::Unreadable);
    }
    let chunk = chunk_length(length);
    await_room();
    let (position, chunk) = claim(chunk, CHUNK_ALIGNMENT).ok_or(NotKept::Disk)?;
    let descriptor = descriptor().ok_or(NotKept::Disk)?;
    let head = ChunkHead {
        first: position,
        used: length,
        ..head(chunk_kind::BLOB, chunk)
    };
    let head = head.encode();
    // The part that is still to be written.
    let mut head = &head[..];
    let mut at = position;
    for (address, length) in rows.pieces() {
        let mut done = 0;
        while done < length {
            // All writes but the first and the last are of whole pages.
            let room = LONGEST_WRITE - (at - position + head.len() as u64) % LONGEST_WRITE;
            let pieces = [
                piece(head),
                libc::iovec {
                    iov_base: address.wrapping_add(done) as *mut _,
                    iov_len: (length - done).min(room) as usize,
                },
            ];
            // SAFETY: the kernel checks the source ranges and answers EFAULT where they cannot be
            // read.
            let written = unsafe { libc::pwritev(descriptor, pieces.as_ptr(), 2, at as i64) };
            if !is_progress(written) {
                match errno::get() {
                    libc::EFAULT if written < 0 => return Err(NotKept::Unreadable),
                    _ => {
                        failed();
                        return Err(NotKept::Disk);
                    }
                }
            }
            let written = written.max(0);
            let of_head = head.len().min(written as usize);
            head = head.get(of_head..).unwrap_or_default();
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
pub(crate) fn document(kind: u16, body: &[u8]) {
    let _errno = Errno::keep();
    if !put_document(kind, body) {
        mark_incomplete(Lacking::Others);
    }
}

/// The same; `errno` says why it failed.
fn put_document(kind: u16, body: &[u8]) -> bool {
    let length = chunk_length(body.len() as u64);
    let Some((position, length)) = claim(length, CHUNK_ALIGNMENT) else {
        return false;
    };
    let open = head(kind, length);
    let closed = ChunkHead {
        flags: CHUNK_CLOSED,
        used: body.len() as u64,
        body_checksum: cutape_format::checksum(body),
        ..open
    };
    write_chunk(position, &open.encode(), body, &closed.encode())
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
}
