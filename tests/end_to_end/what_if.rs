//! `cutape what-if` on the null driver, which takes the times of its settings and runs no kernels.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use cutape_tests::{Output, compile, parts, record, root, run};
use serde_json::Value;

cutape_tests::tests![
    edits_are_tried,
    what_the_program_must_heed_is_named,
    edits_that_are_not_possible,
    a_wrong_result_is_no_gain,
    gains_are_predicted_and_measured,
    a_profile_has_what_predictions_need,
    what_is_wrong_with_the_options_is_said,
    check_measures_what_advice_gains,
];

/// The program with the slownesses.
fn program() -> &'static str {
    static PROGRAM: OnceLock<String> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let program = parts().new_folder("what-if-program").join("slow");
        let source = root().join("tests/programs/profile/slow.c");
        let driver = parts().driver_folder.join("libcuda.so.1");
        compile(&source, &program, &[&driver]);
        program.to_str().unwrap().to_owned()
    })
}

/// Five turns of a case of `profile/slow.c`.
fn recorded(folder: &Path, case: &str) -> PathBuf {
    let trace = folder.join(case.replace(' ', "-")).with_extension("cutape");
    if trace.exists() {
        return trace;
    }
    let words = case.split(' ').chain(["5"]);
    let command: Vec<&str> = [program()].into_iter().chain(words).collect();
    run(&mut record(&trace, &[], &command)).assert(0);
    trace
}

fn what_if(trace: &Path, options: &[&str]) -> Output {
    what_if_with(trace, options, &[("CUTAPE_NULL_SCHEDULE", "")])
}

fn what_if_with(trace: &Path, options: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = parts().cutape(&[&"what-if", &trace, &"--driver", &"null"]);
    command.args(options).args(["--repeat", "2"]);
    command.envs(variables.iter().filter(|set| !set.1.is_empty()).copied());
    run(&mut command)
}

const NO_PREDICTION: [&str; 2] = ["--profile", "none"];

fn edits_are_tried(folder: &Path) {
    fs::write(folder.join("other.ptx"), OTHER_KERNEL).unwrap();
    let other = format!("work={}", folder.join("other.ptx").display());
    for (case, edit, expected) in [
        (
            "wait",
            &["--drop-sync", "cuStreamSynchronize"][..],
            &[
                "drop-sync: 5 waits left out",
                " while it was recorded, replayed as recorded ",
            ][..],
        ),
        (
            "pageable",
            &["--pin-memory", "cuMemcpyHtoDAsync"],
            &[
                "pin-memory: 5 copies of 20971520 bytes with page-locked memory",
                "bytes equal: 1 of 1 compared (4.0 MiB)",
            ],
        ),
        (
            "serial",
            &["--overlap", "kernel:work"],
            &[
                "overlap: 15 calls on up to 3 streams beside theirs",
                "condition: kernels use no memory but what their parameters point into",
            ],
        ),
        (
            "tiny",
            &["--graph", "kernel:work"],
            &["graph: 200 calls in 5 launches of graphs"],
        ),
        (
            "tiny",
            &[
                "--graph",
                "kernel:work",
                "--drop-sync",
                "cuStreamSynchronize",
            ],
            &["graph: 200 calls in 1 launches of graphs", "drop-sync: 5"],
        ),
        (
            "shape",
            &["--launch-shape", "work=512x128"],
            &["launch-shape: 6 launches in another shape"],
        ),
        (
            "shape",
            &["--replace-kernel", &other],
            &["replace-kernel: 6 launches of another kernel"],
        ),
        (
            "pieces",
            &["--batch-copies", "cuMemcpyHtoDAsync"],
            &[
                "batch-copies: 20 copies joined to 5",
                "bytes equal: 1 of 1 compared",
            ],
        ),
        (
            "pieces fixed",
            &["--batch-copies", "cuMemcpyHtoDAsync"],
            &["batch-copies: "],
        ),
        (
            "rewrite",
            &["--drop-sync", "cuStreamSynchronize"],
            &["bytes equal: 1 of 1 compared"],
        ),
    ] {
        assert_tried(folder, case, edit, expected);
    }
}

