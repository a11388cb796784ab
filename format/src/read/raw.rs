//! Opening a raw trace, which a process may be recording meanwhile: all that is read belongs to one
//! moment, whatever threads add, flush and begin while it is read.
//!
//! 1. The last call that is found anywhere gives the moment, in ticks. What a thread entered later
//!    does not count, so that no call is there without one that returned before it was entered.
//! 2. The thread buffers are copied, with those that began before that moment. A buffer that its
//!    thread empties meanwhile was flushed before.
//! 3. The chunks are looked for again: what was flushed is there, and counts instead of the copy.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::atomic::{Ordering, fence};
use std::thread;
use std::time::Duration;

use crate::layout::{
    BufferNote, CHUNK_CLOSED, CHUNK_COPIED, CHUNK_HEAD_LENGTH, ChunkHead, RECORD_HEAD_LENGTH,
    RecordHead, chunk_kind, record_kind,
};
use crate::read::error::Damage;
use crate::read::record::{Enter, buffer_content, record_at};
use crate::read::scan::NO_CHUNK;
use crate::read::source::Source;
use crate::read::trace::{Body, Trace};

/// How long to wait in all for heads that a recorder is writing: on a busy machine it may be off the
/// processor in the middle of one.
const PATIENCE: u32 = 2000;
const PAUSE: Duration = Duration::from_millis(1);

/// The chunks that have been begun, in their order.
struct Chunks {
    found: Vec<(usize, ChunkHead)>,
    /// Where the search ended.
    end: usize,
    /// The first place without a chunk, which may get one, and how many chunks are before it.
    gap: Option<(usize, usize)>,
    damage: Vec<Damage>,
    /// Pauses that are left.
    patience: u32,
    /// The chunk that was taken in first.
    table: Option<usize>,
}

impl Chunks {
    /// Looks for chunks behind those that are known, and in places that were empty.
    fn search(&mut self, source: &mut Source) -> io::Result<()> {
        source.refresh_length()?;
        if let Some((gap, before)) = self.gap.take() {
            self.found.truncate(before);
            self.damage.retain(|damage| damage.position < gap as u64);
            self.end = gap;
        }
        let step = source.chunk_alignment();
        let mut position = self.end;
        // Where a row of empty places began.
        let mut empty: Option<usize> = None;
        while position.saturating_add(CHUNK_HEAD_LENGTH) <= source.length {
            let head_end = position + CHUNK_HEAD_LENGTH;
            let head = source.head_at(position);
            if head.is_none() && source.is_zero(position..head_end) {
                empty.get_or_insert(position);
                self.gap.get_or_insert((position, self.found.len()));
                position += step;
                continue;
            }
            // A chunk may have been begun in what was empty a moment ago: this is its body.
            if let Some(start) = empty.take() {
                let mut places = (start..position).step_by(step);
                if let Some(begun) = places.find(|&place| source.head_at(place).is_some()) {
                    position = begun;
                    continue;
                }
                if head.is_none() && self.pause() {
                    position = start;
                    continue;
                }
            }
            let Some(head) = head else {
                if !self.pause() {
                    self.damage.push(Damage::new(position as u64, NO_CHUNK));
                    position = source.next_magic(position + step);
                }
                continue;
            };
            let length = usize::try_from(head.length).unwrap_or(usize::MAX);
            self.found.push((position, head));
            position = position.saturating_add(length);
            if position > source.length {
                // The length was taken before the recorder extended the file.
                source.refresh_length()?;
            }
        }
        self.end = position;
        // Pairs with the recorder's order: what a head announces is there before the head.
        fence(Ordering::Acquire);
        Ok(())
    }

    /// Gives a recorder time to write a head; false when it has had enough.
    fn pause(&mut self) -> bool {
        let left = self.patience.checked_sub(1);
        if let Some(left) = left {
            self.patience = left;
            thread::sleep(PAUSE);
        }
        left.is_some()
    }

    fn of_kind(&self, kind: u16) -> impl Iterator<Item = (usize, ChunkHead)> + '_ {
        let found = self.found.iter().copied();
        found.filter(move |(_, head)| head.kind == kind)
    }

    /// The chunks of calls that count, with their heads as they are now.
    fn calls<'a>(&'a self, source: &'a Source) -> impl Iterator<Item = (usize, ChunkHead)> + 'a {
        let now = |(position, head): (usize, ChunkHead)| {
            let head = if is_closed(&head) {
                head
            } else {
                source.head_at(position)?
            };
            (is_closed(&head) || head.flags & CHUNK_COPIED == 0).then_some((position, head))
        };
        self.of_kind(chunk_kind::CALLS).filter_map(now)
    }
}

fn is_closed(head: &ChunkHead) -> bool {
    head.flags & CHUNK_CLOSED != 0
}

