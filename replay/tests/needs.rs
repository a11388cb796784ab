//! What a trace needs of a machine, and what a replay does without it.

mod recorder;

use cutape_format::layout::snapshot_flag;
use cutape_format::{NewSnapshot, Trace, TraceBuilder};
use cutape_replay::{Error, Guard, Needs, Report, plan};

use recorder::{Recorder, assert_agrees};

#[test]
#[ignore = "not a test: the other tests start it as the child process that replays"]
fn child() {
    recorder::child();
}

fn none(_: &mut TraceBuilder) {}

fn word(value: u64) -> [u8; 8] {
    value.to_le_bytes()
}

/// A handle or an address that a call returned which was not made.
fn made(recorder: &mut Recorder, name: &str, arguments: &[u64], position: u8, value: u64) {
    let bytes = word(value);
    let there = [NewSnapshot::pointee(position, &bytes)];
    recorder.write(name, arguments, &[], none, 0, &there);
}

fn needs(recorder: &Recorder, name: &str) -> Needs {
    let file = format!("needs-{}-{name}.cutape", std::process::id());
    let path = std::env::temp_dir().join(file);
    recorder.builder.write(&path).unwrap();
    let needs = plan(&Trace::open(&path).unwrap()).needs;
    std::fs::remove_file(&path).unwrap();
    needs
}

fn tried(recorder: &Recorder, name: &str, environment: &[(&str, &str)]) -> Result<Report, Error> {
    recorder.tried(name, "", environment, &Guard::default())
}

const GIB: u64 = 1 << 30;

#[test]
fn memory_is_counted_by_device() {
    let mut recorder = Recorder::new();
    recorder.write("cuInit", &[0], &[], none, 0, &[]);
    made(&mut recorder, "cuCtxCreate_v2", &[0x10, 0, 1], 0, 0xc1);
    made(
        &mut recorder,
        "cuMemAlloc_v2",
        &[0x10, 3 * GIB],
        0,
        0x7e00_0000_0000,
    );
    // The program sets a context that no call returned, and retains it afterwards.
    recorder.write("cuCtxSetCurrent", &[0xc0], &[], none, 0, &[]);
    made(
        &mut recorder,
        "cuMemAlloc_v2",
        &[0x10, GIB],
        0,
        0x7e10_0000_0000,
    );
    recorder.write("cuMemFree_v2", &[0x7e10_0000_0000], &[], none, 0, &[]);
    made(
        &mut recorder,
        "cuMemAlloc_v2",
        &[0x10, 2 * GIB],
        0,
        0x7e10_0000_0000,
    );
    made(
        &mut recorder,
        "cuMemAllocManaged",
        &[0x10, 9 * GIB, 1],
        0,
        0x7e20_0000_0000,
    );
    made(
        &mut recorder,
        "cuDevicePrimaryCtxRetain",
        &[0x10, 0],
        0,
        0xc0,
    );
    recorder.write("cuCtxPushCurrent_v2", &[0xc1], &[], none, 0, &[]);
    made(
        &mut recorder,
        "cuMemAlloc_v2",
        &[0x10, GIB],
        0,
        0x7e30_0000_0000,
    );
    let mut properties = [0; 32];
    properties[0] = 1; // pinned
    properties[8] = 1; // a device: number 2
    properties[12] = 2;
    let given = [NewSnapshot::pointee(2, &properties)];
    let handle = word(0x55);
    let back = [NewSnapshot::pointee(0, &handle)];
    recorder.write(
        "cuMemCreate",
        &[0x10, 5 * GIB, 0x20, 0],
        &given,
        none,
        0,
        &back,
    );
    recorder.write("cuMemRelease", &[0x55], &[], none, 0, &[]);
    let needs = needs(&recorder, "memory");
    let bytes: Vec<_> = needs.device_bytes.into_iter().collect();
    assert_eq!(bytes, [(0, 2 * GIB), (1, 4 * GIB), (2, 5 * GIB)]);
    assert_eq!(Vec::from_iter(needs.devices), [0, 1, 2]);
}

