//! Processes that outlive the program, and traces that are gone or were never created.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use cutape_format::Trace;
use cutape_tests::{Suite, calls_of, ending, record, run, without_settings};

pub(crate) fn add_to(suite: &mut Suite) {
    suite
        .test("late-background-child", late_child)
        .test("no-wrong-warning", no_wrong_warning);
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) -> Result<(), String> {
    let start = Instant::now();
    while !is_so() {
        if start.elapsed() > Duration::from_secs(60) {
            return Err(format!("waited in vain: {what}"));
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// A background process of a shell that starts the program after `record` has ended.
fn late_child(folder: &Path) -> Result<(), String> {
    let (trace, fifo, log) = (
        folder.join("late.cutape"),
        folder.join("fifo"),
        folder.join("log"),
    );
    let temporary = folder.join("temporary");
    fs::create_dir(&temporary).map_err(|error| error.to_string())?;
    run(Command::new("mkfifo").arg(&fifo)).expect(0)?;
    // In a session of its own: a test ends the processes of its command's group.
    let script = r#"setsid sh -c ': >"$3"; read line <"$1"; exec "$2" end 7' sh "$@" >"$4" 2>&1 &
        until [ -e "$3" ]; do sleep 0.01; done"#;
    let words = ["sh", "-c", script, "sh"];
    let mut command = record(&trace, &[], &words);
    command
        .arg(&fifo)
        .arg(ending())
        .arg(folder.join("has-begun"))
        .arg(&log)
        .env("TMPDIR", &temporary);
    let output = run(&mut command);
    let mut pipe = fs::File::options()
        .write(true)
        .open(&fifo)
        .map_err(|error| error.to_string())?;
    writeln!(pipe, "go").map_err(|error| error.to_string())?;
    drop(pipe);
    let printed = || fs::read_to_string(&log).unwrap_or_default();
    wait_until("the child's end", || {
        printed().contains("EXIT-SUCCESS") || printed().contains("rror")
    })?;
    output.expect_code(0)?;
    let expected = format!("still runs and will be recorded to {}", trace.display());
    if !output.stderr.contains(&expected) || output.stderr.lines().count() != 1 {
        return Err(output.describe());
    }
    if printed() != "begun\nEXIT-SUCCESS\n" {
        return Err(printed());
    }
    let opened = Trace::open(&trace).map_err(|error| error.to_string())?;
    if calls_of(&opened, "cuCtxSynchronize") != 7 {
        return Err("calls are missing".to_owned());
    }
    // The next recording removes what the child needed.
    let left = || fs::read_dir(&temporary).map_or(0, |entries| entries.flatten().count());
    if left() != 1 {
        return Err(format!("{} folders are left", left()));
    }
    wait_until("the end of the child's process", || {
        let next = folder.join("next.cutape");
        let mut next = record(&next, &["--overwrite"], &["true"]);
        run(next.env("TMPDIR", &temporary)).code() == Some(0) && left() == 0
    })
}

/// No line says that calls bypass cutape if they do not: the trace was deleted, or could not be
/// created.
fn no_wrong_warning(folder: &Path) -> Result<(), String> {
    // Long enough for two looks at the process.
    const LONG: Duration = Duration::from_millis(3500);
    // The trace exists once it has a length.
    let deletes = r#""$0" pause 3 & until [ -s "$1" ]; do :; done; sleep 0.1; rm "$1"; wait"#;
    let cannot_create = r#"ulimit -f 0; exec "$0" pause 3"#;
    let mut running = Vec::new();
    for (name, script, why) in [
        ("deleted", deletes, "was deleted while"),
        ("not-created", cannot_create, "File too large"),
    ] {
        let trace = folder.join(name).with_extension("cutape");
        let path = folder.join(name).with_extension("log");
        let log = fs::File::create(&path).map_err(|error| error.to_string())?;
        let mut command = record(&trace, &[], &["sh", "-c", script, &ending()]);
        command.arg(&trace).stderr(log).stdout(Stdio::null());
        let child = without_settings(&mut command).spawn();
        running.push((child.map_err(|error| error.to_string())?, path, why));
    }
    thread::sleep(LONG);
    for (mut child, log, why) in running {
        for process in descendants(child.id()) {
            run(Command::new("kill").arg(process.to_string()));
        }
        child.wait().map_err(|error| error.to_string())?;
        let lines = fs::read_to_string(log).map_err(|error| error.to_string())?;
        if !lines.contains(why) || lines.contains("bypass") || lines.contains("reached cutape") {
            return Err(lines);
        }
    }
    Ok(())
}

/// The descendants of a process, the youngest first.
fn descendants(process: u32) -> Vec<u32> {
    let mut all = vec![process];
    let mut next = 0;
    while let Some(process) = all.get(next) {
        let path = format!("/proc/{process}/task/{process}/children");
        let children = fs::read_to_string(path).unwrap_or_default();
        all.extend(children.split_whitespace().flat_map(str::parse::<u32>));
        next += 1;
    }
    all.reverse();
    all.pop();
    all
}
