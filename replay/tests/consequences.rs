//! What follows from calls that are not re-issued is told apart from divergences, by cause.

mod recorder;

use cutape_format::NewSnapshot;
use cutape_format::layout::{field, snapshot_flag};
use cutape_replay::{Report, Verdict};

use recorder::{Behind, Recorder, pattern};

#[test]
#[ignore = "not a test: the other tests start it as the child process that replays"]
fn child() {
    recorder::child();
}

const PTX: &[u8] =
    b".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry k(.param .u64 p) { ret; }\n\0";

/// Memory of the null driver that no recorded call made.
fn private(recorder: &Recorder, length: u64) -> u64 {
    let mut address = 0u64;
    let allocate = cutape_registry::function("cuMemAlloc_v2").unwrap();
    // SAFETY: `address` is valid for writing an address.
    let result = unsafe {
        recorder
            .driver
            .call(allocate.id, &[&raw mut address as u64, length])
    };
    assert_eq!(result.unwrap(), 0);
    address
}

fn copy(recorder: &mut Recorder, target: u64, source: u64) {
    let copied = recorder.call("cuMemcpyDtoD_v2", &[target, source, 64], &mut []);
    assert_eq!(copied, 0);
}

/// A struct with some members set.
fn structure(name: &str, members: &[(&str, u64)]) -> Vec<u8> {
    let mut bytes = vec![0; cutape_registry::layout::size_of(name)];
    let fields = cutape_registry::structure(name).unwrap().fields;
    for (member, value) in members {
        let field = fields.iter().find(|field| field.name == *member).unwrap();
        let (at, size) = (field.offset as usize, field.size as usize);
        bytes[at..at + size].copy_from_slice(&value.to_le_bytes()[..size]);
    }
    bytes
}

/// Eight rows of eight bytes, one after the other; `pitch` is that of the target.
fn copy_plane(recorder: &mut Recorder, target: u64, source: u64, pitch: u64) {
    let members = [
        ("srcMemoryType", 2),
        ("srcDevice", source),
        ("srcPitch", 8),
        ("dstMemoryType", 2),
        ("dstDevice", target),
        ("dstPitch", pitch),
        ("WidthInBytes", 8),
        ("Height", 8),
    ];
    let plane = structure("CUDA_MEMCPY2D", &members);
    let behind = &mut [(0, Behind::Input(&plane))];
    assert_eq!(recorder.call("cuMemcpy2D_v2", &[0], behind), 0);
}

/// The same bytes as a volume, to the host.
fn volume_to_host(recorder: &mut Recorder, source: u64) {
    let mut target = [0; 64];
    let members = [
        ("srcMemoryType", 2),
        ("srcDevice", source),
        ("dstMemoryType", 1),
        ("dstHost", target.as_mut_ptr() as u64),
        ("WidthInBytes", 8),
        ("Height", 4),
        ("Depth", 2),
    ];
    let volume = structure("CUDA_MEMCPY3D", &members);
    let behind = &mut [(0, Behind::Input(&volume))];
    assert_eq!(recorder.call("cuMemcpy3D_v2", &[0], behind), 0);
}

/// Copies of 32 bytes, each from and to.
fn copy_batch(recorder: &mut Recorder, copies: &[[u64; 2]]) {
    let stream = recorder.make("cuStreamCreate", &[0, 1]);
    let words = |words: Vec<u64>| words.into_iter().flat_map(u64::to_le_bytes).collect();
    let sources: Vec<u8> = words(copies.iter().map(|copy| copy[0]).collect());
    let targets: Vec<u8> = words(copies.iter().map(|copy| copy[1]).collect());
    let sizes: Vec<u8> = words(vec![32; copies.len()]);
    let attributes = structure("CUmemcpyAttributes", &[("srcAccessOrder", 1)]);
    let behind = &mut [
        (0, Behind::Input(&targets)),
        (1, Behind::Input(&sources)),
        (2, Behind::Input(&sizes)),
        (4, Behind::Input(&attributes)),
        (5, Behind::Input(&[0; 8])),
    ];
    let arguments = [0, 0, 0, copies.len() as u64, 0, 0, 1, stream];
    let copied = recorder.call("cuMemcpyBatchAsync_v2", &arguments, behind);
    assert_eq!(copied, 0);
    recorder.call("cuStreamSynchronize", &[stream], &mut []);
}

