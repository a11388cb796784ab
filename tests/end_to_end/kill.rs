//! Programs that die, are stopped, or get errors: what had been called is in the trace.

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use cutape_format::Trace;
use cutape_tests::{endings, parts, programs, read_findings, run};

fn compiled(name: &str) -> String {
    let all = programs().unwrap();
    let program = all.iter().find(|program| program.name == name).unwrap();
    program
        .compile(parts())
        .unwrap()
        .into_os_string()
        .into_string()
        .unwrap()
}

fn record(trace: &Path, options: &[&str], setting: (&str, &str), command: &[&str]) -> Command {
    let mut record = parts().cutape(&[&"record", &"--driver", &"null", &"-o", &trace]);
    record
        .args(options)
        .arg("--")
        .args(command)
        .env(setting.0, setting.1);
    record
}

/// Every call's name and result.
fn calls(trace: &Trace) -> Vec<(String, Option<i32>)> {
    trace
        .calls()
        .map(|call| (call.signature.name.clone(), call.result()))
        .collect()
}

#[test]
fn a_killed_program_leaves_all_its_calls() {
    let folder = parts().new_folder("killed");
    let program = endings(parts())
        .unwrap()
        .into_os_string()
        .into_string()
        .unwrap();
    for packing in [&["--no-pack"][..], &[]] {
        let path = folder.join(format!("t{}.cutape", packing.concat()));
        let none = ("CUTAPE_NULL_FAIL", "");
        let output = run(&mut record(
            &path,
            packing,
            none,
            &[&program, "kill", "5000"],
        ));
        output.assert(137);
        let trace = Trace::open(&path).unwrap();
        assert!(trace.verify().is_empty());
        let all = calls(&trace);
        let synchronised = all.iter().filter(|(name, _)| name == "cuCtxSynchronize");
        assert_eq!(synchronised.count(), 5000);
        assert!(
            all.iter().all(|(_, result)| *result == Some(0)),
            "{packing:?}"
        );
    }
}

#[test]
fn a_program_killed_inside_a_call_shows_that_call_last() {
    let folder = parts().new_folder("killed-inside");
    let path = folder.join("t.cutape");
    // The driver sleeps in the third launch; the program is ended there, as is all that it runs under.
    let delay = ("CUTAPE_NULL_DELAY", "cuLaunchKernel@3=600s");
    let mut command = record(
        &path,
        &["--no-pack"],
        delay,
        &[&compiled("clean/launch_thousand")],
    );
    command
        .env_remove("LD_PRELOAD")
        .stdout(std::process::Stdio::null());
    let mut child = command.spawn().unwrap();
    let launches = || {
        let trace = Trace::open_damaged(&path).ok()?;
        let all = calls(&trace);
        Some(
            all.iter()
                .filter(|(name, _)| name == "cuLaunchKernel")
                .count(),
        )
    };
    let start = Instant::now();
    while launches() != Some(3) && start.elapsed() < Duration::from_secs(30) {
        thread::sleep(Duration::from_millis(20));
    }
    // The recorded process is the recorder's only child.
    let recorder = child.id().to_string();
    let inner = std::fs::read_to_string(format!("/proc/{recorder}/task/{recorder}/children"));
    let inner = inner.unwrap();
    for process in [recorder.as_str(), inner.trim()] {
        run(Command::new("kill").args(["-KILL", process])).assert(0);
    }
    child.wait().unwrap();
    thread::sleep(Duration::from_millis(50));
    let trace = Trace::open(&path).unwrap();
    let all = calls(&trace);
    let (last, before) = all.split_last().unwrap();
    assert_eq!(*last, ("cuLaunchKernel".to_owned(), None));
    assert!(before.iter().all(|(_, result)| result.is_some()));
    assert_eq!(
        before
            .iter()
            .filter(|(name, _)| name == "cuLaunchKernel")
            .count(),
        2
    );
}

#[test]
fn a_crash_inside_the_driver_is_explained() {
    let folder = parts().new_folder("crash");
    let path = folder.join("t.cutape");
    let crash = ("CUTAPE_NULL_CRASH", "cuLaunchKernel@1");
    run(&mut record(
        &path,
        &[],
        crash,
        &[&compiled("clean/launch_struct")],
    ))
    .assert(139);
    let trace = Trace::open(&path).unwrap();
    let all = calls(&trace);
    let in_flight: Vec<_> = all.iter().filter(|(_, result)| result.is_none()).collect();
    assert_eq!(in_flight, [&("cuLaunchKernel".to_owned(), None)]);
    assert_eq!(
        all.last().map(|(name, _)| name.as_str()),
        Some("cuLaunchKernel")
    );
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

    // A crash without misuse is said, and blamed on nothing that the program did.
    let check = run(&mut parts().cutape(&[&"check", &path]));
    let said = format!("{}{}", check.stdout, check.stderr);
    assert!(
        said.contains("cuLaunchKernel") && said.contains("did not return"),
        "{}",
        check.describe()
    );
    let check = run(&mut parts().cutape(&[&"check", &"--format", &"json", &path]));
    let findings = read_findings(&check.stdout).unwrap();
    assert!(
        findings.iter().all(|finding| finding.severity != "error"),
        "{findings:#?}"
    );

    // Nothing crashes the replay: it stops before that call and says so.
    let replay = run(&mut parts().cutape(&[&"replay", &"--driver", &"null", &path]));
    assert!(
        matches!(replay.code(), Some(0 | 1)),
        "{}",
        replay.describe()
    );
    assert!(
        format!("{}{}", replay.stdout, replay.stderr).contains("cuLaunchKernel"),
        "{}",
        replay.describe()
    );
}

