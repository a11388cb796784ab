//! Cases of work that may still run.

use std::sync::atomic::{AtomicU32, Ordering};

use cutape_format::layout::note_kind;
use cutape_format::{NewCall, NewSnapshot, Trace, TraceBuilder};
use cutape_registry::Role;

use super::*;

const CONTEXT: u64 = 0x77;
const ONE: u64 = 0x5000;
const TWO: u64 = 0x6000;
const BLOCKING: u64 = 0x7000;
const EVENT: u64 = 0xe000;
const FLAG: u64 = 0x10_0000;
const WORD: u64 = 0xffff_0000;
const FILL_ONE: Step = ("cuMemsetD8Async", &[0x9000, 0, 8, ONE], 0);
const FILL_TWO: Step = ("cuMemsetD8Async", &[0xa000, 0, 8, TWO], 0);
const RECORD_ONE: Step = ("cuEventRecord", &[EVENT, ONE], 0);
const WAIT_TWO: Step = ("cuStreamWaitEvent", &[TWO, EVENT, 0], 0);
/// Calls before the steps of a case.
const START: u64 = 6;

/// Name, arguments, result; [`IN_FLIGHT`] if the call does not return.
type Step = (&'static str, &'static [u64], i32);

const IN_FLIGHT: i32 = i32::MIN;

/// The breadcrumb of a step: its number, kind, value.
type Mark = (u64, u8, u32);

