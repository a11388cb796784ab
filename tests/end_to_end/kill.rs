//! Programs that die, are stopped, or get errors: what they had called is in the trace.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use cutape_format::Trace;
use cutape_tests::{
    calls_of, compiled, ending, parts, read_findings, record, replay, run, without_settings,
};

cutape_tests::tests![
    a_killed_program_leaves_all_its_calls,
    a_program_killed_inside_a_call_shows_that_call_last,
    a_crash_inside_the_driver_is_explained,
    errors_of_the_driver_are_recorded_and_replayed,
    a_signal_to_the_recorder_reaches_the_program,
    a_recorder_that_is_killed_or_stopped_costs_no_call,
    a_program_that_never_ends_is_checked_while_it_runs,
];

/// Every call's name and result.
fn results(trace: &Trace) -> Vec<(String, Option<i32>)> {
    trace
        .calls()
        .map(|call| (call.signature.name.clone(), call.result()))
        .collect()
}

fn send(signal: &str, process: u32) {
    run(Command::new("kill").args([&format!("-{signal}"), &process.to_string()])).assert(0);
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "waited in vain: {what}"
        );
        thread::sleep(Duration::from_millis(1));
    }
}

fn a_killed_program_leaves_all_its_calls(folder: &Path) {
    for packing in [&["--no-pack"][..], &[]] {
        let path = folder.join(format!("t{}.cutape", packing.concat()));
        let output = run(&mut record(&path, packing, &[&ending(), "kill", "5000"]));
        output.assert(137);
        let trace = Trace::open(&path).unwrap();
        assert_eq!(trace.verify(), [], "{packing:?}");
        assert_eq!(calls_of(&trace, "cuCtxSynchronize"), 5000, "{packing:?}");
        let all = results(&trace);
        assert!(
            all.iter().all(|(_, result)| *result == Some(0)),
            "{packing:?}"
        );
    }
}

fn a_program_killed_inside_a_call_shows_that_call_last(folder: &Path) {
    let path = folder.join("t.cutape");
    // The driver sleeps in the third launch; the program and the recorder are killed there.
    let mut command = record(&path, &["--no-pack"], &[&compiled("clean/launch_thousand")]);
    command
        .env("CUTAPE_NULL_DELAY", "cuLaunchKernel@3=600s")
        .stdout(std::process::Stdio::null());
    let mut recorder = without_settings(&mut command).spawn().unwrap();
    wait_until("the third launch", || {
        Trace::open_damaged(&path).is_ok_and(|trace| calls_of(&trace, "cuLaunchKernel") == 3)
    });
    let program = child_of(recorder.id()).expect("the program runs");
    send("KILL", recorder.id());
    send("KILL", program);
    recorder.wait().unwrap();
    wait_until("the program's end", || !runs(program));
    let trace = Trace::open(&path).unwrap();
    let all = results(&trace);
    let (last, before) = all.split_last().unwrap();
    assert_eq!(*last, ("cuLaunchKernel".to_owned(), None));
    assert!(before.iter().all(|(_, result)| result.is_some()));
    assert_eq!(calls_of(&trace, "cuLaunchKernel"), 3);
}

fn a_crash_inside_the_driver_is_explained(folder: &Path) {
    let path = folder.join("t.cutape");
    let mut command = record(&path, &[], &[&compiled("clean/launch_struct")]);
    run(command.env("CUTAPE_NULL_CRASH", "cuLaunchKernel@1")).assert(139);
    let trace = Trace::open(&path).unwrap();
    let all = results(&trace);
    let in_flight: Vec<_> = all.iter().filter(|(_, result)| result.is_none()).collect();
    assert_eq!(in_flight, [all.last().unwrap()]);
    assert_eq!(in_flight[0].0, "cuLaunchKernel");
    assert_eq!(trace.meta_value("exit.signal"), Some("11"));

    let dump = run(&mut parts().cutape(&[&"dump", &path]));
    dump.assert(0);
    let mut calls = dump.stdout.lines().filter(|line| !line.starts_with(' '));
    let last = calls.next_back().unwrap_or_default();
    assert!(
        last.contains("cuLaunchKernel") && last.contains("did not return"),
        "{}",
        dump.describe()
    );

    // `check` names the call, and blames it on nothing that the program did.
    let check = run(&mut parts().cutape(&[&"check", &path]));
    check.assert_code(0);
    let printed = format!("{}{}", check.stdout, check.stderr);
    let named = format!("call {} cuLaunchKernel did not return", all.len() - 1);
    assert!(printed.contains(&named), "{}", check.describe());
    let check = run(&mut parts().cutape(&[&"check", &"--format", &"json", &path]));
    assert_eq!(read_findings(&check.stdout).unwrap(), []);

    // The replay leaves the call out, and reports that.
    let replay = run(&mut replay(&path));
    replay.assert_code(0);
    let skipped = format!(
        "1 x cuLaunchKernel (first: call {}): in flight when the recording ended",
        all.len() - 1
    );
    assert!(replay.stdout.contains(&skipped), "{}", replay.describe());
}

