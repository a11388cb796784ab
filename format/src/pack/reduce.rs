//! Leaving payloads out of a body of calls: a hash or a length takes the place of the bytes.
//!
//! The trace's own signature table tells which snapshots are payloads; `SPEC.md` has the list.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};

use crate::codec;
use crate::layout::{
    ChunkHead, LeaveHead, MINOR, ReadbackNote, RecordHead, SnapshotHead, field, note_kind,
    record_kind, snapshot_flag,
};
use crate::pack::change::{CallChange, CallPart, NewBytes, changed};
use crate::pack::record::put_record;
use crate::pack::redact::{ChangedNote, Redactor};
use crate::payload_policy::{PayloadPolicies, PayloadPolicy};
use crate::read::error::Damage;
use crate::read::record::{Enter, encoded_snapshots, records};
use crate::read::signature::Signature;
use crate::read::snapshot::{Bytes, RawSnapshots};
use crate::read::trace::Trace;

/// What was left out.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Replaced {
    /// How many payloads.
    pub(crate) payloads: u64,
    /// Their bytes.
    pub(crate) bytes: u64,
}

/// Changes of calls, by thread and number.
pub(crate) type Changes = HashMap<(u32, u64), CallChange>;

/// The bytes of blobs that snapshots got, by the name of the blob.
pub(crate) type NewBlobs = BTreeMap<u64, NewBytes>;

/// Rewrites bodies so that payloads are kept by the policies, and calls are changed.
pub(crate) struct Reduction<'t> {
    trace: &'t Trace,
    policies: PayloadPolicies,
    changes: Option<&'t Changes>,
    redactor: Option<Redactor<'t>>,
    /// Of the records so far.
    blobs: Mutex<NewBlobs>,
    /// A record that cannot be interpreted is an error; otherwise it is left out.
    is_whole: bool,
}

/// What decides whether a snapshot is a payload.
#[derive(Clone, Copy)]
enum Rule<'t> {
    /// The parameter of the function, if it is known.
    Parameter(Option<&'t Signature>, CallPart),
    /// It is one: data for the device, or from it.
    Always(CallPart),
}

impl Rule<'_> {
    /// Where the payload goes, if a snapshot is one.
    fn payload(self, snapshot: &SnapshotHead) -> Option<CallPart> {
        let (parameter, field) = (snapshot.parameter, snapshot.field);
        match self {
            Self::Always(part) => Some(part),
            Self::Parameter(function, part) => {
                is_payload(function, part, parameter, field).then_some(part)
            }
        }
    }
}

/// The call that a record without a function belongs to.
#[derive(Clone, Copy)]
struct EnteredCall {
    function: u16,
    ticks: u64,
}

/// What is left of a record.
enum Outcome {
    Kept,
    Replaced(RecordHead, Vec<u8>),
    Removed,
}

impl Outcome {
    /// This record, if it is another one.
    fn of(head: RecordHead, record: Vec<u8>, is_replaced: bool) -> Self {
        match is_replaced {
            true => Self::Replaced(head, record),
            false => Self::Kept,
        }
    }
}

/// What a packed trace keeps: no more than is asked for, and no more than its recorder was told.
pub(crate) fn effective(trace: &Trace, asked: PayloadPolicies) -> PayloadPolicies {
    // A trace recorded without payloads has none; only hashing is left to `pack`.
    let recorded = |key| match recorded_policy(trace, key) {
        PayloadPolicy::Hash => PayloadPolicy::Hash,
        _ => PayloadPolicy::All,
    };
    PayloadPolicies {
        payloads: asked.payloads.max(recorded("payloads")),
        outputs: asked.outputs.max(recorded("outputs")),
        ..asked
    }
}

fn recorded_policy(trace: &Trace, key: &str) -> PayloadPolicy {
    let word = trace.meta_value(key).unwrap_or_default();
    PayloadPolicy::from_word(word.as_bytes()).unwrap_or_default()
}

