//! What a chunk of calls holds, found out without putting calls together: how many, what they name, where the records end.

use std::collections::HashSet;

use crate::call::{Bytes, Note, Snapshots};
use crate::cursor::Entered;
use crate::file_range::FileRange;
use crate::layout::{
    BlobRef, LEAVE_HEAD_LENGTH, RECORD_HEAD_LENGTH, RecordHead, SNAPSHOT_HEAD_LENGTH, note_kind,
    record_kind, snapshot_flag,
};
use crate::outline::{Outlines, Outlining};
use crate::records::record_at;
use crate::signature::Signature;
use crate::trace::{Damage, Trace};

/// The blobs and parts of files that records name.
#[derive(Debug, Default)]
pub(crate) struct Named {
    /// Blobs, each once.
    pub(crate) blobs: HashSet<BlobRef>,
    /// The parts of files, encoded, each once.
    ranges: HashSet<Box<[u8]>>,
    /// There are records of a later version, which may name further ones.
    pub(crate) unknown: bool,
}

impl Named {
    /// Adds what another chunk names.
    pub(crate) fn append(&mut self, other: Named) {
        self.blobs.extend(other.blobs);
        self.ranges.extend(other.ranges);
        self.unknown |= other.unknown;
    }

    /// The parts of files, in no order.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = FileRange<'_>> {
        self.ranges
            .iter()
            .filter_map(|encoded| FileRange::decode(encoded))
    }

    /// Looks through snapshots that stand one behind the other.
    fn add_snapshots(&mut self, mut snapshots: &[u8]) {
        const ELSEWHERE: u16 = snapshot_flag::BLOB | snapshot_flag::IN_FILE;
        while let Some(head) = snapshots.first_chunk::<SNAPSHOT_HEAD_LENGTH>() {
            let flags = u16::from_le_bytes([head[2], head[3]]);
            let length = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
            let whole = (length as usize).checked_add(SNAPSHOT_HEAD_LENGTH);
            let Some((snapshot, behind)) = whole.and_then(|n| snapshots.split_at_checked(n)) else {
                return;
            };
            if flags & ELSEWHERE != 0 {
                match Snapshots::new(snapshot).next() {
                    Some(snapshot) => self.add_bytes(snapshot.bytes),
                    None => return,
                }
            }
            snapshots = behind;
        }
    }

    fn add_bytes(&mut self, bytes: Bytes<'_>) {
        match bytes {
            Bytes::Blob(blob) => {
                self.blobs.insert(blob);
            }
            Bytes::InFile(range) => {
                let mut encoded = vec![0; range.encoded_length()];
                if range.encode(&mut encoded).is_some() {
                    self.ranges.insert(encoded.into());
                }
            }
            _ => {}
        }
    }
}

/// Who looks at the records as well.
pub(crate) trait Observer {
    /// A call is entered with the record at an offset, of a function that may be unknown; what that says, if it can be read.
    fn enter(
        &mut self,
        at: usize,
        head: RecordHead,
        known: Option<&Signature>,
        entered: Option<&Entered<'_>>,
    );
    /// Another record: where it is, its head, its bytes behind that.
    fn further(&mut self, at: usize, head: RecordHead, record: &[u8]);
}

/// Nobody.
impl Observer for () {
    fn enter(&mut self, _: usize, _: RecordHead, _: Option<&Signature>, _: Option<&Entered<'_>>) {}

    fn further(&mut self, _: usize, _: RecordHead, _: &[u8]) {}
}

/// What one chunk of calls holds.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    /// How many calls are entered in it.
    pub(crate) calls: u64,
    /// When the first of them was.
    pub(crate) first_ticks: Option<u64>,
    /// Some call or note in it says what a handle stands for.
    pub(crate) introduces: bool,
    /// Where its records end.
    pub(crate) end: usize,
    /// The first call of a function that the signature table does not have: where it is, and the function's number.
    pub(crate) unknown_function: Option<(usize, u16)>,
    /// What is named.
    pub(crate) named: Named,
}

impl Contents {
    /// Looks through a body.
    pub(crate) fn of(trace: &Trace, body: &[u8]) -> Self {
        Self::look_through(trace, body, &mut ())
    }

    /// Looks through a body and puts the calls in it in outline, in the memory of outlines that are used no more.
    pub(crate) fn with_outlines(trace: &Trace, body: &[u8], used: Outlines) -> (Self, Outlines) {
        let mut outlining = Outlining::new(body, used);
        let contents = Self::look_through(trace, body, &mut outlining);
        (contents, outlining.finish())
    }

