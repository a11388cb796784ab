//! Recording that starts and stops while the program runs.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use cutape_format::{LeftOut, Note, Trace, recorded_process};
use cutape_tests::{compile, compiled, parts, record, root, run, tests};

tests![
    calls_of_threads_are_counted,
    every_piece_replays,
    a_pause_begins_and_ends_from_outside,
    recordings_begin_paused,
    recordings_begin_and_end_with_conditions,
    a_mark_before_the_first_call_starts,
    only_the_owner_controls_a_recording,
    misuse_after_a_pause_is_found,
    pauses_until_the_end,
    bad_requests,
    metrics_for_prometheus,
];

fn program(folder: &Path) -> String {
    let program = folder.join("pauses");
    let driver = parts().driver_folder.join("libcuda.so.1");
    let source = root().join("tests/programs/ctl/pauses.c");
    compile(&source, &program, &[&driver, &"-pthread", &"-ldl"]);
    program.to_str().unwrap().to_owned()
}

/// Records a program of `pauses.c`.
fn recorded(folder: &Path, what: &str) -> PathBuf {
    let trace = folder.join(format!("{what}.cutape"));
    run(&mut record(&trace, &[], &[&program(folder), what])).assert_code(0);
    trace
}

/// How many calls of each function a trace has.
fn functions(trace: &Trace) -> BTreeMap<String, u64> {
    let mut all = BTreeMap::new();
    for call in trace.calls() {
        *all.entry(call.signature.name.clone()).or_default() += 1;
    }
    all
}

/// Calls that the notes of a trace say are left out.
fn noted(trace: &Trace) -> u64 {
    let calls = trace.calls();
    let notes = calls.flat_map(|call| call.notes().collect::<Vec<_>>());
    notes
        .map(|note| match note {
            Note::Gap(gap) => gap.calls,
            _ => 0,
        })
        .sum()
}

fn calls_of_threads_are_counted(folder: &Path) {
    let whole = Trace::open(&recorded(folder, "whole")).unwrap();
    assert_eq!(whole.left_out(), None);
    let made = whole.calls().count() as u64;
    let path = recorded(folder, "toggled");
    let trace = Trace::open(&path).unwrap();
    assert_eq!(trace.verify(), []);
    let left_out = trace.left_out().expect("pauses");
    assert!(left_out.pauses > 10 && left_out.calls > 0, "{left_out:?}");
    assert!(!left_out.is_paused);
    let recorded = trace.calls().count() as u64;
    assert_eq!(recorded + left_out.calls, made, "{left_out:?}");
    // Every thread makes a recorded call after the last pause: its notes have all that it left out.
    assert_eq!(noted(&trace), left_out.calls);
    // Calls with effects on state are all there, and those that failed.
    let (all, kept) = (functions(&whole), functions(&trace));
    for name in [
        "cuMemAlloc_v2",
        "cuMemFree_v2",
        "cuStreamCreate",
        "cuStreamDestroy_v2",
        "cuEventRecord",
        "cuCtxSetCurrent",
    ] {
        assert_eq!(kept.get(name), all.get(name), "{name}");
    }
    let failed = |trace: &Trace| trace.calls().filter(|call| !call.succeeded()).count();
    assert_eq!(failed(&trace), failed(&whole));
}

fn every_piece_replays(folder: &Path) {
    let trace = recorded(folder, "toggled");
    run(&mut parts().cutape(&[&"check", &trace])).assert_code(0);
    let replay = run(&mut parts().cutape(&[&"replay", &"--driver", &"null", &trace]));
    replay.assert_code(0);
    assert!(replay.stdout.contains("left out"), "{}", replay.stdout);
}

/// A program that does as it is told, while it is recorded.
struct Live {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    trace: PathBuf,
}

impl Live {
    fn start(folder: &Path, options: &[&str]) -> Self {
        let trace = folder.join("live.cutape");
        let mut command = record(&trace, options, &[&program(folder), "commands"]);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut live = Self {
            input: child.stdin.take(),
            output: BufReader::new(child.stdout.take().unwrap()),
            child,
            trace,
        };
        live.expect("ready");
        live
    }

    fn expect(&mut self, expected: &str) {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        assert_eq!(line.trim_end(), expected);
    }

    /// Has it do something, and waits until it has.
    fn tell(&mut self, what: &str) {
        writeln!(self.input.as_mut().unwrap(), "{what}").unwrap();
        self.expect("done");
    }

    fn process(&self) -> String {
        recorded_process(&self.trace).unwrap().to_string()
    }

    fn ctl(&self, arguments: &[&str]) -> cutape_tests::Output {
        let process = self.process();
        let mut command = parts().cutape(&[&"ctl", &&*process]);
        run(command.args(arguments))
    }

