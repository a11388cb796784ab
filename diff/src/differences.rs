//! What differs between calls that correspond, and which calls do not.

use rustc_hash::FxHashMap;

use crate::counterparts::{Counterparts, Step, entry, refs};
use crate::ends::Ends;
use crate::hash::hash;
use crate::objects::NONE;
use crate::order::{Reordered, reordered};
use crate::part::{Facet, Place};
use crate::report::Kind;
use crate::sequence::{Entry, Sequence};

/// A set of kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Kinds(u16);

impl Kinds {
    pub(crate) fn of(kinds: &[Kind]) -> Self {
        Self(kinds.iter().fold(0, |set, &kind| set | 1 << kind as u16))
    }

    /// The kinds of both sets.
    pub(crate) fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) fn insert(&mut self, kind: Kind) {
        self.0 |= 1 << kind as u16;
    }

    pub(crate) fn contains(self, kind: Kind) -> bool {
        self.0 & 1 << kind as u16 != 0
    }

    pub(crate) fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn list(self) -> Vec<Kind> {
        let all = Kind::ALL.into_iter();
        all.filter(|&kind| self.contains(kind)).collect()
    }
}

/// The calls that differ.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Calls {
    /// Calls that correspond.
    Both(Place, Place),
    /// One or several calls in a row of one trace.
    Only(usize, Place),
    /// An object that one trace does not destroy: which trace has the call, the call, the object
    /// in that trace.
    Leak(usize, Place, u32),
    /// A thread of one trace.
    Thread(usize, u32),
    /// Two calls that come in another order.
    Order(Reordered),
}

/// Calls that differ and do not count.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Uncounted {
    /// Another thread makes them.
    pub(crate) moved: u64,
    /// They end objects in another order; of both traces.
    pub(crate) reordered_ends: u64,
}

/// A difference before its calls are described.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Raw {
    /// Where it is in A, and in B.
    pub(crate) position: (u64, u64),
    pub(crate) kinds: Kinds,
    pub(crate) calls: Calls,
    pub(crate) count: u64,
    /// How many objects calls in a row create that are not destroyed.
    pub(crate) leaks: u64,
    /// Equal for differences that read the same.
    pub(crate) group: u64,
}

/// A thread of one trace alone.
fn only_thread(side: usize, sequence: &Sequence, thread: u32) -> Option<Raw> {
    let calls = sequence.threads.get(thread as usize)?;
    let index = calls.entry(*calls.compared.first()?)?.index;
    Some(Raw {
        position: match side {
            0 => (index, 0),
            _ => (u64::MAX, index),
        },
        kinds: Kinds::of(&[Kind::Thread]),
        calls: Calls::Thread(side, thread),
        count: calls.compared.len() as u64,
        leaks: 0,
        group: hash((side, thread, "thread")),
    })
}

/// Threads that do the same at an object in another order.
fn other_order(a: &Sequence, b: &Sequence, one: Reordered) -> Raw {
    let index = entry(a, one.first.0).map_or(0, |entry| entry.index);
    let index_b = entry(b, one.first.1).map_or(0, |entry| entry.index);
    Raw {
        position: (index, index_b),
        kinds: Kinds::of(&[Kind::Order]),
        calls: Calls::Order(one),
        count: 1,
        leaks: 0,
        group: hash((one.object, "reordered")),
    }
}

