//! The end of a trace that goes on: its last calls, with those that later ones may need.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io;
use std::ops::Range;
use std::path::Path;

use cutape_format::layout::GapNote;
use cutape_format::{
    Bytes, Call, CallSelection, Cursor, Erased, Error, Needed, Note, Trace, pack_calls,
};
use cutape_model::{Needs, NeedsBuilder};

use crate::snapshots::NeededSnapshots;

/// The last calls of a trace, and the earlier ones that created and changed what was live before
/// them. What memory held there is known if its first call has a snapshot of it.
#[derive(Debug)]
pub struct Window {
    needs: Needs,
    /// How many calls the trace has before the window.
    start: u64,
    /// Those that it has.
    kept: BTreeSet<u64>,
    /// By thread and number: these, and those with notes that it has.
    held: BTreeSet<(u32, u64)>,
    /// Those of which only the notes count.
    noted: BTreeSet<(u32, u64)>,
    /// By thread: the number of its first call in the window.
    first: BTreeMap<u32, u64>,
    /// Blobs that kept calls before the window have.
    blobs: HashSet<u64>,
    /// What is missing before the window.
    gap: GapNote,
}

/// What an earlier window had of the calls before it. The others may have been erased, or only some
/// of them, so that they do not count any more.
#[derive(Clone, Debug, Default)]
pub struct Held {
    /// Where that window began, in ticks; 0 if there was none.
    pub until: u64,
    /// By thread and number.
    calls: BTreeSet<(u32, u64)>,
    /// Those of which only the notes count.
    noted: BTreeSet<(u32, u64)>,
}

impl Held {
    /// Whether a call before that window is part of it, because later calls may need it.
    pub fn is_needed(&self, call: &Call<'_>) -> bool {
        let place = (call.thread, call.number);
        self.calls.contains(&place) && !self.noted.contains(&place)
    }

    fn counts(&self, call: &Call<'_>) -> bool {
        call.ticks >= self.until || self.calls.contains(&(call.thread, call.number))
    }
}

impl Window {
    /// The calls of a trace that were entered at these ticks or later, and what they may need. Only
    /// the calls before them are read. `known` is of the last window of the same trace, and `is_alive`
    /// says whether the thread of an operating system's number may make further calls.
    pub fn of(
        trace: &Trace,
        from_ticks: u64,
        known: &Held,
        is_alive: &dyn Fn(u32) -> bool,
    ) -> Self {
        let mut earlier = Earlier::default();
        let read = |bytes: Bytes<'_>| {
            let bytes = trace.resolve(bytes).ok()?;
            Some(std::borrow::Cow::Owned(bytes.into_owned()))
        };
        let mut cursor = Cursor::new();
        while let Some(call) = cursor.next_entered(trace, from_ticks) {
            if known.counts(&call) {
                earlier.builder.push(&call, &read);
                earlier.add(&call);
            } else {
                earlier.builder.pass();
                earlier.place(&call);
            }
        }
        let start = cursor.index();
        let first: BTreeMap<u32, u64> = cursor.upcoming().collect();
        let stays = |&(_, reason): &(u64, Reason)| match reason {
            Reason::InFlight(thread, number) => {
                earlier.last.get(&thread) == Some(&number) && !first.contains_key(&thread)
            }
            Reason::NamesThread(thread, number) => first.contains_key(&thread) || is_alive(number),
            Reason::Describes(function) => earlier.builder.has_function(function),
        };
        let also: Vec<(u64, Reason)> = earlier.kept.iter().copied().filter(stays).collect();
        let (live, needs) = earlier.builder.finish_live();
        // Notes of the others move to calls of the window.
        let in_flight = also.iter().filter(|(_, reason)| reason.is_in_flight());
        let in_flight = in_flight.map(|&(call, _)| call);
        let kept: BTreeSet<u64> = live.into_iter().chain(in_flight).collect();
        let held: BTreeSet<u64> = also
            .iter()
            .map(|&(call, _)| call)
            .chain(kept.iter().copied())
            .collect();
        let place = |call: &u64| earlier.places.get(*call as usize).copied();
        let blobs = earlier.blobs.into_iter();
        let blobs = blobs.filter(|(call, _)| held.contains(call));
        let blobs = blobs.flat_map(|(_, names)| names).collect();
        // Numbers count the calls that were erased earlier, too.
        let all: u64 = first.values().sum();
        let of_threads = kept.iter().filter_map(place);
        let of_threads = of_threads.filter(|call| first.contains_key(&call.0));
        let gap = GapNote {
            calls: all.saturating_sub(of_threads.count() as u64),
            resumed: from_ticks.max(1),
            ..GapNote::default()
        };
        Self {
            needs,
            start,
            held: held.iter().filter_map(place).collect(),
            noted: held.difference(&kept).filter_map(place).collect(),
            kept,
            first,
            blobs,
            gap,
        }
    }

    /// What a later window of the same trace is to know.
    pub fn held(&self) -> Held {
        Held {
            until: self.gap.resumed,
            calls: self.held.clone(),
            noted: self.noted.clone(),
        }
    }

    /// How many earlier ones are kept.
    pub fn earlier(&self) -> u64 {
        self.kept.len() as u64
    }

    /// Writes it to `target`, which must not exist, with `meta`; how many calls the window has.
    ///
    /// # Errors
    /// Those of reading the trace and of writing.
    pub fn write(
        &self,
        trace: &Trace,
        target: &Path,
        meta: &[(String, String)],
    ) -> io::Result<u64> {
        let is_kept = |call: u64| call >= self.start || self.kept.contains(&call);
        let is_noted = |call: u64, place: u64| {
            let creator = self.needs.noted_memory(call, place);
            creator.is_some_and(is_kept)
        };
        let snapshots = self.snapshots(trace).map_err(io::Error::other)?;
        let changes = BTreeMap::new();
        let selection = CallSelection {
            keeps: &is_kept,
            keeps_host_memory: &is_noted,
            keeps_memory: &|call, _| snapshots.contains(call),
            changes: &changes,
            gap: Some((self.start, self.gap)),
        };
        let summary = pack_calls(trace, target, meta, &selection, None)?;
        Ok(summary.calls.saturating_sub(self.earlier()))
    }

    /// The calls whose snapshots of memory it has.
    fn snapshots(&self, trace: &Trace) -> Result<NeededSnapshots, Error> {
        let mut snapshots = NeededSnapshots::new();
        if trace.may_have_memory_snapshots() || trace.has_deep_launches() {
            trace.walk().run(|call| {
                if call.index >= self.start {
                    snapshots.push(call);
                }
                Ok::<_, Error>(())
            })?;
        }
        Ok(snapshots)
    }

    /// Erases all else from a trace that is being recorded; see [`Trace::erase`]. No call of the
    /// window has a blob that was written before `blobs_before`.
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
    /// It names its thread, which has this number of the operating system's.
    NamesThread(u32, u32),
    /// It tells how a function takes its parameters, or where it is from.
    Describes(u64),
}

