//! What an attempt to have the driver place memory teaches the next.

use serde::{Deserialize, Serialize};

use crate::place::slots::SLOT;

/// Memory that the driver put elsewhere than in the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Misplaced {
    /// Index of the call that returned it.
    pub call: u64,
    /// Its recorded address.
    pub recorded: u64,
    /// Its address here.
    pub here: u64,
    /// Index of the call after the last one whose memory the driver placed as in the recording.
    pub since: u64,
}

/// What one attempt taught: before a call, nothing may be free above an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lesson {
    /// Index of the call.
    pub call: u64,
    /// The address.
    pub above: u64,
}

impl Lesson {
    /// What to do in the next attempt; `None` if nothing is known to help. `known` are the lessons
    /// of the attempts before.
    pub(crate) fn of(misplaced: Misplaced, known: &[Lesson]) -> Option<Self> {
        let Misplaced {
            call,
            recorded,
            here,
            since,
        } = misplaced;
        let block = recorded / SLOT * SLOT;
        let taught = known
            .iter()
            .rfind(|lesson| (since..=call).contains(&lesson.call));
        match taught {
            None if here > recorded => Some(Self {
                call,
                above: block.saturating_add(SLOT),
            }),
            // The driver had reserved that place before the call.
            Some(&lesson) if here > recorded && lesson.call > since => Some(Self {
                call: since,
                ..lesson
            }),
            // The driver asks for more than it keeps, to align it: leave room for that.
            Some(&lesson) if here < recorded && lesson.above < block.saturating_add(4 * SLOT) => {
                Some(Self {
                    above: lesson.above.saturating_add(SLOT),
                    ..lesson
                })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_teaches_the_next() {
        let recorded = 0x7f12_0200_0000 + 0x1000;
        let misplaced = |here| Misplaced {
            call: 7,
            recorded,
            here,
            since: 5,
        };
        let first = Lesson::of(misplaced(recorded + 3 * SLOT), &[]).unwrap();
        let above = recorded / SLOT * SLOT + SLOT;
        assert_eq!(first, Lesson { call: 7, above });
        let second = Lesson::of(misplaced(recorded - SLOT), &[first]).unwrap();
        assert_eq!(second.above, above + SLOT);
        let earlier = Lesson::of(misplaced(recorded + SLOT), &[first]).unwrap();
        assert_eq!(earlier, Lesson { call: 5, above });
        assert_eq!(
            Lesson::of(misplaced(recorded + SLOT), &[first, earlier]),
            None
        );
        assert_eq!(Lesson::of(misplaced(recorded - SLOT), &[]), None);
    }
}
