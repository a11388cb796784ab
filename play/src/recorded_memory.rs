//! What a recording knows of host memory that the device can write: the bytes that copies brought,
//! and what the recorder found when it looked.

use std::ops::Range;

use cutape_format::{Call, Note, Snapshot, Trace};
use cutape_model::{HostWrites, ObjectId, looked, looked_before};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::rows::read_by;
use crate::threads::known;

/// The unit in which it is decided who has written memory, in bytes.
const WORD: u64 = 8;

/// When the recorder looked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LookTime {
    /// Before the call; what has changed counts as the program's.
    Before,
    /// Before the call; work in flight may have written it.
    InFlight,
    /// After the call, which waited for the work.
    After,
}

/// What the recorder found in memory that host and device share.
pub(crate) struct Look {
    /// Where.
    pub(crate) address: u64,
    pub(crate) time: LookTime,
    /// The allocation.
    pub(crate) around: Range<u64>,
    pub(crate) memory: ObjectId,
    pub(crate) bytes: Snapshot<'static>,
    /// The words that were others when the recorder had looked there before, as offsets from the
    /// address.
    pub(crate) changed: Vec<Range<usize>>,
    /// Those of a look at work in flight that had changed before while the same work was the last that
    /// could write there: more likely the program has written them since.
    pub(crate) again: Vec<Range<usize>>,
    /// The last call before it whose work may write there, while it is in flight.
    writer: Option<u64>,
}

/// A look: its call, and its position there.
type At = (u64, usize);

/// Offsets of the words in memory, in ascending order; the first and the last may be cut.
fn words(address: u64, length: u64) -> impl Iterator<Item = Range<usize>> {
    let first = address / WORD;
    let end = address.saturating_add(length).div_ceil(WORD);
    let offset = move |word: u64| {
        word.saturating_mul(WORD)
            .saturating_sub(address)
            .min(length)
    };
    (first..end).map(move |word| offset(word) as usize..offset(word + 1) as usize)
}

/// What it knows.
#[derive(Default)]
pub(crate) struct RecordedMemory {
    /// By thread and number of a copy: where it wrote, and the bytes.
    brought: FxHashMap<(u32, u64), Vec<(u64, Snapshot<'static>)>>,
    /// By call.
    looks: FxHashMap<u64, Vec<Look>>,
    /// By call that may have told the program that work is complete, without proving it: the looks
    /// that show what the work has written, each by call and position.
    shown: FxHashMap<u64, Vec<At>>,
    /// By call: positions of the looks before it that may show work in flight, and that the program has
    /// not seen.
    polled: FxHashMap<u64, Vec<usize>>,
    /// Calls before which the program may poll, in ascending order: work is in flight that may write host
    /// memory.
    after_work: Vec<u64>,
    /// Calls that read host memory which pending work may write.
    readers_of_pending: FxHashSet<u64>,
}

impl RecordedMemory {
    /// Reads a trace for it.
    pub(crate) fn of(trace: &'static Trace) -> Self {
        let mut found = Self::default();
        let mut writes = HostWrites::default();
        let mut times = Vec::new();
        for call in trace.calls() {
            writes.enter(&call);
            if writes.has_pending() {
                found.after_work.push(call.index);
            }
            found.add_reads(&mut writes, &call);
            if call.has_notes() {
                found.add_notes(&mut writes, &call, &mut times);
            }
            writes.apply(&call);
        }
        times.sort_by_key(|(time, _)| *time);
        found.find_changes(trace, times.into_iter().map(|(_, look)| look));
        found
    }

    fn add_reads(&mut self, writes: &mut HostWrites, call: &Call<'static>) {
        let Some(function) = known(call) else { return };
        let is_pending = read_by(function, call).into_iter().any(|(_, rows)| {
            let mut rows = rows.into_iter();
            rows.any(|(start, length)| {
                let bytes = start..start.saturating_add(length);
                !writes.pending_for(call, &bytes).is_empty()
            })
        });
        if is_pending {
            self.readers_of_pending.insert(call.index);
        }
    }

