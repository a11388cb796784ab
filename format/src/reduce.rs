//! Leaving payloads out of a body of calls that is packed: a hash or a length takes the place of the bytes.
//!
//! Which snapshots are payloads, the trace's own signature table says: field 0 of a parameter of role `host read` or `host write`,
//! field 11 (host bytes), and what the notes ARRIVED and HOST_CHANGED hold. `SPEC.md` has the same list.

use std::cell::OnceCell;

use crate::call::{Bytes, Snapshots};
use crate::codec;
use crate::cursor::Entered;
use crate::layout::{
    ENTER_HEAD_LENGTH, HostChangedNote, LEAVE_HEAD_LENGTH, LeaveHead, MINOR, RECORD_HEAD_LENGTH,
    ReadbackNote, RecordHead, SNAPSHOT_HEAD_LENGTH, SnapshotHead, field, note_kind, record_kind,
    snapshot_flag,
};
use crate::payloads::{PayloadPolicies, PayloadPolicy};
use crate::records::{behind_short_enter, records};
use crate::signature::Signature;
use crate::trace::{Damage, Trace};

/// What was left out.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Replaced {
    /// How many payloads.
    pub(crate) payloads: u64,
    /// Their bytes.
    pub(crate) bytes: u64,
}

/// Rewrites bodies so that payloads are kept as was asked.
pub(crate) struct Reduction<'t> {
    trace: &'t Trace,
    kept: PayloadPolicies,
    /// What cannot be told is an error; else it is left out.
    whole: bool,
}

/// Which side of a call a snapshot is of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Enter,
    Leave,
}

/// The call that a record without a name belongs to.
#[derive(Clone, Copy)]
struct Entry {
    function: u16,
    ticks: u64,
}

/// What is kept of a trace's payloads once it is packed: not more than is asked, nor than its recorder was told.
pub(crate) fn kept_by_pack(trace: &Trace, asked: PayloadPolicies) -> PayloadPolicies {
    // What was recorded without payloads has none; only hashes are left to `pack`.
    let told = |key| match said(trace, key) {
        PayloadPolicy::Hash => PayloadPolicy::Hash,
        _ => PayloadPolicy::All,
    };
    PayloadPolicies {
        payloads: asked.payloads.max(told("payloads")),
        outputs: asked.outputs.max(told("outputs")),
    }
}

fn said(trace: &Trace, key: &str) -> PayloadPolicy {
    let word = trace.meta_value(key).unwrap_or_default();
    PayloadPolicy::from_word(word.as_bytes()).unwrap_or_default()
}

/// What the meta entries of the packed trace say.
pub(crate) fn meta(trace: &Trace, kept: PayloadPolicies) -> Vec<(String, String)> {
    [("payloads", kept.payloads), ("outputs", kept.outputs)]
        .into_iter()
        .filter(|&(key, kept)| kept > said(trace, key))
        .map(|(key, kept)| (key.to_owned(), kept.word().to_owned()))
        .collect()
}

impl<'t> Reduction<'t> {
    /// Nothing if all payloads are kept. The error says why they cannot be found.
    pub(crate) fn of(
        trace: &'t Trace,
        kept: PayloadPolicies,
        whole: bool,
    ) -> Result<Option<Self>, String> {
        if kept == PayloadPolicies::default() {
            return Ok(None);
        }
        let minor = trace.head().minor;
        if minor > MINOR && whole {
            return Err(format!(
                "it is of version 1.{minor}, in which payloads may stand where this build (1.{MINOR}) does not look; use the version that recorded it"
            ));
        }
        Ok(Some(Self { trace, kept, whole }))
    }

    /// The records of a chunk's body without the payloads that are not kept.
    pub(crate) fn body(&self, chunk: usize, body: &[u8]) -> Result<(Vec<u8>, Replaced), Damage> {
        let damage = |at: usize, what: String| Damage {
            position: self.trace.chunk_position(chunk),
            what: format!("{what}, in the record {at} bytes into a chunk of calls"),
        };
        let mut out = Vec::with_capacity(body.len());
        let mut replaced = Replaced::default();
        // The call that is in progress where the chunk begins is looked for when some record needs it.
        let before = OnceCell::new();
        let mut entered = None;
        for (at, head, record) in records(body) {
            if record_kind::is_enter(head.kind) {
                entered = Entered::read(self.trace, head, record).map(|entered| Entry {
                    function: head.function,
                    ticks: entered.head.ticks,
                });
            }
            let entry = || entered.or_else(|| *before.get_or_init(|| self.entered_before(chunk)));
            match self.record(head, record, &entry, &mut replaced) {
                Ok(Some((head, record))) => put_record(&mut out, head, &record),
                Ok(None) => put_record(&mut out, head, record),
                Err(what) if self.whole => return Err(damage(at, what)),
                Err(_) => {}
            }
        }
        Ok((out, replaced))
    }

