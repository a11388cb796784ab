//! Bad input: status 2, one line on stderr that says what is wrong and where, no file changed, no
//! panic.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use cutape_format::layout::{FileHead, MAJOR, record_kind};
use cutape_format::{NewCall, Trace, TraceBuilder};
use cutape_tests::{Output, Suite, Verdict, ending, parts, record, run};

fn main() -> ExitCode {
    let mut suite = Suite::new();
    for bad in BAD_TRACES {
        for verb in READERS {
            let name = format!("{}/{}", bad.name, verb.name);
            suite.test(name, |folder| bad_trace(folder, bad, verb));
        }
    }
    for bad in BAD_COMMANDS {
        suite.test(format!("command/{}", bad.name), |folder| {
            bad_command(folder, bad)
        });
    }
    suite
        .test("full-disk/file-size-limit", file_size_limit)
        .test("full-disk/folder-vanishes", trace_folder_vanishes)
        .test("full-disk/file-system", full_file_system);
    suite.run()
}

/// One line on stderr with all the words, status 2, and nothing on stdout.
fn expect_refusal(output: &Output, words: &[&str]) -> Result<(), String> {
    output.expect_code(2)?;
    let line = output.stderr.trim_end();
    let complaint = match words.iter().find(|word| !line.contains(**word)) {
        _ if line.lines().count() != 1 => "expected one line on stderr".to_owned(),
        _ if line.contains("panicked") => "a panic".to_owned(),
        _ if !output.stdout.is_empty() => "expected nothing on stdout".to_owned(),
        Some(word) => format!("expected `{word}` on stderr"),
        None => return Ok(()),
    };
    Err(format!("{complaint}\n{}", output.describe()))
}

/// A verb that reads a trace.
struct Reader {
    name: &'static str,
    /// Words before the trace.
    before: &'static [&'static str],
    /// Words after it.
    after: &'static [&'static str],
    /// Whether it repairs damaged traces.
    repairs: bool,
}

const READERS: &[Reader] = &[
    Reader {
        name: "check",
        before: &["check"],
        after: &[],
        repairs: false,
    },
    Reader {
        name: "replay",
        before: &["replay", "--driver", "null"],
        after: &[],
        repairs: false,
    },
    Reader {
        name: "bench",
        before: &["bench", "--driver", "null"],
        after: &[],
        repairs: false,
    },
    Reader {
        name: "dump",
        before: &["dump"],
        after: &[],
        repairs: false,
    },
    Reader {
        name: "info",
        before: &["info"],
        after: &[],
        repairs: false,
    },
    Reader {
        name: "report",
        before: &["report"],
        after: &["-o", "new.cutape"],
        repairs: false,
    },
    Reader {
        name: "export-jsonl",
        before: &["export", "--format", "jsonl"],
        after: &["-o", "new.cutape"],
        repairs: false,
    },
    Reader {
        name: "export-parquet",
        before: &["export", "--format", "parquet"],
        after: &["-o", "new.cutape"],
        repairs: false,
    },
    Reader {
        name: "extract",
        before: &["extract", "--images"],
        after: &["new.cutape"],
        repairs: false,
    },
    Reader {
        name: "pack",
        before: &["pack"],
        after: &["-o", "new.cutape"],
        repairs: false,
    },
    Reader {
        name: "trim",
        before: &["trim"],
        after: &["--last", "1", "-o", "new.cutape"],
        repairs: false,
    },
    Reader {
        name: "minimize",
        before: &["minimize"],
        after: &["--test", "true", "-o", "new.cutape"],
        repairs: false,
    },
    Reader {
        name: "repair",
        before: &["repair"],
        after: &["-o", "new.cutape"],
        repairs: true,
    },
];

/// A file that is not a trace that can be read.
struct BadTrace {
    name: &'static str,
    /// Makes the file in a folder; its path.
    make: fn(&Path) -> PathBuf,
    /// What the message contains.
    expected: &'static [&'static str],
}

