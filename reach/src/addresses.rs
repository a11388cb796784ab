//! Addresses in memory, and what they lead to.

use std::collections::{BTreeMap, BTreeSet};

use crate::memory::Memory;

/// What words of kernel parameters begin at a multiple of: a batch of parameters may lie in a
/// structure that is aligned to 4 bytes.
pub const PARAMETER_STEP: usize = 4;

/// What the blocks of allocators within programs are aligned to: PyTorch's to 512 bytes. A tensor
/// beside a table does not lead to what the table holds.
const BLOCK: u64 = 512;
/// How far apart two parts of one structure may lie, in bytes, that different copies brought.
/// Libraries fill structures and tables field by field (NCCL's pointers to its peers).
const GAP: u64 = BLOCK - 1;

/// An address that a copy has put somewhere.
#[derive(Clone, Copy, Debug)]
struct Word {
    address: u64,
    /// The bytes that the same copy brought: they are one structure.
    first: u64,
    behind: u64,
}

/// The addresses in memory, by where they lie.
#[derive(Clone, Debug)]
pub struct Addresses<P> {
    by_place: BTreeMap<P, BTreeMap<u64, Word>>,
    held: usize,
    limit: usize,
    dropped: u64,
}

/// Memory that a launch can get at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reached<P> {
    /// Which memory.
    pub place: P,
    /// The address in it that leads there.
    pub address: u64,
    /// True if the parameters name it, and not memory that they lead to.
    pub is_direct: bool,
}

/// The 8-byte words of some bytes.
pub fn words(bytes: &[u8], step: usize) -> impl Iterator<Item = u64> + '_ {
    let of = |word: &[u8]| u64::from_le_bytes(word.try_into().unwrap_or_default());
    bytes.windows(8).step_by(step.max(1)).map(of)
}

impl<P: Copy + Ord> Addresses<P> {
    /// None; at most `limit` addresses are remembered, about 100 bytes for each.
    pub fn new(limit: usize) -> Self {
        Self {
            by_place: BTreeMap::new(),
            held: 0,
            limit,
            dropped: 0,
        }
    }

    /// How many addresses could not be remembered: if any, less is reached than could be.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// True if no memory holds an address.
    pub fn is_empty(&self) -> bool {
        self.held == 0
    }

    /// A copy has put bytes of the host at an address: which of them are addresses is remembered,
    /// and what was there is forgotten.
    pub fn note_bytes(&mut self, memory: &impl Memory<Place = P>, target: u64, bytes: &[u8]) {
        let length = bytes.len() as u64;
        self.overwrite(memory, target, length);
        // Addresses are aligned to their size.
        let skipped = target.wrapping_neg() % 8;
        let aligned = usize::try_from(skipped).ok().and_then(|at| bytes.get(at..));
        let mut at = target.wrapping_add(skipped);
        for word in words(aligned.unwrap_or_default(), 8) {
            if word != 0 && memory.find(word).is_some() {
                let word = Word {
                    address: word,
                    first: target,
                    behind: target.saturating_add(length),
                };
                self.insert(memory, at, word);
            }
            at = at.wrapping_add(8);
        }
    }

    /// A copy within memory: the addresses come along.
    pub fn note_copy(
        &mut self,
        memory: &impl Memory<Place = P>,
        (target, source): (u64, u64),
        length: u64,
    ) {
        let held = memory
            .find(source)
            .and_then(|(place, _)| self.by_place.get(&place));
        let end = source.saturating_add(length);
        let moved: Vec<(u64, Word)> = held
            .into_iter()
            .flat_map(|held| held.range(source..end.max(source)))
            .map(|(&at, &word)| (at - source, word))
            .collect();
        self.overwrite(memory, target, length);
        for (offset, word) in moved {
            let shift = |address: u64| {
                let address = address.clamp(source, end);
                target.saturating_add(address - source)
            };
            let word = Word {
                address: word.address,
                first: shift(word.first),
                behind: shift(word.behind),
            };
            self.insert(memory, target.saturating_add(offset), word);
        }
    }

    /// Bytes were written that hold no addresses.
    pub fn overwrite(&mut self, memory: &impl Memory<Place = P>, target: u64, length: u64) {
        let Some((place, _)) = memory.find(target) else {
            return;
        };
        let Some(held) = self.by_place.get_mut(&place) else {
            return;
        };
        // A word is gone if any of its bytes is.
        let from = target.saturating_sub(7);
        let end = target.saturating_add(length);
        let gone: Vec<u64> = held.range(from..end.max(from)).map(|(&at, _)| at).collect();
        for at in gone {
            held.remove(&at);
            self.held -= 1;
        }
        if held.is_empty() {
            self.by_place.remove(&place);
        }
    }

