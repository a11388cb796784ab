//! A small trace with one of everything, and a description by which traces can be compared.

#![allow(dead_code, reason = "each test uses its part")]

pub(crate) mod recorder;

use std::fmt::Write;
use std::path::PathBuf;

use cutape_format::control::Incomplete;
use cutape_format::layout::{
    BreadcrumbNote, CHUNK_MAGIC, ChunkHead, DescriptorNote, DigestNote, DigestSetupNote,
    DigestSkippedNote, DigestVoidNote, DriverMessageNote, ExchangeNote, ExchangeOutputNote,
    FramesNote, GapNote, HostChangedNote, HostFunctionNote, LookedNote, MarkerNote, MemoryNote,
    MemorySnapshotNote, NestedCallNote, PythonCodeNote, ReadbackNote, SharedMappingNote,
    SourceChangedNote, ZeroedNote, breadcrumb, digest_reach, digest_skip, exchange_skip, field,
    marker_action, marker_payload, marker_source, memory_snapshot, note_kind, python_frame,
    record_kind, snapshot_flag, stack_flag,
};
use cutape_format::{Bytes, FileRange, Mapping, NewCall, NewSnapshot, Note, Trace, TraceBuilder};

pub(crate) const SIGNATURES: &str = "cutape-signatures\t1
enum\tCUresult\tCUDA_SUCCESS=0\tCUDA_ERROR_INVALID_VALUE=1\tNEGATIVE=-3
struct\tCUuuid\t16\tbytes:0:16:char [16]
function\t0\tcuInit\tcuInit\tINITIALIZE\tCUresult\tplain\tFlags|unsigned int|u4|Value
function\t1\tcuDeviceGet\tcuDeviceGet\tDEVICE\tCUresult\tplain\tdevice|CUdevice *|u8|Out\tordinal|int|i4|Value
function\t2\tcuModuleLoadData\tcuModuleLoadData\tMODULE\tCUresult\toverride\tmodule|CUmodule *|u8|Make\timage|const void *|u8|In
function\t4\tcuMemcpyDtoHAsync_v2\tcuMemcpyDtoHAsync\tMEM\tCUresult\toverride\tdstHost|void *|u8|HostWrite\tsrcDevice|CUdeviceptr|u8|Use\tByteCount|size_t|u8|Value\thStream|CUstream|u8|Use
function\t5\tcuParamSetf\tcuParamSetf\tEXEC\tCUresult\tplain\thfunc|CUfunction|u8|Use\toffset|int|i4|Value\tvalue|float|f4|Value
function\t6\tcuIpcOpenEventHandle\tcuIpcOpenEventHandle\tEVENT\tCUresult\tplain\tphEvent|CUevent *|u8|Make\thandle|CUipcEventHandle|m64|Value
a-line-of-a-later-version\twith\twords
";

/// A sample, the name of its file in `tests/golden/`, and how many calls it has that the first one
/// lacks.
type Sample = (fn() -> TraceBuilder, &'static str, usize);

/// The sample of each version of the format: what the one before it has, and what is new.
pub(crate) const SAMPLES: [Sample; 16] = [
    (sample, "v1", 0),
    (short_sample, "v1.1", 0),
    (stack_sample, "v1.2", 2),
    (marker_sample, "v1.3", 2),
    (note_sample, "v1.4", 3),
    (memory_sample, "v1.5", 4),
    (sharing_sample, "v1.6", 5),
    (exchange_sample, "v1.7", 7),
    (incomplete_sample, "v1.8", 0),
    (looked_sample, "v1.9", 8),
    (looked_before_sample, "v1.10", 9),
    (nested_call_sample, "v1.11", 10),
    (paused_sample, "v1.12", 12),
    (memory_snapshot_sample, "v1.13", 13),
    (host_seen_sample, "v1.14", 14),
    (host_function_sample, "v1.15", 15),
];

/// An empty folder for a test's files.
pub(crate) fn place(name: &str) -> PathBuf {
    let path = PathBuf::from(option_env!("CARGO_TARGET_TMPDIR").unwrap_or(".")).join(name);
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}

/// The head of an open, empty chunk.
pub(crate) fn open_head(kind: u16, thread: u32, length: usize) -> ChunkHead {
    ChunkHead {
        magic: CHUNK_MAGIC,
        kind,
        flags: 0,
        length: length as u64,
        thread,
        sequence: 0,
        used: 0,
        first: 0,
        ticks: 0,
        nanoseconds: 0,
        body_checksum: 0,
        head_checksum: 0,
    }
}

/// Bytes that do not compress, the same in every run.
pub(crate) fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    std::iter::repeat_with(|| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    })
    .take(length)
    .collect()
}

