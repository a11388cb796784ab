//! The chunk by which a recorder tells readers that follow the trace how far the file is claimed:
//! behind its head a u64, where the next chunk of the file will begin.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::layout::{CHUNK_HEAD_LENGTH, FILE_HEAD_LENGTH};

/// Where the chunk begins: behind the file head.
pub const CONTROL_POSITION: u64 = FILE_HEAD_LENGTH as u64;
/// Its length, head included. Chunks of earlier recorders are longer and hold more behind the
/// number.
pub const CONTROL_LENGTH: usize = 4096;
/// Where the number is in the chunk, which recorder and reader map as an atomic.
pub const CONTROL_END: usize = CHUNK_HEAD_LENGTH;

/// Takes `least` bytes of the file, which is claimed up to `end`, and as many more as let the next
/// claim begin at a multiple of `alignment`. Returns where they begin and end.
pub fn claim(end: &AtomicU64, least: u64, alignment: u64) -> Option<(u64, u64)> {
    let end_of = |position: u64| {
        position
            .saturating_add(least)
            .checked_next_multiple_of(alignment)
    };
    let claimed = end.fetch_update(Ordering::Relaxed, Ordering::Relaxed, end_of);
    let position = claimed.ok()?;
    Some((position, end_of(position)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_do_not_overlap() {
        let start = 1 << 20;
        let end = AtomicU64::new(start);
        for (least, alignment, expected) in [
            (8192, 4096, Some((start, start + 8192))),
            (4096, 65536, Some((start + 8192, start + 65536))),
            (4096, 4096, Some((start + 65536, start + 69632))),
            (u64::MAX, 4096, None),
        ] {
            assert_eq!(claim(&end, least, alignment), expected);
        }
        assert_eq!(end.into_inner(), start + 69632);
    }
}
