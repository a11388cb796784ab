//! Commands that are refused before they do anything.

use std::fs;
use std::path::Path;
use std::process::Command;

use cutape_tests::{Suite, ending, parts, run};

use super::files::{contents, expect_refusal, sound};

pub(crate) fn add_to(suite: &mut Suite) {
    for bad in BAD_COMMANDS {
        suite.test(format!("command/{}", bad.name), |folder| {
            bad_command(folder, bad)
        });
    }
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
        name: "program-is-a-command-line",
        words: &[
            "record",
            "--driver",
            "null",
            "-o",
            "t.cutape",
            "--",
            "./program | tee log",
        ],
        expected: &[
            "cannot run ./program | tee log: no such program",
            "-- sh -c './program | tee log'",
        ],
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
        expected: &["cannot write text: it exists", "--overwrite"],
    },
    BadCommand {
        name: "report-over-a-folder",
        words: &["report", "sound.cutape", "-o", ".", "--overwrite"],
        expected: &["cannot replace .: it is not a file"],
    },
    BadCommand {
        name: "output-to-replace-without-program",
        words: &[
            "record",
            "--overwrite",
            "-o",
            "sound.cutape",
            "--",
            "./none",
        ],
        expected: &["cannot run ./none"],
    },
    BadCommand {
        name: "extract-over-other-files",
        words: &["extract", "sound.cutape", "--images", ".", "--overwrite"],
        expected: &["cannot write .: this is not the name of a folder"],
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
        expected: &["text: it exists", "--overwrite"],
    },
    BadCommand {
        name: "trim-onto-itself",
        words: &["trim", "sound.cutape", "--last", "1", "-o", "sound.cutape"],
        expected: &["sound.cutape: it exists", "--overwrite"],
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
        name: "dump-no-kernel",
        words: &["dump", "--calls", "kernel:nosuch", "sound.cutape"],
        expected: &["--calls kernel:nosuch: no call matches"],
    },
    BadCommand {
        name: "dump-no-thread",
        words: &["dump", "--thread", "7", "sound.cutape"],
        expected: &["--thread 7: no call matches: the trace has thread 0 alone"],
    },
    BadCommand {
        name: "dump-calls-of-no-thread",
        words: &["dump", "--calls", "0", "--thread", "7", "sound.cutape"],
        expected: &["--calls 0 --thread 7: no call matches both"],
    },
    BadCommand {
        name: "replay-no-kernel",
        words: &[
            "replay",
            "--driver",
            "null",
            "--calls",
            "kernel:nosuch",
            "sound.cutape",
        ],
        expected: &["--calls kernel:nosuch: no call matches"],
    },
    BadCommand {
        name: "bench-no-kernel",
        words: &[
            "bench",
            "--driver",
            "null",
            "--calls",
            "kernel:nosuch",
            "sound.cutape",
        ],
        expected: &["--calls kernel:nosuch: no call matches"],
    },
    BadCommand {
        name: "extract-no-kernel",
        words: &[
            "extract",
            "sound.cutape",
            "--all",
            "--calls",
            "kernel:nosuch",
            "new",
        ],
        expected: &["--calls kernel:nosuch: no call matches"],
    },
    BadCommand {
        name: "trim-no-kernel",
        words: &[
            "trim",
            "sound.cutape",
            "--calls",
            "kernel:nosuch",
            "-o",
            "new.cutape",
        ],
        expected: &["--calls kernel:nosuch: no call matches"],
    },
    BadCommand {
        name: "pack-folder-missing",
        words: &["pack", "sound.cutape", "-o", "none/t.cutape"],
        expected: &["none/t.cutape", "No such file"],
    },
    BadCommand {
        name: "repair-over-a-file",
        words: &["repair", "sound.cutape", "-o", "text"],
        expected: &["text: it exists", "--overwrite"],
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
        expected: &["text: it exists", "--overwrite"],
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
        expected: &["text: it exists", "--overwrite"],
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
        expected: &["text: it exists", "--overwrite"],
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
