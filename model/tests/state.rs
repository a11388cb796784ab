//! What sequences of calls do to a `State`.

use cutape_format::{NewCall, NewSnapshot, Trace, TraceBuilder};
use cutape_model::{Changes, Data, Effects, Origin, Retention, State};
use cutape_registry::Kind;

/// Function, arguments, and the handle that it writes behind its first parameter; 0 for none.
type Step = (&'static str, &'static [u64], u64);

fn builder_of(steps: &[Step]) -> TraceBuilder {
    let mut builder = TraceBuilder::new(cutape_registry::SIGNATURE_TEXT);
    for &(name, arguments, handle) in steps {
        let bytes = handle.to_le_bytes();
        let written = [NewSnapshot::pointee(0, &bytes)];
        builder
            .call(NewCall {
                name,
                arguments,
                ..NewCall::default()
            })
            .leave(0, 0, if handle == 0 { &[] } else { &written });
    }
    builder
}

fn opened(name: &str, builder: &TraceBuilder) -> Trace {
    // Tests run at the same time, and several use a name.
    let thread = std::thread::current().id();
    let file = format!(
        "cutape-model-{name}-{}-{thread:?}.cutape",
        std::process::id()
    );
    let path = std::env::temp_dir().join(file);
    builder.write(&path).unwrap();
    let trace = Trace::open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    trace
}

/// The state after the calls, with the changes of the last one.
fn after(name: &str, steps: &[Step]) -> (State<()>, Changes) {
    after_all(&opened(name, &builder_of(steps)))
}

fn after_all(trace: &Trace) -> (State<()>, Changes) {
    let mut state = State::new(Retention::PerHandle);
    let mut changes = Changes::default();
    for call in trace.calls() {
        let function = cutape_registry::function(&call.signature.name).unwrap();
        let effects = Effects::of(function);
        state.settle(call.ticks, call.thread);
        state.submit(&effects, &call);
        state.apply(&effects, &call, &mut |_| None);
        changes = state.take_changes().unwrap_or_default();
    }
    (state, changes)
}

const START: [Step; 4] = [
    ("cuCtxCreate_v2", &[1, 0, 0], 0xc),
    ("cuMemAlloc_v2", &[1, 0x100], 0x1000),
    ("cuModuleLoadData", &[1, 2], 0xa),
    ("cuStreamCreate", &[1, 0], 0x5),
];

#[test]
fn calls_change_objects() {
    for (name, steps, created, ended, superseded) in [
        ("create", &[] as &[Step], 1, 0, 0),
        ("free", &[("cuMemFree_v2", &[0x1000], 0)], 0, 1, 0),
        ("destroy", &[("cuCtxDestroy_v2", &[0xc], 0)], 0, 4, 0),
        ("again", &[("cuStreamCreate", &[1, 0], 0x5)], 1, 0, 1),
        ("unknown", &[("cuStreamDestroy_v2", &[0x6], 0)], 0, 0, 0),
        ("get", &[("cuCtxGetCurrent", &[1], 0xc)], 0, 0, 0),
        (
            "primary",
            &[
                ("cuDevicePrimaryCtxRetain", &[1, 0], 0xe),
                ("cuDevicePrimaryCtxRetain", &[1, 0], 0xe),
                ("cuDevicePrimaryCtxRelease_v2", &[0], 0),
            ],
            0,
            0,
            0,
        ),
    ] {
        let (_, changes) = after(name, &[&START[..], steps].concat());
        let counts = [&changes.created, &changes.ended, &changes.superseded].map(Vec::len);
        assert_eq!(counts, [created, ended, superseded], "{name}");
    }
}