    /// Ends it; the trace.
    fn end(mut self) -> Trace {
        drop(self.input.take());
        assert!(self.child.wait().unwrap().success());
        Trace::open(&self.trace).unwrap()
    }
}

fn a_pause_begins_and_ends_from_outside(folder: &Path) {
    let mut live = Live::start(folder, &[]);
    live.tell("3");
    live.ctl(&["stop"]).assert(0);
    live.ctl(&["mark", "paused"]).assert(0);
    live.tell("5");
    let again = live.ctl(&["stop"]);
    again.assert_code(0);
    assert!(again.stderr.contains("paused already"), "{}", again.stderr);
    let status = live.ctl(&["status"]);
    status.assert_code(0);
    assert!(status.stdout.contains(": paused"), "{}", status.stdout);
    assert!(
        status.stdout.contains("20 left out in 1 pause"),
        "{}",
        status.stdout
    );
    live.ctl(&["start"]).assert(0);
    live.tell("2");
    let trace = live.end();
    let expected = LeftOut {
        calls: 20,
        pauses: 1,
        is_paused: false,
    };
    assert_eq!(trace.left_out(), Some(expected));
    assert_eq!(noted(&trace), 20);
    // The launch of the program's question, and those of five rounds.
    assert_eq!(functions(&trace)["cuLaunchKernel"], 1 + 3 + 2);
    let gap = trace.calls().find_map(|call| {
        let gap = call.notes().find_map(|note| match note {
            Note::Gap(gap) => Some(gap),
            _ => None,
        })?;
        Some((gap, call.ticks))
    });
    let (gap, ticks) = gap.unwrap();
    let mark = trace.markers()[0].ticks;
    assert!(gap.paused < mark && mark < gap.resumed && gap.resumed < ticks);
    let dump = run(&mut parts().cutape(&[&"dump", &trace.path()]));
    let said = "20 calls of this thread are missing before this one: recording was paused";
    assert!(dump.stdout.contains(said), "{}", dump.stdout);
    let info = run(&mut parts().cutape(&[&"info", &trace.path()]));
    assert!(
        info.stderr.contains("recording was paused once"),
        "{}",
        info.stderr
    );
}

fn recordings_begin_paused(folder: &Path) {
    let mut live = Live::start(folder, &["--start-paused"]);
    live.tell("4");
    live.ctl(&["start"]).assert(0);
    live.tell("2");
    let trace = live.end();
    assert_eq!(functions(&trace)["cuLaunchKernel"], 2);
    assert_eq!(functions(&trace)["cuMemAlloc_v2"], 2);
    let replay = run(&mut parts().cutape(&[&"replay", &"--driver", &"null", &trace.path()]));
    replay.assert_code(0);
}

