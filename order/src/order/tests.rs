//! Cases of order and completion.

use super::StreamKind::{Blocking, Legacy, NonBlocking};
use super::*;

/// Calls that take no time, one after the other.
#[derive(Default)]
struct Calls {
    order: Order,
    now: Moment,
}

impl Calls {
    fn submit(&mut self, stream: u32) -> Moment {
        self.now += 1;
        assert!(self.order.submit(stream, self.now, self.now));
        self.now
    }

    fn clock(&mut self, stream: u32) -> Clock {
        self.order.clock(stream, self.now)
    }

    fn wait(&mut self, stream: u32, clock: &Clock) {
        self.order.wait(stream, clock, (self.now, self.now));
    }

    fn complete_stream(&mut self, stream: u32) {
        self.order.complete_stream(stream, self.now);
    }
}

/// Work of a blocking stream is before that of another once the legacy default stream has had some in
/// between; what comes next there says nothing new.
#[test]
fn work_between_passes_order_on() {
    let mut calls = Calls::default();
    let first = calls.order.stream((10, 1), 7, Blocking);
    let second = calls.order.stream((11, 2), 7, Blocking);
    let aside = calls.order.stream((12, 3), 7, NonBlocking);
    let legacy = calls.order.stream((1, 7), 7, Legacy);
    let passes_on = |calls: &Calls| {
        [first, second, aside, legacy].map(|stream| calls.order.passes_order_on(stream))
    };
    assert_eq!(passes_on(&calls), [false; 4]);
    let followed = calls.submit(first);
    assert_eq!(passes_on(&calls), [false, false, false, true]);
    calls.submit(legacy);
    assert_eq!(passes_on(&calls), [true, true, false, false]);
    calls.submit(second);
    assert_eq!(passes_on(&calls), [true, false, false, true]);
    assert!(!calls.order.is_done(first, followed));
    calls.complete_stream(second);
    assert!(calls.order.is_done(first, followed));
}

#[test]
fn a_wait_proves_what_was_enqueued_before_it() {
    let mut calls = Calls::default();
    let a = calls.order.stream((10, 1), 7, NonBlocking);
    let b = calls.order.stream((11, 2), 7, Blocking);
    let c = calls.order.stream((12, 3), 7, Blocking);
    let legacy = calls.order.stream((1, 7), 7, Legacy);
    let first = calls.submit(a);
    let second = calls.submit(b);
    assert!(!calls.order.is_done(a, first) && !calls.order.is_done(b, second));
    // b waits for what a had; completing b completes that, not what a gets later.
    let clock = calls.clock(a);
    calls.wait(b, &clock);
    let later = calls.submit(a);
    calls.complete_stream(b);
    assert!(
        calls.order.is_done(a, first)
            && calls.order.is_done(b, second)
            && !calls.order.is_done(a, later)
    );
    // The legacy default stream waits for blocking streams only.
    let third = calls.submit(c);
    calls.submit(legacy);
    calls.complete_stream(legacy);
    assert!(calls.order.is_done(c, third) && !calls.order.is_done(a, later));
    calls.order.complete_context(7, calls.now);
    assert!(calls.order.is_done(a, later));
}

#[test]
fn a_wait_for_a_context_is_one_for_the_events_of_others() {
    let mut calls = Calls::default();
    let other = calls.order.stream((10, 1), 8, NonBlocking);
    let waiting = calls.order.stream((11, 2), 7, Blocking);
    let work = calls.submit(other);
    let recorded = calls.clock(other);
    let later = calls.submit(other);
    calls.wait(waiting, &recorded);
    calls.order.complete_context(7, calls.now);
    assert!(calls.order.is_done(other, work) && !calls.order.is_done(other, later));
}

