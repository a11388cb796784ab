//! What ends cutape in the middle of its work: a signal, a limit on the size of files, a trace that
//! another program truncates. Nothing incomplete is left.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use cutape_tests::{Suite, ending, parts, record, run};

use super::files::sound;
use super::streams::commands;

pub(crate) fn add_to(suite: &mut Suite) {
    suite
        .test("ends-early/truncated-trace", truncated_trace)
        .test("ends-early/file-size-limit", file_size_limit)
        .test("ends-early/killed-recorder", killed_recorder);
    for words in INTERRUPTED {
        let verb = words.split(' ').next().unwrap_or_default();
        suite.test(format!("ends-early/interrupted/{verb}"), |folder| {
            interrupted(folder, words)
        });
    }
}

/// An unpacked trace of many calls.
fn long_trace(folder: &Path) -> PathBuf {
    let trace = folder.join("long.cutape");
    let mut command = record(&trace, &["--no-pack"], &[&ending(), "exit", "200000"]);
    run(&mut command).assert_code(3);
    trace
}

/// `dump` waits until its output is read, and finds the trace truncated.
fn truncated_trace(folder: &Path) -> Result<(), String> {
    let trace = long_trace(folder);
    let mut command = parts().cutape(&[&"dump", &trace]);
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    let mut some = [0; 1000];
    let mut stdout = child.stdout.take().expect("a pipe");
    stdout
        .read_exact(&mut some)
        .map_err(|error| error.to_string())?;
    let file = File::options().write(true).open(&trace);
    file.and_then(|file| file.set_len(20_000))
        .map_err(|error| error.to_string())?;
    let mut rest = Vec::new();
    stdout
        .read_to_end(&mut rest)
        .map_err(|error| error.to_string())?;
    let output = child
        .wait_with_output()
        .map_err(|error| error.to_string())?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    let expected = format!(
        "cutape: {}: another program has truncated it while it was read",
        trace.display()
    );
    match (output.status.code(), stderr.trim_end() == expected) {
        (Some(2), true) => Ok(()),
        (code, _) => Err(format!("{:?} {code:?}: {stderr}", output.status)),
    }
}

/// Verbs that write for a while.
const INTERRUPTED: &[&str] = &[
    "pack long.cutape -o OUT",
    "repair long.cutape -o OUT",
    "trim --calls 0..100000 long.cutape -o OUT",
    "export --format jsonl long.cutape -o OUT",
    "report long.cutape -o OUT",
];

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

fn interrupted(folder: &Path, words: &str) -> Result<(), String> {
    long_trace(folder);
    let before = names(folder);
    let mut command = parts().cutape(&[]);
    let words = words.split(' ').map(|word| match word {
        "OUT" => "new",
        word => word,
    });
    command
        .args(words)
        .current_dir(folder)
        .stderr(Stdio::null());
    let mut child = command
        .stdout(Stdio::null())
        .spawn()
        .map_err(|error| error.to_string())?;
    let begun = Instant::now();
    while names(folder) == before && begun.elapsed() < Duration::from_secs(30) {
        thread::sleep(Duration::from_millis(1));
    }
    // SAFETY: the child has not been waited for, so the number is its own.
    unsafe { libc::kill(child.id() as i32, libc::SIGINT) };
    let status = child.wait().map_err(|error| error.to_string())?;
    let after = names(folder);
    match (status.code(), after == before) {
        (Some(130), true) => Ok(()),
        _ => Err(format!("{status:?}, in the folder: {after:?}")),
    }
}

/// A recorder that is killed leaves its folder; the next one removes it, once the program has ended.
fn killed_recorder(folder: &Path) -> Result<(), String> {
    let temporary = folder.join("tmp");
    fs::create_dir(&temporary).map_err(|error| error.to_string())?;
    let script = "exec >/dev/null 2>&1; kill -9 $PPID; while [ ! -e stop ]; do sleep 0.01; done; echo > stopped";
    let killed = folder.join("killed.cutape");
    let mut command = record(&killed, &[], &["setsid", "sh", "-c", script]);
    let output = run(command.env("TMPDIR", &temporary).current_dir(folder));
    let left = names(&temporary);
    let record_again = |name: &str| {
        let trace = folder.join(name);
        let mut command = record(&trace, &[], &[&ending(), "end"]);
        run(command.env("TMPDIR", &temporary)).assert_code(0);
        names(&temporary)
    };
    let while_used = record_again("first.cutape");
    fs::write(folder.join("stop"), "").map_err(|error| error.to_string())?;
    while !folder.join("stopped").exists() {
        thread::sleep(Duration::from_millis(1));
    }
    thread::sleep(Duration::from_millis(200));
    let after = record_again("second.cutape");
    match (left.len(), while_used == left, after.is_empty()) {
        (1, true, true) => Ok(()),
        _ => Err(format!(
            "{left:?} {while_used:?} {after:?}\n{}",
            output.describe()
        )),
    }
}

/// A limit on the size of files raises SIGXFSZ.
fn file_size_limit(folder: &Path) -> Result<(), String> {
    sound(folder);
    fs::copy(ending(), folder.join("program")).map_err(|error| error.to_string())?;
    for (number, line) in commands().iter().enumerate() {
        let new = format!("new{number}");
        let words = line.split(' ').map(|word| match word {
            "OUT" => &new,
            word => word,
        });
        let mut command = Command::new("bash");
        command.args(["-c", r#"ulimit -f 1; exec "$@""#, "bash"]);
        command.arg(&parts().cutape).args(words).current_dir(folder);
        let output = run(&mut command);
        let hidden: Vec<_> = names(folder)
            .into_iter()
            .filter(|name| name.starts_with('.'))
            .collect();
        let text = &output.stderr;
        if !matches!(output.code(), Some(0..=2)) || text.contains("panicked") || !hidden.is_empty()
        {
            return Err(format!("left: {hidden:?}\n{}", output.describe()));
        }
    }
    Ok(())
}
