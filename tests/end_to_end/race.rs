//! `race` proves that nothing orders the work of two calls, by the result of the other order.

use std::path::{Path, PathBuf};

use cutape_format::Trace;
use cutape_tests::{Output, compiled, names, parts, record, run};
use serde_json::Value;

cutape_tests::tests![
    a_missing_event_is_proven,
    code_that_is_loaded_between_is_loaded_before,
    other_orders_are_explored,
    kernels_that_overlap_are_replayed_one_after_the_other,
    check_reports_what_is_proven_as_errors,
    programs_with_the_event_have_no_pair,
    a_pair_that_a_user_names,
    what_cannot_be_asked_is_refused,
];

fn recorded(folder: &Path, variant: &str) -> PathBuf {
    recorded_of(folder, "misuse/race-across-streams", variant)
}

fn recorded_of(folder: &Path, program: &str, variant: &str) -> PathBuf {
    let path = folder.join("app.cutape");
    let program = compiled(&format!("{program}/{variant}"));
    run(&mut record(&path, &[], &[&program])).assert_code(0);
    path
}

fn race(trace: &Path, arguments: &[&str]) -> Output {
    let mut command = parts().cutape(&[&"race", &trace]);
    run(command.args(arguments).args(["--driver", "null"]))
}

/// The calls of a function.
fn call_of(trace: &Path, name: &str) -> u64 {
    let all = names(&Trace::open(trace).unwrap());
    let found = all.iter().position(|known| known.starts_with(name));
    found.unwrap() as u64
}

fn a_missing_event_is_proven(folder: &Path) {
    let trace = recorded(folder, "violation");
    let (first, second) = (
        call_of(&trace, "cuMemsetD32Async"),
        call_of(&trace, "cuMemcpyDtoHAsync"),
    );
    let text = race(&trace, &["--type", "u32"]);
    text.assert_code(1);
    assert_eq!(text.stderr, "");
    for part in [
        &format!("call {first} cuMemsetD32Async"),
        "nothing orders them",
        "proven: ",
        "7 as recorded, 0 in the other order",
        &format!("record an event after call {first}"),
    ] {
        assert!(text.stdout.contains(part), "{part}: {}", text.stdout);
    }
    let output = race(&trace, &["--report", "-"]);
    let races: Value = serde_json::from_str(&output.stdout).unwrap();
    let races = &races["races"];
    assert_eq!(races.as_array().unwrap().len(), 1);
    assert_eq!(
        (&races[0]["first"], &races[0]["second"]),
        (&first.into(), &second.into())
    );
    assert_eq!(races[0]["is_certain"], true);
    let proven = &races[0]["outcome"]["proven"];
    // The target of the copy: page-locked memory.
    assert_eq!(proven[0]["made"][0], "cuMemAllocHost_v2");
    assert_eq!(proven.as_array().unwrap().len(), 1);
    let listed = race(&trace, &["--list"]);
    listed.assert_code(0);
    assert!(
        listed.stdout.contains("not tried: --list"),
        "{}",
        listed.stdout
    );
}

/// The driver loads a library at its first launch, and waits for all work then.
fn code_that_is_loaded_between_is_loaded_before(folder: &Path) {
    let trace = recorded_of(folder, "misuse/race-across-load", "violation");
    let output = race(&trace, &[]);
    output.assert_code(1);
    assert!(
        output.stdout.contains("proven: 4,096 bytes"),
        "{}",
        output.stdout
    );
}

/// What `race --report -` says, and its exit status.
fn report(trace: &Path, arguments: &[&str]) -> (Value, Option<i32>) {
    let output = race(trace, &[arguments, &["--report", "-"]].concat());
    let report = serde_json::from_str(&output.stdout);
    (
        report.unwrap_or_else(|_| panic!("{}", output.stderr)),
        output.status.and_then(|status| status.code()),
    )
}

fn other_orders_are_explored(folder: &Path) {
    let trace = recorded_of(folder, "misuse/race-of-three", "violation");
    let (found, code) = report(&trace, &["--explore", "10"]);
    assert_eq!(code, Some(1));
    let pairs = found["races"].as_array().unwrap();
    assert_eq!(pairs.len(), 3);
    let explored = found["explored"].as_array().unwrap();
    let [window] = explored.as_slice() else {
        panic!("{explored:?}");
    };
    // Six orders of three, of which one is the recorded one; each gives other memory.
    let tried = window["tried"].as_array().unwrap();
    assert_eq!(tried.len(), 5);
    for order in tried {
        assert!(order["outcome"]["proven"].is_array(), "{order}");
        assert_ne!(order["calls"], window["calls"]);
    }
    let orders = |arguments: &[&str]| {
        let (found, _) = report(&trace, &[&["--most", "1"], arguments].concat());
        let tried = found["explored"][0]["tried"].as_array().unwrap();
        let orders: Vec<Value> = tried.iter().map(|order| order["calls"].clone()).collect();
        orders
    };
    let one = orders(&["--explore", "2"]);
    assert_eq!(one.len(), 2);
    assert_eq!(orders(&["--explore", "2", "--seed", "1"]), one);
    let text = race(&trace, &["--explore", "2"]);
    let order = format!("  order {}", one[0].as_array().unwrap()[0]);
    assert!(text.stdout.contains(&order), "{}", text.stdout);
}

