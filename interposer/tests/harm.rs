//! Programs that do what an interposer can break (jumps out of calls, signals, forks, closed
//! descriptors) behave with the interposer as they do without it, and their calls are in a sound
//! trace. Compiles a driver and a program in C.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use cutape_format::layout::{field, host_skip};
use cutape_format::{Bytes, Note, Trace};

/// A program that takes longer than this hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// The compiled driver and program, and the library under test.
struct Parts {
    folder: PathBuf,
    interposer: PathBuf,
}

fn parts() -> &'static Parts {
    static PARTS: OnceLock<Parts> = OnceLock::new();
    PARTS.get_or_init(|| {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("harm");
        fs::create_dir_all(&folder).unwrap();
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
        for (output, names, options) in [
            (
                "libcuda.so.1",
                &["driver.c"][..],
                &["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"][..],
            ),
            (
                "program",
                &["program.c", "faults.c"],
                &["libcuda.so.1", "-lpthread", "-ldl"],
            ),
            ("constructor.so", &["constructor.c"], &["-shared", "-fPIC"]),
        ] {
            let status = Command::new("cc")
                .current_dir(&folder)
                .args(["-O1", "-Wall", "-Wno-unused-result", "-o", output])
                .args(names.iter().map(|name| sources.join(name)))
                .args(options)
                .status()
                .expect("a C compiler");
            assert!(status.success(), "{names:?}");
        }
        // Tests do not link to the library, so cargo does not build it for them. By a command of
        // its own, so that it gets no features of the tests.
        let test = std::env::current_exe().unwrap();
        let profile = test.ancestors().nth(2).expect("target/PROFILE/deps/TEST");
        let name = match profile.file_name().and_then(OsStr::to_str) {
            Some("debug") | None => "dev",
            Some(name) => name,
        };
        let status = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--package", "cutape-interposer"])
            .args(["--profile", name, "--manifest-path"])
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))
            .arg("--target-dir")
            .arg(profile.parent().expect("target/PROFILE"))
            .status()
            .unwrap();
        assert!(status.success(), "the interposer cannot be built");
        let interposer = profile.join("libcutape_interposer.so");
        Parts { folder, interposer }
    })
}

/// A program's run: what it printed, and the traces of its processes by file name.
struct Run {
    output: Output,
    traces: Vec<Trace>,
}