#[test]
fn errors_of_the_driver_are_recorded_and_replayed() {
    let folder = parts().new_folder("errors");
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
        // Without a driver that starts, nothing can be replayed.
        let same = if name == "cuInit" { 2 } else { 0 };
        let path = folder.join(format!("{name}.cutape"));
        let setting = ("CUTAPE_NULL_FAIL", fault);
        let output = run(&mut record(&path, &[], setting, &[&compiled(program)]));
        output.assert_code(1);
        assert!(output.stderr.contains("gave"), "{}", output.describe());
        let trace = Trace::open(&path).unwrap();
        let failed = calls(&trace);
        assert!(
            failed.contains(&(name.to_owned(), Some(code))),
            "{fault}: {failed:?}"
        );

        // The same driver answers the same.
        let mut replay = parts().cutape(&[&"replay", &"--driver", &"null", &path]);
        let output = run(replay.env(setting.0, setting.1));
        output.assert_code(same);
        // One without the fault does not, and that is told by name.
        let output = run(&mut parts().cutape(&[&"replay", &"--driver", &"null", &path]));
        output.assert_code(1);
        let said = format!("{}{}", output.stdout, output.stderr);
        let base = fault.split(['@', '=']).next().unwrap();
        assert!(said.contains(base), "{}", output.describe());
    }
}

#[test]
fn a_signal_to_the_recorder_reaches_the_program() {
    let folder = parts().new_folder("signal");
    let path = folder.join("t.cutape");
    let program = endings(parts())
        .unwrap()
        .into_os_string()
        .into_string()
        .unwrap();
    let mut command = record(
        &path,
        &[],
        ("CUTAPE_NULL_FAIL", ""),
        &[&program, "pause", "7"],
    );
    let log = folder.join("stdout");
    let mut child = command
        .stdout(std::fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let start = Instant::now();
    while !std::fs::read_to_string(&log)
        .unwrap_or_default()
        .contains("waiting")
        && start.elapsed() < Duration::from_secs(30)
    {
        thread::sleep(Duration::from_millis(20));
    }
    run(Command::new("kill").args(["-TERM", &child.id().to_string()])).assert(0);
    assert_eq!(child.wait().unwrap().code(), Some(128 + libc::SIGTERM));
    let trace = Trace::open(&path).unwrap();
    let count = calls(&trace)
        .iter()
        .filter(|(name, _)| name == "cuCtxSynchronize")
        .count();
    assert_eq!(count, 7);
    assert_eq!(trace.meta_value("exit.signal"), Some("15"));
}

/// The only child of a process, if it still runs.
fn child_of(process: u32) -> Option<u32> {
    let children = std::fs::read_to_string(format!("/proc/{process}/task/{process}/children"));
    let child = children.ok()?.trim().parse().ok()?;
    runs(child).then_some(child)
}

fn runs(process: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let state = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .trim()
        .chars()
        .next();
    state.is_some_and(|state| state != 'Z')
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(60), "{what}");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_recorder_that_is_gone_or_stands_still_costs_no_call() {
    const CALLS: usize = 300_000;
    let folder = parts().new_folder("recorder-gone");
    let program = endings(parts())
        .unwrap()
        .into_os_string()
        .into_string()
        .unwrap();
    for signal in ["KILL", "STOP"] {
        let path = folder.join(format!("{signal}.cutape"));
        let words = [&program, "end", &CALLS.to_string()];
        let none = ("CUTAPE_NULL_FAIL", "");
        let mut command = record(&path, &["--no-pack"], none, &words);
        let mut recorder = command.stdout(std::process::Stdio::null()).spawn().unwrap();
        let length = || path.metadata().map_or(0, |metadata| metadata.len());
        // By then the recorder moves what is full.
        wait_until("the trace does not grow", || length() > 1 << 20);
        let inner = child_of(recorder.id()).expect("the program runs");
        let send = |signal: &str| {
            run(Command::new("kill").args([&format!("-{signal}"), &recorder.id().to_string()]))
                .assert(0);
        };
        send(signal);
        let at_once = length();
        wait_until("the program does not end", || !runs(inner));
        if signal == "STOP" {
            send("CONT");
            assert!(recorder.wait().unwrap().success());
        } else {
            recorder.wait().unwrap();
        }
        let trace = Trace::open(&path).unwrap();
        assert_eq!(trace.verify(), [], "{signal}");
        let all = calls(&trace);
        let synchronised = all.iter().filter(|(name, _)| name == "cuCtxSynchronize");
        assert_eq!(synchronised.count(), CALLS, "{signal}");
        assert!(length() > at_once, "{signal}: it came too late");
    }
}