fn kernels_that_overlap_are_replayed_one_after_the_other(folder: &Path) {
    for (variant, is_proven) in [("violation", true), ("correct", false)] {
        let folder = folder.join(variant);
        std::fs::create_dir(&folder).unwrap();
        let trace = recorded_of(&folder, "misuse/race-of-overlapping-kernels", variant);
        let (found, code) = report(&trace, &[]);
        let races = found["races"].as_array().unwrap();
        let [found] = races.as_slice() else {
            panic!("{races:?}");
        };
        assert_eq!(found["is_programmatic"], true);
        let outcome = &found["outcome"];
        assert_eq!(outcome["proven"].is_array(), is_proven, "{outcome}");
        assert_eq!(outcome == "same", !is_proven, "{outcome}");
        assert_eq!(code, Some(i32::from(is_proven)));
    }
}

fn check_reports_what_is_proven_as_errors(folder: &Path) {
    let check = |trace: &Path, arguments: &[&str]| {
        let mut command = parts().cutape(&[&"check", &trace]);
        run(command.args(arguments))
    };
    let found = |trace: &Path, arguments: &[&str]| {
        let output = check(trace, &[arguments, &["--format", "json"]].concat());
        let report: Value = serde_json::from_str(&output.stdout).unwrap();
        report["findings"].as_array().unwrap().clone()
    };
    let mut reports = Vec::new();
    for (program, rule, said) in [
        (
            "race-of-three",
            "memory-race-cross-stream",
            "Replayed in both orders, 256 bytes of",
        ),
        (
            "race-of-overlapping-kernels",
            "launch-config-serialization-no-grid-sync",
            "without the attribute",
        ),
    ] {
        let folder = folder.join(program);
        std::fs::create_dir(&folder).unwrap();
        let trace = recorded_of(&folder, &format!("misuse/{program}"), "violation");
        let path = folder.join("races.json");
        let report = path.to_str().unwrap();
        race(&trace, &["--report", report]).assert_code(1);
        let assumed = found(&trace, &[]);
        let proven = found(&trace, &["--proven", report]);
        let severities = |findings: &[Value]| {
            let severities = findings.iter().map(|finding| finding["severity"].clone());
            severities.collect::<Vec<_>>()
        };
        assert!(
            severities(&assumed)
                .iter()
                .all(|severity| severity == "advice")
        );
        assert!(
            severities(&proven)
                .iter()
                .all(|severity| severity == "error")
        );
        // What was reported without a proof is still the same finding.
        for finding in &assumed {
            let key = &finding["key"];
            assert!(proven.iter().any(|other| other["key"] == *key), "{key}");
        }
        assert!(proven.iter().all(|finding| finding["rule"] == rule));
        let message = proven[0]["message"].as_str().unwrap();
        assert!(message.contains(said), "{message}");
        check(&trace, &[]).assert_code(0);
        check(&trace, &["--proven", report]).assert_code(1);
        reports.push((trace, path));
    }
    let (trace, _) = &reports[0];
    for (report, expected) in [
        (reports[1].1.as_path(), "about another trace: call"),
        (trace.as_path(), "race"),
        (&folder.join("none"), "No such file"),
    ] {
        let output = check(trace, &["--proven", report.to_str().unwrap()]);
        output.assert_code(2);
        assert!(output.stderr.contains(expected), "{}", output.stderr);
    }
}

fn programs_with_the_event_have_no_pair(folder: &Path) {
    let trace = recorded(folder, "correct");
    let output = race(&trace, &[]);
    output.assert_code(0);
    assert_eq!(output.stdout, "");
    assert!(
        output.stderr.contains("without an order"),
        "{}",
        output.stderr
    );
}

fn a_pair_that_a_user_names(folder: &Path) {
    let trace = recorded(folder, "correct");
    let first = call_of(&trace, "cuMemsetD32Async");
    let second = call_of(&trace, "cuMemcpyDtoHAsync");
    // The event lets the second call's work wait for that of the first one.
    let output = race(&trace, &["--between", &format!("{first}:{second}")]);
    output.assert_code(0);
    assert!(output.stdout.contains("not tried: "), "{}", output.stdout);
    assert!(
        output
            .stdout
            .contains("waits for work that is to run later"),
        "{}",
        output.stdout
    );
}

fn what_cannot_be_asked_is_refused(folder: &Path) {
    let trace = recorded(folder, "violation");
    for (arguments, expected) in [
        (&["--between", "9:3"][..], "the earlier call first"),
        (&["--between", "many"], "not CALL:CALL"),
        (&["--between", "1:999"], "call 999"),
    ] {
        let output = race(&trace, arguments);
        output.assert_code(2);
        assert!(
            output.stderr.contains(expected),
            "{arguments:?}: {}",
            output.stderr
        );
    }
}
