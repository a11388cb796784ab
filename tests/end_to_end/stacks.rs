//! Call stacks: which calls have one, and that findings show the program's own source.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use cutape_format::Trace;
use cutape_tests::{Verdict, compile, parts, record, root, run};
use serde_json::Value;

cutape_tests::tests![
    a_finding_shows_its_source_line,
    only_chosen_calls_have_a_stack,
    every_output_has_the_stack,
    separate_debug_information_is_found,
    a_file_that_is_not_there_is_said,
    a_finding_shows_the_line_of_python,
    stacks_that_are_hard_to_follow,
];

fn source(name: &str) -> PathBuf {
    root().join("tests/programs/stacks").join(name)
}

/// The number of the line with that mark.
fn line_of(source: &Path, mark: &str) -> u64 {
    let text = fs::read_to_string(source).unwrap();
    let mut lines = (1..).zip(text.lines());
    let found = lines.find(|(_, line)| line.ends_with(&format!("line: {mark}")));
    found
        .unwrap_or_else(|| panic!("no line is marked {mark}"))
        .0
}

/// Compiles the program with a double free.
fn double_free(folder: &Path, options: &[&str]) -> String {
    let program = folder.join("double_free");
    let driver = parts().driver_folder.join("libcuda.so.1");
    let mut all: Vec<&dyn AsRef<std::ffi::OsStr>> = vec![&driver];
    all.extend(
        options
            .iter()
            .map(|option| option as &dyn AsRef<std::ffi::OsStr>),
    );
    compile(&source("double_free.c"), &program, &all);
    program.to_str().unwrap().to_owned()
}

fn recorded(folder: &Path, options: &[&str], program: &[&str]) -> PathBuf {
    let trace = folder.join("trace.cutape");
    let _ = fs::remove_file(&trace);
    let output = run(&mut record(&trace, options, program));
    output.assert(0);
    trace
}

/// The only finding of a trace.
fn finding(trace: &Path) -> Value {
    let output = run(&mut parts().cutape(&[&"check", &"--format", &"json", &trace]));
    output.assert_code(1);
    let findings: Value = serde_json::from_str(&output.stdout).unwrap();
    let findings = findings["findings"].as_array().unwrap();
    assert_eq!(findings.len(), 1, "{}", output.stdout);
    assert_eq!(findings[0]["rule"], "memory-double-free");
    findings[0].clone()
}

/// The functions of a call's stack.
fn functions(call: &Value) -> Vec<&str> {
    let frames = call["frames"].as_array().unwrap().iter();
    frames
        .map(|frame| frame["function"].as_str().unwrap())
        .collect()
}

fn a_finding_shows_its_source_line(folder: &Path) {
    let source = source("double_free.c");
    for options in [
        &["-O2"][..],
        &["-O2", "-fno-omit-frame-pointer"],
        &["-O0"],
        &[
            "-O2",
            "-fno-asynchronous-unwind-tables",
            "-fno-omit-frame-pointer",
        ],
        &["-O2", "-fno-pie", "-no-pie"],
    ] {
        let program = double_free(folder, options);
        let found = finding(&recorded(folder, &["--stacks"], &[&program]));
        let call = &found["call"];
        let expected = ["free_inlined", "step", "train", "main"];
        assert_eq!(functions(call)[..4], expected, "{options:?}");
        let frames = &call["frames"];
        assert_eq!(
            frames[0]["line"],
            line_of(&source, "inlined"),
            "{options:?}"
        );
        assert_eq!(frames[1]["line"], line_of(&source, "step"), "{options:?}");
        assert_eq!(
            (&frames[0]["is_inlined"], &frames[1]["is_inlined"]),
            (&Value::Bool(true), &Value::Bool(false))
        );
        let place = call["place"].as_str().unwrap();
        let line = line_of(&source, "inlined");
        assert!(
            place.ends_with(&format!("double_free.c:{line} in free_inlined")),
            "{place}"
        );
        let ended = found["objects"][0]["destroyed"].as_str().unwrap();
        let line = line_of(&source, "first");
        assert!(
            ended.ends_with(&format!("double_free.c:{line} in free_first")),
            "{ended}"
        );
    }
}

