//! Compares the calls of a running program with those of a trace, one by one.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;

use cutape_format::{Call, Error, Trace};
use cutape_registry::Kind;
use rustc_hash::FxHashMap;

use crate::changes::{Objects, changes, values};
use crate::describe::{Described, describe, inputs};
use crate::hash::{add, hash};
use crate::masks::{Masks, ranges};
use crate::noise::differing_bytes;
use crate::objects::ObjectFacts;
use crate::part::{Facet, KERNEL_PARAMETERS, Label, Part, Place, Sink};
use crate::reader::Reader;
use crate::report::Change;
use crate::settings;

/// A recording and a running program, as far as the program has come.
///
/// The recording is read once, in its own order, because its handles mean what they meant then. The
/// program's calls come in the order in which they return. Objects correspond if calls create them
/// that correspond; those that no call creates from the first use on.
pub struct OneByOne<'t> {
    trace: &'t Trace,
    /// By call index.
    recorded: Vec<Recorded>,
    objects: Vec<ObjectFacts>,
    live: Reader<'t>,
    pairs: Pairs,
    masks: Masks,
    /// Counts entries and returns of the program's calls.
    now: u64,
}

/// Names addresses in a call.
type Addresses<'a> = &'a dyn Fn(&Call<'_>, &mut dyn FnMut(u64));

/// In which bytes of its kernel's parameters a launch differs.
#[derive(Clone, Debug)]
pub struct Unequal {
    /// The kernel's name; empty for a kernel of which the driver's documented functions do not tell.
    pub kernel: String,
    /// By offset.
    pub bytes: Vec<Range<u32>>,
}

/// An object of the program.
#[derive(Clone, Debug)]
pub struct Used {
    /// Counts all objects of the program.
    pub number: u32,
    /// What it is.
    pub kind: Kind,
    /// `memory#2`
    pub label: String,
}

/// Two calls that differ in kernel parameters at most.
struct Compared {
    /// Objects that must correspond: of the recording, of the program.
    objects: Vec<(u32, u32)>,
    kernel: Option<Box<str>>,
    /// Which bits differ, by offset of eight bytes.
    words: Vec<(u32, u64)>,
}

/// What is kept of a recorded call.
#[derive(Debug, Default)]
struct Recorded {
    asked: Asked,
    /// The objects that it creates or finds.
    created: Vec<u32>,
    /// Addresses in it, with the object and the offset.
    places: Vec<(u64, u32, u64)>,
    /// Its thread and its place in it.
    place: Place,
}

/// Which objects correspond: of the recording and of the program, by number.
#[derive(Clone, Debug, Default)]
struct Pairs {
    to_live: FxHashMap<u32, u32>,
    to_recorded: FxHashMap<u32, u32>,
}

impl Pairs {
    /// They correspond, and to no others.
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
    /// Reads a recording. Bytes of kernel parameters in `masks` are not compared. `addresses` names the addresses in a call that [`Self::live_address`] will
    /// be asked about.
    ///
    /// # Errors
    /// If the trace cannot be read.
    pub fn new(trace: &'t Trace, masks: Masks, addresses: Addresses<'_>) -> Result<Self, Error> {
        let lengths_only = settings::lacks_payloads(trace);
        let mut reader = Reader::new(trace, lengths_only);
        let mut recorded: Vec<Recorded> = Vec::new();
        trace.walk().run(|call| {
            let place = reader.place_of(call);
            reader.settle(call.ticks, call.thread, call.index);
            let asked = Asked::of(&mut reader, call);
            reader.observe(call, &mut Nothing);
            let mut places = Vec::new();
            addresses(call, &mut |address| {
                let found = reader.place(address);
                places.extend(found.map(|(object, offset)| (address, object, offset)));
            });
            let at = call.index as usize;
            if recorded.len() <= at {
                recorded.resize_with(at + 1, Recorded::default);
            }
            if let Some(slot) = recorded.get_mut(at) {
                *slot = Recorded {
                    asked,
                    created: Vec::new(),
                    places,
                    place,
                };
            }
            Ok::<(), Error>(())
        })?;
        reader.settle(u64::MAX, 0, recorded.len() as u64);
        let objects = reader.numbers.facts;
        for (number, facts) in (0..).zip(&objects) {
            let call = facts.created.and_then(|at| recorded.get_mut(at as usize));
            if let Some(call) = call {
                call.created.push(number);
            }
        }
        Ok(Self {
            trace,
            recorded,
            objects,
            live: Reader::new(trace, lengths_only),
            pairs: Pairs::default(),
            masks,
            now: 0,
        })
    }

    fn known(&self) -> Known<'_> {
        Known {
            pairs: &self.pairs,
            recorded: &self.objects,
            live: &self.live.numbers.facts,
        }
    }

    /// Whether a call of the program asks for what the recorded call with that index asks for.
    pub fn are_equal(&mut self, recorded: u64, live: &Call<'_>) -> bool {
        match self.compared(recorded, live) {
            Some(compared) if compared.words.is_empty() => {
                self.bind_all(&compared.objects);
                true
            }
            _ => false,
        }
    }

    /// If a call of the program is the recorded one but for bytes of kernel parameters: these are not
    /// compared from now on, and it is. The kernel and the bytes.
    pub fn mask_unequal(&mut self, recorded: u64, live: &Call<'_>) -> Option<Unequal> {
        let compared = self.compared(recorded, live)?;
        let kernel = compared.kernel.unwrap_or_default();
        for &(byte, bits) in &compared.words {
            self.masks.add(&kernel, byte, bits);
        }
        self.bind_all(&compared.objects);
        Some(Unequal {
            bytes: ranges(&compared.words.into_iter().collect()),
            kernel: kernel.into(),
        })
    }

    /// Compares them; `None` if they differ in more than kernel parameters.
    fn compared(&mut self, recorded: u64, live: &Call<'_>) -> Option<Compared> {
        let of_live = Asked::of(&mut self.live, live);
        let of_recorded = &self.recorded.get(recorded as usize)?.asked;
        let compared = of_recorded.compared(of_live, &self.masks)?;
        let known = self.known();
        let mut all = compared.objects.iter();
        let are_same = all.all(|&(recorded, live)| known.are_same(recorded, live));
        are_same.then_some(compared)
    }

    fn bind_all(&mut self, objects: &[(u32, u32)]) {
        for &(recorded, live) in objects {
            self.pairs.bind(recorded, live);
        }
    }

    /// The values in which a call of the program differs from a recorded call of its function: of
    /// the recording, of the program.
    pub fn changes(&mut self, recorded: u64, live: &Call<'_>) -> Vec<Change> {
        let of_live = inputs(&mut self.live, live, &self.masks);
        let mut all = changes(&self.described(recorded), &of_live, &self.known());
        let of_recorded = self.recorded.get(recorded as usize);
        let launched = of_recorded.and_then(|call| call.asked.launched);
        let launched = launched.zip(self.live.launched(live));
        if let Some((one, other)) = launched
            && all.is_empty()
            && !self.known().are_same(one, other)
        {
            // Two modules can have a kernel of that name.
            let label = |facts: &[ObjectFacts], number: u32| {
                let facts = facts.get(number as usize)?;
                Some(format!("{}#{}", facts.kind.key(), facts.generation))
            };
            all.push(Change {
                kind: Facet::Kernel.kind(),
                what: "kernel".to_owned(),
                values: [
                    label(&self.objects, one),
                    label(&self.live.numbers.facts, other),
                ],
            });
        }
        all
    }

    /// What a recorded call asks for, as names and values.
    pub fn recorded_values(&self, recorded: u64) -> Vec<(String, String)> {
        values(&self.described(recorded))
    }

    /// The same of a call of the program.
    pub fn live_values(&mut self, call: &Call<'_>) -> Vec<(String, String)> {
        values(&inputs(&mut self.live, call, &self.masks))
    }

    /// What a recorded call asks for: reads the recording again, up to there.
    fn described(&self, recorded: u64) -> Described {
        let Some(call) = self.recorded.get(recorded as usize) else {
            return Described::default();
        };
        let wanted = [(call.place, Described::default())].into_iter().collect();
        let compared = (settings::lacks_payloads(self.trace), &self.masks);
        // What cannot be read any more is not described.
        let described = describe(self.trace, compared, wanted, recorded, false);
        let mut described = described
            .ok()
            .and_then(|mut all| all.remove(&call.place))
            .unwrap_or_default();
        let is_given = |facet| !matches!(facet, Facet::Output | Facet::Result);
        described.items.retain(|item| is_given(item.facet));
        described
    }

    /// What a recorded call asks for, as a number that a call of the program has, too, if it asks
    /// for the same.
    pub fn recorded_request(&self, recorded: u64) -> u64 {
        let call = self.recorded.get(recorded as usize);
        call.map_or(0, |call| hash((call.asked.hash, &call.asked.refs)))
    }

    /// The same of a call of the program; `None` if it uses objects that the recording lacks.
    pub fn live_request(&mut self, call: &Call<'_>) -> Option<u64> {
        let asked = Asked::of(&mut self.live, call);
        let to_recorded = &self.pairs.to_recorded;
        let refs = asked.refs.iter().map(|live| to_recorded.get(live).copied());
        let refs: Option<Vec<u32>> = refs.collect();
        Some(hash((asked.hash, &refs?)))
    }

    /// The time now, for a call that is entered.
    pub fn enter(&mut self) -> u64 {
        self.now += 1;
        self.now
    }

    /// Takes in a call of the program that was entered then and has returned; the numbers of the
    /// objects that it has created.
    pub fn take_live(&mut self, call: &Call<'_>, entered: u64) -> Range<u32> {
        self.now += 1;
        let before = self.live.numbers.facts.len() as u32;
        let mut call = call.clone();
        call.ticks = entered;
        if let Some(leave) = &mut call.leave {
            leave.ticks = self.now;
        }
        self.live.observe(&call, &mut Nothing);
        self.now += 1;
        self.live.settle(self.now, call.thread, call.index);
        before..self.live.numbers.facts.len() as u32
    }

    /// From now on, what a recorded call creates corresponds to these objects of the program: each to
    /// the first of its kind.
    pub fn bind(&mut self, recorded: u64, live: Range<u32>) {
        let Some(call) = self.recorded.get(recorded as usize) else {
            return;
        };
        let kind = |facts: &[ObjectFacts], number: u32| {
            let facts = facts.get(number as usize);
            facts.map(|one| one.kind)
        };
        let others = live.filter(|&other| {
            let facts = self.live.numbers.facts.get(other as usize);
            facts.is_some_and(|facts| facts.created.is_some())
        });
        let mut others: Vec<u32> = others.collect();
        for &number in &call.created {
            let wanted = kind(&self.objects, number);
            let is_it = |&other: &u32| kind(&self.live.numbers.facts, other) == wanted;
            if let Some(at) = others.iter().position(is_it) {
                self.pairs.bind(number, others.remove(at));
            }
        }
    }

    /// An object of the program.
    pub fn used(&self, number: u32) -> Option<Used> {
        let facts = self.live.numbers.facts.get(number as usize)?;
        Some(Used {
            number,
            kind: facts.kind,
            label: facts.label(),
        })
    }

    /// The objects that a call of the program is given.
    pub fn live_objects(&mut self, call: &Call<'_>) -> Vec<Used> {
        let asked = Asked::of(&mut self.live, call);
        let numbers = asked.objects();
        numbers.filter_map(|number| self.used(number)).collect()
    }

    /// The program's objects that correspond to those that a recorded call is given.
    pub fn counterparts(&self, recorded: u64) -> Vec<Used> {
        let call = self.recorded.get(recorded as usize);
        let numbers = call.into_iter().flat_map(|call| call.asked.objects());
        let live = numbers.filter_map(|number| self.pairs.to_live.get(&number));
        live.filter_map(|&number| self.used(number)).collect()
    }

    /// The name of the kernel that a recorded call launches.
    pub fn recorded_kernel(&self, recorded: u64) -> Option<&str> {
        self.recorded
            .get(recorded as usize)?
            .asked
            .kernel
            .as_deref()
    }

    /// The same of a call of the program.
    pub fn live_kernel(&mut self, call: &Call<'_>) -> Option<Box<str>> {
        Asked::of(&mut self.live, call).kernel
    }

    /// The first recorded launch of a kernel that the program has.
    pub fn recorded_launch(&self, kernel: &Used) -> Option<u64> {
        let recorded = self.pairs.to_recorded.get(&kernel.number)?;
        let launches = |call: &Recorded| call.asked.launched == Some(*recorded);
        let found = self.recorded.iter().position(launches)?;
        Some(found as u64)
    }

    /// The object of the program that an address lies in.
    pub fn live_object_at(&self, address: u64) -> Option<Used> {
        self.used(self.live.place(address)?.0)
    }

    /// Where the memory at an address in a recorded call is in the program.
    pub fn live_address(&self, recorded: u64, address: u64) -> Option<u64> {
        let call = self.recorded.get(recorded as usize)?;
        let mut places = call.places.iter();
        let &(_, object, offset) = places.find(|place| place.0 == address)?;
        let live = *self.pairs.to_live.get(&object)?;
        let facts = self.live.numbers.facts.get(live as usize)?;
        Some(facts.handle.wrapping_add(offset))
    }
}

