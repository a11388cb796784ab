//! `--rank N FOLDER` of `bench`, `extract` and `trim`: one rank of several, alone.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use cutape_tests::{Output, compile, parts, record, root, run};
use serde_json::Value;

cutape_tests::tests![
    exchanges_are_not_measured_and_are_put_back_in_each_iteration,
    kernels_that_only_exchange_are_not_measured,
    launches_that_do_not_exchange_are_extracted,
    what_is_missing_of_exchanges_is_told,
    memory_of_a_rank_is_trimmed,
    what_cannot_be_is_refused,
];

/// Which launches write 8 bytes where their first parameter points: those that exchange.
const WRITING: &str = "direct@2,direct@3,direct@4,direct@5,through@2";
const NOTHING: (&str, &str) = ("LC_ALL", "C");

/// Two ranks, recorded with the outputs of their exchanges or without.
fn recorded(with_outputs: bool) -> &'static Path {
    static FOLDERS: [OnceLock<PathBuf>; 2] = [const { OnceLock::new() }; 2];
    FOLDERS[usize::from(with_outputs)].get_or_init(|| {
        let folder = parts().new_folder(&format!("one-rank-{with_outputs}"));
        let program = folder.join("exchanges");
        let driver = parts().driver_folder.join("libcuda.so.1");
        let source = root().join("tests/programs/ranks/exchanges.c");
        compile(&source, &program, &[&driver, &"-pthread"]);
        let options: &[&str] = match with_outputs {
            true => &["--outputs-of-exchanges"],
            false => &[],
        };
        let trace = folder.join("run.cutape");
        let mut record = record(&trace, options, &[program.to_str().unwrap()]);
        run(record.env("CUTAPE_NULL_NONDETERMINISTIC", WRITING)).assert_code(0);
        folder
    })
}

fn cutape(verb: &str, given: &Path, options: &[&str], setting: (&str, &str)) -> Output {
    let mut command = parts().cutape(&[&verb, &given]);
    let command = command.args(options).args(["--driver", "null"]);
    run(command.env(setting.0, setting.1))
}

/// Short measurements into a folder of rank 0.
fn bench(output: &Path, options: &[&str], setting: (&str, &str)) -> Output {
    let output = output.join("measurements");
    let quick = [
        "--rank",
        "0",
        "--samples",
        "10",
        "--measure-seconds",
        "0.02",
        "--warm-up-seconds",
        "0.01",
        "--no-plots",
        "--output",
        output.to_str().unwrap(),
    ];
    cutape(
        "bench",
        recorded(true),
        &[&quick, options].concat(),
        setting,
    )
}

fn json(output: &Output) -> Value {
    serde_json::from_str(&output.stdout).unwrap_or_else(|_| panic!("{}", output.describe()))
}

fn exchanges_are_not_measured_and_are_put_back_in_each_iteration(folder: &Path) {
    // Calls 36 and 39 launch; the second exchanges data.
    let calls = ["--calls", "36..41"];
    let output = bench(folder, &[&calls[..], &["--report", "-"]].concat(), NOTHING);
    output.assert(0);
    let report = json(&output);
    let memory = &report["memory"][0];
    // Two launches, two copies and two waits, less the exchange.
    for (member, expected) in [("calls", 4), ("put_copies", 1), ("put_bytes", 8)] {
        assert_eq!(memory[member], expected, "{member}: {report}");
    }
    let exchanges = &report["exchanges"];
    assert_eq!(exchanges["stand_ins"], 2, "{report}");
    assert_eq!(exchanges["bytes_put"], 8, "{report}");
    assert_eq!(exchanges["first_missing"], Value::Null, "{report}");
    let left_out = &exchanges["left_out"][0];
    assert_eq!(left_out["kernel"], "direct", "{report}");
    assert_eq!(left_out["with"], "rank 1", "{report}");
    let text = bench(folder, &calls, NOTHING);
    text.assert(0);
    for line in [
        "exchanges left out: 1 call; what they changed was put back: 8 bytes\n",
        "  the time of these exchanges is not in the figures\n",
        "  each iteration puts back what measured exchanges changed (8 bytes, 1 copy on the \
         device); that time is in the figures\n",
    ] {
        assert!(text.stdout.contains(line), "{}", text.stdout);
    }
    // No other call copies within the device unless memory is restored.
    let failing = ("CUTAPE_NULL_FAIL", "cuMemcpyDtoDAsync_v2=1");
    let failed = bench(folder, &[&calls[..], &["--no-restore"]].concat(), failing);
    failed.assert_code(2);
    let why = "call 39 cuMemcpyDtoDAsync_v2 returned CUDA_ERROR_INVALID_VALUE when it was repeated";
    assert!(failed.stderr.contains(why), "{}", failed.stderr);
    // Five allocations of the program, one that takes the place of the other rank's, and one to
    // restore memory from. Where the device has no room, the copy reads host memory.
    let full = ("CUTAPE_NULL_FAIL", "cuMemAlloc_v2@8=2");
    let from_host = bench(folder, &calls, full);
    from_host.assert(0);
    let line = "(8 bytes, 1 copy from host memory)";
    assert!(from_host.stdout.contains(line), "{}", from_host.stdout);
}

