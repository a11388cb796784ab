//! Captures and graphs: their answers, as measured on driver 580.159.04 where the comment says so.

mod driver;

use std::sync::Mutex;

use driver::{Setup, at, call, code, launch, make, ok, out, setup};

const UNSUPPORTED: u32 = 900;
const INVALIDATED: u32 = 901;
const MERGE: u32 = 902;
const UNMATCHED: u32 = 903;
const UNJOINED: u32 = 904;
const ISOLATION: u32 = 905;
const IMPLICIT: u32 = 906;
const CAPTURED_EVENT: u32 = 907;
const WRONG_THREAD: u32 = 908;
const UPDATE_FAILURE: u32 = 910;

/// Captures of mode global affect calls of other threads: one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// What the steps of a scenario work with.
struct Scene {
    s: Setup,
    /// A second stream, non-blocking as the first one, and one that blocks.
    side: u64,
    blocking: u64,
    /// An event recorded on no stream, and one recorded before anything is captured.
    event: u64,
    old: u64,
    graph: u64,
}

impl Scene {
    fn new() -> Self {
        let s = setup();
        let old = make("cuEventCreate", &[2]);
        ok("cuEventRecord", &[old, s.stream]);
        Scene {
            s,
            side: make("cuStreamCreate", &[1]),
            blocking: make("cuStreamCreate", &[0]),
            event: make("cuEventCreate", &[2]),
            old,
            graph: 0,
        }
    }

    fn play(&mut self, step: Step) -> u32 {
        let mut word = 0_u64;
        match step {
            Begin(mode) => call("cuStreamBeginCapture_v2", &[self.s.stream, mode]),
            BeginOn(which) => {
                let stream = self.stream(which);
                call("cuStreamBeginCapture_v2", &[stream, 0])
            }
            End(which) => {
                let stream = self.stream(which);
                call("cuStreamEndCapture", &[stream, out(&mut self.graph)])
            }
            EndElsewhere => {
                let stream = self.s.stream;
                let end = move || {
                    let mut graph = 0_u64;
                    call("cuStreamEndCapture", &[stream, out(&mut graph)])
                };
                let thread = std::thread::spawn(end);
                thread.join().expect("the thread ends")
            }
            Launch(which) => launch(self.s.kernel, self.stream(which)),
            Record(which) => call("cuEventRecord", &[self.event, self.stream(which)]),
            Wait(which) => call("cuStreamWaitEvent", &[self.stream(which), self.event, 0]),
            WaitOld(which) => call("cuStreamWaitEvent", &[self.stream(which), self.old, 0]),
            Synchronize(which) => call("cuStreamSynchronize", &[self.stream(which)]),
            Query => call("cuEventQuery", &[self.event]),
            Allocate => call("cuMemAlloc_v2", &[out(&mut word), 64]),
            Relax => {
                word = 2;
                call("cuThreadExchangeStreamCaptureMode", &[out(&mut word)])
            }
            Global => call("cuThreadExchangeStreamCaptureMode", &[out(&mut word)]),
            Context => call("cuCtxSynchronize", &[]),
            CopySync => call("cuMemcpyDtoD_v2", &[self.s.memory, self.s.memory + 64, 4]),
            Callback => call("cuStreamAddCallback", &[self.s.stream, 1, 0, 0]),
            Status(expected) => {
                let mut status = 9_u32;
                let result = call("cuStreamIsCapturing", &[self.s.stream, out(&mut status)]);
                assert_eq!(status, expected, "status");
                result
            }
        }
    }

