//! Traces that a program is being recorded to at full rate: every read is of one moment.
//!
//! `CUTAPE_TESTS_READS` asks for more reads than the few by default: 1,000 were all consistent, in
//! 841 s on two busy cores (debug build, null driver, 2026-11-25).

use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use cutape_format::Trace;
use cutape_tests::{Suite, compile, parts, record, root, run, without_settings};

/// How long one trace grows: reads of a long one take long.
const GROWS: Duration = Duration::from_millis(400);
const THREADS: usize = 3;
/// Every so many reads is by a verb.
const BY_VERB: usize = 6;
const VERBS: [&[&str]; 5] = [
    &["info", "--format", "json"],
    &["check"],
    &["dump", "--calls", "0..50"],
    &[
        "replay",
        "--driver",
        "null",
        "--keep-going",
        "--until",
        "2000",
    ],
    &["diff"],
];

pub(crate) fn add_to(suite: &mut Suite) {
    suite.test("every-read-is-whole", every_read_is_whole);
}

/// A recording that is ended with its standard input.
struct Recording(Child);

impl Recording {
    fn start(trace: &Path, program: &Path) -> Self {
        let mut command = record(trace, &["--no-pack"], &[program.to_str().unwrap()]);
        let command = without_settings(&mut command).stdin(Stdio::piped());
        let child = command.stdout(Stdio::null()).spawn().unwrap();
        let start = Instant::now();
        while !Trace::open(trace).is_ok_and(|trace| trace.calls().count() > 100) {
            assert!(
                start.elapsed() < Duration::from_secs(60),
                "nothing is recorded"
            );
        }
        Self(child)
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// The calls of all threads without a gap, and without a LEAVE at most the last of each; how many.
fn read(path: &Path) -> Result<usize, String> {
    let trace = Trace::open(path).map_err(|error| error.to_string())?;
    if let Some(damage) = trace.verify().first() {
        return Err(format!("{damage:?}"));
    }
    if !trace.is_still_recorded() {
        return Err("taken for complete".to_owned());
    }
    let mut threads = [(0, false); THREADS + 1];
    let (mut count, mut last) = (0, 0);
    for call in trace.calls() {
        let (number, is_open) = &mut threads[call.thread as usize];
        if call.number != *number || *is_open || call.ticks < last {
            return Err(format!("call {} of thread {}", call.index, call.thread));
        }
        (*number, *is_open, last) = (*number + 1, call.leave.is_none(), call.ticks);
        count += 1;
    }
    Ok(count)
}

/// A verb succeeds, and says nothing but that the program is still running.
fn read_by_verb(verb: &[&str], path: &Path) -> Result<(), String> {
    let mut command = parts().cutape(&[]);
    command.args(verb).arg(path);
    if verb[0] == "diff" {
        command.arg(path);
    }
    let output = run(&mut command);
    let is_expected =
        |line: &str| line.ends_with(": still recording; this is the trace as it is now");
    // Two reads of a growing trace differ.
    let is_sound = output.code() == Some(0) || verb[0] == "diff" && output.code() == Some(1);
    match is_sound && !output.stderr.is_empty() && output.stderr.lines().all(is_expected) {
        true => Ok(()),
        false => Err(output.describe()),
    }
}

fn every_read_is_whole(folder: &Path) -> Result<(), String> {
    let asked = std::env::var("CUTAPE_TESTS_READS").ok();
    let reads = asked.and_then(|text| text.parse().ok()).unwrap_or(30);
    let program = folder.join("loop");
    let driver = parts().driver_folder.join("libcuda.so.1");
    let source = root().join("tests/programs/growing/loop.c");
    compile(&source, &program, &[&driver, &"-pthread"]);
    let (mut done, mut most) = (0, 0);
    for number in 0.. {
        if done >= reads {
            break;
        }
        let trace = folder.join(format!("{number}.cutape"));
        let recording = Recording::start(&trace, &program);
        let start = Instant::now();
        while done < reads && start.elapsed() < GROWS {
            match done % BY_VERB {
                0 => read_by_verb(VERBS[done / BY_VERB % VERBS.len()], &trace)?,
                _ => most = most.max(read(&trace).map_err(|why| format!("read {done}: {why}"))?),
            }
            done += 1;
        }
        drop(recording);
        std::fs::remove_file(&trace).map_err(|error| error.to_string())?;
    }
    match most > 1000 {
        true => Ok(()),
        false => Err(format!("the traces had {most} calls at most")),
    }
}
