//! `race` proves that nothing orders the work of two calls, by the result of the other order.

use std::path::{Path, PathBuf};

use cutape_format::Trace;
use cutape_tests::{Output, compiled, names, parts, record, run};
use serde_json::Value;

cutape_tests::tests![
    a_missing_event_is_proven,
    code_that_is_loaded_between_is_loaded_before,
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
