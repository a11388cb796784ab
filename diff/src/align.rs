//! Aligns two sequences of calls: first calls that are equal in everything, between them calls that
//! ask for the same, then calls of the same name, then of the same function.

use std::ops::Range;

use imara_diff::{Algorithm, Diff, InternedInput};

/// Calls that correspond, or that only one side has. Positions count the compared calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Run {
    /// That many calls of A from the first position, and of B from the second.
    Both(u32, u32, u32),
    /// Of A only: first position, and where in B they are missing.
    OnlyA(u32, u32, u32),
    /// Of B only: where in A they are missing, and the first position.
    OnlyB(u32, u32, u32),
}

/// What a side compares at a level, the most exact first: a hash of a call by position.
pub(crate) type Tokens<'s> = &'s dyn Fn(usize, u32) -> u64;

/// The level at which calls are equal in everything.
pub(crate) const EQUAL: Range<usize> = 0..1;
/// The further levels.
pub(crate) const SIMILAR: Range<usize> = 1..4;

/// The histogram algorithm finds what a person would, but its time grows with the square of the
/// calls where many short runs are equal; Myers' with its heuristics is nearly linear. Comparing a
/// million calls with a million of which every fourth differs took more than 5 minutes with the
/// one, and 9 s with the other (2026-11-22, two cores).
const LARGEST_HISTOGRAM: usize = 20_000;

/// Aligns so many calls of two threads at these levels.
pub(crate) fn align(levels: Range<usize>, a: (u32, Tokens<'_>), b: (u32, Tokens<'_>)) -> Vec<Run> {
    let mut runs = Vec::new();
    Aligner {
        a: a.1,
        b: b.1,
        last: levels.end,
        runs: &mut runs,
    }
    .align(levels.start, 0..a.0, 0..b.0);
    runs
}

/// Aligns the calls between equal ones at the further levels, without those that `is_moved` says
/// other threads make: side, position.
pub(crate) fn refine(
    runs: &[Run],
    a: Tokens<'_>,
    b: Tokens<'_>,
    is_moved: &dyn Fn(usize, u32) -> bool,
) -> Vec<Run> {
    let mut refined = Vec::new();
    let mut rest = runs.iter().peekable();
    while let Some(&run) = rest.next() {
        let (in_a, in_b) = match run {
            Run::Both(..) => {
                refined.push(run);
                continue;
            }
            Run::OnlyA(from, other, length) => match rest.peek() {
                Some(&&Run::OnlyB(_, from_b, length_b)) => {
                    rest.next();
                    (from..from + length, from_b..from_b + length_b)
                }
                _ => (from..from + length, other..other),
            },
            Run::OnlyB(other, from, length) => (other..other, from..from + length),
        };
        for at in in_a.clone().filter(|&at| is_moved(0, at)) {
            refined.push(Run::OnlyA(at, in_b.start, 1));
        }
        let left = |side: usize, range: &Range<u32>| -> Vec<u32> {
            range.clone().filter(|&at| !is_moved(side, at)).collect()
        };
        let (left_a, left_b) = (left(0, &in_a), left(1, &in_b));
        let of = |left: &[u32], at: u32, end: u32| left.get(at as usize).copied().unwrap_or(end);
        let place_a = |at| of(&left_a, at, in_a.end);
        let place_b = |at| of(&left_b, at, in_b.end);
        let between = align(
            SIMILAR,
            (left_a.len() as u32, &|level, at| a(level, place_a(at))),
            (left_b.len() as u32, &|level, at| b(level, place_b(at))),
        );
        for run in between {
            match run {
                Run::Both(from_a, from_b, length) => refined.extend(
                    (0..length).map(|at| Run::Both(place_a(from_a + at), place_b(from_b + at), 1)),
                ),
                Run::OnlyA(from, other, length) => refined.extend(
                    (0..length).map(|at| Run::OnlyA(place_a(from + at), place_b(other), 1)),
                ),
                Run::OnlyB(other, from, length) => refined.extend(
                    (0..length).map(|at| Run::OnlyB(place_a(other), place_b(from + at), 1)),
                ),
            }
        }
    }
    refined
}

struct Aligner<'s> {
    a: Tokens<'s>,
    b: Tokens<'s>,
    /// Behind the last level.
    last: usize,
    runs: &'s mut Vec<Run>,
}

