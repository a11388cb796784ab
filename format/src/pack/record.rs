//! Writing records into a body.

use crate::layout::{BlobRef, RECORD_HEAD_LENGTH, RecordHead};

/// Appends a record with the length and padding that its bytes need.
pub(crate) fn put_record(out: &mut Vec<u8>, head: RecordHead, record: &[u8]) {
    let length = (RECORD_HEAD_LENGTH + record.len()).next_multiple_of(8);
    let end = out.len() + length;
    let head = RecordHead {
        length: length as u32,
        ..head
    };
    out.extend(head.word().to_le_bytes());
    out.extend_from_slice(record);
    out.resize(end, 0);
}

/// The blob with these bytes. Its name is a part of their hash, with the highest bit set, which no
/// position in a file has.
pub(crate) fn blob_of(bytes: &[u8]) -> BlobRef {
    let hash = blake3::hash(bytes);
    let start = hash.as_bytes().first_chunk::<8>().copied();
    BlobRef {
        position: u64::from_le_bytes(start.unwrap_or_default()) | 1 << 63,
        length: bytes.len() as u64,
    }
}