/// A user that does not settle knows, too, whose memory it is after calls that overlap.
#[test]
fn memory_belongs_to_the_call_that_returned_last() {
    let mut builder = TraceBuilder::new(cutape_registry::SIGNATURE_TEXT);
    let address = 0x1000_u64.to_le_bytes();
    let written = [NewSnapshot::pointee(0, &address)];
    let call = |thread, name, arguments| NewCall {
        thread,
        name,
        arguments,
        ..NewCall::default()
    };
    // Of thread 0, entered first and returned last; between them thread 1 has the same address.
    builder.call(call(0, "cuMemAlloc_v2", &[1, 0x200]));
    builder.call(call(1, "cuMemAlloc_v2", &[1, 0x100]));
    builder.leave(1, 0, &written);
    builder.call(call(1, "cuMemFree_v2", &[0x1000]));
    builder.leave(1, 0, &[]);
    builder.leave(0, 0, &written);
    builder.call(call(0, "cuMemsetD8_v2", &[0x1100, 0, 1]));
    builder.leave(0, 0, &[]);
    builder.call(call(0, "cuMemFree_v2", &[0x1000]));
    builder.leave(0, 0, &[]);
    let trace = opened("overlap", &builder);
    let mut state: State<()> = State::new(Retention::PerHandle);
    let mut owners = Vec::new();
    for call in trace.calls() {
        let function = cutape_registry::function(&call.signature.name).unwrap();
        state.apply(&Effects::of(function), &call, &mut |_| None);
        let owner = |address| {
            let object = state.objects.get(state.memory_at(address)?)?;
            Some(object.created.index)
        };
        owners.push((owner(0x1000), owner(0x1100)));
    }
    let (first, second) = (Some(0), Some(1));
    let expected = [
        (first, first),
        (second, None),
        (first, first),
        (first, first),
        (None, None),
    ];
    assert_eq!(owners, expected);
}

#[test]
fn a_found_handle_belongs_to_the_call_that_returned_last() {
    let mut builder = TraceBuilder::new(cutape_registry::SIGNATURE_TEXT);
    let call = |thread, name, arguments| NewCall {
        thread,
        name,
        arguments,
        ..NewCall::default()
    };
    let load = |builder: &mut TraceBuilder, thread, handle: u64| {
        builder.call(call(thread, "cuModuleLoadData", &[1, 2]));
        builder.leave(thread, 0, &[NewSnapshot::pointee(0, &handle.to_le_bytes())]);
    };
    let function = 0xf_u64.to_le_bytes();
    let found = [NewSnapshot::pointee(0, &function)];
    load(&mut builder, 0, 0xa);
    load(&mut builder, 1, 0xb);
    builder.call(call(0, "cuModuleGetFunction", &[1, 0xa, 2]));
    builder.leave(0, 0, &found);
    // Entered before the function of thread 0 ends; the driver gives it the same handle afterwards.
    builder.call(call(1, "cuModuleGetFunction", &[1, 0xb, 2]));
    builder.call(call(0, "cuFuncSetCacheConfig", &[0xf, 0]));
    builder.leave(0, 0, &[]);
    builder.call(call(0, "cuModuleUnload", &[0xa]));
    builder.leave(0, 0, &[]);
    builder.leave(1, 0, &found);
    builder.call(call(1, "cuFuncSetCacheConfig", &[0xf, 0]));
    builder.leave(1, 0, &[]);
    let trace = opened("found", &builder);
    let mut state: State<()> = State::new(Retention::PerHandle);
    let mut owners = Vec::new();
    for call in trace.calls() {
        let function = cutape_registry::function(&call.signature.name).unwrap();
        state.settle(call.ticks, call.thread);
        state.apply(&Effects::of(function), &call, &mut |_| None);
        let live = state.objects.live(Kind::Function, 0xf);
        owners.push(live.and_then(|id| Some(state.objects.get(id)?.created.index)));
    }
    let (first, second) = (Some(2), Some(3));
    assert_eq!(owners, [None, None, None, first, first, None, second]);
}

