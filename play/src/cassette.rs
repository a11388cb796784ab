//! What a cassette shows of memory that host and device share, and a plain recording does not: what
//! the program can have seen while work was in flight, and what work has written where no call names
//! the memory.

use std::collections::BTreeMap;
use std::ops::Range;

use cutape_format::{Call, Note, Snapshot, Trace};
use cutape_model::{HostWrites, ObjectId};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::history::{Memory, Part, WORD, Written, fits, time_of_look};
use crate::recorded_memory::gives_bytes;
use crate::threads;

/// A look of the recorder.
struct Look {
    call: u64,
    memory: Memory,
    address: u64,
    bytes: Snapshot<'static>,
    /// When it had read the bytes, in ticks.
    time: u64,
    when: When,
    /// Where work in flight may write, and the call that has enqueued it.
    writers: Vec<(Range<u64>, u64)>,
    /// What is elsewhere has been looked at because work in flight may write the same allocation, and not
    /// because its kernel may have found the address in other memory.
    is_beside: bool,
}

impl Look {
    /// Where a word of it is.
    fn addresses(&self, word: &Range<usize>) -> Range<u64> {
        let [start, end] = [word.start, word.end].map(|at| self.address.saturating_add(at as u64));
        start..end
    }

    /// The last call whose work in flight may write addresses.
    fn writer(&self, addresses: &Range<u64>) -> Option<u64> {
        let writers = self
            .writers
            .iter()
            .filter(|(bytes, _)| bytes.start < addresses.end && addresses.start < bytes.end);
        writers.map(|&(_, call)| call).max()
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    /// What has changed is known from elsewhere.
    Other,
    /// Before the call; work in flight may have written it.
    InFlight,
    /// After the call, which waited for the work.
    After,
}

/// What work in flight has written before a call.
#[derive(Default)]
pub(crate) struct BeforeCall {
    /// What had changed for the first time since the last work that may write there.
    first: Vec<Written>,
    /// What had changed again: more likely the program has written it since.
    again: Vec<Written>,
}

/// What it shows, by call.
#[derive(Default)]
pub(crate) struct Cassette {
    before: FxHashMap<u64, BeforeCall>,
    after: FxHashMap<u64, Vec<Written>>,
}

impl Cassette {
    /// Reads it; a plain recording shows nothing.
    pub(crate) fn of(trace: &'static Trace) -> Self {
        let mut found = Self::default();
        if trace.meta_value("cassette").is_none() {
            return found;
        }
        let mut writes = HostWrites::default();
        let mut looks = Vec::new();
        let (mut indices, mut known) = (FxHashMap::default(), FxHashSet::default());
        for call in trace.calls() {
            writes.enter(&call);
            if call.has_notes() {
                add_looks(&mut writes, &call, &mut looks);
                known.extend(known_copies(&call, &indices));
            }
            writes.apply(&call);
            if writes.has_written(&call) {
                indices.insert((call.thread, call.number), call.index);
                let function = threads::known(&call);
                let is_given = function.is_some_and(|function| gives_bytes(function, &call));
                known.extend(is_given.then_some(call.index));
            }
        }
        looks.sort_by_key(|look| look.time);
        let mut contents = Contents::default();
        for look in looks {
            let bytes = match trace.resolve(look.bytes.bytes) {
                Ok(bytes) => bytes,
                Err(damage) if look.when == When::After => {
                    found.after.entry(look.call).or_default().push(Written {
                        memory: look.memory,
                        call: look.call,
                        parts: Vec::new(),
                        missing: Some(damage.what.clone()),
                    });
                    continue;
                }
                // It comes after the wait, or is missed there.
                Err(_) => continue,
            };
            let words = contents.changed(&look, &bytes);
            let first_and_again = words.into_iter().partition(|(_, is_first)| *is_first);
            let (first, again): (Vec<_>, Vec<_>) = first_and_again;
            let [first, again] =
                [first, again].map(|words| all_written(&look, &bytes, words, &known));
            match look.when {
                When::Other => {}
                When::InFlight => {
                    let before = found.before.entry(look.call).or_default();
                    before.first.extend(first);
                    before.again.extend(again);
                }
                When::After => {
                    let after = found.after.entry(look.call).or_default();
                    after.extend(first.into_iter().chain(again));
                }
            }
        }
        found
    }