/// The sample in records of version 1.1.
pub(crate) fn short_sample() -> TraceBuilder {
    let mut builder = TraceBuilder::new(SIGNATURES);
    fill(builder.short().leave_open());
    builder
}

/// The sample as a recorder of version 1.8 leaves it when the disk is full.
pub(crate) fn incomplete_sample() -> TraceBuilder {
    let mut builder = TraceBuilder::new(SIGNATURES);
    builder.control(Some(Incomplete {
        lacks_calls: true,
        error: 28,
        ..Incomplete::default()
    }));
    fill(builder.short().leave_open());
    builder
}

/// The sample with the call stacks of version 1.2: a native one, and one with frames of Python.
pub(crate) fn stack_sample() -> TraceBuilder {
    let mut builder = short_sample();
    let native = FramesNote { id: 7, flags: 0 };
    let python = FramesNote {
        id: 8,
        flags: stack_flag::CUT,
    };
    let code = PythonCodeNote {
        id: 9,
        version: 0x030b,
        first_line: 40,
    };
    let mark = python_frame::MARK;
    builder
        .stack(native, &[0x40_0010, 0x40_0020])
        .python_code(code, "/home/é/train.py", "step", &[0x80, 0])
        .stack(
            python,
            &[
                mark | python_frame::LAST_OF_NATIVE | 6,
                9,
                mark | 8,
                9,
                0x40_0030,
            ],
        )
        .call(NewCall {
            name: "cuInit",
            arguments: &[1],
            ..NewCall::default()
        })
        .stack_note(0, 7)
        .leave(0, 0, &[])
        .call(NewCall {
            name: "cuInit",
            arguments: &[2],
            ..NewCall::default()
        })
        .stack_note(0, 8)
        .leave(0, 1, &[]);
    builder
}

/// The sample with stacks and the markers of version 1.3: nested ranges, one that two threads
/// share, and moments, of the program and of another process.
pub(crate) fn marker_sample() -> TraceBuilder {
    let mut builder = stack_sample();
    let note = |action, id| MarkerNote {
        number: 4243,
        source: marker_source::NVTX,
        action,
        id,
        ..MarkerNote::default()
    };
    let unnamed = MarkerNote {
        thread: MarkerNote::NO_THREAD,
        ..note(marker_action::PUSH, 0)
    };
    let counted = MarkerNote {
        payload: (-3_i64).cast_unsigned(),
        payload_type: marker_payload::I64,
        category: 5,
        color: 0xff00_ff00,
        ..note(marker_action::MARK, 0)
    };
    let outside = MarkerNote {
        thread: MarkerNote::NO_THREAD,
        number: 0,
        source: marker_source::OUTSIDE,
        ..note(marker_action::MARK, 0)
    };
    builder
        .marker(unnamed, "", "train")
        .marker(note(marker_action::PUSH, 0), "", "step 0")
        .marker(note(marker_action::START, 1), "data", "load")
        .marker(counted, "data", "batch ü")
        .marker(note(marker_action::POP, 0), "", "")
        .marker(outside, "", "second phase")
        .marker(note(marker_action::END, 1), "data", "");
    builder
}

