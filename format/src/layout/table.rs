//! Items of the chunks that hold a list: MAPS, SYMBOLS, SOURCES, INDEX, CALL_COUNTS.

use super::chunk::ChunkHead;
use crate::codec::{Decode, DecodeError, Decoder, Encode};

/// A mapping of the recorded process.
#[derive(Clone, Debug, PartialEq, Eq, Encode)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// Behind the last address.
    pub end: u64,
    /// Offset of `start` in the file.
    pub offset: u64,
    /// The file's path. A path that is not UTF-8 is read lossily, and no longer names its file.
    pub path: String,
    /// Its GNU build id; empty if it has none.
    pub build_id: Vec<u8>,
}

impl Decode<()> for Mapping {
    fn decode<D: Decoder<Context = ()>>(decoder: &mut D) -> Result<Self, DecodeError> {
        let (start, end, offset): (u64, u64, u64) = Decode::decode(decoder)?;
        let (path, build_id): (Vec<u8>, Vec<u8>) = Decode::decode(decoder)?;
        Ok(Self {
            start,
            end,
            offset,
            path: String::from_utf8_lossy(&path).into_owned(),
            build_id,
        })
    }
}

/// A caller's address and the symbol there.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Symbol {
    /// The address in the recorded process.
    pub address: u64,
    /// For people, e.g. `main+0x2f in saxpy`.
    pub text: String,
}

/// A return address of a call stack, and the source of the call before it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct ResolvedAddress {
    /// The address in the recorded process.
    pub address: u64,
    /// Path of the file that is mapped there; empty if none is.
    pub module: String,
    /// The function that holds the address, with those inlined there before it; the innermost
    /// first.
    pub frames: Vec<SourceFrame>,
}

/// A function in its source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct SourceFrame {
    /// Demangled; empty if unknown.
    pub function: String,
    /// Its path as the compiler wrote it; empty if unknown.
    pub file: String,
    /// From 1; 0 if unknown.
    pub line: u32,
}

/// The fields of a chunk head that the index repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct ChunkIdentity {
    pub(crate) kind: u16,
    pub(crate) thread: u32,
    pub(crate) sequence: u32,
    pub(crate) first: u64,
    pub(crate) ticks: u64,
}

impl ChunkIdentity {
    pub(crate) fn of(head: &ChunkHead) -> Self {
        Self {
            kind: head.kind,
            thread: head.thread,
            sequence: head.sequence,
            first: head.first,
            ticks: head.ticks,
        }
    }

    /// A head with this identity; all other fields are 0.
    pub(crate) fn head(self) -> ChunkHead {
        ChunkHead {
            thread: self.thread,
            sequence: self.sequence,
            first: self.first,
            ticks: self.ticks,
            ..ChunkHead::new(self.kind)
        }
    }
}

/// What the index of a packed trace holds for each other chunk.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct IndexEntry {
    /// Where the chunk begins.
    pub(crate) position: u64,
    pub(crate) identity: ChunkIdentity,
    /// For a blob: every name (recorded position) of its content.
    pub(crate) names: Vec<u64>,
}

/// What a packed trace holds for each chunk of calls, in the order of the chunks.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct CallCount {
    /// Where the chunk begins.
    pub(crate) position: u64,
    /// How many calls are entered in it.
    pub(crate) calls: u64,
    /// When the first of them was entered; 0 if none is.
    pub(crate) ticks: u64,
    /// 1 if a call or note in it introduces a handle: creates an object, looks one up, or gives its
    /// name; else 0.
    pub(crate) introduces: u32,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec;

    #[test]
    fn a_path_may_be_any_bytes() {
        for (path, expected) in [
            (&b"/tmp/\xff.so"[..], "/tmp/\u{fffd}.so"),
            (b"/usr/lib/libx.so", "/usr/lib/libx.so"),
        ] {
            let stored = codec::encode_to_vec((1u64, 2u64, 3u64, path.to_vec(), vec![7u8]));
            let (mapping, used) = codec::decode::<Mapping>(&stored).unwrap();
            assert_eq!(used, stored.len());
            assert_eq!((mapping.path.as_str(), mapping.end), (expected, 2));
        }
    }
}
