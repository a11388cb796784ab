//! Cases that occur in real programs only: each was seen in a recording of a framework on a real
//! driver.

mod recorder;

use cutape_format::NewSnapshot;
use cutape_format::layout::{OriginNote, field};
use cutape_registry::layout::{offset_of, size_of};
use cutape_replay::{Report, Verdict};

use recorder::{Behind, Recorder, assert_agrees};

#[test]
#[ignore = "not a test: the other tests start it as the child process that replays"]
fn child() {
    recorder::child();
}

fn bytes(value: u64) -> [u8; 8] {
    value.to_le_bytes()
}

fn skipped(report: &Report) -> Vec<(&str, &str)> {
    report
        .skipped
        .iter()
        .map(|skipped| (skipped.function.as_str(), skipped.reason.as_str()))
        .collect()
}

/// A handle that no driver returns.
const ELSEWHERE: u64 = 0x5eed_0000_1000;

#[test]
fn a_primary_context_is_made_current_before_it_is_retained() {
    let mut recorder = Recorder::new();
    let none = |_: &mut _| {};
    recorder.write("cuInit", &[0], &[], none, 0, &[]);
    let context = bytes(ELSEWHERE);
    let there = [NewSnapshot::pointee(0, &context)];
    // cudart: a private table gives the handle.
    recorder.write("cuCtxSetCurrent", &[ELSEWHERE], &[], none, 0, &[]);
    recorder.write("cuCtxGetCurrent", &[0x1000], &[], none, 0, &there);
    recorder.write(
        "cuDevicePrimaryCtxRetain",
        &[0x1000, 0],
        &[],
        none,
        0,
        &there,
    );
    recorder.write("cuCtxGetCurrent", &[0x1000], &[], none, 0, &there);
    recorder.write("cuCtxSynchronize", &[], &[], none, 0, &[]);
    let memory = bytes(0x7e00_1230_0000);
    let placed = [NewSnapshot::pointee(0, &memory)];
    recorder.write("cuMemAlloc_v2", &[0x1000, 4096], &[], none, 0, &placed);
    recorder.write("cuDevicePrimaryCtxRelease_v2", &[0], &[], none, 0, &[]);
    // The program released the last reference, so the context no longer exists.
    recorder.write("cuDevicePrimaryCtxRelease_v2", &[0], &[], none, 201, &[]);
    for flags in ["", "no-placement"] {
        let report = recorder.replayed("primary", flags);
        assert_agrees(&report);
        assert_eq!(skipped(&report), [], "{flags}");
    }
}

#[test]
fn calls_of_a_driver_that_shuts_down_are_left_out_and_named() {
    let mut recorder = Recorder::new();
    recorder.begin();
    let none = |_: &mut _| {};
    recorder.write("cuLibraryUnload", &[ELSEWHERE], &[], none, 4, &[]);
    recorder.write("cuDevicePrimaryCtxRelease", &[0], &[], none, 4, &[]);
    let report = recorder.replayed("exit", "");
    assert_agrees(&report);
    let reason =
        "the recorded driver was shutting down with its process (CUDA_ERROR_DEINITIALIZED)";
    assert_eq!(
        skipped(&report),
        [
            ("cuLibraryUnload", reason),
            ("cuDevicePrimaryCtxRelease", reason)
        ]
    );
}

const PTX: &[u8] = b".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry k(.param .u64 p, .param .align 4 .b8 q[16]) { ret; }\n\0";

/// Where the parameters of `k` are.
const LAYOUT: [(u32, u32); 2] = [(0, 8), (8, 16)];

/// A launch of `function` as a trace has it.
fn launch(
    recorder: &mut Recorder,
    function: u64,
    parameters: &[u8],
    origin: Option<OriginNote>,
) -> u64 {
    let arguments = [function, 1, 1, 1, 1, 1, 1, 0, 0, 0x1000, 0];
    let packed = NewSnapshot::piece(9, field::KERNEL_PARAMETERS, parameters);
    let notes = |builder: &mut cutape_format::TraceBuilder| {
        if let Some(origin) = origin {
            builder.origin_note(0, origin, "k");
        }
        builder.layout_note(0, function, &LAYOUT);
    };
    recorder.write("cuLaunchKernel", &arguments, &[packed], notes, 0, &[])
}

