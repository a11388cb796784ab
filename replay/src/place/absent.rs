//! Memory that does not exist at replay, because another process or API made it.

use cutape_model::IntervalMap;
use cutape_registry::{Family, Kind};

use crate::issue::skip::Skip;
use crate::place::address::{Found, Ranges};

/// The exported name of the function that could not be re-issued, for which something is absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cause(pub &'static str);

impl Cause {
    /// True if a process exported it, and not another API.
    pub(crate) fn is_shared_by_ranks(self) -> bool {
        let function = cutape_registry::function(self.0);
        function.is_some_and(|function| matches!(function.family, Family::Sharing(_)))
    }

    /// Why a call is left out that needs `what`. A program may import hundreds of pieces, and they
    /// are one reason.
    pub(crate) fn skip(self, what: &str) -> Skip {
        Skip::because(format!(
            "depends on the {what} of another process or API that does not exist here ({})",
            self.0
        ))
    }
}

/// Memory that is absent, and why.
#[derive(Debug, Default)]
pub(crate) struct Absent(IntervalMap<Cause>);

impl Absent {
    /// True if no memory is absent now.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn insert(&mut self, start: u64, length: u64, cause: Cause) {
        self.end(start, length);
        self.0.insert(start, length, cause);
    }

    /// Some bytes are no longer what they were: unmapped, closed, freed.
    pub(crate) fn end(&mut self, start: u64, length: u64) {
        self.0.remove_overlapping(start, length);
    }

    /// Absent memory that overlaps these bytes, where it starts and why, unless something else has
    /// come there.
    pub(crate) fn at(&self, ranges: &Ranges, address: u64, length: u64) -> Option<(u64, Cause)> {
        let (range, cause) = self.0.overlapping(address, length)?;
        match ranges.find(address) {
            Found::Live(range, _) if range.kind != Kind::Reservation => None,
            _ => Some((range.start, *cause)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_come_and_go() {
        let [first, second, third] = ["first", "second", "third"].map(Cause);
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
}
