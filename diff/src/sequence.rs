//! What is kept of the calls of a trace to compare them: about 100 bytes a call.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};

use cutape_format::{Call, Error, Trace, WalkSummary};
use rustc_hash::FxHashMap;

use crate::hash::{add, half, hash};
use crate::masks::Masks;
use crate::objects::ObjectFacts;
use crate::part::{FACETS, Facet, Label, Part, Place, Sink};
use crate::plan::Query;
use crate::reader::Reader;

/// The first uses of an object that tell it from others.
const FIRST_USES: u8 = 4;

/// What is kept of a call.
#[derive(Clone, Debug, Default)]
pub(crate) struct Entry {
    /// Call index.
    pub(crate) index: u64,
    /// Of the documented name of the function.
    pub(crate) function: u32,
    /// A hash of each facet; 0 if the call has no part of it.
    pub(crate) facets: [u32; FACETS],
    /// A hash of what later calls showed that it wrote; 0 for nothing.
    pub(crate) late: u32,
    /// Behind its last reference.
    refs_end: u32,
    pub(crate) asks_for_machine: bool,
    /// It only waits for work.
    pub(crate) waits: bool,
    /// It copied bytes to the host, and the trace has them.
    pub(crate) copies_back: bool,
    /// It creates or finds objects.
    creates: bool,
}

impl Entry {
    pub(crate) fn facet(&self, facet: Facet) -> u32 {
        self.facets.get(facet as usize).copied().unwrap_or(0)
    }

    /// Of the function and the kernel that it launches or asks about.
    pub(crate) fn name(&self) -> u64 {
        hash((self.function, self.facet(Facet::Kernel)))
    }

    /// Of everything that is compared of the call.
    pub(crate) fn everything(&self) -> u64 {
        hash((self.function, self.facets, self.late))
    }

    /// Of what the program asks for, without bytes and results.
    pub(crate) fn request(&self) -> u64 {
        let facets = [Facet::Kernel, Facet::Shape, Facet::Argument].map(|facet| self.facet(facet));
        hash((self.function, facets))
    }
}

/// The calls of a thread.
#[derive(Debug, Default)]
pub(crate) struct ThreadCalls {
    pub(crate) entries: Vec<Entry>,
    /// The objects that calls use, by number.
    refs: Vec<u32>,
    /// Positions of the calls that are compared.
    pub(crate) compared: Vec<u32>,
}

impl ThreadCalls {
    pub(crate) fn entry(&self, position: u32) -> Option<&Entry> {
        self.entries.get(position as usize)
    }

    /// The objects that a call uses, in the order of its parts.
    pub(crate) fn refs(&self, position: u32) -> &[u32] {
        let end = self
            .entry(position)
            .map_or(0, |entry| entry.refs_end as usize);
        let before = position
            .checked_sub(1)
            .and_then(|before| self.entry(before));
        let start = before.map_or(0, |before| before.refs_end as usize);
        self.refs.get(start..end).unwrap_or(&[])
    }
}

