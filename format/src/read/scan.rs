//! Finding the chunks of a file, taking in what they hold, and judging whether the file is whole.

use crate::codec::{self, Decode};
use crate::layout::{
    CHUNK_CLOSED, CHUNK_COMPRESSED, CHUNK_COPIED, CHUNK_HEAD_LENGTH, CallCount, ChunkHead,
    IndexEntry, RECORD_HEAD_LENGTH, ResolvedAddress, Symbol, chunk_kind,
};
use crate::read::compress::{RAW_LIMIT, decompress, decompress_start};
use crate::read::growth::ThreadBuffer;
use crate::read::index::check_packed;
use crate::read::record::sound_end;
use crate::read::signature::Signatures;
use crate::read::source::chunk_name;
use crate::read::trace::{Body, Chunk, Trace};

/// When a chunk can be read.
enum Readiness {
    Now,
    /// The recorder is still writing it, or one that comes before it.
    Later,
    /// It was being written when the recording ended, so its content may be anything.
    Never,
}

/// What is wrong where no sound head is.
pub(crate) const NO_CHUNK: &str = "no chunk begins here as it should";

/// More threads than any trace has.
const THREAD_LIMIT: u32 = 1 << 20;

impl Trace {
    /// Reads the chunk heads of a packed or a growing trace from where the last scan ended.
    pub(crate) fn scan(&mut self) {
        let step = self.source.chunk_alignment();
        let is_growing = self.source.is_growing();
        loop {
            let position = self.growth.scanned;
            let head_end = position.saturating_add(CHUNK_HEAD_LENGTH);
            if head_end > self.source.length {
                return;
            }
            let Some(head) = self.source.head_at(position) else {
                // In a growing trace: claimed, or being begun.
                if is_growing {
                    return;
                }
                self.add_damage(position as u64, NO_CHUNK);
                self.growth.scanned = self.source.next_magic(position + step);
                continue;
            };
            let length = usize::try_from(head.length).unwrap_or(usize::MAX);
            let end = position.saturating_add(length);
            // The length may have been taken while the file was being extended.
            if is_growing && end > self.source.length {
                return;
            }
            self.growth.scanned = end;
            self.add_chunk(head, position);
        }
    }

    /// Makes the checks that need the whole file.
    pub(crate) fn finish(&mut self) {
        let (scanned, length) = (self.growth.scanned, self.source.length);
        if scanned > length {
            let missing = scanned - length;
            let what = format!("the file is cut, at least {missing} bytes are missing");
            self.add_damage(length as u64, what);
        } else if !self.source.is_zero(scanned..length)
            || self.source.is_packed() && scanned < length
        {
            self.add_damage(scanned as u64, "the file ends within a chunk's head");
        }
        if self.signatures.functions().next().is_none() {
            let position = u64::from(self.head().head_length);
            self.add_damage(position, "the signature table is missing");
        }
        if self.source.is_packed() {
            self.damage.extend(check_packed(self));
            self.check_counts();
        } else {
            self.check_sequences();
        }
        self.check_numbers();
    }

    /// Whether calls were lost or erased, whose numbers in their threads are then missing.
    pub(crate) fn may_lack_numbers(&self) -> bool {
        self.meta_value("repair.0").is_some() || self.has_erased()
    }

    /// Looks for chunks whose first call has a number that the chunks before cannot hold.
    fn check_numbers(&mut self) {
        if self.may_lack_numbers() {
            return;
        }
        let mut wrong = Vec::new();
        for thread in 0..self.threads.len() {
            let mut most = 0;
            for chunk in self.thread_chunks(thread as u32) {
                let Chunk { head, position, .. } = self.chunk(*chunk);
                if head.first > most {
                    let first = head.first;
                    let what = format!(
                        "a chunk begins with call {first} of thread {thread}, the chunks before it \
                         have at most {most} calls"
                    );
                    wrong.push((*position, what));
                }
                let bytes = match head.flags & CHUNK_COMPRESSED {
                    0 => head.length,
                    _ => RAW_LIMIT as u64,
                };
                most = most.saturating_add(bytes / RECORD_HEAD_LENGTH as u64);
            }
        }
        for (position, what) in wrong {
            self.add_damage(position, what);
        }
    }

