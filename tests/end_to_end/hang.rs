//! `record --breadcrumbs` and `hang`: which work hangs or has failed, and what waits for what. The
//! null driver runs no kernel, so streams wait for values where kernels would spin.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use cutape_format::layout::breadcrumb::{AFTER, BEFORE, READ};
use cutape_format::{Note, Trace};
use cutape_hang::test_dump::TestDump;
use cutape_tests::{
    bare, compile, compiled, names, parts, read_findings, record, replay, root, run,
    without_settings,
};
use serde_json::Value;

cutape_tests::tests![
    each_hang_is_explained,
    a_fault_is_explained,
    few_breadcrumbs_leave_candidates,
    without_breadcrumbs_waits_of_the_program_count,
    a_paused_recording_is_no_evidence,
    core_dumps_are_asked_for_through_pipes_only,
    core_dumps_are_read,
    programs_that_end_have_nothing_pending,
    breadcrumbs_change_nothing,
    what_cannot_be_is_refused,
];

/// The program that hangs.
fn program(folder: &Path) -> String {
    let program = folder.join("hangs");
    let driver = parts().driver_folder.join("libcuda.so.1");
    let source = root().join("tests/programs/hang/hangs.c");
    compile(&source, &program, &[&driver, &"-pthread"]);
    program.to_str().unwrap().to_owned()
}

/// A recording whose program hangs, until this is dropped.
struct Hanging {
    recorder: Child,
    program: u32,
    trace: PathBuf,
}

impl Hanging {
    fn start(folder: &Path, way: &str, options: &[&str]) -> Self {
        Self::start_with(folder, way, options, &[])
    }

    fn start_with(folder: &Path, way: &str, options: &[&str], variables: &[(&str, &str)]) -> Self {
        let trace = folder.join(format!("{way}.cutape"));
        let log = folder.join(format!("{way}.log"));
        let mut command = record(&trace, options, &[&program(folder), way]);
        command.envs(variables.iter().copied()).current_dir(folder);
        // A host function runs in the call that enqueues it, otherwise.
        if way == "callback" {
            command.env("CUTAPE_NULL_SCHEDULE", "lazy");
        }
        command.stdin(Stdio::piped());
        command.stdout(File::create(&log).unwrap());
        let recorder = without_settings(&mut command).spawn().unwrap();
        let begun = Instant::now();
        while !fs::read_to_string(&log).is_ok_and(|text| text.contains("HANGS")) {
            assert!(begun.elapsed() < Duration::from_secs(60), "{way}");
            thread::sleep(Duration::from_millis(5));
        }
        // The program is then about to wait.
        thread::sleep(Duration::from_millis(500));
        let id = recorder.id();
        let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
        let program = children.trim().parse().expect("one child");
        Self {
            recorder,
            program,
            trace,
        }
    }

    fn hang(&self) -> Value {
        hang(&self.program.to_string())
    }
}

impl Drop for Hanging {
    fn drop(&mut self) {
        run(Command::new("kill").args(["-KILL", &self.program.to_string()])).assert(0);
        self.recorder.wait().unwrap();
    }
}

/// What `hang` says of a process or a trace with pending work.
fn hang(what: &str) -> Value {
    let options = [&"hang", &"--format", &"json", &"--watch", &"0.1"];
    let output = run(parts().cutape(&options.map(|word| word as _)).arg(what));
    output.assert_code(1);
    serde_json::from_str(&output.stdout).unwrap()
}

/// For each stream: its name, the first candidate, and what it waits for.
fn streams(report: &Value) -> Vec<[String; 3]> {
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let streams = report["streams"].as_array().unwrap().iter();
    streams
        .map(|stream| {
            let text = word(&stream["candidates"][0]["text"]);
            let text = text.split('(').next().unwrap_or_default();
            [
                word(&stream["name"]),
                text.to_owned(),
                word(&stream["waits"][0]["kind"]),
            ]
        })
        .collect()
}

/// The program's argument; for each stream what [`streams`] gives; the circle.
type Case = (
    &'static str,
    &'static [[&'static str; 3]],
    &'static [&'static str],
);

