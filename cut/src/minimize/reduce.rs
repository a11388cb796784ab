//! Delta debugging over calls: leaves out as many as possible while the rest still shows something.
//!
//! This is ddmin by complements (Zeller and Hildebrandt, "Simplifying and Isolating
//! Failure-Inducing Input", 2002), where a call is left out together with the calls that cannot be
//! made without it. Crates for ddmin know no such dependencies.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use cutape_model::{Need, Needs};

/// What a test says of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It still shows it.
    Shows,
    /// It does not.
    DoesNot,
    /// Nobody wants to know any more: the time is over.
    Stop,
}

/// How a reduction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// No single call, with those that need it, can be left out.
    Minimal,
    /// The part has become small enough to be written and read as a trace of its own, which makes
    /// further tests faster.
    Small,
    /// A test said so.
    Stopped,
}

/// Leaves calls out of a part while `test` says that it still shows something.
///
/// `hard` says which needs a call cannot be left without. The reduction ends early when no more
/// than `small` calls are left.
///
/// # Errors
/// Those of `test`.
pub(super) fn reduce<E>(
    needs: &Needs,
    part: &mut Vec<bool>,
    hard: impl Fn(Need) -> bool,
    small: u64,
    mut test: impl FnMut(&[bool]) -> Result<Verdict, E>,
) -> Result<Ended, E> {
    let users = users(needs, part, hard);
    let mut seen: HashSet<u64> = HashSet::from([digest(part)]);
    let mut size = (count(part) / 2).max(1);
    loop {
        let mut has_changed = false;
        // The last calls first: fewer need them.
        let calls: Vec<u64> = indices(part).rev().collect();
        for chunk in calls.chunks(size as usize) {
            let candidate = without(part, chunk, &users);
            // A trace without calls shows nothing.
            let is_empty = count(&candidate) == 0;
            if is_empty || candidate == *part || !seen.insert(digest(&candidate)) {
                continue;
            }
            match test(&candidate)? {
                Verdict::Stop => return Ok(Ended::Stopped),
                Verdict::DoesNot => {}
                Verdict::Shows => {
                    *part = candidate;
                    has_changed = true;
                    if count(part) <= small {
                        return Ok(Ended::Small);
                    }
                }
            }
        }
        size = match (size, has_changed) {
            (1, false) => return Ok(Ended::Minimal),
            (_, true) => size.min(count(part) / 2).max(1),
            (_, false) => size / 2,
        };
    }
}

fn count(part: &[bool]) -> u64 {
    part.iter().filter(|&&is_in| is_in).count() as u64
}

fn indices(part: &[bool]) -> impl DoubleEndedIterator<Item = u64> + '_ {
    let calls = part.iter().enumerate();
    calls
        .filter(|(_, is_in)| **is_in)
        .map(|(index, _)| index as u64)
}

fn digest(part: &[bool]) -> u64 {
    let mut hasher = DefaultHasher::new();
    part.hash(&mut hasher);
    hasher.finish()
}

/// For each call, those of the part that cannot be made without it.
fn users(needs: &Needs, part: &[bool], hard: impl Fn(Need) -> bool) -> Vec<Vec<u32>> {
    let mut users = vec![Vec::new(); part.len()];
    for call in indices(part) {
        for (needed, need) in needs.of(call) {
            if need != Need::Completion
                && hard(need)
                && let Some(users) = users.get_mut(needed as usize)
            {
                users.push(call as u32);
            }
        }
    }
    users
}

/// The part without these calls, and without those that cannot be made without them.
fn without(part: &[bool], calls: &[u64], users: &[Vec<u32>]) -> Vec<bool> {
    let mut left = part.to_vec();
    let mut open: Vec<u64> = calls.to_vec();
    while let Some(call) = open.pop() {
        if let Some(is_in) = left.get_mut(call as usize)
            && std::mem::take(is_in)
        {
            let users = users.get(call as usize).map_or(&[][..], Vec::as_slice);
            open.extend(users.iter().map(|&user| u64::from(user)));
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    /// Call 10 n creates an object that the next nine calls use.
    fn groups(count: u32) -> Needs {
        let existence = |call: u32| (call / 10 * 10, Need::Existence);
        let needs = (0..count).map(|call| match call % 10 {
            0 => vec![],
            _ => vec![existence(call)],
        });
        Needs::of_lists(needs)
    }

    #[test]
    fn what_is_left_shows_it_and_can_be_made() {
        let needs = groups(1000);
        for wanted in [&[777][..], &[0], &[990, 999], &[15, 16, 905], &[]] {
            let mut part = vec![true; 1000];
            let mut tests = 0;
            let ended = reduce(
                &needs,
                &mut part,
                |need| need == Need::Existence,
                0,
                |part| {
                    tests += 1;
                    let shows = wanted.iter().all(|&call: &usize| part[call]);
                    Ok::<_, Infallible>(match shows {
                        true => Verdict::Shows,
                        false => Verdict::DoesNot,
                    })
                },
            );
            let mut expected: Vec<u64> = wanted.iter().map(|&call| call as u64).collect();
            expected.extend(wanted.iter().map(|&call| call as u64 / 10 * 10));
            expected.sort_unstable();
            expected.dedup();
            assert_eq!(ended, Ok(Ended::Minimal));
            if wanted.is_empty() {
                assert_eq!(count(&part), 1, "not none");
                continue;
            }
            assert_eq!(indices(&part).collect::<Vec<_>>(), expected);
            assert!(tests < 120, "{wanted:?}: {tests} tests");
        }
    }

    #[test]
    fn it_ends_when_it_is_told_to() {
        let needs = groups(100);
        let mut part = vec![true; 100];
        let stop = |_: &[bool]| Ok::<_, Infallible>(Verdict::Stop);
        assert_eq!(
            reduce(&needs, &mut part, |_| true, 0, stop),
            Ok(Ended::Stopped)
        );
        assert_eq!(count(&part), 100);
        let shows = |_: &[bool]| Ok::<_, Infallible>(Verdict::Shows);
        assert_eq!(
            reduce(&needs, &mut part, |_| true, 50, shows),
            Ok(Ended::Small)
        );
        assert_eq!(count(&part), 50);
    }
}
