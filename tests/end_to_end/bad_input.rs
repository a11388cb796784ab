//! Bad input of every sort: one line that says what and where, status 2, nothing overwritten, no panic.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use cutape_format::layout::{FileHead, MAJOR, record_kind};
use cutape_format::{NewCall, Trace, TraceBuilder};
use cutape_tests::{Output, endings, parts, run};
use libtest_mimic::{Arguments, Failed, Trial};

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    let mut add = |name: String, test: Test| {
        trials.push(Trial::test(name.clone(), move || {
            let folder = parts().new_folder(&name.replace('/', "."));
            test(&folder).map_err(Failed::from)
        }));
    };
    for (name, make, words) in BAD_TRACES {
        for verb in READERS {
            add(
                format!("{name}/{}", verb.name),
                Box::new(move |folder| bad_trace(folder, *make, words, verb)),
            );
        }
    }
    for bad in BAD_COMMANDS {
        add(
            format!("command/{}", bad.name),
            Box::new(move |folder| bad_command(folder, bad)),
        );
    }
    add(
        "full-disk/file-size-limit".into(),
        Box::new(file_size_limit),
    );
    add(
        "full-disk/folder-vanishes".into(),
        Box::new(trace_folder_vanishes),
    );
    if can_mount() {
        add("full-disk/file-system".into(), Box::new(full_file_system));
    } else {
        trials.push(
            Trial::test("full-disk/file-system (skipped: no right to mount)", || {
                Ok(())
            })
            .with_ignored_flag(true),
        );
    }
    let listing = arguments.list;
    let conclusion = libtest_mimic::run(&arguments, trials);
    if !listing {
        parts().clean_up();
    }
    conclusion.exit_code()
}

/// A test, given a folder of its own.
type Test = Box<dyn FnOnce(&Path) -> Result<(), String> + Send>;

/// One line on stderr with all the words, status 2, and nothing on stdout.
fn expect_refusal(output: &Output, words: &[&str]) -> Result<(), String> {
    output.expect_code(2)?;
    let line = output.stderr.trim_end();
    let complaint = match words.iter().find(|word| !line.contains(**word)) {
        _ if line.lines().count() != 1 => "not one line on stderr".to_owned(),
        _ if line.contains("panicked") => "a panic".to_owned(),
        _ if !output.stdout.is_empty() => "something on stdout".to_owned(),
        Some(word) => format!("`{word}` is not said"),
        None => return Ok(()),
    };
    Err(format!("{complaint}\n{}", output.describe()))
}

/// A verb that reads a trace.
struct Reader {
    name: &'static str,
    /// In front of the trace.
    before: &'static [&'static str],
    /// Behind it.
    after: &'static [&'static str],
    /// Takes damaged traces, which is what it is for.
    mends: bool,
}

const READERS: &[Reader] = &[
    Reader {
        name: "check",
        before: &["check"],
        after: &[],
        mends: false,
    },
    Reader {
        name: "replay",
        before: &["replay", "--driver", "null"],
        after: &[],
        mends: false,
    },
    Reader {
        name: "bench",
        before: &["bench", "--driver", "null"],
        after: &[],
        mends: false,
    },
    Reader {
        name: "dump",
        before: &["dump"],
        after: &[],
        mends: false,
    },
    Reader {
        name: "info",
        before: &["info"],
        after: &[],
        mends: false,
    },
    Reader {
        name: "pack",
        before: &["pack"],
        after: &["-o", "new.cutape"],
        mends: false,
    },
    Reader {
        name: "repair",
        before: &["repair"],
        after: &["-o", "new.cutape"],
        mends: true,
    },
];

/// Makes the file and returns its name; `None` where this machine cannot have such a file.
type Make = fn(&Path) -> Option<PathBuf>;

