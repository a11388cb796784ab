//! Memory that does not exist at replay, because another process or API made it.

use cutape_model::IntervalMap;
use cutape_registry::{Family, Kind};

use crate::objects::skip::{Root, Skip};
use crate::place::address::{Found, Ranges};

/// Why something is absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The exported name of the function that could not be re-issued.
    Function(&'static str),
    /// No recorded call made it: a library got it through private tables of the driver.
    Private,
}

/// True if a process exported what a function imports, and not another API.
pub(crate) fn is_shared_by_ranks(function: &str) -> bool {
    let function = cutape_registry::function(function);
    function.is_some_and(|function| matches!(function.family, Family::Sharing(_)))
}

/// Why a call is left out that needs `what`, which a call of that function would have made. A
/// program may import hundreds of pieces, and they are one reason.
pub(crate) fn skip_of_function(function: &str, what: &str) -> Skip {
    let reason = format!(
        "depends on the {what} of another process or API that does not exist here ({function})"
    );
    Skip::from_root(Root::Exchange, reason)
}

/// Pages in which devices map memory: how far memory of unknown length is taken to go.
pub(crate) const GRANULE: u64 = 2 << 20;

/// Memory that is absent, and why.
#[derive(Debug, Default)]
pub(crate) struct Absent {
    ranges: IntervalMap<Cause>,
    /// Private memory that calls have named.
    named: IntervalMap<()>,
}

impl Absent {
    /// True if no memory is absent now.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    pub(crate) fn insert(&mut self, start: u64, length: u64, cause: Cause) {
        self.end(start, length);
        self.ranges.insert(start, length, cause);
    }

    /// A call names memory that no recorded call made. How much there is around it, nothing says:
    /// as much of its granules as no recorded call made.
    pub(crate) fn insert_private(&mut self, start: u64, length: u64) {
        let end = start.saturating_add(length.max(1));
        self.named.overwrite(&(start..end), ());
        let first = start / GRANULE * GRANULE;
        let end = end.checked_next_multiple_of(GRANULE).unwrap_or(end);
        let joined = self.ranges.remove_overlapping(first, end - first);
        let first = joined.iter().map(|old| old.0.start).fold(first, u64::min);
        let end = joined.iter().map(|old| old.0.end).fold(end, u64::max);
        self.ranges.insert(first, end - first, Cause::Private);
    }

    /// Some bytes are no longer what they were: unmapped, closed, freed.
    pub(crate) fn end(&mut self, start: u64, length: u64) {
        self.ranges.remove_overlapping(start, length);
    }

    /// Absent memory that overlaps these bytes, where it starts and why, unless something else has
    /// come there.
    pub(crate) fn at(&self, ranges: &Ranges, address: u64, length: u64) -> Option<(u64, Cause)> {
        let (range, cause) = self.ranges.overlapping(address, length)?;
        match (ranges.find(address), cause) {
            (Found::Live(range, _), _) if range.kind != Kind::Reservation => None,
            // A recorded call has made and ended memory there since.
            (Found::Live(..) | Found::Freed(_), Cause::Private) => None,
            // A pointer to the end of recorded memory.
            (Found::Unknown, Cause::Private)
                if ranges.is_in_block(address.saturating_sub(1))
                    && self.named.find(address).is_none() =>
            {
                None
            }
            _ => Some((range.start, *cause)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::address::{Range, Way};

    #[test]
    fn ranges_come_and_go() {
        let [first, second, third] = ["first", "second", "third"].map(Cause::Function);
        let none = Ranges::default();
        let mut absent = Absent::default();
        absent.insert(0x1000, 0x1000, first);
        absent.insert(0x3000, 0x1000, second);
        let table = [
            (0xfff, 1, None),
            (0xfff, 2, Some((0x1000, first))),
            (0x1fff, 1, Some((0x1000, first))),
            (0x2000, 0x1000, None),
            (0x2000, 0x1001, Some((0x3000, second))),
            (0x3fff, 0, Some((0x3000, second))),
            (0x4000, 0, None),
        ];
        for (start, length, expected) in table {
            let found = absent.at(&none, start, length);
            assert_eq!(found, expected, "{start:#x} {length:#x}");
        }
        // Something new over both, and the end of all of it.
        absent.insert(0x1800, 0x2000, third);
        assert_eq!(absent.at(&none, 0x1000, 8), None);
        assert_eq!(absent.at(&none, 0x37ff, 8), Some((0x1800, third)));
        absent.end(0, 0x10000);
        assert!(absent.is_empty());
    }

    #[test]
    fn private_memory_is_what_no_recorded_call_made_around_it() {
        let function = cutape_registry::function("cuMemAlloc_v2").unwrap();
        let mut ranges = Ranges::default();
        for (start, length) in [(0x20_0000, 0x300), (0x30_0000, 0x200)] {
            ranges.insert(Range {
                start,
                length,
                live: start,
                kind: Kind::Memory,
                way: Way::Plain,
                context: 0,
                owner: None,
                made: 0,
                made_by: function,
                ended: None,
                flags: 0,
            });
        }
        ranges.end(0x30_0000, 1);
        let mut absent = Absent::default();
        absent.insert_private(0x25_0000, 16);
        absent.insert_private(0x20_0400, 16);
        absent.insert_private(0x3f_fff8, 16);
        for (address, is_private) in [
            (0x1f_ffff, false),
            (0x20_0000, false), // recorded memory, and its end
            (0x20_0300, false),
            (0x20_03ff, false),
            (0x20_0400, true), // named
            (0x20_0600, true),
            (0x30_0000, false), // freed
            (0x40_0000, true),
            (0x5f_ffff, true),
            (0x60_0000, false),
        ] {
            let found = absent.at(&ranges, address, 1);
            assert_eq!(found.is_some(), is_private, "{address:#x}");
        }
    }
}
