//! Built programs whose critical path is known.

use super::*;
use crate::record::{HostCall, Work, WorkKind};
use crate::test_profile::{host, kernel, profile};
use crate::timeline::BETWEEN_CALLS;

const LAUNCH: &str = "cuLaunchKernel";
const WAIT: &str = "cuCtxSynchronize";

/// A part of a path: what, its name, its time.
type Part = (Link, &'static str, u64);

fn path(profile: &Profile) -> CriticalPath {
    let path = CriticalPath::of(profile, &profile.runs[0]);
    let sum: u64 = path.shares.iter().map(|share| share.total_ns).sum();
    assert_eq!(sum, path.wall_ns);
    let sum: u64 = path.ranges.iter().map(|range| range.total_ns).sum();
    assert_eq!(sum, path.wall_ns);
    let sum: u64 = path.ranges.iter().map(|range| range.work_ns).sum();
    assert_eq!(sum, path.work_ns);
    path
}

fn assert_path(profile: &Profile, expected: &[Part]) {
    let path = path(profile);
    let shares = path.shares.iter();
    let mut parts: Vec<_> = shares
        .map(|share| (share.link, &*share.name, share.total_ns))
        .collect();
    parts.sort_unstable();
    let mut expected = expected.to_vec();
    expected.sort_unstable();
    assert_eq!(parts, expected);
}

fn on(stream: u32, work: Work) -> Work {
    Work { stream, ..work }
}

fn node(node: u64, work: Work) -> Work {
    Work {
        node: Some(node),
        ..work
    }
}

#[test]
fn one_stream() {
    // Both kernels are enqueued at once; the host waits for the second.
    let calls = vec![host(1, 0, 10), host(2, 12, 20), host(9, 20, 220)];
    let work = vec![kernel("a", 1, 15, 100), kernel("b", 2, 102, 210)];
    let expected = [
        (Link::Kernel, "a", 85),
        (Link::Kernel, "b", 108),
        (Link::Latency, "a", 15),
        (Link::Latency, "b", 2),
        (Link::Return, WAIT, 10),
    ];
    assert_path(&profile(work, calls, &[9]), &expected);
}

#[test]
fn the_host_is_late() {
    let calls: Vec<HostCall> = (1..4)
        .map(|call| host(call, call * 100, call * 100 + 40))
        .collect();
    let work = (1..4).map(|call| kernel("a", call, call * 100 + 30, call * 100 + 60));
    let expected = [
        (Link::Kernel, "a", 30),
        (Link::Latency, "a", 30),
        (Link::Call, LAUNCH, 80),
        (Link::Between, BETWEEN_CALLS, 120),
    ];
    assert_path(&profile(work.collect(), calls, &[]), &expected);
}

/// The kernel of call 3 waits, by an event, for that of call 2 on another stream; whichever of the
/// two before it is slower counts.
#[test]
fn two_streams_joined_by_an_event() {
    let calls = vec![host(1, 0, 1), host(2, 1, 2), host(3, 2, 3), host(9, 3, 130)];
    for (ends, slower) in [
        (
            [40, 90],
            [
                (Link::Kernel, "b", 84),
                (Link::Latency, "b", 5),
                (Link::Latency, "c", 5),
                (Link::Call, LAUNCH, 1),
            ],
        ),
        (
            [93, 90],
            [
                (Link::Kernel, "a", 88),
                (Link::Latency, "a", 5),
                (Link::Latency, "c", 2),
                (Link::Call, LAUNCH, 0),
            ],
        ),
    ] {
        let work = vec![
            kernel("a", 1, 5, ends[0]),
            on(2, kernel("b", 2, 6, ends[1])),
            kernel("c", 3, 95, 120),
        ];
        let mut profile = profile(work, calls.clone(), &[9]);
        profile.calls.get_mut(&3).unwrap().needs = vec![2];
        let mut expected = slower.to_vec();
        expected.retain(|part| part.2 > 0);
        expected.extend([(Link::Kernel, "c", 25), (Link::Return, WAIT, 10)]);
        assert_path(&profile, &expected);
    }
}

/// Each turn: launch, wait, and 20 ns of the host.
#[test]
fn a_wait_in_the_loop() {
    let turns = 0..3;
    let calls = turns.clone().flat_map(|turn| {
        let begin = 100 * turn;
        [
            host(2 * turn, begin, begin + 5),
            host(2 * turn + 1, begin + 5, begin + 80),
        ]
    });
    let work = turns.map(|turn| kernel("a", 2 * turn, 100 * turn + 10, 100 * turn + 70));
    let expected = [
        (Link::Kernel, "a", 180),
        (Link::Latency, "a", 30),
        (Link::Return, WAIT, 30),
        (Link::Between, BETWEEN_CALLS, 40),
    ];
    assert_path(
        &profile(work.collect(), calls.collect(), &[1, 3, 5]),
        &expected,
    );
}

#[test]
fn a_copy_feeds_a_kernel() {
    // The copy is on a stream of its own, and an event puts it before the kernel.
    let copy = Work {
        kind: WorkKind::Copy,
        ..on(2, kernel("host-to-device", 2, 10, 210))
    };
    let calls = vec![host(1, 0, 2), host(2, 2, 4), host(3, 4, 6), host(9, 6, 300)];
    let work = vec![kernel("a", 1, 5, 60), copy, kernel("b", 3, 212, 290)];
    let mut profile = profile(work, calls, &[9]);
    profile.calls.get_mut(&3).unwrap().needs = vec![2];
    let expected = [
        (Link::Copy, "host-to-device", 200),
        (Link::Kernel, "b", 78),
        (Link::Latency, "b", 2),
        (Link::Latency, "host-to-device", 8),
        (Link::Call, LAUNCH, 2),
        (Link::Return, WAIT, 10),
    ];
    assert_path(&profile, &expected);
}

/// a, then b and c beside each other, then d.
#[test]
fn a_graph_with_two_branches() {
    let calls = vec![host(1, 0, 4), host(9, 4, 120)];
    let work = vec![
        node(1, kernel("a", 1, 10, 20)),
        node(2, kernel("b", 1, 22, 40)),
        node(3, on(2, kernel("c", 1, 23, 90))),
        node(4, kernel("d", 1, 91, 115)),
    ];
    let expected = [
        (Link::Kernel, "a", 10),
        (Link::Kernel, "c", 67),
        (Link::Kernel, "d", 24),
        (Link::Latency, "a", 10),
        (Link::Latency, "c", 3),
        (Link::Latency, "d", 1),
        (Link::Return, WAIT, 5),
    ];
    assert_path(&profile(work, calls, &[9]), &expected);
}

/// Between two kernels, the stream calls a function of the host for 500 ns.
#[test]
fn a_function_of_the_host() {
    let calls = vec![
        host(1, 0, 5),
        host(2, 5, 9),
        host(3, 9, 12),
        host(9, 12, 700),
    ];
    let work = vec![kernel("a", 1, 10, 60), kernel("b", 3, 560, 690)];
    let mut profile = profile(work, calls, &[9]);
    profile.calls.get_mut(&2).unwrap().function = "cuLaunchHostFunc".into();
    profile.calls.get_mut(&3).unwrap().host_function = Some(2);
    let expected = [
        (Link::Kernel, "a", 50),
        (Link::Kernel, "b", 130),
        (Link::HostFunction, "cuLaunchHostFunc", 500),
        (Link::Latency, "a", 10),
        (Link::Return, WAIT, 10),
    ];
    assert_path(&profile, &expected);
}

/// Thread 1 launches after thread 0's wait has returned: the path goes through what that waited
/// for, not through the time in which thread 1 did nothing.
#[test]
fn waiting_for_another_thread() {
    let calls = vec![
        host(1, 0, 10),
        host(2, 20, 30),
        host(3, 30, 510),
        host(4, 515, 520),
        host(9, 520, 700),
    ];
    let work = vec![kernel("a", 2, 40, 500), on(2, kernel("b", 4, 530, 690))];
    let mut profile = profile(work, calls, &[3, 9]);
    for call in [1, 4, 9] {
        profile.calls.get_mut(&call).unwrap().thread = 1;
    }
    let expected = [
        (Link::Kernel, "a", 460),
        (Link::Kernel, "b", 160),
        (Link::Latency, "a", 20),
        (Link::Latency, "b", 15),
        (Link::Call, LAUNCH, 10),
        (Link::Return, WAIT, 20),
        (Link::Between, BETWEEN_CALLS, 5 + 10),
    ];
    assert_path(&profile, &expected);
}

/// Thread 0 waits for a long kernel all the time; what thread 1 does is bound by its own calls.
#[test]
fn a_wait_of_another_thread_that_lasts() {
    let calls = vec![
        host(1, 0, 10),
        host(2, 10, 900),
        host(3, 100, 110),
        host(4, 150, 160),
        host(9, 900, 1000),
    ];
    let work = vec![
        kernel("a", 1, 20, 890),
        on(2, kernel("b", 3, 120, 140)),
        on(2, kernel("b", 4, 170, 990)),
    ];
    let mut profile = profile(work, calls, &[2, 9]);
    for call in [3, 4, 9] {
        profile.calls.get_mut(&call).unwrap().thread = 1;
    }
    let expected = [
        (Link::Kernel, "b", 820),
        (Link::Latency, "b", 20),
        (Link::Call, LAUNCH, 10 + 10),
        (Link::Return, WAIT, 10),
        (Link::Between, BETWEEN_CALLS, 40 + 90),
    ];
    assert_path(&profile, &expected);
}

/// The innermost range of the call counts, and what comes before a call is the call's.
#[test]
fn shares_of_ranges() {
    let calls = vec![
        host(1, 0, 10),
        host(2, 12, 20),
        host(9, 20, 220),
        host(10, 250, 260),
    ];
    let work = vec![kernel("a", 1, 15, 100), kernel("b", 2, 102, 210)];
    let mut profile = profile(work, calls, &[9]);
    for (call, range) in [(1, "step/forward"), (2, "step/backward"), (9, "step")] {
        profile.calls.get_mut(&call).unwrap().range = Some(range.to_owned());
    }
    let ranges = path(&profile).ranges;
    let known: Vec<_> = ranges
        .iter()
        .map(|share| (share.range.as_deref(), share.total_ns, share.work_ns))
        .collect();
    let expected = [
        (Some("step/backward"), 110, 108),
        (Some("step/forward"), 100, 85),
        (None, 40, 0),
        (Some("step"), 10, 0),
    ];
    assert_eq!(known, expected);
}

#[test]
fn times_that_are_wrong_end_all_the_same() {
    let calls = vec![host(1, 50, 40), host(2, 40, 90), host(3, 41, 60)];
    let work = vec![
        kernel("a", 1, 70, 60),
        kernel("a", 2, 10, 95),
        kernel("a", 3, 95, 95),
        kernel("a", 3, 95, 95),
    ];
    assert!(!path(&profile(work, calls, &[2])).shares.is_empty());
    let nothing = profile(Vec::new(), Vec::new(), &[]);
    assert!(path(&nothing).shares.is_empty());
}
