//! `cutape bench` on the null driver.
//!
//! No test checks a time. For a verdict, launches take 5 ms on one side and microseconds on the
//! other.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use cutape_tests::{Output, compiled, parts, record, run};
use serde_json::Value;

cutape_tests::tests![
    the_whole_trace_is_measured_as_one,
    payloads_that_are_only_hashes_are_reported,
    a_set_of_calls_is_measured_in_its_state,
    each_kernel_is_compared_with_a_baseline,
    an_improvement_is_not_a_regression,
    two_drivers_are_compared,
    a_replaced_kernel_must_have_the_same_name_and_parameters,
    what_cannot_be_measured_is_refused,
    a_driver_that_fails_or_crashes_is_reported_with_the_call,
];

/// A recorded program with launches of four kernels, copies, memsets and a stream.
fn trace() -> &'static Path {
    static TRACE: OnceLock<PathBuf> = OnceLock::new();
    TRACE.get_or_init(|| {
        let trace = parts().new_folder("bench-trace").join("recorded.cutape");
        run(&mut record(
            &trace,
            &[],
            &[&compiled("clean/launch_vector_add")],
        ))
        .assert(0);
        trace
    })
}

/// Short measurements, with thresholds far above the noise of any machine.
const QUICK: [&str; 10] = [
    "--samples",
    "10",
    "--measure-seconds",
    "0.02",
    "--warm-up-seconds",
    "0.01",
    "--threshold",
    "900",
    "--host-threshold",
    "900",
];

/// Measures with these options, into that folder.
fn bench(output: &Path, options: &[&str], delay: Option<&str>) -> Output {
    let mut command = parts().cutape(&[&"bench", &trace(), &"--output", &output]);
    command.args(QUICK).args(options).arg("--no-plots");
    if !options.contains(&"--driver") {
        command.args(["--driver", "null"]);
    }
    if let Some(delay) = delay {
        command.env("CUTAPE_NULL_DELAY", delay);
    }
    run(&mut command)
}

fn json(output: &Output) -> Value {
    serde_json::from_str(&output.stdout).unwrap_or_else(|_| panic!("{}", output.describe()))
}

/// One member of all entries of a list.
fn all<'v>(report: &'v Value, list: &str, member: &str) -> Vec<&'v str> {
    let list = report[list].as_array().unwrap().iter();
    list.map(|entry| entry[member].as_str().unwrap()).collect()
}

fn the_whole_trace_is_measured_as_one(folder: &Path) {
    let mut command = parts().cutape(&[&"bench", &trace(), &"--output", &folder]);
    command
        .args(QUICK)
        .args(["--driver", "null", "--report", "-"]);
    let output = run(&mut command);
    output.assert(0);
    let report = json(&output);
    assert_eq!(all(&report, "benchmarks", "name"), ["trace"; 2]);
    assert_eq!(all(&report, "benchmarks", "clock"), ["gpu", "host"]);
    assert_eq!(all(&report, "benchmarks", "verdict"), ["not-compared"; 2]);
    assert!(all(&report, "not_repeated", "function").contains(&"cuMemAlloc_v2"));
    assert!(all(&report, "deferred", "function").contains(&"cuMemFree_v2"));
    // The two buffers that the program copies into; the memset of the third changes nothing.
    assert_eq!(report["memory"][0]["restored_bytes"], 800_000);
    assert_eq!(report["memory"][0]["calls"], 17);
    assert!(folder.join("report/index.html").is_file());
    assert!(folder.join("gpu/trace/last/estimates.json").is_file());
}

fn payloads_that_are_only_hashes_are_reported(folder: &Path) {
    let hashed = folder.join("hashed.cutape");
    let mut pack = parts().cutape(&[&"pack", &trace(), &"-o", &hashed]);
    run(pack.args(["--payloads", "hash", "--outputs", "hash"])).assert_code(0);
    let mut command = parts().cutape(&[&"bench", &hashed, &"--output", &folder]);
    let output = run(command.args(QUICK).args(["--driver", "null", "--no-plots"]));
    output.assert(0);
    let note = "note: of host bytes the trace has only a hash: zeros were copied instead";
    assert!(output.stdout.contains(note), "{}", output.describe());
}