/// The meta entries that change.
pub(crate) fn meta(trace: &Trace, policies: PayloadPolicies) -> Vec<(String, String)> {
    let PayloadPolicies {
        payloads, outputs, ..
    } = policies;
    [("payloads", payloads), ("outputs", outputs)]
        .into_iter()
        .filter(|&(key, policy)| policy > recorded_policy(trace, key))
        .map(|(key, policy)| (key.to_owned(), policy.word().to_owned()))
        .collect()
}

impl<'t> Reduction<'t> {
    /// `None` if all payloads are kept and nothing changes. The error says why payloads cannot be
    /// found.
    pub(crate) fn new(
        trace: &'t Trace,
        policies: PayloadPolicies,
        changes: Option<&'t Changes>,
        redactor: Option<Redactor<'t>>,
        is_whole: bool,
    ) -> Result<Option<Self>, String> {
        let changes = changes.filter(|changes| !changes.is_empty());
        let keeps_all =
            [policies.payloads, policies.outputs] == [PayloadPolicy::All; 2] && redactor.is_none();
        if keeps_all && changes.is_none() {
            return Ok(None);
        }
        let minor = trace.head().minor;
        if minor > MINOR && is_whole {
            return Err(format!(
                "it is of version 1.{minor}, in which payloads may be where this build (1.{MINOR}) \
                 does not look; use the version that recorded it"
            ));
        }
        Ok(Some(Self {
            trace,
            policies,
            changes,
            redactor,
            blobs: Mutex::default(),
            is_whole,
        }))
    }