/// Runs the program without (`None`) or with the interposer; panics if it does not end in time.
fn run(arguments: &[&str], trace: Option<&Path>, stderr: Stdio) -> Output {
    let parts = parts();
    let mut command = Command::new("./program");
    command
        .current_dir(&parts.folder)
        .args(arguments)
        .env("LD_LIBRARY_PATH", &parts.folder)
        .stdout(Stdio::piped())
        .stderr(stderr);
    if let Some(trace) = trace {
        command
            .env("LD_PRELOAD", &parts.interposer)
            .env("CUTAPE_TRACE", trace)
            .env("CUTAPE_DRIVER", parts.folder.join("libcuda.so.1"));
    }
    let mut child = command.spawn().unwrap();
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begun.elapsed() > PATIENCE {
            child.kill().unwrap();
            panic!("{arguments:?} hangs");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().unwrap()
}

/// Runs the program bare and recorded, and compares what can be seen of it.
fn record(arguments: &[&str]) -> Run {
    let folder = parts().folder.join(format!("{}.traces", arguments[0]));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    let bare = run(arguments, None, Stdio::piped());
    assert!(bare.status.success(), "{arguments:?} alone: {bare:?}");
    let output = run(arguments, Some(&folder.join("t.cutape")), Stdio::piped());
    assert_eq!(output.status, bare.status, "{arguments:?}: {output:?}");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert_eq!(text(&output.stdout), text(&bare.stdout), "{arguments:?}");
    let mut files: Vec<_> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    let traces: Vec<_> = files
        .iter()
        .map(|path| Trace::open(path).unwrap())
        .collect();
    for trace in &traces {
        let damage = trace.verify();
        assert!(damage.is_empty(), "{arguments:?}: {damage:?}");
    }
    // The traces are mapped and stay readable.
    fs::remove_dir_all(&folder).unwrap();
    Run { output, traces }
}

/// How often each function was called, and how many of these calls have not returned.
fn counts(trace: &Trace) -> BTreeMap<String, (usize, usize)> {
    let mut counts = BTreeMap::new();
    for call in trace.calls() {
        let entry: &mut (usize, usize) = counts.entry(call.signature.base.clone()).or_default();
        entry.0 += 1;
        entry.1 += usize::from(call.leave.is_none());
    }
    counts
}

/// How often a function must have been called, and how many of these calls are in flight.
type Expected = (&'static str, usize, usize);

/// Bytes of a stack that a signal handler has: SIGSTKSZ. Without optimisation, frames are longer.
const SHORT_STACK: &str = if cfg!(debug_assertions) {
    "24576"
} else {
    "8192"
};

/// Programs, and the calls that their traces must hold.
#[test]
fn programs_behave_as_without_it_and_their_calls_are_recorded() {
    let table: [(&[&str], &[Expected]); 18] = [
        (
            &["jump"],
            &[("cuLaunchHostFunc", 2, 2), ("cuCtxSynchronize", 3, 0)],
        ),
        // Calls that the driver makes, or that are made from within it, are not recorded.
        (&["nested"], &[("cuLaunchHostFunc", 1, 0)]),
        (
            &["cancel"],
            &[("cuEventSynchronize", 1, 1), ("cuCtxSynchronize", 1, 0)],
        ),
        (
            &["exit-inside"],
            &[("cuLaunchHostFunc", 1, 1), ("cuCtxSynchronize", 1, 0)],
        ),
        (
            &["cancelled-copy"],
            &[("cuInit", 1, 0), ("cuMemcpyHtoD", 1, 0)],
        ),
        (&["short-threads"], &[("cuCtxSynchronize", 2000, 0)]),
        (&["many-threads"], &[("cuCtxSynchronize", 4000, 0)]),
        (
            &["close-all"],
            &[("cuInit", 1, 0), ("cuCtxSynchronize", 50_000, 0)],
        ),
        (
            &["no-descriptors"],
            &[
                ("cuInit", 1, 0),
                ("cuMemcpyHtoD", 200, 0),
                ("cuCtxSynchronize", 20_000, 0),
            ],
        ),
        (&["pipe"], &[("cuModuleLoad", 1, 0)]),
        (&["wrong-lengths"], &[("cuMemcpyHtoD", 12, 0)]),
        (&["constructor", "./constructor.so"], &[("cuInit", 2, 0)]),
        (
            &["small-stack"],
            &[("cuInit", 1, 0), ("cuCtxSynchronize", 1, 0)],
        ),
        (
            &["alternate-stack", SHORT_STACK],
            &[
                ("cuInit", 1, 0),
                ("cuModuleGetFunction", 1, 0),
                ("cuMemcpyHtoD", 1, 0),
                ("cuCtxSynchronize", 5001, 0),
            ],
        ),
        (
            &["no-counter"],
            &[("cuInit", 1, 0), ("cuCtxSynchronize", 5000, 0)],
        ),
        (&["mask"], &[("cuCtxSynchronize", 1, 0)]),
        (
            &["launches"],
            &[
                ("cuModuleLoadData", 1, 0),
                ("cuModuleGetFunction", 1, 0),
                ("cuModuleUnload", 1, 0),
                ("cuLaunchKernel", 3, 0),
                ("cuParamSetf", 1, 0),
            ],
        ),
        (
            &["readbacks"],
            &[("cuMemcpyDtoHAsync", 3, 0), ("cuStreamSynchronize", 2, 0)],
        ),
    ];
    for (arguments, expected) in table {
        let recorded = record(arguments);
        assert!(
            recorded.output.stderr.is_empty(),
            "{arguments:?}: {:?}",
            recorded.output
        );
        let [trace] = &recorded.traces[..] else {
            panic!("{arguments:?}: {} traces", recorded.traces.len());
        };
        let expected: BTreeMap<_, _> = expected
            .iter()
            .map(|&(name, calls, open)| (name.to_owned(), (calls, open)))
            .collect();
        assert_eq!(counts(trace), expected, "{arguments:?}");
    }
}

#[test]
fn signal_handlers_call_the_driver_at_any_moment() {
    let recorded = record(&["handlers"]);
    let trace = &recorded.traces[0];
    // Some handlers ran outside the interposer's code; their calls are in the trace, whole.
    let counts = counts(trace);
    assert_eq!(counts["cuCtxGetCurrent"].1, 0);
    // A handler on a stack of its own looks like a call after one that was left by a jump.
    assert!(counts["cuCtxSynchronize"].0 > 1000);
    assert!(trace.calls().filter(|call| call.leave.is_none()).count() < 1000);
}

#[test]
fn no_memory_is_left() {
    let recorded = record(&["no-memory"]);
    let stderr = String::from_utf8_lossy(&recorded.output.stderr);
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(stderr.contains("emory"), "{stderr}");
    let trace = &recorded.traces[0];
    assert!(!trace.has_all_calls());
    // What came before is there.
    assert_eq!(counts(trace)["cuInit"], (1, 0));
    assert!(
        trace
            .shortfall()
            .is_some_and(|lacks| lacks.why.contains("memory"))
    );
}

#[test]
fn children_that_are_forked_anywhere_record() {
    let recorded = record(&["fork-storm"]);
    assert!(recorded.output.stderr.is_empty(), "{:?}", recorded.output);
    assert_eq!(recorded.traces.len(), 1 + 2 * 40);
    let mut children = [0; 2];
    for trace in &recorded.traces {
        let counts = counts(trace);
        match (counts.get("cuInit"), counts["cuCtxSynchronize"]) {
            // A child, and a child of it.
            (Some((1, 0)), (20, 0)) => children[0] += 1,
            (None, (20, 0)) => children[1] += 1,
            _ => {}
        }
    }
    assert_eq!(children, [40, 40]);
}

#[test]
#[cfg_attr(
    debug_assertions,
    ignore = "unwinding from any instruction needs a library built with panic = \"abort\": --profile shim"
)]
fn threads_are_cancelled_anywhere() {
    let recorded = record(&["cancel-anywhere"]);
    assert!(recorded.output.stderr.is_empty(), "{:?}", recorded.output);
    let trace = &recorded.traces[0];
    // At most the last call of each thread has not returned.
    let (calls, open) = counts(trace)["cuCtxSynchronize"];
    assert!(calls > 200 && open <= 200, "{calls} {open}");
}

