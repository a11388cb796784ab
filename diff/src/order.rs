//! Threads that use a shared stream or event in another order.

use std::collections::BTreeMap;

use cutape_registry::Kind;
use rustc_hash::FxHashMap;

use crate::counterparts::{Counterparts, Step, entry};
use crate::objects::NONE;
use crate::part::Place;
use crate::sequence::Sequence;

/// An object that two threads use in another order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reordered {
    /// Its number in A.
    pub(crate) object: u32,
    /// In A the first comes before the second; in B they come the other way round.
    pub(crate) first: (Place, Place),
    pub(crate) second: (Place, Place),
}

/// Whether the order of its uses is the program's: it passes the handle to several threads.
fn is_ordered(kind: Kind) -> bool {
    matches!(kind, Kind::Stream | Kind::Event)
}

/// The objects that are used in another order.
pub(crate) fn reordered(a: &Sequence, b: &Sequence, counterparts: &Counterparts) -> Vec<Reordered> {
    let shared = shared_objects(a);
    if shared.is_empty() {
        return Vec::new();
    }
    // The uses of each shared object, as calls of A and B.
    let mut uses: FxHashMap<u32, Vec<(Place, Place)>> = FxHashMap::default();
    counterparts.steps(a, b, |step| {
        if let Step::Both(of_a, of_b) = step {
            let refs = crate::counterparts::refs(a, of_a);
            for (at, object) in refs.iter().enumerate() {
                if shared.contains_key(object) && !refs.iter().take(at).any(|one| one == object) {
                    uses.entry(*object).or_default().push((of_a, of_b));
                }
            }
        }
    });
    let index = |sequence: &Sequence, place| entry(sequence, place).map_or(0, |entry| entry.index);
    let waits = |place| entry(a, place).is_some_and(|entry| entry.waits);
    let mut found = Vec::new();
    for (object, mut uses) in uses {
        if counterparts
            .objects
            .0
            .get(object as usize)
            .is_none_or(|&other| other == NONE)
        {
            continue;
        }
        uses.sort_unstable_by_key(|&(of_a, _)| index(a, of_a));
        let pairs = uses.iter().zip(uses.iter().skip(1));
        let swapped = pairs.filter(|(first, second)| {
            index(b, first.1) > index(b, second.1)
                && first.0.0 != second.0.0
                && !(waits(first.0) && waits(second.0))
        });
        if let Some((&first, &second)) = swapped.into_iter().next() {
            found.push(Reordered {
                object,
                first,
                second,
            });
        }
    }
    found.sort_unstable_by_key(|one| index(a, one.first.0));
    found
}

/// The streams and events that several threads use.
fn shared_objects(sequence: &Sequence) -> BTreeMap<u32, ()> {
    let mut users: FxHashMap<u32, (u32, bool)> = FxHashMap::default();
    for (thread, calls) in (0..).zip(&sequence.threads) {
        for &position in &calls.compared {
            for &object in calls.refs(position) {
                let facts = sequence.objects.get(object as usize);
                if facts.is_some_and(|facts| is_ordered(facts.kind)) {
                    let user = users.entry(object).or_insert((thread, false));
                    user.1 |= user.0 != thread;
                }
            }
        }
    }
    let shared = users.into_iter().filter(|(_, (_, by_several))| *by_several);
    shared.map(|(object, _)| (object, ())).collect()
}
