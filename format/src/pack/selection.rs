//! Leaving calls out of a trace: the records of the others stay as they are.
//!
//! Notes belong to calls, and some say what later calls need: those move to the next call that is
//! kept. `SPEC.md` has the list.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use crate::codec;
use crate::layout::{
    ChunkHead, ExchangeOutputNote, GapNote, HostChangedNote, Mapping, MemoryNote,
    MemorySnapshotNote, OriginNote, RECORD_HEAD_LENGTH, ReadbackNote, RecordHead, chunk_kind,
    memory_snapshot, note_kind, record_kind,
};
use crate::pack::change::CallChange;
use crate::pack::record::put_record;
use crate::pack::reduce::Changes;
use crate::read::call::Call;
use crate::read::error::Error;
use crate::read::memory_snapshots::snapshot_notes;
use crate::read::note::Note;
use crate::read::positions::CallPositions;
use crate::read::record::records;
use crate::read::stack::StackFrame;
use crate::read::trace::Trace;

/// Which calls of a trace to keep.
pub struct CallSelection<'a> {
    /// Whether a call is kept, by its index.
    pub keeps: &'a dyn Fn(u64) -> bool,
    /// Whether the host memory at an address, as a call finds it, is of a kept call.
    pub keeps_host_memory: &'a dyn Fn(u64, u64) -> bool,
    /// How kept calls change, by index.
    pub changes: &'a BTreeMap<u64, CallChange>,
    /// Whether contents of memory that a note of a call has are kept.
    pub keeps_memory: &'a dyn Fn(u64, &MemoryNote) -> bool,
    /// A call that is kept, before which calls are missing from now on.
    pub gap: Option<(u64, GapNote)>,
}

/// The enum of the codes that calls return, which a function's line names only as its type.
const RESULTS: &str = "CUresult";

/// The number in its thread of a call that is left out.
const LEFT_OUT: u64 = u64::MAX;

/// What of a trace is written.
#[derive(Debug, Default)]
pub(crate) struct Selection {
    positions: CallPositions,
    /// By thread and position: the number among the kept calls of the thread.
    numbers: Vec<Vec<u64>>,
    /// How many calls of each thread are kept.
    kept: Vec<u64>,
    /// Encoded notes of earlier calls, by thread and number of the kept call that gets them.
    moved: HashMap<(u32, u64), Vec<u8>>,
    functions: HashSet<u16>,
    /// The ids of the stacks of kept calls, and of the code in these.
    stacks: HashSet<u64>,
    codes: HashSet<u64>,
    /// Calls whose digests are of memory that their own notes have, by thread and number.
    digested: HashSet<(u32, u64)>,
    /// How calls change.
    pub(crate) changes: Changes,
    /// The callers of kept calls, and the return addresses in their stacks.
    addresses: BTreeSet<u64>,
}

impl Selection {
    /// How many calls there are.
    pub(crate) fn count(&self) -> u64 {
        self.kept.iter().sum()
    }

    /// Reads all calls once. `memory` has the index of the call that gets further notes, and these.
    pub(crate) fn new(
        trace: &Trace,
        wanted: &CallSelection<'_>,
        memory: Option<(u64, &[u8])>,
    ) -> Result<Self, Error> {
        let mut selection = Self::default();
        let mut left = LeftNotes {
            snapshots: trace.memory_snapshots().taken,
            has_deep_launches: trace.has_deep_launches(),
            ..LeftNotes::default()
        };
        trace.walk().run(|call| {
            let added = memory.filter(|memory| memory.0 == call.index);
            let added = added.map_or(&[][..], |memory| memory.1);
            selection.add(call, wanted, &mut left, added);
            Ok::<_, Error>(())
        })?;
        selection.move_outputs(&left.outputs);
        for &id in &selection.stacks {
            for frame in trace.stack(id).unwrap_or_default().frames {
                match frame {
                    StackFrame::Native(address) => _ = selection.addresses.insert(address),
                    StackFrame::Python { code, .. } => _ = selection.codes.insert(code),
                }
            }
        }
        Ok(selection)
    }