/// (name, how it is made, what the message says)
const BAD_TRACES: &[(&str, Make, &[&str])] = &[
    (
        "missing",
        |folder| Some(folder.join("none.cutape")),
        &["none.cutape", "No such file"],
    ),
    (
        "folder",
        |folder| Some(folder.to_owned()),
        &["not a regular file"],
    ),
    (
        "device",
        |_| Some("/dev/null".into()),
        &["/dev/null", "not a regular file"],
    ),
    (
        "unreadable",
        unreadable,
        &["bad.cutape", "ermission denied"],
    ),
    (
        "empty",
        |folder| write(folder, b""),
        &["bad.cutape", "0 bytes, too short"],
    ),
    (
        "text",
        |folder| write(folder, &b"a text, no trace\n".repeat(500)),
        &["bad.cutape", "not a cutape trace"],
    ),
    (
        "wrong-magic",
        |folder| write(folder, &changed(folder, |b| b[0] ^= 1)),
        &["bad.cutape", "not a cutape trace"],
    ),
    (
        "newer",
        |folder| write(folder, &newer(folder)),
        &["bad.cutape", "format 2", "use a later cutape"],
    ),
    (
        "head-only",
        |folder| write(folder, &sound(folder)[..100]),
        &["bad.cutape", "damaged at byte"],
    ),
    (
        "cut-short",
        |folder| write(folder, &cut(folder, 5000)),
        &["bad.cutape", "damaged at byte"],
    ),
    (
        "cut-by-one",
        |folder| write(folder, &cut(folder, -1)),
        &["bad.cutape", "damaged at byte"],
    ),
    (
        "flipped-head",
        |folder| write(folder, &changed(folder, |b| b[30] ^= 4)),
        &["bad.cutape", "damaged at byte 0"],
    ),
    (
        "flipped-body",
        |folder| write(folder, &changed(folder, flip_in_calls)),
        &["bad.cutape", "damaged at byte"],
    ),
    (
        "unknown-call",
        unknown_call,
        &["bad.cutape", "damaged at byte"],
    ),
];

fn write(folder: &Path, bytes: &[u8]) -> Option<PathBuf> {
    let path = folder.join("bad.cutape");
    fs::write(&path, bytes).unwrap();
    Some(path)
}

/// The bytes of a small sound trace.
fn sound(folder: &Path) -> Vec<u8> {
    let path = folder.join("sound.cutape");
    if !path.exists() {
        let program = endings(parts()).unwrap();
        let mut record = parts().cutape(&[
            &"record",
            &"--driver",
            &"null",
            &"-o",
            &path,
            &"--",
            &program,
            &"end",
        ]);
        run(&mut record).assert(0);
    }
    fs::read(&path).unwrap()
}

fn changed(folder: &Path, change: fn(&mut [u8])) -> Vec<u8> {
    let mut bytes = sound(folder);
    change(&mut bytes);
    bytes
}

/// Cuts to a length, or by one.
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

/// In the first chunk behind the head.
fn flip_in_calls(bytes: &mut [u8]) {
    bytes[4096 + 64 + 40] ^= 0x10;
}

fn unreadable(folder: &Path) -> Option<PathBuf> {
    let path = write(folder, &sound(folder))?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o0)).unwrap();
    // The superuser may read it all the same.
    fs::File::open(&path).is_err().then_some(path)
}

fn unknown_call(folder: &Path) -> Option<PathBuf> {
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

fn bad_trace(folder: &Path, make: Make, words: &[&str], verb: &Reader) -> Result<(), String> {
    let Some(path) = make(folder) else {
        println!(
            "skipped for {}: the superuser may read every file",
            verb.name
        );
        return Ok(());
    };
    let before = contents(folder);
    let mut command = Command::new(&parts().cutape);
    command
        .args(verb.before)
        .arg(&path)
        .args(verb.after)
        .current_dir(folder);
    let output = run(&mut command);
    let new = folder.join("new.cutape");
    // What is lost without the signature table, and what another cutape would have written, cannot be mended.
    if verb.mends && words.iter().any(|word| word.starts_with("damaged at byte")) {
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
                "written though refused, or not written\n{}",
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
        expect_refusal(&output, words)?;
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

/// A command that cannot be carried out. In a folder with `sound.cutape`, the executable `program`, and `text`, a file.
struct BadCommand {
    name: &'static str,
    words: &'static [&'static str],
    said: &'static [&'static str],
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
        said: &["cannot run", "./no-such-program", "No such file"],
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
        said: &["cannot run no-such-program", "PATH"],
    },
    BadCommand {
        name: "program-missing-live",
        words: &["check", "--driver", "null", "--", "./no-such-program"],
        said: &["cannot run", "./no-such-program"],
    },
    BadCommand {
        name: "program-is-a-folder",
        words: &["record", "--driver", "null", "-o", "t.cutape", "--", "/usr"],
        said: &["/usr", "not a file"],
    },
    BadCommand {
        name: "program-not-executable",
        words: &[
            "record", "--driver", "null", "-o", "t.cutape", "--", "./text",
        ],
        said: &["./text", "not executable"],
    },
    BadCommand {
        name: "no-program",
        words: &["record", "--driver", "null", "-o", "t.cutape"],
        said: &["no program", "--"],
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
        said: &["sound.cutape", "it exists"],
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
        said: &["/dev/full", "it exists"],
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
        said: &["none", "No such file"],
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
        said: &["text", "ot a directory"],
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
        said: &["/proc", "cannot write into"],
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
        said: &["./none.so", "No such file"],
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
        said: &["/text", "not a shared library"],
    },
    BadCommand {
        name: "driver-is-no-library-replay",
        words: &["replay", "--driver", "./text", "sound.cutape"],
        said: &["text"],
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
        said: &["none/r.json", "No such file"],
    },
    BadCommand {
        name: "suppressions-missing",
        words: &["check", "--suppress", "none.txt", "sound.cutape"],
        said: &["none.txt", "No such file"],
    },
    BadCommand {
        name: "baseline-malformed",
        words: &["check", "--baseline", "text", "sound.cutape"],
        said: &["text"],
    },
    BadCommand {
        name: "calls-malformed",
        words: &["dump", "--calls", "5..x", "sound.cutape"],
        said: &["5..x", "not a call number"],
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
        said: &["cuLaunchKernl"],
    },
    BadCommand {
        name: "pack-folder-missing",
        words: &["pack", "sound.cutape", "-o", "none/t.cutape"],
        said: &["none/t.cutape", "No such file"],
    },
    BadCommand {
        name: "repair-over-a-file",
        words: &["repair", "sound.cutape", "-o", "text"],
        said: &["text", "exists"],
    },
    BadCommand {
        name: "pack-over-another-file",
        words: &["pack", "sound.cutape", "-o", "text"],
        said: &["text", "exists"],
    },
];

