//! Giving back the space of calls that nothing needs any more, while their process is recording.
//!
//! A chunk is erased as a whole: its head becomes that of a chunk of kind ERASED, which joins those
//! beside it, and the file system gets back all but its first page. So a recording of any length
//! takes as much space as the calls that are kept.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use rustix::fs::{FallocateFlags, fallocate};

use crate::append::LiveControl;
use crate::layout::{CHUNK_ALIGNMENT, CHUNK_CLOSED, ChunkHead, chunk_kind, record_kind};
use crate::read::record::records;
use crate::read::trace::{Body, Chunk, Trace};

/// What of a trace must stay.
pub struct Needed<'a> {
    /// Whether one of these calls of a thread, by their numbers in it, is needed.
    pub calls: &'a dyn Fn(u32, Range<u64>) -> bool,
    /// Whether the blob of that name is needed.
    pub blob: &'a dyn Fn(u64) -> bool,
    /// Calls and markers from these ticks on are needed.
    pub from: u64,
}

/// What was erased.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Erased {
    /// Bytes of the file that the file system got back now.
    pub bytes: u64,
    /// Bytes of the file that it has got back in all.
    pub total: u64,
}

impl Trace {
    /// Erases the chunks of a trace that is being recorded which hold nothing that is needed. This
    /// trace must not be read afterwards. Blobs stay that were written at `blobs_before` or later:
    /// no call from `needed.from` on may name an earlier one (see
    /// [`Control::end_reuse`](crate::control::Control::end_reuse)).
    ///
    /// # Errors
    /// If the trace is not one that grows, or its file system cannot give back parts of a file.
    pub fn erase(&self, needed: &Needed<'_>, blobs_before: u64) -> io::Result<Erased> {
        let control = LiveControl::open(self)?;
        let file = control.file();
        let mut chunks: Vec<&Chunk> = self.chunks.iter().collect();
        chunks.sort_unstable_by_key(|chunk| chunk.position);
        let mut erased = Erased::default();
        let mut run: Option<Run> = None;
        for chunk in chunks {
            let was_erased = chunk.head.kind == chunk_kind::ERASED;
            if !was_erased && !self.is_erasable(chunk, needed, blobs_before) {
                continue;
            }
            let end = chunk.position.saturating_add(chunk.head.length);
            run = match run.take() {
                Some(known) if known.range.end == chunk.position => Some(Run {
                    range: known.range.start..end,
                    is_new: known.is_new || !was_erased,
                    ..known
                }),
                known => {
                    known.map_or(Ok(()), |known| known.erase(file))?;
                    Some(Run {
                        range: chunk.position..end,
                        head: chunk.head,
                        is_new: !was_erased,
                    })
                }
            };
            let length = chunk.head.length;
            erased.total += length;
            erased.bytes += if was_erased { 0 } else { length };
        }
        run.map_or(Ok(()), |run| run.erase(file))?;
        Ok(erased)
    }

    /// Whether chunks of calls were erased, so that numbers of calls are missing.
    pub fn has_erased(&self) -> bool {
        let mut heads = self.chunks.iter().map(|chunk| &chunk.head);
        heads.any(|head| head.kind == chunk_kind::ERASED)
    }

    /// When the oldest chunk of the last so many bytes of calls and blobs was opened, in ticks;
    /// `None` if there are not as many.
    pub fn ticks_of_last_bytes(&self, bytes: u64) -> Option<u64> {
        let mut chunks: Vec<&Chunk> = self.chunks.iter().collect();
        chunks.sort_unstable_by_key(|chunk| std::cmp::Reverse(chunk.position));
        let mut left = bytes;
        for chunk in chunks {
            let is_stored = matches!(chunk.body, Body::InFile(_))
                && matches!(chunk.head.kind, chunk_kind::CALLS | chunk_kind::BLOB);
            if !is_stored {
                continue;
            }
            match left.checked_sub(chunk.head.length) {
                Some(rest) => left = rest,
                None => return Some(chunk.head.ticks),
            }
        }
        None
    }

    /// Whether all calls of a chunk were entered before these ticks, because the next chunk of its
    /// thread begins there. A chunk may also have calls that were entered while the trace was
    /// opened, which do not count.
    fn ends_before(&self, chunk: &Chunk, ticks: u64) -> bool {
        let chunks = self.thread_chunks(chunk.head.thread);
        let sequence = |&number: &usize| self.chunk(number).head.sequence;
        let next = chunks.partition_point(|number| sequence(number) <= chunk.head.sequence);
        let next = chunks
            .get(next)
            .map(|&number| self.chunk(number).head.ticks);
        next.is_some_and(|next| next <= ticks)
    }

    fn is_erasable(&self, chunk: &Chunk, needed: &Needed<'_>, blobs_before: u64) -> bool {
        let head = &chunk.head;
        let Body::InFile(range) = &chunk.body else {
            return false;
        };
        if head.flags & CHUNK_CLOSED == 0 {
            return false;
        }
        match head.kind {
            chunk_kind::CALLS => {
                if !self.ends_before(chunk, needed.from) {
                    return false;
                }
                let body = self.source.bytes(range.clone());
                let entered = records(body)
                    .filter(|(_, head, _)| record_kind::is_enter(head.kind))
                    .count();
                // Its first records may be of the call before.
                let first = head.first.saturating_sub(1);
                let end = head.first.saturating_add(entered as u64);
                !(needed.calls)(head.thread, first..end)
            }
            chunk_kind::BLOB => chunk.position < blobs_before && !(needed.blob)(chunk.position),
            chunk_kind::MARKERS => head.ticks < needed.from && head.length == CHUNK_ALIGNMENT,
            _ => false,
        }
    }
}

/// Neighbouring chunks that become one.
struct Run {
    range: Range<u64>,
    /// Of the first.
    head: ChunkHead,
    /// Some of them were not erased before.
    is_new: bool,
}

impl Run {
    fn erase(self, file: &File) -> io::Result<()> {
        if !self.is_new {
            return Ok(());
        }
        let length = self.range.end - self.range.start;
        let head = ChunkHead {
            flags: CHUNK_CLOSED,
            length,
            ticks: self.head.ticks,
            nanoseconds: self.head.nanoseconds,
            body_checksum: crc32fast::hash(&[]),
            ..ChunkHead::new(chunk_kind::ERASED)
        };
        // The head first: what it covers is passed over, whether it is still there or not.
        file.write_all_at(&head.encode(), self.range.start)?;
        if length > CHUNK_ALIGNMENT {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let start = self.range.start + CHUNK_ALIGNMENT;
            fallocate(file, flags, start, length - CHUNK_ALIGNMENT)?;
        }
        Ok(())
    }
}