fn assert_data_of_one_call_is_missing(report: &Report) {
    assert!(report.agrees_but_for(&[Verdict::Consequence]));
    let causes = report.consequences.iter();
    let counts: Vec<_> = causes.map(|it| (it.lost, it.differences)).collect();
    assert_eq!(counts, [(1, 0)], "{:#?}", report.consequences);
}

#[test]
fn a_function_from_a_private_table_is_found_by_name() {
    let mut recorder = Recorder::new();
    let context = recorder.begin();
    let module = recorder.module(PTX);
    let origin = |owner| OriginNote {
        handle: ELSEWHERE + owner % 0x1000,
        owner,
        is_kernel: 0,
    };
    let known = origin(module);
    launch(&mut recorder, known.handle, &[0; 24], Some(known));
    launch(&mut recorder, known.handle, &[0; 24], None);
    let unknown = origin(ELSEWHERE + 8);
    launch(&mut recorder, unknown.handle, &[0; 24], Some(unknown));
    recorder.call("cuModuleUnload", &[module], &mut []);
    recorder.end(context);
    let report = recorder.replayed("origin", "");
    assert_data_of_one_call_is_missing(&report);
    assert_eq!(
        skipped(&report),
        [(
            "cuLaunchKernel",
            "needs a function that no re-issued call made"
        )]
    );
    assert_eq!(report.skipped[0].count, 1);
    assert_eq!(report.calls_replayed, report.calls - 1);
    assert!(
        report
            .notes
            .keys()
            .any(|note| note.starts_with("function k came from a private table"))
    );
}

#[test]
fn parameters_that_could_not_be_read_are_never_made_up() {
    let mut recorder = Recorder::new();
    let context = recorder.begin();
    let function = recorder.function(PTX, b"k\0");
    let arguments = [function, 1, 1, 1, 1, 1, 1, 0, 0, 0x1000, 0];
    let unreadable = NewSnapshot {
        flags: cutape_format::layout::snapshot_flag::UNREADABLE,
        ..NewSnapshot::piece(9, field::KERNEL_PARAMETERS, &[])
    };
    recorder.write("cuLaunchKernel", &arguments, &[unreadable], |_| {}, 0, &[]);
    recorder.end(context);
    let report = recorder.replayed("unreadable", "");
    assert_data_of_one_call_is_missing(&report);
    assert_eq!(
        skipped(&report),
        [("cuLaunchKernel", "its parameters are not in the trace")]
    );
}

#[test]
fn addresses_that_nobody_replaces_are_named_with_their_calls() {
    let mut recorder = Recorder::new();
    let context = recorder.begin();
    let none = |_: &mut _| {};
    let address = bytes(0x7e00_1230_0000);
    let made = [NewSnapshot::pointee(0, &address)];
    let allocation = recorder.write("cuMemAlloc_v2", &[0x1000, 4096], &[], none, 0, &made);
    let table = [bytes(0x7e00_1230_0010), bytes(7), bytes(0x7e00_1230_0fff)].concat();
    let copied = [NewSnapshot::pointee(1, &table)];
    let arguments = [0x7e00_1230_0000, 0x2000, 24];
    let copy = recorder.write("cuMemcpyHtoD_v2", &arguments, &copied, none, 0, &[]);
    let module = recorder.module(PTX);
    let origin = OriginNote {
        handle: ELSEWHERE,
        owner: module,
        is_kernel: 0,
    };
    // An aligned address, which is translated, and one that is not aligned.
    let parameters = [&address[..], &[0; 4], &address, &[0; 4]].concat();
    let launched = launch(&mut recorder, ELSEWHERE, &parameters, Some(origin));
    recorder.end(context);

    let report = recorder.replayed("stale", "no-placement");
    assert_agrees(&report);
    assert_eq!(skipped(&report), []);
    let named: Vec<_> = report
        .stale
        .iter()
        .map(|stale| (stale.call, stale.words, stale.address))
        .collect();
    assert_eq!(
        named,
        [(copy, 2, 0x7e00_1230_0010), (launched, 1, 0x7e00_1230_0000)]
    );
    assert_eq!(report.stale_addresses, 3);
    assert!(
        report.stale[0]
            .memory
            .contains(&format!("created by cuMemAlloc_v2 at call {allocation}"))
    );

    let report = recorder.replayed("in-place", "");
    assert_agrees(&report);
    assert!(report.stale.is_empty(), "all memory is where it was");
}