    /// Another record in the place of one that holds payloads.
    fn record(
        &self,
        head: RecordHead,
        record: &[u8],
        entry: &impl Fn() -> Option<Entry>,
        replaced: &mut Replaced,
    ) -> Result<Option<(RecordHead, Vec<u8>)>, String> {
        let signatures = self.trace.signatures();
        let named = signatures.function(head.function);
        let of_entry = || entry().and_then(|entry| signatures.function(entry.function));
        let unknown = || format!("a call of the unknown number {}", head.function);
        let (start, function, side) = match head.kind {
            record_kind::ENTER => {
                let function = named.ok_or_else(unknown)?;
                let start = ENTER_HEAD_LENGTH + function.arguments_length;
                (start, Some(function), Side::Enter)
            }
            record_kind::ENTER_SHORT => {
                let function = named.ok_or_else(unknown)?;
                let behind = behind_short_enter(record, function.parameters.len());
                let start = record.len() - behind.map_or(0, <[u8]>::len);
                (start, Some(function), Side::Enter)
            }
            record_kind::LEAVE => {
                let function = named.ok_or_else(unknown)?;
                (LEAVE_HEAD_LENGTH, Some(function), Side::Leave)
            }
            record_kind::NOTE => match head.function {
                note_kind::SNAPSHOTS => (0, of_entry(), Side::Enter),
                note_kind::READBACK => {
                    let used = codec::decode::<ReadbackNote>(record).map(|note| note.1);
                    return self.note(head, record, used, self.kept.outputs, replaced);
                }
                note_kind::HOST_CHANGED => {
                    let used = codec::decode::<HostChangedNote>(record).map(|note| note.1);
                    return self.note(head, record, used, self.kept.payloads, replaced);
                }
                _ => return Ok(None),
            },
            record_kind::SNAPSHOT => return self.own_snapshot(head, record, of_entry(), replaced),
            record_kind::LEAVE_VALUE => return self.leave_value(head, record, entry, replaced),
            record_kind::LEAVE_SHORT => return Ok(None),
            kind => return Err(format!("the unknown kind {kind}")),
        };
        let kept = |snapshot: &SnapshotHead| self.kept_of(function, side, snapshot);
        self.snapshots(head, record, start, kept, replaced)
    }

    /// A note that ends with one snapshot, which is a payload.
    fn note(
        &self,
        head: RecordHead,
        record: &[u8],
        start: Option<usize>,
        kept: PayloadPolicy,
        replaced: &mut Replaced,
    ) -> Result<Option<(RecordHead, Vec<u8>)>, String> {
        let start = start.ok_or("a note that ends too early")?;
        self.snapshots(head, record, start, |_| kept, replaced)
    }

    /// A SNAPSHOT has no flags, so that what is left of a payload needs another record.
    fn own_snapshot(
        &self,
        head: RecordHead,
        record: &[u8],
        function: Option<&Signature>,
        replaced: &mut Replaced,
    ) -> Result<Option<(RecordHead, Vec<u8>)>, String> {
        let length = record.len().saturating_sub(head.snapshot_padding());
        let bytes = record.get(..length).unwrap_or(record);
        let snapshot = SnapshotHead {
            parameter: head.detail,
            field: head.snapshot_field(),
            flags: 0,
            length: bytes.len() as u32,
        };
        let kept = self.kept_of(function, Side::Enter, &snapshot);
        let mut out = Vec::new();
        let is_other = self.snapshot(&mut out, snapshot, bytes, kept, replaced)?;
        let head = RecordHead {
            kind: record_kind::NOTE,
            detail: 0,
            function: note_kind::SNAPSHOTS,
            ..head
        };
        Ok(is_other.then_some((head, out)))
    }

    /// So does a LEAVE_VALUE, and the time of the call's return in full.
    fn leave_value(
        &self,
        head: RecordHead,
        record: &[u8],
        entry: &impl Fn() -> Option<Entry>,
        replaced: &mut Replaced,
    ) -> Result<Option<(RecordHead, Vec<u8>)>, String> {
        // Without its ENTER no reader looks at it.
        let Some(entry) = entry() else {
            return Ok(None);
        };
        let function = self.trace.signatures().function(entry.function);
        let bytes = record
            .get(..head.value_bytes())
            .ok_or("a LEAVE_VALUE that is too short")?;
        let snapshot = SnapshotHead {
            parameter: head.value_parameter(),
            field: field::POINTEE,
            flags: 0,
            length: bytes.len() as u32,
        };
        let kept = self.kept_of(function, Side::Leave, &snapshot);
        let mut out = codec::encode_to_vec(LeaveHead {
            ticks: entry.ticks.wrapping_add(head.value_ticks()),
            result: 0,
        });
        let is_other = self.snapshot(&mut out, snapshot, bytes, kept, replaced)?;
        let head = RecordHead {
            kind: record_kind::LEAVE,
            detail: 0,
            function: entry.function,
            ..head
        };
        Ok(is_other.then_some((head, out)))
    }

