//! A thread's stage: the part of the trace file that it fills again and again, and how its records get out of it.
//!
//! New pages of a file cost more than all else that recording does, so a thread has few of them. What it has written is in the
//! file at every moment, whatever becomes of the process: a stage is used again only when the copy of it is complete.

use cutape_format::control::{Slot, copy_alignment};
use cutape_format::layout::{
    BUFFER_NOTE_LENGTH, BUFFER_NOTE_PADDED_LENGTH, BufferNote, CHUNK_ALIGNMENT, CHUNK_HEAD_LENGTH,
    ChunkHead, chunk_kind, note_kind, record_kind,
};
use cutape_format::write::{Record, empty_stage};

use crate::errno::{self, Errno};
use crate::{clock, trace_file};

/// What stands before the records.
const RECORDS: usize = CHUNK_HEAD_LENGTH + BUFFER_NOTE_PADDED_LENGTH;
const PADDING: [u8; BUFFER_NOTE_PADDED_LENGTH - BUFFER_NOTE_LENGTH] = [0; _];

const PAGE: usize = 4096;
/// How much of a stage is made ready at once: a page takes some 4 us (ext4 on Linux 6.18), for which a call has to wait.
const AT_ONCE: usize = 4 * PAGE;

/// Makes pages of a stage's mapping ready to be written to: fewer calls than there would be faults, and a file system that cannot
/// keep its promise of space says so here. False if it cannot.
fn populate(start: *mut u8, length: usize) -> bool {
    // SAFETY: pages of a mapping that is ours; what they hold stays.
    let failed = unsafe { libc::madvise(start.cast(), length, libc::MADV_POPULATE_WRITE) } != 0;
    // Linux before 5.14 does not know the request.
    !failed || errno::get() == libc::EINVAL
}

/// A stage, mapped.
pub(crate) struct Stage {
    start: *mut u8,
    /// Bytes, head included.
    length: usize,
    /// So many of them can be written to without a fault.
    ready: usize,
    /// Where it begins in the file.
    position: u64,
    thread: u32,
    note: BufferNote,
    /// Where it is handed over to the mover; `None` if there is no room for more stages there.
    slot: Option<&'static Slot>,
    /// Ticket and bytes of records with which it was handed over; `None` while it is the thread's.
    handed: Option<(u32, u64)>,
}

impl Stage {
    /// Makes a thread's first stage, of that many bytes and without records. `begin` comes first. `None` if the file cannot be longer.
    pub(crate) fn open(length: u64, thread: u32) -> Option<Self> {
        Self::open_ready(length, thread, length as usize)
    }

    /// The same for a further one. A thread makes it between two calls, so it is made ready as the thread comes to it.
    pub(crate) fn open_another(length: u64, thread: u32) -> Option<Self> {
        Self::open_ready(length, thread, PAGE)
    }

    fn open_ready(length: u64, thread: u32, ready: usize) -> Option<Self> {
        let _errno = Errno::keep();
        let (position, _) = trace_file::claim(length, CHUNK_ALIGNMENT)?;
        let descriptor = trace_file::descriptor()?;
        // SAFETY: maps a part of our file that was just allocated and that nobody else has claimed.
        let start = unsafe {
            libc::mmap(
                core::ptr::null_mut(),
                length as usize,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                descriptor,
                position as i64,
            )
        };
        if start == libc::MAP_FAILED {
            return None;
        }
        if ready < length as usize {
            // Else the system fetches those behind the first page with it, which took 20 to 90 us and not 5 to 15 (ext4 on Linux 6.18).
            // SAFETY: advice on the mapping that was just made.
            unsafe { libc::madvise(start, length as usize, libc::MADV_RANDOM) };
        }
        let start = start.cast::<u8>();
        if !populate(start, ready) {
            // SAFETY: the mapping that was just made; nobody refers to it.
            unsafe { libc::munmap(start.cast(), length as usize) };
            return None;
        }
        let head = ChunkHead {
            thread,
            ..trace_file::head(chunk_kind::THREAD_BUFFER, length)
        };
        let bytes = head.encode();
        // SAFETY: a stage is longer than its head, and ours.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), start, bytes.len()) };
        Some(Self {
            start,
            length: length as usize,
            ready,
            position,
            thread,
            note: BufferNote {
                sequence: 0,
                first: 0,
                ticks: 0,
                nanoseconds: 0,
            },
            slot: trace_file::control().and_then(|control| control.take_slot(position, length)),
            handed: None,
        })
    }

    /// Bytes, head included.
    pub(crate) fn length(&self) -> u64 {
        self.length as u64
    }

    /// Whose it is.
    pub(crate) fn thread(&self) -> u32 {
        self.thread
    }

    /// Whether there is a place where the mover finds it.
    pub(crate) fn can_be_handed_over(&self) -> bool {
        self.slot.is_some()
    }

    /// Whether it has had nothing yet, or the mover has had it and is done.
    pub(crate) fn is_free(&self) -> bool {
        self.slot.is_some_and(Slot::is_held)
    }

    /// Lets the mover have it, with records that end there. False if that cannot be.
    pub(crate) fn hand_over(&mut self, end: *const u8) -> bool {
        let used = (end as usize - self.start as usize - RECORDS) as u64;
        let (Some(slot), Some(control)) = (self.slot, trace_file::control()) else {
            return false;
        };
        let ticket = control.ticket();
        let is_handed = slot.hand_over(ticket, used);
        if is_handed {
            self.handed = Some((ticket, used));
        }
        is_handed
    }

