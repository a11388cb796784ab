//! What `info` says of a small trace.

use cutape_format::{NewCall, NewSnapshot, TraceBuilder};
use serde_json::{Value as Json, json};

use super::*;
use crate::info::tables;
use crate::test_trace;

/// A program that leaks, fails, and dies in a call. Ten ticks are a microsecond.
fn program() -> TraceBuilder {
    let mut builder = TraceBuilder::new(cutape_registry::SIGNATURE_TEXT);
    for (key, value) in [
        ("program", "/usr/bin/example"),
        ("argument.0", "example"),
        ("argument.1", "two words"),
        ("directory", "/home/user"),
        ("environment.CUDA_VISIBLE_DEVICES", "0"),
        ("host.kernel", "Linux 6.1"),
        ("driver.path", "/usr/lib/libcuda.so.1"),
        ("driver.version", "13000"),
        ("device.count", "1"),
        ("device.0.name", "GPU 9000"),
        ("device.0.compute-capability", "9.0"),
        ("device.0.memory", "150754820096"),
        ("recorder.version", "0.1.0"),
        ("payloads", "all"),
        ("exit.signal", "11"),
        ("clock.ticks-per-second", "10000000"),
    ] {
        builder.meta(key, value);
    }
    let ptx = b".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry k() { ret; }\n\0";
    builder
        .call(NewCall {
            name: "cuModuleLoadData",
            arguments: &[0x7ff0, 0x400000],
            snapshots: &[NewSnapshot::pointee(1, ptx)],
            ..NewCall::default()
        })
        .thread_note(0, 4242, "main")
        .leave(0, 0, &[NewSnapshot::pointee(0, &0x50_u64.to_le_bytes())]);
    test_trace::get_function(&mut builder, 0x51, "_Z1kv");
    for grid in [[4, 1, 1], [8, 2, 1], [4, 1, 1]] {
        test_trace::launch(&mut builder, 0x51, grid);
    }
    builder
        .call(NewCall {
            name: "cuMemAlloc_v2",
            arguments: &[0x7ff0, 4096],
            ..NewCall::default()
        })
        .leave(
            0,
            0,
            &[NewSnapshot::pointee(0, &0x7000_0000_u64.to_le_bytes())],
        )
        .call(NewCall {
            name: "cuMemcpyHtoD_v2",
            arguments: &[0x7000_0000, 0x9000, 4096],
            ..NewCall::default()
        })
        .leave(0, 0, &[])
        .call(NewCall {
            thread: 1,
            name: "cuMemAlloc_v2",
            arguments: &[0x7ff0, 1 << 50],
            ..NewCall::default()
        })
        .leave(1, 2, &[])
        .text_note(1, cutape_format::layout::note_kind::STOPPED, "disk full")
        .call(NewCall {
            name: "cuModuleUnload",
            arguments: &[0x50],
            ..NewCall::default()
        });
    builder
}

fn summary(name: &str) -> Summary {
    summary_of(&program(), name)
}

fn summary_of(builder: &TraceBuilder, name: &str) -> Summary {
    let path = std::env::temp_dir().join(format!("cutape-{name}-{}.cutape", std::process::id()));
    builder.write(&path).unwrap();
    let trace = Trace::open(&path).unwrap();
    let summary = Summary::of(&trace, &mut Progress::hidden()).unwrap();
    std::fs::remove_file(&path).unwrap();
    summary
}

#[test]
fn keys_and_numbers() {
    let summary: Json = serde_json::to_value(summary("info-json")).unwrap();
    for (path, expected) in [
        ("/program/path", json!("/usr/bin/example")),
        ("/program/arguments", json!(["example", "two words"])),
        ("/program/environment/CUDA_VISIBLE_DEVICES", json!("0")),
        ("/program/exit_signal", json!(11)),
        ("/program/exit_status", json!(null)),
        ("/machine/driver_version", json!(13000)),
        (
            "/machine/devices/0/memory_bytes",
            json!(150_754_820_096_u64),
        ),
        ("/machine/devices/1", json!(null)),
        ("/started_unix_ns", json!(1_700_000_000_000_000_000_u64)),
        ("/duration_ns", json!(16_000)),
        (
            "/threads/0",
            json!({"ordinal": 0, "number": 4242, "name": "main", "calls": 8}),
        ),
        ("/threads/1/calls", json!(1)),
        ("/calls", json!({"total": 9, "failed": 1, "in_flight": 1})),
        (
            "/functions/0",
            json!({
                "function": "cuLaunchKernel", "calls": 3, "failed": 0, "in_flight": 0,
                "total_ns": 3000, "mean_ns": 1000, "max_ns": 1000,
            }),
        ),
        (
            "/kernels/0",
            json!({
                "name": "_Z1kv", "launches": 3, "failed": 0, "in_graphs": 0, "grids": 2,
                "first_grids": [[4, 1, 1], [8, 2, 1]],
            }),
        ),
        ("/images/0/image", json!("PTX")),
        ("/images/0/kernels", json!(["k"])),
        ("/images/0/call", json!(0)),
        (
            "/memory/device",
            json!({
                "allocations": 1, "freed": 0, "total_bytes": 4096, "peak_bytes": 4096,
                "live_bytes": 4096,
            }),
        ),
        ("/copies/host_to_device_bytes", json!(4096)),
        // The unload did not return: the module counts as not destroyed.
        ("/never_destroyed/0/kind", json!("module")),
        ("/never_destroyed/1/kind", json!("memory")),
        (
            "/in_flight/0/text",
            json!("cuModuleUnload(hmod = 0x50 module#1)"),
        ),
        ("/failed/0/call", json!(7)),
        ("/failed/0/function", json!("cuMemAlloc_v2")),
        (
            "/failed/0/result",
            json!({"code": 2, "name": "CUDA_ERROR_OUT_OF_MEMORY"}),
        ),
    ] {
        let found = summary.pointer(path).cloned().unwrap_or(Json::Null);
        assert_eq!(found, expected, "{path}");
    }
}

