//! What users' programs rely on beside the command line, whose listing `cli/src/interface.rs`
//! compares: members of JSON, environment variables, exit statuses. `docs/compatibility.md` says
//! what is promised.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;

use cutape_registry::{NullSetting, RecorderSetting};
use cutape_tests::{
    Members, Verdict, compare_interface, compiled, ending, parts, record, replay, root, run,
};
use serde_json::Value;

cutape_tests::tests![json_stays, variables_stay, python_stays, exit_statuses_stay];

/// A command that prints JSON, a line each or one value, and what it is given.
struct Printer {
    /// In front of its members.
    name: &'static str,
    /// Words, of which `TRACE` is each of the traces.
    words: &'static str,
    traces: &'static [&'static str],
    /// Where its objects have members that are data.
    maps: &'static [&'static str],
}

/// Recorded in the folder of the test: file, program, options.
const RECORDED: [(&str, &str, &[&str]); 5] = [
    ("history", "clean/memory_history", &["--stacks=all"]),
    ("floats", "clean/float_values", &[]),
    ("race", "misuse/race-across-streams/violation", &[]),
    (
        "nvtx",
        "clean/nvtx_ranges",
        &["--digests=sync", "--stacks=all"],
    ),
    ("link", "demo/link_demo", &["--stacks=all"]),
];

/// Between them, they show most of what can be in a trace.
const TRACES: &[&str] = &[
    "history",
    "race",
    "nvtx",
    "link",
    "/traces/frameworks/torch_streams",
    "/traces/clean/graph",
    "/traces/misuse/context-after-destroy",
    "/format/tests/golden/v1.12",
];

const PRINTERS: &[Printer] = &[
    Printer {
        name: "info",
        words: "info --format json TRACE",
        traces: TRACES,
        maps: &[
            "info.program.environment",
            "info.memory",
            "info.digests.not_taken",
        ],
    },
    Printer {
        name: "dump",
        words: "dump --format json --stacks TRACE",
        traces: TRACES,
        // Names of parameters, of members of structs, of what an argument leads to.
        maps: &[
            "dump.arguments",
            "dump.arguments.*.pieces",
            "dump.arguments.*.pointee",
            "dump.outputs",
            "dump.outputs.*.value",
        ],
    },
    Printer {
        name: "check",
        words: "check --format json --all TRACE",
        traces: TRACES,
        maps: &["check.omitted.hidden"],
    },
    Printer {
        name: "replay",
        words: "replay --format json --driver null --force --keep-going TRACE",
        traces: TRACES,
        maps: &["replay.notes", "replay.calls_emulated"],
    },
    Printer {
        name: "hang",
        words: "hang --format json TRACE",
        traces: TRACES,
        maps: &[],
    },
    Printer {
        name: "diff",
        words: "diff --format json TRACE history.cutape",
        traces: &["history", "floats", "link"],
        maps: &[],
    },
    Printer {
        name: "inspect",
        words: "inspect TRACE memory#3 --at 18 --before --after --driver null --report -",
        traces: &["history"],
        maps: &[],
    },
    Printer {
        name: "why",
        words: "why TRACE --result 20 --driver null --report -",
        traces: &["history"],
        maps: &[],
    },
    Printer {
        name: "first",
        words: "first TRACE --nan --type f32 --driver null --report -",
        traces: &["floats"],
        maps: &[],
    },
    Printer {
        name: "race",
        words: "race TRACE --driver null --report -",
        traces: &["race"],
        maps: &[],
    },
    Printer {
        name: "matrix",
        words: "matrix TRACE --each-kernel --rounds 2 --measure-seconds 0.05 --warm-up-seconds 0.02 \
                --driver null -o matrix.json --report -",
        traces: &["history"],
        maps: &[],
    },
    // Results of which one process differs: what is measured here may be flaky, or not.
    Printer {
        name: "matrix.compare",
        words: "matrix --compare results.json results.json --report -",
        traces: &["history"],
        maps: &[],
    },
    Printer {
        name: "matrix.history",
        words: "matrix --history results.json results.json --report -",
        traces: &["history"],
        maps: &[],
    },
    Printer {
        name: "bench",
        words: "bench TRACE --each-kernel --measure-seconds 1 --no-plots --driver null --report -",
        traces: &["history"],
        maps: &["bench.notes"],
    },
    Printer {
        name: "extract",
        words: "extract TRACE --all --driver null OUT --report -",
        traces: &["history"],
        maps: &["extract.left_out"],
    },
    Printer {
        name: "doctor",
        words: "doctor --format json",
        traces: &[""],
        maps: &[],
    },
];