fn errors_of_the_driver_are_recorded_and_replayed(folder: &Path) {
    // (what fails, its code, the program: each stops there with status 1)
    for (fault, name, code, program) in [
        ("cuMemAlloc@1=2", "cuMemAlloc_v2", 2, "clean/memory_basic"),
        (
            "cuModuleLoadData@1=218",
            "cuModuleLoadData",
            218,
            "clean/module_enumerate",
        ),
        (
            "cuLaunchKernel@2=719",
            "cuLaunchKernel",
            719,
            "clean/launch_thousand",
        ),
        ("cuInit=100", "cuInit", 100, "clean/streams"),
    ] {
        // Without a driver that initialises, nothing can be replayed.
        let same = if name == "cuInit" { 2 } else { 0 };
        let path = folder.join(format!("{name}.cutape"));
        let mut command = record(&path, &[], &[&compiled(program)]);
        let output = run(command.env("CUTAPE_NULL_FAIL", fault));
        output.assert_code(1);
        assert!(output.stderr.contains("gave"), "{}", output.describe());
        let failed = results(&Trace::open(&path).unwrap());
        assert_eq!(
            failed
                .iter()
                .filter(|(_, result)| *result == Some(code))
                .count(),
            1,
            "{fault}: {failed:?}"
        );
        assert!(
            failed.contains(&(name.to_owned(), Some(code))),
            "{fault}: {failed:?}"
        );

        // The same driver answers the same.
        let output = run(replay(&path).env("CUTAPE_NULL_FAIL", fault));
        output.assert_code(same);
        // One without the fault does not, and the divergence names the function.
        let output = run(&mut replay(&path));
        output.assert_code(1);
        assert!(output.stdout.contains(name), "{}", output.describe());
    }
}

fn a_signal_to_the_recorder_reaches_the_program(folder: &Path) {
    for (name, signal) in [("TERM", libc::SIGTERM), ("USR1", libc::SIGUSR1)] {
        let path = folder.join(format!("{name}.cutape"));
        let log = folder.join(name);
        let mut command = record(&path, &[], &[&ending(), "pause", "7"]);
        let mut child = without_settings(&mut command)
            .stdout(std::fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        wait_until("the program's line", || {
            std::fs::read_to_string(&log).is_ok_and(|text| text.contains("waiting"))
        });
        send(name, child.id());
        assert_eq!(child.wait().unwrap().code(), Some(128 + signal), "{name}");
        let trace = Trace::open(&path).unwrap();
        assert_eq!(calls_of(&trace, "cuCtxSynchronize"), 7, "{name}");
        let ended_by = signal.to_string();
        assert_eq!(trace.meta_value("exit.signal"), Some(&*ended_by));
    }
}

/// The only child of a process, if it still runs.
fn child_of(process: u32) -> Option<u32> {
    let children = std::fs::read_to_string(format!("/proc/{process}/task/{process}/children"));
    let child = children.ok()?.trim().parse().ok()?;
    runs(child).then_some(child)
}

fn runs(process: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let state = stat.rsplit(')').next().unwrap_or_default();
    state
        .trim()
        .chars()
        .next()
        .is_some_and(|state| state != 'Z')
}

fn a_recorder_that_is_killed_or_stopped_costs_no_call(folder: &Path) {
    const CALLS: usize = 300_000;
    for signal in ["KILL", "STOP"] {
        let path = folder.join(format!("{signal}.cutape"));
        let words = [&ending(), "end", &CALLS.to_string()];
        let mut command = record(&path, &["--no-pack"], &words);
        command.stdout(std::process::Stdio::null());
        let mut recorder = without_settings(&mut command).spawn().unwrap();
        let length = || path.metadata().map_or(0, |metadata| metadata.len());
        // By then the recorder has begun to move full thread buffers.
        wait_until("the trace grows", || length() > 1 << 20);
        let program = child_of(recorder.id()).expect("the program runs");
        send(signal, recorder.id());
        let at_once = length();
        wait_until("the program's end", || !runs(program));
        if signal == "STOP" {
            send("CONT", recorder.id());
            assert!(recorder.wait().unwrap().success());
        } else {
            recorder.wait().unwrap();
        }
        let trace = Trace::open(&path).unwrap();
        assert_eq!(trace.verify(), [], "{signal}");
        assert_eq!(calls_of(&trace, "cuCtxSynchronize"), CALLS, "{signal}");
        assert!(length() > at_once, "{signal}: sent after the last call");
    }
}

/// The anonymous memory of a process in KiB, which mapped traces are not part of.
fn anonymous_memory(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    let number = line
        .and_then(|line| line.split_whitespace().next())
        .unwrap();
    number.parse().unwrap()
}

fn a_program_that_never_ends_is_checked_while_it_runs(folder: &Path) {
    let mut command = parts().cutape(&[
        &"check",
        &"--driver",
        &"null",
        &"--",
        &ending(),
        &"misuse",
        &"200",
    ]);
    let mut checker = command
        .current_dir(folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let (sender, lines) = mpsc::channel();
    let output = BufReader::new(checker.stdout.take().unwrap());
    let reader = thread::spawn(move || {
        for line in output.lines().map_while(Result::ok) {
            if sender.send((Instant::now(), line)).is_err() {
                break;
            }
        }
    });
    let next = |what: &str| loop {
        let (time, line) = lines
            .recv_timeout(Duration::from_secs(60))
            .unwrap_or_else(|_| panic!("waited in vain: {what}"));
        if line.contains(what) {
            return time;
        }
    };
    let begun = next("begun");
    let found = next("error[memory-double-free]");
    // Findings come within a second; the machine may be busy.
    assert!(
        found - begun < Duration::from_secs(10),
        "{:?}",
        found - begun
    );
    let before = anonymous_memory(checker.id());
    thread::sleep(Duration::from_secs(3));
    let after = anonymous_memory(checker.id());
    send("TERM", checker.id());
    let status = checker.wait().unwrap();
    // Thousands of findings are counted, not kept.
    next("repeated");
    reader.join().unwrap();
    assert!(
        after < before + (16 << 10),
        "{before} KiB, then {after} KiB"
    );
    assert!(status.code().is_some(), "{status}");
}