/// Takes no parts.
struct Nothing;

impl Sink for Nothing {
    fn part(&mut self, _: Facet, _: Label, _: Part<'_>) {}

    fn late(&mut self, _: Place, _: Label, _: Part<'_>) {}
}

/// What a call asks for: a hash of its parts, and the objects that it uses.
#[derive(Debug, Default)]
struct Asked {
    hash: u64,
    refs: Vec<u32>,
    /// The kernel that it launches, which is named by its name, and its number.
    kernel: Option<Box<str>>,
    launched: Option<u32>,
    /// The words of its kernel's parameters, by offset.
    words: Vec<(u32, Word)>,
}

/// Eight bytes of kernel parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Word {
    Number(u64),
    /// The object, and a hash of the place in it.
    Place(u32, u64),
    /// A hash.
    Other(u64),
}

impl Asked {
    fn of(reader: &mut Reader<'_>, call: &Call<'_>) -> Self {
        let mut parts = Parts::default();
        call.signature.name.hash(&mut parts.hasher);
        reader.observe_inputs(call, &mut parts);
        Self {
            hash: parts.hasher.finish(),
            launched: reader.launched(call),
            ..parts.asked
        }
    }

    /// The objects that it uses.
    fn objects(&self) -> impl Iterator<Item = u32> {
        let of_parameters = self.words.iter().filter_map(|(_, word)| match word {
            Word::Place(object, _) => Some(*object),
            _ => None,
        });
        self.refs
            .iter()
            .copied()
            .chain(of_parameters)
            .chain(self.launched)
    }

