//! What calls need.

use cutape_format::layout::{OriginNote, field};
use cutape_format::{NewCall, NewSnapshot, Trace, TraceBuilder};
use cutape_model::{Need, Needs, NeedsBuilder};

/// Function, arguments, the handle that it writes behind its first parameter (0 for none), and the
/// words of kernel parameters or of copied bytes.
type Step = (&'static str, &'static [u64], u64, &'static [u64]);

fn needs(name: &str, steps: &[Step]) -> Needs {
    needs_in(name, steps, NeedsBuilder::default())
}

fn needs_in(name: &str, steps: &[Step], mut builder: NeedsBuilder) -> Needs {
    let trace = trace(name, steps);
    for call in trace.calls() {
        builder.push(&call, &|bytes| {
            Some(trace.resolve(bytes).ok()?.into_owned().into())
        });
    }
    builder.finish()
}

fn trace(name: &str, steps: &[Step]) -> Trace {
    let mut builder = TraceBuilder::new(cutape_registry::SIGNATURE_TEXT);
    for &(name, arguments, handle, words) in steps {
        let handle_bytes = handle.to_le_bytes();
        let written = [NewSnapshot::pointee(0, &handle_bytes)];
        let words: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let before = match name {
            "cuLaunchKernel" => [NewSnapshot::piece(9, field::KERNEL_PARAMETERS, &words)],
            _ => [NewSnapshot::pointee(1, &words)],
        };
        builder.call(NewCall {
            name,
            arguments,
            snapshots: if words.is_empty() { &[] } else { &before },
            ..NewCall::default()
        });
        if name == "cuFuncGetAttribute" {
            let origin = OriginNote {
                handle: PRIVATE,
                owner: 0xa,
                is_kernel: 0,
            };
            builder.origin_note(0, origin, "k");
        }
        builder.leave(0, 0, if handle == 0 { &[] } else { &written });
    }
    opened(name, &builder)
}

fn opened(name: &str, builder: &TraceBuilder) -> Trace {
    let file = format!("cutape-needs-{name}-{}.cutape", std::process::id());
    let path = std::env::temp_dir().join(file);
    builder.write(&path).unwrap();
    let trace = Trace::open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    trace
}

/// 0 to 5: a context, memory at 0x10000 and 0x20000, a module with a function, a stream.
const START: [Step; 6] = [
    ("cuCtxCreate_v2", &[1, 0, 0], 0xc, &[]),
    ("cuMemAlloc_v2", &[1, 0x1000], 0x10000, &[]),
    ("cuMemAlloc_v2", &[1, 0x1000], 0x20000, &[]),
    ("cuModuleLoadData", &[1, 2], 0xa, &[]),
    ("cuModuleGetFunction", &[1, 0xa, 3], 0xf, &[]),
    ("cuStreamCreate", &[1, 1], 0x5, &[]),
];

const LAUNCH: &[u64] = &[0xf, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0];
const LAUNCH_ON_STREAM: &[u64] = &[0xf, 1, 1, 1, 1, 1, 1, 0, 0x5, 0, 0];
/// A function of the module that no call returns.
const PRIVATE: u64 = 0xf1;
const LAUNCH_PRIVATE: &[u64] = &[PRIVATE, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0];
const UPLOAD: &[u64] = &[0x10000, 0x7000, 0x1000];
const CONTENT: &[u64] = &[1, 2];

/// Calls behind the start, from 6; then the calls of the closure of the last one, without what ends
/// what they began.
const NEEDS_OF_THE_LAST: &[(&str, &[Step], &[u64])] = &[
    (
        "memory",
        &[("cuMemsetD8_v2", &[0x10000, 0, 16], 0, &[])],
        &[0, 1, 6],
    ),
    (
        "content",
        &[
            ("cuMemcpyHtoD_v2", UPLOAD, 0, CONTENT),
            ("cuMemcpyDtoH_v2", &[0x7000, 0x10000, 8], 0, &[]),
        ],
        &[0, 1, 6, 7],
    ),
    (
        "overwritten-content",
        &[
            ("cuMemsetD8_v2", &[0x10000, 0, 16], 0, &[]),
            ("cuMemcpyHtoD_v2", UPLOAD, 0, CONTENT),
            ("cuMemcpyDtoH_v2", &[0x7000, 0x10000, 8], 0, &[]),
        ],
        &[0, 1, 7, 8],
    ),
    (
        "other-content",
        &[
            ("cuMemsetD8_v2", &[0x10800, 0, 16], 0, &[]),
            ("cuMemcpyDtoH_v2", &[0x7000, 0x10000, 8], 0, &[]),
        ],
        &[0, 1, 7],
    ),
    (
        "launched-content",
        &[
            ("cuMemsetD8_v2", &[0x10000, 0, 16], 0, &[]),
            ("cuLaunchKernel", LAUNCH, 0, &[0x10100]),
            ("cuMemcpyDtoH_v2", &[0x7000, 0x10000, 8], 0, &[]),
        ],
        &[0, 1, 3, 4, 6, 7, 8],
    ),
    (
        "pointer-in-memory",
        &[
            ("cuMemcpyHtoD_v2", UPLOAD, 0, &[0x20010]),
            ("cuLaunchKernel", LAUNCH, 0, &[0x10000]),
            ("cuMemcpyDtoH_v2", &[0x7000, 0x20000, 8], 0, &[]),
        ],
        &[0, 1, 2, 3, 4, 6, 7, 8],
    ),
    (
        "order",
        &[
            ("cuLaunchKernel", LAUNCH_ON_STREAM, 0, &[0x10000]),
            ("cuStreamSynchronize", &[0x5], 0, &[]),
            ("cuMemcpyDtoH_v2", &[0x7000, 0x10000, 8], 0, &[]),
        ],
        &[0, 1, 3, 4, 5, 6, 7, 8],
    ),
    (
        "after-free",
        &[
            ("cuMemFree_v2", &[0x10000], 0, &[]),
            ("cuMemsetD8_v2", &[0x10000, 0, 16], 0, &[]),
        ],
        &[0, 1, 6, 7],
    ),
    (
        "allocated-again",
        &[
            ("cuMemsetD8_v2", &[0x10000, 0, 16], 0, &[]),
            ("cuMemFree_v2", &[0x10000], 0, &[]),
            ("cuMemAlloc_v2", &[1, 0x1000], 0x10000, &[]),
            ("cuMemcpyDtoH_v2", &[0x7000, 0x10000, 8], 0, &[]),
        ],
        &[0, 8, 9],
    ),
    (
        "attribute",
        &[
            ("cuFuncSetAttribute", &[0xf, 8, 1], 0, &[]),
            ("cuLaunchKernel", LAUNCH, 0, &[7]),
        ],
        &[0, 3, 4, 6, 7],
    ),
    (
        "attribute-set-again",
        &[
            ("cuFuncSetAttribute", &[0xf, 8, 1], 0, &[]),
            ("cuFuncSetAttribute", &[0xf, 9, 1], 0, &[]),
            ("cuFuncSetAttribute", &[0xf, 8, 2], 0, &[]),
            ("cuLaunchKernel", LAUNCH, 0, &[7]),
        ],
        &[0, 3, 4, 7, 8, 9],
    ),
    (
        "current-context",
        &[
            ("cuCtxCreate_v2", &[1, 0, 0], 0xd, &[]),
            ("cuMemAlloc_v2", &[1, 16], 0x30000, &[]),
            ("cuCtxPopCurrent_v2", &[1], 0xd, &[]),
            ("cuMemAlloc_v2", &[1, 16], 0x40000, &[]),
        ],
        &[0, 9],
    ),
    // The driver's private tables made the first context current again.
    (
        "shown-context",
        &[
            ("cuCtxSetCurrent", &[0xd], 0, &[]),
            ("cuCtxGetCurrent", &[1], 0xc, &[]),
            ("cuCtxSetCurrent", &[0xd], 0, &[]),
            ("cuMemAlloc_v2", &[1, 16], 0x30000, &[]),
        ],
        &[0, 6, 8, 9],
    ),
    (
        "event",
        &[
            ("cuEventCreate", &[1, 0], 0xe, &[]),
            ("cuEventRecord", &[0xe, 0], 0, &[]),
            ("cuEventRecord", &[0xe, 0x5], 0, &[]),
            ("cuStreamWaitEvent", &[0, 0xe, 0], 0, &[]),
        ],
        &[0, 5, 6, 8, 9],
    ),
    // Earlier waits for the same stream order nothing that is needed.
    (
        "last-wait",
        &[
            ("cuEventCreate", &[1, 0], 0xe, &[]),
            ("cuStreamCreate", &[1, 1], 0x6, &[]),
            ("cuEventRecord", &[0xe, 0x5], 0, &[]),
            ("cuStreamWaitEvent", &[0x6, 0xe, 0], 0, &[]),
            ("cuLaunchKernel", LAUNCH_ON_STREAM, 0, &[0x10000]),
            ("cuEventRecord", &[0xe, 0x5], 0, &[]),
            ("cuStreamWaitEvent", &[0x6, 0xe, 0], 0, &[]),
            (COPY_ASYNC, &[0x20000, 0x10000, 8, 0x6], 0, &[]),
        ],
        &[0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12, 13],
    ),
    (
        "wait-through-another-stream",
        &[
            ("cuEventCreate", &[1, 0], 0xe, &[]),
            ("cuStreamCreate", &[1, 1], 0x6, &[]),
            ("cuStreamCreate", &[1, 1], 0x7, &[]),
            ("cuLaunchKernel", LAUNCH_ON_STREAM, 0, &[0x10000]),
            ("cuEventRecord", &[0xe, 0x5], 0, &[]),
            ("cuStreamWaitEvent", &[0x6, 0xe, 0], 0, &[]),
            ("cuEventRecord", &[0xe, 0x6], 0, &[]),
            ("cuStreamWaitEvent", &[0x7, 0xe, 0], 0, &[]),
            (COPY_ASYNC, &[0x20000, 0x10000, 8, 0x7], 0, &[]),
        ],
        &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14],
    ),
    (
        "wait-behind-a-reader",
        &[
            ("cuEventCreate", &[1, 0], 0xe, &[]),
            ("cuStreamCreate", &[1, 1], 0x6, &[]),
            (COPY_ASYNC, &[0x20000, 0x10000, 8, 0x5], 0, &[]),
            ("cuEventRecord", &[0xe, 0x5], 0, &[]),
            ("cuStreamWaitEvent", &[0x6, 0xe, 0], 0, &[]),
            ("cuMemsetD8Async", &[0x10000, 1, 16, 0x6], 0, &[]),
        ],
        &[0, 1, 5, 6, 7, 9, 10, 11],
    ),
    (
        "variable-of-a-private-function",
        &[
            ("cuModuleGetGlobal_v2", &[1, 0, 0xa, 3], 0x50000, &[]),
            ("cuMemcpyHtoD_v2", &[0x50000, 0x7000, 16], 0, CONTENT),
            ("cuFuncGetAttribute", &[1, 0, PRIVATE], 0, &[]),
            ("cuLaunchKernel", LAUNCH_PRIVATE, 0, &[0x20000]),
        ],
        &[0, 2, 3, 6, 7, 8, 9],
    ),
    (
        "host-waits",
        &[
            ("cuEventCreate", &[1, 0], 0xe, &[]),
            ("cuEventRecord", &[0xe, 0x5], 0, &[]),
            ("cuEventSynchronize", &[0xe], 0, &[]),
            ("cuLaunchKernel", LAUNCH_ON_STREAM, 0, &[0x10000]),
            ("cuEventRecord", &[0xe, 0x5], 0, &[]),
            ("cuEventSynchronize", &[0xe], 0, &[]),
            ("cuMemcpyDtoH_v2", &[0x7000, 0x10000, 8], 0, &[]),
        ],
        &[0, 1, 3, 4, 5, 6, 9, 10, 11, 12],
    ),
];