fn each_hang_is_explained(folder: &Path) {
    const WAIT: &str = "cuStreamWaitValue32";
    const FIRST: [&str; 3] = ["stream#1", WAIT, "value"];
    let cases: &[Case] = &[
        ("kernel", &[FIRST], &[]),
        ("value", &[FIRST], &[]),
        (
            "each-other",
            &[FIRST, ["stream#2", WAIT, "value"]],
            &["stream#1", "stream#2"],
        ),
        (
            "event",
            &[FIRST, ["stream#2", "cuStreamWaitEvent", "event"]],
            &[],
        ),
        (
            "legacy",
            &[
                ["the legacy default stream", WAIT, "value"],
                ["stream#3", "cuLaunchKernel finish", "order"],
            ],
            &[],
        ),
        (
            "callback",
            &[["stream#1", "cuLaunchHostFunc", "host_function"]],
            &[],
        ),
    ];
    for (way, expected, cycle) in cases {
        let hanging = Hanging::start(folder, way, &["--breadcrumbs=1", "--stacks=all"]);
        let report = hanging.hang();
        assert_eq!(streams(&report), *expected, "{way}: {report:#}");
        assert_eq!(report["cycle"], serde_json::json!(cycle), "{way}");
        assert_eq!(report["running"], true, "{way}");
        assert_eq!(report["progress"], false, "{way}");
        let stream = &report["streams"][0];
        let place = stream["candidates"][0]["place"].as_str().unwrap();
        assert!(place.contains("hangs.c:"), "{way}: {place}");
        let thread = &report["threads"][0];
        let call = thread["line"]["text"].as_str().unwrap();
        assert!(call.contains("Synchronize("), "{way}: {call}");
        assert!(thread["since_ns"].as_u64().unwrap() > 100_000_000, "{way}");
        // What a breadcrumb shows, no call has waited for.
        if !["event", "legacy"].contains(way) {
            let completed = &stream["completed"];
            assert_eq!(completed["line"]["kernel"], "prepare", "{way}: {report:#}");
            assert_eq!(completed["by_call"], Value::Null, "{way}");
        }
        // The trace is that of the process.
        let of_trace = hang(hanging.trace.to_str().unwrap());
        assert_eq!(of_trace["streams"], report["streams"], "{way}");
        let text = run(&mut parts().cutape(&[&"hang", &"--watch", &"0", &hanging.trace]));
        for (name, ..) in expected.iter().map(|[name, ..]| (name,)) {
            assert!(text.stdout.contains(name), "{way}: {}", text.describe());
        }
    }
}

fn a_fault_is_explained(folder: &Path) {
    let trace = folder.join("t.cutape");
    let options = ["--breadcrumbs=1"];
    let mut command = record(&trace, &options, &[&program(folder), "value"]);
    command.env("CUTAPE_NULL_FAIL", "cuStreamSynchronize@1=700");
    run(command.stdin(Stdio::null())).assert_code(0);
    let report = hang(trace.to_str().unwrap());
    assert_eq!(report["failure"]["result"], "CUDA_ERROR_ILLEGAL_ADDRESS");
    let failed = report["failure"]["line"]["text"].as_str().unwrap();
    assert!(failed.starts_with("cuStreamSynchronize"), "{failed}");
    assert_eq!(
        streams(&report),
        [["stream#1", "cuStreamWaitValue32", "value"]]
    );
    let stream = &report["streams"][0];
    assert_eq!(stream["completed"]["line"]["kernel"], "prepare");
    assert_eq!(stream["waits"][0]["memory"], "unreadable");
    let trace = Trace::open(&trace).unwrap();
    let last = trace.calls().find(|call| call.result() == Some(700));
    let read = last.unwrap().notes().any(|note| match note {
        Note::Breadcrumb(note) => note.kind == READ && note.value == 2,
        _ => false,
    });
    assert!(read, "prepare, and the wait that the stream has come to");
}

fn few_breadcrumbs_leave_candidates(folder: &Path) {
    let hanging = Hanging::start(folder, "event", &["--breadcrumbs"]);
    let report = hanging.hang();
    assert_eq!(report["breadcrumbs"], 16);
    // There is one before each wait.
    let waiting = ["stream#2", "cuStreamWaitEvent", "event"];
    assert_eq!(streams(&report)[1], waiting, "{report:#}");
    assert_eq!(
        report["streams"][1]["candidates"].as_array().unwrap().len(),
        1
    );
}

