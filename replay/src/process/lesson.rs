//! What an attempt to have the driver place memory teaches the next.

use serde::{Deserialize, Serialize};

use crate::process::slots::SLOT;

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
    /// Memory of the program (start, end), which it registers, and for which this process had no room.
    #[serde(default)]
    pub missing: Vec<(u64, u64)>,
    /// Index of the call before which its place may first have been taken; 0: from the start.
    #[serde(default)]
    pub missing_since: u64,
}

impl Misplaced {
    /// True for memory of the program, false for what the driver placed.
    pub(crate) fn is_of_program(&self) -> bool {
        let start = |range: &(u64, u64)| range.0;
        self.missing.first().map(start) == Some(self.recorded)
    }
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
        let is_known = |range, until| {
            let known = known.iter().filter(|lesson| lesson.call <= until);
            let mut filled = known.flat_map(|lesson| &lesson.filled);
            filled.any(|known| covers(known, range))
        };
        let fill = |call, until| {
            let is_known = missing.iter().all(|range| is_known(range, until));
            (!is_known).then(|| Self {
                call,
                above: None,
                filled: missing.clone(),
            })
        };
        if let Some(lesson) = fill(missing_since, u64::MAX) {
            return Some(lesson);
        }
        if misplaced.is_of_program() {
            // The place may have been taken before the last memory that lay as in the recording.
            return fill(0, 0);
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

fn covers(range: &(u64, u64), other: &(u64, u64)) -> bool {
    range.0 <= other.0 && other.1 <= range.1
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

    #[test]
    fn the_place_of_program_memory_is_filled_ever_earlier() {
        let (range, other) = (
            (0x7f12_0000_1000, 0x7f12_0090_0000),
            (0x7f11_0000_0000, 0x7f11_0040_0000),
        );
        let misplaced = |since| Misplaced {
            call: 90,
            recorded: range.0,
            here: 0x3000_0000_0000,
            since,
            missing: vec![range, other],
            missing_since: since,
        };
        let mut known = Vec::new();
        for (since, expected) in [(80, Some(80)), (80, Some(0)), (80, None), (85, None)] {
            let lesson = Lesson::of(&misplaced(since), &known);
            let call = lesson.as_ref().map(|lesson| lesson.call);
            assert_eq!(call, expected, "{known:?}");
            known.extend(lesson);
        }
        assert!(known.iter().all(|lesson| lesson.filled == [range, other]));
    }
}