    /// Of the chunk that it is, or was before it was moved.
    pub(crate) fn sequence(&self) -> u32 {
        self.note.sequence
    }

    /// Takes it back from the mover and moves it. False if the mover has just moved it or is about to, or the file cannot be
    /// written; then it is handed over as before.
    pub(crate) fn take_back(&mut self) -> bool {
        let (Some(slot), Some((ticket, used))) = (self.slot, self.handed) else {
            return false;
        };
        if !slot.take_back(ticket, used) {
            return false;
        }
        let end = self.start.wrapping_add(RECORDS + used as usize);
        let is_moved = self.move_out(end);
        if !is_moved {
            slot.hand_over(ticket, used);
        }
        is_moved
    }

    /// Begins what will be the thread's chunk of that number, whose first call will have that number. Where records go.
    pub(crate) fn begin(&mut self, sequence: u32, first: u64) -> (*mut u8, *mut u8) {
        self.note = BufferNote {
            sequence,
            first,
            ticks: clock::ticks(),
            nanoseconds: clock::nanoseconds(libc::CLOCK_MONOTONIC),
        };
        self.handed = None;
        let note = self.note;
        // What the stage had before goes first: the mover leaves it.
        empty_stage(&mut self.bytes()[CHUNK_HEAD_LENGTH..]);
        let written = self
            .bytes()
            .get_mut(CHUNK_HEAD_LENGTH..RECORDS)
            .and_then(Record::new)
            .and_then(|mut record| {
                record.put_encoded(note)?;
                record.put(&PADDING)?;
                record.commit(record_kind::NOTE, note_kind::BUFFER)
            });
        debug_assert_eq!(written, Some(BUFFER_NOTE_PADDED_LENGTH));
        // SAFETY: the stage is longer than what stands before its records.
        unsafe { (self.start.add(RECORDS), self.start.add(self.ready)) }
    }

    /// Makes some more of it ready; where that ends. `None` if there is no more, or the file system cannot keep its promise of space.
    pub(crate) fn extend(&mut self) -> Option<*mut u8> {
        let more = AT_ONCE.min(self.length - self.ready);
        // SAFETY: `ready` is at most the length.
        let from = unsafe { self.start.add(self.ready) };
        if more == 0 || !populate(from, more) {
            return None;
        }
        self.ready += more;
        // SAFETY: as above.
        Some(unsafe { self.start.add(self.ready) })
    }

    /// Whether records that end there are none.
    pub(crate) fn is_empty(&self, end: *const u8) -> bool {
        end as usize - self.start as usize == RECORDS
    }

    /// Writes the records, which end there, as a chunk of their own, and empties the stage. False if the file cannot be
    /// written; then they stay where they are.
    pub(crate) fn move_out(&mut self, end: *const u8) -> bool {
        let _errno = Errno::keep();
        if self.is_empty(end) {
            empty_stage(&mut self.bytes()[CHUNK_HEAD_LENGTH..]);
            return true;
        }
        let used = end as usize - self.start as usize - RECORDS;
        let (note, thread) = (self.note, self.thread);
        let length = trace_file::chunk_length(used as u64);
        let alignment = copy_alignment(length);
        let Some((position, length)) = trace_file::claim(length, alignment) else {
            return false;
        };
        let Some(body) = self.bytes().get(RECORDS..RECORDS + used) else {
            return false;
        };
        let (open, closed) = ChunkHead::of_copy(thread, note, length, body);
        let done = trace_file::write_chunk(position, &open.encode(), body, &closed.encode());
        if done {
            empty_stage(&mut self.bytes()[CHUNK_HEAD_LENGTH..]);
        }
        done
    }

    /// Unmaps one that is not being filled; what it still has is moved first.
    pub(crate) fn close_handed(mut self) {
        let is_empty = self.is_free() || self.take_back() || self.is_free();
        if is_empty {
            empty_stage(&mut self.bytes()[CHUNK_HEAD_LENGTH..]);
        }
        self.close(is_empty);
    }

    /// Unmaps it. If it is empty, what it holds of the disk is given back.
    pub(crate) fn close(mut self, is_empty: bool) {
        let _errno = Errno::keep();
        if let Some(slot) = self.slot {
            slot.free();
        }
        let bytes = self.bytes();
        let (start, length) = (bytes.as_mut_ptr(), bytes.len());
        // SAFETY: mapped by `open` with that length; nobody refers to it any more.
        unsafe { libc::munmap(start.cast(), length) };
        let kept = CHUNK_ALIGNMENT as usize;
        if is_empty
            && kept < length
            && let Some(descriptor) = trace_file::descriptor()
        {
            // SAFETY: no memory is involved. Where the file system cannot, the space stays taken.
            unsafe {
                libc::fallocate(
                    descriptor,
                    libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE,
                    self.position as i64 + kept as i64,
                    (length - kept) as i64,
                )
            };
        }
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: mapped with that length as long as `self` is there, and ours alone; no other reference is kept.
        unsafe { core::slice::from_raw_parts_mut(self.start, self.length) }
    }
}
