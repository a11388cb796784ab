//! `record --memory`: a recording that begins in the middle has what memory held there, so that its
//! replay computes what the program has computed.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use cutape_format::layout::memory_snapshot;
use cutape_format::{Call, Note, Trace};
use cutape_tests::{
    Output, bare, compile, compiled, parts, record, root, run, tests, without_settings,
};
use serde_json::Value;

tests![
    a_part_after_a_pause,
    threads_in_pauses,
    beside_captures,
    the_last_calls,
    a_part_that_is_cut,
    what_a_snapshot_has,
    deep_launches,
    deep_launches_change_nothing,
    redacted,
    refused,
];

/// For how long something is awaited.
const PATIENCE: Duration = Duration::from_secs(120);

/// A recording of `evolving.c`, which is complete.
fn recorded(folder: &Path, what: &str, options: &[&str]) -> PathBuf {
    let trace = folder.join(format!("{what}.cutape"));
    let mut command = command(folder, &trace, what, options);
    run(&mut command).assert_code(0);
    trace
}

fn command(folder: &Path, trace: &Path, what: &str, options: &[&str]) -> Command {
    // An earlier recording.
    let _ = fs::remove_file(trace);
    let program = folder.join("evolving");
    let driver = parts().driver_folder.join("libcuda.so.1");
    let source = root().join("tests/programs/memory/evolving.c");
    compile(&source, &program, &[&driver, &"-pthread", &"-ldl"]);
    let mix = root().join("driver/src/mix.ptx");
    let words = [program.to_str().unwrap(), mix.to_str().unwrap(), what];
    let mut command = record(trace, options, &words);
    without_settings(&mut command);
    command
}

fn replay(trace: &Path) -> (Output, Value) {
    let options: [&dyn AsRef<std::ffi::OsStr>; 5] =
        [&"replay", &"--driver", &"null", &"--format", &"json"];
    let mut command = parts().cutape(&options);
    let output = run(command.arg(trace));
    let report = serde_json::from_str(&output.stdout).unwrap_or_default();
    (output, report)
}

/// The replay has no divergence, and all bytes that came from the device after the first calls are
/// compared.
fn computes_the_same(trace: &Path) {
    run(&mut parts().cutape(&[&"check", &trace])).assert_code(0);
    let (output, report) = replay(trace);
    output.assert_code(0);
    assert_eq!(report["divergence_count"], 0, "{}", output.stdout);
    assert_eq!(report["bytes_unknown"], 0, "{}", output.stdout);
    assert!(
        report["bytes_compared"].as_u64() > Some(0),
        "{}",
        output.stdout
    );
    assert!(
        report["memory_bytes_put"].as_u64() > Some(0),
        "{}",
        output.stdout
    );
}

/// Without contents of memory it computes something else.
fn computes_something_else(trace: &Path) {
    let (output, report) = replay(trace);
    assert_ne!(report["bytes_unknown"], 0, "{}", output.stdout);
}

/// Which states the snapshots have that the calls of a trace note, and how many bytes of memory each
/// call has.
fn snapshots(trace: &Path) -> Vec<(u8, u64, u64)> {
    let trace = Trace::open(trace).unwrap();
    let mut all = Vec::new();
    for call in trace.calls() {
        let notes: Vec<Note<'_>> = call.notes().collect();
        let bytes = notes.iter().map(|note| match note {
            Note::Memory(note, ..) => note.length,
            _ => 0,
        });
        let bytes: u64 = bytes.sum();
        all.extend(notes.iter().filter_map(|note| match note {
            Note::MemorySnapshot(note) => Some((note.state, note.bytes, bytes)),
            _ => None,
        }));
    }
    all
}

fn a_part_after_a_pause(folder: &Path) {
    computes_something_else(&recorded(folder, "middle", &[]));
    let trace = recorded(folder, "middle", &["--memory", "all"]);
    computes_the_same(&trace);
    let taken = snapshots(&trace);
    // Before the first work, and after the pause: each kind of memory.
    let [(_, first, _), (_, second, noted)] = taken[..] else {
        panic!("{taken:?}");
    };
    let least = 3 * 20_000 + (64 << 10);
    assert!(
        first >= least && second >= least && second == noted,
        "{taken:?}"
    );
}