    fn add(
        &mut self,
        call: &Call<'_>,
        wanted: &CallSelection<'_>,
        left: &mut LeftNotes,
        memory: &[u8],
    ) {
        let thread = call.thread as usize;
        if self.numbers.len() <= thread {
            self.numbers.resize_with(thread + 1, Vec::new);
            self.kept.resize(thread + 1, 0);
        }
        let is_kept = (wanted.keeps)(call.index);
        if let (Some(numbers), Some(kept)) =
            (self.numbers.get_mut(thread), self.kept.get_mut(thread))
        {
            self.positions.add(call.thread, call.number);
            numbers.push(if is_kept { *kept } else { LEFT_OUT });
            *kept += u64::from(is_kept);
        }
        if !is_kept {
            left.add(call, wanted);
            left.add_outputs(call, |thread, number| {
                self.new_number(thread, number) == Some(LEFT_OUT)
            });
            return;
        }
        if let Some(change) = wanted.changes.get(&call.index) {
            let key = (call.thread, call.number);
            self.changes.insert(key, change.clone());
        }
        self.functions.insert(call.signature.id);
        self.addresses.insert(call.caller);
        self.stacks.extend(call.stack());
        if call.has_notes() && left.add_memory(call, wanted) {
            self.digested.insert((call.thread, call.number));
        }
        if let Some((_, gap)) = wanted.gap.filter(|gap| gap.0 == call.index) {
            left.gap = Some(gap);
        }
        let mut moved = left.take(call);
        moved.extend_from_slice(memory);
        if !moved.is_empty() {
            self.moved.insert((call.thread, call.number), moved);
        }
    }

    /// Gives kept exchanges the bytes that they changed and that calls have which are left out.
    fn move_outputs(&mut self, outputs: &[(ExchangeOutputNote, Vec<u8>)]) {
        for (note, record) in outputs {
            let key = (note.thread, note.number);
            let head = note_head(note_kind::EXCHANGE_OUTPUT);
            if let Some(record) = self.kept_record(head, record) {
                put_record(self.moved.entry(key).or_default(), head, &record);
            }
        }
    }

    fn number(&self, thread: u32, number: u64) -> Option<u64> {
        let new = self.new_number(thread, number);
        new.filter(|&new| new != LEFT_OUT)
    }

    /// The same, or `LEFT_OUT`; `None` if there was no such call.
    fn new_number(&self, thread: u32, number: u64) -> Option<u64> {
        let numbers = self.numbers.get(thread as usize)?;
        numbers.get(self.positions.of(thread, number)?).copied()
    }

    /// How many calls of a thread are kept before the one of that number.
    pub(crate) fn kept_before(&self, thread: u32, number: u64) -> u64 {
        let numbers = self.numbers.get(thread as usize);
        let before = self.positions.before(thread, number);
        let numbers = numbers.and_then(|all| all.get(..before)).unwrap_or(&[]);
        let last = numbers.iter().rev().find(|&&number| number != LEFT_OUT);
        last.map_or(0, |last| last + 1)
    }