/// What may run: the stream's handle, the calls of its candidates, and of all its work.
type Expected = (u64, &'static [u64], usize);

/// What happens, the steps, breadcrumbs, what the word holds, what may run.
type Case = (
    &'static str,
    &'static [Step],
    &'static [Mark],
    Option<u32>,
    &'static [Expected],
);

/// A trace that begins with the calls before the steps of a case.
fn begun() -> TraceBuilder {
    let mut builder = TraceBuilder::new(cutape_registry::SIGNATURE_TEXT);
    let start: [Step; START as usize] = [
        ("cuDevicePrimaryCtxRetain", &[CONTEXT, 0], 0),
        ("cuCtxSetCurrent", &[CONTEXT], 0),
        ("cuStreamCreate", &[ONE, 1], 0),
        ("cuStreamCreate", &[TWO, 1], 0),
        ("cuStreamCreate", &[BLOCKING, 0], 0),
        ("cuEventCreate", &[EVENT, 0], 0),
    ];
    for step in start {
        put(&mut builder, step, &[]);
    }
    builder
}

/// Adds a step and its breadcrumbs.
fn put(builder: &mut TraceBuilder, (name, arguments, result): Step, marks: &[(u8, u32)]) {
    let function = cutape_registry::function(name).expect(name);
    builder.call(NewCall {
        name,
        arguments,
        ..NewCall::default()
    });
    for &(kind, value) in marks {
        let note = BreadcrumbNote {
            context: CONTEXT,
            stream: ONE,
            address: WORD,
            value,
            kind,
        };
        builder.note(0, note_kind::BREADCRUMB, note, &[]);
    }
    let made = arguments[0].to_le_bytes();
    let makes = matches!(function.params[0].role, Role::Make(..) | Role::Get(_));
    let out = [NewSnapshot::pointee(0, &made)];
    if result != IN_FLIGHT {
        builder.leave(0, result, if makes { &out } else { &[] });
    }
}

fn observed(builder: &TraceBuilder, word: Option<u32>) -> PendingWork {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("cutape-pending-{}-{number}.cutape", std::process::id());
    let path = std::env::temp_dir().join(name);
    builder.write(&path).unwrap();
    let trace = Trace::open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let mut work = PendingWork::default();
    for call in trace.calls() {
        work.observe(&call, &mut |address| word.filter(|_| address == WORD));
    }
    work
}

fn followed(steps: &[Step], marks: &[Mark], word: Option<u32>) -> PendingWork {
    let mut builder = begun();
    for (number, &step) in (0..).zip(steps) {
        let marks = marks.iter().filter(|mark| mark.0 == number);
        let marks: Vec<_> = marks.map(|&(_, kind, value)| (kind, value)).collect();
        put(&mut builder, step, &marks);
    }
    observed(&builder, word)
}

fn pending(work: &PendingWork) -> Vec<(u64, Vec<u64>, usize)> {
    let streams = work.streams().into_iter();
    streams
        .map(|stream| {
            let calls = stream.work.iter().map(|work| work.call - START);
            let candidates = calls.take(stream.candidates).collect();
            (stream.handle, candidates, stream.work.len())
        })
        .collect()
}

#[test]
fn waits_and_breadcrumbs_complete_work() {
    use breadcrumb::{AFTER, BEFORE, READ};
    let cases: &[Case] = &[
        (
            "nothing is known to be complete",
            &[FILL_ONE, FILL_ONE, FILL_TWO],
            &[],
            None,
            &[(ONE, &[0, 1], 2), (TWO, &[2], 1)],
        ),
        (
            "a wait for a stream",
            &[FILL_ONE, FILL_TWO, ("cuStreamSynchronize", &[ONE], 0)],
            &[],
            None,
            &[(TWO, &[1], 1)],
        ),
        (
            "a wait for a stream that waited for an event",
            &[
                FILL_ONE,
                RECORD_ONE,
                FILL_ONE,
                WAIT_TWO,
                ("cuStreamSynchronize", &[TWO], 0),
            ],
            &[],
            None,
            &[(ONE, &[2], 1)],
        ),
        (
            "a query that finds work running",
            &[FILL_ONE, ("cuStreamQuery", &[ONE], 600)],
            &[],
            None,
            &[(ONE, &[0], 1)],
        ),
        (
            "a word between two breadcrumbs",
            &[FILL_ONE, FILL_ONE, FILL_ONE, FILL_ONE],
            &[(0, AFTER, 1), (2, AFTER, 2)],
            Some(1),
            &[(ONE, &[1, 2], 3)],
        ),
        (
            "a word that no stream has written",
            &[FILL_ONE, FILL_ONE],
            &[(0, AFTER, 1)],
            Some(0),
            &[(ONE, &[0], 2)],
        ),
        (
            "values that have wrapped around",
            &[FILL_ONE, FILL_ONE],
            &[(0, AFTER, u32::MAX), (1, AFTER, 0)],
            Some(u32::MAX),
            &[(ONE, &[1], 1)],
        ),
        (
            "a breadcrumb before the work",
            &[FILL_ONE, FILL_ONE],
            &[(1, BEFORE, 1)],
            Some(1),
            &[(ONE, &[1], 1)],
        ),
        (
            "the breadcrumb of a stream that waited for another",
            &[
                FILL_TWO,
                ("cuEventRecord", &[EVENT, TWO], 0),
                ("cuStreamWaitEvent", &[ONE, EVENT, 0], 0),
                FILL_ONE,
                FILL_TWO,
            ],
            &[(3, AFTER, 1)],
            Some(1),
            &[(TWO, &[4], 1)],
        ),
        (
            "a word that was read when work had failed",
            &[
                FILL_ONE,
                FILL_ONE,
                ("cuStreamSynchronize", &[ONE], 700),
                ("cuStreamSynchronize", &[ONE], 0),
            ],
            &[(0, AFTER, 1), (1, AFTER, 2), (2, READ, 1)],
            None,
            &[(ONE, &[1], 1)],
        ),
    ];
    for (what, steps, marks, word, expected) in cases {
        let work = followed(steps, marks, *word);
        let expected = expected.iter();
        let expected: Vec<_> = expected
            .map(|(stream, calls, all)| (*stream, calls.to_vec(), *all))
            .collect();
        assert_eq!(pending(&work), expected, "{what}");
    }
}

#[test]
fn words_are_read_again() {
    use breadcrumb::AFTER;
    let mut work = followed(&[FILL_ONE, FILL_ONE], &[(1, AFTER, 1)], Some(0));
    assert_eq!(work.unfinished_words(), [WORD]);
    assert!(work.streams()[0].has_next_breadcrumb);
    work.found(WORD, 1);
    assert!(work.streams().is_empty());
    assert_eq!(work.unfinished_words(), [0; 0]);
}

#[test]
fn streams_and_threads_wait_for_streams() {
    const WAIT: Step = ("cuStreamWaitValue32_v2", &[ONE, FLAG, 7, 1], 0);
    let work = followed(
        &[
            WAIT,
            RECORD_ONE,
            WAIT_TWO,
            FILL_TWO,
            ("cuStreamWriteValue32_v2", &[TWO, FLAG, 7, 0], 0),
            ("cuStreamSynchronize", &[TWO], IN_FLIGHT),
        ],
        &[],
        None,
    );
    let streams = work.streams();
    let [one, two] = streams.as_slice() else {
        panic!("{streams:?}");
    };
    let awaited = AwaitedValue {
        address: FLAG,
        bytes: 4,
        value: 7,
        condition: crate::stream_values::Condition::Equal,
    };
    assert_eq!(one.work[0].kind, PendingKind::Values(vec![awaited], vec![]));
    assert_eq!(work.before(one.number, &one.work[0]), [0; 0]);
    assert_eq!(two.work[0].kind, PendingKind::Event(Some(START + 1)));
    assert_eq!(work.before(two.number, &two.work[0]), [one.number]);
    assert_eq!(work.writes_to(FLAG), [(two.number, START + 4)]);
    let [wait] = work.in_flight() else {
        panic!("{:?}", work.in_flight());
    };
    assert_eq!(wait.call, START + 5);
    assert_eq!(work.awaited_by(wait), [one.number, two.number]);
    assert_eq!(work.failure(), None);
}

#[test]
fn blocking_streams_wait_for_the_legacy_stream() {
    let work = followed(
        &[
            ("cuMemsetD8Async", &[0x9000, 0, 8, 0], 0),
            ("cuMemsetD8Async", &[0xa000, 0, 8, BLOCKING], 0),
            FILL_ONE,
        ],
        &[],
        None,
    );
    let streams = work.streams();
    let before: Vec<_> = streams
        .iter()
        .map(|stream| (stream.handle, work.before(stream.number, &stream.work[0])))
        .collect();
    let legacy = streams[0].number;
    let expected = [(1, vec![]), (BLOCKING, vec![legacy]), (ONE, vec![])];
    assert_eq!(before, expected);
}

#[test]
fn nothing_changes_after_an_error_of_earlier_work() {
    let work = followed(
        &[
            FILL_ONE,
            ("cuStreamSynchronize", &[ONE], 719),
            ("cuStreamSynchronize", &[ONE], 700),
            ("cuDevicePrimaryCtxReset_v2", &[0], 0),
        ],
        &[],
        None,
    );
    let failure = StickyFailure {
        call: START + 1,
        result: 719,
    };
    assert_eq!(work.failure(), Some(failure));
    assert_eq!(pending(&work), [(ONE, vec![0], 1)]);
}

#[test]
fn a_wait_that_overlaps_the_record_may_be_for_an_earlier_one() {
    let wait = NewCall {
        name: "cuEventSynchronize",
        arguments: &[EVENT],
        thread: 1,
        ..NewCall::default()
    };
    for (overlaps, expected) in [(true, vec![(ONE, vec![0], 1)]), (false, vec![])] {
        let mut builder = begun();
        put(&mut builder, FILL_ONE, &[]);
        put(&mut builder, (RECORD_ONE.0, RECORD_ONE.1, IN_FLIGHT), &[]);
        if overlaps {
            builder.call(wait).leave(0, 0, &[]);
        } else {
            builder.leave(0, 0, &[]).call(wait);
        }
        builder.leave(1, 0, &[]);
        assert_eq!(pending(&observed(&builder, None)), expected, "{overlaps}");
    }
}

#[test]
fn a_thread_is_in_its_last_call() {
    let wait = ("cuStreamSynchronize", &[ONE][..], IN_FLIGHT);
    let work = followed(&[FILL_ONE, wait, FILL_TWO], &[], None);
    assert!(work.in_flight().is_empty(), "{:?}", work.in_flight());
    let work = followed(&[FILL_ONE, FILL_TWO, wait], &[], None);
    assert_eq!(work.in_flight().len(), 1);
}
