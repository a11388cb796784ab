//! What the driver's error log says about a failing call is in the trace and in findings.

use std::path::{Path, PathBuf};

use cutape_format::layout::DriverMessageNote;
use cutape_format::{Note, Trace};
use cutape_tests::{compiled, parts, record, run};

cutape_tests::tests![
    messages_are_in_their_call,
    a_finding_shows_the_message,
    messages_can_be_left_out,
    callbacks_of_the_program_stay,
];

const PROGRAM: &str = "misuse/launch-config-dynamic-smem-limit/violation";
const MESSAGE: &str = "Requested dynamic shared memory size of 65536 bytes exceeds maximum dynamic \
                       shared memory size of 49152 bytes";

fn recorded(folder: &Path, options: &[&str], program: &str) -> PathBuf {
    let program = compiled(program);
    let trace = folder.join("trace.cutape");
    let output = run(&mut record(&trace, options, &[&program]));
    output.assert(0);
    trace
}

/// Function, level and text of each message.
fn messages(trace: &Path) -> Vec<(String, u32, String)> {
    let trace = Trace::open(trace).unwrap();
    let mut found = Vec::new();
    for call in trace.calls() {
        for note in call.notes() {
            if let Note::DriverMessage(DriverMessageNote { level }, text) = note {
                found.push((call.signature.name.clone(), level, text));
            }
        }
    }
    found
}

fn messages_are_in_their_call(folder: &Path) {
    let trace = recorded(folder, &[], PROGRAM);
    let launch = |text: &str| ("cuLaunchKernel".to_owned(), 0, text.to_owned());
    let result = "Returning 1 (CUDA_ERROR_INVALID_VALUE) from cuLaunchKernel";
    assert_eq!(messages(&trace), [launch(MESSAGE), launch(result)]);
    let dump = run(&mut parts().cutape(&[&"dump", &trace]));
    dump.assert(0);
    let line = format!("note: the driver's log: error: {MESSAGE}\n");
    assert!(dump.stdout.contains(&line), "{}", dump.stdout);
}

fn a_finding_shows_the_message(folder: &Path) {
    let trace = recorded(folder, &[], PROGRAM);
    let check = run(&mut parts().cutape(&[&"check", &trace]));
    check.assert_code(1);
    let words = check
        .stdout
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    assert!(
        words.contains(&format!("= driver: {MESSAGE} =")),
        "{}",
        check.stdout
    );
    // The line that says what the call returns adds nothing.
    assert!(!check.stdout.contains("Returning"), "{}", check.stdout);
    let json = run(&mut parts().cutape(&[&"check", &"--format", &"json", &trace]));
    let json: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    let said = &json["findings"][0]["call"]["driver_messages"];
    assert_eq!(*said, serde_json::json!([MESSAGE]));
}

fn messages_can_be_left_out(folder: &Path) {
    let trace = recorded(folder, &["--no-driver-log"], PROGRAM);
    assert_eq!(messages(&trace), []);
}

/// What the program's own callback prints is the same with ours beside it.
fn callbacks_of_the_program_stay(folder: &Path) {
    let trace = recorded(folder, &[], "clean/error_log");
    let texts: Vec<_> = messages(&trace)
        .into_iter()
        .map(|(_, _, text)| text)
        .collect();
    let text = |function: &str| format!("Returning 1 (CUDA_ERROR_INVALID_VALUE) from {function}");
    assert_eq!(texts, [text("cuMemAlloc"), text("cuMemAlloc")]);
}
