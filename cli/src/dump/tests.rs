//! What `dump` prints of small traces.

use std::io;

use cutape_format::layout::{
    ExchangeNote, ExchangeOutputNote, HostChangedNote, HostSkippedNote, ReadbackNote,
    exchange_skip, field, host_skip, note_kind, snapshot_flag,
};
use cutape_format::{NewCall, NewSnapshot, TraceBuilder};

use super::*;
use cutape_render::test_trace;

fn filter(calls: Option<&str>, thread: Option<u32>) -> CallFilter {
    CallFilter {
        calls: calls.map(|text| CallSet::parse(text).unwrap()),
        thread,
        stacks: false,
    }
}

fn dump(trace: &Trace, filter: &CallFilter, format: Format, palette: Palette) -> String {
    let mut out = Vec::new();
    write_calls(trace, filter, format, palette, Progress::hidden(), &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn text(trace: &Trace) -> Vec<String> {
    let all = dump(trace, &filter(None, None), Format::Text, Palette::default());
    all.lines().map(str::to_owned).collect()
}

fn json(trace: &Trace) -> Vec<Json> {
    let all = dump(trace, &filter(None, None), Format::Json, Palette::default());
    all.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// A load, a function, memory, a launch, a failure, a call in flight.
fn program() -> TraceBuilder {
    let mut builder = TraceBuilder::new(cutape_registry::SIGNATURE_TEXT);
    // Ten ticks are a microsecond.
    builder.meta("clock.ticks-per-second", "10000000");
    let ptx = b".version 7.0\n.target sm_80\n.address_size 64\n\0";
    builder
        .call(NewCall {
            name: "cuModuleLoadData",
            arguments: &[0x7ff0, 0x400000],
            snapshots: &[NewSnapshot::pointee(1, ptx)],
            caller: 0x1234,
            ..NewCall::default()
        })
        .thread_note(0, 4242, "main")
        .leave(0, 0, &[NewSnapshot::pointee(0, &0x50_u64.to_le_bytes())]);
    test_trace::get_function(&mut builder, 0x51, "saxpy");
    builder
        .call(NewCall {
            name: "cuMemAlloc_v2",
            arguments: &[0x7ff0, 0x100],
            ..NewCall::default()
        })
        .leave(
            0,
            0,
            &[NewSnapshot::pointee(0, &0x7000_0000_u64.to_le_bytes())],
        );
    let mut parameters = 0x7000_0010_u64.to_le_bytes().to_vec();
    parameters.extend_from_slice(&64_i32.to_le_bytes());
    parameters.extend_from_slice(&2.5_f32.to_le_bytes());
    builder
        .call(NewCall {
            name: "cuLaunchKernel",
            arguments: &[0x51, 4, 1, 1, 32, 1, 1, 0, 2, 0x7ff0, 0],
            snapshots: &[NewSnapshot::piece(9, field::KERNEL_PARAMETERS, &parameters)],
            ..NewCall::default()
        })
        .layout_note(0, 0x51, &[(0, 8), (8, 4), (12, 4)])
        .leave(0, 0, &[]);
    builder
        .call(NewCall {
            name: "cuStreamCreateWithPriority",
            arguments: &[0x7ff0, 1, u64::MAX],
            ..NewCall::default()
        })
        .leave(0, 1, &[]);
    builder.call(NewCall {
        name: "cuModuleUnload",
        arguments: &[0x50],
        ..NewCall::default()
    });
    builder
}

#[test]
fn lines_of_text() {
    let trace = test_trace::open(&program(), "dump-text");
    assert_eq!(
        text(&trace),
        [
            "0 @0 +0.000000ms cuModuleLoadData(module = 0x7ff0, image = PTX 45 bytes sm_80) = CUDA_SUCCESS → \
             module = 0x50 module#1  [1.0 us] 0x1234",
            "    note: thread is 4242 \"main\"",
            "1 @0 +0.002000ms cuModuleGetFunction(hfunc = 0x7000, hmod = 0x11, name = \"saxpy\") = CUDA_SUCCESS → \
             hfunc = 0x51 function#1  [1.0 us]",
            "2 @0 +0.004000ms cuMemAlloc_v2(dptr = 0x7ff0, bytesize = 256) = CUDA_SUCCESS → \
             dptr = 0x70000000 memory#1  [1.0 us]",
            "3 @0 +0.006000ms cuLaunchKernel(f = 0x51 function#1 \"saxpy\", grid = 4x1x1, block = 32x1x1, shared = 0, \
             stream = 0x2 per-thread default, parameters = (0x70000010 memory#1+0x10, 64, 2.5)) = CUDA_SUCCESS  \
             [1.0 us]",
            "    note: parameters of 0x51: bytes 8 at 0, 4 at 8, 4 at 12",
            "4 @0 +0.008000ms cuStreamCreateWithPriority(phStream = 0x7ff0, flags = CU_STREAM_NON_BLOCKING, \
             priority = -1) = CUDA_ERROR_INVALID_VALUE  [1.0 us]",
            "5 @0 +0.010000ms cuModuleUnload(hmod = 0x50 module#1) = ? (did not return)",
        ]
    );
}

#[test]
fn lines_of_json() {
    let trace = test_trace::open(&program(), "dump-json");
    let lines = json(&trace);
    assert_eq!(lines.len(), 6);
    let keys = [
        "arguments",
        "call",
        "caller",
        "caller_symbol",
        "duration_ns",
        "function",
        "launch",
        "notes",
        "outputs",
        "result",
        "thread",
        "time_ns",
    ];
    for (line, index) in lines.iter().zip(0..) {
        let mut found: Vec<_> = line.as_object().unwrap().keys().collect();
        found.sort();
        assert_eq!(found, keys);
        assert_eq!(line["call"], json!(index));
    }
    for (place, path, expected) in [
        (0, "/function", json!("cuModuleLoadData")),
        (0, "/time_ns", json!(0)),
        (1, "/duration_ns", json!(1000)),
        (0, "/caller", json!("0x1234")),
        (0, "/arguments/module/value", json!("0x7ff0")),
        (0, "/arguments/image/pointee/image", json!("PTX")),
        (0, "/arguments/image/pointee/targets", json!(["sm_80"])),
        (
            0,
            "/outputs/module",
            json!({"value": "0x50", "label": "module#1"}),
        ),
        (0, "/result", json!({"code": 0, "name": "CUDA_SUCCESS"})),
        (
            0,
            "/notes/0",
            json!({"kind": "thread", "number": 4242, "name": "main"}),
        ),
        (1, "/arguments/name/pointee", json!("saxpy")),
        (3, "/launch/kernel", json!("saxpy")),
        (3, "/launch/grid", json!([4, 1, 1])),
        (3, "/launch/parameters/0/label", json!("memory#1+0x10")),
        (
            3,
            "/launch/parameters/2",
            json!({"value": 2.5, "offset": 12, "size": 4}),
        ),
        (3, "/arguments/gridDimX", json!({"value": 4})),
        (
            4,
            "/arguments/flags",
            json!({"value": 1, "name": "CU_STREAM_NON_BLOCKING"}),
        ),
        (4, "/result/code", json!(1)),
        (5, "/result", json!(null)),
        (5, "/duration_ns", json!(null)),
    ] {
        assert_eq!(
            lines[place].pointer(path),
            Some(&expected),
            "{place} {path}"
        );
    }
}

#[test]
fn only_the_calls_that_are_asked_for() {
    let trace = test_trace::open(&program(), "dump-set");
    for (calls, thread, count) in [
        (Some("cuLaunchKernel"), None, 1),
        // The layout's note has a line of its own.
        (Some("kernel:sax*"), None, 1),
        (Some("1..3"), None, 2),
        (Some("1..3"), Some(0), 2),
        (None, Some(1), 0),
    ] {
        let all = dump(
            &trace,
            &filter(calls, thread),
            Format::Text,
            Palette::default(),
        );
        let lines = all.lines().filter(|line| !line.starts_with(' ')).count();
        assert_eq!(lines, count, "{calls:?} {thread:?}");
    }
}

#[test]
fn colours_are_only_around_the_text() {
    let trace = test_trace::open(&program(), "dump-colour");
    let all = filter(None, None);
    let plain = dump(&trace, &all, Format::Text, Palette::default());
    let coloured = dump(&trace, &all, Format::Text, Palette::COLOURED);
    assert!(!plain.contains('\x1b') && coloured.contains("\x1b[1mcuModuleUnload\x1b[0m("));
    assert_eq!(anstream::adapter::strip_str(&coloured).to_string(), plain);
}

/// A function, its arguments, its snapshots before and after, and a part of the line.
type Step<'s> = (
    &'s str,
    &'s [u64],
    Vec<NewSnapshot<'s>>,
    Vec<NewSnapshot<'s>>,
    &'s str,
);

fn assert_lines(steps: Vec<Step<'_>>) {
    for (name, words, before, after, expected) in steps {
        let mut builder = TraceBuilder::new(cutape_registry::SIGNATURE_TEXT);
        builder
            .call(NewCall {
                name,
                arguments: words,
                snapshots: &before,
                ..NewCall::default()
            })
            .leave(0, 0, &after);
        let lines = text(&test_trace::open(&builder, "dump-snapshots"));
        let line = &lines[0];
        assert!(line.contains(expected), "{expected}\nis not in\n{line}");
    }
}

#[test]
fn bytes_that_a_call_reads() {
    let omitted = 5000_u64.to_le_bytes();
    let hashed = [&7_u64.to_le_bytes()[..], &[0xab; 16]].concat();
    let flagged = |parameter, flags, bytes| NewSnapshot {
        parameter,
        field: field::POINTEE,
        flags,
        bytes,
    };
    let option_bytes = [3_u32.to_le_bytes(), 4_u32.to_le_bytes()].concat();
    let values = [0x9000_u64.to_le_bytes(), 64_u64.to_le_bytes()].concat();
    let values_after = [0x9000_u64.to_le_bytes(), 5_u64.to_le_bytes()].concat();
    assert_lines(vec![
        (
            "cuMemcpyHtoD_v2",
            &[0x100, 0x200, 3],
            vec![NewSnapshot::pointee(1, &[1, 2, 3])],
            vec![],
            "cuMemcpyHtoD_v2(dstDevice = 0x100, srcHost = 0x200 → <3 bytes: 010203>, ByteCount = 3)",
        ),
        (
            "cuMemcpyHtoD_v2",
            &[0x100, 0x200, 5000],
            vec![flagged(1, snapshot_flag::OMITTED, &omitted)],
            vec![],
            "srcHost = 0x200 → <5000 bytes, not kept>",
        ),
        (
            "cuMemcpyHtoD_v2",
            &[0x100, 0x200, 7],
            vec![flagged(1, snapshot_flag::HASHED, &hashed)],
            vec![],
            "srcHost = 0x200 → <7 bytes, not kept, blake3 abababab…>",
        ),
        (
            "cuMemcpyHtoD_v2",
            &[0x100, 0x200, 7],
            vec![flagged(1, snapshot_flag::UNREADABLE, &[])],
            vec![],
            "srcHost = 0x200 → <unreadable>",
        ),
        (
            "cuModuleLoadDataEx",
            &[0x10, 0x20, 2, 0x30, 0x40],
            vec![
                NewSnapshot::piece(3, field::OPTIONS, &option_bytes),
                NewSnapshot::piece(4, field::OPTION_VALUES, &values),
            ],
            vec![
                NewSnapshot::piece(4, field::OPTION_VALUES, &values_after),
                NewSnapshot::piece(4, field::INFO_LOG, b"fine\0"),
            ],
            "options = 0x30 {options = [CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES]}, \
             optionValues = 0x40 {option_values = [0x9000, 0x40]}) = CUDA_SUCCESS → \
             optionValues.option_values = [0x9000, 0x5], optionValues.info_log = \"fine\"",
        ),
    ]);
}

#[test]
fn values_have_names() {
    let (processors, context) = (132_i32.to_le_bytes(), 0x77_u64.to_le_bytes());
    assert_lines(vec![
        (
            "cuDeviceGetAttribute",
            &[0x10, 16, 0],
            vec![],
            vec![NewSnapshot::pointee(0, &processors)],
            "attrib = CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, dev = 0) = CUDA_SUCCESS → pi = 132",
        ),
        (
            "cuStreamGetFlags",
            &[0, 0x7ff0],
            vec![],
            vec![NewSnapshot::pointee(1, &[1, 0, 0, 0])],
            "flags = 0x7ff0) = CUDA_SUCCESS → flags = CU_STREAM_NON_BLOCKING",
        ),
        (
            "cuMemPrefetchAsync_v2",
            &[0x100, 64, 7 << 32 | 1, 0, 0],
            vec![],
            vec![],
            "location = {type = CU_MEM_LOCATION_TYPE_DEVICE, id = 7}",
        ),
        (
            "cuDeviceGetName",
            &[0x10, 100, 0],
            vec![],
            vec![NewSnapshot::pointee(0, b"GPU 9000\0\0\0")],
            "→ name = \"GPU 9000\"",
        ),
        (
            "cuCtxCreate_v2",
            &[0x10, 12, 0],
            vec![],
            vec![NewSnapshot::pointee(0, &context)],
            "flags = CU_CTX_SCHED_BLOCKING_SYNC|CU_CTX_MAP_HOST, dev = 0) = CUDA_SUCCESS → pctx = 0x77 context#1",
        ),
    ]);
}

#[test]
fn notes() {
    let mut builder = TraceBuilder::new(cutape_registry::SIGNATURE_TEXT);
    let exchange = |left_out, reason| ExchangeNote {
        kept: 128,
        left_out,
        reason,
    };
    let output = ExchangeOutputNote {
        thread: 1,
        number: 6,
        address: 0xa000,
    };
    builder
        .call(NewCall {
            name: "cuCtxSynchronize",
            ..NewCall::default()
        })
        .readback_note(
            0,
            ReadbackNote {
                thread: 1,
                number: 7,
                address: 0x9000,
            },
            NewSnapshot::pointee(0, &[0xaa, 0xbb]),
        )
        .host_changed_note(
            0,
            HostChangedNote {
                address: 0x8010,
                is_after: 1,
            },
            NewSnapshot::pointee(0, &[0xcc]),
        )
        .host_skipped_note(
            0,
            HostSkippedNote {
                address: 0x7000,
                length: 1 << 30,
                reason: host_skip::LONG,
            },
        )
        .note(
            0,
            note_kind::EXCHANGE,
            exchange(0, exchange_skip::NONE),
            &[],
        )
        .note(
            0,
            note_kind::EXCHANGE,
            exchange(64, exchange_skip::FULL),
            &[],
        )
        .exchange_output_note(0, output, &[0xdd])
        .exchange_output_note(0, output, &[])
        .text_note(0, note_kind::UNKNOWN_SYMBOL, "cuNewThing")
        .text_note(0, note_kind::STOPPED, "the disk is full")
        .text_note(0, 99, "?")
        .leave(0, 0, &[]);
    let trace = test_trace::open(&builder, "dump-notes");
    assert_eq!(
        text(&trace)[1..],
        [
            "    note: readback at 0x9000, by call 7 of thread 1: <2 bytes: aabb>",
            "    note: host memory at 0x8010 holds after the call: <1 byte: cc>",
            "    note: host memory at 0x7000 (1073741824 bytes), which the device can read, is not recorded: it is longer than 64 MiB",
            "    note: exchange with another process: 128 bytes of memory compared",
            "    note: exchange with another process: 128 bytes of memory compared, 64 bytes not: the recorder's memory for copies was full",
            "    note: call 6 of thread 1, an exchange, left at 0xa000: <1 byte: dd>",
            "    note: call 6 of thread 1, an exchange, changed no memory that is compared",
            "    note: the program requested `cuNewThing`, which the recorder does not know",
            "    note: recording stopped here: the disk is full",
            // Padded to a multiple of eight.
            "    note: note of unknown kind 99, 8 bytes",
        ]
    );
    // The first line says that the recording ended early.
    let lines = json(&trace);
    assert_eq!(lines[0]["call"], Json::Null);
    let kinds: Vec<_> = lines[1]["notes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|n| n["kind"].clone())
        .collect();
    assert_eq!(
        kinds,
        [
            "readback",
            "host_changed",
            "host_skipped",
            "exchange",
            "exchange",
            "exchange_output",
            "exchange_output",
            "unknown_symbol",
            "stopped",
            "other"
        ]
    );
}

#[test]
fn a_reader_that_stops_reading_is_no_error() {
    struct Closed;
    impl Write for Closed {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let trace = test_trace::open(&program(), "dump-pipe");
    for format in [Format::Text, Format::Json] {
        let all = filter(None, None);
        let hidden = Progress::hidden();
        let error = write_calls(
            &trace,
            &all,
            format,
            Palette::default(),
            hidden,
            &mut Closed,
        )
        .unwrap_err();
        assert_eq!(error.status, cutape_terminal::failure::QUIET, "{format:?}");
    }
}

#[test]
fn markers_stand_between_calls() {
    let mut builder = TraceBuilder::new(cutape_registry::SIGNATURE_TEXT);
    builder.meta("clock.ticks-per-second", "10000000");
    let launch = |builder: &mut TraceBuilder| test_trace::launch(builder, 0x51, [1, 1, 1]);
    test_trace::marker(&mut builder, "push lib@a\"b");
    launch(&mut builder);
    test_trace::marker(&mut builder, "mark m");
    test_trace::marker(&mut builder, "start 3 s");
    launch(&mut builder);
    test_trace::marker(&mut builder, "end 3");
    test_trace::marker(&mut builder, "end 4");
    let trace = test_trace::open(&builder, "dump-markers");
    let is_call = |line: &&String| !line.starts_with('-');
    let all = text(&trace);
    let lines: Vec<&str> = all.iter().map(|line| &line[..line.len().min(52)]).collect();
    assert_eq!(lines[0], "- @0 +0.000000ms push \"a\\\"b\"  [domain lib]");
    assert!(lines[1].starts_with("0 @0 "), "{lines:#?}");
    assert_eq!(lines[2], "- @0 +0.003000ms mark \"m\"");
    assert_eq!(lines[3], "- @0 +0.004000ms start \"s\"");
    assert!(lines[4].starts_with("1 @0 "), "{lines:#?}");
    assert_eq!(lines[5], "- @0 +0.007000ms end \"s\"  [3.0 us]");
    assert_eq!(lines[6], "- @0 +0.008000ms end of nothing");
    assert_eq!(all.len(), 7);
    let objects = json(&trace);
    assert_eq!(
        objects[5],
        json!({
            "marker": "end", "name": "s", "domain": null, "thread": 0, "source": "nvtx",
            "time_ns": 7000, "duration_ns": 3000,
        })
    );
    assert_eq!(objects[0]["domain"], "lib");
    assert_eq!(objects[6]["name"], Json::Null);
    // A choice by ranges shows the markers in them, others none.
    for (calls, markers, count) in [("range:s", 2, 1), ("1", 0, 1), ("cuLaunchKernel", 0, 2)] {
        let set = CallSet::for_trace(calls, &trace).unwrap();
        let filter = CallFilter {
            calls: Some(set),
            ..filter(None, None)
        };
        let out = dump(&trace, &filter, Format::Text, Palette::default());
        let lines: Vec<String> = out.lines().map(str::to_owned).collect();
        assert_eq!(
            lines.iter().filter(is_call).count(),
            count,
            "{calls}: {out}"
        );
        assert_eq!(lines.len() - count, markers, "{calls}: {out}");
    }
}