#[test]
fn a_thread_ends_the_process() {
    let recorded = record(&["exit-at-thread-end"]);
    assert!(recorded.output.stderr.is_empty(), "{:?}", recorded.output);
    assert_eq!(counts(&recorded.traces[0])["cuInit"], (1, 0));
}

#[test]
fn a_disk_that_is_full() {
    let recorded = record(&["file-limit"]);
    let trace = &recorded.traces[0];
    let stderr = String::from_utf8_lossy(&recorded.output.stderr);
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    // The copy that no longer fitted is recorded without its bytes, but with its result.
    let last = trace.calls().last().unwrap();
    assert_eq!(last.signature.base, "cuMemcpyHtoD");
    assert!(matches!(
        last.snapshot(1, 0).unwrap().bytes,
        Bytes::Omitted(0x10_0000)
    ));
    assert!(last.leave.is_some());
    assert!(last.notes().any(|note| matches!(note, Note::Stopped(_))));
}

#[test]
fn a_trace_that_another_program_truncates() {
    for length in ["0", "5000", "100000"] {
        let trace = parts().folder.join(format!("truncated{length}.cutape"));
        let _ = fs::remove_file(&trace);
        let output = run(&["truncated", length], Some(&trace), Stdio::piped());
        assert!(output.status.success(), "{length}: {output:?}");
        assert_eq!(output.stdout, b"done\n");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
        assert!(
            stderr.contains("truncated the trace; recording stops"),
            "{stderr}"
        );
        // Nothing is written where no reader would find it.
        assert_eq!(fs::metadata(&trace).unwrap().len().to_string(), length);
        fs::remove_file(&trace).unwrap();
    }
}

#[test]
fn a_trace_that_another_program_deletes() {
    let recorded = record(&["deleted"]);
    assert!(recorded.traces.is_empty());
    let stderr = String::from_utf8_lossy(&recorded.output.stderr);
    assert_eq!(
        stderr,
        "cutape: another program has deleted the trace; recording stops, the program continues\n"
    );
}

#[test]
fn bus_errors_of_the_program_stay_its_own() {
    for kind in ["default", "sent", "handled", "ignored"] {
        let recorded = record(&["bus-error", kind]);
        assert_eq!(recorded.output.stderr, b"", "{kind}");
    }
}