#[test]
fn order_between_streams() {
    let mut calls = Calls::default();
    let [a, b] = [(10, 1), (11, 2)].map(|key| calls.order.stream(key, 7, NonBlocking));
    let [c, d] = [(12, 3), (13, 4)].map(|key| calls.order.stream(key, 7, Blocking));
    let legacy = calls.order.stream((1, 7), 7, Legacy);
    let on_a = (a, calls.submit(a));
    assert!(calls.order.is_before(on_a, a) && !calls.order.is_before(on_a, b));
    // Through an event and a third stream.
    let recorded = calls.clock(a);
    calls.wait(c, &recorded);
    let after = (a, calls.submit(a));
    let recorded = calls.clock(c);
    calls.wait(b, &recorded);
    assert!(calls.order.is_before(on_a, b) && !calls.order.is_before(after, b));
    assert!(calls.order.has_waited(b, a) && !calls.order.has_waited(a, b));
    // Blocking streams are ordered through the legacy default stream, not among themselves.
    let on_c = (c, calls.submit(c));
    assert!(!calls.order.is_before(on_c, d) && calls.order.is_before(on_c, legacy));
    assert!(!calls.order.is_before(on_c, b));
    let on_legacy = (legacy, calls.submit(legacy));
    assert!(calls.order.is_before(on_c, d) && calls.order.is_before(on_legacy, d));
    assert!(!calls.order.is_before(on_legacy, a) && !calls.order.is_before(after, legacy));
    // What an event in a blocking stream brings along.
    let recorded = calls.clock(d);
    calls.wait(a, &recorded);
    assert!(calls.order.is_before(on_c, a) && calls.order.is_before(on_legacy, a));
    // What the legacy default stream waits for, blocking streams wait for.
    let fresh = (b, calls.submit(b));
    let recorded = calls.clock(b);
    calls.wait(legacy, &recorded);
    assert!(calls.order.is_before(fresh, d));
    // A wait that the trace does not explain.
    let last = (a, calls.submit(a));
    assert!(!calls.order.is_before(last, b));
    calls.order.wait_for_unknown(b);
    assert!(calls.order.is_before(last, b));
    // An event of all streams.
    let e = calls.order.stream((14, 5), 7, NonBlocking);
    let everything = calls.order.everything(calls.now);
    calls.wait(e, &everything);
    assert!(calls.order.is_before(last, e));
    calls.complete_stream(e);
    assert!(calls.order.is_done(a, last.1));
}

/// What a call does in a test of calls that overlap.
#[derive(Clone, Copy)]
enum Does {
    Work(usize),
    /// The second stream waits for an event that the first records just before.
    WaitsFor(usize, usize),
    Waits(usize),
    WaitsForContext,
    /// Has work of its own and waits for it, as a copy to pageable memory does.
    Copies(usize),
}
use Does::{Copies, Waits, WaitsFor, WaitsForContext, Work};

/// Calls as (what, entered, returned), fed in the order of their return; then whether the work of
/// each is complete, where doubt counts as running.
type Case = (&'static [(Does, Moment, Moment)], &'static [bool]);
const A: usize = 0;
const B: usize = 1;
const C: usize = 2;
const LEGACY: usize = 3;

