//! Address ranges: what lies at an address, and what lay there before it was freed.

use std::collections::BTreeMap;
use std::ops::Range;

/// Values by address range. A range has at least one byte; ranges overlap only where the caller
/// inserts them so, and a lookup then takes the one that begins last.
///
/// Interval maps on crates.io cut or join ranges that overlap; here a range that is overwritten
/// goes as a whole, unless the caller uses [`IntervalMap::overwrite`] alone.
#[derive(Clone, Debug)]
pub struct IntervalMap<V> {
    /// By first address: the address behind the last byte, and the value.
    ranges: BTreeMap<u64, (u64, V)>,
}

impl<V> Default for IntervalMap<V> {
    fn default() -> Self {
        Self {
            ranges: BTreeMap::new(),
        }
    }
}

/// The address behind the last byte.
fn end_of(start: u64, length: u64) -> u64 {
    start.saturating_add(length.max(1))
}

impl<V> IntervalMap<V> {
    /// Adds a range; returns the value of the one that began at the same address.
    pub fn insert(&mut self, start: u64, length: u64, value: V) -> Option<V> {
        let old = self.ranges.insert(start, (end_of(start, length), value));
        old.map(|(_, value)| value)
    }

    /// Removes the range that begins there.
    pub fn remove(&mut self, start: u64) -> Option<V> {
        self.ranges.remove(&start).map(|(_, value)| value)
    }

    /// Removes every range that shares a byte with these.
    pub fn remove_overlapping(&mut self, start: u64, length: u64) -> Vec<(Range<u64>, V)> {
        let mut removed = Vec::new();
        while let Some((range, _)) = self.overlapping(start, length) {
            let value = self.remove(range.start);
            removed.extend(value.map(|value| (range, value)));
        }
        removed
    }

    /// The value of the range that begins there.
    pub fn get(&self, start: u64) -> Option<&V> {
        self.ranges.get(&start).map(|(_, value)| value)
    }

    /// As [`IntervalMap::get`].
    pub fn get_mut(&mut self, start: u64) -> Option<&mut V> {
        self.ranges.get_mut(&start).map(|(_, value)| value)
    }

    /// The range that holds an address.
    pub fn find(&self, address: u64) -> Option<(Range<u64>, &V)> {
        self.overlapping(address, 1)
    }

    /// The last range that begins before an address.
    pub fn before(&self, address: u64) -> Option<(Range<u64>, &V)> {
        let (&first, (end, value)) = self.ranges.range(..address).next_back()?;
        Some((first..*end, value))
    }

    /// The last range that shares a byte with these.
    pub fn overlapping(&self, start: u64, length: u64) -> Option<(Range<u64>, &V)> {
        let before = self.ranges.range(..end_of(start, length));
        let (&first, (end, value)) = before.into_iter().next_back()?;
        (*end > start).then_some((first..*end, value))
    }

    /// Removes these bytes from the ranges, which do not overlap; what is left of a range stays.
    pub fn cut(&mut self, bytes: &Range<u64>)
    where
        V: Clone,
    {
        while let Some((&start, &(end, _))) = self.ranges.range(..bytes.end).next_back()
            && end > bytes.start
            && !bytes.is_empty()
            && let Some((end, value)) = self.ranges.remove(&start)
        {
            if end > bytes.end {
                self.ranges.insert(bytes.end, (end, value.clone()));
            }
            if start < bytes.start {
                self.ranges.insert(start, (bytes.start, value));
            }
        }
    }

    /// Gives these bytes a value, and no others: ranges keep what they have outside.
    pub fn overwrite(&mut self, bytes: &Range<u64>, value: V)
    where
        V: Clone,
    {
        self.cut(bytes);
        if !bytes.is_empty() {
            self.ranges.insert(bytes.start, (bytes.end, value));
        }
    }

    /// The parts of ranges, which do not overlap, that lie in these bytes, in order.
    pub fn pieces(&self, bytes: &Range<u64>) -> impl Iterator<Item = (Range<u64>, &V)> {
        let Range { start, end } = *bytes;
        let before = self.ranges.range(..start).next_back();
        let inside = self.ranges.range(start..end.max(start));
        let all = before.into_iter().chain(inside);
        let cut = all.map(move |(&from, (to, value))| (from.max(start)..end.min(*to), value));
        cut.filter(|(piece, _)| !piece.is_empty())
    }

