//! `cutape diff`: two recordings of one program have no difference, and each change is named in the
//! first line.

use std::fs;
use std::path::{Path, PathBuf};

use cutape_format::Trace;
use cutape_tests::{Output, Variant, changed, files, parts, programs, record, run};
use serde_json::Value;

cutape_tests::tests![
    two_recordings_of_a_correct_program_are_equal,
    each_change_is_in_the_first_line,
    results_of_the_driver_that_differ_are_in_the_first_line,
    noise_of_two_recordings_is_left_out,
    the_first_launch_whose_digest_differs_is_named,
    other_payload_policies,
    every_format,
    bad_input,
];

fn diff(traces: [&Path; 2], options: &[&str]) -> Output {
    let mut command = parts().cutape(&[&"diff", &traces[0], &traces[1]]);
    run(command.args(options))
}

fn first_line(output: &Output) -> &str {
    output.stdout.lines().next().unwrap_or("")
}

/// Records a program with a setting of the null driver.
fn recorded(folder: &Path, name: &str, program: &str, setting: &str) -> PathBuf {
    let variables = Some(("CUTAPE_NULL_FAIL", setting)).filter(|_| !setting.is_empty());
    recorded_with(folder, name, program, variables)
}

/// Records a program with an environment variable.
fn recorded_with(
    folder: &Path,
    name: &str,
    program: &str,
    variable: Option<(&str, &str)>,
) -> PathBuf {
    let trace = folder.join(format!("{name}.cutape"));
    let mut command = record(&trace, &[], &[program]);
    command.envs(variable);
    run(&mut command);
    trace
}