const OVERLAPPING: [Case; 26] = [
    (&[(Work(A), 1, 2), (Waits(A), 3, 4)], &[true]),
    // The wait was entered before the work had been enqueued.
    (&[(Work(A), 1, 4), (Waits(A), 3, 5)], &[false]),
    (&[(Work(A), 4, 5), (Waits(A), 3, 6)], &[false]),
    (&[(Work(A), 4, 5), (WaitsForContext, 3, 6)], &[false]),
    (&[(Work(A), 1, 2), (WaitsForContext, 3, 6)], &[true]),
    // The other stream.
    (&[(Work(A), 1, 2), (Waits(B), 3, 4)], &[false]),
    // Work in the legacy default stream waits for blocking streams, not for others; so does a
    // wait for it.
    (
        &[(Work(B), 1, 2), (Work(LEGACY), 3, 4), (Waits(LEGACY), 5, 6)],
        &[true, true],
    ),
    (&[(Work(B), 1, 2), (Waits(LEGACY), 3, 4)], &[true]),
    (&[(Work(B), 1, 4), (Waits(LEGACY), 3, 5)], &[false]),
    (&[(Work(A), 1, 2), (Waits(LEGACY), 3, 4)], &[false]),
    // Work of a blocking stream behind the legacy default stream.
    (
        &[
            (Work(B), 1, 2),
            (Work(LEGACY), 3, 4),
            (Work(C), 5, 6),
            (Waits(C), 7, 8),
        ],
        &[true, true, true],
    ),
    // The same without work of its own, and with work that overlaps.
    (
        &[(Work(B), 1, 2), (Work(LEGACY), 3, 4), (Waits(C), 7, 8)],
        &[false, false],
    ),
    (
        &[
            (Work(B), 1, 2),
            (Work(LEGACY), 3, 5),
            (Work(C), 4, 6),
            (Waits(C), 7, 8),
        ],
        &[false, false, true],
    ),
    // A copy in a blocking stream waits for the legacy default stream, and so for what that
    // has waited for; not for work that was still being enqueued.
    (&[(Work(LEGACY), 1, 2), (Copies(B), 3, 4)], &[true]),
    (&[(Work(LEGACY), 1, 4), (Copies(B), 3, 5)], &[false]),
    (
        &[(Work(C), 1, 2), (Work(LEGACY), 3, 4), (Copies(B), 5, 6)],
        &[true, true],
    ),
    (&[(Work(LEGACY), 1, 2), (Copies(A), 3, 4)], &[false]),
    // A stream that waits for another through an event, before and after it is waited for.
    (
        &[(Work(A), 1, 2), (WaitsFor(A, B), 3, 4), (Waits(B), 5, 6)],
        &[true],
    ),
    (
        &[(Work(A), 1, 2), (WaitsFor(A, B), 4, 5), (Waits(B), 3, 6)],
        &[false],
    ),
    // Through the legacy default stream, with and without work there.
    (
        &[
            (Work(A), 1, 2),
            (WaitsFor(A, B), 3, 4),
            (Waits(LEGACY), 5, 6),
        ],
        &[true],
    ),
    (
        &[
            (Work(A), 1, 2),
            (WaitsFor(A, B), 3, 6),
            (Waits(LEGACY), 5, 7),
        ],
        &[false],
    ),
    (
        &[
            (Work(A), 1, 2),
            (WaitsFor(A, LEGACY), 3, 4),
            (Waits(B), 5, 6),
        ],
        &[false],
    ),
    (
        &[
            (Work(A), 1, 2),
            (WaitsFor(A, LEGACY), 3, 4),
            (Copies(B), 5, 6),
        ],
        &[true],
    ),
    (
        &[
            (Work(A), 1, 2),
            (WaitsFor(A, LEGACY), 3, 6),
            (Copies(B), 5, 7),
        ],
        &[false],
    ),
    // An event of a blocking stream without work comes after the legacy default stream.
    (
        &[
            (Work(LEGACY), 1, 2),
            (WaitsFor(B, A), 3, 4),
            (Waits(A), 5, 6),
        ],
        &[true],
    ),
    // Blocking work that was enqueued while that of the legacy default stream was.
    (
        &[
            (Work(B), 1, 4),
            (Work(LEGACY), 3, 5),
            (Work(C), 6, 7),
            (Waits(C), 8, 9),
        ],
        &[false, true, true],
    ),
];

#[test]
fn calls_that_overlap_prove_nothing_about_each_other() {
    for (calls, expected) in OVERLAPPING {
        let mut order = Order::<RandomState>::new(Doubt::Running);
        let kinds = [NonBlocking, Blocking, Blocking, Legacy];
        let streams = [0, 1, 2, 3].map(|at| order.stream((10 + at, 0), 7, kinds[at as usize]));
        let mut work = Vec::new();
        for &(does, entered, returned) in calls {
            match does {
                Work(at) => {
                    assert!(order.submit(streams[at], entered, returned));
                    work.push((streams[at], returned));
                }
                WaitsFor(first, second) => {
                    let clock = order.clock(streams[first], entered);
                    order.marked(streams[first], entered, returned);
                    order.wait(streams[second], &clock, (entered, returned));
                }
                Waits(at) => order.complete_stream(streams[at], entered),
                WaitsForContext => order.complete_context(7, entered),
                Copies(at) => order.complete_with_work(streams[at], entered),
            }
        }
        let done: Vec<bool> = work
            .iter()
            .map(|&(stream, enqueued)| order.is_done(stream, enqueued))
            .collect();
        let shown: Vec<_> = calls.iter().map(|call| (call.1, call.2)).collect();
        assert_eq!(done, expected, "{shown:?}");
    }
}

#[test]
fn doubt_counts_as_the_caller_wants() {
    for (doubt, expected) in [(Doubt::Complete, true), (Doubt::Running, false)] {
        let mut order = Order::<RandomState>::new(doubt);
        let [known, other] =
            [(1, NonBlocking), (2, NonBlocking)].map(|(at, kind)| order.stream((at, 9), 7, kind));
        let unknown = order.stream((20, 0), 7, StreamKind::Unknown);
        let legacy = order.stream((1, 7), 7, Legacy);
        order.submit(unknown, 1, 1);
        order.submit(known, 2, 2);
        assert_eq!(order.is_before((unknown, 1), known), expected);
        assert_eq!(order.is_before((known, 2), unknown), expected);
        assert!(!order.is_before((known, 2), other));
        order.complete_stream(legacy, 3);
        assert_eq!(order.is_done(unknown, 1), expected);
        // A stream that was forgotten.
        assert_eq!(order.is_done(77, 1), expected);
    }
}