    /// Looks for threads with missing chunks. In a packed trace that is no damage: a repair may
    /// have left some out, and recorded it; nor where chunks were erased.
    fn check_sequences(&mut self) {
        if self.has_erased() {
            return;
        }
        for thread in 0..self.threads.len() {
            let heads = self.thread_chunks(thread as u32).iter().map(|&chunk| {
                let chunk = self.chunk(chunk);
                (chunk.head.sequence, chunk.position)
            });
            let gap = heads.zip(0..).find(|(head, expected)| head.0 != *expected);
            if let Some(((_, position), _)) = gap {
                let what = format!("calls of thread {thread} before these are missing");
                self.add_damage(position, what);
            }
        }
    }

    fn readiness(&self, head: &ChunkHead) -> Readiness {
        let is_growing = self.source.is_growing();
        let is_closed = head.flags & CHUNK_CLOSED != 0;
        let is_copy = head.flags & CHUNK_COPIED != 0;
        // Records and blobs count as far as they are written; tables only when complete.
        let is_table = !matches!(
            head.kind,
            chunk_kind::CALLS | chunk_kind::BLOB | chunk_kind::STACKS | chunk_kind::MARKERS
        );
        let is_known = (chunk_kind::META..=chunk_kind::INDEX).contains(&head.kind);
        // Until a copy is closed, the buffer has its records.
        match is_closed {
            false if is_growing && (is_copy || is_table) => Readiness::Later,
            false if is_copy || is_table && is_known => Readiness::Never,
            true if is_growing && is_copy && self.is_early(head) => Readiness::Later,
            _ => Readiness::Now,
        }
    }

    pub(crate) fn add_chunk(&mut self, head: ChunkHead, position: usize) {
        let is_packed = self.source.is_packed();
        if is_packed && head.flags & CHUNK_CLOSED == 0 {
            let what = "a chunk of a packed trace is not closed";
            return self.add_damage(position as u64, what);
        }
        if !is_packed {
            if head.kind == chunk_kind::THREAD_BUFFER {
                return self.growth.buffers.push(ThreadBuffer {
                    head,
                    position,
                    chunk: None,
                    is_complete: false,
                });
            }
            match self.readiness(&head) {
                Readiness::Now => {}
                Readiness::Later => return self.growth.pending.push(position),
                Readiness::Never => return,
            }
        }
        let (range, mut doubt) = self.source.body_at(&head, position);
        if is_packed {
            self.check_padding(&head, position, range.end);
        }
        let is_compressed = head.flags & CHUNK_COMPRESSED != 0 && head.kind != chunk_kind::BLOB;
        let mut body = Body::InFile(range.clone());
        if is_compressed && head.kind == chunk_kind::CALLS && doubt.is_none() {
            body = Body::Compressed(range);
        } else if is_compressed {
            let stored = self.source.bytes(range);
            body = Body::Owned(decompress(stored).unwrap_or_else(|| {
                let name = chunk_name(head.kind);
                doubt.get_or_insert_with(|| format!("{name} cannot be decompressed"));
                decompress_start(stored)
            }));
        }
        if let Some(what) = doubt {
            self.add_damage(position as u64, what);
            match &mut body {
                _ if head.kind != chunk_kind::CALLS => return,
                Body::InFile(range) => {
                    let bytes = self.source.bytes(range.clone());
                    range.end = range.start + sound_end(bytes, &self.signatures);
                }
                Body::Owned(bytes) => bytes.truncate(sound_end(bytes, &self.signatures)),
                Body::Compressed(_) | Body::Unread => {}
            }
        }
        self.push_chunk(Chunk::new(head, position as u64, body));
    }

    /// Checks that fewer than 8 zeros pad a chunk of a packed trace behind its body.
    fn check_padding(&mut self, head: &ChunkHead, position: usize, body_end: usize) {
        let length = usize::try_from(head.length).unwrap_or(usize::MAX);
        let padding = body_end..position.saturating_add(length).min(self.source.length);
        if padding.len() >= 8 || !self.source.is_zero(padding) {
            self.add_damage(
                body_end as u64,
                "the padding of a chunk is not as it should be",
            );
        }
    }

    /// Adds a chunk of which only the index has been read.
    pub(crate) fn add_unread(&mut self, head: ChunkHead, position: u64) -> Result<(), String> {
        self.chunks.push(Chunk::new(head, position, Body::Unread));
        self.take_content(self.chunks.len() - 1)
    }