    /// Removes the ranges for which this is false.
    pub fn retain(&mut self, mut keep: impl FnMut(Range<u64>, &V) -> bool) {
        self.ranges
            .retain(|&start, (end, value)| keep(start..*end, value));
    }

    /// All ranges in order of address.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (Range<u64>, &V)> {
        let ranges = self.ranges.iter();
        ranges.map(|(&start, (end, value))| (start..*end, value))
    }

    /// How many ranges there are.
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }
}

/// What a [`Memory`] knows of an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place<'a, V> {
    /// In a live range.
    Live(Range<u64>, &'a V),
    /// In a range that was freed, and nothing has been allocated there since.
    Freed(Range<u64>, &'a V),
    /// In none.
    Unknown,
}

/// Allocated ranges, which do not overlap, and freed ones.
#[derive(Clone, Debug)]
pub struct Memory<V> {
    live: IntervalMap<V>,
    live_bytes: u64,
    freed: IntervalMap<V>,
    /// What graphs allocate at each of their launches.
    graphs: IntervalMap<()>,
    /// How many freed ranges, and how many ranges of graphs, are remembered.
    limit: usize,
}

impl<V> Memory<V> {
    /// Remembers that many freed ranges.
    pub fn new(limit: usize) -> Self {
        Self {
            live: IntervalMap::default(),
            live_bytes: 0,
            freed: IntervalMap::default(),
            graphs: IntervalMap::default(),
            limit,
        }
    }

    /// A new range. What it overlaps is forgotten: the driver gave the addresses out again. Returns
    /// what was live of it.
    pub fn insert(&mut self, start: u64, length: u64, value: V) -> Vec<(Range<u64>, V)> {
        self.forget_freed(start, length);
        let overwritten = self.live.remove_overlapping(start, length);
        for (range, _) in &overwritten {
            self.live_bytes -= range.end - range.start;
        }
        self.live.insert(start, length, value);
        self.live_bytes += end_of(start, length) - start;
        overwritten
    }

    /// Frees the range that begins there. Returns its value, which stays known.
    pub fn free(&mut self, start: u64) -> Option<&mut V> {
        let (end, value) = self.live.ranges.remove(&start)?;
        let length = end - start;
        self.live_bytes -= length;
        self.forget_freed(start, length);
        if self.freed.len() >= self.limit {
            self.freed.ranges.pop_first();
        }
        self.freed.insert(start, length, value);
        self.freed.get_mut(start)
    }

    /// Something else may lie in these bytes now.
    pub fn forget_freed(&mut self, start: u64, length: u64) {
        if !self.freed.is_empty() {
            self.freed.remove_overlapping(start, length);
        }
    }

    /// A graph allocates these bytes whenever it is launched, so no free is their last.
    pub fn belongs_to_graph(&mut self, start: u64, length: u64) {
        self.forget_freed(start, length);
        let (mut first, mut end) = (start, end_of(start, length));
        for (range, ()) in self.graphs.remove_overlapping(start, length) {
            (first, end) = (first.min(range.start), end.max(range.end));
        }
        // Too many are joined to one: what is uncertain counts as a graph's.
        if self.graphs.len() >= self.limit {
            for (range, ()) in self.graphs.remove_overlapping(0, u64::MAX) {
                (first, end) = (first.min(range.start), end.max(range.end));
            }
        }
        self.graphs.insert(first, end - first, ());
    }

    /// Whether a graph allocates at that address when it is launched.
    pub fn is_of_graph(&self, address: u64) -> bool {
        !self.graphs.is_empty() && self.graphs.find(address).is_some()
    }

    /// The live ranges.
    pub fn live(&self) -> &IntervalMap<V> {
        &self.live
    }

    /// How many bytes the live ranges have.
    pub fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    /// What an address is.
    pub fn find(&self, address: u64) -> Place<'_, V> {
        if let Some((range, value)) = self.live.find(address) {
            return Place::Live(range, value);
        }
        match self.freed.find(address) {
            Some((range, value)) => Place::Freed(range, value),
            None => Place::Unknown,
        }
    }

    /// The freed range that holds an address, if no live one does.
    pub fn find_freed(&self, address: u64) -> Option<(Range<u64>, &V)> {
        // Few addresses lie in freed memory, so the live ranges, which are many, come second.
        let freed = self.freed.find(address)?;
        self.live.find(address).is_none().then_some(freed)
    }

    /// True while a freed range is remembered.
    pub fn any_freed(&self) -> bool {
        !self.freed.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_holds_its_addresses() {
        let mut map = IntervalMap::default();
        map.insert(0x1000, 0x100, 'a');
        map.insert(0x1100, 0, 'b');
        map.insert(u64::MAX - 1, 100, 'c');
        for (address, found) in [
            (0, None),
            (0xfff, None),
            (0x1000, Some('a')),
            (0x10ff, Some('a')),
            (0x1100, Some('b')),
            (0x1101, None),
            (u64::MAX - 1, Some('c')),
        ] {
            let value = map.find(address).map(|(_, value)| *value);
            assert_eq!(value, found, "{address:#x}");
        }
        for (start, length, found) in [
            (0xf00, 0x100, None),
            (0xf00, 0x101, Some('a')),
            (0x10ff, 2, Some('b')),
            (0x1101, 0, None),
            (0, u64::MAX, Some('c')),
        ] {
            let value = map.overlapping(start, length).map(|(_, value)| *value);
            assert_eq!(value, found, "{start:#x} {length:#x}");
        }
        assert_eq!(map.remove_overlapping(0x1080, 0x81).len(), 2);
        assert_eq!(map.len(), 1);
    }

    #[test]
    fn overwritten_bytes_alone_change_their_value() {
        let mut map = IntervalMap::default();
        map.overwrite(&(0..100), 'a');
        map.overwrite(&(40..60), 'b');
        map.overwrite(&(60..60), 'c');
        let pieces = |map: &IntervalMap<char>, bytes| -> Vec<_> {
            let pieces = map.pieces(&bytes);
            pieces.map(|(piece, &value)| (piece, value)).collect()
        };
        let expected = [(50..60, 'b'), (60..90, 'a')];
        assert_eq!(pieces(&map, 50..90), expected);
        map.cut(&(10..50));
        assert_eq!(pieces(&map, 0..60), [(0..10, 'a'), (50..60, 'b')]);
        assert_eq!(pieces(&map, 10..50), []);
        map.retain(|range, _| range.start == 60);
        assert_eq!(pieces(&map, 0..u64::MAX), [(60..100, 'a')]);
    }

    #[test]
    fn memory_of_graphs_is_bounded() {
        let mut memory = Memory::<()>::new(2);
        for (start, length) in [(0x1000, 0x100), (0x10ff, 0x101), (0x3000, 0x100)] {
            memory.belongs_to_graph(start, length);
        }
        for (address, is_of_graph) in [(0x1000, true), (0x11ff, true), (0x2000, false)] {
            assert_eq!(memory.is_of_graph(address), is_of_graph, "{address:#x}");
        }
        memory.belongs_to_graph(0x5000, 1);
        assert!(memory.is_of_graph(0x2000) && !memory.is_of_graph(0x5001));
        assert_eq!(memory.graphs.len(), 1);
    }

    #[test]
    fn a_freed_range_is_known_until_something_is_allocated_there() {
        let mut memory = Memory::new(2);
        memory.insert(0x1000, 0x100, 1);
        *memory.free(0x1000).unwrap() = 2;
        assert_eq!(memory.free(0x1000), None, "only once");
        assert_eq!(memory.find(0x1080), Place::Freed(0x1000..0x1100, &2));
        assert_eq!(memory.insert(0x1080, 0x10, 3), []);
        assert_eq!(memory.find(0x1080), Place::Live(0x1080..0x1090, &3));
        assert_eq!(memory.find(0x1000), Place::Unknown);
        assert_eq!(memory.live_bytes(), 0x10);
        assert_eq!(memory.insert(0x1000, 0x81, 4), [(0x1080..0x1090, 3)]);
        assert_eq!(memory.live_bytes(), 0x81);
        for start in [0x2000, 0x3000, 0x4000] {
            memory.insert(start, 1, 5);
            memory.free(start);
        }
        assert_eq!(memory.find(0x2000), Place::Unknown, "no more than two");
        memory.forget_freed(0x3000, 0x10);
        assert_eq!(memory.find(0x3000), Place::Unknown);
        assert!(memory.any_freed());
    }
}
