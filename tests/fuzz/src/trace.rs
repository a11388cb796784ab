//! Changes of a trace, whose checksums and index are valid afterwards.

use std::borrow::Cow;
use std::collections::BTreeMap;

use cutape_format::codec;
use cutape_format::layout::{
    BufferNote, CHUNK_ALIGNMENT, CHUNK_CLOSED, CHUNK_COMPRESSED, CHUNK_HEAD_LENGTH, CHUNK_MAGIC,
    ChunkHead, FILE_HEAD_LENGTH, FILE_PACKED, FileHead, RECORD_HEAD_LENGTH, chunk_kind,
    record_kind,
};
use cutape_random::dice::Dice;

use crate::bytes::mutated;
use crate::records::{change_records, records};

/// A chunk with its body as it was before it was compressed.
#[derive(Clone)]
pub(crate) struct Chunk {
    pub(crate) head: ChunkHead,
    pub(crate) body: Vec<u8>,
    /// The names that the index has for it.
    names: Vec<u64>,
}

/// The index of a packed trace, see SPEC.md: position, kind, thread, sequence, first, ticks and
/// names of each chunk.
type Index = Vec<(u64, u16, u32, u32, u64, u64, Vec<u64>)>;

/// A trace as its head and its chunks.
#[derive(Clone)]
pub struct Parts {
    pub(crate) head: FileHead,
    pub(crate) chunks: Vec<Chunk>,
}

impl Parts {
    /// The closed chunks, up to one that cannot be read; `None` if that is none, or no trace.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        let (head, _) = codec::decode::<FileHead>(bytes)?;
        let mut chunks = chunks(bytes);
        let indices = chunks
            .iter()
            .filter(|(_, chunk)| chunk.head.kind == chunk_kind::INDEX);
        let indices = indices.filter_map(|(_, chunk)| Some(codec::decode::<Index>(&chunk.body)?.0));
        for (position, .., names) in indices.collect::<Vec<_>>().into_iter().flatten() {
            for (at, chunk) in &mut chunks {
                if *at as u64 == position {
                    chunk.names.clone_from(&names);
                }
            }
        }
        let chunks: Vec<Chunk> = chunks.into_iter().map(|(_, chunk)| chunk).collect();
        (!chunks.is_empty()).then_some(Self { head, chunks })
    }

    /// The trace with a few changes, which the numbers decide.
    pub fn mutated(&self, dice: &mut Dice) -> Vec<u8> {
        let Self {
            mut head,
            mut chunks,
        } = self.clone();
        let mut keeps_index = true;
        for _ in 0..=dice.below(3) {
            let which = place(&chunks, dice);
            match dice.below(16) {
                0 => change_file_head(&mut head, dice),
                1 => change_head(&mut chunks[which].head, dice),
                2 if chunks.len() > 1 => drop(chunks.remove(which)),
                3 => chunks.insert(which, chunks[which].clone()),
                4 => {
                    let other = dice.below(chunks.len());
                    chunks.swap(which, other);
                }
                5 => {
                    let other = dice.below(chunks.len());
                    chunks[which].body = chunks[other].body.clone();
                }
                6..10 if has_records(&chunks[which]) => {
                    change_records(&mut chunks[which].body, dice);
                }
                _ => {
                    keeps_index &= chunks[which].head.kind != chunk_kind::INDEX;
                    chunks[which].body = mutated(&chunks[which].body, dice);
                }
            }
        }
        if !dice.one_in(8) {
            renumber(&mut chunks);
        }
        let mut whole = written(head, &chunks, keeps_index);
        if dice.one_in(16) {
            whole.truncate(dice.below(whole.len()));
        }
        whole
    }

    /// The trace without a change.
    pub fn written(&self) -> Vec<u8> {
        written(self.head, &self.chunks, true)
    }
}

/// A chunk to change: one of records more often than not.
fn place(chunks: &[Chunk], dice: &mut Dice) -> usize {
    let which = dice.below(chunks.len());
    match dice.one_in(4) {
        true => which,
        false => (which..chunks.len())
            .chain(0..which)
            .find(|&at| has_records(&chunks[at]))
            .unwrap_or(which),
    }
}

pub(crate) fn has_records(chunk: &Chunk) -> bool {
    matches!(
        chunk.head.kind,
        chunk_kind::CALLS | chunk_kind::THREAD_BUFFER | chunk_kind::STACKS | chunk_kind::MARKERS
    )
}

/// Gives each chunk of calls the number of its first call, after the chunks of its thread before it.
pub(crate) fn renumber(chunks: &mut [Chunk]) {
    let mut counts = BTreeMap::new();
    for Chunk { head, body, .. } in chunks {
        let entered = records(body).filter(|(_, head)| record_kind::is_enter(head.kind));
        let (first, entered) = (
            counts.entry(head.thread).or_insert(0),
            entered.count() as u64,
        );
        match head.kind {
            chunk_kind::CALLS => head.first = *first,
            chunk_kind::THREAD_BUFFER => {
                let note = body.get(RECORD_HEAD_LENGTH..).and_then(codec::decode);
                if let Some((note, _)) = note {
                    let note = BufferNote {
                        first: *first,
                        ..note
                    };
                    codec::encode(note, &mut body[RECORD_HEAD_LENGTH..]);
                }
            }
            _ => continue,
        }
        *first += entered;
    }
}