const BAD_TRACES: &[BadTrace] = &[
    BadTrace {
        name: "missing",
        make: |folder| folder.join("none.cutape"),
        expected: &["none.cutape", "No such file"],
    },
    BadTrace {
        name: "folder",
        make: |folder| folder.to_owned(),
        expected: &["not a regular file"],
    },
    BadTrace {
        name: "device",
        make: |_| "/dev/null".into(),
        expected: &["/dev/null", "not a regular file"],
    },
    BadTrace {
        name: "unreadable",
        make: unreadable,
        expected: &["bad.cutape", "ermission denied"],
    },
    BadTrace {
        name: "empty",
        make: |folder| write(folder, b""),
        expected: &["bad.cutape", "0 bytes, too short"],
    },
    BadTrace {
        name: "text",
        make: |folder| write(folder, &b"a text, no trace\n".repeat(500)),
        expected: &["bad.cutape", "not a cutape trace"],
    },
    BadTrace {
        name: "wrong-magic",
        make: |folder| write(folder, &changed(folder, |b| b[0] ^= 1)),
        expected: &["bad.cutape", "not a cutape trace"],
    },
    BadTrace {
        name: "newer",
        make: |folder| write(folder, &newer(folder)),
        expected: &["bad.cutape", "format 2", "use a later cutape"],
    },
    BadTrace {
        name: "head-only",
        make: |folder| write(folder, &sound(folder)[..100]),
        expected: &["bad.cutape", "damaged at byte"],
    },
    BadTrace {
        name: "cut-short",
        make: |folder| write(folder, &cut(folder, 5000)),
        expected: &["bad.cutape", "damaged at byte"],
    },
    BadTrace {
        name: "cut-by-one",
        make: |folder| write(folder, &cut(folder, -1)),
        expected: &["bad.cutape", "damaged at byte"],
    },
    BadTrace {
        name: "flipped-head",
        make: |folder| write(folder, &changed(folder, |b| b[30] ^= 4)),
        expected: &["bad.cutape", "damaged at byte 0"],
    },
    BadTrace {
        name: "flipped-body",
        make: |folder| write(folder, &changed(folder, flip_in_calls)),
        expected: &["bad.cutape", "damaged at byte"],
    },
    BadTrace {
        name: "unknown-call",
        make: unknown_call,
        expected: &["bad.cutape", "damaged at byte"],
    },
];

fn write(folder: &Path, bytes: &[u8]) -> PathBuf {
    let path = folder.join("bad.cutape");
    fs::write(&path, bytes).unwrap();
    path
}

/// The bytes of a small sound trace.
fn sound(folder: &Path) -> Vec<u8> {
    let path = folder.join("sound.cutape");
    if !path.exists() {
        run(&mut record(&path, &[], &[&ending(), "end"])).assert(0);
    }
    fs::read(&path).unwrap()
}

fn changed(folder: &Path, change: fn(&mut [u8])) -> Vec<u8> {
    let mut bytes = sound(folder);
    change(&mut bytes);
    bytes
}

/// Cuts to a length, or by a number of bytes.
fn cut(folder: &Path, length: isize) -> Vec<u8> {
    let mut bytes = sound(folder);
    let length = if length < 0 {
        bytes.len().saturating_add_signed(length)
    } else {
        length as usize
    };
    bytes.truncate(length);
    bytes
}

fn newer(folder: &Path) -> Vec<u8> {
    let mut bytes = sound(folder);
    let (head, _) = cutape_format::codec::decode::<FileHead>(&bytes).unwrap();
    let head = FileHead {
        major: MAJOR + 1,
        ..head
    }
    .encode();
    bytes[..head.len()].copy_from_slice(&head);
    bytes
}

/// In the first chunk after the head.
fn flip_in_calls(bytes: &mut [u8]) {
    bytes[4096 + 64 + 40] ^= 0x10;
}

fn unreadable(folder: &Path) -> PathBuf {
    let path = write(folder, &sound(folder));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o0)).unwrap();
    path
}

fn unknown_call(folder: &Path) -> PathBuf {
    let mut builder = TraceBuilder::new(cutape_registry::SIGNATURE_TEXT);
    builder.call(NewCall {
        name: "cuInit",
        arguments: &[0],
        ..NewCall::default()
    });
    builder.leave(0, 0, &[]);
    builder.record(0, record_kind::ENTER, 60_000, &[0; 24]);
    write(folder, &builder.bytes())
}