/// All differences, in the order of A. `ignored` is asked about each and says which of its kinds do
/// not count.
pub(crate) fn differences(
    a: &Sequence,
    b: &Sequence,
    counterparts: &mut Counterparts,
    ignored: &mut dyn FnMut(&Raw) -> Kinds,
) -> (Vec<Raw>, Uncounted) {
    let mut raws: Vec<Raw> = Vec::new();
    let mut moved = 0;
    let mut reordered_ends = 0;
    // Objects that no call created correspond when calls that correspond use them first, so calls
    // are looked at in their order, while the counterparts change.
    let mut steps = Vec::new();
    counterparts.steps(a, b, |step| match step {
        Step::Both(of_a, of_b) if is_equal(a, b, of_a, of_b) => {}
        step => steps.push(step),
    });
    let unequal = bind_and_compare(a, b, counterparts);
    let leaks = Leaks::find(a, b, counterparts);
    let ends = Ends::of(a, b, counterparts).reordered(counterparts, &unequal);
    let mut last: Option<(usize, Place)> = None;
    for step in steps {
        let raw = match step {
            Step::Both(of_a, of_b) => pair(a, b, (of_a, of_b), unequal.contains_key(&of_a)),
            Step::Moved(..) => {
                moved += 1;
                None
            }
            Step::Shifted(of_a, of_b) => {
                let mut raw = both(a, b, of_a, of_b);
                raw.kinds.insert(Kind::Order);
                raw.group = hash((raw.group, "order"));
                Some(raw)
            }
            Step::OnlyA(place, _) if ends.contains(&(0, place)) => {
                reordered_ends += 1;
                None
            }
            Step::OnlyB(_, place) if ends.contains(&(1, place)) => {
                reordered_ends += 1;
                None
            }
            Step::OnlyA(place, other) => Some(only(0, (a, b), place, other, &leaks)),
            Step::OnlyB(other, place) => Some(only(1, (b, a), place, other, &leaks)),
        };
        let Some(mut raw) = raw else { continue };
        let ignored = ignored(&raw);
        raw.kinds = raw.kinds.without(ignored);
        // A leak that does not count is still a call of one trace.
        if raw.kinds.is_empty() && raw.leaks > 0 {
            raw.kinds = Kinds::of(&[Kind::Call]).without(ignored);
            raw.leaks = 0;
        }
        // Calls in a row of one trace are one difference.
        let row = match raw.calls {
            Calls::Only(side, place) => Some((side, place)),
            // A call that creates an object; one that destroys it is a difference of its own.
            Calls::Leak(side, place, _) if raw.leaks > 0 => Some((side, place)),
            Calls::Leak(..) | Calls::Both(..) | Calls::Thread(..) | Calls::Order(_) => None,
        };
        let row = row.filter(|_| !raw.kinds.is_empty());
        if let (Some((side, place)), Some((last_side, last_place))) = (row, last)
            && (side, place.0) == (last_side, last_place.0)
            && place.1 == next_of(if side == 0 { a } else { b }, last_place)
            && let Some(before) = raws.last_mut()
        {
            before.kinds.insert(Kind::Call);
            before.count += 1;
            before.leaks += raw.leaks;
            if raw.leaks > 0 {
                before.kinds.insert(Kind::Leak);
            }
            before.kinds = before.kinds.without(ignored);
            last = Some((side, place));
            continue;
        }
        last = row;
        if !raw.kinds.is_empty() {
            raws.push(raw);
        } else {
            last = None;
        }
    }
    let mut others = Vec::new();
    // Pairs that differ only in the objects that they use.
    for (of_a, of_b) in unequal {
        if ends.contains(&(0, of_a)) && ends.contains(&(1, of_b)) {
            reordered_ends += 2;
        } else if is_equal(a, b, of_a, of_b) {
            others.extend(pair(a, b, (of_a, of_b), true));
        }
    }
    let threads = counterparts.only_in_a.iter();
    others.extend(threads.filter_map(|&thread| only_thread(0, a, thread)));
    let threads = counterparts.only_in_b.iter();
    others.extend(threads.filter_map(|&thread| only_thread(1, b, thread)));
    let order = reordered(a, b, counterparts).into_iter();
    others.extend(order.map(|one| other_order(a, b, one)));
    for mut raw in others {
        raw.kinds = raw.kinds.without(ignored(&raw));
        if !raw.kinds.is_empty() {
            raws.push(raw);
        }
    }
    raws.sort_by_key(|raw| raw.position);
    let uncounted = Uncounted {
        moved,
        reordered_ends,
    };
    (raws, uncounted)
}

/// The position of the next compared call of a thread.
fn next_of(sequence: &Sequence, place: Place) -> u32 {
    let calls = sequence.threads.get(place.0 as usize);
    let next = calls.and_then(|calls| {
        let at = calls.compared.partition_point(|&at| at <= place.1);
        calls.compared.get(at).copied()
    });
    next.unwrap_or(NONE)
}

fn is_equal(a: &Sequence, b: &Sequence, of_a: Place, of_b: Place) -> bool {
    let (Some(in_a), Some(in_b)) = (entry(a, of_a), entry(b, of_b)) else {
        return true;
    };
    in_a.facets == in_b.facets && !late_differs(in_a, in_b)
}

fn late_differs(a: &Entry, b: &Entry) -> bool {
    a.late != 0 && b.late != 0 && a.late != b.late
}

/// Lets objects correspond that calls which correspond use; the calls that use others.
fn bind_and_compare(
    a: &Sequence,
    b: &Sequence,
    counterparts: &mut Counterparts,
) -> FxHashMap<Place, Place> {
    let mut unequal = FxHashMap::default();
    let mut waiting = Vec::new();
    let known = &counterparts.objects.0;
    counterparts.steps(a, b, |step| {
        // What another thread does may be about objects of its own.
        if let Step::Both(of_a, of_b) | Step::Shifted(of_a, of_b) = step {
            let (in_a, in_b) = (refs(a, of_a), refs(b, of_b));
            let is_same = in_a.len() == in_b.len()
                && in_a
                    .iter()
                    .zip(in_b)
                    .all(|(&one, &other)| known.get(one as usize).is_some_and(|&to| to == other));
            if !is_same && in_a.len() == in_b.len() {
                waiting.push((of_a, of_b));
            }
        }
    });
    // In the order of A, so that the first use decides.
    waiting.sort_by_key(|&(of_a, _)| entry(a, of_a).map_or(0, |entry| entry.index));
    for (of_a, of_b) in waiting {
        let (in_a, in_b) = (refs(a, of_a), refs(b, of_b));
        let kinds = |one: u32, other: u32| {
            let of_one = a.objects.get(one as usize).map(|facts| facts.kind);
            of_one == b.objects.get(other as usize).map(|facts| facts.kind)
        };
        let mut is_same = true;
        for (&one, &other) in in_a.iter().zip(in_b) {
            is_same &= counterparts.are_same(one, other, kinds(one, other));
        }
        if !is_same {
            unequal.insert(of_a, of_b);
        }
    }
    unequal
}

