//! Ranges and marks: which are recorded, and how calls are chosen by them.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use cutape_format::{MarkerAction, MarkerSource, Trace, marked_ranges, recorded_process};
use cutape_tests::{compile, compiled, files, parts, record, replay, root, run};
use serde_json::Value;

cutape_tests::tests![
    ranges_and_marks_are_recorded,
    calls_are_chosen_by_range,
    another_tool_for_nvtx_stays,
    nvtx_can_be_left_out,
    a_process_without_calls_leaves_no_trace,
    threads_without_calls_have_markers,
    a_forked_process_has_its_own,
    open_ranges_from_before_the_first_call_are_kept,
    wrong_arguments_are_harmless,
    markers_of_a_killed_program_stay,
    marks_from_outside,
    marks_without_a_recording,
];

fn marks(folder: &Path) -> String {
    let program = folder.join("marks");
    let driver = parts().driver_folder.join("libcuda.so.1");
    let source = root().join("tests/programs/markers/marks.c");
    compile(&source, &program, &[&driver, &"-pthread"]);
    program.to_str().unwrap().to_owned()
}

/// Records a program of `marks.c`; the trace, which may not exist.
fn recorded(folder: &Path, options: &[&str], what: &str) -> PathBuf {
    let trace = folder.join(format!("{what}.cutape"));
    run(&mut record(&trace, options, &[&marks(folder), what])).assert(0);
    trace
}

/// Names, threads and whether they ended.
fn ranges(trace: &Path) -> Vec<(String, Option<u32>, bool)> {
    let ranges = marked_ranges(&Trace::open(trace).unwrap().markers()).into_iter();
    ranges
        .map(|range| (range.name, range.thread, range.end.is_some()))
        .collect()
}

fn ranges_and_marks_are_recorded(folder: &Path) {
    for options in [&[][..], &["--no-pack"], &["--stacks=all"]] {
        let trace = folder.join("trace.cutape");
        let _ = fs::remove_file(&trace);
        let program = compiled("clean/nvtx_ranges");
        run(&mut record(&trace, options, &[&program])).assert(0);
        let open = Trace::open(&trace).unwrap();
        assert_eq!(open.verify(), []);
        let markers = open.markers();
        let list = marked_ranges(&markers);
        let named = |name: &str| list.iter().filter(|range| range.name == name).count();
        assert_eq!(named("step"), 5);
        let around = |name: &str| {
            let range = list.iter().find(|range| range.name == name).unwrap();
            range.parent.map(|parent| &*list[parent].name)
        };
        for (name, expected) in [
            ("train", None),
            ("step", Some("train")),
            ("forward", Some("step")),
            ("länger", Some("train")),
            ("registered", None),
            ("shared", None),
            ("validate", None),
            ("own", None),
        ] {
            assert_eq!(around(name), expected, "{name}");
        }
        assert!(list.iter().all(|range| range.end.is_some()), "{list:#?}");
        let registered = list.iter().find(|range| range.name == "registered");
        assert_eq!(registered.unwrap().domain, "library");
        let validate = list.iter().find(|range| range.name == "validate");
        assert_eq!(validate.unwrap().thread, Some(1));
        let marks: Vec<_> = markers
            .iter()
            .filter(|marker| marker.action == MarkerAction::Mark)
            .map(|mark| (&*mark.text, mark.source))
            .collect();
        assert_eq!(
            marks,
            [
                ("before the first call", MarkerSource::Nvtx),
                ("with payload", MarkerSource::Nvtx),
                ("own mark", MarkerSource::Recorder),
            ]
        );
        // Each launch lies in the ranges that the program made around it.
        let grids = |name: &str| -> Vec<u64> {
            let ranges = list.iter().filter(|range| range.name == name);
            let ranges: Vec<_> = ranges.collect();
            open.calls()
                .filter(|call| call.signature.name == "cuLaunchKernel")
                .filter(|call| ranges.iter().any(|range| range.contains(call.ticks)))
                .map(|call| call.argument(1))
                .collect()
        };
        assert_eq!(grids("forward"), [1; 5]);
        assert_eq!(grids("backward"), [2, 3, 2, 3, 2, 3, 2, 3, 2, 3]);
        for (name, grid) in [
            ("länger", 5),
            ("registered", 6),
            ("validate", 4),
            ("own", 7),
        ] {
            assert_eq!(grids(name), [grid], "{name}");
        }
        assert_eq!(grids("train").len(), 19);
    }
}

