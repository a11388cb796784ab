//! Small traces for the tests of the verbs that read them.

use cutape_format::layout::{MarkerNote, marker_action, marker_source};
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

/// A marker of NVTX on thread 0: `push NAME`, `pop`, `mark TEXT`, `start ID NAME`, `end ID`.
pub(crate) fn marker(builder: &mut TraceBuilder, what: &str) {
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

/// Writes the trace to a file of that name, opens it, and removes the file.
pub(crate) fn open(builder: &TraceBuilder, name: &str) -> Trace {
    let path = std::env::temp_dir().join(format!("cutape-{name}-{}.cutape", std::process::id()));
    builder.write(&path).unwrap();
    let trace = Trace::open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    trace
}