fn recordings_begin_and_end_with_conditions(folder: &Path) {
    // Each round has one launch, in four calls; the program has launched `mark` before.
    for (options, launches) in [
        (&["--start-at", "kernel:fil?"][..], 7),
        (&["--start-at", "kernel:fill", "--for", "3 launches"], 3),
        (&["--start-at", "kernel:none"], 0),
        (&["--for", "2 launches"], 2),
        (&["--start-paused", "--for", "2 launches"], 0),
        (&["--start-at", "call:cuStreamSynchronize:2"], 5),
        (&["--start-at", "call:cuStreamCreate"], 7),
        (&["--start-at", "mark:here"], 4),
        (&["--start-at", "mark:there"], 0),
        (&["--start-at", "mark:here", "--for", "6 calls"], 2),
        (&["--for", "1h"], -1),
        (&["--for", "3600s"], 8),
        (&["--start-at", "mark:here", "--for", "1ms"], -2),
    ] {
        if launches == -1 {
            let trace = folder.join("bad.cutape");
            let output = run(&mut record(
                &trace,
                options,
                &[&program(folder), "commands"],
            ));
            output.assert_code(2);
            assert!(output.stderr.contains("100 launches"), "{}", output.stderr);
            continue;
        }
        let _ = std::fs::remove_file(folder.join("live.cutape"));
        let mut live = Live::start(folder, options);
        live.tell("3");
        live.tell("mark");
        if launches == -2 {
            live.tell("1");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        live.tell("4");
        let trace = live.end();
        let functions = functions(&trace);
        let found = functions.get("cuLaunchKernel").copied().unwrap_or(0);
        match launches {
            -2 => assert!(found <= 1, "{options:?}: {found}"),
            expected => assert_eq!(found, expected as u64, "{options:?}"),
        }
        assert_eq!(functions["cuMemAlloc_v2"], 2, "{options:?}");
        run(&mut parts().cutape(&[&"check", &trace.path()])).assert_code(0);
    }
}

fn a_mark_before_the_first_call_starts(folder: &Path) {
    let program = compiled("clean/nvtx_ranges");
    let functions = |options: &[&str]| {
        let trace = folder.join(format!("{}.cutape", options.len()));
        run(&mut record(&trace, options, &[&program])).assert_code(0);
        functions(&Trace::open(&trace).unwrap())
    };
    let all = functions(&[]);
    assert!(all["cuLaunchKernel"] > 0);
    assert_eq!(
        functions(&["--start-at", "mark:before the first call"]),
        all
    );
}

/// The file of the trace is its owner's alone.
fn only_the_owner_controls_a_recording(folder: &Path) {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::os::unix::process::CommandExt;
    let mut live = Live::start(folder, &[]);
    let mode = std::fs::metadata(&live.trace).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let is_root = std::fs::metadata("/proc/self").unwrap().uid() == 0;
    if is_root {
        let process = live.process();
        let mut command = parts().cutape(&[&"ctl", &&*process, &"stop"]);
        let output = run(command.uid(65534).gid(65534));
        output.assert_code(2);
        assert!(
            output.stderr.to_lowercase().contains("permission denied"),
            "{}",
            output.stderr
        );
    }
    live.tell("1");
    assert_eq!(live.end().left_out(), None);
}

fn misuse_after_a_pause_is_found(folder: &Path) {
    let mut live = Live::start(folder, &[]);
    live.tell("1");
    live.ctl(&["stop"]).assert(0);
    live.tell("3");
    live.tell("free");
    live.ctl(&["start"]).assert(0);
    live.tell("wrong");
    let trace = live.end();
    let check = run(&mut parts().cutape(&[&"check", &trace.path()]));
    check.assert_code(1);
    assert!(
        check
            .stdout
            .contains("memory-use-after-free-kernel-argument"),
        "{}",
        check.stdout
    );
}

fn pauses_until_the_end(folder: &Path) {
    let mut live = Live::start(folder, &[]);
    live.tell("1");
    live.ctl(&["stop"]).assert(0);
    live.tell("6");
    let trace = live.end();
    let left_out = trace.left_out().unwrap();
    assert_eq!((left_out.calls, left_out.is_paused), (24, true));
    run(&mut parts().cutape(&[&"check", &trace.path()])).assert_code(0);
}

fn bad_requests(folder: &Path) {
    let mut live = Live::start(folder, &["--digests"]);
    for (arguments, why) in [
        (&["stop"][..], "need all calls"),
        (&["keep"], "no flight recorder runs"),
        (&["mark"], "mark needs a text"),
        (&["start", "text"], "only mark takes a text"),
        (&["stop", "--format", "json"], "are for status"),
    ] {
        let output = live.ctl(arguments);
        output.assert_code(2);
        assert!(output.stderr.contains(why), "{}", output.stderr);
    }
    let again = live.ctl(&["start"]);
    again.assert_code(0);
    assert!(
        again.stderr.contains("recording already"),
        "{}",
        again.stderr
    );
    live.tell("1");
    let trace = live.end();
    assert_eq!(trace.left_out(), None);
    let path = trace.path().to_str().unwrap().to_owned();
    let own = std::process::id().to_string();
    for (arguments, why) in [
        (&[&*path, "stop"][..], "no process is recording to it"),
        (&[&*path, "status"], "no process is recording to it"),
        (&[&*own, "stop"], "not being recorded"),
        (&[&*path, "stop", "--all-processes"], "needs the number"),
        (&["/no/such.cutape", "status"], "no such"),
    ] {
        let output = run(parts().cutape(&[&"ctl"]).args(arguments));
        output.assert_code(2);
        let text = output.stderr.to_lowercase();
        assert!(text.contains(why), "{}", output.stderr);
    }
}

fn metrics_for_prometheus(folder: &Path) {
    let mut live = Live::start(folder, &["--start-paused"]);
    live.tell("1");
    let file = folder.join("cutape.prom");
    let process = std::process::id().to_string();
    // The test's own process descends into the recorder and the program.
    let mut command = parts().cutape(&[&"ctl", &&*process, &"status", &"--all-processes"]);
    run(command.arg("--textfile").arg(&file)).assert(0);
    let text = std::fs::read_to_string(&file).unwrap();
    let trace = live.trace.display().to_string();
    let of_trace: Vec<_> = text.lines().filter(|line| line.contains(&trace)).collect();
    assert!(
        of_trace.iter().any(|line| {
            line.starts_with("cutape_calls_left_out_total{") && !line.ends_with(" 0")
        }),
        "{text}"
    );
    let json = live.ctl(&["status", "--format", "json"]);
    json.assert_code(0);
    assert!(
        json.stdout.contains("\"state\":\"paused\""),
        "{}",
        json.stdout
    );
    drop(live.end());
}
