//! The part of the trace file that a thread fills with records, flushes, and fills again.
//!
//! A fresh page of a file costs more than all else that recording does, so a thread fills the same
//! few pages again and again. When they are full, the thread copies the records to a chunk of their
//! own (it *flushes* the buffer) and begins again. Whatever happens to the process, each record is
//! in the file: in the buffer, which is mapped from it, or in a chunk; the buffer is emptied only
//! after the copy is complete.
//!
//! A flusher in `record`'s process, which copied full buffers while their threads continued in
//! others, was measured and removed (2026-11-22, H200, driver 580.159.04): with it a PyTorch step
//! took 4.45 ms (3.95 to 5.29), without it 4.84 (3.59 to 5.42), unrecorded 4.13 (3.46 to 4.77).
//! Calls of 16 threads that do nothing else got slower, from 118 ns (108 to 124) to 147 (132 to
//! 150): `benches/results/2026-11-22-h200.md`.

use cutape_format::layout::{
    BUFFER_NOTE_LENGTH, BUFFER_NOTE_PADDED_LENGTH, BufferNote, CHUNK_ALIGNMENT, CHUNK_HEAD_LENGTH,
    ChunkHead, RECORD_HEAD_LENGTH, chunk_kind, note_kind, record_kind,
};
use cutape_format::write::{Record, empty_buffer};

use super::{mapping, trace_file};
use crate::hot::clock;
use crate::process::errno::{self, Errno};

/// Where the records begin.
const RECORDS: usize = CHUNK_HEAD_LENGTH + BUFFER_NOTE_PADDED_LENGTH;
const PADDING: [u8; BUFFER_NOTE_PADDED_LENGTH - BUFFER_NOTE_LENGTH] = [0; _];

/// The chunk of a full buffer ends at a multiple of this, so that the next one begins there:
/// writing takes a third less time on file systems that keep a file's pages in larger pieces
/// (measured with ext4 on Linux 6.18).
const FLUSH_ALIGNMENT: u64 = 64 << 10;

/// Has the kernel map the pages of a buffer, which is faster than one page fault each, and reports
/// a file system that cannot keep its promise of space. False if it cannot.
pub(super) fn populate(start: *mut u8, length: usize) -> bool {
    // SAFETY: pages of a mapping that is ours; their content stays.
    let failed = unsafe { libc::madvise(start.cast(), length, libc::MADV_POPULATE_WRITE) } != 0;
    // Linux before 5.14 does not know the request.
    !failed || errno::get() == libc::EINVAL
}

/// A thread buffer, mapped.
pub(crate) struct ThreadBuffer {
    start: *mut u8,
    /// Bytes, head included.
    length: usize,
    /// Where it begins in the file.
    position: u64,
    thread: u32,
    note: BufferNote,
}

impl ThreadBuffer {
    /// Makes a buffer of that many bytes; `begin` must follow. `None` if the file cannot grow.
    pub(crate) fn open(length: u64, thread: u32) -> Option<Self> {
        let _errno = Errno::keep();
        let (position, _) = trace_file::claim(length, CHUNK_ALIGNMENT)?;
        let start = trace_file::map(position, length as usize)?;
        if !populate(start, length as usize) {
            trace_file::failed();
            // SAFETY: the mapping that was just made; no reference to it exists.
            unsafe { mapping::unmap(start, length as usize) };
            return None;
        }
        let head = ChunkHead {
            thread,
            ..trace_file::head(chunk_kind::THREAD_BUFFER, length)
        };
        let bytes = head.encode();
        // SAFETY: a buffer is longer than its head, and ours.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), start, bytes.len()) };
        Some(Self {
            start,
            length: length as usize,
            position,
            thread,
            note: BufferNote::default(),
        })
    }

