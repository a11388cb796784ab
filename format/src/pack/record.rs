//! Writing records into a body.

use crate::layout::{RECORD_HEAD_LENGTH, RecordHead};

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
