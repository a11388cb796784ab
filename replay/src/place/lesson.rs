//! What an attempt to have the driver place memory teaches the next.

use serde::{Deserialize, Serialize};

use crate::place::slots::SLOT;

/// Memory that the driver put elsewhere than in the recording.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Misplaced {
    /// Index of the call that returned it.
    pub call: u64,
    /// Its recorded address.
    pub recorded: u64,
    /// Its address here.
    pub here: u64,
    /// Index of the call after the last one whose memory the driver placed as in the recording.
    pub since: u64,
    /// Memory of the program (start, end) for which this process had no room: arenas of its threads,
    /// and what it registers.
    #[serde(default)]
    pub missing: Vec<(u64, u64)>,
    /// Index of the call before which it may first have been mapped; 0: from the start.
    #[serde(default)]
    pub missing_since: u64,
}

/// What one attempt taught: what the address space has to be like before a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lesson {
    /// Index of the call; 0: from the start.
    pub call: u64,
    /// Nothing may be free above this address.
    pub above: Option<u64>,
    /// These ranges (start, end) must not be free.
    #[serde(default)]
    pub filled: Vec<(u64, u64)>,
}

impl Lesson {
    /// What to do in the next attempt; `None` if nothing is known to help. `known` are the lessons
    /// of the attempts before.
    pub(crate) fn of(misplaced: &Misplaced, known: &[Lesson]) -> Option<Self> {
        let &Misplaced {
            call,
            recorded,
            here,
            since,
            ref missing,
            missing_since,
        } = misplaced;
        let is_known = |range| known.iter().any(|lesson| lesson.filled.contains(range));
        if !missing.iter().all(is_known) {
            return Some(Self {
                call: missing_since,
                above: None,
                filled: missing.clone(),
            });
        }
        let block = recorded / SLOT * SLOT;
        // Other memory may have been placed there later in the recording.
        let taken = here / SLOT * SLOT;
        let taken = (taken, taken.saturating_add(SLOT));
        let above = |call, above| Self {
            call,
            above: Some(above),
            filled: if here > recorded {
                vec![taken]
            } else {
                Vec::new()
            },
        };
        let taught = known
            .iter()
            .filter_map(|lesson| Some((lesson.call, lesson.above?)))
            .rfind(|lesson| (since..=call).contains(&lesson.0));
        match taught {
            None if here > recorded => Some(above(call, block.saturating_add(SLOT))),
            // The driver had reserved that place before the call.
            Some((at, address)) if here > recorded && at > since => Some(above(since, address)),
            // The driver asks for more than it keeps, to align it: leave room for that.
            Some((at, address)) if here < recorded && address < block.saturating_add(4 * SLOT) => {
                Some(above(at, address.saturating_add(SLOT)))
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
            ..Misplaced::default()
        };
        let lesson = |call, above, filled: &[(u64, u64)]| Lesson {
            call,
            above: Some(above),
            filled: filled.to_vec(),
        };
        let of = |here, known: &[Lesson]| Lesson::of(&misplaced(here), known);
        let higher = recorded + SLOT;
        let above = recorded / SLOT * SLOT + SLOT;
        let slots = [1, 3].map(|count| above + (count - 1) * SLOT);
        let taken = slots.map(|start| (start, start + SLOT));
        let first = of(recorded + 3 * SLOT, &[]).unwrap();
        assert_eq!(first, lesson(7, above, &taken[1..]));
        let second = of(recorded - SLOT, std::slice::from_ref(&first)).unwrap();
        assert_eq!(second, lesson(7, above + SLOT, &[]));
        let earlier = of(higher, std::slice::from_ref(&first)).unwrap();
        assert_eq!(earlier, lesson(5, above, &taken[..1]));
        assert_eq!(of(higher, &[first, earlier]), None);
        assert_eq!(of(recorded - SLOT, &[]), None);
        let arena = (0x7f12_0400_0000, 0x7f12_0800_0000);
        let with_arena = Misplaced {
            missing: vec![arena],
            missing_since: 3,
            ..misplaced(higher)
        };
        let filled = Lesson::of(&with_arena, &[]).unwrap();
        let expected = Lesson {
            call: 3,
            above: None,
            filled: vec![arena],
        };
        assert_eq!(filled, expected);
        let after = Lesson::of(&with_arena, &[filled]);
        assert_eq!(after, Some(lesson(7, above, &taken[..1])), "taught already");
    }
}
