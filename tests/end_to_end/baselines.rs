//! Baselines: they hold when the program is built again from changed sources, and hide no second
//! mistake. And why a rule has no finding at a call.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use cutape_tests::{Verdict, compiled, parts, record, root, run};
use serde_json::Value;

cutape_tests::tests![
    a_baseline_holds_after_a_rebuild_in_cpp,
    a_baseline_holds_after_an_edit_in_python,
    files_of_earlier_versions_still_work,
    silence_is_explained,
];

const MARK: &str = "More lines go here";

/// A program in this folder, with lines added before each mark that ends so.
fn edited(name: &str, folder: &Path, place: &str, lines: usize) -> PathBuf {
    let source = root().join("tests/programs/baselines").join(name);
    let text = fs::read_to_string(source).unwrap();
    let edited: Vec<String> = text
        .lines()
        .map(|line| match line.contains(MARK) && line.contains(place) {
            true => format!("{}{line}", "\n".repeat(lines)),
            false => line.to_owned(),
        })
        .collect();
    let path = folder.join(name);
    fs::write(&path, edited.join("\n") + "\n").unwrap();
    path
}

fn built(source: &Path, options: &[&str]) -> String {
    let program = source.with_extension("");
    let programs = root().join("tests/programs");
    let mut command = Command::new(std::env::var_os("CXX").unwrap_or_else(|| "c++".into()));
    command.args(["-std=gnu++17", "-O1", "-g"]).args(options);
    command.arg("-I").arg(programs.join("include"));
    command.arg("-I").arg(programs).arg("-o").arg(&program);
    command
        .arg(source)
        .arg(parts().driver_folder.join("libcuda.so.1"));
    run(&mut command).assert(0);
    program.to_str().unwrap().to_owned()
}

/// The result of a check of a recording of the program: status and JSON.
fn checked(folder: &Path, options: &[&str], program: &[&str], more: &[&str]) -> (i32, Value) {
    let trace = folder.join("trace.cutape");
    let _ = fs::remove_file(&trace);
    run(&mut record(&trace, options, program)).assert(0);
    let mut command = parts().cutape(&[&"check", &"--format", &"json"]);
    let output = run(command.args(more).arg(&trace));
    let json = serde_json::from_str(&output.stdout);
    (
        output.code().unwrap(),
        json.unwrap_or_else(|error| panic!("{error}: {}", output.describe())),
    )
}

/// The program as it is gives a baseline; then it is edited, and gets a second mistake.
fn expect_that_it_lasts(
    folder: &Path,
    options: &[&str],
    program: &dyn Fn(&str, usize, bool) -> Vec<String>,
) {
    let baseline = folder.join("known.json");
    let baseline = baseline.to_str().unwrap();
    let check = |place: &str, lines: usize, has_second: bool, more: &[&str]| {
        let program = program(place, lines, has_second);
        let words: Vec<&str> = program.iter().map(String::as_str).collect();
        checked(folder, options, &words, more)
    };
    let (code, found) = check("", 0, false, &["--write-baseline", baseline]);
    let rule = &found["findings"][0]["rule"];
    assert_eq!(
        (code, rule),
        (1, &Value::from("memory-double-free")),
        "{found}"
    );
    for (place, lines) in [("", 0), ("elsewhere", 7), ("same function", 3), ("", 5)] {
        let with = &["--baseline", baseline];
        let (code, left) = check(place, lines, false, with);
        let known = &left["omitted"]["known"];
        assert_eq!(
            (code, known),
            (0, &Value::from(1)),
            "{place} {lines}: {left}"
        );
        let (code, left) = check(place, lines, true, with);
        let new = left["findings"].as_array().unwrap();
        assert_eq!((code, new.len()), (1, 1), "{place} {lines}: {left}");
        let names = new[0]["key"]["names"].as_str().unwrap();
        assert!(names.contains("cache"), "{names}");
        assert_eq!(left["omitted"]["known"], 1, "{left}");
    }
}

fn a_baseline_holds_after_a_rebuild_in_cpp(folder: &Path) {
    let program = |place: &str, lines: usize, has_second: bool| {
        let source = edited("pool.cpp", folder, place, lines);
        let options: &[&str] = if has_second { &["-DSECOND"] } else { &[] };
        vec![built(&source, options)]
    };
    expect_that_it_lasts(folder, &["--stacks"], &program);
    // What is edited without a stack to tell by is one of two allocations by the same call.
    let (code, found) = checked(folder, &[], &[&program("", 0, false)[0]], &[]);
    let names = found["findings"][0]["key"]["names"].as_str().unwrap();
    assert_eq!(code, 1);
    assert_eq!(
        names,
        "memory-double-free: cuMemFree in Pool::release(unsigned long long) in pool; memory of \
         cuMemAlloc in Pool::allocate(unsigned long) in pool"
    );
}