fn what_the_program_must_heed_is_named(folder: &Path) {
    for (case, edit, expected) in [
        // What copies of pageable memory bring is there when they return.
        (
            "bring",
            &["--drop-sync", "cuStreamSynchronize"][..],
            &["bytes equal: 5 of 5 compared (20.0 KiB)"][..],
        ),
        (
            "bring fixed",
            &["--drop-sync", "cuStreamSynchronize"],
            &[
                "condition: the program must not read what 5 copies to the host bring",
                "bytes equal: ",
            ],
        ),
        (
            "bring",
            &["--pin-memory", "cuMemcpyDtoHAsync"],
            &[
                "condition: the program must not read what 5 copies to the host bring",
                "bytes equal: 5 of 5 compared (20.0 KiB)",
            ],
        ),
        // A wait for a non-blocking stream, before a copy in the default stream.
        (
            "cross fixed",
            &["--drop-sync", "cuStreamSynchronize"],
            &["condition: events order the work of the 2 streams"],
        ),
    ] {
        assert_tried(folder, case, edit, expected);
    }
}

/// The edit is possible, and the output has these words.
fn assert_tried(folder: &Path, case: &str, edit: &[&str], expected: &[&str]) {
    let output = what_if(&recorded(folder, case), &[edit, &NO_PREDICTION].concat());
    output.assert_code(0);
    for expected in expected.iter().chain(&["measured   "]) {
        assert!(
            output.stdout.contains(expected),
            "{case}: {expected}: {}",
            output.describe()
        );
    }
}

fn edits_that_are_not_possible(folder: &Path) {
    for (case, edit, expected) in [
        (
            "wait",
            &["--drop-sync", "cuLaunchKernel"][..],
            "not possible: none of the calls waits for a stream",
        ),
        (
            "wait",
            &["--pin-memory", "kernel:work"],
            "not possible: none of the calls is a copy of pageable host memory",
        ),
        // All use the same memory.
        (
            "shape",
            &["--overlap", "kernel:work"],
            "not possible: no two of the calls enqueue work",
        ),
        (
            "pageable",
            &["--graph", "cuMemcpyHtoDAsync"],
            "not possible: the calls have no 2 launches",
        ),
        (
            "pageable",
            &["--batch-copies", "cuMemcpyHtoDAsync"],
            "not possible: no two of the calls are linear copies",
        ),
        // Each copy reads what the one before has written.
        (
            "spread",
            &["--batch-copies", "cuMemcpyDtoDAsync"],
            "not possible: no two of the calls are linear copies",
        ),
        // The driver refuses it.
        (
            "shape",
            &["--launch-shape", "work=1x2048"],
            "cuLaunchKernel returned CUDA_ERROR_INVALID_VALUE",
        ),
        // The program writes what a copy may still read.
        (
            "rewrite fixed",
            &["--drop-sync", "cuStreamSynchronize"],
            "not possible: the program uses the host memory of call",
        ),
        (
            "rewrite",
            &[
                "--drop-sync",
                "cuStreamSynchronize",
                "--pin-memory",
                "cuMemcpyHtoDAsync",
            ],
            "not possible: the program uses the host memory of call",
        ),
    ] {
        let output = what_if(&recorded(folder, case), &[edit, &NO_PREDICTION].concat());
        output.assert_code(1);
        assert!(
            output.stdout.contains(expected),
            "{case}: {}",
            output.describe()
        );
        assert!(
            !output.stdout.contains("measured"),
            "{case}: {}",
            output.describe()
        );
    }
}