/// How many calls of each sort are left out.
pub(crate) type NoiseCounts = BTreeMap<(&'static str, Box<str>), u64>;

/// Durations of calls in ticks, by function and kernel.
#[derive(Debug, Default)]
pub(crate) struct Durations {
    pub(crate) ticks: FxHashMap<u64, Vec<u32>>,
    /// Function and kernel.
    pub(crate) names: FxHashMap<u64, (Box<str>, Option<Box<str>>)>,
}

/// Calls that are counted at once.
const STRIDE: u64 = 256;

/// The calls of a trace, as they are compared.
#[derive(Debug, Default)]
pub(crate) struct Sequence {
    pub(crate) threads: Vec<ThreadCalls>,
    pub(crate) objects: Vec<ObjectFacts>,
    /// Objects by the call that created or found them: call index, number.
    pub(crate) creations: Vec<(u64, u32)>,
    pub(crate) noise: NoiseCounts,
    pub(crate) calls: u64,
    pub(crate) durations: Durations,
    pub(crate) summary: WalkSummary,
}

impl Sequence {
    /// Reads all calls of a trace, and counts them in `read`.
    pub(crate) fn read(
        trace: &Trace,
        lengths_only: bool,
        with_times: bool,
        masks: &Masks,
        read: Option<&AtomicU64>,
    ) -> Result<Self, Error> {
        let mut sequence = Self::default();
        let mut reader = Reader::new(trace, lengths_only);
        let summary = trace.walk().run(|call| {
            sequence.add(&mut reader, call, with_times, masks);
            if let Some(read) = read
                && sequence.calls.is_multiple_of(STRIDE)
            {
                read.fetch_add(STRIDE, Ordering::Relaxed);
            }
            Ok::<(), Error>(())
        })?;
        sequence.summary = summary;
        sequence.objects = reader.numbers.facts;
        let created = (0..).zip(&sequence.objects);
        sequence.creations = created
            .filter_map(|(number, facts)| Some((facts.created?, number)))
            .collect();
        // Stable: the objects of one call stay in the order in which it gave them.
        sequence.creations.sort_by_key(|&(call, _)| call);
        sequence.mark_creations();
        Ok(sequence)
    }

    fn add(&mut self, reader: &mut Reader<'_>, call: &Call<'_>, with_times: bool, masks: &Masks) {
        let place = call.thread as usize;
        if self.threads.len() <= place {
            self.threads.resize_with(place + 1, ThreadCalls::default);
        }
        self.calls += 1;
        let mut sink = Hashes::new(masks);
        let observed = reader.observe(call, &mut sink);
        let name = hash(&observed.plan.name);
        let entry = Entry {
            index: call.index,
            function: half(name),
            facets: sink.finish(),
            asks_for_machine: observed.plan.asks_for_machine,
            waits: observed.plan.waits,
            copies_back: sink.copies_back,
            ..Entry::default()
        };
        let (query, is_noise) = (observed.plan.query, observed.is_noise);
        let position = observed.position;
        if is_noise {
            let sort = match query {
                Query::Poll => "polls",
                Query::EntryPoint => "searches for entry points",
                Query::Pointer | Query::No => "probes of pointers",
            };
            let key = (sort, observed.plan.name.clone());
            *self.noise.entry(key).or_default() += 1;
        } else if with_times && let Some(leave) = &call.leave {
            let ticks = leave.ticks.saturating_sub(call.ticks);
            let key = entry.name();
            let durations = self.durations.ticks.entry(key).or_default();
            durations.push(u32::try_from(ticks).unwrap_or(u32::MAX));
            if durations.len() == 1 {
                let names = (observed.plan.name.clone(), sink.kernel.take());
                self.durations.names.insert(key, names);
            }
        }
        for &object in &sink.refs {
            let facts = reader.numbers.facts.get_mut(object as usize);
            if let Some(facts) = facts
                && facts.thread == call.thread
                && facts.use_count < FIRST_USES
            {
                facts.uses = hash((facts.uses, entry.name()));
                facts.use_count += 1;
            }
        }
        let Some(thread) = self.threads.get_mut(place) else {
            return;
        };
        thread.refs.extend(sink.refs);
        thread.entries.push(Entry {
            refs_end: thread.refs.len() as u32,
            ..entry
        });
        if !is_noise {
            thread.compared.push(position);
        }
        for ((of_thread, position), of) in sink.late {
            let thread = self.threads.get_mut(of_thread as usize);
            let entries = thread.map(|thread| &mut thread.entries);
            if let Some(entry) = entries.and_then(|all| all.get_mut(position as usize)) {
                // Copies of a batch may become complete in any order.
                entry.late = entry.late.wrapping_add(of).max(1);
            }
        }
    }

    fn mark_creations(&mut self) {
        for thread in &mut self.threads {
            let mut creations = self.creations.iter().peekable();
            for entry in &mut thread.entries {
                while creations
                    .next_if(|&&(call, _)| call < entry.index)
                    .is_some()
                {}
                let next = creations.peek();
                entry.creates = next.is_some_and(|&&(call, _)| call == entry.index);
            }
        }
    }

    /// The numbers of the objects that a call created or found.
    pub(crate) fn created_by(&self, entry: &Entry) -> impl Iterator<Item = u32> {
        let of_call = match entry.creates {
            true => {
                let start = self
                    .creations
                    .partition_point(|&(call, _)| call < entry.index);
                self.creations.get(start..).unwrap_or(&[])
            }
            false => &[],
        };
        let index = entry.index;
        let of_call = of_call.iter().take_while(move |&&(call, _)| call == index);
        of_call.map(|&(_, number)| number)
    }

    /// A hash of the calls that use the objects first which a call creates.
    pub(crate) fn uses(&self, entry: &Entry) -> u64 {
        self.created_by(entry).fold(0, |sum, number| {
            let facts = self.objects.get(number as usize);
            hash((sum, facts.map_or(0, |facts| facts.uses)))
        })
    }
}

/// Hashes the parts of a call.
struct Hashes<'m> {
    masks: &'m Masks,
    facets: [Option<DefaultHasher>; FACETS],
    refs: Vec<u32>,
    late: Vec<(Place, u32)>,
    kernel: Option<Box<str>>,
    copies_back: bool,
}

impl<'m> Hashes<'m> {
    fn new(masks: &'m Masks) -> Self {
        Self {
            masks,
            facets: [const { None }; FACETS],
            refs: Vec::new(),
            late: Vec::new(),
            kernel: None,
            copies_back: false,
        }
    }

    fn finish(&self) -> [u32; FACETS] {
        self.facets
            .each_ref()
            .map(|hasher| hasher.as_ref().map_or(0, |hasher| half(hasher.finish())))
    }
}

impl Sink for Hashes<'_> {
    fn part(&mut self, facet: Facet, label: Label, part: Part<'_>) {
        let Some(part) = self.masks.apply(self.kernel.as_deref(), &label, part) else {
            return;
        };
        if let Some(hasher) = self.facets.get_mut(facet as usize) {
            add(hasher.get_or_insert_default(), &label, &part);
        }
        match part {
            Part::Place { object, .. } => self.refs.push(object),
            Part::Text(name) if facet == Facet::Kernel && self.kernel.is_none() => {
                self.kernel = Some(String::from_utf8_lossy(&name).into());
            }
            Part::Payload(payload) if facet == Facet::Output => {
                self.copies_back |= payload.hash.is_some();
            }
            _ => {}
        }
    }

    fn late(&mut self, call: Place, label: Label, part: Part<'_>) {
        let mut hasher = DefaultHasher::new();
        add(&mut hasher, &label, &part);
        // Host addresses differ, so where the bytes went does not count.
        0_u8.hash(&mut hasher);
        self.late.push((call, half(hasher.finish())));
    }
}