fn a_set_of_calls_is_measured_in_its_state(folder: &Path) {
    let options = [
        "--calls",
        "cuMemcpyHtoD",
        "--clock",
        "host",
        "--report",
        "-",
    ];
    let output = bench(folder, &options, None);
    output.assert(0);
    let report = json(&output);
    assert_eq!(all(&report, "benchmarks", "name"), ["calls cuMemcpyHtoD"]);
    assert_eq!(report["memory"][0]["calls"], 5);
    assert!(report["between"].as_u64().unwrap() > 0, "{report}");
}

fn each_kernel_is_compared_with_a_baseline(folder: &Path) {
    let launches = ["--each-kernel", "--calls", "kernel:saxpy,kernel:vector_add"];
    let with = |more: &[&str], delay| bench(folder, &[&launches[..], more].concat(), delay);
    let unknown = with(&["--baseline", "fast"], None);
    unknown.assert_code(2);
    assert!(
        unknown.stderr.contains("--save-baseline fast"),
        "{}",
        unknown.stderr
    );

    let saved = with(&["--save-baseline", "fast"], None);
    saved.assert(0);
    assert!(saved.stdout.contains("saved as fast"), "{}", saved.stdout);
    assert!(
        saved
            .stdout
            .contains("saxpy[16,128]: call 28, launch 1 of 1: saxpy")
    );

    let slower = with(
        &["--baseline", "fast", "--report", "-"],
        Some("cuLaunchKernel=5ms"),
    );
    slower.expect_code(1).unwrap();
    let report = json(&slower);
    assert_eq!(all(&report, "benchmarks", "verdict"), ["regression"; 4]);
    assert_eq!(
        all(&report, "benchmarks", "name"),
        [
            "vector_add[32,256]",
            "vector_add[32,256]",
            "saxpy[16,128]",
            "saxpy[16,128]"
        ]
    );

    // Both sides sleep for 5 ms, which noise does not make ten times longer.
    let slow = Some("cuLaunchKernel=5ms");
    with(&["--save-baseline", "slow", "--clock", "gpu"], slow).assert(0);
    let same = with(&["--baseline", "slow", "--clock", "gpu"], slow);
    same.assert(0);
    assert!(same.stdout.contains("2 unchanged"), "{}", same.stdout);

    // Benchmarks that the baseline does not have are reported.
    let options = ["--each-kernel", "--baseline", "slow", "--clock", "gpu"];
    let more = bench(folder, &options, slow);
    more.assert(0);
    assert!(
        more.stdout.contains("not in the baseline"),
        "{}",
        more.stdout
    );
}

