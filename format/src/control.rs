//! The chunk by which a recorder tells readers that follow the trace how far the file is claimed:
//! behind its head a u64, where the next chunk of the file will begin. Behind that, what could not
//! be recorded, for which a full disk has no other place.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::layout::{CHUNK_HEAD_LENGTH, FILE_HEAD_LENGTH};

/// Where the chunk begins: behind the file head.
pub const CONTROL_POSITION: u64 = FILE_HEAD_LENGTH as u64;
/// Its length, head included. Chunks of earlier recorders are longer and hold more behind the
/// number.
pub const CONTROL_LENGTH: usize = 4096;
/// Where the number is in the chunk, which recorder and reader map as an atomic.
pub const CONTROL_END: usize = CHUNK_HEAD_LENGTH;
/// Where [`Incomplete`] is in the chunk, since version 1.8; an atomic as well.
pub const CONTROL_INCOMPLETE: usize = CONTROL_END + 8;

/// Where the chunks of the file begin that later calls may name again as blobs, since version 1.12:
/// what is before may be erased. An atomic u64, which whoever erases chunks writes.
pub const CONTROL_REUSE_FROM: usize = CONTROL_END + 256;

/// That a trace lacks something because its file could not grow; as a word, 0 is a trace that lacks
/// nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Incomplete {
    /// Calls are missing, and not only call stacks, markers or facts about program and machine.
    pub lacks_calls: bool,
    /// The system's error number.
    pub error: u32,
}

impl Incomplete {
    const LACKS_OTHERS: u64 = 1 << 32;
    const LACKS_CALLS: u64 = 2 << 32;

    /// As it is stored.
    pub fn word(self) -> u64 {
        let lacks = match self.lacks_calls {
            true => Self::LACKS_CALLS,
            false => Self::LACKS_OTHERS,
        };
        lacks | u64::from(self.error)
    }

    /// What a stored word says.
    pub fn from_word(word: u64) -> Option<Self> {
        (word != 0).then_some(Self {
            lacks_calls: word & Self::LACKS_CALLS != 0,
            error: word as u32,
        })
    }
}

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
    fn incomplete_traces() {
        assert_eq!(Incomplete::from_word(0), None);
        for (lacks_calls, error) in [(true, 28), (false, 28), (true, 0), (false, u32::MAX)] {
            let incomplete = Incomplete { lacks_calls, error };
            assert_eq!(Incomplete::from_word(incomplete.word()), Some(incomplete));
        }
    }

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
