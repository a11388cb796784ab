//! Which bytes a call or a node has changed, where a replay has shown the pages: another replay reads
//! these pages before and after.

use cutape_replay::{Change, EXACT, Observation, Observed, WatchedRange};

/// How many bytes of pages are read, unless a user says otherwise: all of it is in memory at once.
pub const BUDGET: u64 = 256 << 20;

/// What shows the bytes of the pages in these changes, each of the range at an address; `None` if they
/// are known. Pages beyond `budget` bytes are left.
pub fn exact_observation(changes: &[(u64, &Change)], budget: u64) -> Option<Observation> {
    let in_pages = changes.iter().filter(|(_, change)| change.in_pages);
    let calls = in_pages
        .clone()
        .flat_map(|(_, change)| [change.since, change.call]);
    let (first, last) = (calls.clone().min()?, calls.max()?);
    let mut left = budget;
    let mut watched: Vec<WatchedRange> = Vec::new();
    let parts = in_pages.flat_map(|&(address, change)| {
        chunks(&change.parts).map(move |(at, length)| (address + at, length))
    });
    for (address, length) in parts {
        let range = WatchedRange {
            address,
            length,
            until: Some((last + 1, 0)),
        };
        if length <= left && !watched.contains(&range) {
            left -= length;
            watched.push(range);
        }
    }
    (!watched.is_empty()).then(|| Observation {
        watched,
        most_changes: changes.len(),
        first_changes: Some(first),
        until: Some(last + 1),
        ..Observation::default()
    })
}

/// Parts that a replay reads as a whole, as offset and length.
fn chunks(parts: &[(u64, u64)]) -> impl Iterator<Item = (u64, u64)> {
    parts.iter().flat_map(|&(at, length)| {
        let offsets = (0..length).step_by(EXACT as usize);
        offsets.map(move |offset| (at + offset, (length - offset).min(EXACT)))
    })
}

/// Adds a part, offset and length, after all others, and joins it to one that it follows.
pub(crate) fn add_part(parts: &mut Vec<(u64, u64)>, (at, length): (u64, u64)) {
    match parts.last_mut() {
        Some((start, known)) if *start + *known == at => *known += length,
        _ => parts.push((at, length)),
    }
}

/// Replaces the pages of a change by the bytes that were seen to change. What was not read, or did
/// not change again, stays.
pub fn set_exact(address: u64, change: &mut Change, observed: &Observed) {
    if !change.in_pages {
        return;
    }
    let (mut parts, mut first, mut is_exact) = (Vec::new(), None, true);
    for (at, length) in chunks(&change.parts) {
        let range = (address + at, length);
        let mut seen = observed.watched.iter();
        let seen = seen.find(|seen| (seen.range.address, seen.range.length) == range);
        let is_same = |found: &&Change| found.call == change.call && found.by == change.by;
        match seen.and_then(|seen| seen.last.iter().find(is_same)) {
            Some(found) => {
                first = first.or(Some((at, found)));
                for part in &found.parts {
                    add_part(&mut parts, (at + part.0, part.1));
                }
            }
            None => {
                is_exact = false;
                add_part(&mut parts, (at, length));
            }
        }
    }
    if let Some((at, found)) = first {
        change.at = at + found.at;
        change.before.clone_from(&found.before);
        change.after.clone_from(&found.after);
    }
    (change.parts, change.in_pages) = (parts, !is_exact);
}

#[cfg(test)]
mod tests {
    use cutape_replay::{Seen, Writer};

    use super::*;

    const PAGE: u64 = 16 << 10;

    fn change(call: u64, parts: &[(u64, u64)], in_pages: bool) -> Change {
        Change {
            call,
            since: call,
            parts: parts.to_vec(),
            in_pages,
            ..Change::default()
        }
    }

    #[test]
    fn pages_are_read_up_to_a_budget() {
        let known = change(3, &[(0, 4)], false);
        assert!(exact_observation(&[(0x10_0000, &known)], 1 << 20).is_none());
        let five = change(5, &[(PAGE, 5 * PAGE), (9 * PAGE, PAGE)], true);
        let again = change(7, &[(9 * PAGE, PAGE)], true);
        for (budget, expected) in [
            (1 << 20, &[(1, 4), (5, 1), (9, 1)][..]),
            (5 * PAGE, &[(1, 4), (5, 1)]),
            (2 * PAGE, &[(5, 1), (9, 1)]),
            (0, &[]),
        ] {
            let changes = [&known, &five, &again].map(|change| (0x10_0000, change));
            let asked = exact_observation(&changes, budget);
            let watched = asked.iter().flat_map(|asked| &asked.watched);
            let pages = watched.map(|range| {
                let (at, length) = (range.address - 0x10_0000, range.length);
                (at / PAGE, length / PAGE)
            });
            assert_eq!(pages.collect::<Vec<_>>(), expected, "{budget}");
            let calls = asked.map(|asked| (asked.first_changes, asked.until));
            let wanted = (budget > 0).then_some((Some(5), Some(8)));
            assert_eq!(calls, wanted);
        }
    }

    #[test]
    fn pages_become_bytes_where_they_were_read() {
        let seen = |at: u64, change: Change| Seen {
            range: WatchedRange {
                address: 0x10_0000 + at,
                length: PAGE,
                until: None,
            },
            last: [change].into(),
            ..Seen::default()
        };
        let found = Change {
            before: vec![1],
            after: vec![2],
            at: 8,
            ..change(5, &[(8, 1), (12, 2)], false)
        };
        let elsewhere = Change {
            by: Writer::Host,
            ..found.clone()
        };
        let observed = Observed {
            watched: vec![seen(PAGE, found), seen(9 * PAGE, elsewhere)],
            ..Observed::default()
        };
        let mut one = change(5, &[(PAGE, PAGE)], true);
        set_exact(0x10_0000, &mut one, &observed);
        assert_eq!(one.parts, [(PAGE + 8, 1), (PAGE + 12, 2)]);
        let shown = (one.at, &one.before[..], &one.after[..], one.in_pages);
        assert_eq!(shown, (PAGE + 8, &[1][..], &[2][..], false));
        // The other page was changed by something else, or not read.
        let mut two = change(
            5,
            &[(PAGE, PAGE), (9 * PAGE, PAGE), (20 * PAGE, PAGE)],
            true,
        );
        set_exact(0x10_0000, &mut two, &observed);
        assert_eq!(two.parts[2..], [(9 * PAGE, PAGE), (20 * PAGE, PAGE)]);
        assert!(two.in_pages);
    }
}