    /// Begins the thread's chunk of that number; `first` is the number of the first call in it.
    /// Returns where records begin and must end.
    pub(crate) fn begin(&mut self, sequence: u32, first: u64) -> (*mut u8, *mut u8) {
        self.note = BufferNote {
            sequence,
            first,
            ticks: clock::ticks(),
            nanoseconds: clock::nanoseconds(libc::CLOCK_MONOTONIC),
        };
        let note = self.note;
        let written = self
            .bytes()
            // With the next head, which `commit` clears: older records would follow the note.
            .get_mut(CHUNK_HEAD_LENGTH..RECORDS + RECORD_HEAD_LENGTH)
            .and_then(Record::new)
            .and_then(|mut record| {
                record.put_encoded(note)?;
                record.put(&PADDING)?;
                record.commit(record_kind::NOTE, note_kind::BUFFER)
            });
        debug_assert_eq!(written, Some(BUFFER_NOTE_PADDED_LENGTH));
        // SAFETY: the buffer is longer than what lies before its records.
        unsafe { (self.start.add(RECORDS), self.start.add(self.length)) }
    }

    /// Whether it holds no records, if they end there.
    pub(crate) fn is_empty(&self, end: *const u8) -> bool {
        self.used(end) == 0
    }

    fn used(&self, end: *const u8) -> usize {
        (end as usize).saturating_sub(self.start as usize + RECORDS)
    }

    /// Copies the records, which end there, to a chunk of their own, and empties the buffer. False
    /// if the file cannot be written; then the records stay.
    pub(crate) fn flush(&mut self, end: *const u8) -> bool {
        let _errno = Errno::keep();
        let used = self.used(end);
        let is_done = used == 0 || self.copy_out(used).is_some();
        if is_done && let Some(body) = self.bytes().get_mut(CHUNK_HEAD_LENGTH..) {
            empty_buffer(body);
        }
        is_done
    }

    fn copy_out(&mut self, used: usize) -> Option<()> {
        let (note, thread) = (self.note, self.thread);
        let length = trace_file::chunk_length(used as u64);
        // Short chunks are not worth the space that aligning costs.
        let alignment = if length > FLUSH_ALIGNMENT / 2 {
            FLUSH_ALIGNMENT
        } else {
            CHUNK_ALIGNMENT
        };
        trace_file::await_room();
        let (position, length) = trace_file::claim(length, alignment)?;
        let body = self.bytes().get(RECORDS..RECORDS + used)?;
        let (open, closed) = ChunkHead::of_copy(thread, note, length, body);
        trace_file::write_chunk(position, &open.encode(), body, &closed.encode()).then_some(())
    }

    /// Unmaps it. If it was flushed, its space on disk is given back.
    pub(crate) fn close(self, is_flushed: bool) {
        let _errno = Errno::keep();
        // SAFETY: mapped by `open` with that length; no reference to it is left.
        unsafe { mapping::unmap(self.start, self.length) };
        // The first page stays: it has the head.
        let kept = CHUNK_ALIGNMENT as usize;
        if is_flushed
            && kept < self.length
            && let Some(descriptor) = trace_file::descriptor()
        {
            // SAFETY: no memory is involved. If the file system cannot do it, the space stays
            // allocated.
            unsafe {
                libc::fallocate(
                    descriptor,
                    libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE,
                    self.position as i64 + kept as i64,
                    (self.length - kept) as i64,
                )
            };
        }
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: mapped with that length as long as `self` lives, and ours alone; no other
        // reference is kept.
        unsafe { core::slice::from_raw_parts_mut(self.start, self.length) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_begins_without_its_older_records() {
        let mut memory = vec![u64::MAX; 512];
        let mut buffer = ThreadBuffer {
            start: memory.as_mut_ptr().cast(),
            length: 4096,
            position: 0,
            thread: 0,
            note: BufferNote::default(),
        };
        let (next, end) = buffer.begin(3, 100);
        assert_eq!(end.addr() - buffer.start.addr(), 4096);
        // SAFETY: within `memory`, and aligned as it is.
        let (first, after) = unsafe { (*next.cast::<u64>(), *next.cast::<u64>().add(1)) };
        assert_eq!((first, after), (0, u64::MAX));
    }
}
