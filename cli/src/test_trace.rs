//! Small traces for the tests of the verbs that read them.

use cutape_format::{NewCall, NewSnapshot, Trace, TraceBuilder};

/// `cuModuleGetFunction` that gives `handle` for `name`.
pub(crate) fn get_function(builder: &mut TraceBuilder, handle: u64, name: &str) {
    let name = [name.as_bytes(), &[0]].concat();
    builder
        .call(NewCall {
            name: "cuModuleGetFunction",
            arguments: &[0x7000, 0x11, 0x400000],
            snapshots: &[NewSnapshot::pointee(2, &name)],
            ..NewCall::default()
        })
        .leave(0, 0, &[NewSnapshot::pointee(0, &handle.to_le_bytes())]);
}

/// A launch of blocks of 32 threads on the default stream.
pub(crate) fn launch(builder: &mut TraceBuilder, handle: u64, grid: [u64; 3]) {
    let [x, y, z] = grid;
    builder
        .call(NewCall {
            name: "cuLaunchKernel",
            arguments: &[handle, x, y, z, 32, 1, 1, 0, 0, 0, 0],
            ..NewCall::default()
        })
        .leave(0, 0, &[]);
}

/// Writes the trace to a file of that name, opens it, and removes the file.
pub(crate) fn open(builder: &TraceBuilder, name: &str) -> Trace {
    let path = std::env::temp_dir().join(format!("cutape-{name}-{}.cutape", std::process::id()));
    builder.write(&path).unwrap();
    let trace = Trace::open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    trace
}