/// Copies on the device.
const COPY_ASYNC: &str = "cuMemcpyDtoDAsync_v2";

#[test]
fn the_last_call_needs() {
    for &(name, steps, expected) in NEEDS_OF_THE_LAST {
        let needs = needs(name, &[&START, steps].concat());
        let last = needs.calls() - 1;
        let kept = needs.closure([last], |_, _, need| need != Need::Completion);
        let kept: Vec<u64> = (0..)
            .zip(kept)
            .filter(|call| call.1)
            .map(|call| call.0)
            .collect();
        assert_eq!(kept, expected, "{name}");
    }
}

/// A round that leaves nothing behind but what it has written: 11 calls.
const ROUND: [Step; 11] = [
    ("cuMemAlloc_v2", &[1, 0x1000], 0x30000, &[]),
    ("cuEventCreate", &[1, 0], 0xe, &[]),
    ("cuMemcpyHtoD_v2", UPLOAD, 0, &[0x30010, 2]),
    ("cuLaunchKernel", LAUNCH_ON_STREAM, 0, &[0x30000]),
    ("cuEventRecord", &[0xe, 0x5], 0, &[]),
    ("cuEventSynchronize", &[0xe], 0, &[]),
    ("cuMemsetD8Async", &[0x20000, 0, 0x1000, 0x5], 0, &[]),
    ("cuCtxSynchronize", &[], 0, &[]),
    ("cuFuncSetAttribute", &[0xf, 8, 1], 0, &[]),
    ("cuEventDestroy_v2", &[0xe], 0, &[]),
    ("cuMemFree_v2", &[0x30000], 0, &[]),
];