fn bad_command(folder: &Path, bad: &BadCommand) -> Result<(), String> {
    sound(folder);
    fs::write(folder.join("text"), "a text\n").unwrap();
    fs::copy(endings(parts())?, folder.join("program")).map_err(|error| error.to_string())?;
    let before = contents(folder);
    let output = run(Command::new(&parts().cutape)
        .args(bad.words)
        .current_dir(folder));
    expect_refusal(&output, bad.said)?;
    if contents(folder) != before {
        return Err(format!(
            "files were written or changed\n{}",
            output.describe()
        ));
    }
    Ok(())
}

/// A program whose trace cannot be written goes on, with its own status; one line says that the trace ends early.
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
            "the program printed something else\n{}",
            output.describe()
        ));
    }
    // What was written can be read.
    if trace.exists() {
        let trace =
            Trace::open(trace).map_err(|error| format!("{error}\n{}", output.describe()))?;
        if let Some(damage) = trace.verify().first() {
            return Err(format!("{damage:?}\n{}", output.describe()));
        }
    }
    Ok(())
}

/// The limit that the system sets on the length of files acts as a full disk does, and by a signal.
fn file_size_limit(folder: &Path) -> Result<(), String> {
    let program = endings(parts())?;
    // In blocks of 1024 bytes: nothing at all, less than the first chunk, a few chunks.
    for blocks in ["0", "64", "1500", "4000"] {
        let trace = folder.join(format!("{blocks}.cutape"));
        let line = r#"ulimit -f "$0"; exec "$@""#;
        let mut command = Command::new("bash");
        command.args(["-c", line, blocks]).arg(&parts().cutape);
        command
            .args(["record", "--driver", "null", "--no-pack", "-o"])
            .arg(&trace);
        // More calls than fit into the longest: each takes some 40 bytes.
        command.arg("--").arg(&program).args(["exit", "200000"]);
        let output = run(&mut command);
        expect_unharmed(&output, &trace).map_err(|error| format!("{blocks} KiB: {error}"))?;
    }
    Ok(())
}

/// The folder in which the trace is to be is removed before the first driver call.
fn trace_folder_vanishes(folder: &Path) -> Result<(), String> {
    let place = folder.join("place");
    fs::create_dir(&place).map_err(|error| error.to_string())?;
    let trace = place.join("t.cutape");
    let mut command = parts().cutape(&[&"record", &"--driver", &"null", &"-o", &trace, &"--"]);
    command
        .args(["sh", "-c", r#"rmdir "$0" && exec "$@""#])
        .arg(&place);
    command.arg(endings(parts())?).args(["exit", "10"]);
    expect_unharmed(&run(&mut command), &trace)
}

fn can_mount() -> bool {
    // In a mount namespace of its own, so that nothing is left mounted.
    run(Command::new("unshare").args(["--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"])).code()
        == Some(0)
}

fn full_file_system(folder: &Path) -> Result<(), String> {
    let place = folder.join("small");
    fs::create_dir(&place).map_err(|error| error.to_string())?;
    let program = endings(parts())?;
    // Room for the head only; for some chunks.
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
    Ok(())
}