    fn add_notes(
        &mut self,
        writes: &mut HostWrites,
        call: &Call<'static>,
        times: &mut Vec<(u64, At)>,
    ) {
        let left = call.leave.map_or(u64::MAX, |leave| leave.ticks);
        let looked_before = looked_before(call).unwrap_or(call.ticks);
        let looked = looked(call).unwrap_or(left);
        for note in call.notes() {
            match note {
                Note::Readback(note, snapshot) => {
                    let of_copy = self.brought.entry((note.thread, note.number)).or_default();
                    of_copy.push((note.address, snapshot));
                }
                Note::HostChanged(note, snapshot) => {
                    let length = snapshot.bytes.length().unwrap_or(0);
                    let bytes = note.address..note.address.saturating_add(length);
                    let time = match note.is_after {
                        0 => LookTime::Before,
                        _ => LookTime::After,
                    };
                    let looks = self.looks.entry(call.index).or_default();
                    let at = (call.index, looks.len());
                    let pending = writes.pending_for(call, &bytes).into_iter();
                    for since in pending.filter_map(|write| write.known_since) {
                        let shown = self.shown.entry(since).or_default();
                        if shown.last() != Some(&at) {
                            shown.push(at);
                        }
                    }
                    let Some((around, memory)) = writes.noted_at(note.address) else {
                        continue;
                    };
                    looks.push(Look {
                        address: note.address,
                        time,
                        around,
                        memory,
                        bytes: snapshot,
                        changed: Vec::new(),
                        again: Vec::new(),
                        writer: None,
                    });
                    times.push((
                        if note.is_after != 0 {
                            looked
                        } else {
                            looked_before
                        },
                        at,
                    ));
                }
                Note::HostSeen(note, snapshot) => {
                    let Some((around, memory)) = writes.noted_at(note.address) else {
                        continue;
                    };
                    let length = snapshot.bytes.length().unwrap_or(0);
                    let bytes = note.address..note.address.saturating_add(length);
                    let pending = writes.pending_for(call, &bytes).into_iter();
                    let pending = pending.map(|write| write.call);
                    let looks = self.looks.entry(call.index).or_default();
                    let at = (call.index, looks.len());
                    let time = match note.is_after {
                        0 => LookTime::InFlight,
                        _ => LookTime::After,
                    };
                    if time == LookTime::InFlight {
                        self.polled.entry(call.index).or_default().push(at.1);
                    }
                    looks.push(Look {
                        address: note.address,
                        time,
                        around,
                        memory,
                        bytes: snapshot,
                        changed: Vec::new(),
                        again: Vec::new(),
                        writer: pending.filter(|&other| other < call.index).max(),
                    });
                    times.push((
                        if note.is_after != 0 {
                            looked
                        } else {
                            call.ticks
                        },
                        at,
                    ));
                }
                _ => {}
            }
        }
    }

    /// Finds what has changed between looks, which come in their order.
    fn find_changes(&mut self, trace: &Trace, looks: impl Iterator<Item = At>) {
        let mut contents: FxHashMap<ObjectId, Vec<u8>> = FxHashMap::default();
        // By allocation and word: the last work that could write it when it had changed.
        let mut writers: FxHashMap<(ObjectId, usize), u64> = FxHashMap::default();
        for (call, position) in looks {
            let look = self.looks.get_mut(&call);
            let Some(look) = look.and_then(|looks| looks.get_mut(position)) else {
                continue;
            };
            let length = look.bytes.bytes.length().unwrap_or(0);
            let words = words(look.address, length);
            let Ok(bytes) = trace.resolve(look.bytes.bytes) else {
                look.changed = words.collect();
                continue;
            };
            let size = look.around.end.saturating_sub(look.around.start) as usize;
            // Bytes in no note are zero.
            let content = contents.entry(look.memory).or_insert_with(|| vec![0; size]);
            let start = look.address.saturating_sub(look.around.start) as usize;
            if let Some(old) = content.get_mut(start..start.saturating_add(bytes.len())) {
                let is_changed =
                    |word: &Range<usize>| old.get(word.clone()) != bytes.get(word.clone());
                look.changed = words.filter(is_changed).collect();
                old.copy_from_slice(&bytes);
                if let Some(writer) = look.writer {
                    let memory = look.memory;
                    let mut is_first = |word: &Range<usize>| {
                        writers.insert((memory, start + word.start), writer) != Some(writer)
                    };
                    look.again = look
                        .changed
                        .extract_if(.., |word| !is_first(word))
                        .collect();
                }
            }
        }
    }

    /// What the recorder found at a call.
    pub(crate) fn looks(&self, call: u64) -> &[Look] {
        self.looks.get(&call).map_or(&[], Vec::as_slice)
    }

    /// Whether the program may poll anywhere.
    pub(crate) fn has_polled(&self) -> bool {
        !self.after_work.is_empty() || !self.polled.is_empty()
    }

    /// Whether the program may poll before a call.
    pub(crate) fn may_poll(&self, call: u64) -> bool {
        self.after_work.binary_search(&call).is_ok()
    }

    /// The positions of the looks before a call that may show work in flight.
    pub(crate) fn polled(&self, call: u64) -> &[usize] {
        self.polled.get(&call).map_or(&[], Vec::as_slice)
    }

    /// The program has seen them.
    pub(crate) fn end_polled(&mut self, call: u64) {
        self.polled.remove(&call);
    }

    /// What shows the work that a call may have told the program is complete, by call.
    pub(crate) fn shown(&self, call: u64) -> impl Iterator<Item = (u64, &Look)> {
        let shown = self.shown.get(&call).into_iter().flatten();
        shown.filter_map(|&(call, at)| Some((call, self.looks(call).get(at)?)))
    }

    /// The bytes that a copy brought, by thread and number: the next from a recorded address on.
    pub(crate) fn take_brought(
        &mut self,
        copy: (u32, u64),
        address: u64,
    ) -> Option<Snapshot<'static>> {
        let of_copy = self.brought.get_mut(&copy)?;
        let at = of_copy.iter().position(|known| known.0 == address)?;
        Some(of_copy.remove(at).1)
    }

    /// Whether a call reads host memory that pending work may write: the bytes are not the
    /// program's.
    pub(crate) fn reads_pending(&self, call: u64) -> bool {
        self.readers_of_pending.contains(&call)
    }
}