fn two_recordings_of_a_correct_program_are_equal(folder: &Path) {
    let mut moved = 0;
    let mut wrong = Vec::new();
    for program in programs().unwrap() {
        if program.variant != Variant::Correct || !program.name.starts_with("clean/") {
            continue;
        }
        let binary = program.compile(parts()).unwrap();
        let sides = ["a", "b"].map(|side| {
            let place = folder.join(program.name.replace('/', ".")).join(side);
            fs::create_dir_all(&place).unwrap();
            let trace = place.join("trace.cutape");
            let mut command = record(&trace, &[], &[binary.to_str().unwrap()]);
            // More variables move the stack, also where addresses are not randomised.
            if side == "b" {
                command.env("CUTAPE_TEST_PADDING", "x".repeat(5000));
            }
            command.envs(
                program
                    .environment
                    .iter()
                    .map(|(name, value)| (name, value)),
            );
            run(&mut command).assert_code(0);
            // One for each process; in the name of a child's is its number.
            files(&place)
        });
        assert_eq!(sides[0].len(), sides[1].len(), "{}", program.name);
        for (a, b) in sides[0].iter().zip(&sides[1]) {
            for output in [diff([a, b], &[]), diff([a, a], &["--all"])] {
                let is_right = first_line(&output).starts_with("no differences: ");
                if output.code() != Some(0) || !is_right {
                    wrong.push(output.describe());
                }
            }
            let caller =
                |trace: &Path| Trace::open(trace).unwrap().calls().next().map(|c| c.caller);
            moved += usize::from(caller(a) != caller(b));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // Otherwise the addresses were the same, and nothing was tested.
    assert!(moved > 10, "{moved} programs had other addresses");
}

fn each_change_is_in_the_first_line(folder: &Path) {
    let base = changed(folder, "base", &[]);
    let base = recorded(folder, "base", &base, "");
    for (macros, kind, needles) in [
        (
            "CHANGED_KERNEL",
            "code",
            &["cuModuleLoadData", "code of fill differs"][..],
        ),
        (
            "CHANGED_SHAPE",
            "shape",
            &["cuLaunchKernel fill", "block 256x1x1 → 128x1x1"],
        ),
        (
            "CHANGED_PARAMETER",
            "argument",
            &["cuLaunchKernel fill", "kernel parameter 1 1001 → 7"],
        ),
        (
            "CHANGED_DATA",
            "data",
            &["cuMemcpyHtoD_v2", "srcHost from byte 2800 of 4096: 34 08"],
        ),
        (
            "LEAKED_MODULE",
            "leak",
            &["cuModuleUnload: in A only", "B leaks module#2"],
        ),
        (
            "MORE_CALLS",
            "call",
            &["cuEventCreate: in B only, and the 2 calls after it"],
        ),
        (
            "REORDERED",
            "order",
            &["cuMemsetD32Async: threads reordered at stream#1: before cuMemsetD32Async of thread"],
        ),
        ("RESTARTED", "", &["no differences: "]),
        ("COMMENTED", "", &["no differences: "]),
    ] {
        let program = changed(folder, macros, &[macros]);
        let other = recorded(folder, macros, &program, "");
        let output = diff([&base, &other], &[]);
        output.assert_code(if kind.is_empty() { 0 } else { 1 });
        for needle in needles {
            let line = first_line(&output);
            assert!(
                line.contains(needle),
                "{macros}: {needle}: {}",
                output.describe()
            );
        }
        let output = diff([&base, &other], &["--format", "json"]);
        let json: Value = serde_json::from_str(&output.stdout).unwrap();
        let kinds: Vec<&String> = json["counts"].as_object().unwrap().keys().collect();
        let expected: &[&str] = match kind {
            "" => &[],
            kind => &[kind],
        };
        assert_eq!(kinds, expected, "{macros}: {}", output.describe());
        // What is left out is no difference.
        if !kind.is_empty() {
            let output = diff([&base, &other], &["--ignore", kind]);
            output.assert_code(0);
        }
    }
}

fn results_of_the_driver_that_differ_are_in_the_first_line(folder: &Path) {
    let program = changed(folder, "program", &[]);
    let base = recorded(folder, "base", &program, "");
    for (setting, needle) in [
        (
            "cuStreamSynchronize@2=700",
            "cuStreamSynchronize: returned CUDA_SUCCESS → CUDA_ERROR_ILLEGAL_ADDRESS",
        ),
        (
            "cuMemAlloc@2=2",
            "cuMemAlloc_v2: returned CUDA_SUCCESS → CUDA_ERROR_OUT_OF_MEMORY",
        ),
    ] {
        let other = recorded(folder, "other", &program, setting);
        let output = diff([&base, &other], &[]);
        output.assert_code(1);
        assert!(
            first_line(&output).contains(needle),
            "{setting}: {}",
            output.describe()
        );
        // The program ends there, which is one difference for each thread.
        assert!(output.stdout.contains("in A only"), "{}", output.describe());
        fs::remove_file(other).unwrap();
    }
}

fn noise_of_two_recordings_is_left_out(folder: &Path) {
    let program = changed(folder, "padded", &["PADDED"]);
    let other = changed(folder, "changed", &["PADDED_CHANGED"]);
    let padded = |name: &str, program: &str, padding: &str| {
        recorded_with(folder, name, program, Some(("PADDING", padding)))
    };
    let [a, again, noise] = [("a", "1"), ("again", "2"), ("noise", "3")]
        .map(|(name, padding)| padded(name, &program, padding));
    let b = padded("b", &other, "4");
    let plain = diff([&a, &again], &[]);
    plain.assert_code(1);
    let line = first_line(&plain);
    assert!(
        line.contains("cuLaunchKernel by_struct: ") && line.contains("0 at byte 24"),
        "{}",
        plain.describe()
    );
    let options = ["--noise", noise.to_str().unwrap()];
    let same = diff([&a, &again], &options);
    same.assert_code(0);
    assert!(
        first_line(&same).starts_with("no differences: "),
        "{}",
        same.describe()
    );
    let changed = diff([&a, &b], &options);
    changed.assert_code(1);
    // The word of b, whose padding does not count.
    let needle = "cuLaunchKernel by_struct: kernel parameter 0 at byte 8";
    assert!(
        first_line(&changed).contains(needle) && !changed.stdout.contains("byte 24"),
        "{}",
        changed.describe()
    );
    // Calls, results and bytes that differ between A and its other recording do not count either.
    let base = changed_recording(folder, "MORE_CALLS");
    let more = recorded(folder, "more", &base, "");
    for setting in ["cuStreamSynchronize@2=700", "fill"] {
        let program = changed_recording(folder, "COMMENTED");
        let (name, value) = match setting {
            "fill" => ("CUTAPE_NULL_NONDETERMINISTIC", setting),
            _ => ("CUTAPE_NULL_FAIL", setting),
        };
        let sides = ["one", "two", "three"].map(|side| {
            let trace = folder.join(format!("{side}.cutape"));
            let _ = fs::remove_file(&trace);
            run(record(&trace, &[], &[&program]).env(name, value));
            trace
        });
        let [one, two, three] = &sides;
        let options = ["--noise", three.to_str().unwrap()];
        diff([one, two], &options).assert_code(0);
        let output = diff([one, &more], &options);
        output.assert_code(1);
        let json = diff([one, two], &[&options[..], &["--format", "json"]].concat());
        let json: Value = serde_json::from_str(&json.stdout).unwrap();
        let is_varying = setting == "fill";
        assert_eq!(json["noise"].as_u64() > Some(0), is_varying, "{json:#}");
        if is_varying {
            let line = first_line(&output);
            assert!(
                line.contains("cuEventCreate: in B only"),
                "{}",
                output.describe()
            );
        }
    }
}

fn changed_recording(folder: &Path, name: &str) -> String {
    changed(folder, name, &[name])
}

fn the_first_launch_whose_digest_differs_is_named(folder: &Path) {
    let program = changed(folder, "program", &[]);
    let recorded = |name: &str, kernel: &str| {
        let trace = folder.join(format!("{name}.cutape"));
        let mut command = record(&trace, &["--digests=launch"], &[&program]);
        if !kernel.is_empty() {
            command.env("CUTAPE_NULL_NONDETERMINISTIC", kernel);
        }
        run(&mut command).assert_code(0);
        trace
    };
    let (a, same, other) = (
        recorded("a", ""),
        recorded("same", ""),
        recorded("other", "fill@2"),
    );
    diff([&a, &same], &[]).assert_code(0);
    let output = diff([&a, &other], &[]);
    output.assert_code(1);
    let open = Trace::open(&a).unwrap();
    let mut launches = open.calls().filter(|call| {
        let name = call.signature.name.as_str();
        name == "cuLaunchKernel"
    });
    // The kernels fill and nothing in turns.
    let second = launches.nth(2).unwrap().index;
    let needle =
        format!("call {second} of A, {second} of B: cuLaunchKernel fill: digest of device memory");
    assert!(
        first_line(&output).contains(&needle),
        "{}",
        output.describe()
    );
}

fn other_payload_policies(folder: &Path) {
    let program = changed(folder, "program", &[]);
    let other = changed(folder, "other", &["CHANGED_DATA"]);
    let traces: Vec<PathBuf> = [
        (&program, "all"),
        (&program, "hash"),
        (&program, "none"),
        (&other, "hash"),
        (&other, "none"),
    ]
    .into_iter()
    .enumerate()
    .map(|(number, (program, policy))| {
        let trace = folder.join(format!("{number}.cutape"));
        let options = ["--payloads", policy, "--outputs", policy];
        run(&mut record(&trace, &options, &[program])).assert_code(0);
        trace
    })
    .collect();
    for (a, b, code) in [
        (0, 1, 0),
        (0, 2, 0),
        (1, 2, 0),
        (0, 3, 1),
        (1, 3, 1),
        (0, 4, 0),
    ] {
        let output = diff([&traces[a], &traces[b]], &[]);
        output.assert_code(code);
        let by_length = output.stdout.contains("compared by length only");
        assert_eq!(
            by_length,
            a == 2 || b == 2 || b == 4,
            "{}",
            output.describe()
        );
    }
}

fn every_format(folder: &Path) {
    let base = changed(folder, "base", &[]);
    let other = changed(folder, "other", &["CHANGED_SHAPE"]);
    let a = recorded(folder, "a", &base, "");
    let b = recorded(folder, "b", &other, "");
    let output = diff([&a, &b], &["--format", "json", "--times"]);
    let json: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(json["differs"], true);
    assert_eq!(json["differences"][0]["a"]["kernel"], "fill");
    assert_eq!(json["differences"][0]["changes"][0]["what"], "block");
    assert_eq!(json["differences"][0]["changes"][0]["values"][1], "128x1x1");
    assert!(
        json["times"]
            .as_array()
            .is_some_and(|times| times.len() > 5)
    );
    let report = folder.join("report.xml");
    let options = ["--format", "junit", "--report", report.to_str().unwrap()];
    let output = diff([&a, &b], &options);
    output.assert_code(1);
    assert_eq!(output.stdout, "");
    let junit = fs::read_to_string(&report).unwrap();
    assert!(
        junit.contains("failures=\"1\"") && junit.contains("256x1x1"),
        "{junit}"
    );
    let also = folder.join("also.xml");
    let output = diff([&a, &b], &["--junit", also.to_str().unwrap()]);
    assert!(
        output.stdout.contains("first difference"),
        "{}",
        output.stdout
    );
    assert_eq!(fs::read_to_string(&also).unwrap(), junit);
    let output = diff([&a, &a], &["--format", "junit"]);
    output.assert_code(0);
    assert!(
        output.stdout.contains("failures=\"0\""),
        "{}",
        output.stdout
    );
    let output = diff([&a, &b], &["--times"]);
    assert!(
        output.stdout.contains("Durations of calls on the host"),
        "{}",
        output.stdout
    );
}

fn bad_input(folder: &Path) {
    let program = changed(folder, "program", &[]);
    let good = recorded(folder, "good", &program, "");
    let text = folder.join("text.cutape");
    fs::write(&text, "no trace").unwrap();
    let cut = folder.join("cut.cutape");
    let bytes = fs::read(&good).unwrap();
    fs::write(&cut, &bytes[..bytes.len() / 2]).unwrap();
    let missing = folder.join("missing.cutape");
    for bad in [&text, &cut, &missing] {
        for pair in [[&*good, &**bad], [&**bad, &*good]] {
            let output = diff(pair, &[]);
            output.assert_code(2);
            assert_eq!(output.stdout, "", "{}", output.describe());
            assert_eq!(output.stderr.lines().count(), 1, "{}", output.describe());
            assert!(
                output.stderr.contains(bad.to_str().unwrap()),
                "{}",
                output.describe()
            );
        }
    }
    let output = diff([&good, &good], &["--report", good.to_str().unwrap()]);
    output.assert_code(2);
    assert_eq!(fs::read(&good).unwrap(), bytes);
    diff([&good, &good], &["--ignore", "weather"]).assert_code(2);
    for bad in [&text, &cut, &missing] {
        let output = diff([&good, &good], &["--noise", bad.to_str().unwrap()]);
        output.assert_code(2);
        assert_eq!(output.stderr.lines().count(), 1, "{}", output.describe());
    }
}