/// Two calls that correspond, as a difference of no kind.
fn both(a: &Sequence, b: &Sequence, of_a: Place, of_b: Place) -> Raw {
    let (in_a, in_b) = (entry(a, of_a), entry(b, of_b));
    let name = in_a.map_or(0, Entry::name);
    Raw {
        position: (
            in_a.map_or(0, |entry| entry.index),
            in_b.map_or(0, |entry| entry.index),
        ),
        kinds: Kinds::default(),
        calls: Calls::Both(of_a, of_b),
        count: 1,
        leaks: 0,
        group: name,
    }
}

fn pair(
    a: &Sequence,
    b: &Sequence,
    (of_a, of_b): (Place, Place),
    has_other_objects: bool,
) -> Option<Raw> {
    let (in_a, in_b) = (entry(a, of_a)?, entry(b, of_b)?);
    let mut raw = both(a, b, of_a, of_b);
    for facet in Facet::ALL {
        let values = (in_a.facet(facet), in_b.facet(facet));
        if values.0 == values.1 {
            continue;
        }
        let asks = in_a.asks_for_machine;
        raw.kinds
            .insert(if asks { Kind::Machine } else { facet.kind() });
        // Bytes differ in a way of their own each time.
        let shown = match facet {
            Facet::Data | Facet::Output => (0, 0),
            _ => values,
        };
        raw.group = hash((raw.group, facet as usize, shown));
    }
    if late_differs(in_a, in_b) {
        raw.kinds.insert(Kind::Output);
    }
    if has_other_objects {
        raw.kinds.insert(Kind::Object);
        raw.group = hash((raw.group, "object"));
    }
    (!raw.kinds.is_empty()).then_some(raw)
}

/// A call that only one of the traces has.
fn only(
    side: usize,
    (own, other): (&Sequence, &Sequence),
    place: Place,
    missing_at: Place,
    leaks: &Leaks,
) -> Raw {
    let entry_of = entry(own, place);
    let index = entry_of.map_or(0, |entry| entry.index);
    // Where it is missing: at the next call of the thread, or behind its last one.
    let there = entry(other, missing_at).map(|entry| entry.index);
    let behind = || {
        let calls = other.threads.get(missing_at.0 as usize);
        let last = calls.and_then(|calls| calls.entries.last());
        last.map_or(0, |entry| entry.index.saturating_add(1))
    };
    let there = there.unwrap_or_else(behind);
    let name = entry_of.map_or(0, Entry::name);
    let leak = leaks.of_call(side, index);
    let is_created = leak.is_some_and(|object| {
        let facts = own.objects.get(object as usize);
        facts.is_some_and(|facts| facts.destroyed.is_none())
    });
    Raw {
        position: if side == 0 {
            (index, there)
        } else {
            (there, index)
        },
        kinds: Kinds::of(&[if leak.is_some() {
            Kind::Leak
        } else {
            Kind::Call
        }]),
        calls: match leak {
            Some(object) => Calls::Leak(side, place, object),
            None => Calls::Only(side, place),
        },
        count: 1,
        leaks: u64::from(is_created),
        group: hash((side, name, leak, "only")),
    }
}

/// Objects that one of the traces does not destroy.
struct Leaks {
    /// By side and index of a call that only this side has: the object that it destroys and the
    /// other side keeps, or that it creates and does not destroy.
    by_call: FxHashMap<(usize, u64), u32>,
}

impl Leaks {
    fn find(a: &Sequence, b: &Sequence, counterparts: &Counterparts) -> Self {
        let mut by_call = FxHashMap::default();
        for (side, own, other, to_other) in [
            (0, a, b, &counterparts.objects.0),
            (1, b, a, &counterparts.objects.1),
        ] {
            for ((number, facts), &counterpart) in (0..).zip(&own.objects).zip(to_other) {
                if !facts.is_owned {
                    continue;
                }
                let call = match (counterpart, facts.destroyed, facts.created) {
                    (NONE, None, Some(created)) => created,
                    (NONE, _, _) => continue,
                    (_, Some(destroyed), _) => {
                        let other = other.objects.get(counterpart as usize);
                        if other.is_none_or(|other| other.destroyed.is_some()) {
                            continue;
                        }
                        destroyed
                    }
                    _ => continue,
                };
                by_call.entry((side, call)).or_insert(number);
            }
        }
        Self { by_call }
    }

    fn of_call(&self, side: usize, index: u64) -> Option<u32> {
        self.by_call.get(&(side, index)).copied()
    }
}