#[test]
fn needs_that_are_forgotten_are_not_missed() {
    let end: [Step; 2] = [
        ("cuMemcpyDtoD_v2", &[0x20000, 0x10000, 0x1000], 0, &[]),
        ("cuCtxDestroy_v2", &[0xc], 0, &[]),
    ];
    let mut steps = START.to_vec();
    (0..40).for_each(|_| steps.extend(ROUND));
    steps.extend(end);
    let all = needs("all", &steps);
    let copy = all.calls() - 2;
    for chosen in [vec![copy], vec![100, 101, 102], vec![99, copy], vec![6]] {
        let builder = NeedsBuilder::of_chosen(&chosen);
        let kept = needs_in("chosen", &steps, builder);
        let closure = |needs: &Needs| needs.closure(chosen.clone(), |_, _, _| true);
        assert!(closure(&kept) == closure(&all), "{chosen:?}");
    }
    let held = |needs: &Needs| {
        (6..copy)
            .filter(|&call| needs.of(call).next().is_some())
            .count()
    };
    let kept = needs_in("copy", &steps, NeedsBuilder::of_chosen(&[copy]));
    assert!(held(&kept) < held(&all) / 2);
    // What the last round wrote, and its wait.
    let kept = kept.closure([copy], |_, _, _| true);
    let kept = (0..copy).filter(|&call| kept[call as usize]).count();
    assert!(kept < START.len() + 4, "{kept}");
}