    fn stream(&self, which: Which) -> u64 {
        match which {
            Main => self.s.stream,
            Side => self.side,
            Blocking => self.blocking,
            Legacy => 1,
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Which {
    Main,
    Side,
    Blocking,
    Legacy,
}
use Which::*;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// On the first stream, in that mode.
    Begin(u64),
    BeginOn(Which),
    End(Which),
    EndElsewhere,
    Launch(Which),
    Record(Which),
    Wait(Which),
    WaitOld(Which),
    Synchronize(Which),
    Query,
    Allocate,
    Relax,
    Global,
    Context,
    CopySync,
    Callback,
    Status(u32),
}
use Step::*;

type Scenario = (&'static str, &'static [(Step, u32)]);

const SCENARIOS: &[Scenario] = &[
    (
        "one stream",
        &[
            (Begin(0), 0),
            (Launch(Main), 0),
            (Status(1), 0),
            (End(Main), 0),
            (Status(0), 0),
        ],
    ),
    (
        "begun twice",
        &[
            (Begin(0), 0),
            (Begin(0), code::ILLEGAL_STATE),
            (End(Main), 0),
        ],
    ),
    ("no such mode", &[(Begin(3), code::INVALID_VALUE)]),
    ("the legacy stream", &[(BeginOn(Legacy), UNSUPPORTED)]),
    ("not begun", &[(End(Main), code::ILLEGAL_STATE)]),
    (
        "ended on a stream that does not capture",
        &[
            (Begin(0), 0),
            (Launch(Main), 0),
            (End(Side), code::ILLEGAL_STATE),
            (Context, UNSUPPORTED),
            (End(Main), INVALIDATED),
        ],
    ),
    (
        "ended on a stream that joined",
        &[
            (Begin(0), 0),
            (Record(Main), 0),
            (Wait(Side), 0),
            (End(Side), UNMATCHED),
            (End(Main), INVALIDATED),
        ],
    ),
    (
        "ended by another thread",
        &[(Begin(1), 0), (EndElsewhere, WRONG_THREAD), (End(Main), 0)],
    ),
    (
        "ended by another thread, relaxed",
        &[(Begin(2), 0), (EndElsewhere, 0), (Status(0), 0)],
    ),
    (
        "a fork that is not joined",
        &[
            (Begin(0), 0),
            (Record(Main), 0),
            (Wait(Side), 0),
            (Launch(Side), 0),
            (End(Main), UNJOINED),
            (Context, 0),
        ],
    ),
    (
        "a fork that is joined",
        &[
            (Begin(0), 0),
            (Record(Main), 0),
            (Wait(Side), 0),
            (Launch(Side), 0),
            (Record(Side), 0),
            (Wait(Main), 0),
            (End(Main), 0),
        ],
    ),
    (
        "an allocation",
        &[
            (Begin(0), 0),
            (Allocate, UNSUPPORTED),
            (End(Main), INVALIDATED),
            (Context, 0),
        ],
    ),
    (
        "an allocation, relaxed",
        &[
            (Begin(0), 0),
            (Relax, 0),
            (Allocate, 0),
            (Global, 0),
            (End(Main), 0),
        ],
    ),
    (
        "an allocation in a relaxed capture",
        &[(Begin(2), 0), (Allocate, 0), (End(Main), 0)],
    ),
    (
        "waiting for the stream",
        &[
            (Begin(0), 0),
            (Launch(Main), 0),
            (Synchronize(Main), UNSUPPORTED),
            (Status(2), 0),
            (Launch(Main), INVALIDATED),
            (End(Main), INVALIDATED),
            (Context, 0),
        ],
    ),
    (
        "waiting for another stream",
        &[
            (Begin(0), 0),
            (Synchronize(Side), UNSUPPORTED),
            (End(Main), INVALIDATED),
        ],
    ),
    (
        "waiting for another stream, relaxed",
        &[
            (Begin(0), 0),
            (Relax, 0),
            (Synchronize(Side), 0),
            (Global, 0),
            (End(Main), 0),
        ],
    ),
    (
        "a copy that waits beside a non-blocking stream",
        &[(Begin(0), 0), (CopySync, 0), (End(Main), 0)],
    ),
    (
        "asking for a captured event",
        &[
            (Begin(2), 0),
            (Record(Main), 0),
            (Query, CAPTURED_EVENT),
            (End(Main), INVALIDATED),
        ],
    ),
    (
        "asking for an event of a capture that is over",
        &[
            (Begin(0), 0),
            (Record(Main), 0),
            (End(Main), 0),
            (Query, code::INVALID_VALUE),
        ],
    ),
    (
        "work on the legacy stream",
        &[
            (BeginOn(Blocking), 0),
            (Launch(Legacy), IMPLICIT),
            (End(Blocking), INVALIDATED),
            (Context, 0),
        ],
    ),
    (
        "a copy that waits",
        &[
            (BeginOn(Blocking), 0),
            (CopySync, IMPLICIT),
            (End(Blocking), INVALIDATED),
        ],
    ),
    (
        "work on the legacy stream beside a non-blocking one",
        &[(Begin(0), 0), (Launch(Legacy), 0), (End(Main), 0)],
    ),
    (
        "waiting for an event from before",
        &[
            (Begin(0), 0),
            (WaitOld(Main), ISOLATION),
            (Context, UNSUPPORTED),
            (End(Main), INVALIDATED),
        ],
    ),
    (
        "waiting for an event of another capture",
        &[
            (Begin(0), 0),
            (Record(Main), 0),
            (BeginOn(Side), 0),
            (Wait(Side), MERGE),
            (End(Main), INVALIDATED),
            (End(Side), INVALIDATED),
        ],
    ),
    (
        "what cannot be captured",
        &[
            (Begin(0), 0),
            (Callback, UNSUPPORTED),
            (End(Main), INVALIDATED),
        ],
    ),
];

#[test]
fn captures_answer_as_documented() {
    let _alone = ALONE.lock();
    for (name, steps) in SCENARIOS {
        let mut scene = Scene::new();
        for (number, (step, expected)) in steps.iter().enumerate() {
            assert_eq!(
                scene.play(*step),
                *expected,
                "{name}: step {number}, {step:?}"
            );
        }
        if scene.graph != 0 {
            ok("cuGraphDestroy", &[scene.graph]);
        }
    }
}

/// A CUDA_MEMSET_NODE_PARAMS: address, pitch, value with element size, width, height.
fn memset(address: u64, value: u64, width: u64) -> [u64; 5] {
    [address, 0, value | 4 << 32, width, 1]
}

fn add_memset(graph: u64, after: &[u64], params: &[u64; 5], context: u64) -> u64 {
    let count = after.len() as u64;
    let words = [graph, at(after), count, at(params), context];
    make("cuGraphAddMemsetNode", &words)
}

fn first_word(memory: u64) -> u32 {
    let mut value = 0_u32;
    ok("cuMemcpyDtoH_v2", &[out(&mut value), memory, 4]);
    value
}

#[test]
fn work_is_done_in_the_order_of_the_edges() {
    let _alone = ALONE.lock();
    let s = setup();
    let graph = make("cuGraphCreate", &[0]);
    // The node that is added first runs last.
    let last = add_memset(graph, &[], &memset(s.memory, 2, 1), s.context);
    let first = add_memset(graph, &[], &memset(s.memory, 1, 1), s.context);
    let edge = |name: &str| call(name, &[graph, at(&[first]), at(&[last]), 1]);
    assert_eq!(edge("cuGraphAddDependencies"), 0);
    assert_eq!(edge("cuGraphAddDependencies"), code::INVALID_VALUE, "twice");
    let exec = make("cuGraphInstantiateWithFlags", &[graph, 0]);
    ok("cuGraphLaunch", &[exec, s.stream]);
    assert_eq!(first_word(s.memory), 2);
    // The other way round as well: no order is left.
    ok(
        "cuGraphAddDependencies",
        &[graph, at(&[last]), at(&[first]), 1],
    );
    let mut none = 0_u64;
    let circle = call("cuGraphInstantiateWithFlags", &[out(&mut none), graph, 0]);
    assert_eq!(circle, code::INVALID_VALUE);
    ok(
        "cuGraphRemoveDependencies",
        &[graph, at(&[first]), at(&[last]), 1],
    );
    let other = make("cuGraphInstantiateWithFlags", &[graph, 0]);
    ok("cuGraphLaunch", &[other, s.stream]);
    assert_eq!(first_word(s.memory), 1);
}

#[test]
fn misuse_of_graphs_is_refused() {
    let _alone = ALONE.lock();
    let s = setup();
    let graph = make("cuGraphCreate", &[0]);
    let strange = make("cuGraphCreate", &[0]);
    let node = add_memset(graph, &[], &memset(s.memory, 1, 1), s.context);
    let foreign = add_memset(strange, &[], &memset(s.memory, 1, 1), s.context);
    let exec = make("cuGraphInstantiateWithFlags", &[graph, 0]);
    let mut word = 0_u64;
    let slot = out(&mut word);
    let bad_unit = [s.memory, 0, 1 | 3 << 32, 1, 1];
    let bad_place = memset(s.memory + 2, 1, 1);
    let twice = [node, node];
    let no_function = [0_u64; 2];
    let change = memset(s.memory, 3, 1);
    let invalid = code::INVALID_VALUE;
    let rows: &[(&str, &[u64], u32)] = &[
        ("cuGraphCreate", &[slot, 1], invalid),
        ("cuGraphCreate", &[0, 0], invalid),
        (
            "cuGraphAddEmptyNode",
            &[slot, graph, at(&[foreign]), 1],
            invalid,
        ),
        (
            "cuGraphAddEmptyNode",
            &[slot, graph, at(&twice), 2],
            invalid,
        ),
        ("cuGraphAddEmptyNode", &[slot, graph, 0, 1], invalid),
        (
            "cuGraphAddMemsetNode",
            &[slot, graph, 0, 0, at(&bad_unit), s.context],
            invalid,
        ),
        (
            "cuGraphAddMemsetNode",
            &[slot, graph, 0, 0, at(&bad_place), s.context],
            invalid,
        ),
        (
            "cuGraphAddHostNode",
            &[slot, graph, 0, 0, at(&no_function)],
            invalid,
        ),
        (
            "cuGraphAddChildGraphNode",
            &[slot, graph, 0, 0, graph],
            invalid,
        ),
        ("cuGraphHostNodeGetParams", &[node, slot], invalid),
        (
            "cuGraphAddDependencies",
            &[graph, at(&[node]), at(&[node]), 1],
            invalid,
        ),
        (
            "cuGraphAddDependencies",
            &[graph, at(&[node]), at(&[foreign]), 1],
            invalid,
        ),
        ("cuGraphInstantiateWithFlags", &[slot, graph, 16], invalid),
        (
            "cuGraphInstantiateWithFlags",
            &[slot, graph, 4],
            code::NOT_SUPPORTED,
        ),
        ("cuGraphNodeSetEnabled", &[exec, foreign, 0], invalid),
        (
            "cuGraphExecMemsetNodeSetParams",
            &[exec, foreign, at(&change), s.context],
            invalid,
        ),
        ("cuUserObjectCreate", &[slot, 1, 0, 1, 1], invalid),
        ("cuUserObjectCreate", &[slot, 1, 1, 0, 1], invalid),
        ("cuUserObjectRelease", &[7, 1], invalid),
        ("cuGraphLaunch", &[graph, s.stream], invalid),
        ("cuGraphDestroy", &[exec], invalid),
    ];
    for (name, arguments, expected) in rows {
        assert_eq!(call(name, arguments), *expected, "{name}({arguments:x?})");
    }
    // A node of a destroyed graph cannot be named (measured).
    ok("cuGraphDestroy", &[graph]);
    let destroyed = [exec, node, at(&change), s.context];
    assert_eq!(call("cuGraphExecMemsetNodeSetParams", &destroyed), invalid);
    // The executable graph does not need it.
    ok("cuGraphLaunch", &[exec, s.stream]);
    // A launch accepts memory that was freed (measured).
    ok("cuMemFree_v2", &[s.memory]);
    ok("cuGraphLaunch", &[exec, s.stream]);
}

#[test]
fn an_update_must_fit() {
    let _alone = ALONE.lock();
    let s = setup();
    let made = |value: u64, nodes: usize| {
        let graph = make("cuGraphCreate", &[0]);
        for _ in 0..nodes {
            add_memset(graph, &[], &memset(s.memory, value, 1), s.context);
        }
        graph
    };
    let exec = make("cuGraphInstantiateWithFlags", &[made(1, 1), 0]);
    let mut told = [9_u64; 3];
    for (graph, expected, value) in [(made(5, 1), 0, 5), (made(6, 2), UPDATE_FAILURE, 5)] {
        let update = [exec, graph, out(&mut told)];
        assert_eq!(call("cuGraphExecUpdate_v2", &update), expected);
        assert_eq!(told[0] as u32 == 0, expected == 0);
        ok("cuGraphLaunch", &[exec, s.stream]);
        assert_eq!(first_word(s.memory), value, "unchanged by a failure");
    }
}

#[test]
fn graph_memory_is_allocated_between_its_nodes() {
    let _alone = ALONE.lock();
    let s = setup();
    let (mut own, mut graph) = (0_u64, 0_u64);
    let capture = |own: &mut u64, graph: &mut u64, free: bool| {
        ok("cuStreamBeginCapture_v2", &[s.stream, 0]);
        ok("cuMemAllocAsync", &[out(own), 256, s.stream]);
        ok("cuMemsetD32Async", &[*own, 7, 64, s.stream]);
        if free {
            ok("cuMemFreeAsync", &[*own, s.stream]);
        }
        ok("cuStreamEndCapture", &[s.stream, out(graph)]);
        make("cuGraphInstantiateWithFlags", &[*graph, 0])
    };
    let exec = capture(&mut own, &mut graph, true);
    let mut none = 0_u64;
    let again = call("cuGraphInstantiateWithFlags", &[out(&mut none), graph, 0]);
    assert_eq!(again, code::NOT_SUPPORTED, "one at a time (measured)");
    ok("cuGraphLaunch", &[exec, s.stream]);
    ok("cuGraphLaunch", &[exec, s.stream]);
    let set = call("cuMemsetD8Async", &[own, 1, 16, s.stream]);
    assert_eq!(set, code::INVALID_VALUE, "destroyed (measured)");
    let exec = capture(&mut own, &mut graph, false);
    let set = call("cuMemsetD8_v2", &[own, 1, 16]);
    assert_eq!(set, code::INVALID_VALUE, "not there yet");
    ok("cuGraphLaunch", &[exec, s.stream]);
    assert_eq!(first_word(own), 7);
    let relaunch = call("cuGraphLaunch", &[exec, s.stream]);
    assert_eq!(relaunch, code::INVALID_VALUE, "not freed (measured)");
    ok("cuMemFree_v2", &[own]);
    ok("cuGraphLaunch", &[exec, s.stream]);
    assert_eq!(first_word(own), 7);
}

/// A new event may get the handle of one that ended with its context.
#[test]
fn an_event_that_ends_with_its_context_leaves_its_capture() {
    let _alone = ALONE.lock();
    let s = setup();
    let context = make("cuCtxCreate_v4", &[0, 0, 0]);
    let stream = make("cuStreamCreate", &[1]);
    let event = make("cuEventCreate", &[2]);
    ok("cuStreamBeginCapture_v2", &[stream, 0]);
    ok("cuEventRecord", &[event, stream]);
    let mut graph = 0_u64;
    ok("cuStreamEndCapture", &[stream, out(&mut graph)]);
    ok("cuCtxDestroy_v2", &[context]);
    ok("cuCtxSetCurrent", &[s.context]);
    let next = make("cuEventCreate", &[2]);
    assert_eq!(next, event);
    ok("cuEventQuery", &[next]);
}
