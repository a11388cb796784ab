//! `record --keep-last`: recordings of which the last calls are kept, and that stay short.

use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use cutape_format::Trace;
use cutape_tests::{Suite, compile, files, parts, record, root, run, run_within, without_settings};

/// For how long something is awaited.
const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) fn add_to(suite: &mut Suite) {
    suite.test("stays-short", stays_short);
    suite.test("asked-for", |folder| {
        keeps(folder, "crash", b"", "asked for")
    });
    suite.test("mark", |folder| {
        keeps(folder, "mark:now", b"", "the mark now")
    });
    suite.test("error", |folder| {
        let reason = "cuMemAlloc_v2 returned CUDA_ERROR_OUT_OF_MEMORY";
        keeps(folder, "error:CUDA_ERROR_OUT_OF_MEMORY", b"e", reason)
    });
    suite.test("stall", |folder| {
        keeps(folder, "stall:1s", b"p", "no call for ")
    });
    suite.test("finding", finding);
    suite.test("signal", |folder| keeps(folder, "signal", b"", "SIGUSR2"));
    suite.test("signal-named", |folder| {
        keeps(folder, "signal:HUP", b"", "SIGHUP")
    });
    suite.test("budget", budget);
    suite.test("bounded", bounded);
    suite.test("killed", killed);
    suite.test("wrong-words", wrong_words);
}

/// A program that is recorded.
struct Recorded {
    child: Child,
    trace: PathBuf,
}

impl Recorded {
    /// Its threads rest for so many milliseconds after each round.
    fn start(folder: &Path, rest: &str, options: &[&str]) -> Self {
        let program = folder.join("loop");
        let driver = parts().driver_folder.join("libcuda.so.1");
        let source = root().join("tests/programs/growing/loop.c");
        compile(&source, &program, &[&driver, &"-pthread"]);
        let trace = folder.join("run.cutape");
        let mut command = record(&trace, options, &[program.to_str().unwrap(), rest]);
        let command = without_settings(&mut command).stdin(Stdio::piped());
        let errors = fs::File::create(folder.join("stderr")).unwrap();
        let command = command.stdout(Stdio::null()).stderr(errors);
        let child = command.spawn().unwrap();
        Self { child, trace }
    }

    fn say(&mut self, bytes: &[u8]) {
        self.child.stdin.as_mut().unwrap().write_all(bytes).unwrap();
    }

