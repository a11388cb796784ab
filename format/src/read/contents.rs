//! What a chunk of calls holds: how many calls, what they refer to, where the records end.

use std::collections::HashSet;

use crate::file_range::FileRange;
use crate::layout::{
    BlobRef, CallCount, LEAVE_HEAD_LENGTH, RECORD_HEAD_LENGTH, RecordHead, note_kind, record_kind,
    snapshot_flag,
};
use crate::read::error::Damage;
use crate::read::note::{Note, snapshots_of};
use crate::read::outline::{Outliner, Outlines};
use crate::read::record::{Enter, record_at};
use crate::read::snapshot::{Bytes, RawSnapshots};
use crate::read::trace::Trace;

/// The blobs and parts of files that records refer to.
#[derive(Debug, Default)]
pub(crate) struct References {
    pub(crate) blobs: HashSet<BlobRef>,
    /// Parts of files, encoded.
    ranges: HashSet<Box<[u8]>>,
    /// Some records are of a later version and may refer to more.
    pub(crate) has_unknown: bool,
}

impl References {
    /// Adds those of another chunk.
    pub(crate) fn append(&mut self, other: References) {
        self.blobs.extend(other.blobs);
        self.ranges.extend(other.ranges);
        self.has_unknown |= other.has_unknown;
    }

    /// The parts of files, in no order.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = FileRange<'_>> {
        self.ranges
            .iter()
            .filter_map(|encoded| FileRange::decode(encoded))
    }

    /// Adds those of encoded snapshots.
    #[inline(always)]
    fn add_snapshots(&mut self, encoded: &[u8]) {
        const ELSEWHERE: u16 = snapshot_flag::BLOB | snapshot_flag::IN_FILE;
        for (head, raw) in RawSnapshots::new(encoded) {
            if head.flags & ELSEWHERE != 0 {
                match Bytes::decode(head.flags, raw) {
                    Some(Bytes::Blob(blob)) => _ = self.blobs.insert(blob),
                    Some(Bytes::InFile(range)) => _ = self.ranges.insert(range.encoded().into()),
                    Some(_) => {}
                    None => return,
                }
            }
        }
    }
}

/// What one chunk of calls holds.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    /// How many calls are entered in it.
    pub(crate) calls: u64,
    /// When the first of them was entered.
    pub(crate) first_ticks: Option<u64>,
    /// A call or note in it introduces a handle.
    introduces: bool,
    /// Where its records end.
    pub(crate) end: usize,
    /// The first call of a function that the signature table lacks: offset and function number.
    unknown_function: Option<(usize, u16)>,
    pub(crate) references: References,
    /// The records end with something else than zeros.
    is_malformed: bool,
}

impl Contents {
    /// Searches a body.
    pub(crate) fn of(trace: &Trace, body: &[u8]) -> Self {
        Self::search(trace, body, None)
    }

    /// Searches a body and outlines its calls, in the memory of outlines that are used no more.
    pub(crate) fn with_outlines(trace: &Trace, body: &[u8], reused: Outlines) -> (Self, Outlines) {
        let mut outliner = Outliner::new(body, reused);
        let contents = Self::search(trace, body, Some(&mut outliner));
        (contents, outliner.finish())
    }

    #[inline(always)]
    fn search(trace: &Trace, body: &[u8], mut outliner: Option<&mut Outliner<'_>>) -> Self {
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
                    match known {
                        Some(function) => contents.introduces |= function.introduces,
                        None => {
                            contents.unknown_function.get_or_insert((at, head.function));
                            contents.references.has_unknown = true;
                        }
                    }
                    let enter = Enter::read(known, start_ticks, head, record);
                    if let Some(enter) = &enter {
                        contents.first_ticks.get_or_insert(enter.head.ticks);
                        contents.references.add_snapshots(enter.snapshots);
                    }
                    if let Some(outliner) = &mut outliner {
                        outliner.enter(at, head, known, enter.as_ref());
                    }
                }
                // An arm for each kind: in it the outliner need not ask for the kind again.
                record_kind::LEAVE_SHORT => add(&mut outliner, at, head, record),
                record_kind::SNAPSHOT => add(&mut outliner, at, head, record),
                record_kind::LEAVE_VALUE => add(&mut outliner, at, head, record),
                record_kind::LEAVE => {
                    let snapshots = record.get(LEAVE_HEAD_LENGTH..).unwrap_or(&[]);
                    contents.references.add_snapshots(snapshots);
                    add(&mut outliner, at, head, record);
                }
                record_kind::NOTE => {
                    contents.add_note(head.function, record);
                    add(&mut outliner, at, head, record);
                }
                _ => contents.references.has_unknown = true,
            }
        }
        (contents.calls, contents.end) = (calls, end);
        // The records end at a zero word or with the body.
        let behind = body.get(end..).unwrap_or(&[]).iter().take(8);
        contents.is_malformed = behind.into_iter().any(|&byte| byte != 0);
        contents
    }

    fn add_note(&mut self, kind: u16, bytes: &[u8]) {
        if matches!(kind, note_kind::LAYOUT | note_kind::ORIGIN) {
            self.introduces = true;
        }
        self.references.has_unknown |= matches!(Note::read(kind, bytes), Note::Other(..));
        if let Some(snapshots) = snapshots_of(kind, bytes) {
            self.references.add_snapshots(snapshots);
        }
    }

    /// What a packed trace stores of the chunk that begins there.
    pub(crate) fn count(&self, position: u64) -> CallCount {
        CallCount {
            position,
            calls: self.calls,
            ticks: self.first_ticks.unwrap_or(0),
            introduces: u32::from(self.introduces),
        }
    }

    /// The first call of an unknown function, as damage of the chunk that begins there.
    pub(crate) fn unknown_function(&self, position: u64) -> Option<Damage> {
        let (at, id) = self.unknown_function?;
        let what = format!("the record {at} bytes into a chunk is of the unknown call id {id}");
        Some(Damage::new(position, what))
    }

    /// A malformed record, as damage of the chunk that begins there.
    pub(crate) fn malformed_record(&self, position: u64) -> Option<Damage> {
        let end = self.end;
        let what = format!("the record {end} bytes into a chunk of calls is malformed");
        self.is_malformed.then(|| Damage::new(position, what))
    }
}

/// Gives a record that does not enter a call to the outliner.
#[inline(always)]
fn add(outliner: &mut Option<&mut Outliner<'_>>, at: usize, head: RecordHead, record: &[u8]) {
    if let Some(outliner) = outliner {
        outliner.add(at, head, record);
    }
}

#[cfg(test)]
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
                    contents.references.blobs.len()
                ),
                (1, Some(1000), 1),
                "{name}"
            );
            assert_eq!(contents.malformed_record(0), None);
        }
    }
}
