//! The memory that launches can reach: what this process allocated, what it shares with others, and
//! the addresses that copies have put into it.

use std::collections::{HashMap, HashSet};

use cutape_format::layout::exchange_skip;
use cutape_reach::{Addresses, Area, Areas, Place};

/// Addresses that are remembered, about 100 bytes for each.
const MOST_ADDRESSES: usize = 1 << 18;
/// Of longer ranges only the first part is kept, unless there is more than four times the room.
const LONG: u64 = 64 << 20;

/// What is known of a piece of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Memory {
    /// Other processes can read and write it.
    pub(super) is_shared: bool,
    /// It is the host's; the trace has the bytes that copies take from there.
    pub(super) is_host: bool,
    /// The current device could read and write it when it was mapped or allocated.
    pub(super) is_accessible: bool,
    /// The physical memory that is mapped there, as `KnownMemory` numbers it; 0 for other memory.
    pub(super) physical: u64,
}

/// What an exchange may change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Named {
    /// Address and length of memory of this process alone; they do not overlap.
    pub(super) ranges: Vec<(u64, u64)>,
    /// Bytes that are not in `ranges`, and why.
    pub(super) left_out: u64,
    pub(super) reason: u8,
}

/// A handle of physical memory.
#[derive(Debug)]
struct Handle {
    physical: u64,
    /// How often it was created, imported or retained.
    references: u32,
}

#[derive(Debug)]
pub(super) struct KnownMemory {
    areas: Areas<Memory>,
    addresses: Addresses<Place>,
    handles: HashMap<u64, Handle>,
    /// Bytes of registered host memory of which parts are shared, by its address.
    registered: HashMap<u64, u64>,
    /// Numbers of physical memory that was exported or imported.
    shared: HashSet<u64>,
    last_physical: u64,
    /// The most that is kept from an address on.
    longest: u64,
}

impl KnownMemory {
    /// With that many bytes of room for copies.
    pub(super) fn new(room: u64) -> Self {
        Self {
            areas: Areas::default(),
            addresses: Addresses::new(MOST_ADDRESSES),
            handles: HashMap::new(),
            registered: HashMap::new(),
            shared: HashSet::new(),
            last_physical: 0,
            longest: LONG.max(room / 4),
        }
    }

    pub(super) fn insert(&mut self, start: u64, length: u64, memory: Memory) {
        if start == 0 || length == 0 {
            return;
        }
        for gone in self.areas.insert(start, length, memory) {
            self.addresses.forget(gone.place());
        }
    }

    /// Other processes can map a part of host memory that is being registered.
    pub(super) fn registered(&mut self, start: u64, length: u64, part: (u64, u64), what: Memory) {
        self.registered.insert(start, length);
        self.insert(part.0, part.1, what);
    }

    /// The bytes that end with the registration of an address.
    pub(super) fn registration(&self, start: u64) -> u64 {
        self.registered.get(&start).copied().unwrap_or(1)
    }

    pub(super) fn unregistered(&mut self, start: u64) {
        self.registered.remove(&start);
    }

    /// Takes out the memory that lies in a range.
    pub(super) fn remove(&mut self, start: u64, length: u64) -> Vec<Area<Memory>> {
        let removed = self.areas.remove_overlapping(start, length);
        for gone in &removed {
            self.addresses.forget(gone.place());
        }
        removed
    }

    /// Whether an address lies in known device memory.
    pub(super) fn is_device(&self, address: u64) -> bool {
        let area = self.areas.get(address);
        area.is_some_and(|area| !area.what.is_host)
    }

    /// Other processes can use the allocation that an address lies in. False if it is not known.
    pub(super) fn share(&mut self, address: u64) -> bool {
        let area = self.areas.get_mut(address);
        area.map(|area| area.what.is_shared = true).is_some()
    }

    /// A handle of new physical memory, or one more reference.
    pub(super) fn created(&mut self, handle: u64, is_imported: bool) {
        if is_imported && let Some(known) = self.handles.get_mut(&handle) {
            known.references += 1;
            return self.exported(handle);
        }
        self.last_physical += 1;
        let physical = self.last_physical;
        if is_imported {
            self.shared.insert(physical);
        }
        let references = 1;
        self.handles.insert(
            handle,
            Handle {
                physical,
                references,
            },
        );
    }