/// The chunks with their positions.
fn chunks(bytes: &[u8]) -> Vec<(usize, Chunk)> {
    let mut chunks = Vec::new();
    let mut at = FILE_HEAD_LENGTH;
    while let Some(rest) = bytes.get(at..)
        && let Some((head, _)) = codec::decode::<ChunkHead>(rest)
        && head.magic == CHUNK_MAGIC
        && let Ok(length) = usize::try_from(head.length)
        && length >= CHUNK_HEAD_LENGTH
    {
        let used = match head.flags & CHUNK_CLOSED {
            0 => length - CHUNK_HEAD_LENGTH,
            _ => head.used as usize,
        };
        let end = (CHUNK_HEAD_LENGTH + used).min(rest.len());
        let stored = &rest[CHUNK_HEAD_LENGTH..end];
        let body = match head.flags & CHUNK_COMPRESSED {
            0 => Some(stored.to_vec()),
            _ => decompressed(stored),
        };
        let names = Vec::new();
        chunks.extend(body.map(|body| (at, Chunk { head, body, names })));
        at += length;
    }
    chunks
}

/// See SPEC.md: the length, then a frame.
fn decompressed(stored: &[u8]) -> Option<Vec<u8>> {
    let (length, frame) = stored.split_first_chunk()?;
    let length = u64::from_le_bytes(*length).min(1 << 26);
    zstd::bulk::decompress(frame, length as usize).ok()
}

/// A file with these chunks. With `makes_index`, an index of them takes the place of theirs.
fn written(mut head: FileHead, chunks: &[Chunk], makes_index: bool) -> Vec<u8> {
    let is_packed = head.flags & FILE_PACKED != 0;
    let alignment = if is_packed { 8 } else { CHUNK_ALIGNMENT };
    let mut whole = vec![0; FILE_HEAD_LENGTH];
    let mut index = Index::new();
    for chunk in chunks {
        let position = whole.len() as u64;
        let mut body = Cow::Borrowed(&chunk.body);
        let kind = chunk.head.kind;
        if kind == chunk_kind::INDEX {
            head.index = position;
            if makes_index {
                body = Cow::Owned(codec::encode_to_vec(&index));
            }
        } else {
            let ChunkHead {
                thread,
                sequence,
                first,
                ticks,
                ..
            } = chunk.head;
            let names = chunk.names.clone();
            index.push((position, kind, thread, sequence, first, ticks, names));
        }
        let raw = body.len() as u64;
        if chunk.head.flags & CHUNK_COMPRESSED != 0
            && let Ok(frame) = zstd::bulk::compress(&body, 1)
        {
            body = Cow::Owned([&raw.to_le_bytes()[..], &frame].concat());
        }
        let is_closed = chunk.head.flags & CHUNK_CLOSED != 0;
        let length = (CHUNK_HEAD_LENGTH + body.len()).next_multiple_of(alignment as usize);
        let (used, body_checksum) = match is_closed {
            true => (body.len() as u64, cutape_format::checksum(&body)),
            false => (chunk.head.used, 0),
        };
        let new = ChunkHead {
            length: length as u64,
            used,
            body_checksum,
            ..chunk.head
        };
        whole.extend(new.encode());
        whole.extend_from_slice(&body);
        whole.resize(whole.len().next_multiple_of(alignment as usize), 0);
    }
    let encoded = head.encode();
    whole[..encoded.len()].copy_from_slice(&encoded);
    whole
}

fn change_file_head(head: &mut FileHead, dice: &mut Dice) {
    let number = dice.next_number();
    match dice.below(7) {
        0 => head.minor = number as u32 % 32,
        1 => head.flags ^= 1 << (number % 4),
        2 => head.process = number as u32,
        3 => head.clock = number as u32 % 4,
        4 => head.start_ticks = number,
        5 => head.ticks_per_second = number >> (number % 64),
        _ => head.start_unix = number,
    }
}

fn change_head(head: &mut ChunkHead, dice: &mut Dice) {
    let number = dice.next_number();
    match dice.below(7) {
        0 => head.kind = number as u16 % 16,
        1 => head.flags ^= 1 << (number % 4),
        // Readers have tables by thread: large ones take long.
        2 if dice.one_in(64) => head.thread = number as u32 >> (number % 32),
        2 => head.thread = number as u32 % 8,
        3 => head.sequence = number as u32 >> (number % 32),
        4 => head.first = number >> (number % 64),
        5 => head.ticks = number >> (number % 64),
        _ => head.nanoseconds = number,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use cutape_format::Trace;
    use cutape_tests::root;

    use super::*;

    #[test]
    fn what_is_not_changed_is_still_sound() {
        for name in ["v1.11.cutape", "v1.11-packed.cutape"] {
            let bytes = fs::read(root().join("format/tests/golden").join(name)).unwrap();
            let path =
                std::env::temp_dir().join(format!("cutape-fuzz-{}-{name}", std::process::id()));
            fs::write(&path, Parts::of(&bytes).unwrap().written()).unwrap();
            let trace = Trace::open(&path).unwrap();
            assert_eq!(trace.verify(), [], "{name}");
            assert!(trace.calls().count() > 10, "{name}");
            fs::remove_file(&path).unwrap();
        }
    }
}
