//! Circles of waits.

use std::collections::BTreeMap;

/// A circle in a graph that says who waits for whom; `None` if there is none.
pub(crate) fn find(waits: &BTreeMap<u32, Vec<u32>>) -> Option<Vec<u32>> {
    waits.keys().find_map(|&start| {
        let mut path = vec![start];
        let mut seen = Vec::new();
        from(start, waits, &mut path, &mut seen).then_some(path)
    })
}

/// Whether a path leads back to its start; it then is the circle.
fn from(
    start: u32,
    waits: &BTreeMap<u32, Vec<u32>>,
    path: &mut Vec<u32>,
    seen: &mut Vec<u32>,
) -> bool {
    let Some(&last) = path.last() else {
        return false;
    };
    for &next in waits.get(&last).into_iter().flatten() {
        if next == start {
            return true;
        }
        if !seen.contains(&next) {
            seen.push(next);
            path.push(next);
            if from(start, waits, path, seen) {
                return true;
            }
            path.pop();
        }
    }
    false
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
        ];
        for (edges, expected) in cases {
            let waits = edges
                .iter()
                .map(|(from, to)| (*from, to.to_vec()))
                .collect();
            assert_eq!(find(&waits).as_deref(), *expected, "{edges:?}");
        }
    }
}