#[test]
fn contexts_and_memory_follow() {
    let (state, _) = after("start", &START);
    let memory = state.memory_at(0x10ff).unwrap();
    assert_eq!(state.objects.get(memory).unwrap().size, 0x100);
    assert_eq!(state.memory_at(0x1100), None);
    assert_eq!(state.contexts.current(0).handle, 0xc);

    let push: [Step; 2] = [
        ("cuMemFree_v2", &[0x1000], 0),
        ("cuCtxPushCurrent_v2", &[0xd], 0),
    ];
    let (state, _) = after("push", &[&START[..], &push].concat());
    assert_eq!(state.contexts.current(0).handle, 0xd);
    assert_eq!(state.memory_at(0x1000), None);
    let freed = state.freed_at(0x1000).unwrap();
    let end = state.objects.end_of(freed).unwrap();
    assert_eq!(end.site.function, "cuMemFree_v2");
    assert_eq!(state.objects.all_live(Kind::Memory), []);
}

/// Access that cuMemSetAccess gives to a range: device, flags.
type Given = (u64, u64, i32, u32);
/// The access that device 0 has to some of a mapping, and whether it may write all of it.
type Found = (u32, bool);

#[test]
fn mappings_have_the_access_that_calls_give() {
    const START: [Step; 4] = [
        ("cuMemAddressReserve", &[1, 0x3000, 0, 0, 0], 0x40000),
        ("cuMemCreate", &[1, 0x1000, 2, 0], 0x9),
        ("cuMemMap", &[0x40000, 0x1000, 0, 0x9, 0], 0),
        ("cuMemMap", &[0x41000, 0x1000, 0, 0x9, 0], 0),
    ];
    let cases: &[(&[Given], [Found; 2])] = &[
        (&[], [(0, false), (0, false)]),
        (&[(0x40000, 0x2000, 0, 3)], [(3, true), (3, true)]),
        (&[(0x40000, 0x2000, 1, 3)], [(0, false), (0, false)]),
        (&[(0x41000, 0x1000, 0, 1)], [(0, false), (1, false)]),
        (&[(0x40000, 0x1800, 0, 3)], [(3, true), (3, false)]),
        (&[(0x40800, 0x1800, 0, 3)], [(3, false), (3, true)]),
        (
            &[(0x40000, 0x2000, 0, 3), (0x40800, 0x1800, 0, 0)],
            [(0, false), (0, false)],
        ),
    ];
    for (number, (given, expected)) in cases.iter().enumerate() {
        let mut builder = builder_of(&START);
        for &(start, length, device, flags) in *given {
            let description = [1, device as u32, flags].map(u32::to_le_bytes).concat();
            builder
                .call(NewCall {
                    name: "cuMemSetAccess",
                    arguments: &[start, length, 1, 1],
                    snapshots: &[NewSnapshot::pointee(2, &description)],
                    ..NewCall::default()
                })
                .leave(0, 0, &[]);
        }
        let (state, _) = after_all(&opened("access", &builder));
        let memory = &state.virtual_memory;
        let mappings = [0x40fff, 0x41000].map(|at| memory.mappings.find(at).unwrap().1);
        let found = mappings.map(|mapping| {
            assert_eq!(
                mapping.allocation,
                state.objects.live(Kind::Allocation, 0x9)
            );
            let writes = mapping.writers().any(|device| device == 0);
            (mapping.access_of(0).unwrap(), writes)
        });
        assert_eq!(found, *expected, "{number}");
        let without = mappings.map(|mapping| usize::from(mapping.has_no_access()));
        assert_eq!(memory.without_access, without.iter().sum(), "{number}");
    }
}

#[test]
fn what_is_unmapped_or_no_longer_reserved_is_gone() {
    const START: [Step; 4] = [
        ("cuMemAddressReserve", &[1, 0x2000, 0, 0, 0], 0x40000),
        ("cuMemCreate", &[1, 0x1000, 2, 0], 0x9),
        ("cuMemMap", &[0x40000, 0x1000, 0, 0x9, 0], 0),
        ("cuMemMap", &[0x41000, 0x1000, 0, 0x9, 0], 0),
    ];
    for (steps, mapped, reserved) in [
        (&[("cuMemUnmap", &[0x40000, 0x1000][..], 0)][..], 1, 1),
        (&[("cuMemUnmap", &[0x40000, 0x2000], 0)], 0, 1),
        (&[("cuMemRelease", &[0x9], 0)], 2, 1),
        (
            &[
                ("cuMemUnmap", &[0x40000, 0x2000], 0),
                ("cuMemAddressFree", &[0x40000, 0x2000], 0),
            ],
            0,
            0,
        ),
    ] {
        let (state, _) = after("unmapped", &[&START[..], steps].concat());
        let memory = &state.virtual_memory;
        let found = (memory.mappings.len(), memory.reservations.len());
        assert_eq!(found, (mapped, reserved), "{steps:?}");
        assert_eq!(memory.without_access, mapped);
    }
}

