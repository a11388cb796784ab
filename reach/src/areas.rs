//! A table of memory, for callers that have none.

use std::collections::BTreeMap;

use crate::memory::Memory;

/// Identifies an area; never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place(u64);

/// Memory between two calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Area<T> {
    /// Its first address.
    pub start: u64,
    /// How many bytes, at least 1.
    pub length: u64,
    /// What the caller knows about it.
    pub what: T,
    place: Place,
}

impl<T> Area<T> {
    /// What tells it from others.
    pub fn place(&self) -> Place {
        self.place
    }

    fn end(&self) -> u64 {
        self.start.saturating_add(self.length)
    }
}

/// Live memory by address. Areas do not overlap.
#[derive(Clone, Debug)]
pub struct Areas<T> {
    by_start: BTreeMap<u64, Area<T>>,
    made: u64,
}

impl<T> Default for Areas<T> {
    fn default() -> Self {
        Self {
            by_start: BTreeMap::new(),
            made: 0,
        }
    }
}

impl<T> Areas<T> {
    /// Adds memory. Removes the areas that it overlaps, since the driver gave the addresses out
    /// again, and returns them: their places are to be forgotten.
    pub fn insert(&mut self, start: u64, length: u64, what: T) -> Vec<Area<T>> {
        let length = length.max(1);
        let removed = self.remove_overlapping(start, length);
        let place = Place(self.made);
        self.made += 1;
        let area = Area {
            start,
            length,
            what,
            place,
        };
        self.by_start.insert(start, area);
        removed
    }

    /// Removes the memory that starts there.
    pub fn remove(&mut self, start: u64) -> Option<Area<T>> {
        self.by_start.remove(&start)
    }

    /// Removes all memory that shares a byte with these.
    pub fn remove_overlapping(&mut self, start: u64, length: u64) -> Vec<Area<T>> {
        let end = start.saturating_add(length.max(1));
        let mut removed = Vec::new();
        while let Some((&first, area)) = self.by_start.range(..end).next_back()
            && area.end() > start
        {
            removed.extend(self.by_start.remove(&first));
        }
        removed
    }

    /// The memory that an address lies in.
    pub fn get(&self, address: u64) -> Option<&Area<T>> {
        let (_, area) = self.by_start.range(..=address).next_back()?;
        (area.end() > address).then_some(area)
    }

    /// As [`Areas::get`].
    pub fn get_mut(&mut self, address: u64) -> Option<&mut Area<T>> {
        let (_, area) = self.by_start.range_mut(..=address).next_back()?;
        (area.end() > address).then_some(area)
    }

    /// All memory, in order of address.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Area<T>> {
        self.by_start.values()
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.by_start.is_empty()
    }
}

impl<T> Memory for Areas<T> {
    type Place = Place;

    fn find(&self, address: u64) -> Option<(Place, u64)> {
        self.get(address).map(|area| (area.place, area.start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn areas_come_and_go() {
        let mut areas = Areas::default();
        assert!(areas.insert(0x1000, 0x100, 'a').is_empty());
        assert!(areas.insert(0x2000, 0, 'b').is_empty());
        let found = |areas: &Areas<char>, address| areas.get(address).map(|area| area.what);
        let table = [
            (0xfff, None),
            (0x1000, Some('a')),
            (0x10ff, Some('a')),
            (0x1100, None),
            (0x2000, Some('b')),
            (0x2001, None),
            (u64::MAX, None),
        ];
        for (address, expected) in table {
            assert_eq!(found(&areas, address), expected, "{address:#x}");
        }
        // Something new over part of it: another place, at the same address too.
        let before = areas.find(0x1000);
        let removed = areas.insert(0x1080, 0x1000, 'c');
        let removed: Vec<char> = removed.iter().map(|area| area.what).collect();
        assert_eq!(removed, ['b', 'a']);
        assert_eq!(found(&areas, 0x1000), None);
        areas.insert(0x1000, 0x80, 'd');
        assert_ne!(areas.find(0x1000), before);
        assert_eq!(areas.remove(0x1080).map(|area| area.what), Some('c'));
        assert_eq!(areas.remove(0x1080), None);
        assert_eq!(areas.remove_overlapping(0, u64::MAX).len(), 1);
        assert!(areas.is_empty());
    }
}
