//! What a part of a trace reads that calls before the part have written.

use std::ops::Range;

use super::contents::Contents;

/// A part of a trace: its first call, and which calls are in it.
#[derive(Clone, Debug, Default)]
pub(super) struct PartCalls {
    pub(super) start: u32,
    pub(super) kept: Vec<bool>,
    found: Vec<Range<u64>>,
    /// Work before the part may have written any memory.
    pub(super) has_computed: bool,
    /// Kernels may read memory that is not known.
    pub(super) is_unknown: bool,
}

/// Memory that a part of a trace may read as the calls before the part left it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryReads {
    /// Bytes in allocations that were live at the start of the part, in order, without overlaps.
    pub ranges: Vec<Range<u64>>,
    /// It may read more than that, anywhere.
    pub is_unknown: bool,
}

impl PartCalls {
    /// Of these calls, from one on.
    pub(super) fn new(start: u64, kept: &[bool]) -> Self {
        Self {
            start: u32::try_from(start).unwrap_or(u32::MAX),
            kept: kept.to_vec(),
            ..Self::default()
        }
    }

    /// Whether the work of a call counts.
    pub(super) fn has(&self, call: u32) -> bool {
        call >= self.start && self.kept.get(call as usize) == Some(&true)
    }

    /// A call of the part reads these bytes of memory that was live at its start.
    pub(super) fn read(&mut self, range: &Range<u64>, contents: &Contents) {
        // Without a writer they hold what the driver left there, unless a kernel wrote them.
        let mut next = range.start;
        for (piece, writer) in contents.pieces(range) {
            if self.has_computed {
                self.found.push(next..piece.start);
            }
            if writer < self.start {
                self.found.push(piece.clone());
            }
            next = piece.end;
        }
        if self.has_computed {
            self.found.push(next..range.end);
        }
    }

    /// All that was found.
    pub(super) fn finish(mut self) -> MemoryReads {
        self.found.retain(|range| !range.is_empty());
        self.found.sort_unstable_by_key(|range| range.start);
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for range in self.found {
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
    use super::*;

    #[test]
    fn what_the_part_has_written_itself_is_not_read_from_before() {
        let mut contents = Contents::default();
        contents.write(&(0..100), 3);
        contents.write(&(40..60), 7);
        contents.write(&(200..210), 2);
        for (has_computed, ranges, expected) in [
            (false, &[(0, 100)][..], &[(0, 40), (60, 100)][..]),
            (false, &[(50, 55)], &[]),
            (false, &[(90, 205)], &[(90, 100), (200, 205)]),
            (true, &[(90, 205)], &[(90, 205)]),
            (true, &[(300, 310), (0, 10)], &[(0, 10), (300, 310)]),
            (false, &[(300, 310)], &[]),
            (true, &[(59, 61), (39, 41)], &[(39, 40), (60, 61)]),
        ] {
            let mut part = PartCalls::new(5, &[]);
            part.has_computed = has_computed;
            for &(start, end) in ranges {
                part.read(&(start..end), &contents);
            }
            let found = part.finish().ranges;
            let found: Vec<_> = found.iter().map(|range| (range.start, range.end)).collect();
            assert_eq!(found, expected, "{has_computed} {ranges:?}");
        }
    }

    #[test]
    fn only_calls_of_the_part_count() {
        let part = PartCalls::new(2, &[true, true, false, true]);
        let counts: Vec<bool> = (0..5).map(|call| part.has(call)).collect();
        assert_eq!(counts, [false, false, false, true, false]);
    }
}