fn bad_trace(folder: &Path, bad: &BadTrace, verb: &Reader) -> Result<Verdict, String> {
    let path = (bad.make)(folder);
    let before = contents(folder);
    let mut command = Command::new(&parts().cutape);
    command
        .args(verb.before)
        .arg(&path)
        .args(verb.after)
        .current_dir(folder);
    if fs::metadata(&path).is_ok_and(|found| found.mode() & 0o777 == 0) && is_root() {
        // Root may read every file, another user may not.
        if let Err(why) = as_nobody(&mut command, folder) {
            return Ok(Verdict::Ignored(why));
        }
    }
    let output = run(&mut command);
    let new = folder.join("new.cutape");
    // Some damage cannot be repaired: a lost signature table, an unknown function.
    if verb.repairs
        && bad
            .expected
            .iter()
            .any(|word| word.starts_with("damaged at byte"))
    {
        let refused = output.stderr.contains("nothing can be kept");
        output.expect_code(if refused { 2 } else { 0 })?;
        if output.stderr.is_empty() || output.stderr.contains("panicked") {
            return Err(format!(
                "expected the damage on stderr\n{}",
                output.describe()
            ));
        }
        if new.exists() == refused {
            return Err(format!(
                "status {:?}, but a file was written: {}\n{}",
                output.code(),
                new.exists(),
                output.describe()
            ));
        }
        if !refused
            && let Some(damage) = Trace::open(&new)
                .map_err(|e| e.to_string())?
                .verify()
                .first()
        {
            return Err(format!("the repaired trace is damaged: {damage:?}"));
        }
    } else {
        expect_refusal(&output, bad.expected)?;
        if new.exists() {
            return Err(format!(
                "{} was written\n{}",
                new.display(),
                output.describe()
            ));
        }
    }
    for (name, bytes) in before {
        if fs::read(&name).ok() != Some(bytes) {
            return Err(format!(
                "{} was changed\n{}",
                name.display(),
                output.describe()
            ));
        }
    }
    Ok(Verdict::Passed)
}

fn is_root() -> bool {
    // SAFETY: the call has no arguments and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// Makes the command run as a user without rights, in a folder that this user can write.
fn as_nobody(command: &mut Command, folder: &Path) -> Result<(), String> {
    const NOBODY: u32 = 65534;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o777)).map_err(|e| e.to_string())?;
    let cutape = &parts().cutape;
    let reach = run(Command::new("test")
        .args([
            "-x".as_ref(),
            cutape.as_os_str(),
            "-a".as_ref(),
            "-w".as_ref(),
        ])
        .arg(folder)
        .uid(NOBODY)
        .gid(NOBODY));
    if reach.code() != Some(0) {
        return Err(format!("user {NOBODY} cannot reach {}", folder.display()));
    }
    command.uid(NOBODY).gid(NOBODY);
    Ok(())
}

/// All files of a folder that can be read.
fn contents(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    fs::read_dir(folder)
        .unwrap()
        .flatten()
        .filter_map(|entry| Some((entry.path(), fs::read(entry.path()).ok()?)))
        .collect()
}

/// A command that is refused, in a folder with `sound.cutape`, an executable `program`, and a text
/// file `text`.
struct BadCommand {
    name: &'static str,
    words: &'static [&'static str],
    expected: &'static [&'static str],
}

