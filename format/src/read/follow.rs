//! Following a trace while it grows: the content of its thread buffers, and the ticks up to which
//! all calls have been found.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use crate::control::{CONTROL_END, CONTROL_LENGTH, CONTROL_POSITION};
use crate::layout::{BufferNote, CHUNK_COPIED, ChunkHead, chunk_kind};
use crate::read::growth::ThreadBuffer;
use crate::read::record::{buffer_content, record_at};
use crate::read::trace::{Body, Chunk, Trace};

/// Refreshes that are remembered; more would only settle sooner.
const MOST_UNSETTLED: usize = 64;

impl Trace {
    /// Looks for chunks that a growing trace has got since. Returns whether there were any.
    pub fn refresh(&mut self) -> io::Result<bool> {
        self.source.refresh_length()?;
        let before = self.chunks.len();
        self.take_additions();
        Ok(self.chunks.len() > before)
    }

    /// Refreshes for a reader that wants calls in order. All calls that were entered before
    /// `horizon` (in ticks) must have been written by now. Returns the ticks up to which all calls
    /// have been found, at most `horizon`.
    ///
    /// A place that is claimed and not begun hides what is behind it, and a buffer can be filled
    /// again before the copy of its content is found; the file shows for how long.
    pub fn refresh_before(&mut self, horizon: u64) -> io::Result<u64> {
        let scanned = self.growth.scanned;
        let claimed = self.claimed();
        if self.growth.unsettled.len() == MOST_UNSETTLED {
            self.growth.unsettled.pop_back();
        }
        self.growth.unsettled.push_back((claimed, horizon));
        self.refresh()?;
        // What a buffer held when a refresh began was found there, or is before the end that the
        // next refresh began with. A buffer found by this refresh may have been filled again before
        // it was read.
        while let Some(&(end, _)) = self.growth.unsettled.get(1)
            && end <= scanned
            && let Some((_, horizon)) = self.growth.unsettled.pop_front()
        {
            self.growth.settled = horizon;
        }
        Ok(self.growth.settled.min(self.oldest_gap()))
    }

    /// How far the recorder has claimed the file; 0 if the file has no control chunk.
    fn claimed(&self) -> usize {
        let place = CONTROL_POSITION as usize;
        let head = self.source.head_at(place);
        let is_control = head.is_some_and(|head| head.kind == chunk_kind::CONTROL);
        if !is_control || place + CONTROL_LENGTH > self.source.length {
            return 0;
        }
        let end = self.source.address(place + CONTROL_END).cast::<AtomicU64>();
        // SAFETY: within the map and the file, and aligned, since maps begin with a page. The
        // recorder uses it as an atomic as well.
        let end = unsafe { &*end }.load(Ordering::Acquire);
        usize::try_from(end).unwrap_or(usize::MAX)
    }

    /// The ticks before which no thread has entered a call of a chunk that exists and was not
    /// found.
    fn oldest_gap(&self) -> u64 {
        // Chunks whose buffer may have had more content when it was filled again.
        let unfinished = self.growth.buffers.iter().filter_map(|buffer| {
            let number = buffer.chunk.filter(|_| !buffer.is_complete)?;
            let head = &self.chunk(number).head;
            let is_gone = match buffer_content(self.buffer_body(buffer)) {
                Some((note, _)) => note.sequence != head.sequence,
                // A thread empties a buffer without records as well.
                None => !self.body(number).is_empty(),
            };
            is_gone.then_some(head.ticks)
        });
        let missing = self.growth.begun.iter().filter_map(|(&thread, &end)| {
            let ticks = |&last: &usize| self.chunk(last).head.ticks;
            let last = self.thread_chunks(thread).last();
            (self.next_sequence(thread) < end).then(|| last.map_or(0, ticks))
        });
        unfinished.chain(missing).min().unwrap_or(u64::MAX)
    }

    /// Takes in what was added to a growing trace, until one addition leads to no other.
    pub(crate) fn take_additions(&mut self) {
        self.growth.refreshes += 1;
        loop {
            let known = (self.growth.taken, self.growth.pending.len());
            for position in std::mem::take(&mut self.growth.pending) {
                match self.source.head_at(position) {
                    Some(head) => self.add_chunk(head, position),
                    // Being closed at this moment.
                    None => self.growth.pending.push(position),
                }
            }
            self.scan();
            let found_complete = self.follow_buffers();
            if !found_complete && known == (self.growth.taken, self.growth.pending.len()) {
                return;
            }
        }
    }