impl Reason {
    fn is_in_flight(self) -> bool {
        matches!(self, Self::InFlight(..))
    }
}

/// The calls before a window.
#[derive(Debug)]
struct Earlier {
    builder: NeedsBuilder,
    /// By index: thread and number.
    places: Vec<(u32, u64)>,
    /// The number of the last call of each thread.
    last: BTreeMap<u32, u64>,
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
            last: BTreeMap::new(),
            kept: Vec::new(),
            blobs: Vec::new(),
        }
    }
}

impl Earlier {
    fn place(&mut self, call: &Call<'_>) {
        self.places.push((call.thread, call.number));
        self.last.insert(call.thread, call.number);
    }

    fn add(&mut self, call: &Call<'_>) {
        self.place(call);
        let mut keep = |why| self.kept.push((call.index, why));
        if call.leave.is_none() {
            keep(Reason::InFlight(call.thread, call.number));
        }
        for note in call.notes() {
            match note {
                Note::Thread(note) => keep(Reason::NamesThread(call.thread, note.number)),
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
        | Note::HostSeen(_, snapshot)
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

#[cfg(test)]
mod tests {
    use cutape_format::{NewCall, TraceBuilder};
    use cutape_render::test_trace;

    use super::*;

    #[test]
    fn threads_that_rest_keep_their_names() {
        let mut builder = TraceBuilder::new(cutape_registry::SIGNATURE_TEXT);
        for (call, thread) in (0..).zip([0, 1, 2, 0, 0, 2]) {
            builder.at(2000 + 100 * call).call(NewCall {
                thread,
                name: "cuCtxSynchronize",
                ..NewCall::default()
            });
            if call < 3 {
                builder.thread_note(thread, 70 + thread, "worker");
            }
            builder.leave(thread, 0, &[]);
        }
        let trace = test_trace::open(&builder, "cut-window-threads");
        // Of the threads, 0 and 2 make calls later; 1 rests or has ended.
        for (is_alive, expected) in [
            (false, vec![(0, 0), (2, 0)]),
            (true, vec![(0, 0), (1, 0), (2, 0)]),
        ] {
            let window = Window::of(&trace, 2350, &Held::default(), &|number| {
                is_alive && number == 71
            });
            let held: Vec<_> = window.held().calls.into_iter().collect();
            assert_eq!(held, expected);
            assert_eq!(window.earlier(), 0);
        }
    }
}