    /// A handle of the physical memory that is mapped at an address.
    pub(super) fn retained(&mut self, handle: u64, address: u64) {
        let Some(area) = self.areas.get_mut(address) else {
            return;
        };
        if area.what.physical == 0 {
            self.last_physical += 1;
            area.what.physical = self.last_physical;
        }
        let physical = area.what.physical;
        let known = self.handles.entry(handle).or_insert(Handle {
            physical,
            references: 0,
        });
        known.references += 1;
    }

    pub(super) fn released(&mut self, handle: u64) {
        if let Some(known) = self.handles.get_mut(&handle) {
            known.references = known.references.saturating_sub(1);
            if known.references == 0 {
                self.handles.remove(&handle);
            }
        }
    }

    /// Physical memory was exported.
    pub(super) fn exported(&mut self, handle: u64) {
        if !self.handles.contains_key(&handle) {
            self.created(handle, false);
        }
        let Some(physical) = self.handles.get(&handle).map(|known| known.physical) else {
            return;
        };
        self.shared.insert(physical);
        let mapped = self
            .areas
            .iter()
            .filter(|area| area.what.physical == physical);
        let mapped: Vec<u64> = mapped.map(|area| area.start).collect();
        for start in mapped {
            self.share(start);
        }
    }

    /// Physical memory was mapped. It becomes accessible later.
    pub(super) fn mapped(&mut self, address: u64, length: u64, handle: u64) {
        if !self.handles.contains_key(&handle) {
            self.created(handle, false);
        }
        let physical = self.handles.get(&handle).map_or(0, |known| known.physical);
        let memory = Memory {
            is_shared: self.shared.contains(&physical),
            physical,
            ..Memory::default()
        };
        self.insert(address, length, memory);
    }

    /// The current device got access to mapped memory.
    pub(super) fn made_accessible(&mut self, start: u64, length: u64) {
        let end = start.saturating_add(length);
        let mut at = start;
        while at < end {
            let Some(area) = self.areas.get_mut(at) else {
                return;
            };
            area.what.is_accessible = true;
            at = area.start.saturating_add(area.length);
        }
    }

    /// A copy has put bytes of the host there, `length` in all.
    pub(super) fn brought(&mut self, target: u64, length: u64, bytes: &[u8]) {
        self.addresses.overwrite(&self.areas, target, length);
        self.addresses.note_bytes(&self.areas, target, bytes);
    }

    pub(super) fn copied(&mut self, target: u64, source: u64, length: u64) {
        let operands = (target, source);
        self.addresses.note_copy(&self.areas, operands, length);
    }

    pub(super) fn filled(&mut self, target: u64, length: u64) {
        self.addresses.overwrite(&self.areas, target, length);
    }

    /// What a launch may change that is given these words, if it can reach shared memory.
    pub(super) fn exchange_of_launch(&self, words: &[u64]) -> Option<Named> {
        // Also words that begin at odd multiples of 4 bytes.
        let between = words.windows(2).filter_map(|pair| match *pair {
            [first, second] => Some(first >> 32 | second << 32),
            _ => None,
        });
        let roots = words.iter().copied().chain(between);
        let mut is_exchange = false;
        let mut own = Vec::new();
        for reached in self.addresses.reach(&self.areas, roots) {
            let Some(area) = self.areas.get(reached.address) else {
                continue;
            };
            if area.what.is_shared {
                is_exchange = true;
            } else if reached.is_direct && area.what.is_accessible {
                let end = area.start.saturating_add(area.length);
                own.push((reached.address, end));
            }
            if is_exchange && !reached.is_direct {
                break;
            }
        }
        is_exchange.then(|| named(own, self.longest))
    }

    /// What a copy changes, if it is one between two pieces of device memory, one of them shared.
    pub(super) fn exchange_of_copy(&self, target: u64, source: u64, length: u64) -> Option<Named> {
        let to = self.areas.get(target)?.what;
        let from = self.areas.get(source)?.what;
        if to.is_host || from.is_host || !(to.is_shared || from.is_shared) {
            return None;
        }
        let is_kept = !to.is_shared && to.is_accessible && length != 0;
        let own = is_kept.then(|| (target, target.saturating_add(length)));
        Some(named(own.into_iter().collect(), self.longest))
    }
}

