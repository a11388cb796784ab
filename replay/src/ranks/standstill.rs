//! Ranks that wait for each other in a circle.
//!
//! The recorded order has no circles, but it is only known as well as the clocks are, and imports
//! may belong to other exports than assumed. Such a circle would last for ever: nobody in it makes
//! progress, and each waits for the next.

use crate::process::position::RankWait;

/// One rank of a circle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) rank: usize,
    /// The call that waits.
    pub(crate) call: u64,
    /// For what.
    pub(crate) wait: RankWait,
}

/// The circle that a rank is in, from the rank on; empty if some rank in the chain does not wait.
pub(crate) fn circle_of(
    rank: usize,
    wait_of: impl Fn(usize) -> Option<(RankWait, u64)>,
) -> Vec<Waiting> {
    let mut chain: Vec<Waiting> = Vec::new();
    let mut at = rank;
    loop {
        if chain.iter().any(|waiting| waiting.rank == at) {
            // A rank that waits for a circle is not in it: those in it end it.
            return if at == rank { chain } else { Vec::new() };
        }
        let Some((wait, call)) = wait_of(at) else {
            return Vec::new();
        };
        chain.push(Waiting {
            rank: at,
            call,
            wait,
        });
        at = wait.rank;
    }
}

/// Which rank of a circle stops waiting: one that waits for the recorded order only, because an
/// import without its export fails.
pub(crate) fn who_gives_up(circle: &[Waiting]) -> Option<usize> {
    let lowest = |is_import| {
        let kind = circle
            .iter()
            .filter(move |waiting| waiting.wait.is_import == is_import);
        kind.map(|waiting| waiting.rank).min()
    };
    lowest(false).or_else(|| lowest(true))
}

/// `rank 0 in call 3 for call 7 of rank 1, rank 1 in call 5 for call 9 of rank 0`.
pub(crate) fn describe(circle: &[Waiting], label: impl Fn(usize) -> String) -> String {
    let words = circle.iter().map(|waiting| {
        let (rank, call) = (label(waiting.rank), waiting.call);
        let what = if waiting.wait.is_import {
            "the export in call"
        } else {
            "call"
        };
        let other = label(waiting.wait.rank);
        format!(
            "{rank} in call {call} for {what} {} of {other}",
            waiting.wait.call
        )
    });
    words.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who waits: (rank, for which rank, whether for an export).
    fn circle(rank: usize, waits: &[(usize, usize, bool)]) -> Vec<Waiting> {
        circle_of(rank, |of| {
            let &(_, other, is_import) = waits.iter().find(|wait| wait.0 == of)?;
            let wait = RankWait {
                rank: other,
                call: 10 + other as u64,
                is_import,
            };
            Some((wait, of as u64))
        })
    }

    #[test]
    fn circles_are_found_and_ended_by_one_rank() {
        type Row = (
            usize,
            &'static [(usize, usize, bool)],
            &'static [usize],
            Option<usize>,
        );
        let rows: [Row; 6] = [
            (0, &[], &[], None),
            (0, &[(0, 1, false)], &[], None),
            (0, &[(0, 1, true), (1, 0, false)], &[0, 1], Some(1)),
            (1, &[(0, 1, true), (1, 0, true)], &[1, 0], Some(0)),
            // Rank 2 waits for a circle that it is not in.
            (2, &[(0, 1, true), (1, 0, true), (2, 0, true)], &[], None),
            (
                2,
                &[(2, 1, false), (1, 0, true), (0, 2, false)],
                &[2, 1, 0],
                Some(0),
            ),
        ];
        for (rank, waits, members, ends) in rows {
            let found = circle(rank, waits);
            let ranks: Vec<usize> = found.iter().map(|waiting| waiting.rank).collect();
            assert_eq!(ranks, members, "{waits:?}");
            assert_eq!(who_gives_up(&found), ends, "{waits:?}");
        }
        let found = circle(0, &[(0, 1, true), (1, 0, false)]);
        assert_eq!(
            describe(&found, |rank| format!("rank {rank}")),
            "rank 0 in call 0 for the export in call 11 of rank 1, \
             rank 1 in call 1 for call 10 of rank 0"
        );
    }
}
