//! Places in memory of a fixed size, taken in a circle. They are given back in any order; the
//! oldest that is still taken holds up the later ones.

use std::collections::VecDeque;

/// Starts of places are multiples of this.
pub(super) const ALIGNMENT: u64 = 256;

/// The places that are taken.
#[derive(Debug, Default)]
pub(super) struct Ring {
    length: u64,
    /// Where the next place begins, if there is room.
    next: u64,
    taken: VecDeque<Place>,
}

#[derive(Debug)]
struct Place {
    start: u64,
    is_given_back: bool,
}

impl Ring {
    pub(super) fn new(length: u64) -> Self {
        Self {
            length,
            ..Self::default()
        }
    }

    /// Takes that many bytes in one piece; where they begin. `None` if there is no room.
    pub(super) fn take(&mut self, bytes: u64) -> Option<u64> {
        let bytes = bytes.max(1).checked_next_multiple_of(ALIGNMENT)?;
        let start = match self.taken.front() {
            None => (bytes <= self.length).then_some(0)?,
            // The places from the oldest on are taken, up to `next`.
            Some(oldest) if self.next > oldest.start => {
                if bytes <= self.length - self.next {
                    self.next
                } else {
                    // Strictly less: equal ends would mean that all is taken.
                    (bytes < oldest.start).then_some(0)?
                }
            }
            Some(oldest) => (bytes < oldest.start - self.next).then_some(self.next)?,
        };
        self.next = start + bytes;
        self.taken.push_back(Place {
            start,
            is_given_back: false,
        });
        Some(start)
    }

    /// Gives back what begins there.
    pub(super) fn give_back(&mut self, start: u64) {
        if let Some(place) = self.taken.iter_mut().find(|place| place.start == start) {
            place.is_given_back = true;
        }
        while self
            .taken
            .front()
            .is_some_and(|oldest| oldest.is_given_back)
        {
            self.taken.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIT: u64 = ALIGNMENT;

    #[test]
    fn places_go_round() {
        let mut ring = Ring::new(8 * UNIT);
        assert_eq!(ring.take(9 * UNIT), None);
        assert_eq!(ring.take(u64::MAX), None);
        assert_eq!(ring.take(3 * UNIT - 1), Some(0));
        assert_eq!(ring.take(3 * UNIT), Some(3 * UNIT));
        assert_eq!(ring.take(3 * UNIT), None);
        // Behind the last, up to the end.
        assert_eq!(ring.take(1), Some(6 * UNIT));
        ring.give_back(0);
        // Before the oldest, but not up to it.
        assert_eq!(ring.take(3 * UNIT), None);
        assert_eq!(ring.take(2 * UNIT), Some(0));
        assert_eq!(ring.take(UNIT), None);
        // Out of order: the oldest holds the others up.
        ring.give_back(6 * UNIT);
        assert_eq!(ring.take(2 * UNIT), None);
        ring.give_back(3 * UNIT);
        assert_eq!(ring.take(6 * UNIT), Some(2 * UNIT));
        ring.give_back(0);
        ring.give_back(2 * UNIT);
        assert_eq!(ring.take(8 * UNIT), Some(0));
        assert_eq!(ring.take(1), None);
    }

    #[test]
    fn places_never_overlap() {
        let mut ring = Ring::new(64 * UNIT);
        let mut taken: Vec<(u64, u64)> = Vec::new();
        let mut state = 1_u64;
        let mut count = 0;
        for _ in 0..20_000 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let random = state >> 33;
            if random.is_multiple_of(3) && !taken.is_empty() {
                let (start, _) = taken.remove(random as usize % taken.len());
                ring.give_back(start);
                continue;
            }
            let bytes = random % (20 * UNIT);
            let Some(start) = ring.take(bytes) else {
                continue;
            };
            let end = start + bytes;
            assert!(end <= 64 * UNIT);
            assert!(taken.iter().all(|&(from, to)| end <= from || to <= start));
            taken.push((start, end.max(start + 1)));
            count += 1;
        }
        assert!(count > 5000);
    }
}