/// The first parts of some ranges, given by start and end; those that overlap are one.
fn named(mut own: Vec<(u64, u64)>, longest: u64) -> Named {
    own.sort_unstable();
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    // The end of what the ranges so far cover, kept or not.
    let (mut covered, mut kept_end, mut all, mut kept) = (0, 0, 0, 0);
    for (start, end) in own {
        all += end.saturating_sub(start.max(covered));
        covered = covered.max(end);
        let part_end = end.min(start.saturating_add(longest));
        let from = start.max(kept_end);
        if part_end <= from {
            continue;
        }
        kept += part_end - from;
        match ranges.last_mut() {
            Some((first, length)) if *first + *length == from => *length += part_end - from,
            _ => ranges.push((from, part_end - from)),
        }
        kept_end = part_end;
    }
    let left_out = all - kept;
    Named {
        ranges,
        left_out,
        reason: match left_out {
            0 => exchange_skip::NONE,
            _ => exchange_skip::LONG,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: u64 = 0x10_0000;
    const TABLE: u64 = 0x20_0000;
    const EXPORTED: u64 = 0x30_0000;
    const IMPORTED: u64 = 0x40_0000;
    const SIZE: u64 = 0x1000;
    const HOST: u64 = 0x50_0000;
    const ACCESSIBLE: Memory = Memory {
        is_shared: false,
        is_host: false,
        is_accessible: true,
        physical: 0,
    };

    fn known() -> KnownMemory {
        let mut known = KnownMemory::new(0);
        for start in [OWN, TABLE, EXPORTED] {
            known.insert(start, SIZE, ACCESSIBLE);
        }
        assert!(known.share(EXPORTED + 5));
        let imported = Memory {
            is_shared: true,
            ..ACCESSIBLE
        };
        known.insert(IMPORTED, SIZE, imported);
        let host = Memory {
            is_host: true,
            ..imported
        };
        known.insert(HOST, SIZE, host);
        known
    }

    fn kept(ranges: &[(u64, u64)]) -> Option<Named> {
        Some(Named {
            ranges: ranges.to_vec(),
            left_out: 0,
            reason: exchange_skip::NONE,
        })
    }

    #[test]
    fn launches_that_reach_shared_memory_are_exchanges() {
        let mut known = known();
        let end = SIZE - 0x10;
        for (words, expected) in [
            (&[OWN, TABLE, 1, 0][..], None),
            (&[OWN + 0x10, EXPORTED], kept(&[(OWN + 0x10, end)])),
            (&[IMPORTED + SIZE - 1, 3], kept(&[])),
            (&[IMPORTED + SIZE, 3], None),
            (&[HOST, OWN], kept(&[(OWN, SIZE)])),
            // At an odd multiple of 4 bytes; overlapping parts of one allocation.
            (&[IMPORTED << 32, IMPORTED >> 32], kept(&[])),
            (&[OWN + 0x10, IMPORTED, OWN], kept(&[(OWN, SIZE)])),
        ] {
            assert_eq!(known.exchange_of_launch(words), expected, "{words:x?}");
        }
        // Through a table that a copy has brought.
        let bytes = [7, IMPORTED].map(u64::to_le_bytes);
        known.brought(TABLE + 0x100, 16, bytes.as_flattened());
        let through = [OWN, TABLE + 0x100];
        let expected = kept(&[(OWN, SIZE), (TABLE + 0x100, SIZE - 0x100)]);
        assert_eq!(known.exchange_of_launch(&through), expected);
        known.copied(OWN, TABLE + 0x100, 16);
        assert_eq!(known.exchange_of_launch(&[OWN]), kept(&[(OWN, SIZE)]));
        known.filled(OWN, 16);
        assert_eq!(known.exchange_of_launch(&[OWN]), None);
        known.brought(TABLE, SIZE, &[0; 8]);
        assert_eq!(known.exchange_of_launch(&through), None);
    }

    #[test]
    fn copies_between_device_memory_are_exchanges() {
        let known = known();
        for (target, source, expected) in [
            (OWN, TABLE, None),
            (OWN, 0x9000, None),
            (0x9000, IMPORTED, None),
            (OWN + 8, IMPORTED, kept(&[(OWN + 8, 16)])),
            (OWN, EXPORTED, kept(&[(OWN, 16)])),
            (EXPORTED, OWN, kept(&[])),
            (EXPORTED, IMPORTED, kept(&[])),
            (OWN, HOST, None),
            (HOST, IMPORTED, None),
        ] {
            let found = known.exchange_of_copy(target, source, 16);
            assert_eq!(found, expected, "{target:x} {source:x}");
        }
    }

    #[test]
    fn of_long_ranges_the_first_part_is_kept() {
        let at = 1 << 40;
        let long = 4 * LONG;
        for (own, ranges, left_out) in [
            (vec![(at, at + LONG)], vec![(at, LONG)], 0),
            (vec![(at, at + long)], vec![(at, LONG)], 3 * LONG),
            // Two in one allocation, whose parts overlap, and whose parts do not.
            (
                vec![(at + 8, at + long), (at, at + long)],
                vec![(at, LONG + 8)],
                3 * LONG - 8,
            ),
            (
                vec![(at, at + long), (at + 2 * LONG, at + long)],
                vec![(at, LONG), (at + 2 * LONG, LONG)],
                2 * LONG,
            ),
        ] {
            let found = named(own, LONG);
            assert_eq!((found.ranges, found.left_out), (ranges, left_out));
            let is_long = found.reason == exchange_skip::LONG;
            assert_eq!(is_long, left_out != 0);
        }
    }

    #[test]
    fn physical_memory_is_shared_wherever_it_is_mapped() {
        let mut known = KnownMemory::new(0);
        let is_exchange = |known: &KnownMemory| {
            let words: [u64; 2] = [0x1000, 0x5000];
            words.map(|word| known.exchange_of_launch(&[word]).is_some())
        };
        known.created(7, false);
        known.mapped(0x1000, SIZE, 7);
        assert_eq!(is_exchange(&known), [false, false]);
        // By a second handle, when the first is released.
        known.retained(8, 0x1010);
        known.released(7);
        known.exported(8);
        assert_eq!(is_exchange(&known), [true, false]);
        known.mapped(0x5000, SIZE, 8);
        assert_eq!(is_exchange(&known), [true, true]);
        known.remove(0, 0x10_0000);
        known.released(8);
        // Other memory with the same handle, and memory of another process.
        known.created(8, false);
        known.created(9, true);
        known.mapped(0x1000, SIZE, 8);
        known.mapped(0x5000, SIZE, 9);
        assert_eq!(is_exchange(&known), [false, true]);
        // What the device cannot access is not copied.
        known.mapped(0x9000, SIZE, 8);
        let words = [0x1000, 0x5000, 0x9000];
        known.made_accessible(0x9000, SIZE);
        assert_eq!(known.exchange_of_launch(&words), kept(&[(0x9000, SIZE)]));
    }

    #[test]
    fn all_parts_of_a_registration_end_with_it() {
        let mut known = KnownMemory::new(0);
        let shared = Memory {
            is_shared: true,
            is_host: true,
            is_accessible: true,
            ..Memory::default()
        };
        for part in [0x10000, 0x12000] {
            known.registered(0x10000, 0x3000, (part, 0x1000), shared);
        }
        known.registered(0x13000, 0x1000, (0x13000, 0x1000), shared);
        let is_shared = |known: &KnownMemory| {
            [0x10000, 0x11000, 0x12000, 0x13000]
                .map(|word| known.exchange_of_launch(&[word]).is_some())
        };
        assert_eq!(is_shared(&known), [true, false, true, true]);
        assert_eq!(known.remove(0x10000, known.registration(0x10000)).len(), 2);
        known.unregistered(0x10000);
        assert_eq!(is_shared(&known), [false, false, false, true]);
        assert_eq!(known.registration(0x10000), 1);
    }

    #[test]
    fn handles_may_be_unknown_or_come_again() {
        let is_exchange = |known: &KnownMemory, address: u64| {
            let found = known.exchange_of_launch(&[address]);
            found.is_some()
        };
        // Of memory that was not mapped, and of one whose handle is not known.
        let mut known = known();
        known.retained(7, TABLE);
        known.mapped(0x9000, SIZE, 8);
        known.retained(8, 0x9000);
        known.exported(7);
        known.exported(8);
        for (address, expected) in [(TABLE, true), (OWN, false), (0x9000, true)] {
            assert_eq!(is_exchange(&known, address), expected, "{address:x}");
        }
        // Imported twice, which gives one handle, and released once.
        let mut known = KnownMemory::new(0);
        known.created(5, true);
        known.created(5, true);
        known.released(5);
        known.mapped(0x1000, SIZE, 5);
        assert!(is_exchange(&known, 0x1000));
        // Its own export, imported.
        known.created(6, false);
        known.mapped(0x5000, SIZE, 6);
        assert!(!is_exchange(&known, 0x5000));
        known.created(6, true);
        assert!(is_exchange(&known, 0x5000));
    }
}
