//! Recorded address ranges and where their memory lies at replay.

use std::collections::HashMap;

use cutape_model::IntervalMap;
use cutape_registry::{Family, Function, Kind, MemoryOp};
use rustc_hash::FxBuildHasher;

use crate::api::buffer::{copy_common, number};

/// What drivers align device memory to.
const ALIGNMENT: u64 = 512;

/// How the memory of a range is provided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// At its recorded address, in the replay's own reservation, device memory.
    Granules,
    /// At its recorded address, in the replay's own reservation, host memory.
    PinnedGranules,
    /// At its recorded address, host memory of this process registered with the driver.
    HostRegion,
    /// A reservation of the program within the replay's own.
    Reserved,
    /// By the same call as recorded, wherever the driver put it.
    Plain,
}

/// Memory between two calls of the recording.
#[derive(Clone, Debug)]
pub(crate) struct Range {
    pub start: u64,
    pub length: u64,
    /// Where `start` is at replay.
    pub live: u64,
    pub kind: Kind,
    pub way: Way,
    /// The live context that it goes with; 0 if none.
    pub context: u64,
    /// The module, library or link that owns it, by recorded handle.
    pub owner: Option<(Kind, u64)>,
    /// Index of the call that made it.
    pub made: u64,
    /// Its function.
    pub made_by: &'static Function,
    /// Index of the call that ended it.
    pub ended: Option<u64>,
    /// The `Flags` that it was allocated with.
    pub flags: u64,
}

impl Range {
    pub(crate) fn end(&self) -> u64 {
        self.start.saturating_add(self.length.max(1))
    }

    pub(crate) fn is_translated(&self) -> bool {
        self.live != self.start
    }

    /// True for memory that the program's CPU code can write without a call.
    pub(crate) fn is_of_host(&self) -> bool {
        self.is_host_memory() || self.is_managed()
    }

    /// True for host memory that the program allocated or registered.
    pub(crate) fn is_host_memory(&self) -> bool {
        matches!(self.kind, Kind::HostMemory | Kind::Registration)
    }

    /// True for managed memory, which the driver moves between host and device.
    pub(crate) fn is_managed(&self) -> bool {
        self.made_by.family == Family::Memory(MemoryOp::AllocateManaged)
    }

    pub(crate) fn describe(&self) -> String {
        let ended = match self.ended {
            Some(call) => format!(", ended at call {call}"),
            None => String::new(),
        };
        format!(
            "{:#x}, {} bytes, created by {} at call {}{ended}",
            self.start, self.length, self.made_by.name, self.made
        )
    }
}