/// The sample with a call that has the notes that came after those of version 1.1: of memory set to
/// zeros, of digests, and since version 1.4 what the driver's log said.
pub(crate) fn note_sample() -> TraceBuilder {
    let mut builder = marker_sample();
    let pairs = |pairs: &[(u64, u64)]| -> Vec<u8> {
        let words = pairs.iter().flat_map(|&(first, second)| [first, second]);
        words.flat_map(u64::to_le_bytes).collect()
    };
    let zeroed = ZeroedNote {
        address: 0x7000,
        length: 256,
    };
    let setup = DigestSetupNote {
        context: 0xc0,
        result: 0,
    };
    let digest = DigestNote {
        first: 3,
        context: 0xc0,
        is_before: 0,
        reach: digest_reach::PARAMETERS,
    };
    let skipped = DigestSkippedNote {
        reason: digest_skip::REFUSED,
    };
    let void = DigestVoidNote { first: 4, count: 1 };
    let error = DriverMessageNote { level: 0 };
    builder
        .call(NewCall {
            name: "cuInit",
            arguments: &[3],
            ..NewCall::default()
        })
        .note(0, note_kind::ZEROED, zeroed, &[])
        .note(0, note_kind::DIGEST_SETUP, setup, &[])
        .note(
            0,
            note_kind::DIGEST,
            digest,
            &pairs(&[(0x7000, 256), (0x8000, 16)]),
        )
        .record(
            0,
            record_kind::NOTE,
            note_kind::DIGEST_VALUES,
            &pairs(&[(3, 0xd1), (4, 0xd2)]),
        )
        .note(0, note_kind::DIGEST_SKIPPED, skipped, &[])
        .note(0, note_kind::DIGEST_VOID, void, &[])
        .note(
            0,
            note_kind::DRIVER_MESSAGE,
            error,
            "Allocation not found é\n".as_bytes(),
        )
        .leave(0, 1, &[]);
    builder
}

/// The same and a call before which memory is restored: bytes, a blob, a repeated word, a variable;
/// it finds the source of a copy changed.
pub(crate) fn memory_sample() -> TraceBuilder {
    let mut builder = note_sample();
    let at = |address, length| MemoryNote {
        address,
        length,
        ..MemoryNote::default()
    };
    let ones = MemoryNote {
        fill: 0x3f80_0000_3f80_0000,
        ..at(0x9000, 1 << 20)
    };
    let variable = MemoryNote {
        owner: 0xbeef,
        is_library: 1,
        ..at(0, 4)
    };
    let changed = SourceChangedNote {
        thread: 1,
        number: 6,
        address: 0x5000,
        length: 48,
    };
    let long: Vec<u8> = (0..20_000_u32).map(|byte| (byte % 251) as u8).collect();
    builder
        .call(NewCall {
            name: "cuInit",
            arguments: &[4],
            ..NewCall::default()
        })
        .memory_note(0, at(0x7000, 3), "", Some(&[1, 2, 3]))
        .memory_note(0, at(0x8000, 20_000), "", Some(&long))
        .memory_note(0, ones, "", None)
        .memory_note(0, variable, "state", Some(&[9, 8, 7, 6]))
        .note(0, note_kind::SOURCE_CHANGED, changed, &[])
        .leave(0, 0, &[]);
    builder
}

/// The sample with the notes of version 1.6.
pub(crate) fn sharing_sample() -> TraceBuilder {
    let mut builder = memory_sample();
    let descriptor = DescriptorNote {
        descriptor: 7,
        mode: 0o020_666,
        device: 6,
        inode: 1042,
        size: 0,
        owner: 4711,
        mark: 3,
    };
    let mapping = SharedMappingNote {
        address: 0x6000,
        length: 8192,
        device: 26,
        inode: 7,
        offset: 4096,
    };
    builder
        .call(NewCall {
            name: "cuInit",
            arguments: &[5],
            ..NewCall::default()
        })
        .note(0, note_kind::DESCRIPTOR, descriptor, &[])
        .note(
            0,
            note_kind::SHARED_MAPPING,
            mapping,
            "/dev/shm/é".as_bytes(),
        )
        .leave(0, 0, &[]);
    builder
}

