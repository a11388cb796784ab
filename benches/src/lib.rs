//! Benchmarks of encoding, decoding, checking and replaying.
//!
//! Invariant: nothing here asserts a time; only figures of one run are compared (see `README.md`).

pub mod recorded;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use cutape_format::{NewCall, NewSnapshot, Trace, TraceBuilder};

/// A trace of a launch loop: a module, a function, then `launches` launches with 52 bytes of
/// parameters, each followed by a query of the current context.
pub fn launch_loop(launches: usize) -> Trace {
    opened(launches, true)
}

/// The same launches without the queries.
pub fn launches(launches: usize) -> Trace {
    opened(launches, false)
}

fn opened(launches: usize, with_queries: bool) -> Trace {
    let path = scratch("raw");
    build(launches, with_queries, &path);
    let trace = Trace::open(&path).expect("what was just built is sound");
    std::fs::remove_file(&path).expect("a file of our own can be removed");
    trace
}

/// The image of the module.
pub const IMAGE: &[u8] =
    b".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry k() { ret; }\n\0";

/// As [`launch_loop`], packed; the file stays until [`Packed`] is dropped.
pub fn packed_launch_loop(launches: usize) -> Packed {
    let path = scratch("packed");
    build(launches, true, &path);
    let trace = Trace::open(&path).expect("what was just built is sound");
    cutape_format::pack(&trace, &path, &[], &[]).expect("a sound trace can be packed in its place");
    Packed(path)
}

/// A packed trace; dropping this removes the file.
#[derive(Debug)]
pub struct Packed(PathBuf);

impl Packed {
    /// The file.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Packed {
    fn drop(&mut self) {
        // A leftover in the folder for temporary files is harmless.
        let _ = std::fs::remove_file(&self.0);
    }
}

fn scratch(kind: &str) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!(
        "cutape-bench-{}-{kind}-{number}.cutape",
        std::process::id()
    ))
}

fn build(launches: usize, with_queries: bool, path: &Path) {
    const MODULE: u64 = 0x5500_0000_1000;
    const FUNCTION: u64 = 0x5500_0000_2000;
    const CONTEXT: u64 = 0x5500_0000_3000;
    let mut builder = TraceBuilder::new(cutape_registry::SIGNATURE_TEXT);
    builder.call(event("cuInit", &[0], &[])).leave(0, 0, &[]);
    builder
        .call(event("cuDevicePrimaryCtxRetain", &[8, 0], &[]))
        .leave(0, 0, &[NewSnapshot::pointee(0, &CONTEXT.to_le_bytes())]);
    builder
        .call(event("cuCtxSetCurrent", &[CONTEXT], &[]))
        .leave(0, 0, &[]);
    builder
        .call(event(
            "cuModuleLoadData",
            &[16, 24],
            &[NewSnapshot::pointee(1, IMAGE)],
        ))
        .leave(0, 0, &[NewSnapshot::pointee(0, &MODULE.to_le_bytes())]);
    builder
        .call(event(
            "cuModuleGetFunction",
            &[32, MODULE, 40],
            &[NewSnapshot::pointee(2, b"k\0")],
        ))
        .leave(0, 0, &[NewSnapshot::pointee(0, &FUNCTION.to_le_bytes())]);
    let parameters = [7; 52];
    let kernel_parameters = cutape_format::layout::field::KERNEL_PARAMETERS;
    for _ in 0..launches {
        let snapshots = [NewSnapshot::piece(9, kernel_parameters, &parameters)];
        let arguments = [FUNCTION, 64, 1, 1, 256, 1, 1, 0, 0, 48, 0];
        builder
            .call(event("cuLaunchKernel", &arguments, &snapshots))
            .leave(0, 0, &[]);
        if with_queries {
            builder.call(event("cuCtxGetCurrent", &[56], &[])).leave(
                0,
                0,
                &[NewSnapshot::pointee(0, &CONTEXT.to_le_bytes())],
            );
        }
    }
    // A benchmark that cannot write its input has nothing to measure.
    builder
        .write(path)
        .expect("the folder for temporary files is writable");
}

fn event<'a>(name: &'a str, arguments: &'a [u64], snapshots: &'a [NewSnapshot<'a>]) -> NewCall<'a> {
    NewCall {
        name,
        arguments,
        snapshots,
        ..NewCall::default()
    }
}
