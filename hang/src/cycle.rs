//! Circles of waits.

use std::collections::{BTreeMap, BTreeSet};

/// A circle in a graph that says who waits for whom; `None` if there is none.
pub(crate) fn find(waits: &BTreeMap<u32, Vec<u32>>) -> Option<Vec<u32>> {
    // From these, no path leads to a circle.
    let mut left: BTreeSet<u32> = BTreeSet::new();
    for &start in waits.keys() {
        // Without recursion: a path may be as long as there are streams.
        let mut path = vec![start];
        let mut places = BTreeMap::from([(start, 0)]);
        let mut next = vec![0];
        while let (Some(&last), Some(at)) = (path.last(), next.last_mut()) {
            let following = waits.get(&last).and_then(|others| others.get(*at));
            *at += 1;
            match following {
                Some(following) if left.contains(following) => {}
                Some(following) => {
                    if let Some(&place) = places.get(following) {
                        return Some(path.split_off(place));
                    }
                    places.insert(*following, path.len());
                    path.push(*following);
                    next.push(0);
                }
                None => {
                    places.remove(&last);
                    left.insert(last);
                    path.pop();
                    next.pop();
                }
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn circles_are_found() {
        type Edges<'e> = &'e [(u32, &'e [u32])];
        let cases: &[(Edges<'_>, Option<&[u32]>)] = &[
            (&[(1, &[2]), (2, &[3])], None),
            (&[(1, &[2]), (2, &[1])], Some(&[1, 2])),
            (&[(1, &[2]), (2, &[3]), (3, &[2])], Some(&[2, 3])),
            (
                &[(1, &[2, 3]), (2, &[]), (3, &[4]), (4, &[1])],
                Some(&[1, 3, 4]),
            ),
            (&[(1, &[1])], Some(&[1])),
            (&[(1, &[3]), (2, &[3]), (3, &[])], None),
        ];
        for (edges, expected) in cases {
            let waits = edges
                .iter()
                .map(|(from, to)| (*from, to.to_vec()))
                .collect();
            assert_eq!(find(&waits).as_deref(), *expected, "{edges:?}");
        }
    }

    #[test]
    fn paths_may_be_long() {
        const LAST: u32 = 200_000;
        let mut waits: BTreeMap<u32, Vec<u32>> =
            (0..LAST).map(|from| (from, vec![from + 1])).collect();
        assert_eq!(find(&waits), None);
        waits.insert(LAST, vec![LAST - 1]);
        assert_eq!(find(&waits), Some(vec![LAST - 1, LAST]));
    }
}
