//! Which calls and objects of one trace correspond to which of the other.

use std::collections::{BTreeMap, VecDeque};

use rustc_hash::FxHashMap;

use crate::align::{EQUAL, Run, align, refine};
use crate::hash::hash;
use crate::objects::NONE;
use crate::part::Place;
use crate::sequence::{Entry, Sequence, ThreadCalls};
use crate::threads;

/// What tells calls apart that create objects of the same sort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hint {
    /// Only their place.
    None,
    /// How the objects are used: finds the one of many equal allocations that only one trace has.
    /// Where the use itself differs, it misleads.
    Uses,
}

/// A step through two traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Calls that correspond.
    Both(Place, Place),
    /// Calls that correspond and are made by other threads.
    Moved(Place, Place),
    /// Calls that correspond and are made at another place of the thread.
    Shifted(Place, Place),
    /// A call of A, and where it would be in B.
    OnlyA(Place, Place),
    /// A call of B, and where it would be in A.
    OnlyB(Place, Place),
}

/// What corresponds to what.
#[derive(Debug, Default)]
pub(crate) struct Counterparts {
    /// Threads of A and B.
    pub(crate) threads: Vec<(u32, u32)>,
    /// Threads that have no counterpart.
    pub(crate) only_in_a: Vec<u32>,
    pub(crate) only_in_b: Vec<u32>,
    /// By pair of threads.
    runs: Vec<Vec<Run>>,
    /// Calls of `OnlyA` runs with the calls of `OnlyB` runs that equal them, both ways.
    moved: FxHashMap<Place, Place>,
    moved_back: FxHashMap<Place, Place>,
    /// Objects of A by number: that of B. The other way round.
    pub(crate) objects: (Vec<u32>, Vec<u32>),
}

impl Counterparts {
    pub(crate) fn find(a: &Sequence, b: &Sequence, hint: Hint) -> Self {
        let mut found = Self {
            threads: threads::pairs(a, b),
            ..Self::default()
        };
        let of_a = |thread: &u32| !found.threads.iter().any(|pair| pair.0 == *thread);
        found.only_in_a = (0..a.threads.len() as u32).filter(of_a).collect();
        let of_b = |thread: &u32| !found.threads.iter().any(|pair| pair.1 == *thread);
        found.only_in_b = (0..b.threads.len() as u32).filter(of_b).collect();
        let pairs: Vec<_> = found
            .threads
            .iter()
            .filter_map(|&(thread_a, thread_b)| {
                let calls_a = a.threads.get(thread_a as usize)?;
                Some((
                    (thread_a, calls_a),
                    (thread_b, b.threads.get(thread_b as usize)?),
                ))
            })
            .collect();
        found.runs = pairs
            .iter()
            .map(|((_, calls_a), (_, calls_b))| {
                align(
                    EQUAL,
                    (calls_a.compared.len() as u32, &|_, at| {
                        token(a, calls_a, hint, 0, at)
                    }),
                    (calls_b.compared.len() as u32, &|_, at| {
                        token(b, calls_b, hint, 0, at)
                    }),
                )
            })
            .collect();
        // Before calls that are merely similar are paired: a pool's threads share its work anyhow.
        found.find_moved(a, b, false);
        let mut refined = Vec::new();
        for (((thread_a, calls_a), (thread_b, calls_b)), runs) in pairs.iter().zip(&found.runs) {
            let is_moved = |side: usize, at: u32| match side {
                0 => found
                    .moved
                    .contains_key(&(*thread_a, position(calls_a, at))),
                _ => found
                    .moved_back
                    .contains_key(&(*thread_b, position(calls_b, at))),
            };
            refined.push(refine(
                runs,
                &|level, at| token(a, calls_a, hint, level, at),
                &|level, at| token(b, calls_b, hint, level, at),
                &is_moved,
            ));
        }
        found.runs = refined;
        found.find_moved(a, b, true);
        found.objects = (vec![NONE; a.objects.len()], vec![NONE; b.objects.len()]);
        found.pair_created(a, b);
        found
    }

    /// Pairs calls that one side makes elsewhere: in another thread, or, with `in_thread` and if
    /// there is one such call only, at another place of the thread.
    fn find_moved(&mut self, a: &Sequence, b: &Sequence, in_thread: bool) {
        let mut free: FxHashMap<u64, [Vec<Place>; 2]> = FxHashMap::default();
        self.steps(a, b, |step| {
            let (side, sequence, place) = match step {
                Step::OnlyA(place, _) => (0, a, place),
                Step::OnlyB(_, place) => (1, b, place),
                Step::Both(..) | Step::Moved(..) | Step::Shifted(..) => return,
            };
            if let Some(entry) = entry(sequence, place) {
                let of_hash = free.entry(entry.everything()).or_default();
                if let Some(places) = of_hash.get_mut(side) {
                    places.push(place);
                }
            }
        });
        let counterparts: FxHashMap<u32, u32> = self.threads.iter().copied().collect();
        for [of_a, of_b] in free.into_values() {
            let is_one = in_thread && of_a.len() == 1 && of_b.len() == 1;
            let mut rest: BTreeMap<u32, VecDeque<Place>> = BTreeMap::new();
            for place in of_b {
                rest.entry(place.0).or_default().push_back(place);
            }
            for place in of_a {
                let own = counterparts.get(&place.0);
                let mut others = rest.iter_mut().filter(|(thread, places)| {
                    !places.is_empty() && (is_one || own != Some(thread))
                });
                if let Some(other) = others.next().and_then(|(_, places)| places.pop_front()) {
                    self.moved.insert(place, other);
                    self.moved_back.insert(other, place);
                }
            }
        }
    }