#[test]
fn memory_ends_with_its_context_unless_it_is_of_a_pool() {
    let retain = ("cuDevicePrimaryCtxRetain", &[0x10, 0][..], 0xc0);
    let set = ("cuCtxSetCurrent", &[0xc0][..], 0);
    let allocate = ("cuMemAlloc_v2", &[0x10, GIB][..], 0x7e00_0000_0000);
    let of_pool = ("cuMemAllocAsync", &[0x10, GIB, 0][..], 0x7e10_0000_0000);
    let again = ("cuMemAlloc_v2", &[0x10, 2 * GIB][..], 0x7e20_0000_0000);
    let release = ("cuDevicePrimaryCtxRelease_v2", &[0][..], 0);
    let reset = ("cuDevicePrimaryCtxReset_v2", &[0][..], 0);
    let free = ("cuMemFreeAsync", &[0x7e10_0000_0000, 0][..], 0);
    let capture = ("cuStreamBeginCapture_v2", &[0x33, 0][..], 0);
    for (name, calls, most) in [
        (
            "held",
            &[retain, retain, set, allocate, release, again][..],
            3,
        ),
        (
            "released",
            &[retain, set, allocate, release, retain, again],
            2,
        ),
        ("reset", &[retain, set, allocate, reset, again], 2),
        ("pool", &[retain, set, of_pool, release, retain, again], 3),
        ("freed", &[retain, set, of_pool, free, again], 2),
        ("captured", &[retain, set, of_pool, capture, free, again], 2),
    ] {
        let mut recorder = Recorder::new();
        recorder.write("cuInit", &[0], &[], none, 0, &[]);
        for &(function, arguments, value) in calls {
            if value == 0 {
                recorder.write(function, arguments, &[], none, 0, &[]);
            } else {
                made(&mut recorder, function, arguments, 0, value);
            }
        }
        let bytes = needs(&recorder, name).device_bytes;
        assert_eq!(Vec::from_iter(bytes), [(0, most * GIB)], "{name}");
    }
}

#[test]
fn shared_memory_has_a_device() {
    let mut recorder = Recorder::new();
    recorder.write("cuInit", &[0], &[], none, 0, &[]);
    made(&mut recorder, "cuCtxCreate_v2", &[0x10, 0, 1], 0, 0xc1);
    let address = 0x7e00_0000_0000;
    made(&mut recorder, "cuMemAlloc_v2", &[0x10, GIB], 0, address);
    let shares = |recorder: &mut Recorder, name, arguments: &[u64]| {
        recorder.write(name, arguments, &[], none, 0, &[]);
    };
    shares(&mut recorder, "cuIpcGetMemHandle", &[0x20, address]); // 3
    // Physical memory of a device, and of the host: 1 is a device, 2 the host.
    for (handle, location) in [(0x55, 1), (0x56, 2)] {
        let mut properties = [0; 32];
        (properties[0], properties[8], properties[12]) = (1, location, 2);
        let given = [NewSnapshot::pointee(2, &properties)];
        let handle = word(handle);
        let back = [NewSnapshot::pointee(0, &handle)];
        let arguments = [0x10, GIB, 0x20, 0];
        recorder.write("cuMemCreate", &arguments, &given, none, 0, &back);
    }
    let export = "cuMemExportToShareableHandle";
    shares(&mut recorder, export, &[0x20, 0x55, 1, 0]); // 6
    shares(&mut recorder, export, &[0x20, 0x56, 1, 0]); // 7
    made(&mut recorder, "cuCtxCreate_v2", &[0x10, 0, 3], 0, 0xc3);
    let import = "cuMemImportFromShareableHandle";
    made(&mut recorder, import, &[0x10, 9, 1], 0, 0x57); // 9
    recorder.write("cuCtxEnablePeerAccess", &[0xc1, 0], &[], none, 0, &[]); // 10
    let needs = needs(&recorder, "sharing");
    let sharing: Vec<_> = needs.sharing_devices.into_iter().collect();
    assert_eq!(sharing, [(3, 1), (6, 2), (9, 3)]);
    let access = needs.peer_access.iter();
    let access: Vec<_> = access
        .map(|access| (access.device, access.peer, access.call))
        .collect();
    assert_eq!(access, [(3, 1, 10)]);
}

