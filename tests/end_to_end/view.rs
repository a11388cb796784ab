//! The terminal browser as a user has it, through a pseudo-terminal.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use cutape_tests::{Screen, compile, compiled, parts, record, root, run, without_settings};

cutape_tests::tests![
    calls_findings_and_back,
    a_growing_trace_is_followed,
    signals_restore_the_terminal,
    it_needs_a_terminal,
    calls_that_match_nothing_are_refused,
    no_color_is_honoured,
    suspended_and_continued,
];

/// More time than any step needs.
const LIMIT: Duration = Duration::from_secs(60);

fn view(trace: &Path) -> Screen {
    Screen::start(parts().cutape(&[&"view", &trace]), (24, 80))
}

/// A trace of a program that frees memory twice.
fn recorded(folder: &Path) -> PathBuf {
    let trace = folder.join("app.cutape");
    let program = compiled("misuse/double-free/violation");
    run(&mut record(&trace, &[], &[&program])).assert_quiet();
    trace
}

fn calls_findings_and_back(folder: &Path) {
    let mut screen = view(&recorded(folder));
    screen.shows(&["app.cutape", "[1 Calls]", "cuInit", "? help"]);
    screen.press("fcuMem*\r");
    screen.shows(&["of cuMem*", "cuMemFree_v2"]);
    screen.press("\x1b");
    screen.shows(&["cuInit"]);
    screen.press("2");
    screen.shows(&["[2 Findings", "error"]);
    screen.press("\r");
    screen.shows(&["[1 Calls]", "cuMemFree_v2 returned", "of thread 0"]);
    // To the memory, and to the call that allocated it.
    screen.press("\t\r");
    screen.shows(&["uses of memory", "created by call"]);
    screen.press("\r");
    screen.shows(&["cuMemAlloc_v2 returned"]);
    screen.press("bbb");
    screen.shows(&["[2 Findings"]);
    screen.press("?");
    screen.shows(&["next call that failed"]);
    screen.press("qq");
    screen.ends(0);
}

fn a_growing_trace_is_followed(folder: &Path) {
    let trace = folder.join("wait.cutape");
    let program = folder.join("marks");
    let driver = parts().driver_folder.join("libcuda.so.1");
    let source = root().join("tests/programs/markers/marks.c");
    compile(&source, &program, &[&driver, &"-pthread"]);
    let mut recording = record(&trace, &[], &[program.to_str().unwrap(), "wait"]);
    let recording = without_settings(&mut recording);
    let mut recording = recording
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut printed = BufReader::new(recording.stdout.take().unwrap());
    let mut line = String::new();
    printed.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    let mut screen = view(&trace);
    screen.shows(&["recording, ", "cuInit"]);
    screen.press("F");
    screen.shows(&["recording, following, "]);
    drop(recording.stdin.take());
    assert!(recording.wait().unwrap().success());
    screen.shows(&["the recording has ended after"]);
    let calls = cutape_format::Trace::open(&trace).unwrap().calls().count();
    screen.shows(&[&format!(" {calls} calls ")]);
    screen.press("q");
    screen.ends(0);
}

fn signals_restore_the_terminal(folder: &Path) {
    let trace = recorded(folder);
    for signal in [libc::SIGTERM, libc::SIGHUP, libc::SIGINT] {
        let screen = view(&trace);
        screen.shows(&["cuInit"]);
        // SAFETY: no memory is involved; the process is our own child.
        unsafe { libc::kill(screen.process() as i32, signal) };
        screen.ends(128 + signal);
    }
    // Ctrl-C is a key there.
    let mut screen = view(&trace);
    screen.shows(&["cuInit"]);
    screen.press("\x03");
    screen.ends(0);
}

fn it_needs_a_terminal(folder: &Path) {
    let trace = recorded(folder);
    let output = run(&mut parts().cutape(&[&"view", &trace]));
    output.assert_code(2);
    assert!(
        output.stderr.contains("view needs a terminal"),
        "{}",
        output.stderr
    );
    assert!(output.stderr.contains("cutape dump"), "{}", output.stderr);
}

fn calls_that_match_nothing_are_refused(folder: &Path) {
    let trace = recorded(folder);
    let command = parts().cutape(&[&"view", &trace, &"--calls", &"kernel:nosuch"]);
    let screen = Screen::start(command, (24, 80));
    screen.shows(&["--calls kernel:nosuch: no call matches"]);
    screen.ends(2);
}

fn no_color_is_honoured(folder: &Path) {
    let trace = recorded(folder);
    let coloured = b"\x1b[38;5;1";
    for (name, option, has_colours) in [
        ("X", "--color=auto", true),
        ("NO_COLOR", "--color=auto", false),
        ("NO_COLOR", "--color=always", true),
        ("X", "--color=never", false),
        ("X", "--no-color", false),
    ] {
        let mut command = parts().cutape(&[&"view", &trace, &option]);
        command.env(name, "1");
        let mut screen = Screen::start(command, (24, 80));
        screen.shows(&["cuInit"]);
        screen.press("2");
        screen.shows(&["error"]);
        screen.press("q");
        let written = screen.written();
        screen.ends(0);
        let written = written.lock().unwrap();
        let found = written.windows(coloured.len()).any(|part| part == coloured)
            || written.windows(5).any(|part| part == b"\x1b[31m");
        assert_eq!(found, has_colours, "{name} {option}");
    }
}

fn suspended_and_continued(folder: &Path) {
    let mut screen = view(&recorded(folder));
    screen.shows(&["cuInit"]);
    screen.press("\x1a");
    let start = Instant::now();
    while !screen.is_restored() {
        assert!(
            start.elapsed() < LIMIT,
            "not suspended:\n{}",
            screen.contents()
        );
        thread::sleep(Duration::from_millis(10));
    }
    // As a shell does it. The process may not have stopped yet.
    while !screen.contents().contains("cuInit") || screen.is_restored() {
        assert!(
            start.elapsed() < LIMIT,
            "not continued:\n{}",
            screen.contents()
        );
        // SAFETY: no memory is involved; the process is our own child.
        unsafe { libc::kill(screen.process() as i32, libc::SIGCONT) };
        thread::sleep(Duration::from_millis(50));
    }
    screen.press("q");
    screen.ends(0);
}