    /// Memory has ended: what it held is forgotten.
    pub fn forget(&mut self, place: P) {
        if let Some(held) = self.by_place.remove(&place) {
            self.held -= held.len();
        }
    }

    fn insert(&mut self, memory: &impl Memory<Place = P>, at: u64, word: Word) {
        let Some((place, _)) = memory.find(at) else {
            return;
        };
        if self.held >= self.limit {
            self.dropped += 1;
            return;
        }
        let held = self.by_place.entry(place).or_default();
        if held.insert(at, word).is_none() {
            self.held += 1;
        }
    }

    /// The memory that can be got at from some words: first what they name themselves. A place
    /// comes once for each address that leads into it.
    ///
    /// An address leads to the structure in its block and behind it, as far as copies have brought
    /// it, and not to all of its memory: programs put many things into one allocation.
    pub fn reach<'a, M: Memory<Place = P>>(
        &'a self,
        memory: &'a M,
        roots: impl IntoIterator<Item = u64>,
    ) -> Reach<'a, M> {
        let mut reach = Reach {
            addresses: self,
            memory,
            found: Vec::new(),
            next: 0,
            direct: 0,
            seen: BTreeSet::new(),
            followed: BTreeMap::new(),
        };
        for root in roots {
            reach.add(root);
        }
        reach.direct = reach.found.len();
        reach
    }
}

/// The memory that can be got at, one address after the other.
#[derive(Debug)]
pub struct Reach<'a, M: Memory> {
    addresses: &'a Addresses<M::Place>,
    memory: &'a M,
    /// What was found, in this order; not more than there are roots and remembered addresses.
    found: Vec<(M::Place, u64)>,
    next: usize,
    direct: usize,
    seen: BTreeSet<u64>,
    /// Where the addresses lie that were followed, and where the structure ended before them.
    followed: BTreeMap<u64, u64>,
}

impl<M: Memory> Reach<'_, M> {
    fn add(&mut self, address: u64) {
        if let Some((place, _)) = self.memory.find(address)
            && self.seen.insert(address)
        {
            self.found.push((place, address));
        }
    }

    /// Adds what the structure leads to that an address lies in.
    fn follow(&mut self, place: M::Place, address: u64) {
        let Some(held) = self.addresses.by_place.get(&place) else {
            return;
        };
        let mut end = address;
        for (&at, word) in held.range(address - address % BLOCK..) {
            let is_known = self.followed.get(&at).is_some_and(|&known| known >= end);
            if is_known || word.first > end.saturating_add(GAP) {
                break;
            }
            self.followed.insert(at, end);
            end = end.max(word.behind);
            self.add(word.address);
        }
    }
}