fn a_wrong_result_is_no_gain(folder: &Path) {
    let trace = recorded(folder, "cross");
    let options = ["--drop-sync", "cuStreamSynchronize", "--profile", "none"];
    // The host orders two streams; without it the null driver's work comes as late as it may.
    let lazy = [("CUTAPE_NULL_SCHEDULE", "lazy")];
    let output = what_if_with(&trace, &options, &lazy);
    output.assert_code(1);
    for expected in [
        "bytes DIFFER: a wrong result is no gain: 1 of 2 compared",
        "created by cuMemAlloc_v2",
        "condition: events order the work of the 2 streams",
    ] {
        assert!(output.stdout.contains(expected), "{}", output.describe());
    }
    // With as much tolerance, the numbers are equal.
    let output = what_if_with(
        &trace,
        &[&options[..], &["--tolerance", "f32=1"]].concat(),
        &lazy,
    );
    output.assert_code(0);
}

fn json(output: &Output) -> Value {
    serde_json::from_str(&output.stdout).unwrap_or_else(|_| panic!("{}", output.describe()))
}

fn gains_are_predicted_and_measured(folder: &Path) {
    const DELAY: (&str, &str) = ("CUTAPE_NULL_DELAY", "cuStreamSynchronize@*=3ms");
    let trace = folder.join("wait.cutape");
    run(record(&trace, &[], &[program(), "wait", "5"]).env(DELAY.0, DELAY.1)).assert(0);
    let profile = folder.join("profile.json");
    let mut command = parts().cutape(&[&"profile", &trace, &"--driver", &"null"]);
    let text = run(command.env(DELAY.0, DELAY.1));
    text.assert_code(0);
    let advice = "4 times in cuStreamSynchronize before it goes on\n    cutape what-if ";
    assert!(text.stdout.contains(advice), "{}", text.describe());
    command.args(["--format", "json", "-o"]).arg(&profile);
    run(command.env(DELAY.0, DELAY.1)).assert_code(0);
    let summary: Value = serde_json::from_slice(&fs::read(&profile).unwrap()).unwrap();
    let first = &summary["summary"]["advice"][0];
    assert_eq!(first["edit"], "drop-sync", "{first}");
    for options in [
        &["--profile", profile.to_str().unwrap()][..],
        // The trace is profiled first.
        &[],
    ] {
        let options = [
            &["--drop-sync", "cuStreamSynchronize", "--format", "json"],
            options,
        ]
        .concat();
        let output = what_if_with(&trace, &options, &[DELAY]);
        output.assert_code(0);
        let tried = json(&output);
        assert_eq!(tried["edits"][0]["calls"], 5);
        let while_recorded = tried["measured"]["program_ns"].as_f64();
        assert!(while_recorded.is_some_and(|time| time > 15e6), "{tried}");
        for (what, times) in [("predicted", "ns"), ("measured", "median")] {
            let at = |which: &str| {
                let time = &tried[what][which];
                let time = time.get(times).unwrap_or(time);
                time.as_f64()
                    .unwrap_or_else(|| panic!("{what} {which}: {tried}"))
            };
            let gain = (at("recorded_ns") - at("edited_ns")) / 1e6;
            // Five waits of at least 3 ms.
            assert!(gain > 12.0, "{what}: {gain} ms: {tried}");
        }
    }
}

