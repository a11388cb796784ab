//! The end of a trace that goes on: its last calls, with those that later ones may need.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io;
use std::ops::Range;
use std::path::Path;

use cutape_format::layout::GapNote;
use cutape_format::{Bytes, Call, CallSelection, Erased, Error, Needed, Note, Trace, pack_calls};
use cutape_model::{Needs, NeedsBuilder};

use crate::part::Part;
use crate::snapshots::NeededSnapshots;

/// The last calls of a trace, and the earlier ones that created and changed what was live before
/// them. What memory held there is known if its first call has a snapshot of it.
#[derive(Debug)]
pub struct Window {
    part: Part,
    needs: Needs,
    /// The calls before the window that are kept, by thread and number.
    held: BTreeSet<(u32, u64)>,
    /// By thread: the number of its first call in the window.
    first: BTreeMap<u32, u64>,
    /// Blobs that calls of the part have.
    blobs: HashSet<u64>,
    /// Calls whose snapshots of memory it has.
    snapshots: NeededSnapshots,
    /// What is missing before the window.
    gap: GapNote,
}

impl Window {
    /// The calls of a trace that were entered at these ticks or later, and what they may need.
    /// `each` sees all calls that the trace still has.
    ///
    /// # Errors
    /// Damage of the trace.
    pub fn of(
        trace: &Trace,
        from_ticks: u64,
        each: &mut dyn FnMut(&Call<'_>),
    ) -> Result<Self, Error> {
        let mut earlier = Earlier::default();
        let read = |bytes: Bytes<'_>| {
            let bytes = trace.resolve(bytes).ok()?;
            Some(std::borrow::Cow::Owned(bytes.into_owned()))
        };
        let mut blobs = HashSet::new();
        let mut snapshots = NeededSnapshots::new();
        let mut first: BTreeMap<u32, u64> = BTreeMap::new();
        let mut last: BTreeMap<u32, u64> = BTreeMap::new();
        let mut calls = 0;
        trace.walk().run(|call| {
            calls = call.index + 1;
            each(call);
            last.insert(call.thread, call.number);
            if call.ticks < from_ticks {
                earlier.builder.push(call, &read);
                earlier.add(call);
            } else {
                first.entry(call.thread).or_insert(call.number);
                snapshots.push(call);
                blobs.extend(blobs_of(call));
            }
            Ok::<_, Error>(())
        })?;
        let start = earlier.places.len() as u64;
        let stays = |&(call, reason): &(u64, Reason)| {
            let stays = match reason {
                Reason::InFlight(thread, number) => last.get(&thread) == Some(&number),
                Reason::NamesThread(thread) => first.contains_key(&thread),
                Reason::Describes(function) => earlier.builder.has_function(function),
            };
            stays.then_some(call)
        };
        let is_kept: Vec<u64> = earlier.kept.iter().filter_map(stays).collect();
        let (live, needs) = earlier.builder.finish_live();
        let kept: BTreeSet<u64> = live.into_iter().chain(is_kept).collect();
        let place = |call: &u64| earlier.places.get(*call as usize).copied();
        for (call, names) in &earlier.blobs {
            if kept.contains(call) {
                blobs.extend(names.iter().copied());
            }
        }
        // Numbers count the calls that were erased earlier, too.
        let all: u64 = first.values().sum();
        let held: BTreeSet<(u32, u64)> = kept.iter().filter_map(place).collect();
        let of_threads = held.iter().filter(|call| first.contains_key(&call.0));
        let gap = GapNote {
            calls: all.saturating_sub(of_threads.count() as u64),
            resumed: from_ticks.max(1),
            ..GapNote::default()
        };
        let is_in = |call| call >= start || kept.contains(&call);
        let part = Part {
            calls: (0..calls).map(is_in).collect(),
            chosen: calls - start,
            start,
        };
        Ok(Self {
            held,
            part,
            needs,
            first,
            blobs,
            snapshots,
            gap,
        })
    }

    /// How many calls the window has.
    pub fn chosen(&self) -> u64 {
        self.part.chosen
    }

    /// How many earlier ones are kept.
    pub fn earlier(&self) -> u64 {
        self.held.len() as u64
    }