    /// A body that is not of calls.
    pub(crate) fn table<'b>(&self, kind: u16, body: Cow<'b, [u8]>) -> Cow<'b, [u8]> {
        match kind {
            chunk_kind::SIGNATURES => Cow::Owned(self.signatures(&body)),
            _ => body,
        }
    }

    /// The records of a chunk that belong to kept calls.
    pub(crate) fn calls(&self, chunk: &ChunkHead, body: &[u8]) -> Vec<u8> {
        let (thread, first) = (chunk.thread, chunk.first);
        let mut out = Vec::new();
        let mut next = first;
        // Records before the first ENTER are of the call before.
        let mut is_kept = first > 0 && self.number(thread, first - 1).is_some();
        for (_, head, record) in records(body) {
            if record_kind::is_enter(head.kind) {
                is_kept = self.number(thread, next).is_some();
                if is_kept {
                    put_record(&mut out, head, record);
                    let moved = self.moved.get(&(thread, next));
                    out.extend_from_slice(moved.map_or(&[], Vec::as_slice));
                }
                next = next.saturating_add(1);
            } else if is_digest(head) && self.digested.contains(&(thread, next.wrapping_sub(1))) {
                put_record(&mut out, head, record);
            } else if is_kept && let Some(record) = self.kept_record(head, record) {
                put_record(&mut out, head, &record);
            }
        }
        out
    }

    /// A record of a kept call; `None` if it says something about calls that are left out.
    fn kept_record<'r>(&self, head: RecordHead, record: &'r [u8]) -> Option<Cow<'r, [u8]>> {
        if head.kind != record_kind::NOTE {
            return Some(Cow::Borrowed(record));
        }
        match head.function {
            note_kind::READBACK => {
                let (note, used) = codec::decode::<ReadbackNote>(record)?;
                let number = self.number(note.thread, note.number)?;
                let mut moved = codec::encode_to_vec(ReadbackNote { number, ..note });
                moved.extend_from_slice(record.get(used..)?);
                Some(Cow::Owned(moved))
            }
            note_kind::EXCHANGE_OUTPUT => {
                let (note, used) = codec::decode::<ExchangeOutputNote>(record)?;
                let number = self.number(note.thread, note.number)?;
                let mut moved = codec::encode_to_vec(ExchangeOutputNote { number, ..note });
                moved.extend_from_slice(record.get(used..)?);
                Some(Cow::Owned(moved))
            }
            // `add` has moved those that are kept.
            note_kind::MEMORY | note_kind::MEMORY_SNAPSHOT => None,
            // What memory held depends on all calls.
            note_kind::DIGEST
            | note_kind::DIGEST_VALUES
            | note_kind::DIGEST_SKIPPED
            | note_kind::DIGEST_VOID => None,
            _ => Some(Cow::Borrowed(record)),
        }
    }

    /// Whether a kept call comes from an address.
    pub(crate) fn has_address(&self, address: u64) -> bool {
        self.addresses.contains(&address)
    }

    /// The parts of the memory map that hold such an address.
    pub(crate) fn mappings(&self, all: &[Mapping]) -> Vec<Mapping> {
        let holds = |map: &&Mapping| {
            let after = self.addresses.range(map.start..).next();
            after.is_some_and(|&address| address < map.end)
        };
        all.iter().filter(holds).cloned().collect()
    }

    /// The records of the stacks that kept calls have, and of the code in them.
    pub(crate) fn stack_records(&self, all: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        for (_, head, record) in records(all) {
            let id = record.first_chunk().map(|id| u64::from_le_bytes(*id));
            let ids = match head.function {
                note_kind::FRAMES => &self.stacks,
                _ => &self.codes,
            };
            if id.is_some_and(|id| ids.contains(&id)) {
                put_record(&mut out, head, record);
            }
        }
        out
    }

    /// The signature table with the functions of kept calls, and the types that these name.
    fn signatures(&self, text: &[u8]) -> Vec<u8> {
        match std::str::from_utf8(text) {
            Ok(text) => signatures_of(text, |id| self.functions.contains(&id)).into_bytes(),
            // Not a table that a reader understands.
            Err(_) => text.to_vec(),
        }
    }
}

/// The lines of the chosen functions, of the enums and structs that these or a member of such a
/// struct name, of results, and of kinds that this version does not know.
fn signatures_of(text: &str, is_kept: impl Fn(u16) -> bool) -> String {
    let mut types: HashMap<&str, &str> = HashMap::new();
    let mut kept = HashSet::from([RESULTS]);
    let mut open: Vec<&str> = Vec::new();
    let is_kept = |id: &str| id.parse().is_ok_and(&is_kept);
    for line in text.lines() {
        let mut words = line.split('\t');
        match (words.next(), words.next()) {
            (Some("enum" | "struct"), Some(name)) => _ = types.insert(name, line),
            (Some("function"), Some(id)) if is_kept(id) => open.push(line),
            _ => {}
        }
    }
    while let Some(line) = open.pop() {
        let identifiers = line.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
        for name in identifiers {
            if let Some(named) = types.get(name)
                && kept.insert(name)
            {
                open.push(named);
            }
        }
    }
    let lines = text.split_inclusive('\n').filter(|line| {
        let mut words = line.trim_end_matches('\n').split('\t');
        match (words.next(), words.next()) {
            (Some("enum" | "struct"), Some(name)) => kept.contains(name),
            (Some("function"), Some(id)) => is_kept(id),
            _ => true,
        }
    });
    lines.collect()
}

