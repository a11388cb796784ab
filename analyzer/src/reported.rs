//! Which findings were written out, so that a loop does not repeat one a million times.

use rustc_hash::FxHashSet;

/// How many findings are remembered.
const REMEMBERED: usize = 1 << 16;

/// What a finding has in common with those that repeat it: rule, function, caller and subject.
pub(crate) type Key = (&'static str, u16, u64, u64);

/// The findings that were written out.
#[derive(Debug, Default)]
pub(crate) struct Reported(FxHashSet<Key>);

impl Reported {
    /// Forgets all if they are too many. Before the checks of a call, not between them and their
    /// findings: a rule leaves out the words of one that is known.
    #[inline]
    pub(crate) fn make_room(&mut self) {
        if self.0.len() >= REMEMBERED {
            self.0.clear();
        }
    }

    /// Whether there was such a finding.
    pub(crate) fn contains(&self, key: &Key) -> bool {
        self.0.contains(key)
    }

    /// Adds one; false if there was such a finding.
    pub(crate) fn insert(&mut self, key: Key) -> bool {
        self.0.insert(key)
    }
}