fn without_breadcrumbs_waits_of_the_program_count(folder: &Path) {
    let hanging = Hanging::start(folder, "value", &[]);
    let report = hanging.hang();
    assert_eq!(report["breadcrumbs"], Value::Null);
    let stream = &report["streams"][0];
    let candidates = stream["candidates"].as_array().unwrap();
    let texts = candidates.iter().map(|line| line["text"].as_str().unwrap());
    let texts: Vec<&str> = texts.map(|text| text.split('(').next().unwrap()).collect();
    assert_eq!(texts, ["cuLaunchKernel prepare", "cuStreamWaitValue32"]);
    assert_eq!(
        (&stream["completed"], &stream["queued"]),
        (&Value::Null, &1.into())
    );
}

fn a_paused_recording_is_no_evidence(folder: &Path) {
    let hanging = Hanging::start(folder, "value", &["--start-paused"]);
    let report = hanging.hang();
    // The launches before the wait are not in the trace.
    assert_eq!(streams(&report)[0][1], "cuStreamWaitValue32", "{report:#}");
    assert_eq!(report["left_out"]["paused_at_end"], true, "{report:#}");
    assert_eq!(report["idle_ns"], Value::Null);
    let text = run(&mut parts().cutape(&[&"hang", &"--watch", &"0", &hanging.trace]));
    for line in [
        "may wait at",
        "threads may be in them",
        "recording was paused",
    ] {
        assert!(text.stdout.contains(line), "{line}: {}", text.describe());
    }
    assert!(!text.stdout.contains("no progress"), "{}", text.describe());
}

fn core_dumps_are_asked_for_through_pipes_only(folder: &Path) {
    let (pipe, dump) = (folder.join("pipe"), folder.join("dump"));
    fs::write(&pipe, "no pipe").unwrap();
    let variables = [
        ("CUDA_ENABLE_USER_TRIGGERED_COREDUMP", "1"),
        ("CUDA_COREDUMP_PIPE", pipe.to_str().unwrap()),
        ("CUDA_COREDUMP_FILE", dump.to_str().unwrap()),
    ];
    let hanging = Hanging::start_with(folder, "value", &[], &variables);
    let options: [&dyn AsRef<std::ffi::OsStr>; 4] = [&"hang", &"--core", &"--watch", &"0"];
    let output = run(parts().cutape(&options).arg(&hanging.trace));
    output.assert_code(2);
    assert!(
        output.stderr.contains("is no pipe"),
        "{}",
        output.describe()
    );
    assert_eq!(fs::read(&pipe).unwrap(), b"no pipe");
}

fn core_dumps_are_read(folder: &Path) {
    let pattern = folder.join("gpu.%p");
    let named = ("CUDA_COREDUMP_FILE", pattern.to_str().unwrap());
    let default = ("CUDA_ENABLE_COREDUMP_ON_EXCEPTION", "1");
    for (variable, name) in [
        (named, "gpu.PROCESS"),
        (default, "core_1700000000_host_PROCESS.nvcudmp"),
    ] {
        let hanging = Hanging::start_with(folder, "value", &["--overwrite"], &[variable]);
        let dump = TestDump {
            kernel: "prepare".to_owned(),
            ..TestDump::fault()
        };
        let name = name.replace("PROCESS", &hanging.program.to_string());
        // Also the folder in which the program runs.
        let path = folder.join(name);
        fs::write(&path, dump.bytes()).unwrap();
        let report = hanging.hang();
        let text = run(&mut parts().cutape(&[&"hang", &"--watch", &"0", &hanging.trace]));
        fs::remove_file(&path).unwrap();
        let launch = &report["streams"][0]["candidates"][0];
        assert_eq!(launch["text"], "cuLaunchKernel prepare", "{report:#}");
        let fault = &report["core_dump_contents"][0]["faults"][0];
        assert_eq!(fault["kernel"], "prepare", "{report:#}");
        assert_eq!(fault["calls"][0], launch["call"], "{report:#}");
        let line = format!(
            "CUDA_EXCEPTION_14, Warp Illegal Address on device 3 in prepare + 0x50; launched by \
             call {}\n    in block (2, 1, 0), thread (33, 0, 0)",
            launch["call"]
        );
        assert!(text.stdout.contains(&line), "{}", text.describe());
    }
}