/// Notes of calls that were left out, until a kept call gets them.
#[derive(Debug, Default)]
struct LeftNotes {
    /// Number and name of a thread whose first call was left out.
    threads: BTreeMap<u32, Vec<u8>>,
    /// Layouts and origins by function, in order.
    functions: BTreeMap<u64, Vec<u8>>,
    /// What host memory held, and where: the address and the end of each note.
    host: Vec<(u64, u64, Vec<u8>)>,
    /// What memory held, as a replay or the recorder had read it.
    memory: Vec<u8>,
    /// The recorder has noted what some launches reach.
    has_deep_launches: bool,
    /// The snapshots of memory that count.
    snapshots: BTreeMap<u64, u64>,
    /// That calls are missing, which the recorder had left out: of all threads.
    gap: Option<GapNote>,
    /// What exchanges have changed. An exchange may be entered after the call that finds it
    /// complete: a wait of another thread.
    outputs: Vec<(ExchangeOutputNote, Vec<u8>)>,
}

impl LeftNotes {
    /// Adds what exchanges have changed, but for those that are known to be left out.
    fn add_outputs(&mut self, call: &Call<'_>, is_left_out: impl Fn(u32, u64) -> bool) {
        for &(kind, bytes) in &call.notes {
            if let Note::ExchangeOutput(note, _) = Note::read(kind, bytes)
                && !is_left_out(note.thread, note.number)
            {
                self.outputs.push((note, bytes.to_vec()));
            }
        }
    }

    fn add(&mut self, call: &Call<'_>, wanted: &CallSelection<'_>) {
        self.add_memory(call, wanted);
        for &(kind, bytes) in &call.notes {
            match (kind, Note::read(kind, bytes)) {
                (_, Note::Thread(_)) => put_note(self.threads.entry(call.thread), kind, bytes),
                (_, Note::Gap(gap)) => {
                    let before = self.gap.map_or(0, |gap| gap.calls);
                    let calls = gap.calls.saturating_add(before);
                    self.gap = Some(GapNote { calls, ..gap });
                }
                (_, Note::Layout(handle, _)) => {
                    put_note(self.functions.entry(handle), kind, bytes);
                }
                (_, Note::Origin(OriginNote { handle, .. }, _)) => {
                    put_note(self.functions.entry(handle), kind, bytes);
                }
                (_, Note::HostChanged(note, snapshot))
                    if (wanted.keeps_host_memory)(call.index, note.address) =>
                {
                    // The next kept call finds what this one left.
                    let Some((_, used)) = codec::decode::<HostChangedNote>(bytes) else {
                        continue;
                    };
                    let mut moved = codec::encode_to_vec(HostChangedNote {
                        is_after: 0,
                        ..note
                    });
                    moved.extend_from_slice(bytes.get(used..).unwrap_or(&[]));
                    let length = snapshot.bytes.length().unwrap_or(0);
                    let end = note.address.saturating_add(length);
                    self.add_host((note.address, end), kind, &moved);
                }
                (_, Note::HostSkipped(note))
                    if (wanted.keeps_host_memory)(call.index, note.address) =>
                {
                    self.add_host((note.address, note.address), kind, bytes);
                }
                _ => {}
            }
        }
    }

    /// Adds a note about host memory. Earlier ones of bytes that it tells again are superseded.
    fn add_host(&mut self, (start, end): (u64, u64), kind: u16, bytes: &[u8]) {
        let is_told_again = |from: u64, to: u64| from < to && start <= from && to <= end;
        self.host.retain(|&(from, to, _)| !is_told_again(from, to));
        let mut record = Vec::new();
        put_record(&mut record, note_head(kind), bytes);
        self.host.push((start, end, record));
    }

