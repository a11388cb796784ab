//! The device memory whose content the recorder can know: allocated by this process, and set to
//! zeros when it was new.

use std::collections::{BTreeMap, HashMap};

/// Of longer ranges, only the part that addresses of the program have named is digested at a launch
/// or a wait: a framework may take the whole memory of a device at once.
pub(super) const LONG: u64 = 64 << 20;
/// Starts of parts are multiples of this.
const PART: u64 = 256;

/// A range of device memory that can be read in its context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) length: u64,
    pub(super) context: u64,
    /// Ticks of the call that made it.
    since: u64,
    /// First byte and past the last one of the parts that were named so far.
    named: Option<(u64, u64)>,
}

impl Range {
    pub(super) fn new(length: u64, context: u64, since: u64) -> Self {
        Self {
            length,
            context,
            since,
            named: None,
        }
    }

    /// The part that an address in it stands for: all of it, or what follows the address.
    fn part(&self, start: u64, address: u64) -> (u64, u64) {
        let end = start.saturating_add(self.length);
        if self.length <= LONG {
            return (start, end);
        }
        let first = start + (address - start) / PART * PART;
        (first, first.saturating_add(LONG).min(end))
    }
}

/// Physical memory that is mapped.
#[derive(Clone, Copy, Debug)]
struct Mapped {
    length: u64,
    /// `None` if this process has not created it, or maps a part of it.
    handle: Option<u64>,
}

/// Physical memory of this process.
#[derive(Clone, Copy, Debug)]
struct Physical {
    length: u64,
    is_zeroed: bool,
}

/// All ranges, by their start.
#[derive(Debug, Default)]
pub(super) struct Ranges {
    ranges: BTreeMap<u64, Range>,
    mapped: BTreeMap<u64, Mapped>,
    physical: HashMap<u64, Physical>,
}

impl Ranges {
    pub(super) fn insert(&mut self, start: u64, range: Range) {
        if start != 0 && range.length != 0 {
            self.ranges.insert(start, range);
        }
    }

    /// Takes out the range that begins there.
    pub(super) fn take(&mut self, start: u64) -> Option<Range> {
        self.ranges.remove(&start)
    }

    /// Whether a range begins in that memory.
    pub(super) fn is_any_in(&self, start: u64, length: u64) -> bool {
        let end = start.saturating_add(length);
        self.ranges.range(start..end).next().is_some()
    }

    /// Forgets the ranges of a context.
    pub(super) fn end_context(&mut self, context: u64) {
        self.ranges.retain(|_, range| range.context != context);
    }

    fn find(&mut self, address: u64, context: u64) -> Option<(u64, &mut Range)> {
        let (&start, range) = self.ranges.range_mut(..=address).next_back()?;
        let is_inside = address - start < range.length && range.context == context;
        is_inside.then_some((start, range))
    }

    /// Remembers that the program has used these addresses.
    pub(super) fn name(&mut self, addresses: impl Iterator<Item = u64>, context: u64) {
        for address in addresses {
            if let Some((start, range)) = self.find(address, context) {
                let part = range.part(start, address);
                let named = range.named.unwrap_or(part);
                range.named = Some((named.0.min(part.0), named.1.max(part.1)));
            }
        }
    }

    /// The parts that these words point into, as address and length; those that overlap are one.
    pub(super) fn reached(
        &mut self,
        words: impl Iterator<Item = u64>,
        context: u64,
    ) -> Vec<(u64, u64)> {
        let parts = words.filter_map(|word| {
            let (start, range) = self.find(word, context)?;
            Some((start, range.part(start, word)))
        });
        let mut parts: Vec<_> = parts.collect();
        parts.sort_unstable();
        parts.dedup_by(|later, earlier| {
            let joins = later.0 == earlier.0 && later.1.0 <= earlier.1.1;
            if joins {
                earlier.1.1 = earlier.1.1.max(later.1.1);
            }
            joins
        });
        let lengths = parts
            .into_iter()
            .map(|(_, (first, end))| (first, end - first));
        lengths.collect()
    }