    /// Writes it to `target`, which must not exist, with `meta`.
    ///
    /// # Errors
    /// Those of reading the trace and of writing.
    pub fn write(&self, trace: &Trace, target: &Path, meta: &[(String, String)]) -> io::Result<()> {
        let is_kept = |call: u64| self.part.contains(call);
        let is_noted = |call: u64, place: u64| {
            let creator = self.needs.noted_memory(call, place);
            creator.is_some_and(is_kept)
        };
        let changes = BTreeMap::new();
        let selection = CallSelection {
            keeps: &is_kept,
            keeps_host_memory: &is_noted,
            keeps_memory: &|call, _| self.snapshots.contains(call),
            changes: &changes,
            gap: Some((self.part.start, self.gap)),
        };
        pack_calls(trace, target, meta, &selection, None)?;
        Ok(())
    }

    /// Erases all else from a trace that is being recorded; see [`Trace::erase`].
    ///
    /// # Errors
    /// As [`Trace::erase`].
    pub fn erase_others(&self, trace: &Trace, blobs_before: u64) -> io::Result<Erased> {
        let has_calls = |thread: u32, numbers: Range<u64>| {
            let is_late = match self.first.get(&thread) {
                Some(&first) => numbers.end > first,
                // A thread that makes no calls in the window.
                None => false,
            };
            let held = (thread, numbers.start)..(thread, numbers.end);
            is_late || self.held.range(held).next().is_some()
        };
        let needed = Needed {
            calls: &has_calls,
            blob: &|name| self.blobs.contains(&name),
            from: self.gap.resumed,
        };
        trace.erase(&needed, blobs_before)
    }
}

/// Why a call before the window may stay, although no later one needs it.
#[derive(Clone, Copy, Debug)]
enum Reason {
    /// It may still return, unless its thread has made another call.
    InFlight(u32, u64),
    /// It names its thread.
    NamesThread(u32),
    /// It tells how a function takes its parameters, or where it is from.
    Describes(u64),
}

/// The calls before a window.
#[derive(Debug)]
struct Earlier {
    builder: NeedsBuilder,
    /// By index: thread and number.
    places: Vec<(u32, u64)>,
    /// Those that may stay for another reason than that later ones need them.
    kept: Vec<(u64, Reason)>,
    /// The blobs of those that have some.
    blobs: Vec<(u64, Vec<u64>)>,
}

impl Default for Earlier {
    fn default() -> Self {
        Self {
            builder: NeedsBuilder::of_live(),
            places: Vec::new(),
            kept: Vec::new(),
            blobs: Vec::new(),
        }
    }
}

impl Earlier {
    fn add(&mut self, call: &Call<'_>) {
        self.places.push((call.thread, call.number));
        let mut keep = |why| self.kept.push((call.index, why));
        if call.leave.is_none() {
            keep(Reason::InFlight(call.thread, call.number));
        }
        for note in call.notes() {
            match note {
                Note::Thread(_) => keep(Reason::NamesThread(call.thread)),
                Note::Layout(function, _) => keep(Reason::Describes(function)),
                Note::Origin(note, _) => keep(Reason::Describes(note.handle)),
                _ => {}
            }
        }
        let blobs: Vec<u64> = blobs_of(call).collect();
        if !blobs.is_empty() {
            self.blobs.push((call.index, blobs));
        }
    }
}

/// The names of the blobs that a call has.
fn blobs_of<'c>(call: &'c Call<'_>) -> impl Iterator<Item = u64> + 'c {
    let after = call.leave.iter().flat_map(|leave| leave.snapshots());
    let noted = call.notes().filter_map(|note| match note {
        Note::Readback(_, snapshot)
        | Note::HostChanged(_, snapshot)
        | Note::ExchangeOutput(_, snapshot)
        | Note::Memory(_, _, Some(snapshot)) => Some(snapshot),
        _ => None,
    });
    let snapshots = call.snapshots().chain(after).chain(noted);
    snapshots.filter_map(|snapshot| match snapshot.bytes {
        Bytes::Blob(blob) => Some(blob.position),
        _ => None,
    })
}