fn programs_that_end_have_nothing_pending(folder: &Path) {
    for program in ["streams", "memory_operations", "graph", "per_thread_stream"] {
        let trace = folder.join(format!("{program}.cutape"));
        let path = compiled(&format!("clean/{program}"));
        run(&mut record(&trace, &["--breadcrumbs"], &[&path])).assert(0);
        let output = run(&mut parts().cutape(&[&"hang", &trace]));
        output.assert_code(0);
        let line = "no work is known that may still run";
        assert!(output.stdout.contains(line), "{}", output.describe());
    }
}

fn breadcrumbs_change_nothing(folder: &Path) {
    // With breadcrumbs after work at least.
    for (program, least) in [
        ("streams", 3),
        ("per_thread_stream", 2),
        ("stream_ordered", 2),
        ("memory_operations", 1),
        ("memory_operation_batch", 1),
        ("polled_values", 1),
        ("host_functions", 1),
        ("host_visible", 10),
        ("graph", 1),
        ("graph_capture", 1),
        ("graph_awaits_cpu", 1),
        ("library_contexts", 2),
        ("recycled_handles", 10),
        ("launch_thousand", 1000),
        ("context_stack", 0),
        ("threads", 1),
        ("threads_polling", 0),
        ("errors", 0),
        ("fork", 0),
    ] {
        let path = compiled(&format!("clean/{program}"));
        let place = |name: &str| folder.join(format!("{program}.{name}.cutape"));
        let (without, with) = (place("without"), place("with"));
        run(&mut record(&without, &[], &[&path])).assert(0);
        let output = run(&mut record(&with, &["--breadcrumbs=1"], &[&path]));
        output.assert(0);
        assert_eq!(output.stdout, bare(&[&path]).stdout, "{program}");
        let findings = |trace: &PathBuf| {
            let check = run(&mut parts().cutape(&[&"check", &"--format", &"json", trace]));
            let findings = read_findings(&check.stdout).unwrap();
            let rules = findings.iter().map(|finding| finding.rule.clone());
            rules.collect::<Vec<_>>()
        };
        assert_eq!(findings(&with), findings(&without), "{program}");
        run(&mut replay(&with)).assert_code(0);
        let (without, with) = (Trace::open(&without).unwrap(), Trace::open(&with).unwrap());
        if !program.starts_with("threads") {
            assert_eq!(names(&with), names(&without), "{program}");
        }
        assert_eq!(crumbs(&without, |_| true), 0, "{program}");
        let written = crumbs(&with, |kind| [BEFORE, AFTER].contains(&kind));
        assert!(written >= least, "{program}: {written}");
        let others = crumbs(&with, |kind| ![BEFORE, AFTER].contains(&kind));
        assert_eq!(others, 0, "{program}: read or refused");
    }
}

/// The notes with breadcrumbs of these kinds.
fn crumbs(trace: &Trace, counts: impl Fn(u8) -> bool) -> usize {
    let of_call = |call: cutape_format::Call<'_>| {
        let notes = call.notes();
        let crumbs = notes.filter(|note| match note {
            Note::Breadcrumb(note) => counts(note.kind),
            _ => false,
        });
        crumbs.count()
    };
    trace.calls().map(of_call).sum()
}

fn what_cannot_be_is_refused(folder: &Path) {
    let own = std::process::id().to_string();
    let gone = folder.join("gone.cutape");
    let gone = gone.to_str().unwrap();
    let program = compiled("clean/streams");
    let sound = folder.join("sound.cutape");
    run(&mut record(&sound, &[], &[&program])).assert(0);
    let sound = sound.to_str().unwrap();
    for (words, expected) in [
        (
            vec!["hang", "4294967295"],
            "process 4294967295: no such process",
        ),
        (vec!["hang", &own], "the process is not being recorded"),
        (vec!["hang", gone], "No such file"),
        (
            vec!["hang", "--core", sound],
            "without CUDA_ENABLE_USER_TRIGGERED_COREDUMP=1",
        ),
        (
            vec!["hang", "--watch", "much", gone],
            "no number of seconds",
        ),
        (
            vec!["record", "--breadcrumbs=0", "--", &program],
            "0 is not in",
        ),
    ] {
        let mut command = Command::new(&parts().cutape);
        let output = run(command.args(&words).current_dir(folder));
        output.assert_code(2);
        assert!(output.stderr.contains(expected), "{}", output.describe());
    }
}