    /// Whether it shows anything before calls.
    pub(crate) fn has_polled(&self) -> bool {
        !self.before.is_empty()
    }

    /// What the program can have seen before a call: with `all`, also what it has more likely written.
    /// What belongs to work that `is_made` does not know to be enqueued by now, comes later.
    pub(crate) fn take_before(
        &mut self,
        call: u64,
        all: bool,
        is_made: impl Fn(u64) -> bool,
    ) -> Vec<Written> {
        let Some(before) = self.before.get_mut(&call) else {
            return Vec::new();
        };
        let is_due = |one: &mut Written| one.call == call || is_made(one.call);
        let mut taken: Vec<Written> = before.first.extract_if(.., is_due).collect();
        if all {
            taken.extend(before.again.extract_if(.., is_due));
        }
        if before.first.is_empty() && before.again.is_empty() {
            self.before.remove(&call);
        }
        taken
    }

    /// What the program can see after a call.
    pub(crate) fn take_after(&mut self, call: u64) -> Vec<Written> {
        self.after.remove(&call).unwrap_or_default()
    }
}

/// Copies whose bytes the recorder has found after a call, by call: of those to one address, the last;
/// what the others brought is gone.
fn known_copies(call: &Call<'_>, indices: &FxHashMap<(u32, u64), u64>) -> Vec<u64> {
    let mut last: FxHashMap<u64, u64> = FxHashMap::default();
    for note in call.notes() {
        if let Note::Readback(note, _) = note
            && let Some(&copy) = indices.get(&(note.thread, note.number))
        {
            let last = last.entry(note.address).or_default();
            *last = copy.max(*last);
        }
    }
    last.into_values().collect()
}

fn add_looks(writes: &mut HostWrites, call: &Call<'static>, looks: &mut Vec<Look>) {
    for note in call.notes() {
        let (note, bytes, is_seen) = match note {
            Note::HostChanged(note, bytes) => (note, bytes, false),
            Note::HostSeen(note, bytes) => (note, bytes, true),
            _ => continue,
        };
        let noted = writes.noted_at(note.address);
        let Some((addresses, id)) = noted.filter(|(addresses, _)| fits(addresses)) else {
            continue;
        };
        let length = bytes.bytes.length().unwrap_or(0);
        let range = note.address..note.address.saturating_add(length);
        let pending = writes.pending_for(call, &range).into_iter();
        let writers = pending.map(|write| (write.bytes.clone(), write.call));
        let writers = writers.filter(|&(_, other)| other < call.index);
        let writers: Vec<(Range<u64>, u64)> = writers.collect();
        let when = match (is_seen, note.is_after != 0) {
            (true, false) => When::InFlight,
            (true, true) => When::After,
            // No known work: its kernel has found the address elsewhere.
            (false, true) if writers.is_empty() => When::After,
            (false, _) => When::Other,
        };
        let is_beside = when == When::InFlight && !writes.pending_for(call, &addresses).is_empty();
        looks.push(Look {
            call: call.index,
            memory: Memory {
                id,
                addresses,
                named: (call.index, note.address),
            },
            address: note.address,
            bytes,
            time: match (is_seen, note.is_after != 0) {
                (true, false) => call.ticks,
                (_, is_after) => time_of_look(call, is_after),
            },
            when,
            writers,
            is_beside,
        });
    }
}

/// What allocations hold.
#[derive(Default)]
struct Contents {
    bytes: FxHashMap<ObjectId, Vec<u8>>,
    /// By allocation and offset of a word: the last work that could write it when it had changed.
    writers: FxHashMap<(ObjectId, usize), u64>,
}

impl Contents {
    /// The words that a look shows to have changed, as offsets from its address, and whether that is
    /// for the first time since the last work that may write there.
    fn changed(&mut self, look: &Look, found: &[u8]) -> Vec<(Range<usize>, bool)> {
        let Range { start, end } = look.memory.addresses;
        let id = look.memory.id;
        // Bytes in no note are zero.
        let content = self.bytes.entry(id);
        let content = content.or_insert_with(|| vec![0; end.saturating_sub(start) as usize]);
        let offset = look.address.saturating_sub(start) as usize;
        let Some(old) = content.get_mut(offset..offset.saturating_add(found.len())) else {
            return Vec::new();
        };
        let mut changed = Vec::new();
        for word in words(look.address, found.len()) {
            if old.get(word.clone()) == found.get(word.clone()) {
                continue;
            }
            let writer = look.writer(&look.addresses(&word));
            if writer.is_none() && look.is_beside {
                // The program's.
                continue;
            }
            let is_first = writer.is_none_or(|writer| {
                let before = self.writers.insert((id, offset + word.start), writer);
                before != Some(writer)
            });
            changed.push((word, is_first));
        }
        old.copy_from_slice(found);
        changed
    }
}

/// Offsets of the words in memory, in ascending order; the first and the last may be cut.
fn words(address: u64, length: usize) -> impl Iterator<Item = Range<usize>> {
    let first = (WORD - address % WORD) as usize % WORD as usize;
    let starts = (first > 0).then_some(0).into_iter();
    let starts = starts.chain((first..length).step_by(WORD as usize));
    starts.map(move |at| {
        let end = if at < first {
            first
        } else {
            at + WORD as usize
        };
        at..end.min(length)
    })
}

/// Words of a look, by the last work in flight that may write them.
/// `known` is the work of which it is known without the look what it writes.
fn all_written(
    look: &Look,
    bytes: &[u8],
    words: Vec<(Range<usize>, bool)>,
    known: &FxHashSet<u64>,
) -> Vec<Written> {
    let mut by_writer: BTreeMap<Option<u64>, Vec<Range<usize>>> = BTreeMap::new();
    for (word, _) in words {
        let writer = look.writer(&look.addresses(&word));
        by_writer.entry(writer).or_default().push(word);
    }
    let all = by_writer.into_iter();
    let all = all.filter_map(|(writer, words)| {
        // It is put elsewhere; what the look found may be older.
        let is_known = |writer: &u64| look.when == When::InFlight && known.contains(writer);
        let work = writer.unwrap_or(look.call);
        let work = writer
            .filter(is_known)
            .map_or(work, |known| known.saturating_sub(1));
        written(look, bytes, &words, work)
    });
    all.collect()
}

/// Words of a look; the last call whose work may have written them.
fn written(look: &Look, bytes: &[u8], words: &[Range<usize>], call: u64) -> Option<Written> {
    let mut parts: Vec<Part> = Vec::new();
    for word in words {
        let address = look.address + word.start as u64;
        let word = bytes.get(word.clone()).unwrap_or_default();
        match parts.last_mut() {
            Some(part) if part.address + part.bytes.len() as u64 == address => {
                part.bytes.extend(word);
            }
            _ => parts.push(Part {
                address,
                bytes: word.to_vec(),
                found: look.time,
            }),
        }
    }
    (!parts.is_empty()).then(|| Written {
        memory: look.memory.clone(),
        call,
        parts,
        missing: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_begin_at_multiples_of_their_length() {
        type Case = (u64, usize, &'static [(usize, usize)]);
        let table: [Case; 6] = [
            (0x1000, 0, &[]),
            (0x1000, 4, &[(0, 4)]),
            (0x1000, 5, &[(0, 4), (4, 5)]),
            (0x1001, 2, &[(0, 2)]),
            (0x1003, 1, &[(0, 1)]),
            (0x1003, 6, &[(0, 1), (1, 5), (5, 6)]),
        ];
        for (address, length, expected) in table {
            let found = words(address, length).map(|word| (word.start, word.end));
            let found: Vec<(usize, usize)> = found.collect();
            assert_eq!(found, expected, "{address:#x} {length}");
        }
    }
}
