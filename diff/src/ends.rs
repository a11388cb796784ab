//! Calls that end objects in another order, as garbage collectors do.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::counterparts::{Counterparts, Step, entry, refs};
use crate::part::Place;
use crate::sequence::Sequence;

/// Says of calls that end objects whether only their order differs.
pub(crate) struct Ends<'s> {
    sides: [&'s Sequence; 2],
    /// By side: the counterparts of its objects.
    counterparts: [&'s [u32]; 2],
}

impl<'s> Ends<'s> {
    pub(crate) fn of(a: &'s Sequence, b: &'s Sequence, counterparts: &'s Counterparts) -> Self {
        let (to_b, to_a) = &counterparts.objects;
        Self {
            sides: [a, b],
            counterparts: [to_b, to_a],
        }
    }

    /// The calls, by side, that end objects in another order: each of them ends an object whose
    /// counterpart another of them ends, with nothing but ends between.
    pub(crate) fn reordered(
        &self,
        counterparts: &Counterparts,
        unequal: &FxHashMap<Place, Place>,
    ) -> FxHashSet<(usize, Place)> {
        let [a, b] = self.sides;
        // By call: the call that ends the counterpart, and the call that it is paired with.
        let mut found: FxHashMap<(usize, Place), (Place, Option<Place>)> = FxHashMap::default();
        let mut add = |side: usize, place: Place, there: Place, pair: Option<Place>| {
            if let Some(end) = self.counterpart_end(side, place, there) {
                found.insert((side, place), (end, pair));
            }
        };
        counterparts.steps(a, b, |step| match step {
            Step::OnlyA(place, there) => add(0, place, there, None),
            Step::OnlyB(there, place) => add(1, place, there, None),
            Step::Both(..) | Step::Moved(..) | Step::Shifted(..) => {}
        });
        for (&of_a, &of_b) in unequal {
            add(0, of_a, of_b, Some(of_b));
            add(1, of_b, of_a, Some(of_a));
        }
        loop {
            let is_whole =
                |(&(side, _), &(end, pair)): (&(usize, Place), &(Place, Option<Place>))| {
                    let other = 1 - side.min(1);
                    let of_pair = pair.is_none_or(|pair| found.contains_key(&(other, pair)));
                    of_pair && found.contains_key(&(other, end))
                };
            let broken = found.iter().filter(|one| !is_whole((one.0, one.1)));
            let broken: Vec<(usize, Place)> = broken.map(|(&call, _)| call).collect();
            if broken.is_empty() {
                return found.into_keys().collect();
            }
            for call in broken {
                found.remove(&call);
            }
        }
    }

    /// The object that a call ends.
    fn ended(sequence: &Sequence, place: Place) -> Option<u32> {
        let index = entry(sequence, place)?.index;
        let mut objects = refs(sequence, place).iter().copied();
        objects.find(|&object| {
            let facts = sequence.objects.get(object as usize);
            facts.is_some_and(|facts| facts.destroyed == Some(index))
        })
    }

    /// The call that ends the counterpart of what a call ends, if its thread does nothing but end
    /// objects between that and `there`, where the call would be.
    fn counterpart_end(&self, side: usize, place: Place, there: Place) -> Option<Place> {
        let object = Self::ended(self.sides.get(side)?, place)?;
        let counterpart = *self.counterparts.get(side)?.get(object as usize)?;
        let other = self.sides.get(1 - side.min(1))?;
        // Without a counterpart the number is beyond all objects.
        let end = other.objects.get(counterpart as usize)?.destroyed?;
        let thread = other.threads.get(there.0 as usize)?;
        let compared = &thread.compared;
        let index = |position: u32| thread.entry(position).map_or(0, |entry| entry.index);
        let first = compared.partition_point(|&position| position < there.1);
        let last = compared.partition_point(|&position| index(position) < end);
        let found = *compared.get(last)?;
        let between = compared.get(first.min(last)..first.max(last))?;
        let are_ends = between
            .iter()
            .all(|&position| Self::ended(other, (there.0, position)).is_some());
        (index(found) == end && are_ends).then_some((there.0, found))
    }
}