fn only_chosen_calls_have_a_stack(folder: &Path) {
    let program = double_free(folder, &["-O2"]);
    let with_stack = |options: &[&str]| {
        let trace = Trace::open(&recorded(folder, options, &[&program])).unwrap();
        assert_eq!(trace.verify(), []);
        let calls: Vec<(String, bool)> = trace
            .calls()
            .map(|call| (call.signature.name.clone(), call.stack().is_some()))
            .collect();
        calls
    };
    let some = ["cuDevicePrimaryCtxRetain", "cuMemAlloc_v2", "cuMemFree_v2"];
    for (name, has_stack) in with_stack(&["--stacks"]) {
        let is_release = name.starts_with("cuDevicePrimaryCtxRelease");
        assert_eq!(has_stack, is_release || some.contains(&&*name), "{name}");
    }
    let all = with_stack(&["--stacks=all"]);
    assert!(all.iter().all(|call| call.1), "{all:?}");
    for options in [&[][..], &["--stacks=off"]] {
        let none = with_stack(options);
        assert_eq!(none.len(), all.len());
        assert!(none.iter().all(|call| !call.1), "{none:?}");
    }
}

fn every_output_has_the_stack(folder: &Path) {
    let program = double_free(folder, &["-O2"]);
    let trace = recorded(folder, &["--stacks"], &[&program]);
    let line = line_of(&source("double_free.c"), "inlined");
    let printed = |options: &[&str]| {
        let mut command = parts().cutape(&[&options[0]]);
        command.args(&options[1..]).arg(&trace);
        run(&mut command).stdout
    };
    let own = format!("double_free.c:{line} in free_inlined");
    let text = printed(&["check"]);
    let second = text.lines().nth(1).unwrap();
    assert!(
        second.starts_with(" --> ") && second.ends_with(&own),
        "{text}"
    );
    assert!(!text.contains("in train"), "only on request: {text}");
    for options in [
        &["check", "--show-stacks"][..],
        &["check", "--format", "junit"],
        &["check", "--format", "sarif"],
        &["dump", "--stacks"],
        &["dump", "--stacks", "--format", "json"],
    ] {
        let text = printed(options);
        for function in ["free_inlined", "train", "main"] {
            assert!(text.contains(function), "{options:?}: {text}");
        }
    }
    let sarif: Value = serde_json::from_str(&printed(&["check", "--format", "sarif"])).unwrap();
    let result = &sarif["runs"][0]["results"][0];
    let region = &result["locations"][0]["physicalLocation"]["region"];
    assert_eq!(region["startLine"], line);
    assert!(result["stacks"][0]["frames"].as_array().unwrap().len() >= 4);
    assert!(!printed(&["dump"]).contains("in train"));
    let facts: Value = serde_json::from_str(&printed(&["info", "--format", "json"])).unwrap();
    assert_eq!(facts["trace"]["stacks"], "some");
    assert!(printed(&["info"]).contains("of calls that create, destroy"));
    // While the program runs.
    let mut live = parts().cutape(&[&"check", &"--driver", &"null", &"--stacks", &"--", &program]);
    let output = run(&mut live);
    output.assert_code(1);
    assert!(output.stdout.contains(&own), "{}", output.describe());
}