    /// Adds the notes of memory that a call has. True if they are about what the call reaches.
    fn add_memory(&mut self, call: &Call<'_>, wanted: &CallSelection<'_>) -> bool {
        let is_void = |note: MemorySnapshotNote| {
            note.state == memory_snapshot::TAKEN && !self.snapshots.contains_key(&note.number)
        };
        if snapshot_notes(call).any(is_void) {
            return false;
        }
        let before = self.memory.len();
        for &(kind, bytes) in &call.notes {
            let is_kept = match Note::read(kind, bytes) {
                Note::Memory(note, ..) => (wanted.keeps_memory)(call.index, &note),
                // It says that memory holds this anyway, unless calls are missing: where others are
                // left out, it no longer does.
                Note::MemorySnapshot(_) => {
                    let is_at = |gap: &(u64, GapNote)| call.index >= gap.0;
                    wanted.gap.as_ref().is_some_and(is_at)
                }
                _ => false,
            };
            if is_kept {
                put_record(&mut self.memory, note_head(kind), bytes);
            }
        }
        let is_of_all = snapshot_notes(call).next().is_some();
        self.has_deep_launches && !is_of_all && self.memory.len() != before
    }

    /// Those that a kept call gets, as records.
    fn take(&mut self, call: &Call<'_>) -> Vec<u8> {
        let mut taken = self.threads.remove(&call.thread).unwrap_or_default();
        if !self.functions.is_empty() {
            for position in 0..call.signature.parameters.len() {
                let notes = self.functions.remove(&call.argument(position));
                taken.extend(notes.unwrap_or_default());
            }
            // Nodes of graphs and launch configurations name functions in structs.
            for snapshot in call.snapshots() {
                let bytes = snapshot.bytes.inline().unwrap_or(&[]);
                for word in bytes.as_chunks::<8>().0 {
                    let notes = self.functions.remove(&u64::from_le_bytes(*word));
                    taken.extend(notes.unwrap_or_default());
                }
            }
        }
        let host = self.host.drain(..);
        taken.extend(host.flat_map(|(_, _, record)| record));
        taken.append(&mut self.memory);
        if let Some(gap) = self.gap.take() {
            let gap = codec::encode_to_vec(gap);
            put_record(&mut taken, note_head(note_kind::GAP), &gap);
        }
        taken
    }
}

fn is_digest(head: RecordHead) -> bool {
    let kinds = [
        note_kind::DIGEST,
        note_kind::DIGEST_VALUES,
        note_kind::DIGEST_VOID,
    ];
    head.kind == record_kind::NOTE && kinds.contains(&head.function)
}

fn note_head(kind: u16) -> RecordHead {
    RecordHead {
        length: RECORD_HEAD_LENGTH as u32,
        kind: record_kind::NOTE,
        detail: 0,
        function: kind,
    }
}

fn put_note<K: Ord>(
    entry: std::collections::btree_map::Entry<'_, K, Vec<u8>>,
    kind: u16,
    bytes: &[u8],
) {
    put_record(entry.or_default(), note_head(kind), bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_keep_the_types_that_they_name() {
        let table = "cutape-signatures\t1\n\
            enum\tCUresult\tCUDA_SUCCESS=0\n\
            enum\tCUkind\tCU_ONE=1\n\
            enum\tCUother\tCU_TWO=2\n\
            struct\tCUouter\t16\tinner:0:8:const CUinner *\tnumber:8:4:int\n\
            struct\tCUinner\t4\tkind:0:4:CUkind\n\
            struct\tCUout\t4\tkind:0:4:CUother\n\
            later\tx\n\
            function\t0\ta\ta\tS\tCUresult\tplain\tp|const CUouter *|u8|in\n\
            function\t7\tb\tb\tS\tCUresult\tplain\tp|CUother|u4|value\n";
        let first = |line: &str| {
            let words: Vec<&str> = line.split('\t').take(2).collect();
            words.join(" ")
        };
        let always = ["cutape-signatures 1", "enum CUresult", "later x"];
        for (functions, expected) in [
            (&[][..], &[][..]),
            (
                &[0],
                &[
                    "enum CUkind",
                    "struct CUouter",
                    "struct CUinner",
                    "function 0",
                ],
            ),
            (&[7], &["enum CUother", "function 7"]),
        ] {
            let kept = signatures_of(table, |id| functions.contains(&id));
            let mut kept: Vec<String> = kept.lines().map(first).collect();
            kept.sort_unstable();
            let mut expected = [&always[..], expected].concat();
            expected.sort_unstable();
            assert_eq!(kept, expected, "{functions:?}");
        }
    }
}
