//! A thread's stage: the part of the trace file that it fills again and again, and how its records get out of it.
//!
//! New pages of a file cost more than all else that recording does, so a thread has few of them. What it has written is in the
//! file at every moment, whatever becomes of the process: a stage is emptied only when the copy of it is complete.

use cutape_format::layout::{
    CHUNK_ALIGNMENT, CHUNK_CLOSED, CHUNK_COPIED, CHUNK_HEAD_LENGTH, ChunkHead, STAGED_LENGTH,
    STAGED_PADDED_LENGTH, StagedNote, chunk_kind, note_kind, record_kind,
};
use cutape_format::write::{Record, empty_stage};

use crate::errno::{self, Errno};
use crate::{clock, trace_file};

/// What stands before the records.
const RECORDS: usize = CHUNK_HEAD_LENGTH + STAGED_PADDED_LENGTH;
const PADDING: [u8; STAGED_PADDED_LENGTH - STAGED_LENGTH] = [0; _];

/// What full stages become ends at a multiple of this, so that the next one begins there: file systems that keep a file's pages in
/// larger pieces take a third less time then (measured with ext4 on Linux 6.18).
const MOVE_ALIGNMENT: u64 = 64 << 10;

/// A stage, mapped.
pub(crate) struct Stage {
    start: *mut u8,
    /// Bytes, head included.
    length: usize,
    /// Where it begins in the file.
    position: u64,
    thread: u32,
    note: StagedNote,
}

impl Stage {
    /// A new stage of that many bytes for a thread, without records. `begin` comes first.
    pub(crate) fn open(length: u64, thread: u32) -> Option<Self> {
        let _errno = Errno::keep();
        let (position, length) = trace_file::claim(length, CHUNK_ALIGNMENT)?;
        if !trace_file::allocate(position, length) {
            return None;
        }
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
        // One call instead of a fault a page; and a file system that cannot keep its promise of space says so here.
        // SAFETY: the mapping that was just made.
        let failed =
            unsafe { libc::madvise(start, length as usize, libc::MADV_POPULATE_WRITE) } != 0;
        // Linux before 5.14 does not know the request.
        if failed && errno::get() != libc::EINVAL {
            // SAFETY: as above; nobody refers to it.
            unsafe { libc::munmap(start, length as usize) };
            return None;
        }
        let head = ChunkHead {
            thread,
            ..trace_file::head(chunk_kind::STAGE, length)
        };
        let bytes = head.encode();
        // SAFETY: the mapping is at least a page long and ours.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), start.cast(), bytes.len()) };
        Some(Self {
            start: start.cast(),
            length: length as usize,
            position,
            thread,
            note: StagedNote {
                sequence: 0,
                first: 0,
                ticks: 0,
                nanoseconds: 0,
            },
        })
    }

    /// Begins what will be the thread's chunk of that number, whose first call will have that number. Where records go.
    pub(crate) fn begin(&mut self, sequence: u32, first: u64) -> (*mut u8, *mut u8) {
        self.note = StagedNote {
            sequence,
            first,
            ticks: clock::ticks(),
            nanoseconds: clock::nanoseconds(libc::CLOCK_MONOTONIC),
        };
        let note = self.note;
        let written = self
            .bytes()
            .get_mut(CHUNK_HEAD_LENGTH..RECORDS)
            .and_then(Record::new)
            .and_then(|mut record| {
                record.put_encoded(note)?;
                record.put(&PADDING)?;
                record.commit(record_kind::NOTE, note_kind::STAGED)
            });
        debug_assert_eq!(written, Some(STAGED_PADDED_LENGTH));
        // SAFETY: the stage is longer than what stands before its records.
        unsafe { (self.start.add(RECORDS), self.start.add(self.length)) }
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
            empty_stage(&mut self.bytes()[CHUNK_HEAD_LENGTH..RECORDS]);
            return true;
        }
        let used = end as usize - self.start as usize - RECORDS;
        let (note, thread) = (self.note, self.thread);
        let length = trace_file::chunk_length(used as u64);
        // Only what a full stage becomes is worth a place of its own.
        let alignment = if length > MOVE_ALIGNMENT / 2 {
            MOVE_ALIGNMENT
        } else {
            CHUNK_ALIGNMENT
        };
        let Some((position, length)) = trace_file::claim(length, alignment) else {
            return false;
        };
        let Some(body) = self.bytes().get(RECORDS..RECORDS + used) else {
            return false;
        };
        let open = ChunkHead {
            flags: CHUNK_COPIED,
            thread,
            sequence: note.sequence,
            first: note.first,
            ticks: note.ticks,
            nanoseconds: note.nanoseconds,
            ..trace_file::head(chunk_kind::CALLS, length)
        };
        let closed = ChunkHead {
            flags: CHUNK_COPIED | CHUNK_CLOSED,
            used: used as u64,
            body_checksum: cutape_format::checksum(body),
            ..open
        };
        let done = trace_file::write_chunk(position, &open.encode(), body, &closed.encode());
        if done {
            empty_stage(&mut self.bytes()[CHUNK_HEAD_LENGTH..]);
        }
        done
    }

    /// Unmaps it. If it is empty, what it holds of the disk is given back.
    pub(crate) fn close(mut self, is_empty: bool) {
        let _errno = Errno::keep();
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