fn separate_debug_information_is_found(folder: &Path) -> Verdict {
    if Command::new("objcopy").arg("--version").output().is_err() {
        return Verdict::Ignored("there is no objcopy".to_owned());
    }
    let program = double_free(folder, &["-O2", "-Wl,--build-id"]);
    let debug = format!("{program}.debug");
    let objcopy = |arguments: &[&str]| run(Command::new("objcopy").args(arguments)).assert(0);
    objcopy(&["--only-keep-debug", &program, &debug]);
    objcopy(&[
        "--strip-all",
        &format!("--add-gnu-debuglink={debug}"),
        &program,
    ]);
    let line = line_of(&source("double_free.c"), "inlined");
    let found = finding(&recorded(folder, &["--stacks"], &[&program]));
    assert_eq!(found["call"]["frames"][0]["line"], line);
    // Without it the frames are still there.
    fs::remove_file(&debug).unwrap();
    let found = finding(&recorded(folder, &["--stacks"], &[&program]));
    let frames = found["call"]["frames"].as_array().unwrap();
    assert!(frames.len() >= 3, "{frames:?}");
    for frame in &frames[..3] {
        assert_eq!(frame["module"], program.as_str());
        assert_eq!(
            (&frame["line"], &frame["is_own"]),
            (&Value::from(0), &Value::Bool(true))
        );
        assert_eq!(frame["missing"], "no debug information");
    }
    Verdict::Passed
}

fn a_file_that_is_not_there_is_said(folder: &Path) {
    let program = double_free(folder, &["-O2", "-Wl,--build-id"]);
    let trace = recorded(folder, &["--stacks", "--no-pack"], &[&program]);
    let missing = || {
        let found = finding(&trace);
        let frame = &found["call"]["frames"][0];
        assert_eq!(frame["module"], program.as_str());
        (
            frame["line"].as_u64().unwrap(),
            frame["missing"].as_str().unwrap().to_owned(),
        )
    };
    let line = line_of(&source("double_free.c"), "inlined");
    assert_eq!(missing(), (line, String::new()));
    double_free(folder, &["-O0", "-Wl,--build-id"]);
    assert_eq!(
        missing(),
        (0, "the file here is of another build".to_owned())
    );
    fs::remove_file(&program).unwrap();
    assert_eq!(missing(), (0, "the file is not here".to_owned()));
}

/// The interpreters on this machine.
fn interpreters() -> Vec<String> {
    let path = std::env::var("PATH").unwrap_or_default();
    let names = (9..=14).map(|minor| format!("python3.{minor}"));
    let names: Vec<String> = names.chain(["python3".to_owned()]).collect();
    // What is found may be a script that chooses an interpreter.
    let executable = |path: PathBuf| {
        let code = "import os, sys; print(os.path.realpath(sys.executable))";
        let output = run(Command::new(path).args(["-c", code]));
        (output.code() == Some(0)).then(|| output.stdout.trim().to_owned())
    };
    let mut found: Vec<String> = path
        .split(':')
        .flat_map(|folder| names.iter().map(move |name| Path::new(folder).join(name)))
        .filter(|path| path.exists())
        .filter_map(executable)
        .collect();
    found.sort();
    found.dedup();
    found
}

