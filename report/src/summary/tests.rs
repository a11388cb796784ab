//! What `info` says of a small trace.

use cutape_format::TraceBuilder;
use cutape_render::test_trace;
use serde_json::{Value as Json, json};

use super::*;

fn summary(name: &str) -> Summary {
    summary_of(&test_trace::program(), name)
}

pub(super) fn summary_of(builder: &TraceBuilder, name: &str) -> Summary {
    test_trace::read(builder, name, |trace| Summary::of(trace, || {}).unwrap().0)
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
fn a_trace_that_says_nothing() {
    let trace = test_trace::open(
        &TraceBuilder::new(cutape_registry::SIGNATURE_TEXT),
        "info-empty",
    );
    // Its file is gone by now, so the facts of the file are an error with a reason.
    assert!(Summary::of(&trace, || {}).is_err());
    assert!(ProgramFacts::of(&trace).path.is_none());
    assert!(MachineFacts::of(&trace).devices.is_empty());
}

#[test]
fn ranges_and_marks() {
    let builder = test_trace::marked_program();
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
}
