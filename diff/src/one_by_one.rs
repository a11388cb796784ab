//! Compares the calls of a running program with those of a trace, one by one.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;

use cutape_format::{Call, Trace};
use rustc_hash::FxHashMap;

use crate::changes::{Objects, changes, values};
use crate::describe::inputs;
use crate::hash::{add, hash};
use crate::objects::ObjectFacts;
use crate::part::{Facet, Label, Part, Place, Sink};
use crate::reader::Reader;
use crate::report::Change;
use crate::settings;

/// A recording and a running program, as far as the program has come.
///
/// Objects correspond if calls create them that correspond; those that no call creates from the
/// first use on.
pub struct OneByOne<'t> {
    recorded: Reader<'t>,
    live: Reader<'t>,
    pairs: Pairs,
    /// Counts calls: objects are known in the order in which the program gets them.
    now: u64,
}

/// Which objects correspond: of the recording and of the program, by number.
#[derive(Clone, Debug, Default)]
struct Pairs {
    to_live: FxHashMap<u32, u32>,
    to_recorded: FxHashMap<u32, u32>,
}

impl Pairs {
    fn bind(&mut self, recorded: u32, live: u32) {
        let old_live = self.to_live.insert(recorded, live);
        let old_recorded = self.to_recorded.insert(live, recorded);
        if let Some(old) = old_live.filter(|&old| old != live) {
            self.to_recorded.remove(&old);
        }
        if let Some(old) = old_recorded.filter(|&old| old != recorded) {
            self.to_live.remove(&old);
        }
    }
}

/// The answers of `changes` about objects.
struct Known<'k> {
    pairs: &'k Pairs,
    recorded: &'k [ObjectFacts],
    live: &'k [ObjectFacts],
}

impl Known<'_> {
    /// Whether they are of one kind, and no call of the program has created them.
    fn may_be_same(&self, recorded: u32, live: u32) -> bool {
        let of = |facts: &[ObjectFacts], number: u32| {
            let facts = facts.get(number as usize)?;
            (!facts.is_owned).then_some(facts.kind)
        };
        let (of_recorded, of_live) = (of(self.recorded, recorded), of(self.live, live));
        of_recorded.is_some() && of_recorded == of_live
    }
}

impl Objects for Known<'_> {
    fn are_same(&self, recorded: u32, live: u32) -> bool {
        let to_live = self.pairs.to_live.get(&recorded);
        match (to_live, self.pairs.to_recorded.get(&live)) {
            (None, None) => self.may_be_same(recorded, live),
            (to_live, _) => to_live == Some(&live),
        }
    }

    fn counterpart(&self, recorded: u32) -> Option<String> {
        let live = self.pairs.to_live.get(&recorded)?;
        Some(self.live.get(*live as usize)?.label())
    }
}

impl<'t> OneByOne<'t> {
    /// Before the first call.
    pub fn new(trace: &'t Trace) -> Self {
        let lengths_only = settings::lacks_payloads(trace);
        Self {
            recorded: Reader::new(trace, lengths_only),
            live: Reader::new(trace, lengths_only),
            pairs: Pairs::default(),
            now: 0,
        }
    }