fn a_finding_shows_the_line_of_python(folder: &Path) -> Verdict {
    let script = source("train.py");
    let usable = |python: &String| {
        let code = "import sys, ctypes; assert (3, 9) <= sys.version_info[:2] <= (3, 14)";
        run(Command::new(python).args(["-c", code])).code() == Some(0)
    };
    let pythons: Vec<String> = interpreters().into_iter().filter(usable).collect();
    if pythons.is_empty() {
        return Verdict::Ignored("there is no Python 3.9 to 3.14 with ctypes".to_owned());
    }
    let step = line_of(&script, "step");
    for python in &pythons {
        for words in [&[][..], &["thread"], &["gil"], &["thread", "gil"]] {
            let path = script.to_str().unwrap();
            let program = [&[python.as_str(), path], words].concat();
            let found = finding(&recorded(folder, &["--stacks"], &program));
            let call = &found["call"];
            let frames = call["frames"].as_array().unwrap();
            let of_python: Vec<(&str, u64)> = frames
                .iter()
                .filter(|frame| frame["is_python"] == true && frame["is_own"] == true)
                .map(|frame| {
                    let name = frame["function"].as_str().unwrap();
                    // Qualified since 3.11.
                    let name = name.rsplit('.').next().unwrap();
                    (name, frame["line"].as_u64().unwrap())
                })
                .collect();
            let names: Vec<&str> = of_python.iter().map(|frame| frame.0).collect();
            let expected = ["call", "free", "<genexpr>", "step", "start"];
            assert_eq!(names[..5], expected, "{program:?}");
            assert_eq!(of_python[2].1, step, "{program:?}");
            assert_eq!(of_python[4].1, line_of(&script, "start"), "{program:?}");
            let place = call["place"].as_str().unwrap();
            assert!(
                place.ends_with(" in call") && place.contains("train.py:"),
                "{place}"
            );
            // Native frames on both sides, and those of the interpreter's builtins between.
            let at = |name: &str| {
                let mut frames = frames.iter();
                frames.position(|f| f["function"].as_str().unwrap().ends_with(name))
            };
            assert!(frames[0]["is_python"] == false, "{program:?}");
            assert!(
                at("<genexpr>") < at("step") && at("step") < at("start"),
                "{program:?}"
            );
            let between = &frames[at("step").unwrap()..at("start").unwrap()];
            // map() lies between, where the function that runs bytecode has a name.
            let names: Vec<&str> = functions(call);
            assert!(
                between.iter().any(|frame| frame["is_python"] == false)
                    || ["3.13", "3.14"]
                        .iter()
                        .any(|version| python.ends_with(version)),
                "{names:?}"
            );
        }
    }
    Verdict::Passed
}

fn stacks_that_are_hard_to_follow(folder: &Path) {
    let program = folder.join("odd_stacks");
    let driver = parts().driver_folder.join("libcuda.so.1");
    compile(
        &source("odd_stacks.c"),
        &program,
        &[&driver, &"-O2", &"-fno-optimize-sibling-calls", &"-ldl"],
    );
    let libraries = ["100", "9000"].map(|size| {
        let library = folder.join(format!("library{size}.so"));
        let size = format!("-DSIZE={size}");
        compile(
            &source("library.c"),
            &library,
            &[&"-O2", &"-fPIC", &"-shared", &size],
        );
        library.to_str().unwrap().to_owned()
    });
    let program = program.to_str().unwrap();
    let words: Vec<&str> = [program]
        .into_iter()
        .chain(libraries.iter().map(|l| &**l))
        .collect();
    let trace = recorded(folder, &["--stacks=all"], &words);
    let trace = Trace::open(&trace).unwrap();
    assert_eq!(trace.verify(), []);
    let mut command = parts().cutape(&[&"dump", &"--stacks", &"--format", &"json", &trace.path()]);
    let output = run(&mut command);
    output.assert(0);
    let calls: Vec<Value> = output
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let allocations: Vec<Vec<&str>> = calls
        .iter()
        .filter(|call| call["function"] == "cuMemAlloc_v2")
        .map(functions)
        .collect();
    let has = |index: usize, expected: &[&str]| {
        let found = &allocations[index];
        let mut rest = found.iter();
        assert!(
            expected
                .iter()
                .all(|name| rest.any(|function| function == name)),
            "{index}: {expected:?} in {found:?}"
        );
    };
    has(0, &["allocate", "in_coroutine"]);
    has(1, &["allocate", "in_coroutine"]);
    has(2, &["allocate", "on_signal", "main"]);
    has(3, &["allocate", "leave", "main"]);
    has(4, &["allocate", "main"]);
    // Code without tables ends the stack, unless it has a frame pointer.
    has(5, &["allocate", "bare_call"]);
    has(6, &["allocate", "main"]);
    has(7, &["allocate", "call", "main"]);
    has(8, &["allocate", "call", "main"]);
    assert_eq!(allocations.len(), 9);
}
