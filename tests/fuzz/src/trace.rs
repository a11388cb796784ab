//! Changes of a trace, whose checksums and index are valid afterwards.

use cutape_format::codec;
use cutape_format::layout::{
    CHUNK_ALIGNMENT, CHUNK_CLOSED, CHUNK_COMPRESSED, CHUNK_HEAD_LENGTH, CHUNK_MAGIC, ChunkHead,
    FILE_HEAD_LENGTH, FILE_PACKED, FileHead, chunk_kind,
};
use cutape_random::dice::Dice;

use crate::bytes::mutated;

/// A chunk with its body as it was before it was compressed.
#[derive(Clone)]
struct Chunk {
    head: ChunkHead,
    body: Vec<u8>,
}

/// An entry of the index of a packed trace, see SPEC.md: position, kind, thread, sequence, first,
/// ticks and names of a chunk.
type IndexEntry = (u64, u16, u32, u32, u64, u64, Vec<u64>);

/// The trace with a few changes, which the numbers decide. Without any change if it is not a trace.
pub fn mutated_trace(bytes: &[u8], dice: &mut Dice) -> Vec<u8> {
    let Some((mut head, _)) = codec::decode::<FileHead>(bytes) else {
        return bytes.to_vec();
    };
    let mut chunks = chunks(bytes);
    if chunks.is_empty() {
        return bytes.to_vec();
    }
    for _ in 0..=dice.below(3) {
        let which = dice.below(chunks.len());
        match dice.below(12) {
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
            _ => chunks[which].body = mutated(&chunks[which].body, dice),
        }
    }
    let mut whole = written(head, &chunks);
    if dice.one_in(16) {
        whole.truncate(dice.below(whole.len()));
    }
    whole
}

/// The closed chunks, up to one that cannot be read.
fn chunks(bytes: &[u8]) -> Vec<Chunk> {
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
            _ => stored
                .get(8..)
                .and_then(|frame| zstd::bulk::decompress(frame, 1 << 26).ok()),
        };
        chunks.extend(body.map(|body| Chunk { head, body }));
        at += length;
    }
    chunks
}

fn written(mut head: FileHead, chunks: &[Chunk]) -> Vec<u8> {
    let is_packed = head.flags & FILE_PACKED != 0;
    let alignment = if is_packed { 8 } else { CHUNK_ALIGNMENT };
    let mut whole = vec![0; FILE_HEAD_LENGTH];
    let mut positions = Vec::new();
    for chunk in chunks {
        let mut body = chunk.body.clone();
        if chunk.head.kind == chunk_kind::INDEX {
            head.index = whole.len() as u64;
            body = repositioned(&body, &positions).unwrap_or(body);
        }
        positions.push(whole.len() as u64);
        let raw = body.len() as u64;
        if chunk.head.flags & CHUNK_COMPRESSED != 0
            && let Ok(frame) = zstd::bulk::compress(&body, 1)
        {
            body = [&raw.to_le_bytes()[..], &frame].concat();
        }
        let is_closed = chunk.head.flags & CHUNK_CLOSED != 0;
        let length = (CHUNK_HEAD_LENGTH + body.len()).next_multiple_of(alignment as usize);
        let new = ChunkHead {
            length: length as u64,
            used: if is_closed {
                body.len() as u64
            } else {
                chunk.head.used
            },
            body_checksum: if is_closed {
                cutape_format::checksum(&body)
            } else {
                0
            },
            ..chunk.head
        };
        whole.extend(new.encode());
        whole.extend(&body);
        whole.resize(whole.len().next_multiple_of(alignment as usize), 0);
    }
    let encoded = head.encode();
    whole[..encoded.len()].copy_from_slice(&encoded);
    whole
}

/// The entries of an index with the positions of the chunks before it.
fn repositioned(body: &[u8], positions: &[u64]) -> Option<Vec<u8>> {
    let (mut entries, _) = codec::decode::<Vec<IndexEntry>>(body)?;
    for (entry, position) in entries.iter_mut().zip(positions) {
        entry.0 = *position;
    }
    Some(codec::encode_to_vec(entries))
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
        2 => head.thread = number as u32 >> (number % 32),
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
            let (head, _) = codec::decode::<FileHead>(&bytes).unwrap();
            let path =
                std::env::temp_dir().join(format!("cutape-fuzz-{}-{name}", std::process::id()));
            fs::write(&path, written(head, &chunks(&bytes))).unwrap();
            let trace = Trace::open(&path).unwrap();
            assert_eq!(trace.verify(), [], "{name}");
            assert!(trace.calls().count() > 10, "{name}");
            fs::remove_file(&path).unwrap();
        }
    }
}