/// A context may be current before a call of the program returns its handle, as with the CUDA
/// runtime, which has the handle of a primary context from a private table of the driver.
#[test]
fn contexts_become_known_when_a_call_returns_them() {
    const RETAIN: Step = ("cuDevicePrimaryCtxRetain", &[1, 1], 0xe);
    const RELEASE: Step = ("cuDevicePrimaryCtxRelease_v2", &[1], 0);
    const SET: Step = ("cuCtxSetCurrent", &[0xe], 0);
    const GET: Step = ("cuCtxGetCurrent", &[1], 0xe);
    const STREAM: Step = ("cuStreamCreate", &[1, 1], 0x5);
    for (name, steps, generation) in [
        ("retained", &[RETAIN, SET, STREAM] as &[Step], 1),
        ("set", &[SET, RETAIN, STREAM], 1),
        ("created between", &[SET, GET, STREAM, RETAIN], 1),
        (
            "pushed",
            &[("cuCtxPushCurrent_v2", &[0xe], 0), STREAM, RETAIN],
            1,
        ),
        ("shown", &[GET, STREAM, RETAIN], 1),
        ("set again", &[RETAIN, RELEASE, SET, RETAIN, STREAM], 2),
        ("still set", &[SET, RETAIN, RELEASE, RETAIN, STREAM], 2),
        ("twice", &[SET, RETAIN, RETAIN, RELEASE, STREAM, RETAIN], 1),
    ] {
        let (state, _) = after(name, steps);
        let context = state.contexts.current(0);
        assert_eq!(context.handle, 0xe, "{name}");
        let live = state.objects.live(Kind::Context, 0xe);
        assert_eq!((context.object, live.is_some()), (live, true), "{name}");
        let object = state.objects.get(live.unwrap()).unwrap();
        assert_eq!(object.generation, generation, "{name}");
        assert_eq!(object.origin, Origin::Found, "{name}");
        assert_eq!(object.created.function, RETAIN.0, "{name}");
        assert_eq!(state.objects.generations(Kind::Context), generation);
        let Data::Context(data) = object.data else {
            panic!("{name}: {:?}", object.data);
        };
        assert_eq!((data.device, data.primary), (1, true), "{name}");
        assert_eq!(state.contexts.primary(1), live, "{name}");
        let stream = state.objects.live(Kind::Stream, 0x5).unwrap();
        assert_eq!(state.context_handle(stream), 0xe, "{name}");
    }
}

/// Which device a context is on, as calls say.
#[test]
fn contexts_have_devices() {
    let green: [Step; 2] = [
        ("cuGreenCtxCreate", &[1, 2, 1, 1], 0x9),
        ("cuCtxFromGreenCtx", &[1, 0x9], 0xe),
    ];
    let cases: [(&str, &[Step], Option<i32>); 6] = [
        ("created", &[("cuCtxCreate_v2", &[1, 0, 1], 0xe)], Some(1)),
        ("set", &[("cuCtxSetCurrent", &[0xe], 0)], None),
        (
            "asked",
            &[
                ("cuCtxSetCurrent", &[0xe], 0),
                ("cuCtxGetDevice", &[1], 1 << 32 | 1),
            ],
            Some(1),
        ),
        (
            "named",
            &[
                ("cuCtxPushCurrent_v2", &[0xe], 0),
                ("cuCtxGetDevice_v2", &[1, 0xe], 2),
            ],
            Some(2),
        ),
        (
            "retained",
            &[
                ("cuCtxSetCurrent", &[0xe], 0),
                ("cuDevicePrimaryCtxRetain", &[1, 1], 0xe),
            ],
            Some(1),
        ),
        ("green", &green, None),
    ];
    for (name, steps, device) in cases {
        let (state, _) = after(name, steps);
        let context = state.objects.live(Kind::Context, 0xe).unwrap();
        let data = match state.objects.get(context).unwrap().data {
            Data::Context(data) => Some(data.device),
            _ => None,
        };
        assert_eq!(data, device, "{name}");
    }
}

