//! The chunk by which a recorder tells readers that follow the trace how far the file is claimed.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::layout::{CHUNK_HEAD_LENGTH, FILE_HEAD_LENGTH};

/// Where the chunk begins: behind the file head.
pub const CONTROL_POSITION: u64 = FILE_HEAD_LENGTH as u64;
/// Its length, head included. Earlier recorders, whose chunk was longer, had other things behind
/// the end.
pub const CONTROL_LENGTH: usize = 4096;

/// The chunk, as recorder and reader map it. A new one is zero but for its head.
#[repr(C)]
pub struct Control {
    head: [AtomicU64; CHUNK_HEAD_LENGTH / 8],
    /// Where the next chunk of the file begins.
    end: AtomicU64,
}

const _: () = assert!(size_of::<Control>() <= CONTROL_LENGTH);

impl Control {
    /// Sets where the first chunk begins, and the head, by which a reader knows that this is set.
    pub fn begin(&self, end: u64, head: &[u8; CHUNK_HEAD_LENGTH]) {
        self.end.store(end, Ordering::Relaxed);
        let (words, _) = head.as_chunks::<8>();
        for (place, word) in self.head.iter().zip(words) {
            place.store(u64::from_ne_bytes(*word), Ordering::Release);
        }
    }

    /// Takes `least` bytes of the file, and as many more as let the next claim begin at a multiple
    /// of `alignment`. Returns where they begin and end.
    pub fn claim(&self, least: u64, alignment: u64) -> Option<(u64, u64)> {
        let end_of = |position: u64| {
            position
                .saturating_add(least)
                .checked_next_multiple_of(alignment)
        };
        let claimed = self
            .end
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, end_of);
        let position = claimed.ok()?;
        Some((position, end_of(position)?))
    }

    /// The end of everything that was claimed by now.
    pub fn end(&self) -> u64 {
        self.end.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_do_not_overlap() {
        let control = Control {
            head: [const { AtomicU64::new(0) }; _],
            end: AtomicU64::new(0),
        };
        control.begin(1 << 20, &[0; CHUNK_HEAD_LENGTH]);
        let start = 1 << 20;
        for (least, alignment, expected) in [
            (8192, 4096, Some((start, start + 8192))),
            (4096, 65536, Some((start + 8192, start + 65536))),
            (4096, 4096, Some((start + 65536, start + 69632))),
            (u64::MAX, 4096, None),
        ] {
            assert_eq!(control.claim(least, alignment), expected);
        }
        assert_eq!(control.end(), start + 69632);
    }
}