    /// Takes the new content of the thread buffers, which is copied because it may be overwritten
    /// at any moment. Returns whether a buffer was found complete, so that others may follow it.
    fn follow_buffers(&mut self) -> bool {
        let mut buffers = std::mem::take(&mut self.growth.buffers);
        // All notes first: a thread that has begun another chunk has completed the one before.
        let mut notes: Vec<(u32, BufferNote, usize)> = buffers
            .iter()
            .zip(0..)
            .filter_map(|(buffer, at)| {
                let (note, _) = buffer_content(self.buffer_body(buffer))?;
                Some((buffer.head.thread, note, at))
            })
            .collect();
        let pending = self.growth.pending.iter();
        let copies: Vec<(u32, u32)> = pending
            .filter_map(|&position| self.source.head_at(position))
            .filter(|head| head.flags & CHUNK_COPIED != 0)
            .map(|head| (head.thread, head.sequence))
            .collect();
        let mut last_begun: HashMap<u32, u32> = HashMap::new();
        let begun = notes
            .iter()
            .map(|(thread, note, _)| (*thread, note.sequence));
        for (thread, sequence) in begun.chain(copies.iter().copied()) {
            let last = last_begun.entry(thread).or_default();
            *last = sequence.max(*last);
        }
        fence(Ordering::Acquire);
        for (thread, sequence) in copies {
            self.has_begun(thread, sequence);
        }
        for buffer in &buffers {
            if let Some((note, records)) = buffer_content(self.buffer_body(buffer))
                && record_at(records, 0).is_some()
            {
                self.has_begun(buffer.head.thread, note.sequence);
            }
        }
        notes.sort_by_key(|&(thread, note, _)| (thread, note.sequence));
        let mut found_complete = false;
        for (thread, note, at) in notes {
            let is_last = last_begun.get(&thread) == Some(&note.sequence);
            found_complete |= self
                .follow_buffer(&mut buffers, at, note, is_last)
                .is_some();
        }
        self.growth.buffers = buffers;
        found_complete
    }

    /// Takes the new content of a buffer; `None` if it is not found complete.
    fn follow_buffer(
        &mut self,
        buffers: &mut [ThreadBuffer],
        at: usize,
        note: BufferNote,
        is_last: bool,
    ) -> Option<()> {
        let buffer = buffers.get(at)?;
        let thread = buffer.head.thread;
        let chunk = buffer
            .chunk
            .or_else(|| self.take_over(buffers, thread, note));
        let chunk = match chunk {
            // The copy of the buffer's earlier content has not been found yet.
            Some(chunk) if self.chunk(chunk).head.sequence != note.sequence => None,
            Some(chunk) => Some(chunk),
            None => {
                let is_finished = !self
                    .thread_chunks(thread)
                    .last()
                    .is_some_and(|&last| is_unfinished(last, buffers));
                let is_next = self.next_sequence(thread) == note.sequence
                    || self.growth.scanned >= self.claimed()
                        && self.is_behind_erased(thread, note.sequence);
                let buffer = buffers.get(at).filter(|_| is_finished && is_next)?;
                self.add_buffer(&buffer.head, buffer.position, note, Vec::new())
            }
        };
        let buffer = buffers.get_mut(at)?;
        if buffer.chunk.is_none() {
            (buffer.chunk, buffer.is_complete) = (chunk, false);
        }
        let chunk = chunk.filter(|_| !buffer.is_complete)?;
        buffer.is_complete = self.extend_buffer(buffer, chunk, note) && !is_last;
        buffer.is_complete.then_some(())
    }

    /// There are records of that chunk of that thread.
    fn has_begun(&mut self, thread: u32, sequence: u32) {
        let end = self.growth.begun.entry(thread).or_default();
        *end = sequence.saturating_add(1).max(*end);
    }

