//! Sets of kinds of objects, and tables with an entry for each kind.

use cutape_registry::Kind;

/// More than the registry has kinds.
const KINDS: usize = 64;

/// A set of kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kinds(u64);

impl Kinds {
    /// The set of these kinds.
    pub const fn of(kinds: &[Kind]) -> Self {
        let (mut set, mut at) = (0, 0);
        while at < kinds.len() {
            #[expect(clippy::indexing_slicing, reason = "the index is below the length")]
            let kind = kinds[at];
            set |= 1 << (kind as usize % KINDS);
            at += 1;
        }
        Self(set)
    }

    /// Adds a kind.
    pub fn insert(&mut self, kind: Kind) {
        self.0 |= 1 << (kind as usize % KINDS);
    }

    /// Whether the kind is in the set.
    pub fn contains(self, kind: Kind) -> bool {
        self.0 & 1 << (kind as usize % KINDS) != 0
    }

    /// Whether the sets have a kind in common.
    pub fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

impl FromIterator<Kind> for Kinds {
    fn from_iter<I: IntoIterator<Item = Kind>>(kinds: I) -> Self {
        let mut set = Self::default();
        kinds.into_iter().for_each(|kind| set.insert(kind));
        set
    }
}

/// A value for each kind.
#[derive(Clone, Debug)]
pub(crate) struct PerKind<T>([T; KINDS]);

impl<T: Default> Default for PerKind<T> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| T::default()))
    }
}

impl<T> PerKind<T> {
    #[expect(clippy::indexing_slicing, reason = "the index is below the length")]
    pub(crate) fn of(&self, kind: Kind) -> &T {
        &self.0[kind as usize % KINDS]
    }

    #[expect(clippy::indexing_slicing, reason = "the index is below the length")]
    pub(crate) fn of_mut(&mut self, kind: Kind) -> &mut T {
        &mut self.0[kind as usize % KINDS]
    }
}