/// Work of threads while recording stops and starts: no call of a pause comes too late for the snapshot
/// after it.
fn threads_in_pauses(folder: &Path) {
    let trace = recorded(folder, "toggled", &["--memory", "all"]);
    let (output, report) = replay(&trace);
    output.assert_code(0);
    assert_eq!(report["divergence_count"], 0, "{}", output.stdout);
    assert!(
        report["bytes_compared"].as_u64() > Some(0),
        "{}",
        output.stdout
    );
    let taken = snapshots(&trace);
    let states: Vec<u8> = taken.iter().map(|taken| taken.0).collect();
    let count = states
        .iter()
        .filter(|&&state| state == memory_snapshot::TAKEN)
        .count();
    // One is not taken where a thread stays in a call for too long.
    assert!(
        count > 3 && !states.contains(&memory_snapshot::VOID),
        "{states:?}"
    );
}

/// No copy of the recorder's comes into a capture, which it would invalidate. Memory that is allocated
/// in one is not read.
fn beside_captures(folder: &Path) {
    let trace = recorded(folder, "captures", &["--memory", "all"]);
    let trace = Trace::open(&trace).unwrap();
    let mut read = Vec::new();
    for call in trace.calls() {
        read.extend(call.notes().filter_map(|note| match note {
            Note::MemorySnapshot(note) if note.state == memory_snapshot::TAKEN => {
                Some((note.bytes, note.left_out))
            }
            _ => None,
        }));
    }
    // The program allocates nothing else after the first.
    let large = (64 << 20) + 20_000;
    let is_right = |&read: &(u64, u64)| read == (large, 0);
    assert!(read.len() > 3 && read[1..].iter().all(is_right), "{read:?}");
}

fn wait_for(what: &str, is_so: &dyn Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "{what} did not happen");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A program that is recorded until it is ended.
struct Running {
    child: Child,
    trace: PathBuf,
}

impl Running {
    fn start(folder: &Path, options: &[&str]) -> Self {
        let trace = folder.join("loop.cutape");
        let mut command = command(folder, &trace, "loop", options);
        let errors = fs::File::create(folder.join("stderr")).unwrap();
        let command = command.stdin(Stdio::piped()).stdout(Stdio::null());
        let child = command.stderr(errors).spawn().unwrap();
        Self { child, trace }
    }

    /// Until so many snapshots were taken.
    fn wait_for_snapshots(&self, count: u64) {
        let has_them = || {
            let trace = Trace::open_damaged(&self.trace).ok()?;
            let taken = trace.memory_snapshots().taken;
            taken.last_key_value().map(|(&number, _)| number)
        };
        wait_for("a snapshot", &|| has_them() >= Some(count));
    }

    fn end(mut self) -> PathBuf {
        drop(self.child.stdin.take());
        let status = self.child.wait().unwrap();
        let errors = self.trace.with_file_name("stderr");
        assert!(
            status.success(),
            "{status}: {}",
            fs::read_to_string(errors).unwrap()
        );
        self.trace
    }
}

fn the_last_calls(folder: &Path) {
    let running = Running::start(folder, &["--keep-last", "1s", "--memory", "all"]);
    running.wait_for_snapshots(6);
    let process = Trace::follow(&running.trace)
        .unwrap()
        .head()
        .process
        .to_string();
    run(&mut parts().cutape(&[&"ctl", &process, &"keep"])).assert_code(0);
    running.wait_for_snapshots(8);
    let last = running.end();
    for trace in [&folder.join("loop.keep1.cutape"), &last] {
        computes_the_same(trace);
        let opened = Trace::open(trace).unwrap();
        let has_gap = |call: &Call<'_>| {
            let mut notes = call.notes();
            notes.any(|note| matches!(note, Note::Gap(gap) if gap.calls > 0))
        };
        // Where calls are missing, memory is there.
        let gaps: Vec<Call<'_>> = opened.calls().filter(has_gap).collect();
        let [first] = &gaps[..] else {
            panic!("{} gaps", gaps.len());
        };
        let is_snapshot = |note| matches!(note, Note::MemorySnapshot(note) if note.state == memory_snapshot::TAKEN);
        // Kernels run on known memory alone.
        let mut before = opened.calls().take_while(|call| call.index < first.index);
        assert!(before.all(|call| !call.signature.name.starts_with("cuLaunch")));
        assert!(first.notes().any(is_snapshot));
    }
    let running = Running::start(folder, &["--keep-last", "256KiB"]);
    let length = || fs::metadata(&running.trace).map_or(0, |metadata| metadata.len());
    wait_for("a long trace", &|| length() > 2 << 20);
    computes_something_else(&running.end());
}