fn json_stays(folder: &Path) -> Result<(), String> {
    for (name, program, options) in RECORDED {
        let trace = folder.join(name).with_extension("cutape");
        run(&mut record(&trace, options, &[&compiled(program)])).expect_code(0)?;
    }
    let results = root().join("tests/interface/matrix.json");
    fs::copy(results, folder.join("results.json")).map_err(|error| error.to_string())?;
    let mut members = Members::default();
    for printer in PRINTERS {
        for trace in printer.traces {
            let path = match trace.strip_prefix('/') {
                Some(path) => root().join(format!("{path}.cutape")),
                None => folder.join(format!("{trace}.cutape")),
            };
            let mut command = Command::new(&parts().cutape);
            for word in printer.words.split(' ') {
                match word {
                    "TRACE" => command.arg(&path),
                    "OUT" => command.arg("launches"),
                    word => command.arg(word),
                };
            }
            let output = run(command.current_dir(folder));
            if !matches!(output.code(), Some(0 | 1)) {
                return Err(output.describe());
            }
            let values = serde_json::Deserializer::from_str(&output.stdout).into_iter::<Value>();
            for value in values {
                let value = value.map_err(|error| format!("{error}\n{}", output.describe()))?;
                members.add(printer.name, &value, printer.maps);
            }
        }
    }
    let index = fs::read(folder.join("launches/index.json")).map_err(|error| error.to_string())?;
    let index: Value = serde_json::from_slice(&index).map_err(|error| error.to_string())?;
    members.add(
        "extract index.json",
        &index,
        &["extract index.json.left_out"],
    );
    compare_interface("json.txt", &members.lines())
}

/// The recorder's, for programs that are started without `cutape record`, and the null driver's.
fn variables_stay(_: &Path) -> Result<(), String> {
    let recorder = RecorderSetting::ALL.iter().map(|setting| setting.name());
    let null = NullSetting::ALL.iter().map(|setting| setting.name());
    let all: BTreeSet<String> = recorder.chain(null).map(str::to_owned).collect();
    compare_interface("environment.txt", &all)
}

/// The names of the package, of its parameters and of the options for pytest.
fn python_stays(folder: &Path) -> Result<Verdict, String> {
    if run(Command::new("python3").arg("--version")).code() != Some(0) {
        return Ok(Verdict::Ignored("no python3".to_owned()));
    }
    let mut python = Command::new("python3");
    python.arg(root().join("tests/interface/python.py"));
    let output = run(python.arg(root().join("python/cutape")).current_dir(folder));
    output.expect(0)?;
    let names = output.stdout.lines().map(str::to_owned).collect();
    compare_interface("python.txt", &names)?;
    Ok(Verdict::Passed)
}

/// The statuses that README.md and `cutape --help` promise.
fn exit_statuses_stay(folder: &Path) -> Result<(), String> {
    let program = ending();
    let clean = &folder.join("clean.cutape");
    let bad = &folder.join("bad.cutape");
    run(&mut record(clean, &[], &[&compiled("clean/events")])).expect_code(0)?;
    run(&mut record(
        bad,
        &[],
        &[&compiled("misuse/double-free/violation")],
    ))
    .expect_code(0)?;
    let missing = &folder.join("missing.cutape");
    let cutape = |words: &[&dyn AsRef<OsStr>]| run(&mut parts().cutape(words));
    let other_driver = |trace: &Path| {
        let mut command = replay(trace);
        run(command.env("CUTAPE_NULL_FAIL", "cuEventCreate@1=2"))
    };
    for (output, expected) in [
        (cutape(&[&"check", clean]), 0),
        (cutape(&[&"check", bad]), 1),
        (cutape(&[&"check", missing]), 2),
        (cutape(&[&"check", clean, &"--no-such-option"]), 2),
        (cutape(&[&"replay", &"--driver", &"null", clean]), 0),
        (other_driver(clean), 1),
        (cutape(&[&"diff", clean, clean]), 0),
        (cutape(&[&"diff", clean, bad]), 1),
        (cutape(&[&"info", missing]), 2),
        (cutape(&[&"--help"]), 0),
        (
            run(&mut record(missing, &["--overwrite"], &[&program, "exit"])),
            3,
        ),
        (
            run(&mut record(missing, &["--overwrite"], &[&program, "kill"])),
            128 + 9,
        ),
    ] {
        output.expect_code(expected)?;
    }
    Ok(())
}
