//! Where host memory lies that the device can reach, looked up without a lock: nearly every launch reaches none of it.

use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence};

/// Ranges in ascending order, which one thread at a time replaces while any number look words up.
#[repr(align(64))]
pub(crate) struct Places {
    /// Odd while the rest is being replaced.
    version: AtomicU64,
    /// All ranges lie in so many bytes from there.
    lowest: AtomicU64,
    span: AtomicU64,
    count: AtomicUsize,
    table: AtomicPtr<Vec<Place>>,
}

struct Place {
    start: AtomicU64,
    length: AtomicU64,
}

impl Places {
    pub(crate) const fn new() -> Self {
        Self {
            version: AtomicU64::new(0),
            lowest: AtomicU64::new(0),
            span: AtomicU64::new(0),
            count: AtomicUsize::new(0),
            table: AtomicPtr::new(core::ptr::null_mut()),
        }
    }

    /// Replaces the ranges, (start, length) each, in ascending order. Behind a lock of the caller's.
    pub(crate) fn publish(&self, ranges: &[(u64, u64)]) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version + 1, Ordering::Relaxed);
        // Who sees any of what follows sees the odd version.
        fence(Ordering::Release);
        // SAFETY: NULL, or leaked below.
        let mut table = unsafe { self.table.load(Ordering::Relaxed).as_ref() };
        if table.is_none_or(|table| table.len() < ranges.len()) {
            let grown = (0..ranges.len().next_power_of_two().max(64)).map(|_| Place {
                start: AtomicU64::new(0),
                length: AtomicU64::new(0),
            });
            // Leaked on purpose: others may be looking at the one before. All together are shorter than the last one.
            let grown = Box::into_raw(Box::new(grown.collect()));
            self.table.store(grown, Ordering::Release);
            // SAFETY: just leaked.
            table = Some(unsafe { &*grown });
        }
        for (place, &(start, length)) in table.into_iter().flatten().zip(ranges) {
            place.start.store(start, Ordering::Relaxed);
            place.length.store(length, Ordering::Relaxed);
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

    /// In a forked child: there are none. Another thread of the parent may have been replacing them.
    pub(crate) fn forget(&self) {
        let version = self.version.load(Ordering::Relaxed) | 1;
        self.span.store(0, Ordering::Relaxed);
        self.count.store(0, Ordering::Relaxed);
        self.version.store(version + 1, Ordering::Release);
    }

    /// Whether one of these words may be an address in a range: false only if none is.
    #[inline]
    pub(crate) fn may_hold(&self, words: impl Iterator<Item = u64> + Clone) -> bool {
        let version = self.version.load(Ordering::Acquire);
        let (lowest, span) = (
            self.lowest.load(Ordering::Relaxed),
            self.span.load(Ordering::Relaxed),
        );
        // All words, without a branch: a program's pinned memory lies together, and hardly any word points there.
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
        let places = table.and_then(|table| table.get(..self.count.load(Ordering::Relaxed)));
        // Half replaced: what the caller finds out from the version, too.
        let Some(places) = places else {
            return true;
        };
        let behind = places.partition_point(|place| place.start.load(Ordering::Relaxed) <= word);
        behind.checked_sub(1).is_some_and(|at| {
            let place = &places[at];
            let offset = word.wrapping_sub(place.start.load(Ordering::Relaxed));
            offset < place.length.load(Ordering::Relaxed)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::AtomicBool;

    #[test]
    fn words_are_held_by_the_ranges_published_last() {
        let places = Places::new();
        let holds = |word| places.may_hold([3, word, 5].into_iter());
        assert!(!holds(0) && !holds(0x1000) && !holds(u64::MAX));
        let many: Vec<(u64, u64)> = (1..=1000).map(|at| (at * 0x1000, 0x10)).collect();
        for ranges in [
            &[(0x1000, 0x100), (0x1100, 0x100), (0x3000, 1)][..],
            &many,
            &[(u64::MAX - 8, 8)],
            &[],
        ] {
            places.publish(ranges);
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
        places.publish(&many);
        places.forget();
        assert!(!holds(0x1000));
        places.publish(&many);
        assert!(holds(0x1000) && !holds(0x1010));
    }

    #[test]
    fn a_range_that_stays_is_never_missed() {
        let places = Places::new();
        let stays = (0x10_0000, 0x100);
        places.publish(&[stays]);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let readers: Vec<_> = (0..3)
                .map(|_| {
                    scope.spawn(|| {
                        while !is_over.load(Ordering::Relaxed) {
                            assert!(places.may_hold([7, stays.0 + 9].into_iter()));
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
                places.publish(&ranges);
            }
            is_over.store(true, Ordering::Relaxed);
            for reader in readers {
                reader.join().unwrap();
            }
        });
    }
}
