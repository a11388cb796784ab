//! Contents of memory that a cut trace gets: notes MEMORY of one of its calls, and their blobs.

use std::collections::HashSet;
use std::io;

use crate::codec;
use crate::layout::{
    BlobRef, INLINE_LIMIT, MemoryNote, RECORD_HEAD_LENGTH, RecordHead, SnapshotHead, field,
    note_kind, record_kind, snapshot_flag,
};
use crate::pack::record::{blob_of, put_record};

/// Reads the bytes of a piece, by its position in the list.
pub type ReadPiece<'a> = dyn Fn(usize) -> io::Result<Vec<u8>> + Sync + 'a;

/// What memory holds before a call.
pub struct AddedMemory<'a> {
    /// The call, by its index. It is kept.
    pub call: u64,
    /// The memory, by address.
    pub pieces: &'a [MemoryPiece],
    /// Reads the bytes of those pieces that have some.
    pub read: &'a ReadPiece<'a>,
}

/// A piece of memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryPiece {
    /// Where it is, and what it holds if it has no bytes. The length of the name is set.
    pub note: MemoryNote,
    /// Of a variable its name.
    pub name: String,
    /// It has bytes: as many as the note says.
    pub has_bytes: bool,
}

/// Added memory, ready to be written.
pub(crate) struct EncodedMemory<'a> {
    /// The records of the notes.
    pub(crate) notes: Vec<u8>,
    /// Blobs: name, length, and the position of the piece.
    pub(crate) blobs: Vec<(BlobRef, usize)>,
    pub(crate) read: &'a ReadPiece<'a>,
}

impl<'a> EncodedMemory<'a> {
    pub(crate) fn new(memory: &AddedMemory<'a>) -> io::Result<Self> {
        let mut encoded = Self {
            notes: Vec::new(),
            blobs: Vec::new(),
            read: memory.read,
        };
        let mut named = HashSet::new();
        for (position, piece) in memory.pieces.iter().enumerate() {
            let name = piece.name.as_bytes();
            let note = MemoryNote {
                name_length: u16::try_from(name.len()).map_err(|_| {
                    let what = "a variable with a name of more than 65535 bytes";
                    io::Error::new(io::ErrorKind::InvalidData, what)
                })?,
                ..piece.note
            };
            let mut record = codec::encode_to_vec(note);
            record.extend_from_slice(name);
            if piece.has_bytes {
                let bytes = (memory.read)(position)?;
                let (flags, stored) = match bytes.len() > INLINE_LIMIT {
                    false => (0, bytes),
                    true => {
                        let blob = blob_of(&bytes);
                        if named.insert(blob) {
                            encoded.blobs.push((blob, position));
                        }
                        (snapshot_flag::BLOB, codec::encode_to_vec(blob))
                    }
                };
                record.extend(codec::encode_to_vec(SnapshotHead {
                    parameter: 0,
                    field: field::POINTEE,
                    flags,
                    length: stored.len() as u32,
                }));
                record.extend(stored);
            }
            put_record(&mut encoded.notes, HEAD, &record);
        }
        Ok(encoded)
    }
}

const HEAD: RecordHead = RecordHead {
    length: RECORD_HEAD_LENGTH as u32,
    kind: record_kind::NOTE,
    detail: 0,
    function: note_kind::MEMORY,
};