impl Aligner<'_> {
    fn align(&mut self, level: usize, mut a: Range<u32>, mut b: Range<u32>) {
        if a.is_empty() || b.is_empty() || level >= self.last {
            return self.unmatched(a, b);
        }
        let start = (a.start, b.start);
        while !a.is_empty() && !b.is_empty() && (self.a)(level, a.start) == (self.b)(level, b.start)
        {
            (a.start, b.start) = (a.start + 1, b.start + 1);
        }
        self.both(start.0, start.1, a.start - start.0);
        let end = a.end;
        while !a.is_empty()
            && !b.is_empty()
            && (self.a)(level, a.end - 1) == (self.b)(level, b.end - 1)
        {
            (a.end, b.end) = (a.end - 1, b.end - 1);
        }
        let suffix = end - a.end;
        if a.is_empty() || b.is_empty() {
            self.unmatched(a.clone(), b.clone());
        } else {
            self.middle(level, a.clone(), b.clone());
        }
        self.both(a.end, b.end, suffix);
    }

    /// Aligns what begins and ends with calls that differ.
    fn middle(&mut self, level: usize, a: Range<u32>, b: Range<u32>) {
        let mut input = InternedInput::default();
        input.update_before(a.clone().map(|position| (self.a)(level, position)));
        input.update_after(b.clone().map(|position| (self.b)(level, position)));
        let algorithm = match a.len().max(b.len()) > LARGEST_HISTOGRAM {
            true => Algorithm::Myers,
            false => Algorithm::Histogram,
        };
        let mut diff = Diff::compute(algorithm, &input);
        diff.postprocess_no_heuristic(&input);
        let (mut at_a, mut at_b) = (0, 0);
        for hunk in diff.hunks() {
            self.both(a.start + at_a, b.start + at_b, hunk.before.start - at_a);
            let before = a.start + hunk.before.start..a.start + hunk.before.end;
            let after = b.start + hunk.after.start..b.start + hunk.after.end;
            self.align(level + 1, before, after);
            (at_a, at_b) = (hunk.before.end, hunk.after.end);
        }
        self.both(a.start + at_a, b.start + at_b, a.end - a.start - at_a);
    }

    fn both(&mut self, a: u32, b: u32, length: u32) {
        if length > 0 {
            self.runs.push(Run::Both(a, b, length));
        }
    }

    fn unmatched(&mut self, a: Range<u32>, b: Range<u32>) {
        if !a.is_empty() {
            self.runs
                .push(Run::OnlyA(a.start, b.start, a.end - a.start));
        }
        if !b.is_empty() {
            self.runs.push(Run::OnlyB(a.end, b.start, b.end - b.start));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each call is two letters: its function, and the rest.
    fn runs(a: &str, b: &str) -> Vec<Run> {
        let calls = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let (a, b) = (calls(a), calls(b));
        let token = |calls: &[String], level: usize, at: u32| {
            let call = calls[at as usize].as_bytes();
            u64::from(call[0]) << 8 | if level < 3 { u64::from(call[1]) } else { 0 }
        };
        align(
            EQUAL.start..SIMILAR.end,
            (a.len() as u32, &|level, at| token(&a, level, at)),
            (b.len() as u32, &|level, at| token(&b, level, at)),
        )
    }

    #[test]
    fn sequences() {
        use Run::{Both, OnlyA, OnlyB};
        for (a, b, expected) in [
            ("a1 b1 c1", "a1 b1 c1", vec![Both(0, 0, 3)]),
            (
                "a1 b1 c1",
                "a1 b2 c1",
                vec![Both(0, 0, 1), Both(1, 1, 1), Both(2, 2, 1)],
            ),
            (
                "a1 b1 c1",
                "a1 c1",
                vec![Both(0, 0, 1), OnlyA(1, 1, 1), Both(2, 1, 1)],
            ),
            (
                "a1 c1",
                "a1 b1 c1",
                vec![Both(0, 0, 1), OnlyB(1, 1, 1), Both(1, 2, 1)],
            ),
            (
                "a1 b1 c1",
                "a1 d1 c1",
                vec![Both(0, 0, 1), OnlyA(1, 1, 1), OnlyB(2, 1, 1), Both(2, 2, 1)],
            ),
            // The first of a loop is missing, not the last.
            (
                "a1 a2 a3 a4",
                "a2 a3 a4",
                vec![OnlyA(0, 0, 1), Both(1, 0, 3)],
            ),
            // Everything differs in the same way.
            ("a1 b1 a1 b1", "a2 b2 a2 b2", vec![Both(0, 0, 4)]),
        ] {
            assert_eq!(runs(a, b), expected, "{a} | {b}");
        }
    }
}