fn calls_are_chosen_by_range(folder: &Path) {
    let trace = folder.join("trace.cutape");
    let program = compiled("clean/nvtx_ranges");
    run(&mut record(&trace, &[], &[&program])).assert(0);
    let dump = |calls: &str| {
        let output =
            run(&mut parts().cutape(&[&"dump", &"--format", &"json", &"--calls", &calls, &trace]));
        output.assert(0);
        let lines = output.stdout.lines();
        lines
            .map(|line| serde_json::from_str::<Value>(line).unwrap())
            .filter(|line| line["call"].is_u64())
            .count()
    };
    for (calls, count) in [
        ("range:step", 15),
        ("range:train/step[0]", 3),
        ("range:step/backward", 10),
        ("range:library@*", 1),
        ("mark:\"with payload\"..mark:\"own mark\"", 3),
    ] {
        assert_eq!(dump(calls), count, "{calls}");
    }
    let replayed = run(replay(&trace).args(["--calls", "range:step[2]"]));
    replayed.assert(0);
    assert!(
        replayed.stdout.contains("; 3 result codes;"),
        "{}",
        replayed.stdout
    );
    for (calls, message) in [
        (
            "range:stp",
            "no range `stp`; the trace has train, step, forward, ",
        ),
        (
            "range:step[5]",
            "the trace has 5 such ranges, numbered from 0",
        ),
    ] {
        for verb in ["dump", "replay", "bench"] {
            let mut command = parts().cutape(&[&verb, &"--calls", &calls, &trace]);
            if verb != "dump" {
                command.args(["--driver", "null"]);
            }
            let output = run(&mut command);
            output.assert_code(2);
            assert!(output.stderr.contains(message), "{verb}: {}", output.stderr);
            assert_eq!(output.stderr.lines().count(), 1, "{}", output.stderr);
        }
    }
}

fn another_tool_for_nvtx_stays(folder: &Path) {
    let trace = folder.join("trace.cutape");
    let program = compiled("clean/nvtx_ranges");
    let mut command = record(&trace, &[], &[&program]);
    let output = run(command.env("NVTX_INJECTION64_PATH", "/no/such/tool.so"));
    output.assert_code(0);
    assert_eq!(
        output.stderr,
        "cutape: NVTX ranges and marks are not recorded: NVTX_INJECTION64_PATH names another \
         library, /no/such/tool.so; unset it to record them\n"
    );
    // The functions of the recorder do not need NVTX.
    assert_eq!(ranges(&trace), [("own".to_owned(), Some(0), true)]);
    // A recording within a recording is the inner one's.
    let inner = folder.join("inner.cutape");
    let mut command = record(&inner, &[], &[&program]);
    run(command.env("NVTX_INJECTION64_PATH", &parts().interposer)).assert(0);
    assert_eq!(ranges(&inner)[0], ("train".to_owned(), Some(0), true));
}

fn nvtx_can_be_left_out(folder: &Path) {
    let trace = folder.join("trace.cutape");
    let program = compiled("clean/nvtx_ranges");
    run(&mut record(&trace, &["--no-nvtx"], &[&program])).assert(0);
    assert_eq!(ranges(&trace), [("own".to_owned(), Some(0), true)]);
}

fn a_process_without_calls_leaves_no_trace(folder: &Path) {
    let trace = folder.join("nothing.cutape");
    let output = run(&mut record(&trace, &[], &[&marks(folder), "nothing"]));
    output.assert_code(0);
    assert!(
        output.stderr.contains("nothing was recorded"),
        "{}",
        output.stderr
    );
    assert!(!trace.exists());
}

fn threads_without_calls_have_markers(folder: &Path) {
    let trace = recorded(folder, &[], "threads");
    let ranges = ranges(&trace);
    for name in ["one", "two", "three", "four"] {
        let of_name = ranges.iter().filter(|range| range.0 == name);
        assert_eq!(of_name.count(), 2000, "{name}");
    }
    assert!(ranges.iter().all(|range| range.1.is_none() && range.2));
    let dump = run(&mut parts().cutape(&[&"dump", &trace]));
    dump.assert(0);
    let first = dump.stdout.lines().find(|line| line.starts_with("- "));
    assert!(first.unwrap().starts_with("- thread "), "{first:?}");
}