/// The same as boxes of four rows.
fn copy_boxes(recorder: &mut Recorder, copies: &[[u64; 2]]) {
    let stream = recorder.make("cuStreamCreate", &[0, 1]);
    let one = |&[source, target]: &[u64; 2]| {
        let members = [
            ("src.type", 1),
            ("src.op.ptr.ptr", source),
            ("dst.type", 1),
            ("dst.op.ptr.ptr", target),
            ("extent.width", 8),
            ("extent.height", 4),
            ("extent.depth", 1),
            ("srcAccessOrder", 1),
        ];
        structure("CUDA_MEMCPY3D_BATCH_OP", &members)
    };
    let operations: Vec<u8> = copies.iter().flat_map(one).collect();
    let arguments = [copies.len() as u64, 0, 0, stream];
    let behind = &mut [(1, Behind::Input(&operations))];
    let copied = recorder.call("cuMemcpy3DBatchAsync_v2", &arguments, behind);
    assert_eq!(copied, 0);
    recorder.call("cuStreamSynchronize", &[stream], &mut []);
}

fn launch(recorder: &mut Recorder, function: u64, parameter: u64) {
    let arguments = [function, 1, 1, 1, 1, 1, 1, 0, 0, 0x1000, 0];
    let packed = parameter.to_le_bytes();
    let packed = [NewSnapshot::piece(9, field::KERNEL_PARAMETERS, &packed)];
    recorder.write("cuLaunchKernel", &arguments, &packed, |_| {}, 0, &[]);
}

/// A copy to the host that brought other bytes in the recording.
fn download_other(recorder: &mut Recorder, source: u64) {
    let there = [NewSnapshot::pointee(0, &[0xee; 64])];
    let arguments = [0x1000, source, 64];
    recorder.write("cuMemcpyDtoH_v2", &arguments, &[], |_| {}, 0, &there);
}

/// Divergences; by cause what is left out, lost, and differs.
fn counts(report: &Report) -> (u64, Vec<(&str, u64, u64, u64)>) {
    let causes = report.consequences.iter();
    let causes = causes.map(|it| (&*it.cause, it.left_out, it.lost, it.differences));
    (report.divergence_count, causes.collect())
}

const PRIVATE: &str = "private memory of the driver";

/// What a program does with its own memory, another piece of it, private memory, and a kernel.
type Work = fn(&mut Recorder, [u64; 3], u64);

