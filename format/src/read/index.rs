//! The index of a packed trace: opening by it, and checking that it agrees with the chunks.

use crate::layout::{
    CHUNK_CLOSED, ChunkHead, ChunkIdentity, FILE_HEAD_ENCODED, IndexEntry, MINOR, chunk_kind,
};
use crate::read::error::Damage;
use crate::read::source::Source;
use crate::read::trace::{Chunk, Trace};

const DISAGREES: &str = "the index does not agree with the chunks";

/// The head and the stored body of a chunk that so far only the index names. The checksum of a blob
/// is left to its reader.
pub(crate) fn indexed_body<'t>(
    source: &'t Source,
    chunk: &Chunk,
) -> Result<(ChunkHead, &'t [u8]), String> {
    let position = usize::try_from(chunk.position).unwrap_or(usize::MAX);
    let head = source
        .head_at(position)
        .ok_or("no chunk begins here as it should")?;
    let is_same = ChunkIdentity::of(&head) == ChunkIdentity::of(&chunk.head);
    if !is_same || head.flags & CHUNK_CLOSED == 0 {
        return Err(DISAGREES.into());
    }
    match source.body_at(&head, position) {
        (_, Some(doubt)) => Err(doubt),
        (range, None) => Ok((head, source.bytes(range))),
    }
}

/// Checks that a packed trace has exactly the chunks that its index names. Without other damage:
/// with it the index cannot agree, and says nothing new.
pub(crate) fn check_packed(trace: &Trace) -> Option<Damage> {
    let head = trace.head();
    let first_chunk = head.head_length as usize;
    if head.minor <= MINOR && !trace.source.is_zero(FILE_HEAD_ENCODED..first_chunk) {
        let what = "the rest of the file head is not zero";
        return Some(Damage::new(FILE_HEAD_ENCODED as u64, what));
    }
    let (index, others): (Vec<&Chunk>, Vec<&Chunk>) = trace
        .chunks
        .iter()
        .partition(|chunk| chunk.head.kind == chunk_kind::INDEX);
    let is_at_index = |chunk: &&Chunk| chunk.position == head.index;
    let found = others
        .iter()
        .map(|chunk| (chunk.position, ChunkIdentity::of(&chunk.head)));
    let named = trace
        .index
        .iter()
        .map(|entry| (entry.position, entry.identity));
    let agrees = index.first().is_some_and(is_at_index) && named.eq(found);
    (!agrees && trace.damage.is_empty()).then(|| Damage::new(head.index, DISAGREES))
}

impl Trace {
    /// Reads a packed trace's index and the short chunks that it names; `None` if they show
    /// anything but a sound trace.
    pub(crate) fn read_index(&mut self) -> Option<()> {
        let start = usize::try_from(self.head().index).ok()?;
        let first_chunk = self.growth.scanned;
        let is_inside = (first_chunk..=self.source.length).contains(&start);
        if !self.source.is_packed() || !self.damage.is_empty() || !is_inside {
            return None;
        }
        self.growth.scanned = start;
        self.scan();
        let mut chunks = self.chunks.drain(..);
        if self.growth.scanned != self.source.length
            || !self.damage.is_empty()
            || chunks.len() == 0
            || !chunks.all(|chunk| chunk.head.kind == chunk_kind::INDEX)
        {
            return None;
        }
        drop(chunks);
        self.blobs.clear();
        let entries = std::mem::take(&mut self.index);
        let mut behind = first_chunk;
        for entry in &entries {
            let position = usize::try_from(entry.position).ok()?;
            if !(behind..start).contains(&position) {
                return None;
            }
            behind = position + 1;
            self.add_indexed(entry, position)?;
        }
        self.index = entries;
        self.check_counts();
        let is_sound = self.damage.is_empty() && self.signatures.functions().next().is_some();
        is_sound.then_some(())
    }

    fn add_indexed(&mut self, entry: &IndexEntry, position: usize) -> Option<()> {
        if !matches!(entry.identity.kind, chunk_kind::CALLS | chunk_kind::BLOB) {
            let head = self.source.head_at(position)?;
            self.add_chunk(head, position);
            return (head.kind == entry.identity.kind).then_some(());
        }
        let chunk = self.chunks.len();
        let names = entry.names.iter().map(|&name| (name, chunk));
        self.blobs.extend(names);
        self.add_unread(entry.identity.head(), entry.position).ok()
    }

    /// Forgets the call counts if they are not those of the chunks of calls.
    pub(crate) fn check_counts(&mut self) {
        let counted = self.counts.iter().map(|entry| entry.position);
        let positions = self
            .calls_chunks()
            .map(|number| self.chunk(number).position);
        if !counted.eq(positions) {
            self.counts.clear();
        }
    }
}