/// What a thread buffer held.
struct BufferCopy {
    buffer: ChunkHead,
    position: usize,
    note: BufferNote,
    records: Vec<u8>,
}

impl BufferCopy {
    /// `None` if the buffer is empty, or was emptied meanwhile: then it was flushed.
    fn take(source: &Source, buffer: ChunkHead, position: usize) -> Option<Self> {
        let body = source.buffer_body(&buffer, position);
        let (note, live) = buffer_content(body)?;
        let mut end = 0;
        while let Some((_, record)) = record_at(live, end) {
            end += record.len();
        }
        let records = live.get(..end)?.to_vec();
        // All of that is read before the note is read again.
        fence(Ordering::SeqCst);
        let (after, _) = buffer_content(body)?;
        (after == note).then_some(Self {
            buffer,
            position,
            note,
            records,
        })
    }
}

/// Where the records of a thread end: in the chunk of that sequence, at that offset.
type ThreadEnd = (u32, usize);

impl Trace {
    /// Reads a raw trace. With `is_recorded`, a process may be about to write what is missing.
    pub(crate) fn read_raw(&mut self, is_recorded: bool) -> io::Result<()> {
        let mut chunks = Chunks {
            found: Vec::new(),
            end: self.growth.scanned,
            gap: None,
            damage: Vec::new(),
            patience: if is_recorded { PATIENCE } else { 0 },
            table: None,
        };
        // Without the signature table, no record can be read.
        loop {
            chunks.search(&mut self.source)?;
            let mut tables = chunks.of_kind(chunk_kind::SIGNATURES);
            let table = tables.find_map(|(position, _)| {
                let head = self.source.head_at(position)?;
                is_closed(&head).then_some((position, head))
            });
            drop(tables);
            if let Some((position, head)) = table {
                self.add_chunk(head, position);
                chunks.table = Some(position);
            }
            if chunks.table.is_some() || !chunks.pause() {
                break;
            }
        }
        let known = self.known_calls(&chunks);
        let moment = self.last_entered_in(&chunks);
        chunks.search(&mut self.source)?;
        let buffers = chunks.of_kind(chunk_kind::THREAD_BUFFER);
        let buffers = buffers.filter_map(|(at, head)| BufferCopy::take(&self.source, head, at));
        let buffers: Vec<BufferCopy> = buffers.collect();
        chunks.search(&mut self.source)?;
        self.add_found(chunks, buffers, &known, moment);
        Ok(())
    }

    /// For each thread, one more than the highest sequence of a closed chunk.
    fn known_calls(&self, chunks: &Chunks) -> HashMap<u32, u32> {
        let mut known: HashMap<u32, u32> = HashMap::new();
        for (_, head) in chunks.calls(&self.source) {
            if is_closed(&head) {
                let end = known.entry(head.thread).or_default();
                *end = head.sequence.saturating_add(1).max(*end);
            }
        }
        known
    }

    /// The ticks at which the last call was entered that is in one of these chunks or in a buffer.
    fn last_entered_in(&self, chunks: &Chunks) -> u64 {
        let buffers = chunks.of_kind(chunk_kind::THREAD_BUFFER);
        let in_buffers = buffers.filter_map(|(position, head)| {
            let copy = BufferCopy::take(&self.source, head, position)?;
            self.last_enter(&copy.records)
        });
        let mut by_thread: HashMap<u32, Vec<(u32, Range<usize>)>> = HashMap::new();
        for (position, head) in chunks.calls(&self.source) {
            let (body, _) = self.source.body_at(&head, position);
            let of_thread = by_thread.entry(head.thread).or_default();
            of_thread.push((head.sequence, body));
        }
        let in_chunks = by_thread.into_values().filter_map(|mut chunks| {
            chunks.sort_by_key(|&(sequence, _)| sequence);
            let mut from_last = chunks.into_iter().rev();
            from_last.find_map(|(_, body)| self.last_enter(self.source.bytes(body)))
        });
        in_buffers.chain(in_chunks).max().unwrap_or(0)
    }

    /// Where the first call of a body begins that was entered after a moment, and true; else where
    /// the records end.
    fn end_at(&self, body: &[u8], moment: u64) -> (usize, bool) {
        let mut end = 0;
        while let Some((head, record)) = record_at(body, end) {
            if self
                .entered(head, record)
                .is_some_and(|ticks| ticks > moment)
            {
                return (end, true);
            }
            end += record.len();
        }
        (end, false)
    }

    /// The ticks of a record that enters a call.
    fn entered(&self, head: RecordHead, record: &[u8]) -> Option<u64> {
        if !record_kind::is_enter(head.kind) {
            return None;
        }
        let function = self.signatures.function(head.function)?;
        let (start, content) = (
            self.source.head.start_ticks,
            record.get(RECORD_HEAD_LENGTH..)?,
        );
        let enter = Enter::read(Some(function), start, head, content)?;
        Some(enter.head.ticks)
    }