const BAD_COMMANDS: &[BadCommand] = &[
    BadCommand {
        name: "program-missing",
        words: &[
            "record",
            "--driver",
            "null",
            "-o",
            "t.cutape",
            "--",
            "./no-such-program",
        ],
        expected: &["cannot run", "./no-such-program", "No such file"],
    },
    BadCommand {
        name: "program-not-in-path",
        words: &[
            "record",
            "--driver",
            "null",
            "-o",
            "t.cutape",
            "--",
            "no-such-program",
        ],
        expected: &["cannot run no-such-program", "PATH"],
    },
    BadCommand {
        name: "program-missing-live",
        words: &["check", "--driver", "null", "--", "./no-such-program"],
        expected: &["cannot run", "./no-such-program"],
    },
    BadCommand {
        name: "program-is-a-folder",
        words: &["record", "--driver", "null", "-o", "t.cutape", "--", "/usr"],
        expected: &["/usr", "not a file"],
    },
    BadCommand {
        name: "program-not-executable",
        words: &[
            "record", "--driver", "null", "-o", "t.cutape", "--", "./text",
        ],
        expected: &["./text", "not executable"],
    },
    BadCommand {
        name: "no-program",
        words: &["record", "--driver", "null", "-o", "t.cutape"],
        expected: &["no program", "--"],
    },
    BadCommand {
        name: "output-exists",
        words: &[
            "record",
            "--driver",
            "null",
            "-o",
            "sound.cutape",
            "--",
            "./program",
        ],
        expected: &["sound.cutape", "it exists"],
    },
    BadCommand {
        name: "report-exists",
        words: &["report", "sound.cutape", "-o", "text"],
        expected: &["cannot write text", "exists already", "-o"],
    },
    BadCommand {
        name: "report-folder-missing",
        words: &["report", "sound.cutape", "-o", "none/page.html"],
        expected: &["none/page.html", "No such file"],
    },
    BadCommand {
        name: "report-of-a-replay-missing",
        words: &["report", "sound.cutape", "--replay", "none.json"],
        expected: &[
            "--replay none.json",
            "No such file",
            "cutape replay --report",
        ],
    },
    BadCommand {
        name: "report-of-a-replay-is-none",
        words: &["report", "sound.cutape", "--replay", "sound.cutape"],
        expected: &[
            "--replay sound.cutape",
            "no report",
            "cutape replay --report",
        ],
    },
    BadCommand {
        name: "report-of-a-bench-is-none",
        words: &["report", "sound.cutape", "--bench", "empty.json"],
        expected: &["--bench empty.json", "benchmarks", "cutape bench --report"],
    },
    BadCommand {
        name: "output-is-a-device",
        words: &[
            "record",
            "--driver",
            "null",
            "-o",
            "/dev/full",
            "--",
            "./program",
        ],
        expected: &["/dev/full", "it exists"],
    },
    BadCommand {
        name: "output-folder-missing",
        words: &[
            "record",
            "--driver",
            "null",
            "-o",
            "none/t.cutape",
            "--",
            "./program",
        ],
        expected: &["none", "No such file"],
    },
    BadCommand {
        name: "output-folder-is-a-file",
        words: &[
            "record",
            "--driver",
            "null",
            "-o",
            "text/t.cutape",
            "--",
            "./program",
        ],
        expected: &["text", "ot a directory"],
    },
    BadCommand {
        name: "output-folder-unwritable",
        words: &[
            "record",
            "--driver",
            "null",
            "-o",
            "/proc/t.cutape",
            "--",
            "./program",
        ],
        expected: &["/proc", "cannot write into"],
    },
    BadCommand {
        name: "trim-no-call",
        words: &[
            "trim",
            "sound.cutape",
            "--calls",
            "99999",
            "-o",
            "new.cutape",
        ],
        expected: &[
            "--calls 99999",
            "no call matches: the trace has calls 0 to ",
        ],
    },
    BadCommand {
        name: "trim-bad-set",
        words: &[
            "trim",
            "sound.cutape",
            "--calls",
            "5..x",
            "-o",
            "new.cutape",
        ],
        expected: &["--calls", "`x` is not a call number"],
    },
    BadCommand {
        name: "trim-no-launch",
        words: &[
            "trim",
            "sound.cutape",
            "--launches",
            "70..",
            "-o",
            "new.cutape",
        ],
        expected: &["--launches 70..", "launches, which count from 0"],
    },
    BadCommand {
        name: "trim-bad-launches",
        words: &[
            "trim",
            "sound.cutape",
            "--launches",
            "cuMem*",
            "-o",
            "new.cutape",
        ],
        expected: &["--launches cuMem*", "not a range of numbers"],
    },
    BadCommand {
        name: "trim-output-exists",
        words: &["trim", "sound.cutape", "--last", "1", "-o", "text"],
        expected: &["text", "exists already"],
    },
    BadCommand {
        name: "trim-onto-itself",
        words: &["trim", "sound.cutape", "--last", "1", "-o", "sound.cutape"],
        expected: &["sound.cutape", "exists already"],
    },
    BadCommand {
        name: "trim-folder-missing",
        words: &[
            "trim",
            "sound.cutape",
            "--last",
            "1",
            "-o",
            "none/new.cutape",
        ],
        expected: &["none/new.cutape", "No such file"],
    },
    BadCommand {
        name: "driver-missing",
        words: &[
            "record",
            "--driver",
            "./none.so",
            "-o",
            "t.cutape",
            "--",
            "./program",
        ],
        expected: &["./none.so", "No such file"],
    },
    BadCommand {
        name: "driver-is-no-library",
        words: &[
            "record",
            "--driver",
            "./text",
            "-o",
            "t.cutape",
            "--",
            "./program",
        ],
        expected: &["/text", "not a shared library"],
    },
    BadCommand {
        name: "driver-is-no-library-replay",
        words: &["replay", "--driver", "./text", "sound.cutape"],
        expected: &["text"],
    },
    BadCommand {
        name: "report-folder-missing",
        words: &[
            "replay",
            "--driver",
            "null",
            "--report",
            "none/r.json",
            "sound.cutape",
        ],
        expected: &["none/r.json", "No such file"],
    },
    BadCommand {
        name: "junit-folder-missing",
        words: &["check", "--junit", "none/c.xml", "sound.cutape"],
        expected: &["none/c.xml", "choose another place with --junit"],
    },
    BadCommand {
        name: "sarif-is-a-trace",
        words: &["check", "--sarif", "sound.cutape", "sound.cutape"],
        expected: &["--sarif sound.cutape: this file is a trace"],
    },
    BadCommand {
        name: "suppressions-missing",
        words: &["check", "--suppress", "none.txt", "sound.cutape"],
        expected: &["none.txt", "No such file"],
    },
    BadCommand {
        name: "baseline-malformed",
        words: &["check", "--baseline", "text", "sound.cutape"],
        expected: &["text"],
    },
    BadCommand {
        name: "calls-malformed",
        words: &["dump", "--calls", "5..x", "sound.cutape"],
        expected: &["5..x", "not a call number"],
    },
    BadCommand {
        name: "calls-misspelt",
        words: &[
            "replay",
            "--driver",
            "null",
            "--calls",
            "cuLaunchKernl",
            "sound.cutape",
        ],
        expected: &["cuLaunchKernl"],
    },
    BadCommand {
        name: "pack-folder-missing",
        words: &["pack", "sound.cutape", "-o", "none/t.cutape"],
        expected: &["none/t.cutape", "No such file"],
    },
    BadCommand {
        name: "repair-over-a-file",
        words: &["repair", "sound.cutape", "-o", "text"],
        expected: &["text", "exists"],
    },
    BadCommand {
        name: "export-over-a-file",
        words: &[
            "export",
            "--format",
            "perfetto",
            "sound.cutape",
            "-o",
            "text",
        ],
        expected: &["text", "it exists; name another file"],
    },
    BadCommand {
        name: "export-folder-over-a-file",
        words: &[
            "export",
            "--format",
            "parquet",
            "sound.cutape",
            "-o",
            "text",
        ],
        expected: &["text", "it exists; name another folder"],
    },
    BadCommand {
        name: "export-folder-missing",
        words: &[
            "export",
            "--format",
            "chrome",
            "sound.cutape",
            "-o",
            "none/t",
        ],
        expected: &["none/t", "No such file"],
    },
    BadCommand {
        name: "export-arguments-of-a-timeline",
        words: &[
            "export",
            "--format",
            "chrome",
            "--arguments",
            "sound.cutape",
            "-o",
            "new",
        ],
        expected: &["--arguments", "--format parquet or jsonl"],
    },
    BadCommand {
        name: "pack-over-another-file",
        words: &["pack", "sound.cutape", "-o", "text"],
        expected: &["text", "exists"],
    },
];

fn bad_command(folder: &Path, bad: &BadCommand) -> Result<(), String> {
    sound(folder);
    fs::write(folder.join("text"), "a text\n").unwrap();
    fs::write(folder.join("empty.json"), "{}\n").unwrap();
    fs::copy(ending(), folder.join("program")).map_err(|error| error.to_string())?;
    let before = contents(folder);
    let output = run(Command::new(&parts().cutape)
        .args(bad.words)
        .current_dir(folder));
    expect_refusal(&output, bad.expected)?;
    if contents(folder) != before {
        return Err(format!(
            "files were written or changed\n{}",
            output.describe()
        ));
    }
    Ok(())
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