/// No call returns the address again when a launch allocates what was freed after the launch before.
#[test]
fn memory_that_each_launch_of_a_graph_allocates_is_freed_each_time() {
    let mut recorder = Recorder::new();
    let context = recorder.begin();
    let (stream, graph, exec, memory) = (ELSEWHERE, 0x5eed_2000, 0x5eed_3000, 0x7e00_1230_0000);
    let mut write = |name: &str, arguments: &[u64], made: Option<(u8, u64)>| {
        let made = made.map(|(position, handle)| (position, bytes(handle)));
        let outputs: Vec<_> = made
            .iter()
            .map(|(position, handle)| NewSnapshot::pointee(*position, handle))
            .collect();
        recorder.write(name, arguments, &[], |_| {}, 0, &outputs);
    };
    write("cuStreamCreate", &[0x1000, 1], Some((0, stream)));
    write("cuStreamBeginCapture_v2", &[stream, 0], None);
    write(
        "cuMemAllocAsync",
        &[0x1000, 4096, stream],
        Some((0, memory)),
    );
    write("cuStreamEndCapture", &[stream, 0x1000], Some((1, graph)));
    write(
        "cuGraphInstantiateWithFlags",
        &[0x1000, graph, 0],
        Some((0, exec)),
    );
    for _ in 0..3 {
        write("cuGraphLaunch", &[exec, stream], None);
        write("cuMemFreeAsync", &[memory, stream], None);
    }
    write("cuStreamSynchronize", &[stream], None);
    recorder.end(context);
    let report = recorder.replayed("graph-memory", "");
    assert_agrees(&report);
    assert_eq!((skipped(&report), report.translated.len()), (vec![], 1));
}

#[test]
fn host_memory_given_to_a_kernel_is_named() {
    let mut recorder = Recorder::new();
    let context = recorder.begin();
    let host = recorder.make("cuMemHostAlloc", &[0, 4096, 0]);
    let other = recorder.make("cuMemHostAlloc", &[0, 4096, 0]);
    let module = recorder.module(PTX);
    let origin = OriginNote {
        handle: ELSEWHERE,
        owner: module,
        is_kernel: 0,
    };
    let parameters = [&bytes(host + 16)[..], &bytes(host), &[0; 8]].concat();
    launch(&mut recorder, ELSEWHERE, &parameters, Some(origin));
    launch(&mut recorder, ELSEWHERE, &parameters, None);
    recorder.call("cuMemFreeHost", &[host], &mut []);
    recorder.call("cuMemFreeHost", &[other], &mut []);
    recorder.end(context);
    let report = recorder.replayed("mapped", "");
    assert_agrees(&report);
    let notes: Vec<_> = report
        .notes
        .iter()
        .filter(|(note, _)| note.starts_with("parameters of launches hold addresses of memory"))
        .collect();
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(notes[0].0.contains("cuMemHostAlloc"));
    assert_eq!(*notes[0].1, 2, "both launches count");
}

#[test]
fn questions_about_launch_configurations_are_asked_again() {
    let mut recorder = Recorder::new();
    let context = recorder.begin();
    let stream = recorder.make("cuStreamCreate", &[0, 0]);
    let function = recorder.function(PTX, b"k\0");
    // CUlaunchConfig: 8 blocks of 128 threads, no shared memory, that stream, one attribute:
    // clusters of 2 blocks.
    let mut attribute = [0u8; 72];
    attribute[0] = 4;
    for at in [8, 12, 16] {
        attribute[at] = 1 + u8::from(at == 8);
    }
    let mut config = [8u32, 1, 1, 128, 1, 1, 0, 0].map(u32::to_le_bytes).concat();
    config.extend(bytes(stream));
    config.extend(bytes(attribute.as_ptr() as u64));
    config.extend([1, 0, 0, 0, 0, 0, 0, 0]);
    let mut clusters = [0u8; 4];
    let arguments = [
        clusters.as_mut_ptr() as u64,
        function,
        config.as_ptr() as u64,
    ];
    let id = cutape_registry::function("cuOccupancyMaxActiveClusters")
        .unwrap()
        .id;
    // SAFETY: the configuration, its attribute and the output are locals of this test.
    assert_eq!(unsafe { recorder.driver.call(id, &arguments) }.unwrap(), 0);
    assert_ne!(clusters, [0; 4]);
    let captures = [
        NewSnapshot::pointee(2, &config),
        NewSnapshot::piece(2, field::ATTRIBUTES, &attribute),
    ];
    let none = |_: &mut _| {};
    let answer = [NewSnapshot::pointee(0, &clusters)];
    recorder.write(
        "cuOccupancyMaxActiveClusters",
        &arguments,
        &captures,
        none,
        0,
        &answer,
    );
    recorder.end(context);
    let report = recorder.replayed("clusters", "");
    assert_agrees(&report);
    assert_eq!(skipped(&report), []);
}

