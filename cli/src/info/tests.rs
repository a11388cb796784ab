//! What `info` says of a small trace.

use cutape_format::TraceBuilder;
use cutape_render::test_trace;

use super::*;

fn summary(builder: &TraceBuilder, name: &str) -> Summary {
    test_trace::read(builder, name, |trace| Summary::of(trace, || {}).unwrap().0)
}

#[test]
fn tables_say_it_with_units() {
    let mut out = Vec::new();
    tables::write(&summary(&test_trace::program(), "info-text"), 80, &mut out).unwrap();
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
fn ranges_with_domains() {
    let summary = summary(&test_trace::marked_program(), "info-ranges");
    let mut out = Vec::new();
    tables::write(&summary, 100, &mut out).unwrap();
    let out = String::from_utf8(out).unwrap();
    assert!(
        out.contains("  train/step           2      3         3 "),
        "{out}"
    );
    assert!(out.contains("  d@open (1 open)      1 "), "{out}");
}