    /// A record whose snapshots begin at `start`.
    fn snapshots(
        &self,
        head: RecordHead,
        record: &[u8],
        start: usize,
        kept: impl Fn(&SnapshotHead) -> PayloadPolicy,
        replaced: &mut Replaced,
    ) -> Result<Option<(RecordHead, Vec<u8>)>, String> {
        let (before, mut rest) = record.split_at_checked(start).ok_or("it ends too early")?;
        let mut out = before.to_vec();
        let mut is_other = false;
        while let Some((place, behind)) = rest.split_first_chunk::<SNAPSHOT_HEAD_LENGTH>() {
            let snapshot = SnapshotHead::read(*place);
            let (bytes, behind) = behind
                .split_at_checked(snapshot.length as usize)
                .ok_or("a malformed snapshot")?;
            is_other |= self.snapshot(&mut out, snapshot, bytes, kept(&snapshot), replaced)?;
            rest = behind;
        }
        Ok(is_other.then_some((head, out)))
    }

    /// Puts a snapshot with what is kept of it; whether that is less than was there.
    fn snapshot(
        &self,
        out: &mut Vec<u8>,
        head: SnapshotHead,
        raw: &[u8],
        kept: PayloadPolicy,
        replaced: &mut Replaced,
    ) -> Result<bool, String> {
        let flagged = [&codec::encode_to_vec(head)[..], raw].concat();
        let bytes = Snapshots::new(&flagged)
            .next()
            .ok_or("a malformed snapshot")?
            .bytes;
        let length = match bytes {
            Bytes::Inline(&[]) | Bytes::Omitted(_) | Bytes::Unreadable => None,
            Bytes::Hashed(length, _) if kept == PayloadPolicy::None => Some(length),
            Bytes::Hashed(..) => None,
            Bytes::Inline(_) | Bytes::Blob(_) | Bytes::InFile(_) => bytes.length(),
        };
        let Some(length) = length.filter(|_| kept != PayloadPolicy::All) else {
            out.extend_from_slice(&flagged);
            return Ok(false);
        };
        let hash: Option<[u8; 16]> = match (kept, self.trace.resolve(bytes)) {
            (PayloadPolicy::Hash, Ok(bytes)) => {
                blake3::hash(&bytes).as_bytes().first_chunk().copied()
            }
            // A part of a file that is gone, or, where a damaged trace is repaired, a blob.
            (PayloadPolicy::Hash, Err(damage)) if self.whole && damage.position != 0 => {
                return Err(damage.what);
            }
            _ => None,
        };
        let (flag, left) = match hash {
            Some(hash) => (snapshot_flag::HASHED, codec::encode_to_vec((length, hash))),
            None => (snapshot_flag::OMITTED, codec::encode_to_vec(length)),
        };
        const OTHERS: u16 = snapshot_flag::TRUNCATED | snapshot_flag::UNCHANGED;
        out.extend(codec::encode_to_vec(SnapshotHead {
            flags: head.flags & OTHERS | flag,
            length: left.len() as u32,
            ..head
        }));
        out.extend(left);
        replaced.payloads += 1;
        replaced.bytes += length;
        Ok(true)
    }

    /// What is kept of a snapshot of a call.
    fn kept_of(
        &self,
        function: Option<&Signature>,
        side: Side,
        snapshot: &SnapshotHead,
    ) -> PayloadPolicy {
        let parameter =
            function.and_then(|function| function.parameters.get(usize::from(snapshot.parameter)));
        let role = match side {
            Side::Enter => "host read",
            Side::Leave => "host write",
        };
        let is_payload = match snapshot.field {
            // Of a call that is lost it is not known.
            field::POINTEE => parameter.is_none_or(|parameter| parameter.role.starts_with(role)),
            // Behind an array of pointers are the answers of a query.
            field::HOST_BYTES => {
                side == Side::Enter
                    || parameter.is_none_or(|parameter| parameter.c_type != "void **")
            }
            _ => false,
        };
        match side {
            _ if !is_payload => PayloadPolicy::All,
            Side::Enter => self.kept.payloads,
            Side::Leave => self.kept.outputs,
        }
    }

    /// The last call that a chunk's thread has entered before that chunk.
    fn entered_before(&self, chunk: usize) -> Option<Entry> {
        let thread = self.trace.chunk_head(chunk).thread as usize;
        let chunks = self.trace.threads.get(thread)?;
        let place = chunks.iter().position(|&other| other == chunk)?;
        chunks.get(..place)?.iter().rev().find_map(|&earlier| {
            let body = self.trace.load(earlier).ok()?;
            let (_, head, record) = records(&body)
                .filter(|(_, head, _)| record_kind::is_enter(head.kind))
                .last()?;
            let entered = Entered::read(self.trace, head, record)?;
            Some(Entry {
                function: head.function,
                ticks: entered.head.ticks,
            })
        })
    }
}

fn put_record(out: &mut Vec<u8>, head: RecordHead, record: &[u8]) {
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