    fn known(&self) -> Known<'_> {
        Known {
            pairs: &self.pairs,
            recorded: &self.recorded.numbers.facts,
            live: &self.live.numbers.facts,
        }
    }

    /// Whether a call of the program asks for what a recorded call asks for.
    pub fn are_equal(&mut self, recorded: &Call<'_>, live: &Call<'_>) -> bool {
        let of_recorded = Asked::of(&mut self.recorded, recorded);
        let of_live = Asked::of(&mut self.live, live);
        if of_recorded.hash != of_live.hash || of_recorded.refs.len() != of_live.refs.len() {
            return false;
        }
        let pairs = of_recorded.refs.into_iter().zip(of_live.refs);
        let pairs: Vec<(u32, u32)> = pairs.collect();
        let known = self.known();
        if !pairs
            .iter()
            .all(|&(recorded, live)| known.are_same(recorded, live))
        {
            return false;
        }
        for (recorded, live) in pairs {
            self.pairs.bind(recorded, live);
        }
        true
    }

    /// What a recorded call asks for, as names and values.
    pub fn recorded_values(&mut self, call: &Call<'_>) -> Vec<(String, String)> {
        values(&inputs(&mut self.recorded, call))
    }

    /// The same of a call of the program.
    pub fn live_values(&mut self, call: &Call<'_>) -> Vec<(String, String)> {
        values(&inputs(&mut self.live, call))
    }

    /// The values in which a call of the program differs from a recorded call of its function: of
    /// the recording, of the program.
    pub fn changes(&mut self, recorded: &Call<'_>, live: &Call<'_>) -> Vec<Change> {
        let of_recorded = inputs(&mut self.recorded, recorded);
        let of_live = inputs(&mut self.live, live);
        changes(&of_recorded, &of_live, &self.known())
    }

    /// What a recorded call asks for, as a number that a call of the program has, too, if it asks
    /// for the same.
    pub fn recorded_request(&mut self, call: &Call<'_>) -> u64 {
        let asked = Asked::of(&mut self.recorded, call);
        hash((asked.hash, asked.refs))
    }

    /// The same of a call of the program; `None` if it uses objects that the recording lacks.
    pub fn live_request(&mut self, call: &Call<'_>) -> Option<u64> {
        let asked = Asked::of(&mut self.live, call);
        let to_recorded = &self.pairs.to_recorded;
        let refs = asked.refs.iter().map(|live| to_recorded.get(live).copied());
        let refs: Option<Vec<u32>> = refs.collect();
        Some(hash((asked.hash, refs?)))
    }

    /// Takes in that the program has made a recorded call; both have returned. The objects that they
    /// have created correspond.
    pub fn take_both(&mut self, recorded: &Call<'_>, live: &Call<'_>) -> [Range<u32>; 2] {
        let created = [self.take_recorded(recorded), self.take_live(live)];
        self.bind(created.clone());
        created
    }

    /// Takes in a recorded call that the program does not make, or whose place does not count; the
    /// numbers of the objects that it has created.
    pub fn take_recorded(&mut self, call: &Call<'_>) -> Range<u32> {
        self.now += 2;
        take(&mut self.recorded, call, self.now)
    }

    /// The same for a call of the program that the recording lacks.
    pub fn take_live(&mut self, call: &Call<'_>) -> Range<u32> {
        self.now += 2;
        take(&mut self.live, call, self.now)
    }

    /// From now on, these objects of the recording and of the program correspond, and no others: each
    /// to the first of its kind.
    pub fn bind(&mut self, [recorded, live]: [Range<u32>; 2]) {
        let kind =
            |facts: &[ObjectFacts], number: u32| facts.get(number as usize).map(|one| one.kind);
        let (of_recorded, of_live) = (&self.recorded.numbers.facts, &self.live.numbers.facts);
        let mut others: Vec<u32> = live.collect();
        for number in recorded {
            let is_it = |&other: &u32| kind(of_live, other) == kind(of_recorded, number);
            if let Some(at) = others.iter().position(is_it) {
                self.pairs.bind(number, others.remove(at));
            }
        }
    }

    /// Where the memory at a recorded address is in the program.
    pub fn live_address(&self, recorded: u64) -> Option<u64> {
        let (object, offset) = self.recorded.place(recorded)?;
        let live = *self.pairs.to_live.get(&object)?;
        let facts = self.live.numbers.facts.get(live as usize)?;
        Some(facts.handle.wrapping_add(offset))
    }
}

/// Applies a call that begins at `now` and has returned before the next; the numbers of the objects
/// that it has created.
fn take(reader: &mut Reader<'_>, call: &Call<'_>, now: u64) -> Range<u32> {
    let before = reader.numbers.facts.len() as u32;
    let mut call = call.clone();
    call.ticks = now;
    if let Some(leave) = &mut call.leave {
        leave.ticks = now;
    }
    reader.observe(&call, &mut Nothing);
    reader.settle(now + 1, call.thread, call.index);
    before..reader.numbers.facts.len() as u32
}

/// Takes no parts.
struct Nothing;

impl Sink for Nothing {
    fn part(&mut self, _: Facet, _: Label, _: Part<'_>) {}

    fn late(&mut self, _: Place, _: Label, _: Part<'_>) {}
}

/// What a call asks for: a hash of its parts, and the objects that it uses.
#[derive(Default)]
struct Asked {
    hash: u64,
    refs: Vec<u32>,
}

impl Asked {
    fn of(reader: &mut Reader<'_>, call: &Call<'_>) -> Self {
        let mut parts = Parts::default();
        call.signature.name.hash(&mut parts.hasher);
        reader.observe_inputs(call, &mut parts);
        Self {
            hash: parts.hasher.finish(),
            refs: parts.refs,
        }
    }
}

#[derive(Default)]
struct Parts {
    hasher: DefaultHasher,
    refs: Vec<u32>,
}

impl Sink for Parts {
    fn part(&mut self, _: Facet, label: Label, part: Part<'_>) {
        add(&mut self.hasher, &label, &part);
        if let Part::Place { object, .. } = part {
            self.refs.push(object);
        }
    }

    fn late(&mut self, _: Place, _: Label, _: Part<'_>) {}
}