#[test]
fn memory_ends_with_its_context() {
    let mut recorder = Recorder::new();
    recorder.write("cuInit", &[0], &[], none, 0, &[]);
    for round in 0..3 {
        made(&mut recorder, "cuCtxCreate_v2", &[0x10, 0, 0], 0, 0xc1);
        let address = 0x7e00_0000_0000 + round * GIB;
        made(&mut recorder, "cuMemAlloc_v2", &[0x10, GIB], 0, address);
        recorder.write("cuCtxDestroy_v2", &[0xc1], &[], none, 0, &[]);
    }
    for round in 0..3 {
        made(
            &mut recorder,
            "cuDevicePrimaryCtxRetain",
            &[0x10, 0],
            0,
            0xc0,
        );
        recorder.write("cuCtxSetCurrent", &[0xc0], &[], none, 0, &[]);
        let address = 0x7e10_0000_0000 + round * GIB;
        made(&mut recorder, "cuMemAlloc_v2", &[0x10, GIB], 0, address);
        recorder.write("cuDevicePrimaryCtxRelease_v2", &[0], &[], none, 0, &[]);
    }
    let bytes: Vec<_> = needs(&recorder, "contexts")
        .device_bytes
        .into_iter()
        .collect();
    assert_eq!(bytes, [(0, GIB)]);
}

#[test]
fn asking_about_a_device_is_no_use_of_it() {
    let mut recorder = Recorder::new();
    recorder.write("cuInit", &[0], &[], none, 0, &[]);
    let number = [3, 0, 0, 0];
    let back = [NewSnapshot::pointee(0, &number)];
    recorder.write("cuDeviceGet", &[0x10, 3], &[], none, 0, &back);
    recorder.write("cuDeviceGetAttribute", &[0x10, 75, 3], &[], none, 0, &back);
    recorder.write(
        "cuDevicePrimaryCtxGetState",
        &[3, 0x10, 0x18],
        &[],
        none,
        0,
        &[],
    );
    recorder.write("cuDeviceCanAccessPeer", &[0x10, 3, 2], &[], none, 0, &back);
    assert!(needs(&recorder, "asking").devices.is_empty());
    // Prefetch locations by value: device 4; the host's NUMA node 5 is no device.
    let to = |kind: u64, number: u64| number << 32 | kind;
    let memory = 0x7e00_0000_0000;
    for location in [to(1, 4), to(3, 5)] {
        let arguments = [memory, 4096, location, 0, 0];
        recorder.write("cuMemPrefetchAsync_v2", &arguments, &[], none, 0, &[]);
    }
    recorder.write("cuDevicePrimaryCtxSetFlags_v2", &[6, 0], &[], none, 0, &[]);
    assert_eq!(Vec::from_iter(needs(&recorder, "using").devices), [4, 6]);
}

#[test]
fn too_little_memory_is_a_reason() {
    let mut recorder = Recorder::new();
    let context = recorder.begin();
    for _ in 0..2 {
        recorder.allocate(40 << 20);
    }
    recorder.end(context);
    assert_agrees(&tried(&recorder, "enough", &[]).unwrap());
    let small = [("CUTAPE_NULL_MEMORY", "64MiB")];
    let reasons = match tried(&recorder, "small", &small) {
        Err(Error::Machine { reasons }) => reasons,
        other => panic!("{other:?}"),
    };
    assert_eq!(
        reasons,
        [
            "memory of device 0: recorded 80 MiB in use at one time, here 64 MiB in all (the trace's allocations would fail)"
        ]
    );
}

#[test]
fn code_that_is_not_in_the_trace_is_a_reason() {
    let mut recorder = Recorder::new();
    recorder.begin();
    let module = word(0x77);
    let length = word(5000);
    for _ in 0..7 {
        let left_out = NewSnapshot {
            flags: snapshot_flag::OMITTED,
            ..NewSnapshot::pointee(1, &length)
        };
        let back = [NewSnapshot::pointee(0, &module)];
        recorder.write(
            "cuModuleLoadData",
            &[0x10, 0x20],
            &[left_out],
            none,
            0,
            &back,
        );
    }
    // A call that failed in the recording needs nothing.
    recorder.write("cuModuleLoadData", &[0x10, 0x20], &[], none, 200, &[]);
    let error = tried(&recorder, "code", &[]).unwrap_err().to_string();
    for part in [
        "device code: recorded call 2 cuModuleLoadData: its bytes were not recorded",
        "and 2 more, here missing",
    ] {
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn what_an_uninitialised_driver_answers_is_replayed_before_it_is_initialised() {
    let mut recorder = Recorder::new();
    recorder.write("cuDeviceGetCount", &[0x10], &[], none, 3, &[]);
    let context = recorder.begin();
    recorder.end(context);
    assert!(needs(&recorder, "early").starts_uninitialised);
    assert_agrees(&tried(&recorder, "early", &[]).unwrap());
}