/// A cause, what is left out, lost, and differs.
type Cause = (&'static str, u64, u64, u64);

/// A name, what is done, divergences, and causes.
type Row = (&'static str, Work, u64, &'static [Cause]);

const PRIVATE_MEMORY: [Row; 23] = [
    // Nothing comes back from there.
    (
        "to",
        |r, [own, _, private], _| copy(r, private, own),
        0,
        &[],
    ),
    (
        "from",
        |r, [own, other, private], _| {
            copy(r, private, own);
            copy(r, other, private);
            r.download(other, 64);
        },
        0,
        &[(PRIVATE, 2, 1, 1)],
    ),
    // Where the driver tells host from device.
    (
        "unified",
        |r, [own, other, private], _| {
            let copied = r.call("cuMemcpyAsync", &[other, private, 64, 0], &mut []);
            assert_eq!(copied, 0);
            r.call("cuMemcpyAsync", &[own, other, 64, 0], &mut []);
            r.call("cuCtxSynchronize", &[], &mut []);
            r.download(own, 64);
        },
        0,
        &[(PRIVATE, 1, 1, 1)],
    ),
    // Through other memory.
    (
        "on",
        |r, [own, other, private], _| {
            copy(r, other, private);
            copy(r, own, other);
            r.download(own, 64);
        },
        0,
        &[(PRIVATE, 1, 1, 1)],
    ),
    (
        "host",
        |r, [_, _, private], _| drop(r.download(private, 64)),
        0,
        &[(PRIVATE, 1, 1, 0)],
    ),
    // Memory that lacks nothing still diverges.
    (
        "apart",
        |r, [own, other, private], _| {
            copy(r, other, private);
            download_other(r, own);
        },
        1,
        &[(PRIVATE, 1, 1, 0)],
    ),
    // A launch that may read what is missing, and one that cannot be made.
    (
        "spread",
        |r, [own, other, private], function| {
            copy(r, other, private);
            launch(r, function, other);
            download_other(r, own);
        },
        0,
        &[(PRIVATE, 1, 1, 1)],
    ),
    (
        "launch",
        |r, [own, _, private], function| {
            copy(r, private, own);
            launch(r, function, private + 4096);
            download_other(r, own);
        },
        0,
        &[(PRIVATE, 2, 1, 1)],
    ),
    // Memory that was overwritten in full, or freed, lacks nothing any more.
    (
        "overwritten",
        |r, [own, other, private], function| {
            copy(r, other, private);
            r.upload(other, &[1; 64]);
            launch(r, function, own);
            download_other(r, own);
        },
        1,
        &[(PRIVATE, 1, 1, 0)],
    ),
    (
        "set",
        |r, [own, other, private], function| {
            copy(r, other, private);
            r.call("cuMemsetD8_v2", &[other, 1, 64], &mut []);
            launch(r, function, own);
            download_other(r, own);
        },
        1,
        &[(PRIVATE, 1, 1, 0)],
    ),
    (
        "freed",
        |r, [own, _, private], function| {
            let third = r.allocate(64);
            copy(r, third, private);
            r.call("cuMemFree_v2", &[third], &mut []);
            launch(r, function, own);
            download_other(r, own);
        },
        1,
        &[(PRIVATE, 1, 1, 0)],
    ),
    // Half of it is overwritten.
    (
        "half",
        |r, [own, other, private], _| {
            copy(r, other, private);
            r.upload(other, &[1; 32]);
            download_other(r, own);
            r.download(other, 64);
        },
        1,
        &[(PRIVATE, 1, 1, 1)],
    ),
    // Copies that structs and arrays describe.
    (
        "plane-to",
        |r, [own, _, private], _| copy_plane(r, private, own, 8),
        0,
        &[],
    ),
    (
        "plane-from",
        |r, [own, other, private], _| {
            copy_plane(r, private, own, 8);
            copy_plane(r, other, private, 8);
            download_other(r, own);
            r.download(other, 64);
        },
        1,
        &[(PRIVATE, 2, 1, 1)],
    ),
    (
        "plane-on",
        |r, [own, other, private], _| {
            copy(r, other, private);
            copy_plane(r, own, other, 8);
            r.download(own, 64);
        },
        0,
        &[(PRIVATE, 1, 1, 1)],
    ),
    (
        "plane-overwritten",
        |r, [own, other, private], _| {
            copy(r, other, private);
            copy_plane(r, other, own, 8);
            download_other(r, other);
        },
        1,
        &[(PRIVATE, 1, 1, 0)],
    ),
    // Rows with gaps.
    (
        "plane-gaps",
        |r, [own, other, private], _| {
            copy(r, other, private);
            let third = r.allocate(512);
            copy_plane(r, third, other, 64);
            r.download(third, 8);
            download_other(r, own);
        },
        1,
        &[(PRIVATE, 1, 1, 1)],
    ),
    (
        "volume-host",
        |r, [own, _, private], _| {
            volume_to_host(r, private);
            download_other(r, own);
        },
        1,
        &[(PRIVATE, 1, 1, 0)],
    ),
    (
        "batch",
        |r, [own, other, private], _| {
            let third = r.allocate(64);
            copy_batch(r, &[[own, third], [private, other], [own, private]]);
            r.download(other, 32);
            r.download(third, 32);
            download_other(r, own);
        },
        1,
        &[(PRIVATE, 1, 1, 2)],
    ),
    (
        "batch-on",
        |r, [own, other, private], _| {
            copy(r, other, private);
            let third = r.allocate(64);
            copy_batch(r, &[[own, third], [other, own + 32]]);
            r.download(own + 32, 32);
            download_other(r, third);
        },
        1,
        &[(PRIVATE, 1, 1, 1)],
    ),
    // More of them than a record holds.
    (
        "long-batch",
        |r, [own, other, private], _| {
            copy_batch(r, &[[private, other]; 2500]);
            r.download(other, 32);
            download_other(r, own);
        },
        1,
        &[(PRIVATE, 1, 1, 1)],
    ),
    (
        "boxes",
        |r, [own, other, private], _| {
            let third = r.allocate(64);
            copy_boxes(r, &[[own, third], [private, other]]);
            r.download(other, 32);
            download_other(r, own);
        },
        1,
        &[(PRIVATE, 1, 1, 1)],
    ),
    // A launch that was given the end of recorded memory is made.
    (
        "end",
        |r, [own, other, private], function| {
            copy(r, private, own);
            launch(r, function, other + 64);
            r.download(own, 64);
        },
        0,
        &[],
    ),
];

#[test]
fn private_memory_has_consequences() {
    for (name, work, divergences, causes) in PRIVATE_MEMORY {
        let mut recorder = Recorder::new();
        let context = recorder.begin();
        let function = recorder.function(PTX, b"k\0");
        let [own, other] = [(); 2].map(|()| recorder.allocate(64));
        recorder.upload(own, &pattern(64));
        recorder.upload(other, &[1; 64]);
        let private = private(&recorder, 8192);
        work(&mut recorder, [own, other, private], function);
        recorder.end(context);
        for flags in [
            "keep-going",
            "keep-going no-placement",
            "keep-going threads",
        ] {
            let report = recorder.replayed(&format!("private-{name}"), flags);
            let expected = (divergences, causes.to_vec());
            assert_eq!(counts(&report), expected, "{name} {flags}: {report:#?}");
            let is_clean = divergences == 0 && causes.is_empty();
            assert_eq!(report.agrees(), is_clean, "{name}");
            let but_for = report.agrees_but_for(&[Verdict::Consequence]);
            assert_eq!(but_for, divergences == 0, "{name}");
        }
    }
}

/// The recorder leaves the host memory of such batches out that it cannot describe.
#[test]
fn a_batch_without_its_host_bytes_is_left_out() {
    let mut recorder = Recorder::new();
    let context = recorder.begin();
    let [own, other] = [(); 2].map(|()| recorder.allocate(64));
    let target = own.to_le_bytes();
    // Pageable memory of the program.
    let source = 0x5000_0000_0000_u64.to_le_bytes();
    let size = 32_u64.to_le_bytes();
    let unreadable = NewSnapshot {
        flags: snapshot_flag::UNREADABLE,
        ..NewSnapshot::piece(1, field::HOST_BYTES, &[])
    };
    let there = [
        NewSnapshot::pointee(0, &target),
        NewSnapshot::pointee(1, &source),
        unreadable,
        NewSnapshot::pointee(2, &size),
    ];
    let arguments = [0x10, 0x20, 0x30, 1, 0, 0, 0, 0];
    recorder.write("cuMemcpyBatchAsync_v2", &arguments, &there, |_| {}, 0, &[]);
    download_other(&mut recorder, own);
    download_other(&mut recorder, other);
    recorder.end(context);
    let report = recorder.replayed("left-out", "keep-going");
    let cause = "cuMemcpyBatchAsync_v2: the trace does not have the host memory that it reads";
    assert_eq!(counts(&report), (1, vec![(cause, 1, 1, 1)]), "{report:#?}");
}

#[test]
fn a_missing_object_is_the_cause_of_what_needs_it() {
    let mut recorder = Recorder::new();
    let context = recorder.begin();
    let memory = recorder.allocate(64);
    recorder.upload(memory, &pattern(64));
    // The recorder could not read the file.
    let module = 0x7000_u64.to_le_bytes();
    let path = [NewSnapshot::pointee(1, b"/missing.cubin")];
    let made = [NewSnapshot::pointee(0, &module)];
    recorder.write("cuModuleLoad", &[0x1000, 0x2000], &path, |_| {}, 0, &made);
    let function = 0x8000_u64.to_le_bytes();
    let name = [NewSnapshot::pointee(2, b"k")];
    let made = [NewSnapshot::pointee(0, &function)];
    let arguments = [0x1000, 0x7000, 0x2000];
    recorder.write("cuModuleGetFunction", &arguments, &name, |_| {}, 0, &made);
    for _ in 0..3 {
        launch(&mut recorder, 0x8000, memory);
        download_other(&mut recorder, memory);
    }
    recorder.end(context);
    let report = recorder.replayed("missing", "keep-going");
    let cause = "cuModuleLoad: the file that it loads is not in the trace";
    assert_eq!(counts(&report), (0, vec![(cause, 5, 3, 3)]), "{report:#?}");
}

#[test]
fn errors_of_kernels_follow_from_missing_data() {
    let mut recorder = Recorder::new();
    let context = recorder.begin();
    let function = recorder.function(PTX, b"k\0");
    let memory = recorder.allocate(64);
    let private = private(&recorder, 4096);
    copy(&mut recorder, memory, private);
    launch(&mut recorder, function, memory);
    for _ in 0..5 {
        recorder.call("cuCtxSynchronize", &[], &mut []);
    }
    recorder.end(context);
    // CUDA_ERROR_ILLEGAL_ADDRESS, TENSOR_MEMORY_LEAK, and errors that are none of a kernel:
    // INVALID_VALUE and CONTEXT_IS_DESTROYED.
    for (code, divergences, differences) in [(700, 0, 1), (721, 0, 1), (1, 1, 0), (709, 1, 0)] {
        let fails = format!("cuCtxSynchronize@2={code}");
        let environment = [("CUTAPE_NULL_FAIL", fails.as_str())];
        let watchdog = std::time::Duration::from_secs(60);
        let report = recorder.replayed_with("errors", "keep-going", &environment, watchdog);
        let expected = (divergences, vec![(PRIVATE, 1, 1, differences)]);
        assert_eq!(counts(&report), expected, "{code}: {report:#?}");
    }
}