/// The sample with the notes of version 1.7: a copy that exchanges, and a call that finds it
/// complete, with short bytes, long ones and none.
pub(crate) fn exchange_sample() -> TraceBuilder {
    let mut builder = sharing_sample();
    let exchange = ExchangeNote {
        kept: 65_536,
        left_out: 4096,
        reason: exchange_skip::LONG,
    };
    let output = |address| ExchangeOutputNote {
        thread: 1,
        number: 2,
        address,
    };
    let long: Vec<u8> = (0..20_000_u32).map(|byte| (byte % 241) as u8).collect();
    builder
        .call(NewCall {
            thread: 1,
            name: "cuMemcpyDtoHAsync_v2",
            arguments: &[0x9000, 0xd000, 4, 0],
            ..NewCall::default()
        })
        .note(1, note_kind::EXCHANGE, exchange, &[])
        .leave(1, 0, &[])
        .call(NewCall {
            name: "cuInit",
            arguments: &[6],
            ..NewCall::default()
        })
        .exchange_output_note(0, output(0x7_0000), &[1, 2, 3])
        .exchange_output_note(0, output(0x7_1000), &long)
        .exchange_output_note(0, output(0x7_8000), &[])
        .leave(0, 0, &[]);
    builder
}

/// The sample with the note of version 1.9.
pub(crate) fn looked_sample() -> TraceBuilder {
    let mut builder = exchange_sample();
    builder
        .call(NewCall {
            name: "cuInit",
            arguments: &[7],
            ..NewCall::default()
        })
        .note(0, note_kind::LOOKED, LookedNote { ticks: 3333 }, &[])
        .leave(0, 0, &[]);
    builder
}

/// The sample with the note of version 1.10.
pub(crate) fn looked_before_sample() -> TraceBuilder {
    let mut builder = looked_sample();
    let looked = LookedNote { ticks: 3344 };
    builder
        .call(NewCall {
            name: "cuInit",
            arguments: &[8],
            ..NewCall::default()
        })
        .note(0, note_kind::LOOKED_BEFORE, looked, &[])
        .leave(0, 0, &[]);
    builder
}

/// The sample with the note of version 1.11.
pub(crate) fn nested_call_sample() -> TraceBuilder {
    let mut builder = looked_before_sample();
    let nested = NestedCallNote {
        caller: 0x40_1234,
        result: 800,
        function: 1,
    };
    builder
        .call(NewCall {
            name: "cuInit",
            arguments: &[9],
            ..NewCall::default()
        })
        .note(0, note_kind::NESTED_CALL, nested, &[])
        .leave(0, 0, &[]);
    builder
}

/// The sample with the notes of version 1.12.
pub(crate) fn paused_sample() -> TraceBuilder {
    let mut builder = payload_file_sample();
    let gap = GapNote {
        calls: 41,
        pause: 2,
        paused: 5001,
        resumed: 6002,
    };
    let written = BreadcrumbNote {
        context: 0xc0,
        stream: 1,
        address: 0x7f00_0000_1008,
        value: 17,
        kind: breadcrumb::AFTER,
    };
    builder
        .call(NewCall {
            name: "cuInit",
            arguments: &[10],
            ..NewCall::default()
        })
        .note(0, note_kind::GAP, gap, &[])
        .note(0, note_kind::BREADCRUMB, written, &[])
        .leave(0, 0, &[]);
    builder
}

/// The sample with the notes of version 1.13.
pub(crate) fn memory_snapshot_sample() -> TraceBuilder {
    let mut builder = paused_sample();
    let taken = MemorySnapshotNote {
        number: 3,
        bytes: 8,
        left_out: 4096,
        nanoseconds: 1_500_000,
        result: 0,
        state: memory_snapshot::TAKEN,
    };
    let ones = MemoryNote {
        address: 0x7000,
        length: 8,
        fill: u64::MAX,
        ..MemoryNote::default()
    };
    builder
        .call(NewCall {
            name: "cuInit",
            arguments: &[11],
            ..NewCall::default()
        })
        .note(0, note_kind::MEMORY_SNAPSHOT, taken, &[])
        .memory_note(0, ones, "", None)
        .leave(0, 0, &[]);
    builder
}