fn a_baseline_holds_after_an_edit_in_python(folder: &Path) -> Verdict {
    let python = run(Command::new("python3").args([
        "-c",
        "import ctypes, sys, os; assert (3, 9) <= sys.version_info[:2] <= (3, 14); \
         print(os.path.realpath(sys.executable))",
    ]));
    if python.code() != Some(0) {
        return Verdict::Ignored("there is no Python 3.9 to 3.14 with ctypes".to_owned());
    }
    let python = python.stdout.trim();
    expect_that_it_lasts(folder, &["--stacks"], &|place, lines, has_second| {
        let script = edited("pool.py", folder, place, lines);
        let mut words = vec![python.to_owned(), script.to_str().unwrap().to_owned()];
        words.extend(has_second.then(|| "second".to_owned()));
        words
    });
    Verdict::Passed
}

/// Findings without keys, by rule, function and caller.
fn files_of_earlier_versions_still_work(folder: &Path) {
    let program = built(&edited("pool.cpp", folder, "", 0), &["-DSECOND"]);
    let (_, mut found) = checked(folder, &[], &[&program], &[]);
    for finding in found["findings"].as_array_mut().unwrap() {
        finding.as_object_mut().unwrap().remove("key");
    }
    let old = folder.join("old.json");
    fs::write(&old, found.to_string()).unwrap();
    let trace = folder.join("trace.cutape");
    let output = run(&mut parts().cutape(&[&"check", &"--baseline", &old, &trace]));
    output.assert_code(0);
    let advice = "write it again with --write-baseline";
    assert!(output.stderr.contains(advice), "{}", output.describe());
    fs::write(&old, "{}").unwrap();
    let output = run(&mut parts().cutape(&[&"check", &"--baseline", &old, &trace]));
    output.assert_code(2);
    assert!(
        output
            .stderr
            .contains("write the file with `cutape check --write-baseline`"),
        "{}",
        output.describe()
    );
}

fn silence_is_explained(folder: &Path) {
    let program = built(&edited("pool.cpp", folder, "", 0), &[]);
    let baseline = folder.join("known.json");
    let baseline = baseline.to_str().unwrap();
    let (_, found) = checked(folder, &[], &[&program], &["--write-baseline", baseline]);
    let second = found["findings"][0]["call"]["call"].as_u64().unwrap();
    let first = found["findings"][0]["objects"][0]["destroyed_call"]
        .as_u64()
        .unwrap();
    let suppress = folder.join("suppress.txt");
    fs::write(&suppress, "memory-double-free\n").unwrap();
    let suppress = suppress.to_str().unwrap();
    let trace = folder.join("trace.cutape");
    let asked = |rule: &str, call: u64, more: &[&str]| {
        let call = call.to_string();
        let words = &["--explain-silence", rule, &call];
        run(parts()
            .cutape(&[&"check"])
            .args(words)
            .args(more)
            .arg(&trace))
    };
    let double = "memory-double-free";
    for (rule, call, more, expected) in [
        (
            double,
            second,
            &[][..],
            "it is not silent: memory freed twice",
        ),
        (
            double,
            first,
            &[],
            "no object of a kind that the call uses had ended",
        ),
        (
            double,
            second,
            &["--suppress", suppress],
            "not shown: 1 suppressed",
        ),
        (
            double,
            second,
            &["--baseline", baseline],
            "not shown: 1 in the baseline",
        ),
        (
            double,
            second,
            &["--expect-errors"],
            "not shown: 1 of class expected-error",
        ),
        (
            "memory-race-cross-stream",
            first,
            &[],
            "the rule is not about this function",
        ),
        (
            "memory-free-wrong-kind",
            first,
            &[],
            "the rule looked at memory#1 0x",
        ),
    ] {
        let output = asked(rule, call, more);
        output.assert_code(0);
        assert!(
            output.stdout.contains(expected),
            "{more:?}: {}",
            output.describe()
        );
    }
    for (rule, call, expected) in [
        (
            "memory-double-fre",
            second,
            "did you mean `memory-double-free`",
        ),
        (double, 999, "has no call 999"),
    ] {
        let output = asked(rule, call, &[]);
        output.assert_code(2);
        assert!(output.stderr.contains(expected), "{}", output.describe());
    }
    what_rests_on_an_assumption_can_be_left_out(folder);
}

/// A kernel's parameter in freed memory.
fn what_rests_on_an_assumption_can_be_left_out(folder: &Path) {
    let program = compiled("misuse/argument-after-free/violation");
    let rule = "memory-use-after-free-kernel-argument";
    let (code, found) = checked(folder, &[], &[&program], &[]);
    let all = found["findings"].as_array().unwrap();
    let finding = all.iter().find(|finding| finding["rule"] == rule);
    let finding = finding.unwrap_or_else(|| panic!("{found}"));
    assert_eq!((code, &finding["severity"]), (1, &Value::from("warning")));
    assert_eq!(finding["confidence"], "assumed");
    let trace = folder.join("trace.cutape");
    let call = finding["call"]["call"].to_string();
    let words = ["--confidence", "contents", "--explain-silence", rule, &call];
    let output = run(parts().cutape(&[&"check"]).args(words).arg(&trace));
    let expected = "not shown: 1 below --confidence";
    assert!(output.stdout.contains(expected), "{}", output.describe());
    let output = run(&mut parts().cutape(&[&"check", &"--confidence", &"contents", &trace]));
    output.assert_code(0);
    assert!(output.stdout.contains(expected), "{}", output.describe());
}