fn an_improvement_is_not_a_regression(folder: &Path) {
    let options = |more: [&'static str; 2]| ["--calls", "kernel:saxpy", more[0], more[1]];
    bench(
        folder,
        &options(["--save-baseline", "slow"]),
        Some("cuLaunchKernel=5ms"),
    )
    .assert(0);
    let faster = bench(folder, &options(["--baseline", "slow"]), None);
    faster.assert(0);
}

fn two_drivers_are_compared(folder: &Path) {
    let options = [
        "--calls",
        "kernel:saxpy",
        "--clock",
        "host",
        "--driver",
        "null",
        "--driver",
        "null",
    ];
    let output = bench(folder, &options, Some("cuLaunchKernel=5ms"));
    output.assert(0);
    for words in ["(first driver)", "(second driver)", "1 benchmark compared"] {
        assert!(output.stdout.contains(words), "{}", output.stdout);
    }
    let refused = bench(folder, &[&options[..], &["--baseline", "x"]].concat(), None);
    refused.assert_code(2);
    assert!(refused.stderr.contains("remove --baseline"));
}

/// A PTX text with one kernel.
fn ptx(folder: &Path, name: &str, kernel: &str, parameters: &str) -> String {
    let path = folder.join(name);
    let text = format!(
        ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry {kernel}({parameters})\n{{\n ret;\n}}\n"
    );
    fs::write(&path, text).unwrap();
    path.into_os_string().into_string().unwrap()
}

fn a_replaced_kernel_must_have_the_same_name_and_parameters(folder: &Path) {
    let same = ".param .u32 a, .param .f32 b, .param .u64 c, .param .u64 d";
    let good = ptx(folder, "good.ptx", "saxpy", same);
    let renamed = ptx(folder, "renamed.ptx", "saxpy_fast", same);
    let narrow = ptx(folder, "narrow.ptx", "saxpy", ".param .u32 a");
    let text = folder.join("text");
    fs::write(&text, "nothing").unwrap();
    for (option, status, words) in [
        (format!("saxpy={good}"), 0, "results were not compared"),
        (format!("saxpy*={renamed}"), 0, "gpu/saxpy[16,128] replaced"),
        (
            format!("saxpy={renamed}"),
            2,
            "has no matching kernel (saxpy in the recording); it has saxpy_fast",
        ),
        (
            format!("saxpy={narrow}"),
            2,
            "takes other parameters than the recorded kernel: 0+4, recorded 0+4 4+4 8+8 16+8",
        ),
        (
            format!("sgemm={good}"),
            2,
            "no kernel `sgemm` is launched; the trace has `",
        ),
        (format!("saxpy={good}.gone"), 2, "No such file"),
        (
            format!("saxpy={}", text.display()),
            2,
            "not a readable cubin, fatbin or PTX",
        ),
        ("saxpy".to_owned(), 2, "not of the form KERNEL=FILE"),
    ] {
        let output = bench(
            &folder.join("out"),
            &["--replace", &option, "--clock", "gpu"],
            None,
        );
        output.assert_code(status);
        let place = match status {
            0 => &output.stdout,
            _ => &output.stderr,
        };
        assert!(place.contains(words), "{option}: {}", output.describe());
    }
}

fn what_cannot_be_measured_is_refused(folder: &Path) {
    for (options, words) in [
        (
            &["--calls", "99999"][..],
            "no call matches: the trace has calls",
        ),
        (
            &["--calls", "cuInit"],
            "none of the chosen calls can be repeated",
        ),
        (
            &["--calls", "cuMemAlloc", "--each-kernel"],
            "no launch of the trace matches",
        ),
        (&["--calls", "nonsense("], "--calls"),
        (&["--tolerance", "f32=1"], "--tolerance applies only"),
        (&["--tolerance", "f8=1", "--replace", "a=b"], "TYPE=T"),
        (&["--baseline", "a/b"], "not a valid name"),
        (&["--save-baseline", "new"], "not a valid name"),
        (
            &["--baseline", "a", "--save-baseline", "b"],
            "cannot be used with",
        ),
        (&["--no-restore", "--replace", "a=b"], "cannot be used with"),
    ] {
        let output = bench(folder, options, None);
        output.assert_code(2);
        assert!(output.stderr.contains(words), "{}", output.describe());
    }
    for (option, value) in [
        ("--samples", "9"),
        ("--measure-seconds", "0"),
        ("--warm-up-seconds", "4000"),
        ("--threshold", "-1"),
    ] {
        let option = format!("{option}={value}");
        let mut command = parts().cutape(&[&"bench", &"--driver", &"null", &trace(), &option]);
        let output = run(&mut command);
        output.assert_code(2);
        assert!(output.stderr.contains(value), "{}", output.describe());
    }
}

fn a_driver_that_fails_or_crashes_is_reported_with_the_call(folder: &Path) {
    for (variable, value, words) in [
        (
            "CUTAPE_NULL_CRASH",
            "cuLaunchKernel@30",
            "died by signal 11 in call",
        ),
        (
            "CUTAPE_NULL_FAIL",
            "cuLaunchKernel@30=700",
            "cuLaunchKernel returned CUDA_ERROR_ILLEGAL_ADDRESS when it was repeated",
        ),
    ] {
        let mut command = parts().cutape(&[
            &"bench",
            &"--driver",
            &"null",
            &trace(),
            &"--output",
            &folder,
        ]);
        command
            .args(QUICK)
            .args(["--no-plots", "--calls", "kernel:saxpy"])
            .env(variable, value);
        let output = run(&mut command);
        output.assert_code(2);
        assert!(output.stderr.contains(words), "{}", output.describe());
    }
}
