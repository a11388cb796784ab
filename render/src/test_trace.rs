//! Small traces for the tests of those that read them.

use std::sync::atomic::{AtomicU32, Ordering};

use cutape_format::layout::{MarkerNote, marker_action, marker_source, note_kind};
use cutape_format::{NewCall, NewSnapshot, Trace, TraceBuilder};

/// `cuModuleGetFunction` that gives `handle` for `name`.
pub fn get_function(builder: &mut TraceBuilder, handle: u64, name: &str) {
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
pub fn launch(builder: &mut TraceBuilder, handle: u64, grid: [u64; 3]) {
    let [x, y, z] = grid;
    builder
        .call(NewCall {
            name: "cuLaunchKernel",
            arguments: &[handle, x, y, z, 32, 1, 1, 0, 0, 0, 0],
            ..NewCall::default()
        })
        .leave(0, 0, &[]);
}

/// A marker of NVTX on thread 0: `push NAME`, `pop`, `mark TEXT`, `start ID NAME`, `end ID`.
pub fn marker(builder: &mut TraceBuilder, what: &str) {
    let (word, rest) = what.split_once(' ').unwrap_or((what, ""));
    let number = |text: &str| text.parse().unwrap();
    let (action, id, text) = match word {
        "push" => (marker_action::PUSH, 0, rest),
        "pop" => (marker_action::POP, 0, ""),
        "mark" => (marker_action::MARK, 0, rest),
        "start" => {
            let (id, name) = rest.split_once(' ').unwrap();
            (marker_action::START, number(id), name)
        }
        "end" => (marker_action::END, number(rest), ""),
        _ => panic!("{what}"),
    };
    let (domain, text) = text.split_once('@').unwrap_or(("", text));
    let note = MarkerNote {
        number: 4242,
        action,
        id,
        source: marker_source::NVTX,
        ..MarkerNote::default()
    };
    builder.marker(note, domain, text);
}

/// A program that leaks, fails, and dies in a call. Ten ticks are a microsecond.
pub fn program() -> TraceBuilder {
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
    get_function(&mut builder, 0x51, "_Z1kv");
    for grid in [[4, 1, 1], [8, 2, 1], [4, 1, 1]] {
        launch(&mut builder, 0x51, grid);
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
        .text_note(1, note_kind::STOPPED, "disk full")
        .call(NewCall {
            name: "cuModuleUnload",
            arguments: &[0x50],
            ..NewCall::default()
        });
    builder
}

/// A program with ranges and marks. Ten ticks are a microsecond.
pub fn marked_program() -> TraceBuilder {
    let mut builder = TraceBuilder::new(cutape_registry::SIGNATURE_TEXT);
    builder
        .meta("clock.ticks-per-second", "10000000")
        .meta("markers.lost", "3");
    get_function(&mut builder, 0x51, "k");
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
            "launch" => launch(&mut builder, 0x51, [1, 1, 1]),
            other => marker(&mut builder, other),
        }
    }
    builder
}

/// Writes the trace to a file, whose name has this one in it, opens it, and removes the file after
/// `read`, which may open it again.
pub fn read<T>(builder: &TraceBuilder, name: &str, read: impl FnOnce(&Trace) -> T) -> T {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let file = format!("cutape-{name}-{}-{count}.cutape", std::process::id());
    let path = std::env::temp_dir().join(file);
    builder.write(&path).unwrap();
    let found = read(&Trace::open(&path).unwrap());
    std::fs::remove_file(&path).unwrap();
    found
}

/// Writes the trace to a file of that name, opens it, and removes the file.
pub fn open(builder: &TraceBuilder, name: &str) -> Trace {
    read(builder, name, |trace| Trace::open(trace.path()).unwrap())
}
