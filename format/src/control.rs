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

/// That a trace lacks something because its file could not grow; as a word, 0 is a trace that lacks
/// nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Incomplete {
    /// Calls are missing.
    pub lacks_calls: bool,
    /// Payloads are missing, which the policies would have kept.
    pub lacks_payloads: bool,
    /// Call stacks, markers or facts about program and machine are missing.
    pub lacks_others: bool,
    /// Because of the limit that the user has set; otherwise because of `error`.
    pub is_limited: bool,
    /// The system's error number.
    pub error: u32,
}

impl Incomplete {
    const LACKS_OTHERS: u64 = 1 << 32;
    const LACKS_CALLS: u64 = 1 << 33;
    /// Since version 1.12, as the next.
    const LACKS_PAYLOADS: u64 = 1 << 34;
    const IS_LIMITED: u64 = 1 << 35;

    /// As it is stored.
    pub fn word(self) -> u64 {
        let flags = [
            (self.lacks_others, Self::LACKS_OTHERS),
            (self.lacks_calls, Self::LACKS_CALLS),
            (self.lacks_payloads, Self::LACKS_PAYLOADS),
            (self.is_limited, Self::IS_LIMITED),
        ];
        let set = flags.into_iter().filter(|(is_set, _)| *is_set);
        set.fold(u64::from(self.error), |word, (_, flag)| word | flag)
    }

    /// What a stored word says.
    pub fn from_word(word: u64) -> Option<Self> {
        (word != 0).then_some(Self {
            lacks_calls: word & Self::LACKS_CALLS != 0,
            lacks_payloads: word & Self::LACKS_PAYLOADS != 0,
            lacks_others: word & Self::LACKS_OTHERS != 0,
            is_limited: word & Self::IS_LIMITED != 0,
            error: word as u32,
        })
    }

    /// What is missing with what was missing before; the reason is the first one.
    pub fn after(self, before: Option<Self>) -> Self {
        let Some(before) = before else {
            return self;
        };
        Self {
            lacks_calls: self.lacks_calls | before.lacks_calls,
            lacks_payloads: self.lacks_payloads | before.lacks_payloads,
            lacks_others: self.lacks_others | before.lacks_others,
            ..before
        }
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
        let calls = Incomplete {
            lacks_calls: true,
            error: 28,
            ..Incomplete::default()
        };
        let payloads = Incomplete {
            lacks_payloads: true,
            is_limited: true,
            ..Incomplete::default()
        };
        let others = Incomplete {
            lacks_others: true,
            error: u32::MAX,
            ..Incomplete::default()
        };
        for incomplete in [calls, payloads, others] {
            assert_eq!(Incomplete::from_word(incomplete.word()), Some(incomplete));
            assert_eq!(incomplete.after(None), incomplete);
        }
        let both = calls.after(Some(payloads));
        assert!(both.lacks_calls && both.lacks_payloads && both.is_limited && both.error == 0);
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