fn a_profile_has_what_predictions_need(folder: &Path) {
    let facts = |case: &str| {
        let trace = recorded(folder, case);
        let command = [&"profile" as &dyn AsRef<_>, &trace, &"--driver", &"null"];
        let output = run(parts().cutape(&command).args(["--format", "json"]));
        output.assert_code(0);
        json(&output)["calls"].clone()
    };
    let of = |calls: &Value, function: &str, member: &str| -> Vec<(u64, Vec<u64>)> {
        let calls = calls.as_object().unwrap().iter();
        let calls = calls.filter(|(_, facts)| facts["function"] == function);
        let mut rows: Vec<_> = calls
            .map(|(call, facts)| {
                let values = facts[member].as_array().into_iter().flatten();
                let values = values.map(|value| value.as_u64().unwrap()).collect();
                (call.parse().unwrap(), values)
            })
            .collect();
        rows.sort();
        rows
    };
    // A wait is for the launch before it.
    let waits = of(&facts("wait"), "cuStreamSynchronize", "awaits");
    assert_eq!(waits.len(), 5);
    for (call, awaits) in waits {
        assert_eq!(awaits, [call - 1]);
    }
    // Four kernels in turns, each with memory of its own.
    let launches = of(&facts("serial"), "cuLaunchKernel", "areas");
    let areas: Vec<&Vec<u64>> = launches.iter().skip(1).map(|launch| &launch.1).collect();
    assert!(areas.iter().all(|areas| areas.len() == 1), "{areas:?}");
    let distinct: std::collections::BTreeSet<_> = areas.iter().take(4).collect();
    assert_eq!((areas.len(), distinct.len()), (20, 4), "{areas:?}");
    assert_eq!(areas[..4], areas[4..8]);
}

fn what_is_wrong_with_the_options_is_said(folder: &Path) {
    let trace = recorded(folder, "wait");
    for (options, expected) in [
        (&[][..], "required"),
        (
            &["--drop-sync", "kernel:no"],
            "--drop-sync kernel:no: no call matches",
        ),
        (&["--graph", "("], "--graph ("),
        (
            &["--launch-shape", "work"],
            "not of the form KERNEL=GRIDxBLOCK",
        ),
        (&["--launch-shape", "no=1x32"], "no kernel `no` is launched"),
        (
            &["--replace-kernel", "work=none.ptx"],
            "--replace-kernel work=none.ptx",
        ),
        (
            &["--drop-sync", "0..", "--calls", "cuInit"],
            "nothing to measure",
        ),
        (&["--drop-sync", "0..", "--tolerance", "f8=1"], "TYPE=T"),
        (
            &["--drop-sync", "0..", "--profile", "none.json"],
            "--profile none.json",
        ),
    ] {
        let output = what_if(&trace, options);
        output.assert_code(2);
        assert!(output.stderr.contains(expected), "{}", output.describe());
    }
}

/// With the parameters of the program's kernel.
const OTHER_KERNEL: &str = "\
.version 7.0
.target sm_70
.address_size 64
.visible .entry work(.param .u64 out, .param .u32 n, .param .u32 rounds)
{
 ret;
}
";

fn check_measures_what_advice_gains(folder: &Path) {
    // Turns, and what the advice then says; the memory of the last has no other place.
    for (case, turns, rule, expected) in [
        (
            "wait",
            "70",
            "performance-sync-in-hot-loop",
            // The null driver runs no kernels.
            [
                "Measured: 70 waits left out: ",
                ", without bytes to compare. (cutape what-if ",
            ],
        ),
        (
            "pageable",
            "40",
            "performance-pageable-copy",
            [
                "Measured: 40 copies of 167772160 bytes with page-locked memory: ",
                ", the same bytes. (cutape what-if ",
            ],
        ),
    ] {
        let trace = folder.join(case).with_extension("cutape");
        run(&mut record(&trace, &[], &[program(), case, turns])).assert(0);
        let mut check =
            parts().cutape(&[&"check", &trace, &"--rules", &rule, &"--format", &"json"]);
        let plain = run(&mut check);
        plain.assert(0);
        assert!(!plain.stdout.contains("easured: "), "{}", plain.stdout);
        check.args(["--measure", "--driver", "null"]);
        let output = run(&mut check);
        output.assert(0);
        let document: Value = serde_json::from_str(&output.stdout).unwrap();
        let advice = document["findings"][0]["advice"].as_str().unwrap();
        for part in expected {
            assert!(advice.contains(part), "{part}: {advice}");
        }
    }
}