    /// Adds a chunk and takes in its content; its number, unless that content is unusable.
    pub(crate) fn push_chunk(&mut self, chunk: Chunk) -> Option<usize> {
        let (number, position) = (self.chunks.len(), chunk.position);
        self.chunks.push(chunk);
        match self.take_content(number) {
            Ok(()) => Some(number),
            Err(what) => {
                self.add_damage(position, what);
                None
            }
        }
    }

    fn take_content(&mut self, number: usize) -> Result<(), String> {
        let Chunk { head, position, .. } = *self.chunk(number);
        match head.kind {
            chunk_kind::META => {
                let entries: Vec<(String, String)> = self.decode_body(number)?;
                self.meta.extend(entries);
            }
            chunk_kind::SIGNATURES => {
                let text = std::str::from_utf8(self.body(number))
                    .map_err(|_| "the signature table is not text")?;
                self.signatures = Signatures::parse(text)?;
            }
            chunk_kind::CALLS => return self.take_calls(number, &head),
            chunk_kind::BLOB => {
                let is_packed = self.source.is_packed();
                let name = if is_packed { head.first } else { position };
                self.blobs.insert(name, number);
            }
            chunk_kind::MAPS => {
                let mappings = self.decode_body(number)?;
                self.mappings.extend::<Vec<_>>(mappings);
            }
            chunk_kind::SYMBOLS => {
                let symbols: Vec<Symbol> = self.decode_body(number)?;
                let symbols = symbols.into_iter();
                self.symbols.extend(symbols.map(|s| (s.address, s.text)));
            }
            chunk_kind::STACKS => self.stacks.add_chunk(number),
            chunk_kind::SOURCES => {
                let sources: Vec<ResolvedAddress> = self.decode_body(number)?;
                self.name_addresses(sources);
            }
            chunk_kind::CALL_COUNTS => {
                let counts: Vec<CallCount> = self.decode_body(number)?;
                self.counts.extend(counts);
            }
            chunk_kind::INDEX => {
                let entries: Vec<IndexEntry> = self.decode_body(number)?;
                for entry in &entries {
                    self.name_blob(entry);
                }
                self.index.extend(entries);
            }
            _ => {}
        }
        Ok(())
    }

    /// Puts a chunk of calls in its place among those of its thread.
    fn take_calls(&mut self, number: usize, head: &ChunkHead) -> Result<(), String> {
        self.growth.taken += 1;
        if head.thread > THREAD_LIMIT {
            return Err(format!("a chunk names thread {}", head.thread));
        }
        let chunks = self.thread_chunks(head.thread);
        let sequence_of = |&chunk: &usize| self.chunk(chunk).head.sequence;
        let at = chunks.partition_point(|chunk| sequence_of(chunk) < head.sequence);
        let next = chunks.get(at).copied();
        let is_same = next.as_ref().map(sequence_of) == Some(head.sequence);
        if is_same {
            // The content that a thread buffer had until now, which a cursor may be reading.
            let mut buffers = self.growth.buffers.iter_mut();
            if let Some(replaced) = next
                && let Some(buffer) = buffers.find(|buffer| buffer.chunk == next)
            {
                buffer.chunk = None;
                self.chunks.swap_remove(replaced);
                return Ok(());
            }
        }
        // A cursor of a growing trace may have passed this place.
        if is_same || next.is_some() && self.source.is_growing() {
            return Err(format!("calls of thread {} are out of order", head.thread));
        }
        let thread = head.thread as usize;
        if self.threads.len() <= thread {
            self.threads.resize(thread + 1, Vec::new());
        }
        if let Some(chunks) = self.threads.get_mut(thread) {
            chunks.insert(at, number);
        }
        Ok(())
    }

    /// Enters the names that the index has for a blob, which precedes the index in the file.
    fn name_blob(&mut self, entry: &IndexEntry) {
        let chunks = &self.chunks;
        let at = chunks.partition_point(|chunk| chunk.position < entry.position);
        let is_blob = chunks.get(at).is_some_and(|chunk| {
            chunk.position == entry.position && chunk.head.kind == chunk_kind::BLOB
        });
        if is_blob {
            let names = entry.names.iter().map(|&name| (name, at));
            self.blobs.extend(names);
        }
    }

    fn decode_body<T: Decode<()>>(&self, number: usize) -> Result<T, String> {
        codec::decode(self.body(number))
            .map(|(value, _)| value)
            .ok_or_else(|| {
                format!(
                    "{} cannot be read",
                    chunk_name(self.chunk(number).head.kind)
                )
            })
    }
}
