//! One rank of two, replayed without the other: what it imports has a stand-in, and work that
//! exchanges data with the other is left out, with its changes put back.

mod recorder;

use std::os::fd::AsRawFd;

use cutape_format::layout::{
    ExchangeNote, ExchangeOutputNote, SharedMappingNote, exchange_skip, field, note_kind,
};
use cutape_format::{NewSnapshot, Trace, TraceBuilder};
use cutape_replay::{Alone, Guard, Report, run_guarded};

use recorder::{Recorder, assert_agrees};

#[test]
#[ignore = "not a test: the other tests start it as the child process that replays"]
fn child() {
    recorder::child();
}

const PTX: &[u8] =
    b".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry k(.param .u64 p) { ret; }\n\0";
/// Where the other rank's memory is in this one. The null driver has nothing there.
const OPENED: u64 = 0x7d00_0020_1000;
const LENGTH: u64 = 8192;

/// `cuIpcMemHandle`, by value.
const HANDLE: [u64; 8] = [0x5eed, 1, 2, 3, 4, 5, 6, 7];

/// The other rank: exports memory.
fn exporter() -> Recorder {
    let mut recorder = Recorder::new();
    let context = recorder.begin();
    let memory = recorder.allocate(LENGTH);
    let handle = HANDLE.map(u64::to_le_bytes).concat();
    let handle = [NewSnapshot::pointee(0, &handle)];
    recorder.write(
        "cuIpcGetMemHandle",
        &[0x1000, memory],
        &[],
        |_| {},
        0,
        &handle,
    );
    recorder.end(context);
    recorder
}

/// What the recorder has kept of an exchange.
#[derive(Clone, Copy)]
struct Kept {
    kept: u64,
    left_out: u64,
    reason: u8,
}

impl Kept {
    fn all(kept: u64) -> Self {
        Self {
            kept,
            left_out: 0,
            reason: exchange_skip::NONE,
        }
    }
}

