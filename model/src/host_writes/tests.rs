//! Cases of work that may write host memory.

use cutape_format::layout::{LookedNote, field, note_kind};
use cutape_format::{NewCall, NewSnapshot, Trace, TraceBuilder};
use cutape_registry::Role;

use super::*;

const CONTEXT: u64 = 0x77;
const STREAM: u64 = 0x5000;
const OTHER: u64 = 0x6000;
const BLOCKING: u64 = 0x7000;
const SECOND: u64 = 0x78;
const EVENT: u64 = 0xe000;
const PINNED: u64 = 0x10_0000;
const LENGTH: u64 = 0x1000;
const DEVICE: u64 = 0x90_0000;
const LOOK: &str = "cuCtxGetCurrent";
const OTHER_RECORD: &str = "cuEventRecord_ptsz";

/// Name, arguments, times of entry and return; a kernel's parameters, or when the recorder had looked
/// at what a wait found, or at memory before `LOOK`.
type Step = (&'static str, &'static [u64], (u64, u64), &'static [u64]);

/// What may be written when `LOOK` is called: first byte, behind the last, exact, call.
type Pending = (u64, u64, bool, u64);

fn pending(steps: &[Step]) -> Vec<Pending> {
    found(steps).0.into_iter().map(shown).collect()
}

fn shown(write: PendingWrite) -> Pending {
    let PendingWrite {
        bytes,
        is_exact,
        call,
        ..
    } = write;
    (bytes.start, bytes.end, is_exact, call)
}

/// A recording with a context, streams, an event and memory, and these calls.
fn recorded(steps: &[Step]) -> Trace {
    let mut builder = TraceBuilder::new(cutape_registry::SIGNATURE_TEXT);
    let start: [Step; 7] = [
        ("cuDevicePrimaryCtxRetain", &[CONTEXT, 0], (1, 2), &[]),
        ("cuCtxSetCurrent", &[CONTEXT], (3, 4), &[]),
        ("cuStreamCreate", &[STREAM, 1], (5, 6), &[]),
        ("cuStreamCreate", &[OTHER, 1], (7, 8), &[]),
        ("cuEventCreate", &[EVENT, 0], (9, 10), &[]),
        ("cuMemHostAlloc", &[PINNED, LENGTH, 0], (11, 12), &[]),
        ("cuMemAlloc_v2", &[DEVICE, LENGTH], (13, 14), &[]),
    ];
    let steps: Vec<&Step> = start.iter().chain(steps).collect();
    let mut moments: Vec<(u64, bool, &Step)> = Vec::new();
    for &step in &steps {
        let (entered, returned) = step.2;
        moments.extend([(entered, false, step), (returned, true, step)]);
    }
    moments.sort_by_key(|moment| moment.0);
    for (time, is_return, &(name, arguments, _, parameters)) in moments {
        builder.at(time);
        let function = cutape_registry::function(name).expect(name);
        let is_wait = function.waits != Waits::No;
        // Only these overlap with others.
        let overlaps = matches!(name, LOOK | "cuCtxSynchronize_v2" | OTHER_RECORD);
        let thread = u32::from(overlaps || (is_wait && !parameters.is_empty()));
        if is_return {
            let bytes = arguments.first().copied().unwrap_or(0).to_le_bytes();
            let role = function.params.first().map(|param| param.role);
            let makes = matches!(role, Some(Role::Make(..) | Role::Find(..) | Role::Get(_)));
            let out = [NewSnapshot::pointee(0, &bytes)];
            if let (true, &[ticks]) = (is_wait, parameters) {
                builder.note(thread, note_kind::LOOKED, LookedNote { ticks }, &[]);
            }
            builder.leave(thread, 0, if makes { &out } else { &[] });
            continue;
        }
        let words: Vec<u8> = parameters
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect();
        let is_launch = matches!(function.family, Family::Launch(_));
        let snapshot = [match is_launch {
            true => NewSnapshot::piece(9, field::KERNEL_PARAMETERS, &words),
            false => NewSnapshot::pointee(0, &words),
        }];
        builder.call(NewCall {
            thread,
            name,
            arguments,
            snapshots: if words.is_empty() || is_wait || name == LOOK {
                &[]
            } else {
                &snapshot
            },
            ..NewCall::default()
        });
        if let (LOOK, &[ticks]) = (name, parameters) {
            builder.note(thread, note_kind::LOOKED_BEFORE, LookedNote { ticks }, &[]);
        }
    }
    let path = std::env::temp_dir().join(format!(
        "cutape-host-writes-{}-{:?}",
        std::process::id(),
        std::thread::current().id()
    ));
    builder.write(&path).unwrap();
    let trace = Trace::open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    trace
}

/// What the last call finds, and the answers; each `LOOK` asks what is enqueued during it.
fn found(steps: &[Step]) -> (Vec<PendingWrite>, Answers) {
    let trace = recorded(steps);
    let mut writes = HostWrites::default();
    let mut found = Vec::new();
    for call in trace.calls() {
        writes.enter(&call);
        found = writes.pending_for(&call, &(PINNED..PINNED + LENGTH));
        writes.apply(&call);
        if call.signature.name == LOOK {
            writes.ask_later(&call, PINNED..PINNED + LENGTH);
        }
    }
    (found, writes.answers())
}

#[test]
fn what_other_threads_enqueue_during_a_call_is_found() {
    const fn memset(at: &'static [u64], time: u64) -> Step {
        ("cuMemsetD32Async", at, (time, time + 1), &[])
    }
    const HERE: &[u64] = &[PINNED, 0, 2, STREAM];
    const ELSEWHERE: &[u64] = &[DEVICE, 0, 2, STREAM];
    const SET: Pending = (PINNED, PINNED + 8, true, 8);
    const CAPTURE: Step = ("cuStreamBeginCapture_v2", &[STREAM, 1], (20, 21), &[]);
    type Case<'c> = (&'c str, &'c [Step], &'static [u64], &'c [Pending]);
    let table: [Case<'_>; 8] = [
        ("during it", &[memset(HERE, 92)], &[], &[SET]),
        ("until it has returned", &[memset(HERE, 94)], &[], &[SET]),
        ("after it", &[memset(HERE, 96)], &[], &[]),
        ("before it", &[memset(HERE, 88)], &[], &[]),
        ("elsewhere", &[memset(ELSEWHERE, 92)], &[], &[]),
        ("captured", &[CAPTURE, memset(HERE, 92)], &[], &[]),
        ("before the look", &[memset(HERE, 92)], &[93], &[SET]),
        ("after the look", &[memset(HERE, 92)], &[91], &[]),
    ];
    for (what, others, looked, expected) in table {
        let mut steps = others.to_vec();
        steps.push((LOOK, &[0], (90, 95), looked));
        steps.sort_by_key(|step| step.2.0);
        let later = found(&steps).1.later.into_iter();
        let later: Vec<(u64, Pending)> = later.map(|(at, write)| (at, shown(write))).collect();
        let expected: Vec<(u64, Pending)> = expected.iter().map(|&write| (7, write)).collect();
        assert_eq!(later, expected, "{what}");
    }
}

const MEMSET: Step = ("cuMemsetD32Async", &[PINNED, 0, 2, STREAM], (20, 21), &[]);
const SET: Pending = (PINNED, PINNED + 8, true, 7);
const ALL: Pending = (PINNED, PINNED + LENGTH, false, 7);
const NOW: Step = (LOOK, &[0], (90, 91), &[]);
const LAUNCH: &str = "cuLaunchKernel";
const ARGUMENTS: &[u64] = &[0xf, 1, 1, 1, 1, 1, 1, 0, STREAM, 0, 0];
// CUDA_MEMCPY2D: from the device to the host, which are at its words 2 and 3, 9 and 10.
const ROWS: &[u64] = &[0, 0, 2, 0, DEVICE, 0, 0, 0, 0, 1, PINNED, 0, 0, 0, 8, 1];
const CREATE: Step = ("cuCtxCreate_v2", &[0x88, 0, 0], (15, 16), &[]);
const ALLOCATE: Step = ("cuMemAlloc_v2", &[DEVICE + LENGTH, 8], (17, 18), &[]);

/// Steps, and what may be written then.
const UNTIL_COMPLETE: [(&str, &[Step], &[Pending]); 31] = [
    ("a memset", &[MEMSET, NOW], &[SET]),
    (
        "while its call is in progress",
        &[MEMSET, (LOOK, &[0], (20, 22), &[])],
        &[SET],
    ),
    (
        "while a call that waits for it is in progress",
        &[
            ("cuMemsetD32_v2", &[PINNED, 0, 2], (20, 30), &[]),
            (LOOK, &[0], (25, 26), &[]),
        ],
        &[SET],
    ),
    (
        "after such a call",
        &[("cuMemsetD32_v2", &[PINNED, 0, 2], (20, 30), &[]), NOW],
        &[],
    ),
    (
        "of device memory",
        &[
            ("cuMemsetD32Async", &[DEVICE, 0, 2, STREAM], (20, 21), &[]),
            NOW,
        ],
        &[],
    ),
    (
        "a copy",
        &[
            (
                "cuMemcpyDtoHAsync_v2",
                &[PINNED, DEVICE, 8, STREAM],
                (20, 21),
                &[],
            ),
            NOW,
        ],
        &[SET],
    ),
    (
        "a synchronous copy",
        &[
            ("cuMemcpyDtoH_v2", &[PINNED, DEVICE, 8], (20, 21), &[]),
            NOW,
        ],
        &[],
    ),
    (
        "before a copy from the host in the default stream",
        &[
            ("cuMemsetD32Async", &[PINNED, 0, 2, 0], (20, 21), &[]),
            ("cuMemcpyHtoD_v2", &[DEVICE, 0x1234, 8], (22, 23), &[]),
            NOW,
        ],
        &[],
    ),
    (
        "before a copy that has page-locked memory on one side",
        &[
            ("cuMemsetD32Async", &[PINNED, 0, 2, 0], (20, 21), &[]),
            ("cuMemcpy", &[DEVICE, PINNED, 8], (22, 23), &[]),
            NOW,
        ],
        &[],
    ),
    (
        "in another stream before such a copy",
        &[
            MEMSET,
            ("cuMemcpyHtoD_v2", &[DEVICE, 0x1234, 8], (22, 23), &[]),
            NOW,
        ],
        &[SET],
    ),
    (
        "by such a copy, which may only have read",
        &[
            ("cuMemcpyHtoD_v2", &[PINNED, 0x1234, 8], (20, 21), &[]),
            NOW,
        ],
        &[SET],
    ),
    (
        "a copy of rows",
        &[
            ("cuMemcpy2DAsync_v2", &[0x1000, STREAM], (20, 21), ROWS),
            NOW,
        ],
        &[SET],
    ),
    (
        "a synchronous copy of rows",
        &[("cuMemcpy2D_v2", &[0x1000], (20, 21), ROWS), NOW],
        &[],
    ),
    (
        "by a synchronous copy between memory of any kind",
        &[("cuMemcpy", &[PINNED, DEVICE, 8], (20, 21), &[]), NOW],
        &[],
    ),
    (
        "before work of the default stream that writes other memory",
        &[
            ("cuStreamCreate", &[BLOCKING, 0], (15, 16), &[]),
            ("cuMemsetD32Async", &[PINNED, 0, 2, BLOCKING], (20, 21), &[]),
            ("cuMemsetD32Async", &[DEVICE, 0, 2, 0], (22, 23), &[]),
            ("cuStreamSynchronize", &[0], (24, 25), &[]),
            NOW,
        ],
        &[],
    ),
    (
        "when the memory has been freed",
        &[
            MEMSET,
            ("cuMemFreeHost", &[PINNED], (22, 23), &[]),
            ("cuMemHostAlloc", &[PINNED, LENGTH, 0], (24, 25), &[]),
            NOW,
        ],
        &[],
    ),
    (
        "when the device has been reset",
        &[
            MEMSET,
            ("cuDevicePrimaryCtxReset_v2", &[0], (22, 23), &[]),
            NOW,
        ],
        &[],
    ),
    (
        "when its context has been destroyed",
        &[
            ("cuCtxCreate_v2", &[SECOND, 0, 0], (15, 16), &[]),
            ("cuMemsetD32Async", &[PINNED, 0, 2, 0], (20, 21), &[]),
            ("cuCtxDestroy_v2", &[SECOND], (22, 23), &[]),
            NOW,
        ],
        &[],
    ),
    (
        "a kernel that gets an address in the memory",
        &[(LAUNCH, ARGUMENTS, (20, 21), &[3, PINNED + 64]), NOW],
        &[ALL],
    ),
    (
        "one that does not",
        &[
            (LAUNCH, ARGUMENTS, (20, 21), &[3, DEVICE, PINNED + LENGTH]),
            NOW,
        ],
        &[],
    ),
    (
        "waited for",
        &[
            MEMSET,
            ("cuStreamSynchronize", &[STREAM], (22, 23), &[]),
            NOW,
        ],
        &[],
    ),
    (
        "another stream was",
        &[
            MEMSET,
            ("cuStreamSynchronize", &[OTHER], (22, 23), &[]),
            NOW,
        ],
        &[SET],
    ),
    (
        "by a call that was entered before",
        &[
            ("cuCtxSynchronize_v2", &[CONTEXT], (19, 30), &[]),
            MEMSET,
            NOW,
        ],
        &[(PINNED, PINNED + 8, true, 8)],
    ),
    (
        "an event behind it",
        &[
            MEMSET,
            ("cuEventRecord", &[EVENT, STREAM], (22, 23), &[]),
            ("cuEventSynchronize", &[EVENT], (24, 25), &[]),
            NOW,
        ],
        &[],
    ),
    (
        "an event before it",
        &[
            ("cuEventRecord", &[EVENT, STREAM], (18, 19), &[]),
            MEMSET,
            ("cuEventSynchronize", &[EVENT], (24, 25), &[]),
            NOW,
        ],
        &[(PINNED, PINNED + 8, true, 8)],
    ),
    (
        "an event whose handle was used before",
        &[
            MEMSET,
            ("cuEventRecord", &[EVENT, STREAM], (22, 23), &[]),
            ("cuEventDestroy_v2", &[EVENT], (24, 25), &[]),
            ("cuEventCreate", &[EVENT, 0], (26, 27), &[]),
            ("cuEventQuery", &[EVENT], (28, 29), &[]),
            NOW,
        ],
        &[SET],
    ),
    (
        "memory of its context was freed in another",
        &[
            CREATE,
            MEMSET,
            ("cuMemFree_v2", &[DEVICE], (22, 23), &[]),
            NOW,
        ],
        &[],
    ),
    (
        "memory of another context was freed",
        &[
            CREATE,
            ALLOCATE,
            MEMSET,
            ("cuMemFree_v2", &[DEVICE + LENGTH], (22, 23), &[]),
            NOW,
        ],
        &[(PINNED, PINNED + 8, true, 9)],
    ),
    (
        "an event whose records overlap",
        &[
            MEMSET,
            ("cuEventRecord", &[EVENT, STREAM], (22, 30), &[]),
            (OTHER_RECORD, &[EVENT, OTHER], (23, 29), &[]),
            ("cuEventSynchronize", &[EVENT], (31, 32), &[]),
            NOW,
        ],
        &[SET],
    ),
    (
        "an event that a graph may have recorded since",
        &[
            MEMSET,
            ("cuEventRecord", &[EVENT, STREAM], (22, 23), &[]),
            ("cuGraphLaunch", &[0xb, OTHER], (24, 25), &[]),
            ("cuEventSynchronize", &[EVENT], (26, 27), &[]),
            NOW,
        ],
        &[SET, (0, u64::MAX, false, 9)],
    ),
    (
        "a stream that waited for the event",
        &[
            MEMSET,
            ("cuEventRecord", &[EVENT, STREAM], (22, 23), &[]),
            ("cuStreamWaitEvent", &[OTHER, EVENT, 0], (24, 25), &[]),
            ("cuStreamSynchronize", &[OTHER], (26, 27), &[]),
            NOW,
        ],
        &[],
    ),
];

#[test]
fn work_may_write_until_a_call_proves_that_it_is_complete() {
    for (what, steps, expected) in UNTIL_COMPLETE {
        assert_eq!(pending(steps), expected, "{what}");
    }
}

const READ: &str = "cuMemcpyHtoDAsync_v2";
const SAME: Step = (READ, &[DEVICE, PINNED, 8, STREAM], (90, 91), &[]);
const APART: Step = (READ, &[DEVICE, PINNED, 8, OTHER], (90, 91), &[]);

/// Steps, whether the memset is before the last call, and whether the program may know that it is
/// complete.
const KNOWN_AT_A_CALL: [(&str, &[Step], (bool, bool)); 12] = [
    ("the same stream", &[MEMSET, SAME], (true, false)),
    ("another stream", &[MEMSET, APART], (false, false)),
    (
        "a host function behind it",
        &[
            MEMSET,
            ("cuLaunchHostFunc", &[STREAM, 1, 0], (22, 23), &[]),
            SAME,
        ],
        (true, true),
    ),
    (
        "one in another stream",
        &[
            MEMSET,
            ("cuLaunchHostFunc", &[OTHER, 1, 0], (22, 23), &[]),
            SAME,
        ],
        (true, false),
    ),
    (
        "one before it",
        &[
            ("cuLaunchHostFunc", &[STREAM, 1, 0], (18, 19), &[]),
            MEMSET,
            SAME,
        ],
        (true, false),
    ),
    (
        "a value in host memory",
        &[
            MEMSET,
            (
                "cuStreamWriteValue32_v2",
                &[STREAM, PINNED + 64, 1, 0],
                (22, 23),
                &[],
            ),
            SAME,
        ],
        (true, true),
    ),
    (
        "one in memory of the device",
        &[
            MEMSET,
            (
                "cuStreamWriteValue32_v2",
                &[STREAM, DEVICE, 1, 0],
                (22, 23),
                &[],
            ),
            SAME,
        ],
        (true, false),
    ),
    (
        "an event that is recorded for a context",
        &[
            MEMSET,
            ("cuCtxRecordEvent", &[CONTEXT, EVENT], (22, 23), &[]),
            ("cuEventSynchronize", &[EVENT], (24, 25), &[]),
            SAME,
        ],
        (true, true),
    ),
    (
        "a wait that has returned, and the recorder looks at what it found",
        &[
            MEMSET,
            ("cuStreamSynchronize", &[STREAM], (22, 23), &[95]),
            SAME,
        ],
        (true, true),
    ),
    (
        "one that has not returned",
        &[
            MEMSET,
            ("cuStreamSynchronize", &[STREAM], (22, 93), &[95]),
            SAME,
        ],
        (true, false),
    ),
    (
        "one for an event",
        &[
            MEMSET,
            ("cuEventRecord", &[EVENT, STREAM], (22, 23), &[]),
            ("cuEventSynchronize", &[EVENT], (24, 25), &[95]),
            SAME,
        ],
        (true, true),
    ),
    (
        "a graph of which no call has shown the nodes",
        &[
            MEMSET,
            ("cuGraphLaunch", &[0x99, STREAM], (22, 23), &[]),
            APART,
        ],
        (false, true),
    ),
];

#[test]
fn a_call_that_asks_is_ordered_behind_work_or_the_program_may_know_its_end() {
    for (what, steps, expected) in KNOWN_AT_A_CALL {
        let found = found(steps).0;
        let memset = found.iter().find(|write| write.is_exact).expect(what);
        assert_eq!(
            (memset.is_before, memset.known_since.is_some()),
            expected,
            "{what}"
        );
    }
}

#[test]
fn calls_that_wait_at_once_all_prove_the_work() {
    const SET: Step = ("cuMemsetD32Async", &[PINNED, 0, 2, STREAM], (20, 21), &[]);
    const fn synchronize(stream: &'static [u64], times: (u64, u64)) -> Step {
        ("cuStreamSynchronize", stream, times, &[])
    }
    const fn context(looked: &'static [u64]) -> Step {
        ("cuCtxSynchronize_v2", &[CONTEXT], (40, 50), looked)
    }
    type Case = (&'static str, [Step; 2], &'static [CompletedBy]);
    let table: [Case; 4] = [
        (
            "the second returns later",
            [synchronize(&[STREAM], (30, 60)), context(&[])],
            &[CompletedBy::Call(9, 50), CompletedBy::Also(8, 60)],
        ),
        (
            "the second is entered while the recorder looks",
            [synchronize(&[STREAM], (52, 60)), context(&[55])],
            &[CompletedBy::Call(8, 55), CompletedBy::Also(9, 60)],
        ),
        (
            "the second is entered later",
            [synchronize(&[STREAM], (57, 60)), context(&[55])],
            &[CompletedBy::Call(8, 55)],
        ),
        (
            "the second waits for another stream",
            [synchronize(&[OTHER], (30, 60)), context(&[])],
            &[CompletedBy::Call(9, 50)],
        ),
    ];
    for (what, waits, expected) in table {
        let trace = recorded(&[&[SET], &waits[..]].concat());
        let mut writes = HostWrites::keeping_completed();
        for call in trace.calls() {
            writes.enter(&call);
            writes.apply(&call);
        }
        let proofs = writes.completed().into_iter().map(|one| one.proof);
        assert_eq!(proofs.collect::<Vec<_>>(), expected, "{what}");
    }
}

#[test]
fn work_of_a_stream_that_captures_is_captured() {
    const COPY: Step = (
        "cuMemcpyHtoDAsync_v2",
        &[DEVICE, PINNED, 8, STREAM],
        (30, 31),
        &[],
    );
    const BEGIN: Step = ("cuStreamBeginCapture_v2", &[STREAM, 1], (20, 21), &[]);
    const END: Step = ("cuStreamEndCapture", &[STREAM, 0], (22, 23), &[]);
    const ELSEWHERE: Step = ("cuStreamBeginCapture_v2", &[OTHER, 1], (20, 21), &[]);
    let table: [(&[Step], bool); 4] = [
        (&[COPY], false),
        (&[BEGIN, COPY], true),
        (&[ELSEWHERE, COPY], false),
        (&[BEGIN, END, COPY], false),
    ];
    for (steps, expected) in table {
        let trace = recorded(steps);
        let mut writes = HostWrites::default();
        let mut is_captured = false;
        for call in trace.calls() {
            writes.enter(&call);
            is_captured = writes.is_captured(&call);
            writes.apply(&call);
        }
        assert_eq!(is_captured, expected, "{steps:?}");
    }
}