fn skipped_and_counted(report: &Report) -> Vec<(&str, &str, u64)> {
    let skipped = skipped(report).into_iter().zip(&report.skipped);
    skipped
        .map(|((function, reason), known)| (function, reason, known.count))
        .collect()
}

fn depends_on(what: &str, function: &str) -> String {
    format!("depends on the {what} of another process or API that does not exist here ({function})")
}

const MIB: u64 = 1 << 20;

/// The parameters of `k`.
fn pointer(address: u64) -> Vec<u8> {
    [&bytes(address)[..], &[0; 16]].concat()
}

/// The older API returns an address whose length no call states.
#[test]
fn what_depends_on_opened_memory_is_left_out_and_named() {
    let mut recorder = Recorder::new();
    let context = recorder.begin();
    let function = recorder.function(PTX, b"k\0");
    let none = |_: &mut _| {};
    let opened = 0x7d00_0020_0000;
    let address = bytes(opened);
    let open = [0x1000, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    let there = [NewSnapshot::pointee(0, &address)];
    recorder.write("cuIpcOpenMemHandle_v2", &open, &[], none, 0, &there);
    launch(&mut recorder, function, &pointer(opened + MIB), None);
    recorder.write("cuIpcCloseMemHandle", &[opened], &[], none, 0, &[]);
    launch(&mut recorder, function, &pointer(opened), None);
    recorder.end(context);
    let handle = "needs a handle of another process";
    let memory = depends_on("memory", "cuIpcOpenMemHandle_v2");
    let expected = [
        ("cuIpcOpenMemHandle_v2", handle, 1),
        ("cuLaunchKernel", &memory, 1),
        ("cuIpcCloseMemHandle", handle, 1),
    ];
    for flags in ["", "no-placement", "threads"] {
        let report = recorder.replayed("opened", flags);
        assert_agrees(&report);
        assert_eq!(skipped_and_counted(&report), expected, "{flags}");
    }
}

/// NCCL: memory of another rank is mapped here, and kernels reach it through structs in their own
/// memory.
#[test]
fn what_depends_on_memory_of_another_process_is_left_out_and_named() {
    let mut recorder = Recorder::new();
    let context = recorder.begin();
    let function = recorder.function(PTX, b"k\0");
    let [structure, inner, own] = [(); 3].map(|()| recorder.allocate(4096));
    let shared = recorder.make("cuMemAddressReserve", &[0, 4 * MIB, 0, 0, 0]);
    let none = |_: &mut _| {};
    // One struct points to the other, set up before the import.
    recorder.upload(structure, &bytes(inner + 128));
    recorder.upload(own, &bytes(own));
    let handle = bytes(0x1f);
    recorder.write(
        "cuMemImportFromShareableHandle",
        &[0x1000, 77, 1],
        &[],
        none,
        0,
        &[NewSnapshot::pointee(0, &handle)],
    );
    let access = [1u32, 0, 3].map(u32::to_le_bytes).concat();
    let access = [NewSnapshot::pointee(2, &access)];
    recorder.write(
        "cuMemMap",
        &[shared, 2 * MIB, 0, 0x1f, 0],
        &[],
        none,
        0,
        &[],
    );
    let set = [shared, 2 * MIB, 0x1000, 1];
    recorder.write("cuMemSetAccess", &set, &access, none, 0, &[]);
    recorder.upload(inner, &bytes(shared + 4096));
    launch(&mut recorder, function, &pointer(own + 64), None);
    let compared = recorder.download(own, 8);
    for address in [shared, shared + 2 * MIB - 1, inner, structure] {
        launch(&mut recorder, function, &pointer(address), None);
    }
    // Beyond the mapping; and memory from which no unavailable memory can be reached.
    launch(&mut recorder, function, &pointer(shared + 2 * MIB), None);
    launch(&mut recorder, function, &pointer(own), None);
    let fill = [shared + 8, 1, 16];
    recorder.write("cuMemsetD8_v2", &fill, &[], none, 0, &[]);
    let there = [NewSnapshot::pointee(0, &[9; 16])];
    let copy = [0x1000, shared + 8, 16];
    recorder.write("cuMemcpyDtoH_v2", &copy, &[], none, 0, &there);
    // A kernel that was left out may have written it.
    let other = [NewSnapshot::pointee(0, &[5; 16])];
    recorder.write("cuMemcpyDtoH_v2", &[0x1000, own, 16], &[], none, 0, &other);
    recorder.write("cuMemUnmap", &[shared, 2 * MIB], &[], none, 0, &[]);
    recorder.write("cuMemRelease", &[0x1f], &[], none, 0, &[]);
    // No memory is unavailable there any more; the address is unknown to both drivers.
    recorder.call("cuMemsetD8_v2", &[shared, 1, 16], &mut []);
    recorder.call("cuMemAddressFree", &[shared, 4 * MIB], &mut []);
    recorder.end(context);

    for flags in ["", "no-placement", "threads"] {
        let report = recorder.replayed("foreign", flags);
        assert_agrees(&report);
        let memory = depends_on("memory", "cuMemImportFromShareableHandle");
        let allocation = depends_on("allocation", "cuMemImportFromShareableHandle");
        let system = "needs an operating system's handle of another process";
        let expected = [
            ("cuMemImportFromShareableHandle", system, 1),
            ("cuMemMap", &allocation, 1),
            ("cuMemSetAccess", &memory, 1),
            ("cuLaunchKernel", &memory, 4),
            ("cuMemsetD8_v2", &memory, 1),
            ("cuMemcpyDtoH_v2", &memory, 1),
            ("cuMemUnmap", &memory, 1),
            ("cuMemRelease", &allocation, 1),
        ];
        assert_eq!(skipped_and_counted(&report), expected, "{flags}");
        assert_eq!(compared, bytes(own));
        assert_eq!(
            (report.bytes_compared, report.bytes_not_compared),
            (8, 16),
            "{flags}"
        );
        let told = |note: &&String| note.contains("bytes are not compared from there on");
        assert_eq!(report.notes.keys().filter(told).count(), 1, "{flags}");
    }
}

/// Launches that use handles looked up earlier.
#[test]
fn launches_follow_handles_that_the_driver_gives_out_again() {
    const STREAM: u64 = ELSEWHERE + 0x100;
    let mut recorder = Recorder::new();
    let context = recorder.begin();
    let none = |_: &mut _| {};
    let (function, stream) = (bytes(ELSEWHERE), bytes(STREAM));
    let mut launches = Vec::new();
    for round in 0..3u8 {
        // Until this round has its own handles, other objects have those of the last round.
        let taken = (
            recorder.module(PTX),
            recorder.make("cuStreamCreate", &[0, 0]),
        );
        let mut other = [0; 8];
        let behind = &mut [(0, Behind::Output(&mut other)), (2, Behind::Input(b"k\0"))];
        recorder.call("cuModuleGetFunction", &[0, taken.0, 0], behind);
        let module = recorder.module(PTX);
        let (name, there) = (
            [NewSnapshot::pointee(2, b"k")],
            [NewSnapshot::pointee(0, &function)],
        );
        let arguments = [0x1000, module, 0x2000];
        recorder.write("cuModuleGetFunction", &arguments, &name, none, 0, &there);
        let there = [NewSnapshot::pointee(0, &stream)];
        recorder.write("cuStreamCreate", &[0x1000, 0], &[], none, 0, &there);
        recorder.call("cuModuleUnload", &[taken.0], &mut []);
        recorder.call("cuStreamDestroy_v2", &[taken.1], &mut []);
        let values = [round; 24];
        for stream in [STREAM, STREAM, 0, 1] {
            let arguments = [ELSEWHERE, 1, 1, 1, 1, 1, 1, 0, stream, 0x1000, 0];
            let packed = [NewSnapshot::piece(9, field::KERNEL_PARAMETERS, &values)];
            launches.push(recorder.write("cuLaunchKernel", &arguments, &packed, none, 0, &[]));
        }
        recorder.write("cuStreamDestroy_v2", &[STREAM], &[], none, 0, &[]);
        recorder.call("cuModuleUnload", &[module], &mut []);
    }
    recorder.end(context);
    for flags in ["", "threads", "timing", "span"] {
        let report = recorder.replayed("again", flags);
        assert_agrees(&report);
        assert_eq!(report.calls_replayed, report.calls, "{flags}");
        let timed = report
            .timing
            .get("cuLaunchKernel")
            .map(|timing| timing.calls);
        assert_eq!(timed, (flags == "timing").then_some(12));
    }
    // A launch that fails only at replay is reported like any call.
    let fails = [("CUTAPE_NULL_FAIL", "cuLaunchKernel@6=719")];
    let report = recorder.replayed_with("fails", "", &fails, std::time::Duration::from_secs(60));
    assert_eq!(report.divergence_count, 1);
    let divergence = &report.divergences[0];
    assert_eq!(
        (divergence.call, divergence.function.as_str()),
        (launches[5], "cuLaunchKernel")
    );
    assert_eq!(divergence.received, "CUDA_ERROR_LAUNCH_FAILED");
}

/// A texture object has another handle here: parameters of 8 bytes that equal the recorded one are
/// replaced, and named.
#[test]
fn handles_of_textures_are_replaced_in_parameters_of_their_size() {
    const TEXTURE: u64 = 3;
    let mut recorder = Recorder::new();
    let context = recorder.begin();
    let memory = recorder.allocate(4096);
    let function = recorder.function(PTX, b"k\0");

    // cuda.h: CU_RESOURCE_TYPE_LINEAR; the address, CU_AD_FORMAT_UNSIGNED_INT32, one channel, 4096
    // bytes.
    let mut resource = [0; size_of("CUDA_RESOURCE_DESC")];
    let at = |path| offset_of("CUDA_RESOURCE_DESC", path);
    for (place, bytes) in [
        (at("resType"), &2u32.to_le_bytes()[..]),
        (at("res.linear.devPtr"), &memory.to_le_bytes()),
        (at("res.linear.format"), &3u32.to_le_bytes()),
        (at("res.linear.numChannels"), &1u32.to_le_bytes()),
        (at("res.linear.sizeInBytes"), &4096u64.to_le_bytes()),
    ] {
        resource[place..place + bytes.len()].copy_from_slice(bytes);
    }
    let sampler = [0; size_of("CUDA_TEXTURE_DESC")];
    let given = [
        NewSnapshot::pointee(1, &resource),
        NewSnapshot::pointee(2, &sampler),
    ];
    let handle = TEXTURE.to_le_bytes();
    let made = [NewSnapshot::pointee(0, &handle)];
    let arguments = [0x1000, 0x2000, 0x3000, 0];
    let none = |_: &mut _| {};
    let create = recorder.write("cuTexObjectCreate", &arguments, &given, none, 0, &made);
    let parameters = |first: u64| [bytes(first), bytes(TEXTURE), bytes(TEXTURE)].concat();
    let with_texture = launch(&mut recorder, function, &parameters(TEXTURE), None);
    launch(&mut recorder, function, &parameters(TEXTURE + 1), None);
    recorder.write("cuTexObjectDestroy", &[TEXTURE], &[], none, 0, &[]);
    launch(&mut recorder, function, &parameters(TEXTURE), None);
    recorder.end(context);

    let report = recorder.replayed("texture", "");
    assert_agrees(&report);
    assert_eq!(skipped(&report), []);
    assert_eq!(
        report.assumed_handle_count, 1,
        "{:?}",
        report.assumed_handles
    );
    let assumed = &report.assumed_handles[0];
    assert_eq!(
        (assumed.call, assumed.offset, assumed.recorded),
        (with_texture, 0, TEXTURE)
    );
    assert_ne!(assumed.replayed, TEXTURE);
    assert_eq!(
        assumed.object,
        format!("texture object, created at call {create}")
    );
}