    /// All memory of a context that calls made which were entered before; of long ranges the named
    /// part, unless they are wanted whole.
    pub(super) fn all(&self, context: u64, before: u64, are_whole: bool) -> Vec<(u64, u64)> {
        let own = self
            .ranges
            .iter()
            .filter(|(_, range)| range.context == context && range.since < before);
        let parts = own.filter_map(|(&start, range)| {
            if are_whole || range.length <= LONG {
                return Some((start, range.length));
            }
            range.named.map(|(first, end)| (first, end - first))
        });
        parts.collect()
    }

    pub(super) fn created(&mut self, handle: u64, length: u64) {
        let is_zeroed = false;
        self.physical.insert(handle, Physical { length, is_zeroed });
    }

    pub(super) fn map(&mut self, address: u64, length: u64, offset: u64, handle: u64) {
        let is_whole = |physical: &&Physical| offset == 0 && physical.length == length;
        let is_known = self.physical.get(&handle).filter(is_whole).is_some();
        let handle = is_known.then_some(handle);
        self.mapped.insert(address, Mapped { length, handle });
    }

    /// Physical memory was exported or imported: other processes may write it.
    pub(super) fn shared(&mut self, handle: u64) {
        self.physical.remove(&handle);
    }

    /// Access to mapped memory was given, `here` to a context at a moment, or elsewhere. Returns what
    /// of it has to be set to zeros first, and with that becomes known.
    pub(super) fn set_access(
        &mut self,
        address: u64,
        length: u64,
        here: Option<(u64, u64)>,
    ) -> Vec<(u64, u64)> {
        let end = address.saturating_add(length);
        let mut fresh = Vec::new();
        let before_end = self.mapped.range(..end).rev();
        let end_of = |start: u64, mapped: &Mapped| start.saturating_add(mapped.length);
        let overlaps = |&(&start, mapped): &(&u64, &Mapped)| end_of(start, mapped) > address;
        for (&start, mapped) in before_end.take_while(overlaps) {
            let Some(handle) = mapped.handle else {
                continue;
            };
            let Some(physical) = self.physical.get_mut(&handle) else {
                continue;
            };
            let is_whole = address <= start && end_of(start, mapped) <= end;
            match here.filter(|_| is_whole) {
                Some((context, since)) if physical.is_zeroed => {
                    self.ranges
                        .entry(start)
                        .or_insert(Range::new(mapped.length, context, since));
                }
                Some(_) => {
                    physical.is_zeroed = true;
                    fresh.push((start, mapped.length));
                }
                None if physical.is_zeroed => {}
                // From now on it may have contents of the program.
                None => _ = self.physical.remove(&handle),
            }
        }
        fresh
    }