/// The sample with the note of version 1.14.
pub(crate) fn host_seen_sample() -> TraceBuilder {
    let mut builder = memory_snapshot_sample();
    let seen = |is_after| HostChangedNote {
        address: 0x6000,
        is_after,
    };
    builder
        .call(NewCall {
            name: "cuInit",
            arguments: &[12],
            ..NewCall::default()
        })
        .host_seen_note(0, seen(0), NewSnapshot::pointee(0, &[1, 2, 3]))
        .host_seen_note(0, seen(1), NewSnapshot::pointee(0, &[4; 5]))
        .leave(0, 0, &[]);
    builder
}

/// The sample with the note of version 1.15.
pub(crate) fn host_function_sample() -> TraceBuilder {
    let mut builder = host_seen_sample();
    let ran = HostFunctionNote {
        thread: 1,
        number: 6,
        begun: 7007,
        ended: 8008,
    };
    builder
        .call(NewCall {
            name: "cuInit",
            arguments: &[13],
            ..NewCall::default()
        })
        .note(0, note_kind::HOST_FUNCTION, ran, &[])
        .leave(0, 0, &[]);
    builder
}

/// The sample with a payload in a file that is not there.
pub(crate) fn payload_file_sample() -> TraceBuilder {
    let mut builder = nested_call_sample();
    let range = FileRange {
        offset: 4096,
        length: 70_000,
        file_length: 80_000,
        modified: 1_700_000_000_000_000_005,
        path: b"/nonexistent/weights.bin",
        build_id: &[],
        digest: Some(0x1234_5678_9abc_def0),
    };
    let mut encoded = vec![0; range.encoded_length()];
    range.encode(&mut encoded).unwrap();
    builder
        .call(NewCall {
            name: "cuModuleLoadData",
            arguments: &[1, 2],
            snapshots: &[NewSnapshot {
                flags: snapshot_flag::IN_FILE,
                ..NewSnapshot::pointee(1, &encoded)
            }],
            ..NewCall::default()
        })
        .leave(0, 0, &[]);
    builder
}

/// Three threads, two of them interleaved, blobs (one of them twice), notes, every kind of
/// snapshot, a call in flight.
pub(crate) fn sample() -> TraceBuilder {
    let mut builder = TraceBuilder::new(SIGNATURES);
    fill(&mut builder);
    builder
}

fn fill(builder: &mut TraceBuilder) {
    let image = noise(17_000);
    let text = b"the same line again and again\n".repeat(700);
    let ipc = [7, 6, 5, 4, 3, 2, 1, 0];
    builder
        .chunk_length(4096)
        .meta("program", "/bin/example")
        .meta("driver.version", "13000")
        .mapping(Mapping {
            start: 0x40_0000,
            end: 0x40_1000,
            offset: 0,
            path: "/bin/example".into(),
            build_id: vec![1, 2, 3],
        })
        .call(NewCall {
            name: "cuInit",
            arguments: &[0],
            caller: 0x40_0010,
            ..NewCall::default()
        })
        .thread_note(0, 4243, "main")
        .leave(0, 0, &[])
        .call(NewCall {
            name: "cuDeviceGet",
            arguments: &[0x7000, u64::MAX],
            ..NewCall::default()
        })
        .call(NewCall {
            thread: 1,
            name: "cuModuleLoadData",
            arguments: &[0x7100, 0x8000],
            snapshots: &[NewSnapshot::pointee(1, &image)],
            caller: 0x40_0020,
        })
        .leave(
            0,
            1,
            &[NewSnapshot {
                flags: snapshot_flag::UNREADABLE,
                ..NewSnapshot::pointee(0, &[])
            }],
        )
        .layout_note(1, 0xf00d, &[(0, 8), (8, 4)])
        .leave(1, 0, &[NewSnapshot::pointee(0, &0xbeef_u64.to_le_bytes())])
        .call(NewCall {
            thread: 1,
            name: "cuModuleLoadData",
            arguments: &[0x7100, 0x8000],
            snapshots: &[
                NewSnapshot::pointee(1, &image),
                NewSnapshot::piece(1, field::FATBIN, &text),
                NewSnapshot {
                    flags: snapshot_flag::OMITTED,
                    ..NewSnapshot::piece(1, field::FILE, &9_u64.to_le_bytes())
                },
                NewSnapshot {
                    flags: snapshot_flag::HASHED,
                    ..NewSnapshot::piece(1, field::DIRECTORY, &[5; 24])
                },
            ],
            caller: 0x40_0020,
        })
        .leave(1, 0, &[])
        .call(NewCall {
            name: "cuMemcpyDtoHAsync_v2",
            arguments: &[0x9000, 0xd000, 4, 0],
            ..NewCall::default()
        })
        .leave(0, 0, &[])
        .call(NewCall {
            name: "cuParamSetf",
            arguments: &[0xf00d, 4, u64::from(1.5_f32.to_bits())],
            ..NewCall::default()
        })
        .readback_note(
            0,
            ReadbackNote {
                thread: 0,
                number: 2,
                address: 0x9000,
            },
            NewSnapshot::pointee(0, &[1, 2, 3, 4]),
        )
        .leave(0, 0, &[])
        .call(NewCall {
            thread: 2,
            name: "cuIpcOpenEventHandle",
            arguments: &[&[0x7200][..], &ipc].concat(),
            ..NewCall::default()
        })
        .text_note(2, note_kind::UNKNOWN_SYMBOL, "cuTomorrow");
    fill_chunks(builder);
}

