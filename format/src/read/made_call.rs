//! A call that no trace has: of a running program, to be read like a recorded one.

use crate::codec;
use crate::layout::{SNAPSHOT_HEAD_LENGTH, SnapshotHead, snapshot_flag};
use crate::read::call::{Arguments, Call, Leave};
use crate::read::signature::{Signature, ValueType};
use crate::read::snapshot::{Bytes, Snapshot};

/// Arguments and memory of a call.
#[derive(Clone, Debug, Default)]
pub struct MadeCall {
    /// As [`Call::argument`] gives them.
    arguments: Vec<u64>,
    before: Vec<u8>,
    after: Vec<u8>,
    result: Option<i32>,
}

impl MadeCall {
    /// A call with these arguments; bits beyond their types are ignored.
    pub fn new(signature: &Signature, words: &[u64]) -> Self {
        let parameters = signature.parameters.iter().zip(words);
        let arguments = parameters.map(|(parameter, word)| {
            let bits = match parameter.value_type {
                // As of recorded calls: see `Call::argument`.
                ValueType::Memory(_) => 0,
                value_type => 8 * value_type.bytes() as u32,
            };
            let mask = u64::MAX.checked_shr(64 - bits).unwrap_or(0);
            parameter.value_type.extended(word & mask)
        });
        Self {
            arguments: arguments.collect(),
            ..Self::default()
        }
    }

    /// Adds bytes behind a pointer from before the call; `None` if they cannot be read.
    pub fn put_before(&mut self, parameter: u8, field: u8, bytes: Option<&[u8]>) {
        put(&mut self.before, (parameter, field), bytes);
    }

    /// Adds a snapshot of another call as one from before this one.
    pub fn repeat_before(&mut self, from: &Snapshot<'_>) {
        let place = (from.parameter, from.field);
        let (flags, bytes) = match from.bytes {
            Bytes::Inline(bytes) => return put(&mut self.before, place, Some(bytes)),
            Bytes::Blob(blob) => (snapshot_flag::BLOB, codec::encode_to_vec(blob)),
            Bytes::Omitted(length) => (snapshot_flag::OMITTED, codec::encode_to_vec(length)),
            Bytes::Hashed(length, hash) => {
                (snapshot_flag::HASHED, codec::encode_to_vec((length, hash)))
            }
            Bytes::InFile(range) => (snapshot_flag::IN_FILE, range.encoded()),
            Bytes::Unreadable => return put(&mut self.before, place, None),
        };
        put_raw(&mut self.before, place, flags, &bytes);
    }

    /// Adds bytes behind a pointer from after the call; `None` if they cannot be read.
    pub fn put_after(&mut self, parameter: u8, field: u8, bytes: Option<&[u8]>) {
        put(&mut self.after, (parameter, field), bytes);
    }

    /// The call has returned that.
    pub fn returned(&mut self, result: i32) {
        self.result = Some(result);
    }

    /// The call, with function, place and times of another one.
    pub fn at_place_of<'a>(&'a self, other: &Call<'a>) -> Call<'a> {
        let leave = self.result.map(|result| Leave {
            ticks: other.leave.map_or(other.ticks, |leave| leave.ticks),
            result,
            single_snapshot: None,
            snapshots: &self.after,
        });
        Call {
            arguments: Arguments::Decoded(&self.arguments),
            snapshots: &self.before,
            more_snapshots: &[],
            single_snapshot: None,
            notes: Vec::new(),
            leave,
            ..*other
        }
    }
}

fn put(into: &mut Vec<u8>, place: (u8, u8), bytes: Option<&[u8]>) {
    match bytes {
        Some(bytes) => put_raw(into, place, 0, bytes),
        None => put_raw(into, place, snapshot_flag::UNREADABLE, &[]),
    }
}

/// Bytes of more than 4 GiB are cut, which no recorded snapshot has.
fn put_raw(into: &mut Vec<u8>, (parameter, field): (u8, u8), flags: u16, bytes: &[u8]) {
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    let head = SnapshotHead {
        parameter,
        field,
        flags,
        length,
    };
    into.reserve(SNAPSHOT_HEAD_LENGTH + length as usize);
    into.extend(codec::encode_to_vec(head));
    into.extend(bytes.iter().take(length as usize));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FileRange;
    use crate::layout::BlobRef;
    use crate::read::signature::Signatures;

    #[test]
    fn a_made_call_reads_like_a_recorded_one() {
        let text = "cutape-signatures\t1\nfunction\t7\tcuF\tcuF\tS\tCUresult\tplain\t\
                    a|int|i4|value\tb|void *|u8|in n bytes\n";
        let signatures = Signatures::parse(text).expect("a table");
        let signature = signatures.function(7).expect("in the table");
        let mut made = MadeCall::new(signature, &[0xdead_beef_ffff_fffe, 1 << 40]);
        let blob = BlobRef {
            position: 8,
            length: 9,
        };
        made.put_before(1, 0, Some(b"abc"));
        made.repeat_before(&Snapshot {
            parameter: 1,
            field: 11,
            flags: snapshot_flag::BLOB,
            bytes: Bytes::Blob(blob),
        });
        let range = FileRange {
            offset: 1,
            length: 2,
            file_length: 3,
            modified: 4,
            path: b"/lib/libx.so",
            build_id: &[5; 20],
            digest: Some(6),
        };
        made.repeat_before(&Snapshot {
            parameter: 1,
            field: 12,
            flags: snapshot_flag::IN_FILE,
            bytes: Bytes::InFile(range),
        });
        made.put_after(0, 0, None);
        made.returned(3);
        let other = Call {
            index: 4,
            thread: 5,
            number: 6,
            signature,
            ticks: 7,
            caller: 8,
            arguments: Arguments::Decoded(&[]),
            snapshots: &[],
            more_snapshots: &[],
            single_snapshot: None,
            notes: Vec::new(),
            leave: None,
        };
        let call = made.at_place_of(&other);
        assert_eq!((call.argument(0) as i64, call.argument(1)), (-2, 1 << 40));
        let snapshots: Vec<_> = call
            .snapshots()
            .map(|found| (found.field, found.bytes))
            .collect();
        let expected = [
            (0, Bytes::Inline(&b"abc"[..])),
            (11, Bytes::Blob(blob)),
            (12, Bytes::InFile(range)),
        ];
        assert_eq!(snapshots, expected);
        assert_eq!((call.index, call.result()), (4, Some(3)));
        let after = call.leave.and_then(|leave| leave.snapshots().next());
        assert_eq!(after.map(|found| found.bytes), Some(Bytes::Unreadable));
    }
}
