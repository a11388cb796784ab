//! Chunk kinds, flags and heads.

use super::note::BufferNote;
use crate::codec::{self, Decode, Encode};

/// Chunks of an unpacked trace begin at multiples of this, so that each can be mapped alone.
pub const CHUNK_ALIGNMENT: u64 = 4096;
/// A chunk head's length.
pub const CHUNK_HEAD_LENGTH: usize = 64;
/// First bytes of every chunk.
pub const CHUNK_MAGIC: u32 = u32::from_le_bytes(*b"CTCH");

/// What a chunk holds.
pub mod chunk_kind {
    /// `Vec<(String, String)>`: facts about program and machine.
    pub const META: u16 = 1;
    /// The signature table as text.
    pub const SIGNATURES: u16 = 2;
    /// Records of one thread.
    pub const CALLS: u16 = 3;
    /// One blob.
    pub const BLOB: u16 = 4;
    /// `Vec<Mapping>`: the process's memory map at some moment.
    pub const MAPS: u16 = 5;
    /// `Vec<Symbol>`: callers' addresses with their symbols, added by `pack`.
    pub const SYMBOLS: u16 = 6;
    /// Positions of the chunks of a packed trace.
    pub const INDEX: u16 = 7;
    /// The records that a thread is writing: a `BUFFER` note, then records. When it is full, they
    /// become a chunk of `CALLS` elsewhere in the file, and the buffer is filled again.
    pub const THREAD_BUFFER: u16 = 8;
    /// Number of calls in each chunk of a packed trace, for random access.
    pub const CALL_COUNTS: u16 = 9;
    /// How far the file is claimed, for readers that follow it: see [`crate::control`].
    pub const CONTROL: u16 = 10;
    /// Call stacks: records of the note kinds `FRAMES` and `PYTHON_CODE`, of all threads.
    pub const STACKS: u16 = 11;
    /// `Vec<ResolvedAddress>`: the source of the addresses of call stacks, added by `pack`.
    pub const SOURCES: u16 = 12;
    /// Markers: records of the note kind `MARKER`, of all threads.
    pub const MARKERS: u16 = 13;
    /// Space of chunks that were left out while the recording went on: it takes no more than a page.
    pub const ERASED: u16 = 14;
}

/// `used` and `body_checksum` of the chunk are final.
pub const CHUNK_CLOSED: u16 = 1;
/// The body is a u64 with the raw length, then one zstd frame.
pub const CHUNK_COMPRESSED: u16 = 2;
/// The chunk is a copy of a thread buffer; unless it is closed as well, it does not count.
pub const CHUNK_COPIED: u16 = 4;

/// Start of a chunk. Its body follows, up to `length` bytes from the start of the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct ChunkHead {
    /// [`CHUNK_MAGIC`].
    pub magic: u32,
    /// A number of [`chunk_kind`].
    pub kind: u16,
    /// `CHUNK_*`.
    pub flags: u16,
    /// Bytes from the start of the head to the next chunk.
    pub length: u64,
    /// Ordinal of the thread that filled it, from 0.
    pub thread: u32,
    /// Position among the chunks of that thread, from 0.
    pub sequence: u32,
    /// Bytes of the body that count, as stored; 0 while a chunk other than a blob is open.
    pub used: u64,
    /// For calls: number in its thread of the first call entered here. For a blob: its name, the
    /// position that it had when it was recorded.
    pub first: u64,
    /// Clock when the chunk was opened.
    pub ticks: u64,
    /// Nanoseconds of the monotonic clock at that moment.
    pub nanoseconds: u64,
    /// crc32 of the used body of a closed chunk.
    pub body_checksum: u32,
    /// crc32 of the head's bytes before it, with `flags`, `used` and `body_checksum` as zero
    /// unless closed.
    pub head_checksum: u32,
}

impl ChunkHead {
    /// The head of an open chunk of that kind; all other fields are 0.
    pub const fn new(kind: u16) -> Self {
        Self {
            magic: CHUNK_MAGIC,
            kind,
            flags: 0,
            length: 0,
            thread: 0,
            sequence: 0,
            used: 0,
            first: 0,
            ticks: 0,
            nanoseconds: 0,
            body_checksum: 0,
            head_checksum: 0,
        }
    }

    /// The chunk of calls that a thread buffer with this note becomes, still without length.
    pub fn of_buffer(thread: u32, note: BufferNote) -> Self {
        Self {
            thread,
            sequence: note.sequence,
            first: note.first,
            ticks: note.ticks,
            nanoseconds: note.nanoseconds,
            ..Self::new(chunk_kind::CALLS)
        }
    }

    /// The heads of a copy of a thread buffer: while it is written, and when it is complete.
    /// `length` includes the head; of these bytes those of `body` count.
    pub fn of_copy(thread: u32, note: BufferNote, length: u64, body: &[u8]) -> (Self, Self) {
        let open = Self {
            flags: CHUNK_COPIED,
            length,
            ..Self::of_buffer(thread, note)
        };
        let closed = Self {
            flags: CHUNK_COPIED | CHUNK_CLOSED,
            used: body.len() as u64,
            body_checksum: crc32fast::hash(body),
            ..open
        };
        (open, closed)
    }

    /// Encodes with the right head checksum.
    pub fn encode(mut self) -> [u8; CHUNK_HEAD_LENGTH] {
        self.head_checksum = self.expected_checksum();
        let mut bytes = [0; CHUNK_HEAD_LENGTH];
        codec::encode(self, &mut bytes);
        bytes
    }

    /// The head if its checksum is right. A recorder that ends while it closes a chunk leaves the
    /// checksum of the open chunk: such a head counts as open.
    pub fn checked(self) -> Option<Self> {
        if self.head_checksum == self.expected_checksum() {
            return Some(self);
        }
        let open = self.as_open();
        (open.head_checksum == open.expected_checksum()).then_some(open)
    }

    fn as_open(self) -> Self {
        Self {
            flags: 0,
            used: 0,
            body_checksum: 0,
            ..self
        }
    }

    fn expected_checksum(self) -> u32 {
        let head = match self.flags & CHUNK_CLOSED {
            0 => self.as_open(),
            _ => self,
        };
        let mut bytes = [0; CHUNK_HEAD_LENGTH];
        codec::encode(head, &mut bytes);
        crc32fast::hash(&bytes[..CHUNK_HEAD_LENGTH - 4])
    }
}