/// Calls that take more than one chunk of 4 KiB.
fn fill_chunks(builder: &mut TraceBuilder) {
    for round in 0..100_u64 {
        builder
            .call(NewCall {
                name: "cuDeviceGet",
                arguments: &[0x7000, round],
                snapshots: &[NewSnapshot::pointee(0, &[0xaa; 24])],
                caller: 0x40_0030,
                ..NewCall::default()
            })
            .leave(
                0,
                0,
                &[NewSnapshot::pointee(0, &(round as u32).to_le_bytes())],
            );
    }
}

/// All that a trace has of its calls, a line each.
pub(crate) fn describe(trace: &Trace) -> Vec<String> {
    let bytes = |bytes: Bytes<'_>| match bytes {
        Bytes::Blob(blob) => match trace.blob(blob) {
            Ok(bytes) => {
                let checksum = crc32fast::hash(&bytes);
                format!(
                    "{} bytes from {:?}, {checksum:#x}",
                    bytes.len(),
                    &bytes[..8]
                )
            }
            Err(damage) => format!("{damage:?}"),
        },
        other => format!("{other:?}"),
    };
    let mut lines = Vec::new();
    for call in trace.calls() {
        let mut line = format!(
            "{} {}.{} {} at {} from {:#x}:",
            call.index, call.thread, call.number, call.signature.name, call.ticks, call.caller
        );
        for position in 0..call.signature.parameters.len() {
            write!(
                line,
                " {:?}={:#x}",
                call.argument_bytes(position),
                call.argument(position)
            )
            .unwrap();
        }
        for snapshot in call.snapshots() {
            write!(
                line,
                " [{}.{} {} ",
                snapshot.parameter, snapshot.field, snapshot.flags
            )
            .unwrap();
            line += &bytes(snapshot.bytes);
        }
        for note in call.notes() {
            match note {
                Note::Readback(note, snapshot) => {
                    write!(line, " {note:?} {}", bytes(snapshot.bytes)).unwrap();
                }
                Note::HostChanged(note, snapshot) => {
                    write!(line, " {note:?} {}", bytes(snapshot.bytes)).unwrap();
                }
                note => write!(line, " {note:?}").unwrap(),
            }
        }
        if let Some(leave) = call.leave {
            write!(line, " = {} at {}", leave.result, leave.ticks).unwrap();
            for snapshot in leave.snapshots() {
                write!(
                    line,
                    " [{}.{} {} ",
                    snapshot.parameter, snapshot.field, snapshot.flags
                )
                .unwrap();
                line += &bytes(snapshot.bytes);
            }
        }
        lines.push(line);
    }
    lines
}