impl<M: Memory> Iterator for Reach<'_, M> {
    type Item = Reached<M::Place>;

    fn next(&mut self) -> Option<Self::Item> {
        let number = self.next;
        let &(place, address) = self.found.get(number)?;
        self.next += 1;
        self.follow(place, address);
        Some(Reached {
            place,
            address,
            is_direct: number < self.direct,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::areas::Areas;

    const TABLE: u64 = 0x1000;
    const BUFFER: u64 = 0x4000;
    const PEER: u64 = 0x8000;

    fn areas() -> Areas<char> {
        let mut areas = Areas::default();
        areas.insert(TABLE, 0x1000, 't');
        areas.insert(BUFFER, 0x1000, 'b');
        areas.insert(PEER, 0x1000, 'p');
        areas
    }

    fn packed(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    type Held = Addresses<crate::areas::Place>;

    /// What is reached, in order; capitals are named directly.
    fn reached(areas: &Areas<char>, held: &Held, roots: &[u64]) -> String {
        held.reach(areas, roots.iter().copied())
            .filter_map(|reached| {
                let what = areas.get(reached.address)?.what;
                assert_eq!(areas.get(reached.address)?.place(), reached.place);
                Some(if reached.is_direct {
                    what.to_ascii_uppercase()
                } else {
                    what
                })
            })
            .collect()
    }

    #[test]
    fn structures_are_followed() {
        let areas = areas();
        // What copies brought (to where, which words), the parameters, what is reached.
        type Case = (
            &'static [(u64, &'static [u64])],
            &'static [u64],
            &'static str,
        );
        let table: [Case; 13] = [
            (&[], &[1, BUFFER + 4, 0], "B"),
            (&[(TABLE, &[7, PEER])], &[TABLE], "Tp"),
            // Other memory, or the table's end, or another structure there.
            (&[(TABLE, &[7, PEER])], &[BUFFER], "B"),
            (&[(TABLE, &[7, PEER])], &[TABLE + 512], "T"),
            (&[(TABLE, &[7, PEER])], &[TABLE + 511], "Tp"),
            (&[(TABLE + 512, &[PEER])], &[TABLE], "T"),
            (&[(TABLE + 504, &[PEER])], &[TABLE], "Tp"),
            // A structure that one copy brought is followed to its end.
            (&[(TABLE, &[0; 100]), (TABLE + 800, &[PEER])], &[TABLE], "T"),
            (&[(TABLE, &[0, BUFFER, 0, PEER])], &[TABLE + 16], "Tbp"),
            // Through several, and in a circle.
            (&[(TABLE, &[BUFFER]), (BUFFER, &[PEER])], &[TABLE], "Tbp"),
            (&[(TABLE, &[BUFFER]), (BUFFER, &[TABLE])], &[BUFFER], "Bt"),
            // Overwritten, and by a copy that hits one of its bytes.
            (&[(TABLE, &[PEER, BUFFER]), (TABLE, &[3])], &[TABLE], "Tb"),
            (&[(TABLE, &[PEER]), (TABLE + 7, &[0])], &[TABLE], "T"),
        ];
        for (copies, roots, expected) in table {
            let mut held = Addresses::new(100);
            for (target, words) in copies {
                held.note_bytes(&areas, *target, &packed(words));
            }
            let found = reached(&areas, &held, roots);
            assert_eq!(found, expected, "{copies:x?} {roots:x?}");
        }
    }

    #[test]
    fn a_long_structure_is_one() {
        let areas = areas();
        let mut words = [0; 200];
        words[199] = PEER;
        let mut held = Addresses::new(100);
        held.note_bytes(&areas, TABLE, &packed(&words));
        assert_eq!(reached(&areas, &held, &[TABLE]), "Tp");
        // A copy of a part of it is a structure of its own.
        held.note_copy(&areas, (BUFFER, TABLE + 800), 800);
        assert_eq!(reached(&areas, &held, &[BUFFER]), "Bp");
        held.note_copy(&areas, (BUFFER, TABLE), 800);
        assert_eq!(reached(&areas, &held, &[BUFFER]), "B");
    }

    #[test]
    fn a_structure_is_followed_again_from_its_start() {
        let areas = areas();
        let mut words = [0; 250];
        words[0] = TABLE;
        let mut held = Addresses::new(100);
        held.note_bytes(&areas, TABLE, &packed(&words));
        held.note_bytes(&areas, TABLE + 1104, &packed(&[BUFFER]));
        held.note_bytes(&areas, TABLE + 2400, &packed(&[PEER]));
        assert_eq!(reached(&areas, &held, &[TABLE + 600]), "Tb");
        assert_eq!(reached(&areas, &held, &[TABLE + 600, TABLE]), "TTbp");
    }

    #[test]
    fn what_cannot_be_is_not_remembered() {
        let mut areas = areas();
        let mut held = Addresses::new(2);
        // To nowhere, across the end of memory and at the end of all addresses.
        held.note_bytes(&areas, 0x10, &packed(&[PEER]));
        assert!(held.is_empty());
        held.note_bytes(&areas, u64::MAX - 3, &packed(&[PEER, PEER]));
        held.note_copy(&areas, (u64::MAX, u64::MAX), u64::MAX);
        held.overwrite(&areas, u64::MAX, u64::MAX);
        held.note_bytes(&areas, TABLE + 0xff8, &packed(&[PEER, PEER]));
        assert_eq!((held.held, held.dropped()), (1, 0));
        // Unaligned words; no room for the last of three.
        held.note_bytes(&areas, TABLE + 4, &packed(&[PEER << 32, PEER >> 32]));
        assert_eq!((held.held, held.dropped()), (2, 0));
        held.note_bytes(&areas, BUFFER, &packed(&[PEER]));
        assert_eq!((held.held, held.dropped()), (2, 1));
        // Memory that has ended: its addresses go, and addresses of it lead nowhere.
        assert_eq!(reached(&areas, &held, &[TABLE]), "Tp");
        areas.remove(PEER);
        assert_eq!(reached(&areas, &held, &[TABLE]), "T");
        for gone in areas.remove_overlapping(TABLE, 1) {
            held.forget(gone.place());
        }
        assert!(held.is_empty());
    }

    #[test]
    fn words_begin_at_steps() {
        let bytes = packed(&[1, 2]);
        let found: Vec<u64> = words(&bytes, PARAMETER_STEP).collect();
        assert_eq!(found, [1, 2 << 32, 2]);
        assert_eq!(words(&bytes[..7], 0).count(), 0);
    }
}