/// Records a call that exchanges data, which the null driver does not make.
fn exchange(
    recorder: &mut Recorder,
    name: &str,
    arguments: &[u64],
    snapshots: &[NewSnapshot<'_>],
    kept: Option<Kept>,
) -> u64 {
    let note = |builder: &mut TraceBuilder| {
        if let Some(Kept {
            kept,
            left_out,
            reason,
        }) = kept
        {
            let note = ExchangeNote {
                kept,
                left_out,
                reason,
            };
            builder.note(0, note_kind::EXCHANGE, note, &[]);
        }
    };
    let number = recorder.numbers[0];
    recorder.write(name, arguments, snapshots, note, 0, &[]);
    number
}

/// Changes memory as an exchange did, and records a wait with what it changed.
fn changed(recorder: &mut Recorder, number: u64, address: u64, bytes: &[u8]) {
    let copy = cutape_registry::function("cuMemcpyHtoD_v2").unwrap();
    let arguments = [address, bytes.as_ptr() as u64, bytes.len() as u64];
    // SAFETY: the driver reads the bytes, and the memory is the test's.
    let copied = unsafe { recorder.driver.call(copy.id, &arguments) };
    assert_eq!(copied.unwrap(), 0);
    let note = |builder: &mut TraceBuilder| {
        let note = ExchangeOutputNote {
            thread: 0,
            number,
            address,
        };
        builder.exchange_output_note(0, note, bytes);
    };
    recorder.write("cuCtxSynchronize", &[], &[], note, 0, &[]);
}

/// A `CUDA_MEMCPY2D` of one row.
fn plane_to_host(source: u64, width: u64) -> Vec<u8> {
    const NAME: &str = "CUDA_MEMCPY2D";
    let mut bytes = vec![0; cutape_registry::layout::size_of(NAME)];
    for (member, value) in [
        ("srcMemoryType", 2),
        ("srcDevice", source),
        ("dstMemoryType", 1),
        ("dstHost", 0x1000),
        ("WidthInBytes", width),
        ("Height", 1),
    ] {
        let at = cutape_registry::layout::offset_of(NAME, member);
        let size = if member.ends_with("Type") { 4 } else { 8 };
        bytes[at..at + size].copy_from_slice(&value.to_le_bytes()[..size]);
    }
    bytes
}

/// Replays a trace in a child.
fn run(trace: &Trace, command: &dyn Fn() -> std::process::Command) -> Report {
    let guard = Guard::default();
    run_guarded(trace, command, &guard, &mut |_| {}).unwrap()
}

/// Replays the trace of rank 0, of two.
fn replayed_with(rank: &Recorder, other: &Recorder, name: &str, flags: &str) -> Report {
    let alone = other.in_child(&format!("{name}-other"), "", &[], |other, _| {
        rank.in_child(&format!("{name}-alone"), "", &[], |trace, _| {
            Alone::of(&[("rank 0", trace), ("rank 1", other)], 0)
        })
    });
    let file = alone.to_file().unwrap();
    let (process, file) = (std::process::id(), file.as_raw_fd());
    let flags = format!("alone=/proc/{process}/fd/{file} {flags}");
    rank.in_child(name, &flags, &[], run)
}

/// Replays the trace of the rank that imports.
fn replayed(importer: &Recorder, name: &str, flags: &str) -> Report {
    replayed_with(importer, &exporter(), name, flags)
}

/// A rank that imports, and that launches a kernel which gets at what it imported through memory of
/// its own; `kept` says what the recorder kept of that launch.
fn importer(kept: Option<Kept>) -> Recorder {
    let mut recorder = Recorder::new();
    let context = recorder.begin();
    let function = recorder.function(PTX, b"k\0");
    let [structure, own] = [(); 2].map(|()| recorder.allocate(4096));
    recorder.upload(own, &[1; 64]);
    let mut open = vec![0x1000];
    open.extend(HANDLE);
    open.push(1);
    let address = OPENED.to_le_bytes();
    let there = [NewSnapshot::pointee(0, &address)];
    recorder.write("cuIpcOpenMemHandle_v2", &open, &[], |_| {}, 0, &there);
    // NCCL lets the driver tell host from device by the address.
    let words = [own, OPENED + 4096].map(u64::to_le_bytes).concat();
    let words = [NewSnapshot::piece(1, field::HOST_BYTES, &words)];
    let copy = [structure, 0x1000, 16, 0];
    recorder.write("cuMemcpyAsync", &copy, &words, |_| {}, 0, &[]);
    let launch = |parameter: u64| ([function, 1, 1, 1, 1, 1, 1, 0, 0, 0x1000, 0], parameter);
    // Work of its own, which is re-issued.
    let (arguments, parameter) = launch(own);
    let packed = parameter.to_le_bytes();
    let packed = [NewSnapshot::piece(9, field::KERNEL_PARAMETERS, &packed)];
    recorder.write("cuLaunchKernel", &arguments, &packed, |_| {}, 0, &[]);
    assert_eq!(recorder.download(own, 64), [1; 64]);
    let (arguments, parameter) = launch(structure);
    let packed = parameter.to_le_bytes();
    let packed = [NewSnapshot::piece(9, field::KERNEL_PARAMETERS, &packed)];
    let number = exchange(&mut recorder, "cuLaunchKernel", &arguments, &packed, kept);
    changed(&mut recorder, number, own + 8, &[7; 24]);
    assert_eq!(
        recorder.download(own, 64)[..12],
        [1, 1, 1, 1, 1, 1, 1, 1, 7, 7, 7, 7]
    );
    // Another copy from there, a copy to it, and a wait for a value that the other rank writes.
    let copy = [own + 32, OPENED, 16];
    let number = exchange(&mut recorder, "cuMemcpyDtoD_v2", &copy, &[], kept);
    changed(&mut recorder, number, own + 32, &[9; 16]);
    exchange(
        &mut recorder,
        "cuMemcpyDtoD_v2",
        &[OPENED, own, 16],
        &[],
        kept,
    );
    // Copies to the host.
    let there = [NewSnapshot::piece(0, field::HOST_BYTES, &[3; 16])];
    let copy = [0x1000, OPENED, 16];
    recorder.write("cuMemcpy", &copy, &[], |_| {}, 0, &there);
    let plane = plane_to_host(OPENED, 16);
    let plane = [NewSnapshot::pointee(0, &plane)];
    recorder.write("cuMemcpy2D_v2", &[0x1000], &plane, |_| {}, 0, &there);
    exchange(
        &mut recorder,
        "cuStreamWaitValue32_v2",
        &[0, OPENED + 64, 1, 1],
        &[],
        None,
    );
    assert_eq!(recorder.download(own + 32, 16), [9; 16]);
    recorder.write("cuIpcCloseMemHandle", &[OPENED], &[], |_| {}, 0, &[]);
    recorder.end(context);
    recorder
}

#[test]
fn what_exchanges_changed_is_put_back() {
    let importer = importer(Some(Kept::all(8192)));
    for flags in ["", "threads"] {
        let report = replayed(&importer, &format!("alone-kept-{flags}"), flags);
        assert_agrees(&report);
        assert_eq!((report.bytes_compared, report.bytes_not_compared), (144, 0));
        let exchanges = &report.exchanges;
        assert_eq!((exchanges.stand_ins, exchanges.stand_in_bytes), (1, LENGTH));
        assert_eq!(exchanges.bytes_put, 40);
        assert_eq!(exchanges.first_missing, None);
        let left_out: Vec<_> = exchanges
            .left_out
            .iter()
            .map(|left| {
                assert_eq!((left.with.as_str(), left.count), ("rank 1", 1));
                let kernel = left.kernel.as_deref();
                (left.function.as_str(), kernel, left.changing, left.put_back)
            })
            .collect();
        let expected = [
            ("cuLaunchKernel", Some("k"), 1, 1),
            ("cuMemcpyDtoD_v2", None, 1, 1),
            ("cuMemcpy", None, 0, 0),
            ("cuMemcpy2D_v2", None, 0, 0),
            ("cuStreamWaitValue32_v2", None, 0, 0),
        ];
        assert_eq!(left_out, expected);
        let skipped: Vec<_> = report
            .skipped
            .iter()
            .map(|known| (known.function.as_str(), known.reason.as_str()))
            .collect();
        let exchanges = "exchanges data with rank 1 (memory exported at call 3 of rank 1)";
        let waits = "waits for a value that rank 1 may write (memory exported at call 3 of rank 1)";
        let expected = [
            ("cuLaunchKernel", exchanges),
            ("cuMemcpyDtoD_v2", exchanges),
            ("cuMemcpy", exchanges),
            ("cuMemcpy2D_v2", exchanges),
            ("cuStreamWaitValue32_v2", waits),
        ];
        assert_eq!(skipped, expected);
        assert_eq!(report.notes, Default::default());
    }
}

#[test]
fn without_the_changes_bytes_are_not_compared() {
    let left_out = |kept, reason| Kept {
        kept,
        left_out: 5,
        reason,
    };
    for (name, kept, why) in [
        ("none", None, "record with --outputs-of-exchanges"),
        (
            "long",
            Some(left_out(8192, exchange_skip::LONG)),
            "the recorder kept 8192 of 8197 bytes that it may have changed (longer than it keeps)",
        ),
        (
            "graph",
            Some(left_out(0, exchange_skip::GRAPH)),
            "(in a graph)",
        ),
    ] {
        let report = replayed(&importer(kept), &format!("alone-{name}"), "");
        assert_agrees(&report);
        // What came before the first exchange is compared.
        assert_eq!((report.bytes_compared, report.bytes_not_compared), (64, 80));
        let first = report.exchanges.first_missing.unwrap();
        assert!(first.why.contains(why), "{}", first.why);
        let notes: Vec<&str> = report.notes.keys().map(String::as_str).collect();
        let [note] = notes[..] else {
            panic!("{notes:?}");
        };
        let start = format!("call {} exchanges data with rank 1", first.call);
        assert!(note.starts_with(&start) && note.contains(why), "{note}");
    }
}

#[test]
fn a_trace_without_the_others_has_the_changes_too() {
    let report = importer(Some(Kept::all(8192))).in_child("alone-trace", "", &[], run);
    assert_agrees(&report);
    assert_eq!((report.bytes_compared, report.bytes_not_compared), (144, 0));
    assert_eq!(
        (report.exchanges.bytes_put, report.exchanges.stand_ins),
        (40, 0)
    );
}

/// Records that host memory is registered which is a shared mapping of one page of a file.
fn register(recorder: &mut Recorder, address: u64, inode: u64) {
    let note = |builder: &mut TraceBuilder| {
        let note = SharedMappingNote {
            address,
            length: 4096,
            device: 1,
            inode,
            offset: 8192,
        };
        builder.note(0, note_kind::SHARED_MAPPING, note, b"/dev/shm/flags");
    };
    recorder.write(
        "cuMemHostRegister_v2",
        &[address, 4096, 0],
        &[],
        note,
        0,
        &[],
    );
}

#[test]
fn host_memory_that_others_register_is_shared() {
    const FLAGS: u64 = 0x6123_4570_0000;
    const PRIVATE: u64 = 0x6123_4580_0000;
    let mut other = Recorder::new();
    let context = other.begin();
    register(&mut other, 0x1000, 77);
    other.end(context);
    let mut recorder = Recorder::new();
    let context = recorder.begin();
    let function = recorder.function(PTX, b"k\0");
    let own = recorder.allocate(4096);
    register(&mut recorder, FLAGS, 77);
    register(&mut recorder, PRIVATE, 78);
    // What a copy reads there is in the trace, and the kernel may wait there for another rank.
    let copy = cutape_registry::function("cuMemcpyHtoD_v2").unwrap();
    let arguments = [own, [5_u8; 16].as_ptr() as u64, 16];
    // SAFETY: the driver reads the bytes, and the memory is the test's.
    let copied = unsafe { recorder.driver.call(copy.id, &arguments) };
    assert_eq!(copied.unwrap(), 0);
    let bytes = [NewSnapshot::pointee(1, &[5; 16])];
    recorder.write("cuMemcpyHtoD_v2", &[own, FLAGS, 16], &bytes, |_| {}, 0, &[]);
    assert_eq!(recorder.download(own, 16), [5; 16]);
    for parameter in [PRIVATE, FLAGS + 64] {
        let packed = parameter.to_le_bytes();
        let packed = [NewSnapshot::piece(9, field::KERNEL_PARAMETERS, &packed)];
        let arguments = [function, 1, 1, 1, 1, 1, 1, 0, 0, 0x1000, 0];
        let kept = (parameter != PRIVATE).then(|| Kept::all(0));
        exchange(&mut recorder, "cuLaunchKernel", &arguments, &packed, kept);
    }
    assert_eq!(recorder.download(own, 16), [5; 16]);
    recorder.end(context);
    let report = replayed_with(&recorder, &other, "alone-registered", "");
    assert_agrees(&report);
    assert_eq!(report.bytes_compared, 32);
    let skipped: Vec<_> = report
        .skipped
        .iter()
        .map(|known| (known.function.as_str(), known.reason.as_str(), known.count))
        .collect();
    let why = "exchanges data with rank 1 (host memory registered at call 5)";
    assert_eq!(skipped, [("cuLaunchKernel", why, 1)]);
    assert_eq!(report.launches, 1);
}

/// Only the second half is shared, and only as long as it is registered.
#[test]
fn host_memory_is_no_longer_shared_when_it_is_unregistered() {
    const MEMORY: u64 = 0x6123_4570_0000;
    let registered = |recorder: &mut Recorder, inode, (address, length, offset)| {
        let note = |builder: &mut TraceBuilder| {
            let note = SharedMappingNote {
                address,
                length,
                device: 1,
                inode,
                offset,
            };
            builder.note(0, note_kind::SHARED_MAPPING, note, b"/dev/shm/flags");
        };
        let arguments = [address, length, 0];
        recorder.write("cuMemHostRegister_v2", &arguments, &[], note, 0, &[]);
    };
    let mut other = Recorder::new();
    let context = other.begin();
    registered(&mut other, 77, (0x1000, 4096, 4096));
    other.end(context);
    let mut recorder = Recorder::new();
    let context = recorder.begin();
    let function = recorder.function(PTX, b"k\0");
    for inode in [77, 78] {
        registered(&mut recorder, inode, (MEMORY, 8192, 0));
        for parameter in [MEMORY + 64, MEMORY + 4096] {
            let packed = parameter.to_le_bytes();
            let packed = [NewSnapshot::piece(9, field::KERNEL_PARAMETERS, &packed)];
            let arguments = [function, 1, 1, 1, 1, 1, 1, 0, 0, 0x1000, 0];
            let kept = Some(Kept::all(0));
            exchange(&mut recorder, "cuLaunchKernel", &arguments, &packed, kept);
        }
        recorder.write("cuMemHostUnregister", &[MEMORY], &[], |_| {}, 0, &[]);
    }
    recorder.end(context);
    let report = replayed_with(&recorder, &other, "alone-unregistered", "");
    assert_agrees(&report);
    let left_out = &report.exchanges.left_out;
    assert_eq!((report.launches, left_out[0].count), (3, 1), "{left_out:?}");
}

#[test]
fn a_multicast_object_has_a_stand_in() {
    const HANDLE: u64 = 0x77;
    const LENGTH: u64 = 2 << 20;
    let mut recorder = Recorder::new();
    let context = recorder.begin();
    let reserved = recorder.make("cuMemAddressReserve", &[0, LENGTH, 0, 0, 0]);
    // CUmulticastObjectProp: two devices, the size, file descriptors.
    let properties = [2, LENGTH, 1, 0].map(u64::to_le_bytes).concat();
    let (properties, handle) = ([NewSnapshot::pointee(1, &properties)], HANDLE.to_le_bytes());
    let handle = [NewSnapshot::pointee(0, &handle)];
    let mut record = |name: &str, arguments: &[u64], inputs: &[_], outputs: &[_]| {
        recorder.write(name, arguments, inputs, |_| {}, 0, outputs);
    };
    record("cuMulticastCreate", &[0x1000, 0x2000], &properties, &handle);
    record("cuMulticastAddDevice", &[HANDLE, 0], &[], &[]);
    record("cuMemMap", &[reserved, LENGTH, 0, HANDLE, 0], &[], &[]);
    record("cuMulticastUnbind", &[HANDLE, 0, 0, LENGTH], &[], &[]);
    record("cuMemUnmap", &[reserved, LENGTH], &[], &[]);
    record("cuMemRelease", &[HANDLE], &[], &[]);
    recorder.end(context);
    let report = replayed_with(&recorder, &exporter(), "alone-multicast", "");
    assert_agrees(&report);
    assert_eq!(report.exchanges.stand_ins, 1);
    let skipped: Vec<_> = report
        .skipped
        .iter()
        .map(|known| known.function.as_str())
        .collect();
    assert_eq!(skipped, ["cuMulticastAddDevice", "cuMulticastUnbind"]);
}

#[test]
fn memory_that_was_exported_for_nobody_is_memory_of_the_rank() {
    let mut recorder = Recorder::new();
    let context = recorder.begin();
    let function = recorder.function(PTX, b"k\0");
    let own = recorder.allocate(4096);
    let handle = [NewSnapshot::pointee(0, &[9; 64])];
    recorder.write("cuIpcGetMemHandle", &[0x1000, own], &[], |_| {}, 0, &handle);
    let mut open = vec![0x1000];
    open.extend(HANDLE);
    open.push(1);
    let address = OPENED.to_le_bytes();
    let there = [NewSnapshot::pointee(0, &address)];
    recorder.write("cuIpcOpenMemHandle_v2", &open, &[], |_| {}, 0, &there);
    recorder.upload(own, &[4; 16]);
    let arguments = [function, 1, 1, 1, 1, 1, 1, 0, 0, 0x1000, 0];
    for parameters in [vec![own], vec![own, OPENED]] {
        assert_eq!(recorder.download(own, 16), [4; 16]);
        let packed: Vec<u8> = parameters
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect();
        let packed = [NewSnapshot::piece(9, field::KERNEL_PARAMETERS, &packed)];
        let kept = Some(Kept::all(0));
        exchange(&mut recorder, "cuLaunchKernel", &arguments, &packed, kept);
    }
    assert_eq!(recorder.download(own, 16), [4; 16]);
    recorder.end(context);
    let report = replayed(&recorder, "alone-exported", "");
    assert_agrees(&report);
    // The launch that gets at nothing but its own memory is made.
    assert_eq!(
        (report.launches, report.exchanges.left_out[0].count),
        (1, 1)
    );
    assert_eq!((report.bytes_compared, report.bytes_not_compared), (32, 16));
    let why = report.exchanges.first_missing.unwrap().why;
    assert!(why.contains("memory that was exported"), "{why}");
}
