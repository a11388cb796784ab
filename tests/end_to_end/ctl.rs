//! Recording that starts and stops while the program runs.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use cutape_format::{LeftOut, Note, Trace, recorded_process};
use cutape_tests::{compile, compiled, parts, record, root, run, tests};

tests![
    calls_of_threads_are_counted,
    every_piece_replays,
    a_pause_begins_and_ends_from_outside,
    recordings_begin_paused,
    recordings_begin_and_end_with_conditions,
    signals_start_and_pause,
    a_signal_before_the_first_call_starts,
    signals_that_are_not_asked_for_are_the_programs,
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

    /// Sends cutape a signal, and waits until recording is paused or not.
    fn signal(&self, signal: i32, pauses: bool) {
        // SAFETY: no memory is involved; the child has not been waited for.
        unsafe { libc::kill(self.child.id() as i32, signal) };
        let is_paused = || {
            let trace = Trace::follow(&self.trace).unwrap();
            trace.left_out().is_some_and(|left_out| left_out.is_paused)
        };
        wait_until("the signal has its effect", || is_paused() == pauses);
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

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn signals_start_and_pause(folder: &Path) {
    let real_time = libc::SIGRTMIN() + 3;
    for (start, stop, numbers) in [
        ("USR1", "RTMIN+3", [libc::SIGUSR1, real_time]),
        ("SIGUSR2", "USR2", [libc::SIGUSR2; 2]),
    ] {
        let _ = std::fs::remove_file(folder.join("live.cutape"));
        let options = ["--start-signal", start, "--stop-signal", stop];
        let mut live = Live::start(folder, &options);
        live.tell("4");
        live.signal(numbers[0], false);
        live.tell("2");
        live.signal(numbers[1], true);
        live.tell("3");
        live.signal(numbers[0], false);
        live.tell("1");
        let trace = live.end();
        assert_eq!(functions(&trace)["cuLaunchKernel"], 2 + 1, "{start} {stop}");
        assert_eq!(trace.left_out().unwrap().pauses, 2, "{start} {stop}");
        run(&mut parts().cutape(&[&"check", &trace.path()])).assert_code(0);
    }
}

/// Also that of a process which calls the driver later.
fn a_signal_before_the_first_call_starts(folder: &Path) {
    let (trace, errors) = (folder.join("late.cutape"), folder.join("stderr"));
    let script = "read line; exec \"$0\" commands";
    let words = ["/bin/sh", "-c", script, &program(folder)];
    let mut command = record(&trace, &["--start-signal", "HUP"], &words);
    let command = command.stdin(Stdio::piped()).stdout(Stdio::null());
    let mut child = command
        .stderr(std::fs::File::create(&errors).unwrap())
        .spawn()
        .unwrap();
    // Not before cutape takes the signal.
    let has_started = || {
        let found = std::fs::read_dir("/proc").unwrap().flatten();
        let names = found.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let parent = format!("PPid:\t{}\n", child.id());
        let status = |process| std::fs::read_to_string(format!("/proc/{process}/status"));
        let mut statuses = names.flat_map(status);
        statuses.any(|status| status.contains(&parent) && status.starts_with("Name:\tsh\n"))
    };
    wait_until("the program has started", has_started);
    // SAFETY: no memory is involved; the child has not been waited for.
    unsafe { libc::kill(child.id() as i32, libc::SIGHUP) };
    let said = || std::fs::read_to_string(&errors).unwrap();
    wait_until("a message", || {
        said().contains("SIGHUP: recording starts when a process calls the driver")
    });
    let mut input = child.stdin.take().unwrap();
    writeln!(input, "go").unwrap();
    let is_recording = || {
        let trace = Trace::follow(&trace);
        trace.is_ok_and(|trace| {
            let left_out = trace.left_out();
            left_out.is_some_and(|left_out| left_out.pauses == 1 && !left_out.is_paused)
        })
    };
    wait_until("recording starts", is_recording);
    writeln!(input, "5").unwrap();
    drop(input);
    assert!(child.wait().unwrap().success(), "{}", said());
    let launches = functions(&Trace::open(&trace).unwrap())["cuLaunchKernel"];
    // That of the program's question, too, if it comes after the start.
    assert!((5..=6).contains(&launches), "{launches}");
}

fn signals_that_are_not_asked_for_are_the_programs(folder: &Path) {
    let live = Live::start(folder, &["--stop-signal", "USR1"]);
    live.signal(libc::SIGUSR1, true);
    let Live { mut child, .. } = live;
    // SAFETY: no memory is involved; the child has not been waited for.
    unsafe { libc::kill(child.id() as i32, libc::SIGUSR2) };
    assert_eq!(child.wait().unwrap().code(), Some(128 + libc::SIGUSR2));
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