    /// Waits until something is so.
    fn wait_for(&self, what: &str, is_so: &dyn Fn() -> bool) -> Result<(), String> {
        let start = Instant::now();
        while !is_so() {
            if start.elapsed() > PATIENCE {
                return Err(format!("{what} did not happen: {}", self.errors()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Until calls have been erased from its trace.
    fn wait_for_erased(&self) -> Result<(), String> {
        let has_erased = || {
            let metadata = fs::metadata(&self.trace);
            metadata.is_ok_and(|it| it.blocks() * 512 + (128 << 10) < it.len())
        };
        self.wait_for("erasing", &has_erased)
    }

    fn errors(&self) -> String {
        fs::read_to_string(self.trace.with_file_name("stderr")).unwrap_or_default()
    }

    fn end(mut self) -> Result<String, String> {
        drop(self.child.stdin.take());
        let status = self.child.wait().unwrap();
        let errors = self.errors();
        match status.success() {
            true => Ok(errors),
            false => Err(format!("{status}: {errors}")),
        }
    }
}

/// The trace is whole, is checked without errors, and replays; how many calls it has.
fn is_whole(path: &Path) -> Result<u64, String> {
    let trace = Trace::open(path).map_err(|error| error.to_string())?;
    if let Some(damage) = trace.verify().first() {
        return Err(format!("{}: {damage:?}", path.display()));
    }
    let check = run(&mut parts().cutape(&[&"check", &path]));
    let replay = run(&mut parts().cutape(&[&"replay", &"--driver", &"null", &path]));
    // On a busy machine recording may have been paused, which they say on stderr.
    check.expect_code(0)?;
    replay.expect_code(0)?;
    Ok(trace.calls().count() as u64)
}

fn stays_short(folder: &Path) -> Result<(), String> {
    let recorded = Recorded::start(folder, "1", &["--keep-last", "256KiB"]);
    let path = recorded.trace.clone();
    recorded.wait_for_erased()?;
    // A second time: what was erased joins what is erased then.
    let length = || fs::metadata(&path).map_or(0, |metadata| metadata.len());
    let before = length();
    recorded.wait_for("growing", &|| length() > before + (1 << 20))?;
    recorded.wait_for_erased()?;
    recorded.end()?;
    let calls = is_whole(&path)?;
    let trace = Trace::open(&path).unwrap();
    let left_out = trace
        .calls()
        .flat_map(|call| call.notes().collect::<Vec<_>>());
    let left_out: u64 = left_out
        .map(|note| match note {
            cutape_format::Note::Gap(gap) => gap.calls,
            _ => 0,
        })
        .sum();
    match left_out > calls && trace.meta_value("kept.reason").is_some() {
        true => Ok(()),
        false => Err(format!("{calls} calls, {left_out} left out")),
    }
}

/// Something happens at which the last calls are kept while the program goes on.
fn keeps(folder: &Path, on: &str, said: &[u8], reason: &str) -> Result<(), String> {
    let mut recorded = Recorded::start(folder, "1", &["--keep-last", "2s", "--keep-on", on]);
    recorded.wait_for_erased()?;
    recorded.say(said);
    let process = Trace::follow(&recorded.trace)
        .unwrap()
        .head()
        .process
        .to_string();
    let kept = folder.join("run.keep1.cutape");
    if on == "crash" {
        run_within(&mut parts().cutape(&[&"ctl", &process, &"keep"]), PATIENCE).expect(0)?;
    } else if on.starts_with("signal") {
        let signal = match reason {
            "SIGHUP" => libc::SIGHUP,
            _ => libc::SIGUSR2,
        };
        // SAFETY: no memory is involved; the child has not been waited for.
        unsafe { libc::kill(recorded.child.id() as i32, signal) };
    } else if on.starts_with("mark") {
        run(&mut parts().cutape(&[&"mark", &"--pid", &process, &"now"])).expect(0)?;
    }
    let is_told = || recorded.errors().contains("run.keep1.cutape");
    recorded.wait_for("keeping", &is_told)?;
    let path = recorded.trace.clone();
    let errors = recorded.end()?;
    for path in [&kept, &path] {
        is_whole(path)?;
    }
    let trace = Trace::open(&kept).unwrap();
    let told = trace.meta_value("kept.reason").unwrap_or_default();
    match told.starts_with(reason) && errors.contains(reason) {
        true => Ok(()),
        false => Err(format!("{told}: {errors}")),
    }
}

/// A correct program is not kept; after a mistake it is, once, with the calls of the mistake.
fn finding(folder: &Path) -> Result<(), String> {
    let options = ["--keep-last", "2s", "--keep-on", "finding:memory-*,finding"];
    // The check is to keep up on a busy machine, too.
    let mut recorded = Recorded::start(folder, "20", &options);
    recorded.wait_for_erased()?;
    // Longer than what is kept: the check has lost nothing of what was erased.
    std::thread::sleep(Duration::from_secs(3));
    let kept = || {
        let files = files(folder);
        let names = files.iter().filter_map(|path| path.file_name()?.to_str());
        names.filter(|name| name.contains("keep")).count()
    };
    if kept() != 0 || !recorded.errors().is_empty() {
        return Err(format!("kept: {}", recorded.errors()));
    }
    let reason = "error[memory-double-free]: ";
    let start = Instant::now();
    recorded.say(b"f");
    recorded.wait_for("keeping", &|| {
        recorded.errors().contains("run.keep1.cutape")
    })?;
    let took = start.elapsed();
    // The same mistake.
    recorded.say(b"f");
    std::thread::sleep(Duration::from_secs(3));
    let errors = recorded.end()?;
    let path = folder.join("run.keep1.cutape");
    let trace = Trace::open(&path).map_err(|error| error.to_string())?;
    let told = trace.meta_value("kept.reason").unwrap_or_default();
    let check = run(&mut parts().cutape(&[&"check", &path]));
    check.expect_code(1)?;
    let is_found = check.stdout.matches("[memory-double-free]").count() == 1;
    // A busy machine has other work to do first.
    let is_soon = took < Duration::from_secs(20);
    match told.starts_with(reason) && errors.contains(reason) && is_found && is_soon {
        true if kept() == 1 => Ok(()),
        _ => Err(format!("{took:?} {told}: {errors}{}", check.describe())),
    }
}

fn budget(folder: &Path) -> Result<(), String> {
    let options = ["--keep-last", "2s", "--keep-budget", "1"];
    let recorded = Recorded::start(folder, "1", &options);
    recorded.wait_for_erased()?;
    let process = Trace::follow(&recorded.trace)
        .unwrap()
        .head()
        .process
        .to_string();
    for _ in 0..2 {
        run_within(&mut parts().cutape(&[&"ctl", &process, &"keep"]), PATIENCE).expect(0)?;
    }
    let errors = recorded.end()?;
    let traces = files(folder)
        .iter()
        .filter(|path| path.to_string_lossy().contains("keep"))
        .count();
    let is_told =
        errors.contains("--keep-budget 1 byte is spent") && errors.contains("1 trace not kept");
    match traces == 1 && is_told {
        true => Ok(()),
        false => Err(format!("{traces} traces: {errors}")),
    }
}

/// Threads that do nothing but create, use and destroy objects, as fast as they can: the trace stays
/// as short as it says, and what is left is whole.
fn bounded(folder: &Path) -> Result<(), String> {
    const KEPT: u64 = 4 << 20;
    let program = folder.join("every_object");
    let driver = parts().driver_folder.join("libcuda.so.1");
    let source = root().join("tests/programs/growing/every_object.c");
    compile(&source, &program, &[&driver, &"-pthread"]);
    let trace = folder.join("run.cutape");
    let program = [program.to_str().unwrap(), "6", "4"];
    let mut command = record(&trace, &["--keep-last", "4MiB"], &program);
    let command = without_settings(&mut command);
    let errors = fs::File::create(folder.join("stderr")).unwrap();
    let mut child = command
        .stdout(Stdio::null())
        .stderr(errors)
        .spawn()
        .unwrap();
    let (mut most, mut length) = (0, 0);
    while child.try_wait().unwrap().is_none() {
        // When the program has ended, what is left is written to another file.
        if let Ok(metadata) = fs::metadata(&trace) {
            most = most.max(metadata.blocks() * 512);
            length = length.max(metadata.len());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let errors = fs::read_to_string(folder.join("stderr")).unwrap();
    is_whole(&trace)?;
    // Chunks of a thread with calls that are needed, and what is allocated ahead, come on top.
    match most < 4 * KEPT + (16 << 20) && length > most {
        true => Ok(()),
        false => Err(format!("{most} of {length} bytes: {errors}")),
    }
}

/// The program dies: its trace has the last calls.
fn killed(folder: &Path) -> Result<(), String> {
    let mut recorded = Recorded::start(folder, "1", &["--keep-last", "256KiB"]);
    recorded.wait_for_erased()?;
    recorded.say(b"k");
    let path = recorded.trace.clone();
    let errors = recorded.end().unwrap_err();
    let trace = Trace::open(&path).map_err(|error| error.to_string())?;
    let told = trace.meta_value("kept.reason").unwrap_or_default();
    match told.contains("signal 6") && trace.verify().is_empty() && errors.contains("134") {
        true => Ok(()),
        false => Err(format!("{told}: {errors}")),
    }
}

fn wrong_words(folder: &Path) -> Result<(), String> {
    let trace = folder.join("a.cutape");
    for (options, expected) in [
        (&["--keep-last", "sixty"][..], "not a time such as 60s"),
        (&["--keep-last", "0s"], "not a time such as 60s"),
        (
            &["--keep-last", "1s", "--keep-on", "oom"],
            "not crash, error",
        ),
        (
            &["--keep-last", "1s", "--keep-on", "error:CUDA_NONE"],
            "CUDA_NONE is no error",
        ),
        (
            &[
                "--keep-last",
                "1s",
                "--keep-on",
                "finding:memory-doubel-free",
            ],
            "memory-double-free",
        ),
        (&["--keep-on", "crash"], "--keep-last"),
        (
            &["--keep-last", "1s", "--max-size", "1G"],
            "cannot be used with",
        ),
    ] {
        let mut command: Command = record(&trace, options, &["/bin/true"]);
        let output = run(without_settings(&mut command));
        output.expect_code(2)?;
        if !output.stderr.contains(expected) || trace.exists() {
            return Err(output.describe());
        }
    }
    Ok(())
}