fn a_forked_process_has_its_own(folder: &Path) {
    recorded(folder, &[], "forked");
    let mut traces = files(folder);
    traces.retain(|path| path.extension().is_some_and(|e| e == "cutape"));
    let mut all: Vec<_> = traces.iter().map(|trace| ranges(trace)).collect();
    all.sort();
    let range = |name: &str| vec![(name.to_owned(), Some(0), true)];
    assert_eq!(all, [range("child"), range("parent")]);
}

fn open_ranges_from_before_the_first_call_are_kept(folder: &Path) {
    let trace = recorded(folder, &[], "early");
    let ranges = ranges(&trace);
    assert_eq!(ranges[0], ("outer".to_owned(), Some(0), true));
    // Those that did not fit are counted.
    let lost = Trace::open(&trace).unwrap();
    let lost: usize = lost.meta_value("markers.lost").unwrap().parse().unwrap();
    assert_eq!(2 * (ranges.len() - 1) + lost, 40_000);
    let info = run(&mut parts().cutape(&[&"info", &trace]));
    assert!(
        info.stdout
            .contains("ranges and marks from before the first call")
    );
}

fn wrong_arguments_are_harmless(folder: &Path) {
    let trace = recorded(folder, &[], "wrong");
    let ranges = ranges(&trace);
    let range = |ended| (String::new(), Some(0), ended);
    assert_eq!(ranges, [range(true), range(false)]);
}

fn markers_of_a_killed_program_stay(folder: &Path) {
    let trace = folder.join("killed.cutape");
    run(&mut record(&trace, &[], &[&marks(folder), "killed"])).assert_code(128 + 9);
    assert_eq!(
        ranges(&trace),
        [("until the end".to_owned(), Some(0), false)]
    );
}

fn mark(options: &[&str]) -> Command {
    let mut command = parts().cutape(&[&"mark"]);
    command.args(options);
    command
}

fn marks_from_outside(folder: &Path) {
    let trace = folder.join("wait.cutape");
    let mut command = record(&trace, &[], &[&marks(folder), "wait"]);
    let mut recording = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut printed = BufReader::new(recording.stdout.take().unwrap());
    let mut line = String::new();
    printed.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    let process = recorded_process(&trace).unwrap().to_string();
    run(&mut mark(&["--pid", &process, "first phase"])).assert(0);
    // As a script does that the program starts.
    run(mark(&["second phase"]).env("CUTAPE_TRACE", &trace)).assert(0);
    for (text, why) in [("", "has 1 to"), (&*"x".repeat(5000), "has 1 to")] {
        let output = run(&mut mark(&["--pid", &process, text]));
        output.assert_code(2);
        assert!(output.stderr.contains(why), "{}", output.stderr);
    }
    drop(recording.stdin.take());
    assert!(recording.wait().unwrap().success());
    let trace = Trace::open(&trace).unwrap();
    assert_eq!(trace.verify(), []);
    let marks = trace.markers();
    let texts: Vec<_> = marks
        .iter()
        .map(|mark| (&*mark.text, mark.source))
        .collect();
    assert_eq!(
        texts,
        [
            ("first phase", MarkerSource::Outside),
            ("second phase", MarkerSource::Outside),
        ]
    );
    // They lie between the two calls of the program.
    let calls: Vec<u64> = trace.calls().map(|call| call.ticks).collect();
    assert!(calls.len() >= 2);
    assert!(calls[0] < marks[0].ticks && marks[1].ticks < calls[calls.len() - 1]);
}

fn marks_without_a_recording(folder: &Path) {
    let trace = recorded(folder, &[], "wrong");
    let own = std::process::id().to_string();
    let path = trace.to_str().unwrap();
    for (variable, options, why) in [
        (
            None,
            &["text"][..],
            "no recording: this is not run by a program",
        ),
        (
            Some("/no/such.cutape"),
            &["text"],
            "has not called the driver yet",
        ),
        (
            Some(path),
            &["text"],
            "no process is recording to it any more",
        ),
        (None, &["--pid", &own, "text"], "is not being recorded"),
        (None, &["--pid", "4194305", "text"], "no such process"),
    ] {
        let mut command = mark(options);
        command.env_remove("CUTAPE_TRACE");
        command.envs(variable.map(|value| ("CUTAPE_TRACE", value)));
        let output = run(&mut command);
        output.assert_code(2);
        assert!(output.stderr.contains(why), "{why}: {}", output.stderr);
        assert_eq!(output.stderr.lines().count(), 1, "{}", output.stderr);
    }
}
