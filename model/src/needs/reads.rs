//! What a part of a trace reads that calls before the part have written.

use std::ops::Range;

use super::contents::Contents;
use super::table::Need;

/// A part of a trace that begins with chosen calls, and before which memory is restored.
#[derive(Clone, Debug, Default)]
pub(super) struct StatePart {
    /// The first chosen call.
    first: u32,
    /// Where the part begins, as far as is known: before the first chosen call, outside captures.
    pub(super) start: u32,
    /// Calls before the part may need what memory held before them.
    keeps_contents: bool,
    /// Work before the part may have written any memory.
    has_computed: bool,
    /// Kernels may read memory that is not known.
    is_unknown: bool,
    /// By call: what it reads.
    found: Vec<(u32, Range<u64>)>,
}

/// Memory that the calls of a part may read as the calls before the part left it.
#[derive(Clone, Debug, Default)]
pub struct PartReads {
    /// The first call of the part: the first chosen one, or the one that begins a capture which is
    /// in progress there.
    pub start: u64,
    found: Vec<(u32, Range<u64>)>,
    is_unknown: bool,
}

/// Memory that a part of a trace may read as the calls before the part left it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryReads {
    /// Bytes in allocations that were live at the start of the part, in order, without overlaps.
    pub ranges: Vec<Range<u64>>,
    /// It may read more than that, anywhere.
    pub is_unknown: bool,
}

impl StatePart {
    /// A part of which this is the first chosen call.
    pub(super) fn new(first: u64, keeps_contents: bool) -> Self {
        Self {
            first: u32::try_from(first).unwrap_or(u32::MAX),
            keeps_contents,
            ..Self::default()
        }
    }

    /// Whether the part may begin with a call that no capture includes.
    pub(super) fn may_begin(&self, call: u32) -> bool {
        call <= self.first
    }

    /// The part may begin with this call.
    pub(super) fn begin(&mut self, call: u32, has_computed: bool, is_unknown: bool) {
        self.start = call;
        self.has_computed = has_computed;
        self.is_unknown = is_unknown;
        self.found.clear();
    }

    /// Whether a call may be in the part.
    pub(super) fn has(&self, call: u32) -> bool {
        call > self.start || call >= self.first
    }

    /// Whether a call is in the part for what it needs of an earlier one.
    pub(super) fn follows(&self, call: u32, needed: u32, need: Need) -> bool {
        match need {
            Need::Existence | Need::Setting | Need::Completion => true,
            Need::Content | Need::Order => {
                self.keeps_contents || (self.has(call) && needed >= self.start)
            }
        }
    }

    /// A call of the part reads these bytes of memory that was live at its start.
    pub(super) fn read(&mut self, call: u32, range: &Range<u64>, contents: &Contents) {
        // Without a writer they hold what the driver left there, unless a kernel wrote them.
        let mut next = range.start;
        let mut found = |range: Range<u64>| {
            if !range.is_empty() {
                self.found.push((call, range));
            }
        };
        for (piece, writer) in contents.pieces(range) {
            if self.has_computed {
                found(next..piece.start);
            }
            if writer < self.start {
                found(piece.clone());
            }
            next = piece.end;
        }
        if self.has_computed {
            found(next..range.end);
        }
    }

    /// Forgets what other calls read.
    pub(super) fn retain(&mut self, is_kept: impl Fn(u32) -> bool) {
        self.found.retain(|&(call, _)| is_kept(call));
    }

    /// What was found.
    pub(super) fn finish(self) -> PartReads {
        PartReads {
            start: u64::from(self.start),
            found: self.found,
            is_unknown: self.is_unknown,
        }
    }
}

impl PartReads {
    /// What the calls read that are in the part, by index.
    pub fn of(&self, kept: &[bool]) -> MemoryReads {
        let is_kept = |call: u32| kept.get(call as usize) == Some(&true);
        let found = self.found.iter().filter(|entry| is_kept(entry.0));
        let mut found: Vec<Range<u64>> = found.map(|entry| entry.1.clone()).collect();
        found.sort_unstable_by_key(|range| range.start);
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for range in found {
            match ranges.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => ranges.push(range),
            }
        }
        MemoryReads {
            ranges,
            is_unknown: self.is_unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::contents::Access;
    use super::*;

    fn access(call: u32) -> Access {
        Access { call, stream: None }
    }

    #[test]
    fn what_the_part_has_written_itself_is_not_read_from_before() {
        let mut contents = Contents::default();
        contents.write(&(0..100), access(3));
        contents.write(&(40..60), access(7));
        contents.write(&(200..210), access(2));
        for (has_computed, ranges, expected) in [
            (false, &[(0, 100)][..], &[(0, 40), (60, 100)][..]),
            (false, &[(50, 55)], &[]),
            (false, &[(90, 205)], &[(90, 100), (200, 205)]),
            (true, &[(90, 205)], &[(90, 205)]),
            (true, &[(300, 310), (0, 10)], &[(0, 10), (300, 310)]),
            (false, &[(300, 310)], &[]),
            (true, &[(59, 61), (39, 41)], &[(39, 40), (60, 61)]),
        ] {
            let mut part = StatePart::default();
            part.begin(5, has_computed, false);
            for &(start, end) in ranges {
                part.read(8, &(start..end), &contents);
            }
            let found = part.finish().of(&[true; 9]).ranges;
            let found: Vec<_> = found.iter().map(|range| (range.start, range.end)).collect();
            assert_eq!(found, expected, "{has_computed} {ranges:?}");
        }
    }

    #[test]
    fn only_what_calls_of_the_part_read_counts() {
        let mut contents = Contents::default();
        contents.write(&(0..100), access(0));
        let mut part = StatePart::default();
        part.begin(1, false, false);
        part.read(2, &(0..10), &contents);
        part.read(3, &(20..30), &contents);
        let reads = part.clone().finish();
        for (kept, expected) in [
            ([true, true, false, true], &[(20, 30)][..]),
            ([true, true, true, false], &[(0, 10)]),
            ([true; 4], &[(0, 10), (20, 30)]),
        ] {
            let found = reads.of(&kept).ranges;
            let found: Vec<_> = found.iter().map(|range| (range.start, range.end)).collect();
            assert_eq!(found, expected, "{kept:?}");
        }
        part.begin(4, false, false);
        assert_eq!(part.finish().of(&[true; 5]).ranges, []);
    }

    #[test]
    fn contents_matter_within_the_part_only() {
        let mut part = StatePart::new(9, false);
        part.begin(6, false, false);
        let follows = |call, needed| part.follows(call, needed, Need::Content);
        assert!(follows(7, 6) && follows(9, 7));
        assert!(!follows(7, 5) && !follows(6, 5));
        assert!(part.follows(3, 2, Need::Setting));
    }
}
