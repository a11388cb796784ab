//! Recording where the disk is full: the program runs on.

use std::fs;
use std::path::Path;
use std::process::Command;

use cutape_format::Trace;
use cutape_tests::{Output, Suite, Verdict, ending, parts, run};

pub(crate) fn add_to(suite: &mut Suite) {
    suite
        .test("full-disk/file-size-limit", file_size_limit)
        .test("full-disk/folder-vanishes", trace_folder_vanishes)
        .test("full-disk/file-system", full_file_system);
}

/// A program whose trace cannot be written runs to its end; a line on stderr reports that the trace
/// ends early.
fn expect_unharmed(output: &Output, trace: &Path) -> Result<(), String> {
    output.expect_code(3)?;
    let lines: Vec<_> = output.stderr.lines().collect();
    if lines.is_empty() || lines.len() > 2 || output.stderr.contains("panicked") {
        return Err(format!(
            "expected a line or two on stderr\n{}",
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
