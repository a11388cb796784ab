//! Recording where the disk is full: the program runs on.

use std::fs;
use std::path::Path;
use std::process::Command;

use cutape_format::Trace;
use cutape_tests::{Output, Suite, Verdict, ending, parts, run};

pub(crate) fn add_to(suite: &mut Suite) {
    suite
        .test("full-disk/file-size-limit", file_size_limit)
        .test("full-disk/every-verb", every_verb_says_it)
        .test("full-disk/folder-vanishes", trace_folder_vanishes)
        .test("full-disk/file-system", full_file_system);
}

/// A program whose trace cannot be written runs to its end; lines on stderr report that there is
/// little space, and that the trace ends early.
fn expect_unharmed(output: &Output, trace: &Path) -> Result<(), String> {
    output.expect_code(3)?;
    let lines: Vec<_> = output.stderr.lines().collect();
    if lines.is_empty() || lines.len() > 3 || output.stderr.contains("panicked") {
        return Err(format!(
            "expected up to three lines on stderr\n{}",
            output.describe()
        ));
    }
    if output.stdout != "begun\n" {
        return Err(format!(
            "the program's output differs\n{}",
            output.describe()
        ));
    }
    // The part that was written can be read.
    if trace.exists() {
        let trace =
            Trace::open(trace).map_err(|error| format!("{error}\n{}", output.describe()))?;
        if let Some(damage) = trace.verify().first() {
            return Err(format!("{damage:?}\n{}", output.describe()));
        }
    }
    Ok(())
}

/// A limit on the size of files acts like a full disk, and raises SIGXFSZ.
fn file_size_limit(folder: &Path) -> Result<(), String> {
    let program = ending();
    // In KiB: nothing, less than the first chunk, a few chunks.
    for blocks in ["0", "64", "1500", "4000"] {
        let trace = folder.join(format!("{blocks}.cutape"));
        let line = r#"ulimit -f "$0"; exec "$@""#;
        let mut command = Command::new("bash");
        command.args(["-c", line, blocks]).arg(&parts().cutape);
        command
            .args(["record", "--driver", "null", "--no-pack", "-o"])
            .arg(&trace);
        // More calls than fit: each takes about 40 bytes.
        command.arg("--").arg(&program).args(["exit", "200000"]);
        let output = run(&mut command);
        expect_unharmed(&output, &trace).map_err(|error| format!("{blocks} KiB: {error}"))?;
    }
    Ok(())
}