/// The legacy default stream and waits of a context also reach streams whose context no call has
/// shown.
#[test]
fn work_of_an_unknown_context_is_complete_with_that_of_any() {
    let cases: [(&str, Step, bool); 4] = [
        ("none", ("cuCtxPushCurrent_v2", &[0xe], 0), false),
        ("current", ("cuCtxSynchronize", &[], 0), true),
        ("named", ("cuCtxSynchronize_v2", &[0xe], 0), true),
        ("copy", ("cuMemcpyDtoH_v2", &[0x7000, 0x1000, 4], 0), true),
    ];
    for (name, wait, done) in cases {
        let steps: [Step; 4] = [
            ("cuStreamCreate", &[1, 0], 0x5),
            ("cuMemsetD8Async", &[0x1000, 0, 4, 0x5], 0),
            ("cuCtxSetCurrent", &[0xe], 0),
            wait,
        ];
        let (mut state, _) = after(name, &steps);
        let stream = state.stream(0, 0x5, false);
        assert_eq!(state.order.is_done(stream, 1), done, "{name}");
    }
}

/// What calls that are no waits have waited for, as the registry says.
#[test]
fn some_calls_wait_implicitly() {
    let start: [Step; 6] = [
        ("cuCtxCreate_v2", &[1, 0, 0], 0xc),
        ("cuMemAlloc_v2", &[1, 0x100], 0x1000),
        ("cuStreamCreate", &[1, 1], 0x5),
        ("cuMemAllocAsync", &[1, 0x100, 0x5], 0x2000),
        ("cuLibraryLoadData", &[1, 2, 0, 0, 0, 0, 0, 0], 0xa),
        ("cuMemsetD8Async", &[0x1000, 0, 4, 0x5], 0),
    ];
    let cases: [(&str, &[Step], bool); 12] = [
        ("free", &[("cuMemFree_v2", &[0x1000], 0)], true),
        ("unknown", &[("cuMemFree_v2", &[0x9000], 0)], true),
        ("pool", &[("cuMemFree_v2", &[0x2000], 0)], false),
        ("async", &[("cuMemFreeAsync", &[0x2000, 0x1], 0)], false),
        ("host", &[("cuMemFreeHost", &[0x7000], 0)], true),
        ("unregister", &[("cuMemHostUnregister", &[0x7000], 0)], true),
        ("module", &[("cuModuleUnload", &[0xb], 0)], true),
        ("load", &[("cuModuleLoadData", &[1, 2], 0xb)], true),
        ("array", &[("cuArrayDestroy", &[0xd], 0)], true),
        ("library", &[("cuLibraryUnload", &[0xa], 0)], false),
        (
            "used library",
            &[
                ("cuLibraryGetKernel", &[1, 0xa, 3], 0xe),
                ("cuLibraryUnload", &[0xa], 0),
            ],
            true,
        ),
        ("event", &[("cuEventDestroy_v2", &[0xf], 0)], false),
    ];
    for (name, steps, done) in cases {
        let (mut state, _) = after(name, &[&start[..], steps].concat());
        let stream = state.stream(0, 0x5, false);
        let everything = state.order.everything();
        let last = everything.first().map_or(0, |entry| entry.1);
        let work = if name == "async" { last - 1 } else { last };
        assert_eq!(state.order.is_done(stream, work), done, "{name}");
    }
}
