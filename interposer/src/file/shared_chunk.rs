//! Chunks that all threads write records to, without a lock.

use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use cutape_format::layout::{CHUNK_ALIGNMENT, CHUNK_HEAD_LENGTH, record_kind};
use cutape_format::write::Record;

use super::{mapping, thread_buffer, trace_file};
use crate::process::errno::Errno;

/// The kind of a record that could not be built; readers skip it.
const NOTHING: u16 = 0;

/// Chunks of one kind, of which the last is being filled. They stay mapped and open until the
/// process ends.
pub(crate) struct SharedChunk {
    kind: u16,
    /// Of each chunk, head included.
    length: u64,
    region: AtomicPtr<Region>,
}

/// The chunk that is being filled.
struct Region {
    start: *mut u8,
    length: usize,
    /// Bytes that are given out, and more if there were not enough.
    used: AtomicUsize,
}

impl SharedChunk {
    pub(crate) const fn new(kind: u16, length: u64) -> Self {
        Self {
            kind,
            length,
            region: AtomicPtr::new(core::ptr::null_mut()),
        }
    }

    /// In a forked child, whose trace is another file.
    pub(crate) fn forget(&self) {
        self.region.store(core::ptr::null_mut(), Ordering::Relaxed);
    }

    /// Writes a note of at most that many bytes, its head included. `None` if it is longer than a
    /// chunk, or the file cannot grow.
    pub(crate) fn put(
        &self,
        kind: u16,
        length: usize,
        build: impl FnOnce(&mut Record<'_>) -> Option<()>,
    ) -> Option<()> {
        let length = length.next_multiple_of(8);
        let space = self.space(length)?;
        let mut record = Record::new(space)?;
        let kind = match build(&mut record) {
            Some(()) => kind,
            None => NOTHING,
        };
        // A gap would hide all that follows.
        while record.length() < length {
            record.put_number(0, (length - record.length()).min(8))?;
        }
        record.commit(record_kind::NOTE, kind).map(|_| ())
    }

    /// That many bytes of a chunk, which are the caller's alone.
    fn space(&self, length: usize) -> Option<&'static mut [u8]> {
        if length > self.length as usize - CHUNK_HEAD_LENGTH {
            return None;
        }
        loop {
            let region = self.region.load(Ordering::Acquire);
            // SAFETY: NULL, or leaked below.
            if let Some(known) = unsafe { region.as_ref() } {
                let at = known.used.fetch_add(length, Ordering::Relaxed);
                if at
                    .checked_add(length)
                    .is_some_and(|end| end <= known.length)
                {
                    // SAFETY: within the mapping, which is never unmapped; `used` gives these bytes
                    // to this caller alone.
                    return Some(unsafe {
                        core::slice::from_raw_parts_mut(known.start.add(at), length)
                    });
                }
            }
            let Some((start, length)) = self.open() else {
                trace_file::mark_incomplete(trace_file::Lacking::Others);
                return None;
            };
            let new = Box::into_raw(Box::new(Region {
                start,
                length,
                used: AtomicUsize::new(CHUNK_HEAD_LENGTH),
            }));
            let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
            let published = self.region.compare_exchange(region, new, success, failure);
            if published.is_err() {
                // Another thread was first: ours stays empty in the file.
                // SAFETY: made above, and seen by no other thread.
                drop(unsafe { Box::from_raw(new) });
            }
        }
    }

    /// Makes a chunk. Returns its start and its bytes, head included; `None` if the file cannot
    /// grow.
    fn open(&self) -> Option<(*mut u8, usize)> {
        let _errno = Errno::keep();
        let length = self.length as usize;
        let (position, _) = trace_file::claim(self.length, CHUNK_ALIGNMENT)?;
        let start = trace_file::map(position, length)?;
        if !thread_buffer::populate(start, length) {
            // SAFETY: the mapping that was just made; no reference to it exists.
            unsafe { mapping::unmap(start, length) };
            return None;
        }
        let head = trace_file::head(self.kind, self.length).encode();
        // SAFETY: the chunk is longer than its head, and ours.
        unsafe { core::ptr::copy_nonoverlapping(head.as_ptr(), start, head.len()) };
        Some((start, length))
    }
}