#[test]
fn tables_say_it_with_units() {
    let mut out = Vec::new();
    tables::write(&summary("info-text"), 80, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    let squeezed: Vec<String> = text
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    for line in [
        "program /usr/bin/example",
        "command example \"two words\"",
        "ended by signal 11 (SIGSEGV)",
        "started 2023-11-14 22:13:20 UTC",
        "duration 16.0 us",
        "driver CUDA 13.0, /usr/lib/libcuda.so.1",
        "GPU GPU 9000, compute capability 9.0, 140.4 GiB",
        "thread @0 = 4242 \"main\", 8 calls",
        "calls 9, 1 failed, 1 in flight",
        "function calls failed total mean max",
        "cuLaunchKernel 3 0 3.0 us 1.0 us 1.0 us",
        "k 4x1x1 8x2x1 3 0",
        "PTX sm_80 k call 0 74 bytes 1 1",
        "device 1 0 4.0 KiB 4.0 KiB 4.0 KiB",
        "host to device 4.0 KiB",
        "module 0x50 (cuModuleLoadData, call 0) 1",
        "7 @1 cuMemAlloc_v2(dptr = 0x7ff0, bytesize = 1125899906842624) = CUDA_ERROR_OUT_OF_MEMORY",
        "8 @0 cuModuleUnload(hmod = 0x50 module#1) = ? (did not return)",
    ] {
        assert!(
            squeezed.iter().any(|found| found == line),
            "{line}\nis not in\n{text}"
        );
    }
    assert!(!text.contains('\x1b') && text.lines().all(|line| line == line.trim_end()));
}

#[test]
fn a_trace_that_says_nothing() {
    let trace = test_trace::open(
        &TraceBuilder::new(cutape_registry::SIGNATURE_TEXT),
        "info-empty",
    );
    // Its file is gone by now, so the facts of the file are an error with a reason.
    assert!(Summary::of(&trace, &mut Progress::hidden()).is_err());
    assert!(ProgramFacts::of(&trace).path.is_none());
    assert!(MachineFacts::of(&trace).devices.is_empty());
}

#[test]
fn ranges_and_marks() {
    let mut builder = TraceBuilder::new(cutape_registry::SIGNATURE_TEXT);
    builder
        .meta("clock.ticks-per-second", "10000000")
        .meta("markers.lost", "3");
    test_trace::get_function(&mut builder, 0x51, "k");
    for what in [
        "push train",
        "push step",
        "launch",
        "mark m",
        "launch",
        "pop",
        "push step",
        "launch",
        "pop",
        "start 1 d@open",
        "launch",
        "mark m",
    ] {
        match what {
            "launch" => test_trace::launch(&mut builder, 0x51, [1, 1, 1]),
            other => test_trace::marker(&mut builder, other),
        }
    }
    let summary = summary_of(&builder, "info-ranges");
    let ranges = json!(summary.ranges);
    let range = |range: &str, domain: Option<&str>, numbers: [u64; 7]| {
        let [count, open, calls, launches, total, mean, max] = numbers;
        json!({
            "range": range, "domain": domain, "count": count, "open": open, "calls": calls,
            "launches": launches, "total_ns": total, "mean_ns": mean, "max_ns": max,
        })
    };
    assert_eq!(
        ranges,
        json!([
            range("train", None, [1, 1, 4, 4, 14_000, 14_000, 14_000]),
            range("train/step", None, [2, 0, 3, 3, 9000, 4500, 6000]),
            range("open", Some("d"), [1, 1, 1, 1, 2000, 2000, 2000]),
        ])
    );
    assert_eq!(
        json!(summary.marks),
        json!([{"mark": "m", "domain": null, "count": 2, "first_ns": 6000}])
    );
    assert!(summary.remarks[0].starts_with("3 ranges and marks"));
    let mut out = Vec::new();
    tables::write(&summary, 100, &mut out).unwrap();
    let out = String::from_utf8(out).unwrap();
    assert!(
        out.contains("  train/step           2      3         3 "),
        "{out}"
    );
    assert!(out.contains("  d@open (1 open)      1 "), "{out}");
}
