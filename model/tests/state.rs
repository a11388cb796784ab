//! What sequences of calls do to a `State`.

use cutape_format::{NewCall, NewSnapshot, Trace, TraceBuilder};
use cutape_model::{Changes, Effects, Retention, State};
use cutape_registry::Kind;

/// Function, arguments, and the handle that it writes behind its first parameter; 0 for none.
type Step = (&'static str, &'static [u64], u64);

fn trace(name: &str, steps: &[Step]) -> Trace {
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
    opened(name, &builder)
}

fn opened(name: &str, builder: &TraceBuilder) -> Trace {
    let file = format!("cutape-model-{name}-{}.cutape", std::process::id());
    let path = std::env::temp_dir().join(file);
    builder.write(&path).unwrap();
    let trace = Trace::open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    trace
}

/// The state after the calls, with the changes of the last one.
fn after(name: &str, steps: &[Step]) -> (State<()>, Changes) {
    let trace = trace(name, steps);
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