    /// Objects correspond if the calls that create them do.
    fn pair_created(&mut self, a: &Sequence, b: &Sequence) {
        let (mut to_b, mut to_a) = std::mem::take(&mut self.objects);
        self.steps(a, b, |step| {
            let (Step::Both(of_a, of_b) | Step::Moved(of_a, of_b) | Step::Shifted(of_a, of_b)) =
                step
            else {
                return;
            };
            let (Some(of_a), Some(of_b)) = (entry(a, of_a), entry(b, of_b)) else {
                return;
            };
            let mut others: Vec<u32> = b.created_by(of_b).collect();
            for object in a.created_by(of_a) {
                let kind = |sequence: &Sequence, object: u32| {
                    sequence
                        .objects
                        .get(object as usize)
                        .map(|facts| facts.kind)
                };
                let same = others
                    .iter()
                    .position(|&other| kind(a, object) == kind(b, other));
                if let Some(at) = same {
                    bind(&mut to_b, &mut to_a, object, others.remove(at));
                }
            }
        });
        self.objects = (to_b, to_a);
    }

    /// Steps through all threads that correspond, one after the other.
    pub(crate) fn steps(&self, a: &Sequence, b: &Sequence, mut each: impl FnMut(Step)) {
        let nothing = ThreadCalls::default();
        for (&(thread_a, thread_b), runs) in self.threads.iter().zip(&self.runs) {
            let calls_a = a.threads.get(thread_a as usize).unwrap_or(&nothing);
            let calls_b = b.threads.get(thread_b as usize).unwrap_or(&nothing);
            let place_a = |at: u32| (thread_a, position(calls_a, at));
            let place_b = |at: u32| (thread_b, position(calls_b, at));
            for run in runs {
                match *run {
                    Run::Both(from_a, from_b, length) => {
                        for at in 0..length {
                            each(Step::Both(place_a(from_a + at), place_b(from_b + at)));
                        }
                    }
                    Run::OnlyA(from, other, length) => {
                        for at in from..from + length {
                            let place = place_a(at);
                            each(match self.moved.get(&place) {
                                Some(&to) if to.0 == thread_b => Step::Shifted(place, to),
                                Some(&to) => Step::Moved(place, to),
                                None => Step::OnlyA(place, place_b(other)),
                            });
                        }
                    }
                    Run::OnlyB(other, from, length) => {
                        for at in from..from + length {
                            let place = place_b(at);
                            if !self.moved_back.contains_key(&place) {
                                each(Step::OnlyB(place_a(other), place));
                            }
                        }
                    }
                }
            }
        }
    }

    /// Whether an object of A and one of B correspond; objects without a counterpart do from now
    /// on.
    pub(crate) fn are_same(&mut self, a: u32, b: u32, may_bind: bool) -> bool {
        let (to_b, to_a) = &mut self.objects;
        let of = |table: &[u32], at: u32| table.get(at as usize).copied().unwrap_or(NONE);
        match (of(to_b, a), of(to_a, b)) {
            (NONE, NONE) if may_bind => {
                bind(to_b, to_a, a, b);
                true
            }
            (other, _) => other == b,
        }
    }
}

fn bind(to_b: &mut [u32], to_a: &mut [u32], a: u32, b: u32) {
    if let (Some(of_a), Some(of_b)) = (to_b.get_mut(a as usize), to_a.get_mut(b as usize)) {
        (*of_a, *of_b) = (b, a);
    }
}

/// The entry of a call.
pub(crate) fn entry(sequence: &Sequence, place: Place) -> Option<&Entry> {
    sequence.threads.get(place.0 as usize)?.entry(place.1)
}

/// The objects that a call uses.
pub(crate) fn refs(sequence: &Sequence, place: Place) -> &[u32] {
    let thread = sequence.threads.get(place.0 as usize);
    thread.map_or(&[], |calls| calls.refs(place.1))
}

/// From a position among the compared calls to one among all; behind the last, to the end.
fn position(calls: &ThreadCalls, at: u32) -> u32 {
    let known = calls.compared.get(at as usize).copied();
    known.unwrap_or(calls.entries.len() as u32)
}

fn token(sequence: &Sequence, calls: &ThreadCalls, hint: Hint, level: usize, at: u32) -> u64 {
    let Some(entry) = calls.entry(position(calls, at)) else {
        return 0;
    };
    match level {
        0 => match hint {
            Hint::None => entry.everything(),
            Hint::Uses => hash((entry.everything(), sequence.uses(entry))),
        },
        1 => entry.request(),
        2 => entry.name(),
        _ => u64::from(entry.function),
    }
}