    /// What removes secrets.
    pub(crate) fn redactor(&self) -> Option<&Redactor<'t>> {
        self.redactor.as_ref()
    }

    /// The blobs that snapshots of all bodies got.
    pub(crate) fn take_blobs(&self) -> NewBlobs {
        std::mem::take(&mut self.blobs.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The records of a chunk's body without the payloads that are not kept.
    pub(crate) fn body(&self, chunk: usize, body: &[u8]) -> Result<(Vec<u8>, Replaced), Damage> {
        let mut out = Vec::with_capacity(body.len());
        let mut replaced = Replaced::default();
        // Searched when a record needs the call in progress where the chunk begins.
        let before = OnceCell::new();
        let mut entered = None;
        let ChunkHead { thread, first, .. } = self.trace.chunk(chunk).head;
        let mut next = first;
        let mut has_snapshot = false;
        for (at, head, record) in records(body) {
            if record_kind::is_enter(head.kind) {
                entered = self.entered_call(head, record);
                next = next.saturating_add(1);
                has_snapshot = false;
            }
            // A reader takes the last SNAPSHOT of a call; as a note it would come before others.
            let is_second =
                head.kind == record_kind::SNAPSHOT && std::mem::replace(&mut has_snapshot, true);
            let call = || entered.or_else(|| *before.get_or_init(|| self.entered_before(chunk)));
            // Records before the first ENTER are of the call before.
            let number = next.checked_sub(1);
            let change = number.and_then(|number| self.change(thread, number));
            let reduced = match is_second {
                true => Err("a second SNAPSHOT of a call".to_owned()),
                false => self.record(head, record, &call, change, &mut replaced),
            };
            match reduced {
                Ok(Outcome::Replaced(head, record)) => put_record(&mut out, head, &record),
                Ok(Outcome::Kept) => put_record(&mut out, head, record),
                Ok(Outcome::Removed) => {}
                Err(what) if self.is_whole => {
                    let what = format!("{what}, in the record {at} bytes into a chunk of calls");
                    return Err(Damage::new(self.trace.chunk(chunk).position, what));
                }
                Err(_) => {}
            }
        }
        Ok((out, replaced))
    }

    fn change(&self, thread: u32, number: u64) -> Option<&CallChange> {
        self.changes?.get(&(thread, number))
    }

    /// The change of the copy whose bytes a READBACK note has.
    fn change_of_readback(&self, record: &[u8]) -> Option<&CallChange> {
        let (note, _) = codec::decode::<ReadbackNote>(record)?;
        self.change(note.thread, note.number)
    }

    fn record(
        &self,
        head: RecordHead,
        record: &[u8],
        call: &impl Fn() -> Option<EnteredCall>,
        change: Option<&CallChange>,
        replaced: &mut Replaced,
    ) -> Result<Outcome, String> {
        let signatures = self.trace.signatures();
        let mut is_replaced = false;
        let redacted = self.redactor().filter(|_| head.is_note());
        let redacted = redacted.map(|redactor| redactor.note(head.function, record));
        let record = match &redacted {
            Some(ChangedNote::Removed) => return Ok(Outcome::Removed),
            Some(ChangedNote::Kept(note)) => {
                is_replaced = matches!(note, Cow::Owned(_));
                note
            }
            None => record,
        };
        let named = || {
            let named = signatures.function(head.function);
            named.ok_or_else(|| format!("a call of the unknown number {}", head.function))
        };
        let of_call = || call().and_then(|call| signatures.function(call.function));
        let rule = match (head.kind, head.function) {
            (record_kind::ENTER | record_kind::ENTER_SHORT, _) => {
                Rule::Parameter(Some(named()?), CallPart::Enter)
            }
            (record_kind::LEAVE, _) => Rule::Parameter(Some(named()?), CallPart::Leave),
            (record_kind::NOTE, note_kind::SNAPSHOTS) => {
                Rule::Parameter(of_call(), CallPart::Enter)
            }
            (record_kind::NOTE, note_kind::READBACK | note_kind::HOST_SEEN) => {
                Rule::Always(CallPart::Leave)
            }
            (
                record_kind::NOTE,
                note_kind::HOST_CHANGED | note_kind::MEMORY | note_kind::EXCHANGE_OUTPUT,
            ) => Rule::Always(CallPart::Enter),
            (record_kind::NOTE | record_kind::LEAVE_SHORT, _) => {
                return Ok(Outcome::of(head, record.to_vec(), is_replaced));
            }
            (record_kind::SNAPSHOT, _) => {
                return self.single_snapshot(head, record, of_call(), change, replaced);
            }
            (record_kind::LEAVE_VALUE, _) => {
                return self.leave_value(head, record, call, change, replaced);
            }
            (kind, _) => return Err(format!("the unknown kind {kind}")),
        };
        let encoded = encoded_snapshots(head, record, signatures).ok_or("it ends too early")?;
        let before = record.get(..record.len() - encoded.len());
        let mut head = head;
        let mut out = before.unwrap_or(&[]).to_vec();
        if record_kind::is_enter(head.kind)
            && let Some(change) = self.changed_arguments(named()?, change).as_deref()
        {
            let start = self.trace.head().start_ticks;
            let changed = change.enter(named()?, start, head, record);
            (head, out) = changed.ok_or("arguments that cannot be changed")?;
            is_replaced = true;
        }
        let mut snapshots = RawSnapshots::new(encoded);
        for (snapshot, bytes) in snapshots.by_ref() {
            let new = match rule {
                Rule::Parameter(_, part) => change.and_then(|change| change.bytes(part, &snapshot)),
                Rule::Always(CallPart::Leave) => self
                    .change_of_readback(record)
                    .and_then(CallChange::readback),
                Rule::Always(CallPart::Enter) => None,
            };
            is_replaced |= self.snapshot(&mut out, snapshot, bytes, (rule, new), replaced)?;
        }
        if snapshots.is_cut() {
            return Err("a malformed snapshot".into());
        }
        Ok(Outcome::of(head, out, is_replaced))
    }

    /// The change of a call, if arguments are among it.
    fn changed_arguments<'c>(
        &self,
        function: &Signature,
        change: Option<&'c CallChange>,
    ) -> Option<Cow<'c, CallChange>> {
        let redacted = || self.redactor()?.arguments(function).map(Cow::Owned);
        let change = change.filter(|change| !change.arguments.is_empty());
        change.map(Cow::Borrowed).or_else(redacted)
    }

    /// A SNAPSHOT has no flags, so what is left of a payload needs another record.
    fn single_snapshot(
        &self,
        head: RecordHead,
        record: &[u8],
        function: Option<&Signature>,
        change: Option<&CallChange>,
        replaced: &mut Replaced,
    ) -> Result<Outcome, String> {
        let length = record.len().saturating_sub(head.snapshot_padding());
        let snapshot = SnapshotHead {
            parameter: head.detail,
            field: head.snapshot_field(),
            flags: 0,
            length: length as u32,
        };
        let bytes = record.get(..length).unwrap_or(record);
        let rule = Rule::Parameter(function, CallPart::Enter);
        let new = change.and_then(|change| change.bytes(CallPart::Enter, &snapshot));
        let mut out = Vec::new();
        let is_replaced = self.snapshot(&mut out, snapshot, bytes, (rule, new), replaced)?;
        let head = RecordHead {
            kind: record_kind::NOTE,
            detail: 0,
            function: note_kind::SNAPSHOTS,
            ..head
        };
        Ok(Outcome::of(head, out, is_replaced))
    }

    /// The same for a LEAVE_VALUE, whose ticks count from the ENTER.
    fn leave_value(
        &self,
        head: RecordHead,
        record: &[u8],
        call: &impl Fn() -> Option<EnteredCall>,
        change: Option<&CallChange>,
        replaced: &mut Replaced,
    ) -> Result<Outcome, String> {
        // Without its ENTER no reader looks at it.
        let Some(call) = call() else {
            return Ok(Outcome::Kept);
        };
        let function = self.trace.signatures().function(call.function);
        let bytes = record
            .get(..head.value_bytes())
            .ok_or("a LEAVE_VALUE that is too short")?;
        let snapshot = SnapshotHead {
            parameter: head.value_parameter(),
            field: field::POINTEE,
            flags: 0,
            length: bytes.len() as u32,
        };
        let mut out = codec::encode_to_vec(LeaveHead {
            ticks: call.ticks.wrapping_add(head.value_ticks()),
            result: 0,
        });
        let rule = Rule::Parameter(function, CallPart::Leave);
        let new = change.and_then(|change| change.bytes(CallPart::Leave, &snapshot));
        let is_replaced = self.snapshot(&mut out, snapshot, bytes, (rule, new), replaced)?;
        let head = RecordHead {
            kind: record_kind::LEAVE,
            detail: 0,
            function: call.function,
            ..head
        };
        Ok(Outcome::of(head, out, is_replaced))
    }

    /// Appends what is kept of a snapshot; whether that is less than there was.
    fn snapshot(
        &self,
        out: &mut Vec<u8>,
        head: SnapshotHead,
        raw: &[u8],
        (rule, new): (Rule<'_>, Option<&NewBytes>),
        replaced: &mut Replaced,
    ) -> Result<bool, String> {
        let bytes = Bytes::decode(head.flags, raw).ok_or("a malformed snapshot")?;
        let redacted = match new {
            None => self.redacted(rule, &head, bytes),
            Some(_) => None,
        };
        let new = new.or(redacted.as_ref());
        if let Some((flags, stored)) = new.and_then(|new| changed(new, head.flags, raw, bytes)) {
            if let Some((new, blob)) = new.and_then(|new| Some((new, new.blob()?))) {
                let blobs = self.blobs.lock();
                let mut blobs = blobs.unwrap_or_else(PoisonError::into_inner);
                blobs.entry(blob.position).or_insert_with(|| new.clone());
            }
            out.extend(codec::encode_to_vec(SnapshotHead {
                flags,
                length: stored.len() as u32,
                ..head
            }));
            out.extend(stored);
            return Ok(true);
        }
        let policy = self.policy(rule, &head);
        let length = match bytes {
            Bytes::Inline(&[]) | Bytes::Omitted(_) | Bytes::Unreadable => None,
            Bytes::Hashed(..) if policy == PayloadPolicy::Hash => None,
            _ => bytes.length(),
        };
        let Some(length) = length.filter(|_| policy != PayloadPolicy::All) else {
            out.extend(codec::encode_to_vec(head));
            out.extend_from_slice(raw);
            return Ok(false);
        };
        let hash: Option<[u8; 16]> = match (policy, self.trace.resolve(bytes)) {
            (PayloadPolicy::Hash, Ok(bytes)) => {
                blake3::hash(&bytes).as_bytes().first_chunk().copied()
            }
            // Otherwise a part of a file that is gone or, in a repair, a damaged blob.
            (PayloadPolicy::Hash, Err(damage)) if self.is_whole && damage.position != 0 => {
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

    /// What takes the place of secret bytes.
    fn redacted(&self, rule: Rule<'_>, head: &SnapshotHead, bytes: Bytes<'_>) -> Option<NewBytes> {
        let redactor = self.redactor()?;
        if matches!(bytes, Bytes::Omitted(_) | Bytes::Unreadable) {
            return None;
        }
        let resolve = |bytes| self.trace.resolve(bytes).ok();
        match (rule.payload(head), rule) {
            (Some(part), _) if redactor.omits_payloads() => redactor.payload(part, bytes, resolve),
            (Some(_), _) | (_, Rule::Always(_)) => redactor.of_file(bytes, resolve),
            (_, Rule::Parameter(function, _)) => redactor.bytes(function, head, bytes, resolve),
        }
    }

    fn policy(&self, rule: Rule<'_>, snapshot: &SnapshotHead) -> PayloadPolicy {
        match rule.payload(snapshot) {
            None => PayloadPolicy::All,
            Some(CallPart::Enter) => self.policies.payloads,
            Some(CallPart::Leave) => self.policies.outputs,
        }
    }

    fn entered_call(&self, head: RecordHead, record: &[u8]) -> Option<EnteredCall> {
        let known = self.trace.signatures().function(head.function);
        let enter = Enter::read(known, self.trace.head().start_ticks, head, record)?;
        Some(EnteredCall {
            function: head.function,
            ticks: enter.head.ticks,
        })
    }

    /// The last call that a chunk's thread has entered before that chunk.
    fn entered_before(&self, chunk: usize) -> Option<EnteredCall> {
        let chunks = self
            .trace
            .thread_chunks(self.trace.chunk(chunk).head.thread);
        let earlier = chunks
            .iter()
            .rev()
            .skip_while(|&&other| other != chunk)
            .skip(1);
        earlier.into_iter().find_map(|&earlier| {
            let body = self.trace.load(earlier).ok()?;
            let (_, head, record) = records(&body)
                .filter(|(_, head, _)| record_kind::is_enter(head.kind))
                .last()?;
            self.entered_call(head, record)
        })
    }
}

/// Whether a snapshot of a call is a payload: data for the device, or from it. If the function is
/// unknown, its call is lost and the bytes may be one.
pub fn is_payload(
    function: Option<&Signature>,
    part: CallPart,
    parameter: u8,
    field_number: u8,
) -> bool {
    let parameter = function.and_then(|it| it.parameters.get(usize::from(parameter)));
    let role = match part {
        CallPart::Enter => "host read",
        CallPart::Leave => "host write",
    };
    match field_number {
        field::POINTEE => parameter.is_none_or(|parameter| parameter.role.starts_with(role)),
        // An array of pointers leads to the answers of a query.
        field::HOST_BYTES => {
            part == CallPart::Enter
                || parameter.is_none_or(|parameter| parameter.c_type != "void **")
        }
        _ => false,
    }
}