/// A call that was entered before the one that destroys an object may get its handle.
#[test]
fn a_handle_that_comes_again_is_the_older_object_until_the_call_returns() {
    let mut builder = TraceBuilder::new(cutape_registry::SIGNATURE_TEXT);
    let stream = 0x5_u64.to_le_bytes();
    let made = [NewSnapshot::pointee(0, &stream)];
    let call = |thread, name, arguments| NewCall {
        thread,
        name,
        arguments,
        ..NewCall::default()
    };
    builder.call(call(0, "cuStreamCreate", &[1, 1]));
    builder.leave(0, 0, &made);
    builder.call(call(1, "cuStreamCreate", &[1, 1]));
    builder.call(call(0, "cuStreamSynchronize", &[0x5]));
    builder.leave(0, 0, &[]);
    builder.call(call(0, "cuStreamDestroy_v2", &[0x5]));
    builder.leave(0, 0, &[]);
    builder.leave(1, 0, &made);
    builder.call(call(0, "cuStreamSynchronize", &[0x5]));
    builder.leave(0, 0, &[]);
    let trace = opened("handle", &builder);
    let taken_in = |mut needs: NeedsBuilder| {
        trace.calls().for_each(|call| needs.push(&call, &|_| None));
        needs
    };
    let needs = taken_in(NeedsBuilder::default()).finish();
    let needs_of = |call| needs.of(call).collect::<Vec<_>>();
    assert_eq!(needs_of(2), [(0, Need::Existence)]);
    assert_eq!(needs_of(4), [(1, Need::Existence)]);
    let (live, _) = taken_in(NeedsBuilder::of_live()).finish_live();
    assert_eq!(live, [1]);
}