    /// Forgets memory that is unmapped.
    pub(super) fn unmap(&mut self, address: u64, length: u64) {
        let end = address.saturating_add(length);
        let is_inside = |start: &u64| (address..end).contains(start);
        self.mapped.retain(|start, _| !is_inside(start));
        self.ranges.retain(|start, _| !is_inside(start));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTEXT: u64 = 7;
    const HERE: Option<(u64, u64)> = Some((CONTEXT, 1));

    fn ranges(known: &[(u64, u64)]) -> Ranges {
        let mut ranges = Ranges::default();
        for &(start, length) in known {
            ranges.insert(start, Range::new(length, CONTEXT, 1));
        }
        ranges
    }

    #[test]
    fn words_reach_the_ranges_that_they_point_into() {
        let long = 4 * LONG;
        let at = 1 << 40;
        let mut ranges = ranges(&[(0x1000, 0x100), (0x1100, 0x100), (at, long)]);
        type Row<'a> = (&'a [u64], &'a [(u64, u64)]);
        let table: [Row<'_>; 7] = [
            (&[], &[]),
            (&[0, 0xfff, 0x1200], &[]),
            (&[0x10ff, 0x1000], &[(0x1000, 0x100)]),
            (&[0x1100, 0x1000], &[(0x1000, 0x100), (0x1100, 0x100)]),
            (&[at + 0x1ff], &[(at + 0x100, LONG)]),
            // Parts that overlap, and the end of the range.
            (&[at + LONG / 2, at], &[(at, LONG / 2 + LONG)]),
            (&[at + long - 1, at], &[(at, LONG), (at + long - 256, 256)]),
        ];
        for (words, expected) in table {
            let found = ranges.reached(words.iter().copied(), CONTEXT);
            assert_eq!(found, expected, "{words:x?}");
            assert_eq!(ranges.reached(words.iter().copied(), CONTEXT + 1), []);
        }
    }

    #[test]
    fn of_long_ranges_only_named_parts_are_taken() {
        let at = 1 << 40;
        let mut ranges = ranges(&[(0x1000, 0x100), (at, 4 * LONG)]);
        assert_eq!(ranges.all(CONTEXT, 2, false), [(0x1000, 0x100)]);
        assert_eq!(
            ranges.all(CONTEXT, 2, true),
            [(0x1000, 0x100), (at, 4 * LONG)]
        );
        ranges.name([at + LONG, at + 256].into_iter(), CONTEXT);
        let named = (at + 256, 2 * LONG - 256);
        assert_eq!(ranges.all(CONTEXT, 2, false), [(0x1000, 0x100), named]);
        assert_eq!(
            ranges.all(CONTEXT, 1, false),
            [],
            "made in the call or later"
        );
        ranges.end_context(CONTEXT);
        assert_eq!(ranges.all(CONTEXT, 2, true), []);
    }

    #[test]
    fn mapped_memory_is_zeroed_once_and_known_while_it_is_mapped() {
        let mut ranges = Ranges::default();
        let (page, handle) = (2 << 20, 5);
        let known = |ranges: &Ranges| ranges.all(CONTEXT, 2, true);
        ranges.created(handle, page);
        ranges.map(page, page, 0, handle);
        assert_eq!(known(&ranges), []);
        assert_eq!(ranges.set_access(page, page, HERE), [(page, page)]);
        ranges.insert(page, Range::new(page, CONTEXT, 1));
        // A second mapping of the same memory keeps its content.
        ranges.map(9 * page, page, 0, handle);
        assert_eq!(ranges.set_access(9 * page, page, HERE), []);
        assert_eq!(known(&ranges), [(page, page), (9 * page, page)]);
        ranges.unmap(page, page);
        assert_eq!(known(&ranges), [(9 * page, page)]);
        // Memory of another process, and a part of an allocation.
        ranges.map(20 * page, page, 0, 6);
        ranges.created(8, 2 * page);
        ranges.map(30 * page, page, page, 8);
        assert_eq!(ranges.set_access(20 * page, 11 * page, HERE), []);
        assert_eq!(known(&ranges), [(9 * page, page)]);
    }

    #[test]
    fn mapped_memory_that_others_may_have_written_is_left_alone() {
        let (page, handle) = (2 << 20, 5);
        let mapped = || {
            let mut ranges = Ranges::default();
            ranges.created(handle, page);
            ranges.map(page, page, 0, handle);
            ranges
        };
        type Case<'a> = (&'a str, fn(&mut Ranges, u64), &'a [(u64, u64)]);
        let cases: [Case<'_>; 5] = [
            ("nothing", |_, _| {}, &[(page, page)]),
            (
                "access of another device",
                |ranges, page| _ = ranges.set_access(page, page, None),
                &[],
            ),
            (
                "access to its second half",
                |ranges, page| _ = ranges.set_access(page + page / 2, page, HERE),
                &[],
            ),
            ("an export", |ranges, _| ranges.shared(5), &[]),
            (
                "an import with the handle of memory that was released",
                |ranges, page| {
                    ranges.unmap(page, page);
                    ranges.shared(5);
                    ranges.map(page, page, 0, 5);
                },
                &[],
            ),
        ];
        for (before, act, fresh) in cases {
            let mut ranges = mapped();
            act(&mut ranges, page);
            assert_eq!(ranges.set_access(page, page, HERE), fresh, "after {before}");
            assert_eq!(ranges.all(CONTEXT, 2, true), [], "after {before}");
        }
        // What was zeroed before another device got access stays known.
        let mut ranges = mapped();
        assert_eq!(ranges.set_access(page, page, HERE), [(page, page)]);
        assert_eq!(ranges.set_access(page, page, None), []);
        assert_eq!(ranges.set_access(page, page, HERE), []);
        assert_eq!(ranges.all(CONTEXT, 2, true), [(page, page)]);
    }
}