    fn last_enter(&self, body: &[u8]) -> Option<u64> {
        let (mut last, mut end) = (None, 0);
        while let Some((head, record)) = record_at(body, end) {
            last = self.entered(head, record).or(last);
            end += record.len();
        }
        last
    }

    /// Takes in what was found, up to the calls that were entered at that moment.
    fn add_found(
        &mut self,
        chunks: Chunks,
        mut buffers: Vec<BufferCopy>,
        known: &HashMap<u32, u32>,
        moment: u64,
    ) {
        let of_calls: Vec<(usize, ChunkHead)> = chunks.calls(&self.source).collect();
        // A closed copy counts, even if its buffer was not emptied yet. A buffer that was left
        // without records gives its sequence to the next.
        buffers.sort_by_key(|copy| {
            let place = (copy.buffer.thread, copy.note.sequence);
            (place, std::cmp::Reverse(copy.records.len()))
        });
        buffers.dedup_by_key(|copy| (copy.buffer.thread, copy.note.sequence));
        let flushed: HashMap<(u32, u32), usize> = of_calls
            .iter()
            .map(|&(position, head)| ((head.thread, head.sequence), position))
            .collect();
        buffers.retain(|copy| !flushed.contains_key(&(copy.buffer.thread, copy.note.sequence)));
        let ends = self.ends(&of_calls, &buffers, known, moment);
        // What is behind the end of its thread does not count.
        let end_in = |thread: u32, sequence: u32| match ends.get(&thread) {
            Some(&(last, _)) if last < sequence => Some(0),
            Some(&(last, offset)) if last == sequence => Some(offset),
            _ => None,
        };
        let is_behind = |thread: u32, sequence: u32| {
            ends.get(&thread).is_some_and(|&(last, _)| last < sequence)
        };
        let calls: HashMap<usize, ChunkHead> = of_calls.into_iter().collect();
        for (position, head) in chunks.found {
            let head = match head.kind {
                _ if chunks.table == Some(position) => None,
                chunk_kind::THREAD_BUFFER => None,
                chunk_kind::CALLS => calls.get(&position).copied(),
                _ if is_closed(&head) => Some(head),
                _ => self.source.head_at(position),
            };
            let Some(head) = head else { continue };
            if head.kind != chunk_kind::CALLS {
                self.add_chunk(head, position);
            } else if !is_behind(head.thread, head.sequence) {
                let open = (!is_closed(&head)).then(|| {
                    let (body, _) = self.source.body_at(&head, position);
                    self.end_at(self.source.bytes(body), moment)
                });
                self.add_chunk(head, position);
                let end = open.map(|(end, _)| end);
                self.shorten_last(position, end.or_else(|| end_in(head.thread, head.sequence)));
            }
        }
        for mut copy in buffers {
            let (thread, sequence) = (copy.buffer.thread, copy.note.sequence);
            if !is_behind(thread, sequence) {
                let end = end_in(thread, sequence).unwrap_or(copy.records.len());
                copy.records.truncate(end);
                self.add_buffer(&copy.buffer, copy.position, copy.note, copy.records);
            }
        }
        self.damage.extend(chunks.damage);
        self.damage.sort_by_key(|damage| damage.position);
        self.growth.scanned = chunks.end;
        self.growth.last_entered = moment;
        self.moment = (!ends.is_empty()).then_some(moment);
    }

    /// For each thread with calls that were entered later, where those begin.
    fn ends(
        &self,
        of_calls: &[(usize, ChunkHead)],
        buffers: &[BufferCopy],
        known: &HashMap<u32, u32>,
        moment: u64,
    ) -> HashMap<u32, ThreadEnd> {
        let mut ends: HashMap<u32, ThreadEnd> = HashMap::new();
        let mut look = |thread: u32, sequence: u32, body: &[u8]| {
            if let (offset, true) = self.end_at(body, moment) {
                let end = ends.entry(thread).or_insert((sequence, offset));
                *end = (sequence, offset).min(*end);
            }
        };
        for &(position, head) in of_calls {
            let is_known = known
                .get(&head.thread)
                .is_some_and(|&end| head.sequence < end);
            if !is_known {
                let (body, _) = self.source.body_at(&head, position);
                look(head.thread, head.sequence, self.source.bytes(body));
            }
        }
        for copy in buffers {
            look(copy.buffer.thread, copy.note.sequence, &copy.records);
        }
        ends
    }

    /// Ends the body of the chunk that was just added, if it is the one at that position.
    fn shorten_last(&mut self, position: usize, end: Option<usize>) {
        let Some(end) = end else { return };
        let last = self.chunks.last_mut();
        if let Some(chunk) = last.filter(|chunk| chunk.position == position as u64)
            && let Body::InFile(range) = &mut chunk.body
        {
            range.end = range.end.min(range.start + end);
        }
    }
}