fn kernels_that_only_exchange_are_not_measured(folder: &Path) {
    let each = bench(folder, &["--each-kernel"], NOTHING);
    each.assert(0);
    for line in [
        "direct[1,1]: call 36, launch 1 of 8: direct\n",
        "listed[1,1]: not measured: call 75 exchanges data with rank 1 (memory exported at call ",
    ] {
        assert!(each.stdout.contains(line), "{}", each.stdout);
    }
    assert!(!each.stdout.contains("gpu/listed"), "{}", each.stdout);
    for options in [
        &["--each-kernel", "--calls", "39,42"][..],
        &["--calls", "39"],
    ] {
        let none = bench(folder, options, NOTHING);
        none.assert_code(2);
        let why = "none of the chosen calls can be repeated, the first is call 39: exchanges data \
                   with rank 1 (memory exported at call ";
        assert!(none.stderr.contains(why), "{}", none.stderr);
    }
}

fn launches_that_do_not_exchange_are_extracted(folder: &Path) {
    let all = folder.join("all");
    let target = all.to_str().unwrap();
    let options = [target, "--rank", "1", "--all", "--report", "-"];
    let extracted = cutape("extract", recorded(true), &options, NOTHING);
    extracted.assert(0);
    let index = json(&extracted);
    let calls = index["launches"].as_array().unwrap().iter();
    let calls: Vec<&Value> = calls.map(|launch| &launch["call"]).collect();
    assert_eq!(calls, [36, 51, 55, 63], "{index}");
    let left_out = index["left_out"].as_object().unwrap();
    let why = "the replay does not issue it: exchanges data with rank 0 (memory exported at call ";
    assert!(left_out.keys().all(|key| key.starts_with(why)), "{index}");
    let missing = &index["exchanges"]["first_missing"]["why"];
    assert_eq!(missing, "it is captured into a graph", "{index}");

    let one = folder.join("one");
    let target = one.to_str().unwrap();
    let extract = |call| {
        let options = [target, "--rank", "0", "--launch", call];
        cutape("extract", recorded(true), &options, NOTHING)
    };
    let refused = extract("39");
    refused.assert_code(2);
    let why = "--launch 39: it exchanges data with rank 1, so that it cannot be made without other \
               processes; extract launches that use only memory of their own rank";
    assert!(refused.stderr.contains(why), "{}", refused.stderr);
    assert!(!one.exists());
    let extracted = extract("63");
    extracted.assert(0);
    let note =
        "note: 5 exchanges with other ranks left out; what they changed was put back: 40 bytes";
    assert!(extracted.stdout.contains(note), "{}", extracted.stdout);
    let readme = fs::read_to_string(one.join("README.md")).unwrap();
    let sentence = "Work that exchanges data with other ranks was left out";
    assert!(readme.replace('\n', " ").contains(sentence), "{readme}");
}

fn what_is_missing_of_exchanges_is_told(folder: &Path) {
    let target = folder.join("one");
    let options = [target.to_str().unwrap(), "--rank", "0", "--launch", "63"];
    let extracted = cutape("extract", recorded(false), &options, NOTHING);
    extracted.assert(0);
    let missing = "what call 39 changed is missing: the trace does not have what it changed: \
                   record with --outputs-of-exchanges";
    assert!(extracted.stdout.contains(missing), "{}", extracted.stdout);
    let trace = recorded(false).join("run.rank0.cutape");
    let output = folder.join("part.cutape");
    let output = output.to_str().unwrap();
    let state = ["--calls", "63..65", "--state", "replay", "-o", output];
    for (given, options, missing) in [
        (recorded(false), &["--rank", "0"][..], missing),
        (
            &trace,
            &[],
            "what call 39 changed is missing: work on memory of another process or API",
        ),
    ] {
        let trimmed = cutape("trim", given, &[&state, options].concat(), NOTHING);
        trimmed.assert_code(2);
        assert!(trimmed.stderr.contains(missing), "{}", trimmed.stderr);
        assert!(!Path::new(output).exists());
    }
    // minimize replays without the others.
    let options = ["--keep-divergence", "-o", output];
    let minimized = cutape("minimize", &trace, &options, NOTHING);
    minimized.assert_code(2);
    let why = "its replay has no divergence; what call 39 changed is missing (";
    assert!(minimized.stderr.contains(why), "{}", minimized.stderr);
}

fn memory_of_a_rank_is_trimmed(folder: &Path) {
    let part = folder.join("part.cutape");
    let options = [
        "--rank",
        "0",
        "--calls",
        "63..65",
        "--state",
        "replay",
        "-o",
        part.to_str().unwrap(),
    ];
    cutape("trim", recorded(true), &options, NOTHING).assert_code(0);
    let replayed = cutape("replay", &part, &["--format", "json"], NOTHING);
    replayed.assert(0);
    let report = json(&replayed);
    assert_eq!(report["launches"], 1, "{report}");
    // What the exchange before it had changed is in the memory that is stored.
    assert_eq!(report["bytes_compared"], 256, "{report}");
}

fn what_cannot_be_is_refused(folder: &Path) {
    let traces = recorded(true);
    let trace = traces.join("run.rank0.cutape");
    let output = folder.join("output");
    let output = output.to_str().unwrap();
    for (verb, rest) in [
        ("bench", &["--output", output][..]),
        ("extract", &[output, "--all"]),
        ("trim", &["--calls", "1..3", "-o", output]),
    ] {
        for (given, options, why) in [
            (
                traces,
                &[][..],
                "a folder; --rank N takes the trace of rank N in it",
            ),
            (
                &trace,
                &["--rank", "0"],
                "--rank chooses a trace of a folder",
            ),
            (
                traces,
                &["--rank", "5"],
                "no trace of rank 5; the folder has ranks 0, 1",
            ),
        ] {
            let refused = cutape(verb, given, &[rest, options].concat(), NOTHING);
            refused.assert_code(2);
            assert!(refused.stderr.contains(why), "{verb}: {}", refused.stderr);
            assert!(!Path::new(output).exists(), "{verb}");
        }
    }
}