    #[inline(always)]
    fn look_through(trace: &Trace, body: &[u8], also: &mut impl Observer) -> Self {
        let signatures = trace.signatures();
        let start_ticks = trace.head().start_ticks;
        let mut contents = Self::default();
        let (mut calls, mut end) = (0, 0);
        while let Some((head, record)) = record_at(body, end) {
            let at = end;
            end += record.len();
            let record = record.get(RECORD_HEAD_LENGTH..).unwrap_or(&[]);
            match head.kind {
                record_kind::ENTER | record_kind::ENTER_SHORT => {
                    calls += 1;
                    let known = signatures.function(head.function);
                    if known.is_none() {
                        contents.unknown_function.get_or_insert((at, head.function));
                        contents.named.unknown = true;
                    }
                    contents.introduces |= signatures.introduces(head.function);
                    let entered = Entered::of(known, start_ticks, head, record);
                    if let Some(entered) = &entered {
                        contents.first_ticks.get_or_insert(entered.head.ticks);
                        contents.named.add_snapshots(entered.snapshots);
                    }
                    also.enter(at, head, known, entered.as_ref());
                }
                record_kind::LEAVE_SHORT => also.further(at, head, record),
                record_kind::SNAPSHOT => also.further(at, head, record),
                record_kind::LEAVE_VALUE => also.further(at, head, record),
                record_kind::LEAVE => {
                    let snapshots = record.get(LEAVE_HEAD_LENGTH..);
                    contents.named.add_snapshots(snapshots.unwrap_or(&[]));
                    also.further(at, head, record);
                }
                record_kind::NOTE => {
                    contents.note(head.function, record);
                    also.further(at, head, record);
                }
                _ => contents.named.unknown = true,
            }
        }
        (contents.calls, contents.end) = (calls, end);
        contents
    }

    /// The first call of an unknown function as damage of the chunk at that position.
    pub(crate) fn unknown_function_at(&self, position: u64) -> Option<Damage> {
        let (at, function) = self.unknown_function?;
        let what =
            format!("the record {at} bytes into a chunk is of the unknown call id {function}");
        Some(Damage { position, what })
    }

    fn note(&mut self, kind: u16, bytes: &[u8]) {
        match kind {
            note_kind::SNAPSHOTS => return self.named.add_snapshots(bytes),
            note_kind::LAYOUT | note_kind::ORIGIN => self.introduces = true,
            _ => {}
        }
        match Note::read(kind, bytes) {
            Note::Readback(_, snapshot) | Note::HostChanged(_, snapshot) => {
                self.named.add_bytes(snapshot.bytes);
            }
            Note::Other(..) => self.named.unknown = true,
            _ => {}
        }
    }

    /// What stands behind the records although nothing but zeros should, for people.
    pub(crate) fn malformed(&self, body: &[u8]) -> Option<String> {
        // The records end at a zero word or with the body; anything else there was not written as a record.
        let behind = body.get(self.end..).unwrap_or(&[]);
        let strange =
            record_at(body, self.end).is_none() && behind.iter().take(8).any(|&byte| byte != 0);
        let end = self.end;
        strange.then(|| format!("the record {end} bytes into a chunk of calls is malformed"))
    }
}

#[cfg(all(test, feature = "build"))]
mod tests {
    use super::*;
    use crate::build::{NewCall, NewSnapshot, TraceBuilder};

    #[test]
    fn what_introduces_handles() {
        const TABLE: &str = "cutape-signatures\t1\n\
            function\t0\ta\ta\tS\tCUresult\tplain\tm|CUmodule *|u8|make module\n\
            function\t1\tb\tb\tS\tCUresult\tplain\tf|CUfunction *|u8|find function of m\tm|CUmodule|u8|use module\n\
            function\t2\tc\tc\tS\tCUresult\tplain\tn|const char **|u8|out string may differ\n\
            function\t3\td\td\tS\tCUresult\tplain\tf|CUfunction|u8|use function\n";
        for (name, arguments, expected) in [
            ("a", &[1][..], true),
            ("b", &[1, 2], true),
            ("c", &[1], true),
            ("d", &[1], false),
        ] {
            let mut builder = TraceBuilder::new(TABLE);
            builder
                .call(NewCall {
                    name,
                    arguments,
                    snapshots: &[NewSnapshot::pointee(0, &[7; 20_000])],
                    ..NewCall::default()
                })
                .leave(0, 0, &[]);
            let path = std::env::temp_dir().join(format!(
                "cutape-contents-{}-{name}.cutape",
                std::process::id()
            ));
            builder.write(&path).unwrap();
            let trace = Trace::open(&path).unwrap();
            std::fs::remove_file(&path).unwrap();
            let chunk = trace.calls_chunks().next().unwrap();
            let body = trace.body(chunk);
            let contents = Contents::of(&trace, body);
            assert_eq!(contents.introduces, expected, "{name}");
            assert_eq!(
                (
                    contents.calls,
                    contents.first_ticks,
                    contents.named.blobs.len()
                ),
                (1, Some(1000), 1),
                "{name}"
            );
            assert_eq!(contents.malformed(body), None);
        }
    }
}