#[test]
fn what_lives_needs_nothing_that_has_ended() {
    let cases: [(&str, &[Step]); 3] = [
        // Nodes use a kernel and a context, and do not change them.
        (
            "nodes",
            &[
                ("cuGraphCreate", &[1, 0], 0x6, &[]),
                ("cuGraphAddMemsetNode", &[1, 0x6, 0, 0, 9, 0xc], 0x7, &[]),
                ("cuGraphDestroy", &[0x6], 0, &[]),
            ],
        ),
        (
            "reservation",
            &[
                ("cuMemAddressReserve", &[1, 0x1000, 0, 0, 0], 0x50000, &[]),
                ("cuMemUnmap", &[0x50000, 0x1000], 0, &[]),
                ("cuMemAddressFree", &[0x50000, 0x1000], 0, &[]),
            ],
        ),
        // Another stream captures: what is freed in this one is freed.
        (
            "capture",
            &[
                ("cuStreamCreate", &[1, 1], 0x8, &[]),
                ("cuMemAllocAsync", &[1, 0x100, 0x5], 0x60000, &[]),
                ("cuStreamBeginCapture_v2", &[0x8, 2], 0, &[]),
                ("cuMemFreeAsync", &[0x60000, 0x5], 0, &[]),
                ("cuStreamEndCapture", &[0x8, 1], 0, &[]),
                ("cuStreamDestroy_v2", &[0x8], 0, &[]),
            ],
        ),
    ];
    for (name, steps) in cases {
        let steps: Vec<Step> = START.iter().chain(steps).copied().collect();
        let trace = trace(name, &steps);
        let mut needs = NeedsBuilder::of_live();
        trace.calls().for_each(|call| needs.push(&call, &|_| None));
        let (live, _) = needs.finish_live();
        let mut others = live.iter().filter(|&&call| call >= START.len() as u64);
        assert_eq!(others.next(), None, "{name}: {live:?}");
    }
}

#[test]
fn what_is_begun_is_ended() {
    let steps: &[Step] = &[
        ("cuLaunchKernel", LAUNCH_ON_STREAM, 0, &[0x10000]),
        ("cuStreamSynchronize", &[0x5], 0, &[]),
        ("cuStreamDestroy_v2", &[0x5], 0, &[]),
        ("cuMemFree_v2", &[0x20000], 0, &[]),
        ("cuMemFree_v2", &[0x10000], 0, &[]),
        ("cuModuleUnload", &[0xa], 0, &[]),
        ("cuCtxDestroy_v2", &[0xc], 0, &[]),
    ];
    let needs = needs("ended", &[&START, steps].concat());
    let kept = needs.closure([6], |_, _, _| true);
    let left: Vec<usize> = (0..kept.len()).filter(|&call| !kept[call]).collect();
    assert_eq!(left, [2, 9], "memory that the launch does not use");
    assert!(needs.computes(6) && !needs.computes(7));
}

#[test]
fn one_call_unmaps_what_several_have_mapped() {
    let mapped: &[Step] = &[
        ("cuMemAddressReserve", &[1, 0x2000, 0, 0, 0], 0x40000, &[]),
        ("cuMemCreate", &[1, 0x1000, 2, 0], 0x9, &[]),
        ("cuMemMap", &[0x40000, 0x1000, 0, 0x9, 0], 0, &[]),
        ("cuMemMap", &[0x41000, 0x1000, 0, 0x9, 0], 0, &[]),
        ("cuMemUnmap", &[0x40000, 0x2000], 0, &[]),
        ("cuMemAddressFree", &[0x40000, 0x2000], 0, &[]),
    ];
    let needs = needs("unmapped", &[&START, mapped].concat());
    for map in [8, 9] {
        let kept = needs.closure([map], |_, _, _| true);
        assert!(kept[6] && kept[7] && kept[10] && kept[11], "{map}");
    }
}
