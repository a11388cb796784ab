//! Which findings were written out, so that a loop does not repeat one a million times, and how
//! often each was repeated.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use rustc_hash::FxHashMap;

use crate::finding::FindingKey;

/// How many findings are remembered.
const REMEMBERED: usize = 1 << 16;

/// What a finding has in common with those that repeat it: the rule, and a hash of the rest.
pub(crate) type Key = (&'static str, u64);

/// The findings that were written out.
#[derive(Debug, Default)]
pub(crate) struct Reported {
    /// How many were left out, and what those are called.
    known: FxHashMap<Key, (u64, FindingKey)>,
    /// The counts of those that were forgotten.
    forgotten: HashMap<FindingKey, u64>,
}

impl Reported {
    /// Forgets all if they are too many. Before the checks of a call, not between them and their
    /// findings: a rule leaves out the words of one that is known.
    #[inline]
    pub(crate) fn make_room(&mut self) {
        if self.known.len() >= REMEMBERED {
            self.forget();
        }
    }

    fn forget(&mut self) {
        for (repeats, key) in std::mem::take(&mut self.known).into_values() {
            if repeats > 0 {
                *self.forgotten.entry(key).or_default() += repeats;
            }
        }
    }

    /// Whether there was such a finding.
    pub(crate) fn contains(&self, key: &Key) -> bool {
        self.known.contains_key(key)
    }

    /// Adds one; false if there was such a finding, which is counted.
    pub(crate) fn insert(&mut self, key: Key) -> bool {
        match self.known.entry(key) {
            Entry::Occupied(mut known) => {
                known.get_mut().0 += 1;
                false
            }
            Entry::Vacant(new) => {
                new.insert((0, FindingKey::default()));
                true
            }
        }
    }

    /// What a finding that was added is called.
    pub(crate) fn name(&mut self, key: &Key, name: &FindingKey) {
        if let Some((_, known)) = self.known.get_mut(key) {
            known.clone_from(name);
        }
    }

    /// How many repeats of each finding were left out.
    pub(crate) fn take_repeats(&mut self) -> HashMap<FindingKey, u64> {
        self.forget();
        std::mem::take(&mut self.forgotten)
    }
}