    /// The chunk of another buffer that has become this one's: a thread whose first record does not
    /// fit begins a longer buffer with the same sequence.
    fn take_over(
        &mut self,
        buffers: &mut [ThreadBuffer],
        thread: u32,
        note: BufferNote,
    ) -> Option<usize> {
        let is_same = |chunk| self.chunk(chunk).head.sequence == note.sequence;
        let from = buffers
            .iter_mut()
            .find(|buffer| buffer.head.thread == thread && buffer.chunk.is_some_and(is_same))?;
        let number = from.chunk?;
        let content = buffer_content(self.buffer_body(from));
        let is_still_there = content.is_some_and(|(shown, _)| shown.sequence == note.sequence);
        let chunk = self.chunks.get_mut(number)?;
        let is_empty = matches!(&chunk.body, Body::Owned(bytes) if bytes.is_empty());
        if is_still_there || !is_empty {
            return None;
        }
        (from.chunk, from.is_complete) = (None, false);
        let head = &mut chunk.head;
        (head.first, head.ticks, head.nanoseconds) = (note.first, note.ticks, note.nanoseconds);
        Some(number)
    }

    /// Copies the records that a buffer has got since. False if it was filled again meanwhile.
    fn extend_buffer(&mut self, buffer: &ThreadBuffer, number: usize, note: BufferNote) -> bool {
        let Some(chunk) = self.chunks.get_mut(number) else {
            return false;
        };
        let body = std::mem::replace(&mut chunk.body, Body::Owned(Vec::new()));
        let Body::Owned(mut bytes) = body else {
            return false;
        };
        let body = self.buffer_body(buffer);
        let records = buffer_content(body).map_or(&[][..], |(_, records)| records);
        let known = bytes.len();
        let mut end = known;
        while let Some((_, record)) = record_at(records, end) {
            end += record.len();
        }
        bytes.extend_from_slice(records.get(known..end).unwrap_or(&[]));
        // Read before the note is read again: if that is the same, nothing has been overwritten.
        fence(Ordering::Acquire);
        let is_same = buffer_content(body).is_some_and(|(shown, _)| shown == note);
        if !is_same {
            bytes.truncate(known);
        }
        if let Some(chunk) = self.chunks.get_mut(number) {
            chunk.body = Body::Owned(bytes);
        }
        is_same
    }

    fn buffer_body(&self, buffer: &ThreadBuffer) -> &[u8] {
        self.source.buffer_body(&buffer.head, buffer.position)
    }

    /// Adds the content of a buffer as the chunk that it would become; the chunk's number.
    pub(crate) fn add_buffer(
        &mut self,
        buffer: &ChunkHead,
        position: usize,
        note: BufferNote,
        body: Vec<u8>,
    ) -> Option<usize> {
        let head = ChunkHead {
            length: buffer.length,
            ..ChunkHead::of_buffer(buffer.thread, note)
        };
        self.push_chunk(Chunk::new(head, position as u64, Body::Owned(body)))
    }

    /// True if chunks before this one are still to be found, among them the copy of what a buffer
    /// has shown.
    pub(crate) fn is_early(&self, head: &ChunkHead) -> bool {
        let last = self.thread_chunks(head.thread).last();
        if last.is_some_and(|&last| is_unfinished(last, &self.growth.buffers)) {
            return head.sequence >= self.next_sequence(head.thread);
        }
        head.sequence > self.next_sequence(head.thread)
            && !self.is_behind_erased(head.thread, head.sequence)
    }

    /// The sequence of the chunk of a thread that follows those that have been found.
    fn next_sequence(&self, thread: u32) -> u32 {
        let last = self.thread_chunks(thread).last();
        last.map_or(0, |&last| self.chunk(last).head.sequence.saturating_add(1))
    }

    /// Whether the chunks of a thread that are missing before a sequence were erased. A thread claims
    /// places for its chunks one after the other, so the others have been scanned.
    fn is_behind_erased(&self, thread: u32, sequence: u32) -> bool {
        let may_come = |&position: &usize| {
            let head = self.source.head_at(position);
            head.is_none_or(|head| {
                let is_copy = head.flags & CHUNK_COPIED != 0;
                is_copy && head.thread == thread && head.sequence < sequence
            })
        };
        sequence > self.next_sequence(thread)
            && self.has_erased()
            && !self.growth.pending.iter().any(may_come)
    }
}

/// Whether a chunk is what a buffer has shown until now, which may not be all of it.
fn is_unfinished(chunk: usize, buffers: &[ThreadBuffer]) -> bool {
    buffers
        .iter()
        .any(|buffer| buffer.chunk == Some(chunk) && !buffer.is_complete)
}
