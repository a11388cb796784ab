//! Traces cut to what inputs are to have: small ones are read fast.

use std::collections::BTreeMap;
use std::ops::Range;

use cutape_format::codec::{self, Decode, Encode};
use cutape_format::layout::{
    CHUNK_COMPRESSED, FILE_PACKED, RECORD_HEAD_LENGTH, RecordHead, chunk_kind, record_kind,
};
use cutape_format::{Mapping, ResolvedAddress, Symbol};

use crate::records::{calls, records};
use crate::trace::{Chunk, Parts, has_records, renumber};

/// Bytes of a blob that stays. Small images are in records.
const LARGEST_BLOB: usize = 17 << 10;
/// Items of a table that stay.
const ITEMS: usize = 4;
/// Calls of a function that stay, of those with the same kinds of records.
const ALIKE: u32 = 2;

impl Parts {
    /// The trace uncompressed, with a few of its calls of each shape, and what these need of the
    /// signature table.
    pub(crate) fn cut(mut self) -> Self {
        // Chunks of unpacked traces take whole pages, so that these are large without blobs.
        let most = match self.head.flags & FILE_PACKED {
            0 => 0,
            _ => LARGEST_BLOB,
        };
        self.chunks
            .retain(|chunk| chunk.head.kind != chunk_kind::BLOB || chunk.body.len() <= most);
        let mut functions = BTreeMap::new();
        for chunk in &mut self.chunks {
            chunk.head.flags &= !CHUNK_COMPRESSED;
            if has_records(chunk) {
                let parts = match chunk.head.kind {
                    chunk_kind::CALLS | chunk_kind::THREAD_BUFFER => calls(&chunk.body),
                    _ => records(&chunk.body).map(|(range, _)| range).collect(),
                };
                cut_records(&mut chunk.body, parts, &mut functions);
            }
        }
        renumber(&mut self.chunks);
        for Chunk { head, body, .. } in &mut self.chunks {
            match head.kind {
                chunk_kind::SIGNATURES => cut_signatures(body, &functions),
                chunk_kind::META => cut_meta(body),
                chunk_kind::MAPS => cut_list::<Mapping>(body),
                chunk_kind::SYMBOLS => cut_list::<Symbol>(body),
                chunk_kind::SOURCES => cut_list::<ResolvedAddress>(body),
                _ => {}
            }
        }
        self
    }
}

/// Keeps a few calls, or records, of each shape, with new numbers of functions.
fn cut_records(body: &mut Vec<u8>, parts: Vec<Range<usize>>, functions: &mut BTreeMap<u16, u16>) {
    let mut shapes = BTreeMap::<Vec<u64>, u32>::new();
    let mut kept = Vec::new();
    for range in parts {
        let call = &mut body[range];
        let records: Vec<RecordHead> = records(call).map(|(_, head)| head).collect();
        let shape = records.iter().map(|head| match head.kind {
            record_kind::LEAVE_SHORT | record_kind::LEAVE_VALUE => u64::from(head.kind),
            _ => u64::from(head.kind) << 16 | u64::from(head.function),
        });
        let alike = shapes.entry(shape.collect()).or_default();
        *alike += 1;
        if *alike > ALIKE {
            continue;
        }
        // It begins with the ENTER, unless there is none.
        let enter = records.first();
        if let Some(&head) = enter.filter(|head| record_kind::is_enter(head.kind)) {
            let next = functions.len() as u16;
            let function = *functions.entry(head.function).or_insert(next);
            let word = RecordHead { function, ..head }.word();
            call[..RECORD_HEAD_LENGTH].copy_from_slice(&word.to_le_bytes());
        }
        kept.extend_from_slice(call);
    }
    *body = kept;
}

/// Keeps the functions, by their new numbers, and the structs and enums that they name. Readers
/// have tables by number, so that small ones are fast.
fn cut_signatures(body: &mut Vec<u8>, functions: &BTreeMap<u16, u16>) {
    let text = String::from_utf8_lossy(body).into_owned();
    let mut kept = Vec::new();
    let mut types = Vec::new();
    let mut lines = text.lines();
    let first = lines.next().unwrap_or_default();
    for line in lines {
        let mut words = line.splitn(3, '\t');
        let (Some(what), Some(name), Some(rest)) = (words.next(), words.next(), words.next())
        else {
            continue;
        };
        if what != "function" {
            types.push((name, line));
        } else if let Some(number) = name.parse().ok().and_then(|id| functions.get(&id)) {
            kept.push(format!("function\t{number}\t{rest}"));
        }
    }
    // A struct may name others.
    for _ in 0..3 {
        let named = kept.join("\n");
        let is_named = |name: &str| named.contains(name);
        let found = types.extract_if(.., |(name, _)| is_named(name));
        kept.extend(found.map(|(_, line)| line.to_owned()).collect::<Vec<_>>());
    }
    // Types come first.
    kept.reverse();
    *body = format!("{first}\n{}\n", kept.join("\n")).into_bytes();
}

/// Leaves out most attributes of devices.
fn cut_meta(body: &mut Vec<u8>) {
    let Some((mut entries, _)) = codec::decode::<Vec<(String, String)>>(body) else {
        return;
    };
    let is_attribute = |key: &str| key.contains(".attribute.");
    entries.retain(|(key, _)| !is_attribute(key) || key.contains(".attribute.MAX_"));
    *body = codec::encode_to_vec(entries);
}

fn cut_list<T: Decode<()> + Encode>(body: &mut Vec<u8>) {
    if let Some((mut items, _)) = codec::decode::<Vec<T>>(body) {
        items.truncate(ITEMS);
        *body = codec::encode_to_vec(items);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use cutape_tests::root;

    use super::*;
    use crate::corpus::Corpus;

    /// Kinds of chunks, with the kinds of their records and notes.
    fn kinds<'p>(traces: impl Iterator<Item = &'p Parts>) -> BTreeSet<(u16, u8, u16)> {
        let chunks = traces.flat_map(|parts| &parts.chunks);
        let kinds = chunks.flat_map(|chunk| {
            let heads = records(&chunk.body).filter(|_| has_records(chunk));
            let of_record = heads.map(|(_, head)| match head.kind {
                record_kind::NOTE => (head.kind, head.function),
                kind => (kind, 0),
            });
            let all: Vec<_> = std::iter::once((0, 0)).chain(of_record).collect();
            let kind = chunk.head.kind;
            all.into_iter()
                .map(move |(record, note)| (kind, record, note))
        });
        kinds.collect()
    }

    #[test]
    fn no_kind_is_lost() {
        let corpus = Corpus::below(root());
        let whole = kinds(corpus.traces.iter().map(|(_, parts)| parts));
        assert!(whole.len() > 40, "{whole:?}");
        assert_eq!(kinds(corpus.cut.iter()), whole);
    }
}
