//! How to get from a frame to its caller's, in a word, and the rules that are known.

use core::sync::atomic::{AtomicU64, Ordering};

/// The address from which a frame's places are counted: rsp before the call that made the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cfa {
    /// rsp and a distance.
    Stack(i64),
    /// rbp and a distance.
    Base(i64),
    /// The word at rbp and a distance.
    AtBase(i64),
    Unsupported,
}

impl Cfa {
    pub(super) fn offset(self) -> i64 {
        match self {
            Self::Stack(offset) | Self::Base(offset) | Self::AtBase(offset) => offset,
            Self::Unsupported => 0,
        }
    }

    pub(super) fn with_offset(self, offset: i64) -> Self {
        match self {
            Self::Stack(_) => Self::Stack(offset),
            Self::Base(_) => Self::Base(offset),
            Self::AtBase(_) | Self::Unsupported => Self::Unsupported,
        }
    }
}

/// How to get to the caller's frame. The return address is the word below the CFA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// There is no caller.
    End,
    /// rbp was saved at that distance from the CFA; at 0: it was not.
    Frame(Cfa, i64),
    /// The frame into which a signal handler returns.
    Signal,
    /// Nothing is known: rbp may be a frame pointer.
    Unknown,
}

const KINDS: u32 = 4;
const CFA_BITS: u32 = 32;
const BASE_BITS: u32 = 28;

impl Rule {
    /// `None` if the distances are greater than any frame's.
    pub(super) fn frame(cfa: Cfa, base: Option<i64>) -> Option<Self> {
        let rule = Self::Frame(cfa, base.unwrap_or(0));
        (Self::from_word(rule.word()) == rule).then_some(rule)
    }

    fn word(self) -> u64 {
        let packed = |kind: u64, cfa: i64, base: i64| {
            let base = (base / 8) as u64 & ((1 << BASE_BITS) - 1);
            kind | (cfa as u64 & u64::from(u32::MAX)) << KINDS | base << (KINDS + CFA_BITS)
        };
        match self {
            Self::End => 1,
            Self::Signal => 2,
            Self::Unknown | Self::Frame(Cfa::Unsupported, _) => 3,
            Self::Frame(Cfa::Stack(offset), base) => packed(4, offset, base),
            Self::Frame(Cfa::Base(offset), base) => packed(5, offset, base),
            Self::Frame(Cfa::AtBase(offset), base) => packed(6, offset, base),
        }
    }

    fn from_word(word: u64) -> Self {
        let offset = i64::from((word >> KINDS) as u32 as i32);
        let base = (word as i64 >> (KINDS + CFA_BITS)) * 8;
        match word & ((1 << KINDS) - 1) {
            1 => Self::End,
            2 => Self::Signal,
            4 => Self::Frame(Cfa::Stack(offset), base),
            5 => Self::Frame(Cfa::Base(offset), base),
            6 => Self::Frame(Cfa::AtBase(offset), base),
            _ => Self::Unknown,
        }
    }
}

/// Rules that a place holds. Addresses that are too many for their place replace each other, and
/// their rules are then computed again at every stack. With a hundred return addresses in constant
/// use that happens in one process of 200,000 (computed); with one rule a place, in every second.
const WAYS: usize = 4;
/// Places. A rule may be replaced by that of another address at any moment.
const SETS: usize = 1 << 11;
const ODD: u64 = 0x9e37_79b9_7f4a_7c15;

/// An address, combined with its rule, and the rule.
struct Known {
    key: AtomicU64,
    rule: AtomicU64,
}

/// In one line of the cache.
#[repr(align(64))]
struct Set([Known; WAYS]);

/// Rules by address.
struct Table([Set; SETS]);

static KNOWN: Table = Table::new();

impl Table {
    const fn new() -> Self {
        Self(
            [const {
                Set([const {
                    Known {
                        key: AtomicU64::new(0),
                        rule: AtomicU64::new(0),
                    }
                }; WAYS])
            }; SETS],
        )
    }

    fn set_of(&self, address: u64) -> &[Known; WAYS] {
        let at = (address.wrapping_mul(ODD) >> (64 - SETS.trailing_zeros())) as usize;
        // The product's upper bits are fewer than the sets.
        &self.0.get(at).unwrap_or(&self.0[0]).0
    }

    #[inline]
    fn get(&self, address: u64) -> Option<Rule> {
        self.set_of(address).iter().find_map(|known| {
            let word = known.rule.load(Ordering::Relaxed);
            // If another thread is replacing the rule, the words do not fit together.
            let is_its = known.key.load(Ordering::Relaxed) ^ word.wrapping_mul(ODD) == address;
            is_its.then(|| Rule::from_word(word))
        })
    }

    #[cold]
    fn put(&self, address: u64, rule: Rule) {
        /// Which one is replaced next.
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let (set, word) = (self.set_of(address), rule.word());
        let free = set
            .iter()
            .find(|known| known.rule.load(Ordering::Relaxed) == 0);
        let replaced = || set.get(NEXT.fetch_add(1, Ordering::Relaxed) as usize % WAYS);
        if let Some(known) = free.or_else(replaced) {
            known.rule.store(word, Ordering::Relaxed);
            known
                .key
                .store(address ^ word.wrapping_mul(ODD), Ordering::Relaxed);
        }
    }
}

/// The rule that was remembered for an address.
#[inline]
pub(super) fn known(address: u64) -> Option<Rule> {
    KNOWN.get(address)
}

/// Remembers the rule of an address, if need be in the place of another's.
pub(super) fn remember(address: u64, rule: Rule) {
    KNOWN.put(address, rule);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_fit_a_word() {
        let frames = [
            (Cfa::Stack(8), None, true),
            (Cfa::Stack(16), Some(-16), true),
            (Cfa::Base(16), Some(-16), true),
            (Cfa::AtBase(-8), Some(-16), true),
            (Cfa::Stack(i64::from(i32::MAX)), Some(-(1 << 30)), true),
            (Cfa::Stack(1 << 40), None, false),
            (Cfa::Stack(8), Some(-(1 << 40)), false),
            (Cfa::Stack(8), Some(-12), false),
        ];
        for (cfa, base, fits) in frames {
            assert_eq!(Rule::frame(cfa, base).is_some(), fits, "{cfa:?} {base:?}");
        }
        for rule in [Rule::End, Rule::Signal, Rule::Unknown] {
            assert_eq!(Rule::from_word(rule.word()), rule);
        }
    }

    #[test]
    fn rules_are_remembered_until_replaced() {
        static TABLE: Table = Table::new();
        let rule = Rule::frame(Cfa::Base(16), Some(-16)).unwrap();
        // As many as a place has stay; then one goes.
        let same = |other: &u64| core::ptr::eq(TABLE.set_of(*other), TABLE.set_of(0x1000));
        let addresses: Vec<u64> = (0x1000..).filter(same).take(WAYS + 1).collect();
        for (count, &address) in (1..).zip(&addresses) {
            assert_eq!(TABLE.get(address), None);
            TABLE.put(address, rule);
            assert_eq!(TABLE.get(address), Some(rule));
            let known = addresses.iter().filter(|&&at| TABLE.get(at).is_some());
            assert_eq!(known.count(), count.min(WAYS));
        }
    }
}