/// What a recorded address is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Found<'a> {
    /// In memory that lives; how far from its start.
    Live(&'a Range, u64),
    /// In memory that was freed, and nothing has come there since.
    Freed(&'a Range),
    /// Nowhere that a call of the trace made.
    Unknown,
}

/// All ranges: those that live, and the last that stood at a start address and ended.
///
/// Live ranges of one layer do not overlap. A reservation and what is mapped in it overlap by
/// nature, so reservations are a layer of their own, asked last.
#[derive(Debug, Default)]
pub(crate) struct Ranges {
    live: IntervalMap<Range>,
    reservations: IntervalMap<Range>,
    freed: IntervalMap<Range>,
    translated: usize,
    /// What any translated range has covered (first, behind the last).
    moved: (u64, u64),
    /// How many live ranges an object owns.
    owned: HashMap<(Kind, u64), u32, FxBuildHasher>,
    /// Live memory that the program's CPU code can write.
    of_host: IntervalMap<()>,
    /// What any of it has covered (first, behind the last).
    host_span: (u64, u64),
}

/// A span (first, behind the last; behind is 0 for none) that a range is in, too.
fn widened((first, behind): (u64, u64), range: &Range) -> (u64, u64) {
    match behind {
        0 => (range.start, range.end()),
        _ => (first.min(range.start), behind.max(range.end())),
    }
}

impl Ranges {
    /// Adds a range that lives. What it covers of earlier ones is gone: the recorded driver gave
    /// the address out again.
    pub(crate) fn insert(&mut self, range: Range) {
        let (start, length) = (range.start, range.length);
        if range.is_translated() {
            self.moved = widened(self.moved, &range);
            self.translated += 1;
        }
        if range.kind == Kind::Reservation {
            self.reservations.insert(start, length, range);
            return;
        }
        while let Some((covered, _)) = self.live.overlapping(start, length) {
            self.remove(covered.start);
        }
        if range.is_of_host() {
            self.of_host.insert(start, length, ());
            self.host_span = widened(self.host_span, &range);
        }
        if let Some(owner) = range.owner {
            *self.owned.entry(owner).or_default() += 1;
        }
        self.live.insert(start, length, range);
    }

    fn remove(&mut self, start: u64) -> Option<Range> {
        let range = self.live.remove(start)?;
        self.translated -= usize::from(range.is_translated());
        if range.is_of_host() {
            self.of_host.remove(start);
        }
        if let Some(owner) = range.owner
            && let Some(count) = self.owned.get_mut(&owner)
        {
            *count -= 1;
            if *count == 0 {
                self.owned.remove(&owner);
            }
        }
        Some(range)
    }

    /// Ends the range that begins there; returns it.
    pub(crate) fn end(&mut self, start: u64, call: u64) -> Option<Range> {
        let mut range = self.remove(start)?;
        range.ended = Some(call);
        self.freed.insert(start, range.length, range.clone());
        Some(range)
    }

    /// Ends the reservation that begins there.
    pub(crate) fn end_reservation(&mut self, start: u64) {
        let range = self.reservations.remove(start);
        self.translated -= usize::from(range.is_some_and(|range| range.is_translated()));
    }

    /// Ends every range for which `dies` holds; returns them.
    pub(crate) fn end_where(
        &mut self,
        call: u64,
        mut dies: impl FnMut(&Range) -> bool,
    ) -> Vec<Range> {
        let dying = self.all_live().filter(|range| dies(range));
        let starts: Vec<u64> = dying.map(|range| range.start).collect();
        starts
            .into_iter()
            .filter_map(|start| self.end(start, call))
            .collect()
    }

    /// All live ranges but reservations.
    pub(crate) fn all_live(&self) -> impl Iterator<Item = &Range> {
        self.live.iter().map(|(_, range)| range)
    }

    /// True if an object owns live ranges.
    pub(crate) fn has_owned(&self, owner: (Kind, u64)) -> bool {
        self.owned.contains_key(&owner)
    }

    /// The live range that begins exactly there.
    pub(crate) fn at(&self, start: u64) -> Option<&Range> {
        self.live.get(start)
    }

    /// The live reservation that begins exactly there.
    pub(crate) fn reservation_at(&self, start: u64) -> Option<&Range> {
        self.reservations.get(start)
    }

    /// Where an address is.
    pub(crate) fn find(&self, address: u64) -> Found<'_> {
        for layer in [&self.live, &self.reservations] {
            if let Some((place, range)) = layer.find(address) {
                return Found::Live(range, address - place.start);
            }
        }
        match self.freed.find(address) {
            Some((_, range)) => Found::Freed(range),
            None => Found::Unknown,
        }
    }

    /// First address of anything that lives, and the end of what starts last.
    pub(crate) fn span(&self) -> std::ops::Range<u64> {
        let layers = || [&self.live, &self.reservations].into_iter();
        let first = layers().filter_map(|layer| Some(layer.iter().next()?.0.start));
        let last = layers().filter_map(|layer| Some(layer.iter().next_back()?.0.end));
        first.min().unwrap_or(0)..last.max().unwrap_or(0)
    }

    /// True if all of `length` bytes lie in one live range.
    pub(crate) fn covers(&self, address: u64, length: u64) -> bool {
        match self.find(address) {
            Found::Live(range, offset) => offset
                .checked_add(length)
                .is_some_and(|end| end <= range.length),
            _ => false,
        }
    }

    /// True for an address in live memory that is not host memory.
    pub(crate) fn is_device(&self, address: u64) -> bool {
        matches!(self.find(address), Found::Live(range, _) if !range.is_host_memory())
    }

    /// True in live memory, and past its end as far as the driver aligns what follows.
    pub(crate) fn is_in_block(&self, address: u64) -> bool {
        matches!(self.find(address / ALIGNMENT * ALIGNMENT), Found::Live(..))
    }

    /// The live range that overlaps any of these bytes.
    pub(crate) fn overlapping(&self, start: u64, length: u64) -> Option<&Range> {
        self.live.overlapping(start, length).map(|found| found.1)
    }

    /// The address at replay; the same if it is in no live range.
    pub(crate) fn translate(&self, address: u64) -> u64 {
        match self.find(address) {
            Found::Live(range, offset) => range.live.wrapping_add(offset),
            _ => address,
        }
    }

    /// The live memory that an address lies in, if the program's CPU code can write it.
    pub(crate) fn find_of_host(&self, address: u64) -> Option<&Range> {
        if !(self.host_span.0..self.host_span.1).contains(&address) {
            return None;
        }
        let (place, ()) = self.of_host.find(address)?;
        self.live.get(place.start)
    }

    /// The live translated range that an address lies in, and how far from its start.
    fn find_translated(&self, address: u64) -> Option<(&Range, u64)> {
        if !(self.moved.0..self.moved.1).contains(&address) {
            return None;
        }
        match self.find(address) {
            Found::Live(range, offset) if range.is_translated() => Some((range, offset)),
            _ => None,
        }
    }

    /// True if some live range is at another address than recorded.
    pub(crate) fn any_translated(&self) -> bool {
        self.translated > 0
    }

    /// The first 8-byte word of some data, and how many, that look like addresses in translated
    /// ranges: the replay does not replace those. Words begin at multiples of `step`.
    pub(crate) fn stale_words(&self, bytes: &[u8], step: usize) -> Option<(u64, u64)> {
        if !self.any_translated() {
            return None;
        }
        let mut stale = bytes
            .windows(8)
            .step_by(step)
            .map(number)
            .filter(|&word| self.find_translated(word).is_some());
        let first = stale.next()?;
        Some((first, 1 + stale.count() as u64))
    }

    /// Replaces each 8-byte word of a parameter buffer that points into a translated range;
    /// `layout` says where the parameters are (empty: the whole buffer counts). Returns the first
    /// address, and how many, that are left because they are not aligned to 8 bytes.
    pub(crate) fn translate_words(
        &self,
        bytes: &mut [u8],
        layout: &[(u32, u32)],
    ) -> Option<(u64, u64)> {
        if !self.any_translated() {
            return None;
        }
        let live = |word: &[u8]| {
            let (range, distance) = self.find_translated(number(word))?;
            Some(range.live.wrapping_add(distance))
        };
        let whole = [(0, u32::try_from(bytes.len()).unwrap_or(u32::MAX))];
        let mut replaced = Vec::new();
        for &(offset, size) in if layout.is_empty() { &whole } else { layout } {
            let (offset, size) = (offset as usize, size as usize);
            let first = offset.next_multiple_of(8);
            for at in (first..(offset + size).saturating_sub(7)).step_by(8) {
                let Some(word) = bytes.get(at..at + 8) else {
                    break;
                };
                replaced.extend(live(word).map(|live| (at, live)));
            }
        }
        let mut left = None;
        for at in (0..bytes.len().saturating_sub(7)).step_by(4) {
            let apart = replaced.iter().all(|&(other, _)| at.abs_diff(other) >= 8);
            let Some(word) = bytes.get(at..at + 8) else {
                break;
            };
            if apart && live(word).is_some() {
                let (_, count) = left.get_or_insert((number(word), 0));
                *count += 1;
            }
        }
        for (at, live) in replaced {
            let word = bytes.get_mut(at..at + 8);
            copy_common(word.unwrap_or_default(), &live.to_le_bytes());
        }
        left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, length: u64, live: u64) -> Range {
        Range {
            start,
            length,
            live,
            kind: Kind::Memory,
            way: Way::Plain,
            context: 0,
            owner: None,
            made: 1,
            made_by: cutape_registry::function("cuMemAlloc_v2").unwrap(),
            ended: None,
            flags: 0,
        }
    }

    #[test]
    fn memory_is_known_by_its_owner_and_by_who_writes_it() {
        let (module, other) = ((Kind::Module, 7), (Kind::Module, 8));
        let mut ranges = Ranges::default();
        for (start, owner) in [(0x1000, module), (0x2000, module), (0x3000, other)] {
            let mut global = range(start, 0x100, start);
            (global.kind, global.owner) = (Kind::Global, Some(owner));
            ranges.insert(global);
        }
        let mut pinned = range(0x8000, 0x100, 0x8000);
        pinned.kind = Kind::HostMemory;
        ranges.insert(pinned);
        for (address, found) in [
            (0x7fff, false),
            (0x8000, true),
            (0x80ff, true),
            (0x8100, false),
            (0x1000, false),
        ] {
            assert_eq!(
                ranges.find_of_host(address).is_some(),
                found,
                "{address:#x}"
            );
        }
        ranges.end(0x8000, 5);
        assert!(ranges.find_of_host(0x8000).is_none());
        ranges.end(0x1000, 6);
        assert!(ranges.has_owned(module) && ranges.has_owned(other));
        // The address was reused: the earlier memory ended with its owner.
        ranges.insert(range(0x2080, 0x100, 0x2080));
        assert!(!ranges.has_owned(module) && ranges.has_owned(other));
    }

    #[test]
    fn addresses_are_translated_by_range() {
        let mut ranges = Ranges::default();
        ranges.insert(range(0x1000, 0x100, 0x9000));
        ranges.insert(range(0x1100, 0x100, 0x1100));
        for (address, live) in [
            (0xfff, 0xfff),
            (0x1000, 0x9000),
            (0x10ff, 0x90ff),
            (0x1100, 0x1100),
            (0x1200, 0x1200),
        ] {
            assert_eq!(ranges.translate(address), live, "{address:#x}");
        }
        for (address, length, covered) in [
            (0x1000, 0x100, true),
            (0x1000, 0x101, false),
            (0x10ff, 1, true),
            (0x10ff, u64::MAX, false),
        ] {
            assert_eq!(
                ranges.covers(address, length),
                covered,
                "{address:#x} {length}"
            );
        }
    }

    #[test]
    fn a_freed_range_is_known_until_something_else_comes_there() {
        let mut ranges = Ranges::default();
        ranges.insert(range(0x1000, 0x100, 0x1000));
        assert_eq!(ranges.end(0x1000, 5).unwrap().ended, Some(5));
        assert!(ranges.end(0x1000, 6).is_none(), "only once");
        assert!(matches!(ranges.find(0x1080), Found::Freed(range) if range.ended == Some(5)));
        ranges.insert(range(0x1080, 0x10, 0x1080));
        assert!(matches!(ranges.find(0x1080), Found::Live(_, 0)));
        assert!(ranges.overlapping(0x1000, 0x81).is_some());
        assert!(ranges.overlapping(0x1000, 0x80).is_none());
    }

    #[test]
    fn a_new_range_ends_what_it_covers() {
        let mut ranges = Ranges::default();
        ranges.insert(range(0x1000, 0x100, 0x9000));
        ranges.insert(range(0x1100, 0x100, 0xa000));
        assert!(ranges.any_translated());
        ranges.insert(range(0x1080, 0x100, 0x1080));
        assert!(!ranges.any_translated());
        assert_eq!(ranges.translate(0x1000), 0x1000);
    }

    #[test]
    fn pointers_in_parameters_are_translated_at_aligned_words() {
        let mut ranges = Ranges::default();
        ranges.insert(range(0x1000, 0x100, 0x9000));
        let pointer = 0x1010u64.to_le_bytes();
        let mut bytes = [0; 32];
        bytes[0..8].copy_from_slice(&pointer);
        bytes[12..20].copy_from_slice(&pointer); // not aligned: left as it is
        bytes[24..32].copy_from_slice(&pointer);
        assert_eq!(
            ranges.translate_words(&mut bytes, &[(0, 8), (12, 8), (24, 8)]),
            Some((0x1010, 1)),
            "the one that is not aligned is returned"
        );
        assert_eq!(&bytes[0..8], &0x9010u64.to_le_bytes());
        assert_eq!(&bytes[12..20], &pointer);
        assert_eq!(&bytes[24..32], &0x9010u64.to_le_bytes());
        assert_eq!(
            ranges.translate_words(&mut [0; 3], &[(0, 8), (u32::MAX, 8)]),
            None
        );
    }

    #[test]
    fn words_that_name_memory_elsewhere_are_counted() {
        let mut ranges = Ranges::default();
        ranges.insert(range(0x1000, 0x100, 0x1000));
        let bytes = [0x1010u64, 0x2020, 5, 0x20ff]
            .map(u64::to_le_bytes)
            .concat();
        assert_eq!(ranges.stale_words(&bytes, 8), None, "all is in place");
        ranges.insert(range(0x2000, 0x100, 0x9000));
        assert_eq!(ranges.stale_words(&bytes, 8), Some((0x2020, 2)));
        assert_eq!(ranges.stale_words(&bytes[4..], 8), None);
        assert_eq!(ranges.stale_words(&bytes[4..], 4), Some((0x2020, 2)));
        assert_eq!(ranges.stale_words(&bytes[..7], 4), None);
    }
}
