//! A small program's trace.
#![allow(dead_code, reason = "each test uses some of it")]

use std::sync::atomic::{AtomicU32, Ordering};

use cutape_format::layout::{MarkerNote, marker_action, marker_source};
use cutape_format::{NewCall, NewSnapshot, Trace, TraceBuilder};

pub(crate) const PTX: &[u8] =
    b".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry k() { ret; }\n\0";

/// A successful call that wrote `out` behind its first parameter.
pub(crate) fn call(builder: &mut TraceBuilder, name: &str, arguments: &[u64], out: Option<u64>) {
    with_bytes(builder, name, arguments, &[], out);
}

/// The same with bytes behind other parameters.
pub(crate) fn with_bytes(
    builder: &mut TraceBuilder,
    name: &str,
    arguments: &[u64],
    bytes: &[(u8, &[u8])],
    out: Option<u64>,
) {
    let snapshots = bytes
        .iter()
        .map(|(at, bytes)| NewSnapshot::pointee(*at, bytes));
    let snapshots: Vec<_> = snapshots.collect();
    let word = out.unwrap_or(0).to_le_bytes();
    let written = [NewSnapshot::pointee(0, &word)];
    builder
        .call(NewCall {
            name,
            arguments,
            snapshots: &snapshots,
            ..NewCall::default()
        })
        .leave(0, 0, if out.is_some() { &written } else { &[] });
}

fn marker(builder: &mut TraceBuilder, action: u8, text: &str) {
    let note = MarkerNote {
        number: 4242,
        action,
        source: marker_source::NVTX,
        ..MarkerNote::default()
    };
    builder.marker(note, "", text);
}

/// `cuLaunchKernel` of blocks of 32 threads.
pub(crate) fn launch(builder: &mut TraceBuilder, function: u64, stream: u64) {
    let arguments = [function, 4, 1, 1, 32, 1, 1, 0, stream, 0, 0];
    call(builder, "cuLaunchKernel", &arguments, None);
}

/// Loads a module, copies, launches, captures.
pub(crate) fn program() -> TraceBuilder {
    let mut builder = TraceBuilder::new(cutape_registry::SIGNATURE_TEXT);
    let trace = &mut builder;
    marker(trace, marker_action::PUSH, "train");
    marker(trace, marker_action::PUSH, "step");
    call(trace, "cuCtxCreate_v2", &[1, 0, 0], Some(0xc));
    with_bytes(trace, "cuModuleLoadData", &[1, 2], &[(1, PTX)], Some(0xa));
    let name = b"_Z4saxpPf\0";
    with_bytes(
        trace,
        "cuModuleGetFunction",
        &[1, 0xa, 2],
        &[(2, name)],
        Some(0xf),
    );
    call(trace, "cuMemAlloc_v2", &[1, 100], Some(0x1000));
    call(trace, "cuMemcpyHtoD_v2", &[0x1000, 2, 60], None);
    call(trace, "cuStreamCreate", &[1, 1], Some(0x55));
    launch(trace, 0xf, 0x55);
    marker(trace, marker_action::POP, "");
    call(trace, "cuStreamBeginCapture_v2", &[0x55, 0], None);
    launch(trace, 0xf, 0x55);
    call(trace, "cuMemsetD8Async", &[0x1000, 0, 40, 0x55], None);
    call(trace, "cuStreamSynchronize", &[0x55], None);
    builder
}

/// Writes the trace to a file, opens it, and removes the file.
pub(crate) fn open(builder: &TraceBuilder, name: &str) -> Trace {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let folder = format!("cutape-export-{}-{number}", std::process::id());
    let folder = std::env::temp_dir().join(folder);
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join(format!("{name}.cutape"));
    builder.write(&path).unwrap();
    let trace = Trace::open(&path).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    trace
}