#[test]
fn a_record_that_goes_to_the_next_chunk_keeps_its_blob() {
    let recorded = record(&["copies"]);
    let blobs: Vec<u64> = recorded.traces[0]
        .calls()
        .map(|call| match call.snapshot(1, 0).unwrap().bytes {
            Bytes::Blob(blob) => blob.position,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(blobs.len(), 4000);
    let all = recorded.traces[0].blobs().count();
    assert_eq!(all, 4000, "none was written twice");
    // Between two blobs (20,000 bytes and a head, in pages) there is nothing or a chunk of calls.
    let behind = blobs.windows(2).map(|pair| pair[1] - pair[0] - 20_480);
    let chunks = behind.filter(|&between| between > 0).count();
    assert!(chunks >= 1, "all in one chunk: nothing was tried");
}

#[test]
fn batches_have_the_bytes_of_all_their_sources_or_none() {
    let recorded = record(&["batches"]);
    let trace = &recorded.traces[0];
    let data: Vec<u8> = (0..50_000).map(|at| (at % 251) as u8).collect();
    let (first, short, last) = (&data[30_000..], &data[7..12], &data[..30_000]);
    let expected = [
        (
            "cuMemcpyBatchAsync",
            Some(Ok([first, short, last].concat())),
        ),
        ("cuMemcpyBatchAsync", Some(Ok(short.to_vec()))),
        ("cuMemcpyBatchAsync", None),
        ("cuMemcpyBatchAsync", Some(Err("unreadable"))),
        ("cuMemcpy3DBatchAsync", Some(Err("unreadable"))),
    ];
    let host_bytes = |call: &cutape_format::Call<'_>| {
        let snapshot = call.snapshot(1, field::HOST_BYTES)?;
        Some(match snapshot.bytes {
            Bytes::Unreadable => Err("unreadable"),
            bytes => Ok(trace.resolve(bytes).unwrap().into_owned()),
        })
    };
    let mut calls = trace.calls();
    for (name, bytes) in expected {
        let call = calls.next().unwrap();
        assert_eq!(call.signature.base, name, "call {}", call.index);
        assert!(host_bytes(&call) == bytes, "call {}", call.index);
    }
}

#[test]
fn messages_raise_no_signal() {
    let trace = parts().folder.join("signal.cutape");
    let _ = fs::remove_file(&trace);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = run(&["file-limit"], Some(&trace), writer.into());
    assert!(output.status.success(), "{output:?}");
    fs::remove_file(&trace).unwrap();
}

#[test]
fn processes_have_files_of_their_own() {
    // Three programs in one process; a child that returns from a call that its parent made.
    let table: [(&[&str], &[usize]); 2] =
        [(&["exec", "2"], &[1, 1, 1]), (&["fork-inside"], &[10, 20])];
    for (arguments, expected) in table {
        let recorded = record(arguments);
        let mut calls: Vec<_> = recorded
            .traces
            .iter()
            .map(|trace| counts(trace)["cuCtxSynchronize"].0)
            .collect();
        calls.sort_unstable();
        assert_eq!(calls, expected, "{arguments:?}");
    }
}

#[test]
fn host_memory_that_changes_and_is_unmapped() {
    let recorded = record(&["host-memory"]);
    let output = String::from_utf8_lossy(&recorded.output.stdout).into_owned();
    assert_eq!(output, "1\n1\n1\n1\n1\n200\n200\n200\n200\n");
    // For each launch of the first thread: lengths of changes, and what could not be read.
    let mut first = Vec::new();
    let mut of_others = 0;
    for call in recorded.traces[0].calls() {
        let is_launch = call.signature.base == "cuLaunchKernel";
        let mut changed = Vec::new();
        let mut skipped = Vec::new();
        for note in call.notes() {
            match note {
                Note::HostChanged(note, snapshot) => {
                    // To unregister memory waits for all work, so other ranges are compared, too.
                    assert_eq!(note.is_after != 0, !is_launch);
                    changed.push(snapshot.bytes.length().unwrap());
                }
                Note::HostSkipped(note) => skipped.push((note.length, note.reason)),
                _ => {}
            }
        }
        match call.thread {
            0 if is_launch => first.push((changed, skipped)),
            _ => {
                assert_eq!(skipped, [], "call {}", call.index);
                assert!(
                    changed.iter().all(|&length| length == 1),
                    "call {}",
                    call.index
                );
                of_others += changed.len();
            }
        }
    }
    assert_eq!(
        first,
        [
            (vec![256 << 10], vec![]),
            (vec![1], vec![]),
            (vec![], vec![]),
            (vec![1], vec![(256 << 10, host_skip::UNREADABLE)]),
            (vec![], vec![]),
        ]
    );
    assert_eq!(of_others, 800);
}

#[test]
fn kernel_parameters_and_readbacks() {
    let recorded = record(&["launches"]);
    let parameters: Vec<_> = recorded.traces[0]
        .calls()
        .filter(|call| call.signature.base == "cuLaunchKernel")
        .map(|call| match call.snapshot(9, 1).unwrap().bytes {
            Bytes::Inline(bytes) => Some(bytes.to_vec()),
            _ => None,
        })
        .collect();
    let mut packed = [100_u64.to_le_bytes(), 1000_u64.to_le_bytes()].concat();
    packed[4..8].fill(0);
    assert_eq!(parameters, [Some(packed), None, None]);

    let recorded = record(&["readbacks"]);
    let mut readbacks = Vec::new();
    for call in recorded.traces[0].calls() {
        for note in call.notes() {
            if let Note::Readback(note, snapshot) = note {
                let length = match snapshot.bytes {
                    Bytes::Inline(bytes) => bytes.len() as u64,
                    Bytes::Blob(blob) => blob.length,
                    _ => 0,
                };
                readbacks.push((call.index, note.number, length));
            }
        }
    }
    // Each copy in the call that waits for its stream; both names of the legacy stream are one.
    assert_eq!(readbacks, [(3, 0, 64), (3, 2, 1), (4, 1, 1 << 20)]);
}
