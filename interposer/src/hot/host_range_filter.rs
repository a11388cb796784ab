//! Tells without a lock whether words of a call may point into host memory that the device can
//! access: nearly always not.

use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence};

/// Ranges in ascending order. One thread at a time replaces them, behind a version that tells
/// readers to be careful.
#[repr(align(64))]
pub(crate) struct HostRangeFilter {
    /// Odd while the rest is being replaced.
    version: AtomicU64,
    /// All ranges lie in `span` bytes from there.
    lowest: AtomicU64,
    span: AtomicU64,
    count: AtomicUsize,
    table: AtomicPtr<Vec<Range>>,
}

struct Range {
    start: AtomicU64,
    length: AtomicU64,
}

impl HostRangeFilter {
    pub(crate) const fn new() -> Self {
        Self {
            version: AtomicU64::new(0),
            lowest: AtomicU64::new(0),
            span: AtomicU64::new(0),
            count: AtomicUsize::new(0),
            table: AtomicPtr::new(core::ptr::null_mut()),
        }
    }

    /// Replaces the ranges, (start, length) each, in ascending order. The caller holds a lock.
    pub(crate) fn publish(&self, ranges: &[(u64, u64)]) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version + 1, Ordering::Relaxed);
        // A reader that sees any of the following stores sees the odd version.
        fence(Ordering::Release);
        // SAFETY: NULL, or leaked below.
        let mut table = unsafe { self.table.load(Ordering::Relaxed).as_ref() };
        if table.is_none_or(|table| table.len() < ranges.len()) {
            let grown = (0..ranges.len().next_power_of_two().max(64)).map(|_| Range {
                start: AtomicU64::new(0),
                length: AtomicU64::new(0),
            });
            // Leaked on purpose: other threads may still read the old one. All old ones together
            // are shorter than this.
            let grown = Box::into_raw(Box::new(grown.collect()));
            self.table.store(grown, Ordering::Release);
            // SAFETY: just leaked.
            table = Some(unsafe { &*grown });
        }
        for (range, &(start, length)) in table.into_iter().flatten().zip(ranges) {
            range.start.store(start, Ordering::Relaxed);
            range.length.store(length, Ordering::Relaxed);
        }
        let lowest = ranges.first().map_or(0, |first| first.0);
        let end = ranges
            .last()
            .map_or(0, |last| last.0.saturating_add(last.1));
        self.lowest.store(lowest, Ordering::Relaxed);
        self.span.store(end - lowest, Ordering::Relaxed);
        self.count.store(ranges.len(), Ordering::Relaxed);
        self.version.store(version + 2, Ordering::Release);
    }

    /// Whether there are any.
    pub(crate) fn is_any(&self) -> bool {
        self.count.load(Ordering::Relaxed) != 0
    }

    /// In a forked child: there are none. A thread of the parent may have been replacing them.
    pub(crate) fn forget(&self) {
        let version = self.version.load(Ordering::Relaxed) | 1;
        self.span.store(0, Ordering::Relaxed);
        self.count.store(0, Ordering::Relaxed);
        self.version.store(version + 1, Ordering::Release);
    }

    /// Whether one of these words may be an address in a range; false only if none is.
    #[inline]
    pub(crate) fn may_hold(&self, words: impl Iterator<Item = u64> + Clone) -> bool {
        let version = self.version.load(Ordering::Acquire);
        let (lowest, span) = (
            self.lowest.load(Ordering::Relaxed),
            self.span.load(Ordering::Relaxed),
        );
        // All words without a branch: a program's pinned memory lies together, and few words point
        // near it.
        let is_near = |word: &u64| word.wrapping_sub(lowest) < span;
        let any = words.clone().fold(false, |any, word| any | is_near(&word))
            && words.filter(is_near).any(|word| self.holds(word));
        fence(Ordering::Acquire);
        any || version % 2 == 1 || self.version.load(Ordering::Relaxed) != version
    }

    #[cold]
    fn holds(&self, word: u64) -> bool {
        // SAFETY: NULL, or leaked by `publish`.
        let table = unsafe { self.table.load(Ordering::Acquire).as_ref() };
        let ranges = table.and_then(|table| table.get(..self.count.load(Ordering::Relaxed)));
        // Half replaced, which the version also tells the caller.
        let Some(ranges) = ranges else {
            return true;
        };
        let behind = ranges.partition_point(|range| range.start.load(Ordering::Relaxed) <= word);
        behind.checked_sub(1).is_some_and(|at| {
            ranges.get(at).is_some_and(|range| {
                let offset = word.wrapping_sub(range.start.load(Ordering::Relaxed));
                offset < range.length.load(Ordering::Relaxed)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::AtomicBool;

    #[test]
    fn words_are_held_by_the_ranges_published_last() {
        let filter = HostRangeFilter::new();
        let holds = |word| filter.may_hold([3, word, 5].into_iter());
        assert!(!holds(0) && !holds(0x1000) && !holds(u64::MAX));
        let many: Vec<(u64, u64)> = (1..=1000).map(|at| (at * 0x1000, 0x10)).collect();
        for ranges in [
            &[(0x1000, 0x100), (0x1100, 0x100), (0x3000, 1)][..],
            &many,
            &[(u64::MAX - 8, 8)],
            &[],
        ] {
            filter.publish(ranges);
            let edges = many.iter().chain(ranges).flat_map(|&(start, length)| {
                [start - 1, start, start + length - 1, start + length]
            });
            for word in edges {
                let expected = ranges
                    .iter()
                    .any(|&(start, length)| word.wrapping_sub(start) < length);
                assert_eq!(holds(word), expected, "{word:#x}");
            }
        }
        filter.publish(&many);
        filter.forget();
        assert!(!holds(0x1000));
        filter.publish(&many);
        assert!(holds(0x1000) && !holds(0x1010));
    }

    #[test]
    fn a_range_that_stays_is_never_missed() {
        let filter = HostRangeFilter::new();
        let stays = (0x10_0000, 0x100);
        filter.publish(&[stays]);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let readers: Vec<_> = (0..3)
                .map(|_| {
                    scope.spawn(|| {
                        while !is_over.load(Ordering::Relaxed) {
                            assert!(filter.may_hold([7, stays.0 + 9].into_iter()));
                        }
                    })
                })
                .collect();
            for round in 0..2000_u64 {
                let mut ranges: Vec<(u64, u64)> = (0..round % 200)
                    .map(|at| ((at + 1) * 0x100, 0x80))
                    .chain([stays])
                    .collect();
                if round % 2 == 0 {
                    ranges.push((0x20_0000, 8));
                }
                filter.publish(&ranges);
            }
            is_over.store(true, Ordering::Relaxed);
            for reader in readers {
                reader.join().unwrap();
            }
        });
    }
}