    /// Compares a recorded call with one of the program; `None` if they differ in more than kernel
    /// parameters.
    fn compared(&self, live: Self, masks: &Masks) -> Option<Compared> {
        let lengths = |of: &Self| (of.refs.len(), of.words.len());
        if self.hash != live.hash || lengths(self) != lengths(&live) {
            return None;
        }
        let refs = self.refs.iter().copied().zip(live.refs);
        let mut objects: Vec<(u32, u32)> = refs.chain(self.launched.zip(live.launched)).collect();
        let mut words = Vec::new();
        for (&(byte, one), (at, other)) in self.words.iter().zip(live.words) {
            let mask = masks.at(self.kernel.as_deref().unwrap_or_default(), byte);
            let bits = match (one, other) {
                _ if byte != at => return None,
                _ if mask == u64::MAX => 0,
                (Word::Place(one, place), Word::Place(other, other_place)) => {
                    // Another place in an object is no padding.
                    (place == other_place).then_some(())?;
                    objects.push((one, other));
                    0
                }
                (Word::Number(one), Word::Number(other)) => differing_bytes((one ^ other) & !mask),
                _ if one == other => 0,
                _ => u64::MAX,
            };
            if bits != 0 {
                words.push((byte, bits));
            }
        }
        Some(Compared {
            objects,
            kernel: live.kernel,
            words,
        })
    }
}

#[derive(Default)]
struct Parts {
    hasher: DefaultHasher,
    asked: Asked,
}

impl Sink for Parts {
    fn part(&mut self, facet: Facet, label: Label, part: Part<'_>) {
        let asked = &mut self.asked;
        if let Some(byte) = label.byte
            && label.name == KERNEL_PARAMETERS
        {
            let mut hasher = DefaultHasher::default();
            add(&mut hasher, &label, &part);
            let word = match part {
                Part::Number(number, _) => Word::Number(number),
                Part::Place { object, .. } => Word::Place(object, hasher.finish()),
                _ => Word::Other(hasher.finish()),
            };
            asked.words.push((byte, word));
            return;
        }
        add(&mut self.hasher, &label, &part);
        match part {
            Part::Place { object, .. } => asked.refs.push(object),
            Part::Text(name) if facet == Facet::Kernel && asked.kernel.is_none() => {
                asked.kernel = Some(String::from_utf8_lossy(&name).into());
            }
            _ => {}
        }
    }

    fn late(&mut self, _: Place, _: Label, _: Part<'_>) {}
}