/// What `record` with a limit on the size of files leaves.
fn cut_trace(trace: &Path) -> Output {
    let mut command = Command::new("bash");
    command.args(["-c", r#"ulimit -f 600; exec "$@""#, "bash"]);
    command.arg(&parts().cutape);
    command.args(["record", "--driver", "null", "--no-pack", "-o"]);
    command.arg(trace).arg("--");
    run(command.arg(ending()).args(["exit", "200000"]))
}

/// What every verb says of a recording that ended early, in words and statuses.
const SAID: &str = "the recording ended early, later calls are missing: the trace could not grow: \
                    File too large (os error 27)";

/// A command, its status, and what it prints. `OUT` is new for each command; with `--format json`
/// or the like, a part of that.
const VERBS: &[(&str, i32, &str)] = &[
    ("info TRACE", 0, ""),
    (
        "info TRACE --format json",
        0,
        "\"ended_early\": \"the trace could not grow",
    ),
    ("info FOLDER", 0, ""),
    (
        "info FOLDER --format json",
        0,
        "\"ended_early\": \"the trace could not grow",
    ),
    ("dump TRACE --calls 0..3", 0, ""),
    (
        "dump TRACE --calls 0..3 --format json",
        0,
        "{\"ended_early\":\"the trace could not grow",
    ),
    ("check TRACE", 2, "no findings"),
    ("check TRACE --allow-incomplete", 0, "no findings"),
    ("check FOLDER", 2, "no findings"),
    (
        "check TRACE --format json",
        2,
        "\"ended_early\": \"the trace could not grow",
    ),
    (
        "check TRACE --format sarif",
        2,
        "\"executionSuccessful\": false",
    ),
    ("check TRACE --format junit", 2, "errors=\"1\""),
    (
        "check TRACE --format junit --allow-incomplete",
        0,
        "skipped=\"1\" errors=\"0\"",
    ),
    ("replay --driver null TRACE", 2, "no divergence"),
    (
        "replay --driver null TRACE --allow-incomplete",
        0,
        "no divergence",
    ),
    (
        "replay --driver null TRACE --format json",
        2,
        "\"ended_early\": \"the trace could not grow",
    ),
    (
        "replay --driver null TRACE --format junit",
        2,
        "errors=\"1\"",
    ),
    (
        "replay --driver null FOLDER",
        2,
        "1 ranks: the recording of cut.cutape ended early",
    ),
    (
        "replay --driver null FOLDER --allow-incomplete",
        0,
        "ended early",
    ),
    (
        "replay --driver null FOLDER --format json",
        2,
        "\"ended_early\": \"the trace could not grow",
    ),
    ("diff TRACE TRACE", 0, ""),
    (
        "diff TRACE TRACE --format json",
        0,
        "\"ended_early\": \"the trace could not grow",
    ),
    ("report TRACE -o OUT", 0, ""),
    ("export --format jsonl TRACE -o OUT", 0, ""),
    ("trim --last 1 TRACE -o OUT", 0, ""),
    ("pack TRACE -o OUT", 0, ""),
    ("repair TRACE -o OUT", 0, ""),
];

fn every_verb_says_it(folder: &Path) -> Result<(), String> {
    let cut = folder.join("cut");
    fs::create_dir(&cut).map_err(|error| error.to_string())?;
    let recorded = cut_trace(&cut.join("cut.cutape"));
    if !recorded.stderr.contains(SAID) {
        return Err(recorded.describe());
    }
    // The same of a packed trace.
    let packed = folder.join("packed");
    fs::create_dir(&packed).map_err(|error| error.to_string())?;
    let mut pack = parts().cutape(&[&"pack", &cut.join("cut.cutape"), &"-o"]);
    run(pack.arg(packed.join("cut.cutape"))).expect_code(0)?;
    for (kind, traces) in [("raw", &cut), ("packed", &packed)] {
        // A replay takes long, and reads both in the same way.
        let is_tried = |words: &str| kind == "raw" || !words.starts_with("replay");
        for (number, &(words, status, printed)) in VERBS.iter().enumerate() {
            if !is_tried(words) {
                continue;
            }
            let trace = traces.join("cut.cutape");
            let new = folder.join(format!("{kind}{number}"));
            let mut command = parts().cutape(&[]);
            command.args(words.split(' ').map(|word| match word {
                "TRACE" => trace.as_os_str(),
                "FOLDER" => traces.as_os_str(),
                "OUT" => new.as_os_str(),
                word => word.as_ref(),
            }));
            let output = run(&mut command);
            output.expect_code(status)?;
            let is_said = output
                .stderr
                .lines()
                .next()
                .is_some_and(|line| line.ends_with(SAID));
            if !is_said || !output.stdout.contains(printed) {
                return Err(format!("{words}\n{}", output.describe()));
            }
            if words.starts_with("export") {
                let rows = fs::read_to_string(&new).map_err(|error| error.to_string())?;
                if !rows.contains("\"ended_early\":\"the trace could not grow") {
                    return Err(format!("{words}: no column ended_early"));
                }
            }
        }
    }
    let program = [
        "check",
        "--driver",
        "null",
        "--",
        &ending(),
        "exit",
        "200000",
    ];
    let line = r#"ulimit -f 600; exec "$@""#;
    let mut command = Command::new("bash");
    command.args(["-c", line, "bash"]).arg(&parts().cutape);
    let output = run(command.args(program));
    output.expect_code(2)?;
    match output.stderr.contains(SAID) {
        true => Ok(()),
        false => Err(output.describe()),
    }
}

/// The folder for the trace is removed before the first driver call.
fn trace_folder_vanishes(folder: &Path) -> Result<(), String> {
    let place = folder.join("place");
    fs::create_dir(&place).map_err(|error| error.to_string())?;
    let trace = place.join("t.cutape");
    let mut command = parts().cutape(&[&"record", &"--driver", &"null", &"-o", &trace, &"--"]);
    command
        .args(["sh", "-c", r#"rmdir "$0" && exec "$@""#])
        .arg(&place);
    command.arg(ending()).args(["exit", "10"]);
    expect_unharmed(&run(&mut command), &trace)
}

fn can_mount() -> bool {
    // In a mount namespace of its own, so that nothing is left mounted.
    run(Command::new("unshare").args(["--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"])).code()
        == Some(0)
}

fn full_file_system(folder: &Path) -> Result<Verdict, String> {
    if !can_mount() {
        return Ok(Verdict::Ignored(
            "no right to mount a file system".to_owned(),
        ));
    }
    let place = folder.join("small");
    fs::create_dir(&place).map_err(|error| error.to_string())?;
    let program = ending();
    // Space for the file head; for some chunks.
    for size in ["16k", "3m"] {
        let kept = folder.join(format!("{size}.cutape"));
        let script = r#"mount -t tmpfs -o size="$1" tmpfs "$2" || exit 99
            "$3" record --driver null --no-pack -o "$2/t.cutape" -- "$4" exit 200000; status=$?
            [ ! -e "$2/t.cutape" ] || cp "$2/t.cutape" "$5"; exit $status"#;
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "sh", "-c", script, "sh", size])
            .arg(&place);
        command.arg(&parts().cutape).arg(&program).arg(&kept);
        expect_unharmed(&run(&mut command), &kept).map_err(|error| format!("{size}: {error}"))?;
    }
    Ok(Verdict::Passed)
}