/// `trim` of a part after the pause keeps what memory held after it.
fn a_part_that_is_cut(folder: &Path) {
    let trace = recorded(folder, "middle", &["--memory", "all"]);
    let calls = Trace::open(&trace).unwrap().calls().count();
    let target = folder.join("cut.cutape");
    let set = format!("{}..{calls}", calls - 200);
    run(&mut parts().cutape(&[&"trim", &"--calls", &set, &trace, &"-o", &target])).assert_code(0);
    assert!(Trace::open(&target).unwrap().calls().count() < calls);
    let (output, report) = replay(&target);
    output.assert_code(0);
    assert_eq!(report["divergence_count"], 0, "{}", output.stdout);
}

fn what_a_snapshot_has(folder: &Path) {
    let trace = recorded(folder, "middle", &["--memory", "all"]);
    let dump = run(&mut parts().cutape(&[&"dump", &trace]));
    dump.assert_code(0);
    assert!(
        dump.stdout
            .contains("snapshot 2 of device memory before this call: ")
    );
    let info = run(&mut parts().cutape(&[&"info", &trace]));
    info.assert_code(0);
    assert!(
        info.stdout.contains("2 of device memory, "),
        "{}",
        info.stdout
    );
    // A replay without a pause computes it all.
    let whole = recorded(folder, "whole", &["--memory", "all"]);
    let (output, report) = replay(&whole);
    output.assert_code(0);
    assert_eq!(report["memory_bytes_put"], 0, "{}", output.stdout);
}

/// How many launches of a trace have what they reach; how many digests of that are of launches that
/// have returned, and of one in flight.
fn deep(trace: &Path) -> (usize, [u64; 2]) {
    let trace = Trace::open(trace).unwrap();
    let mut found = (0, [0, 0]);
    for call in trace.calls() {
        let notes: Vec<Note<'_>> = call.notes().collect();
        let has_memory = notes.iter().any(|note| matches!(note, Note::Memory(..)));
        let digests = notes.iter().map(|note| match note {
            Note::Digest(_, ranges) => ranges.len() as u64,
            _ => 0,
        });
        found.0 += usize::from(has_memory);
        found.1[usize::from(call.leave.is_none())] += digests.sum::<u64>();
        assert!(!has_memory || call.signature.base.starts_with("cuLaunch"));
    }
    found
}

/// One launch in some has its inputs, and digests of its outputs that a replay computes again, though
/// the window does not begin with what memory held.
fn deep_launches(folder: &Path) {
    let running = Running::start(folder, &["--keep-last", "1s", "--deep", "1/5"]);
    let length = || fs::metadata(&running.trace).map_or(0, |metadata| metadata.len());
    let is_erased = || {
        let metadata = fs::metadata(&running.trace);
        metadata.is_ok_and(|it| it.blocks() * 512 + (128 << 10) < it.len())
    };
    wait_for("a long trace", &|| length() > 2 << 20 && is_erased());
    let process = Trace::follow(&running.trace).unwrap().head().process;
    let process = process.to_string();
    run(&mut parts().cutape(&[&"ctl", &process, &"keep"])).assert_code(0);
    let last = running.end();
    for trace in [&folder.join("loop.keep1.cutape"), &last] {
        let (launches, [digests, in_flight]) = deep(trace);
        assert!(launches > 3 && digests > 3, "{launches} {digests}");
        run(&mut parts().cutape(&[&"check", &trace])).assert_code(0);
        let (output, report) = replay(trace);
        output.assert_code(0);
        assert_ne!(report["memory_bytes_put"], 0, "{}", output.stdout);
        let counts = &report["digests"];
        assert_eq!(counts["recorded"], digests + in_flight, "{}", output.stdout);
        assert_eq!(counts["equal"], digests, "{}", output.stdout);
        assert_eq!(counts["not_compared"], in_flight, "{}", output.stdout);
        // Other launches compute something else.
        assert_ne!(report["bytes_unknown"], 0, "{}", output.stdout);
    }
    // An extracted launch has the inputs.
    let opened = Trace::open(&last).unwrap();
    let found = opened.calls().find_map(|call| {
        let bytes = call.notes().find_map(|note| match note {
            Note::Memory(_, _, snapshot) => Some(opened.resolve(snapshot?.bytes).unwrap().to_vec()),
            _ => None,
        });
        Some((call.index.to_string(), bytes?))
    });
    let (launch, mut bytes) = found.unwrap();
    // Runs of zeros need no room in the file, and what a kernel has not reached is zero.
    bytes.truncate(bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1);
    let target = folder.join("launch");
    let options: [&dyn AsRef<std::ffi::OsStr>; 7] = [
        &"extract",
        &"--driver",
        &"null",
        &"--launch",
        &launch,
        &last,
        &target,
    ];
    run(&mut parts().cutape(&options)).assert_code(0);
    let extracted = fs::read(target.join("memory.bin")).unwrap();
    assert!(extracted.windows(bytes.len()).any(|part| part == bytes));
    // They would say what memory held.
    let target = folder.join("redacted.cutape");
    let options: [&dyn AsRef<std::ffi::OsStr>; 6] =
        [&"redact", &"--remove", &"payloads", &last, &"-o", &target];
    run(&mut parts().cutape(&options)).assert_code(0);
    let (output, report) = replay(&target);
    assert_eq!(report["digests"]["recorded"], 0, "{}", output.stdout);
}

