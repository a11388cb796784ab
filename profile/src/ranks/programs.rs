//! Built ranks whose waits and critical path are known.

use crate::path::Link;
use crate::ranks::record::{Collective, RankProfile, RanksSummary};
use crate::record::{HostCall, Work};
use crate::summary::Summary;
use crate::test_profile::{host, kernel, profile};

const REDUCE: &str = "AllReduce";

/// A rank: what ran, its calls, which of them are waits; the distance of its axis.
fn rank(label: &str, work: Vec<Work>, calls: Vec<HostCall>, offset_ns: u64) -> RankProfile {
    let profile = profile(work, calls, &[9]);
    RankProfile {
        label: label.into(),
        rank: None,
        offset_ns,
        summary: Summary::of(&profile),
        profile,
    }
}

fn collective(calls: &[u64]) -> Collective {
    Collective {
        kernel: REDUCE.into(),
        launches: calls.iter().copied().enumerate().collect(),
    }
}

/// A part of the path: rank, what, its name, its time.
type Part = (usize, Link, &'static str, u64);

fn assert_path(summary: &RanksSummary, expected: &[Part]) {
    let ranks = summary.ranks.iter().enumerate();
    let mut parts: Vec<_> = ranks
        .flat_map(|(rank, row)| {
            let shares = row.critical_path.shares.iter();
            shares.map(move |share| (rank, share.link, &*share.name, share.total_ns))
        })
        .collect();
    parts.sort_unstable();
    let mut expected = expected.to_vec();
    expected.sort_unstable();
    assert_eq!(parts, expected);
    let sum: u64 = parts.iter().map(|part| part.3).sum();
    assert_eq!(sum, summary.wall_ns);
    let by_range: u64 = summary.ranges.iter().map(|row| row.total_ns).sum();
    assert_eq!(by_range, summary.wall_ns);
}

fn rows(summary: &RanksSummary) -> Vec<(u64, u64, u64, u64, u64)> {
    let rows = summary.ranks.iter();
    rows.map(|row| {
        (
            row.exchanges,
            row.last_in,
            row.waited_ns,
            row.awaited_ns,
            row.slack_ns,
        )
    })
    .collect()
}

/// Both launch at once and wait for all; the work of rank 1 takes twice as long.
#[test]
fn one_rank_is_slower() {
    let launches = || vec![host(1, 0, 5), host(2, 5, 10)];
    let calls = |end| [launches(), vec![host(9, 10, end)]].concat();
    let ranks = [
        rank(
            "rank 0",
            vec![kernel("a", 1, 5, 100), kernel(REDUCE, 2, 100, 210)],
            calls(215),
            0,
        ),
        rank(
            "rank 1",
            vec![kernel("b", 1, 5, 200), kernel(REDUCE, 2, 200, 210)],
            calls(220),
            0,
        ),
    ];
    let summary = RanksSummary::of(&ranks, &[collective(&[2, 2])]);
    assert_eq!(rows(&summary), [(1, 0, 100, 0, 105), (1, 1, 0, 100, 0)]);
    let [exchange] = &summary.exchanges[..] else {
        unreachable!()
    };
    assert_eq!(
        (exchange.last, exchange.begin_ns, exchange.end_ns),
        (1, 200, 210)
    );
    assert_path(
        &summary,
        &[
            (1, Link::Return, "cuCtxSynchronize", 10),
            (1, Link::Kernel, REDUCE, 10),
            (1, Link::Kernel, "b", 195),
            (1, Link::Latency, "b", 5),
        ],
    );
    let text = summary.text("ranks");
    for expected in [
        "ranks: GPU times of 2 ranks, replayed together in 220 ns\n",
        "rank 0                1        0     100 ns       0 ns     105 ns    0.0 %    0.0 %\n",
        "rank 1                1        1       0 ns     100 ns       0 ns  100.0 %   93.2 %\n",
        "  1 x AllReduce: 100 ns; the longest 100 ns: rank 0, call 2, for rank 1\n",
        "88.6 %     195 ns       1  rank 1   kernel   b at call 1\n",
    ] {
        assert!(text.contains(expected), "{expected:?} is not in:\n{text}");
    }
}

/// Rank 1 is slower in the first step, rank 0 in the second. The axis of rank 1 begins 1000 ns
/// later, so that its times are that much smaller.
#[test]
fn ranks_are_slower_in_turn() {
    let calls = |offset: u64, end: u64| {
        let at = |time: u64| time - offset;
        vec![
            host(1, at(1000), at(1001)),
            host(2, at(1001), at(1002)),
            host(3, at(1002), at(1003)),
            host(4, at(1003), at(1004)),
            host(9, at(1004), at(end)),
        ]
    };
    let at = |offset: u64, name: &str, call, begin: u64, end: u64| {
        kernel(name, call, begin - offset, end - offset)
    };
    let first = vec![
        at(0, "a", 1, 1010, 1100),
        at(0, REDUCE, 2, 1100, 1310),
        at(0, "slow", 3, 1310, 1600),
        at(0, REDUCE, 4, 1600, 1620),
    ];
    let second = vec![
        at(1000, "slow", 1, 1010, 1300),
        at(1000, REDUCE, 2, 1300, 1310),
        at(1000, "b", 3, 1310, 1400),
        at(1000, REDUCE, 4, 1400, 1620),
    ];
    let mut ranks = [
        rank("rank 0", first, calls(0, 1630), 0),
        rank("rank 1", second, calls(1000, 1640), 1000),
    ];
    for one in &mut ranks {
        for (call, range) in [(1, "one"), (2, "one"), (3, "two"), (4, "two")] {
            one.profile.calls.get_mut(&call).unwrap().range = Some(range.into());
        }
    }
    let collectives = [
        collective(&[2, 2]),
        collective(&[4, 4]),
        collective(&[7, 7]),
    ];
    let summary = RanksSummary::of(&ranks, &collectives);
    assert_eq!(summary.not_measured, 1);
    assert_eq!(
        rows(&summary),
        [(2, 1, 200, 200, 210), (2, 1, 200, 200, 200)]
    );
    assert_path(
        &summary,
        &[
            (1, Link::Return, "cuCtxSynchronize", 20),
            (1, Link::Kernel, REDUCE, 20),
            (0, Link::Kernel, "slow", 290),
            (0, Link::Kernel, REDUCE, 10),
            (1, Link::Kernel, "slow", 290),
            (1, Link::Latency, "slow", 10),
        ],
    );
    let ranges: Vec<_> = summary
        .ranges
        .iter()
        .map(|row| (row.range.as_deref(), row.total_ns, row.bound_by))
        .collect();
    assert_eq!(
        ranges,
        [(Some("one"), 310, 1), (Some("two"), 310, 0), (None, 20, 1)]
    );
}

/// Ranks that exchange nothing: the path is that of the one that ends last.
#[test]
fn without_collectives() {
    let ranks = [
        rank(
            "rank 0",
            vec![kernel("a", 1, 5, 50)],
            vec![host(1, 0, 5)],
            0,
        ),
        rank(
            "rank 1",
            vec![kernel("b", 1, 5, 30)],
            vec![host(1, 0, 5)],
            100,
        ),
        rank("empty", Vec::new(), Vec::new(), 0),
    ];
    let summary = RanksSummary::of(&ranks, &[]);
    assert_eq!(summary.wall_ns, 130);
    let slack: Vec<u64> = summary.ranks.iter().map(|row| row.slack_ns).collect();
    assert_eq!(slack, [80, 0, 130]);
    let on_path: Vec<usize> = summary
        .ranks
        .iter()
        .map(|row| row.critical_path.shares.len())
        .collect();
    assert_eq!(on_path, [0, 2, 0]);
    assert!(
        summary
            .text("x")
            .contains("no collective of several ranks was found")
    );
    let nothing = RanksSummary::of(&[], &[collective(&[1, 2])]);
    assert_eq!((nothing.wall_ns, nothing.not_measured), (0, 1));
}