/// Also work that waits for another call of the program, and captures.
fn deep_launches_change_nothing(folder: &Path) {
    for name in [
        "streams",
        "threads",
        "memory_operations",
        "polled_values",
        "host_functions",
        "host_visible",
        "stream_ordered",
        "graph_capture",
        "graph_awaits_cpu",
        "per_thread_stream",
        "library_contexts",
        "fork",
    ] {
        let path = compiled(&format!("clean/{name}"));
        let trace = folder.join(format!("{name}.cutape"));
        let options = ["--keep-last", "60s", "--deep", "1/1"];
        let output = run(&mut record(&trace, &options, &[&path]));
        output.assert_code(0);
        assert_eq!(output.stdout, bare(&[&path]).stdout, "{name}");
        run(&mut parts().cutape(&[&"check", &trace])).assert_code(0);
        let (output, report) = replay(&trace);
        output.assert_code(0);
        assert_eq!(report["divergence_count"], 0, "{name}: {}", output.stdout);
    }
}

fn redacted(folder: &Path) {
    let trace = recorded(folder, "middle", &["--memory", "all"]);
    let target = folder.join("redacted.cutape");
    let options: [&dyn AsRef<std::ffi::OsStr>; 6] =
        [&"redact", &"--remove", &"payloads", &trace, &"-o", &target];
    run(&mut parts().cutape(&options)).assert_code(0);
    let opened = Trace::open(&target).unwrap();
    let mut pieces = 0;
    for call in opened.calls() {
        for note in call.notes() {
            if let Note::Memory(note, _, snapshot) = note {
                pieces += 1;
                assert_eq!(note.fill, 0);
                let bytes = snapshot.and_then(|snapshot| opened.resolve(snapshot.bytes).ok());
                assert!(bytes.is_none_or(|bytes| bytes.iter().all(|&byte| byte == 0)));
            }
        }
    }
    assert!(pieces > 0);
}

fn refused(folder: &Path) {
    let trace = folder.join("a.cutape");
    for (options, expected) in [
        (&["--memory", "some"][..], "possible values: none, all"),
        (
            &["--memory", "all", "--payloads", "hash"],
            "--payloads hash",
        ),
        (&["--memory", "all", "--max-size", "1G"], "--max-size"),
        (
            &["--memory", "all", "--redact=payloads"],
            "--memory keeps contents",
        ),
        (&["--deep", "1/10"], "--keep-last"),
        (&["--keep-last", "1s", "--deep", "10"], "1/1000"),
        (&["--keep-last", "1s", "--deep", "1/0"], "1/1000"),
        (
            &["--keep-last", "1s", "--deep", "1/10", "--payloads", "none"],
            "--payloads none",
        ),
        (
            &["--keep-last", "1s", "--deep", "1/10", "--digests"],
            "--digests digests",
        ),
    ] {
        let mut command = record(&trace, options, &["/bin/true"]);
        let output = run(without_settings(&mut command));
        output.assert_code(2);
        assert!(output.stderr.contains(expected), "{}", output.describe());
        assert!(!trace.exists());
    }
}
