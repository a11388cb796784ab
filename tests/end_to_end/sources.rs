//! Sources of asynchronous copies that the CPU overwrites before the copies are complete.

use std::path::{Path, PathBuf};

use cutape_format::{Note, Trace};
use cutape_tests::{compile, parts, record, replay, root, run};
use serde_json::Value;

cutape_tests::tests![
    only_what_the_cpu_overwrote_too_early_is_found,
    nothing_is_read_again_without_the_option,
];

fn recorded(folder: &Path, options: &[&str], what: &str) -> PathBuf {
    let program = folder.join("sources");
    let driver = parts().driver_folder.join("libcuda.so.1");
    let source = root().join("tests/programs/sources/sources.c");
    compile(&source, &program, &[&driver, &"-pthread"]);
    let trace = folder.join(format!("{what}.cutape"));
    let words = [program.to_str().unwrap(), what];
    run(&mut record(&trace, options, &words)).assert(0);
    trace
}

/// Functions in whose calls the recorder has noted a changed source.
fn noted(trace: &Path) -> Vec<String> {
    let trace = Trace::open(trace).unwrap();
    let calls = trace.calls().filter(|call| {
        let mut notes = call.notes();
        notes.any(|note| matches!(note, Note::SourceChanged(_)))
    });
    calls.map(|call| call.signature.name.clone()).collect()
}

/// Rules that `check` finds broken, and where.
fn found(trace: &Path) -> Vec<(String, String)> {
    let check = run(&mut parts().cutape(&[&"check", &"--format", &"json", &trace]));
    let json: Value = serde_json::from_str(&check.stdout).unwrap();
    let findings = json["findings"].as_array().unwrap().iter();
    let word = |value: &Value| value.as_str().unwrap().to_owned();
    findings
        .map(|finding| (word(&finding["rule"]), word(&finding["call"]["function"])))
        .collect()
}

fn only_what_the_cpu_overwrote_too_early_is_found(folder: &Path) {
    const WAIT: &str = "cuCtxSynchronize";
    // What the recorder cannot know to be complete, the analyzer knows.
    for (what, notes, is_wrong) in [
        ("overwritten", &[WAIT][..], true),
        ("waited", &[], false),
        ("query", &[], false),
        ("event", &[], false),
        ("device", &[WAIT], false),
        ("pageable", &[], false),
    ] {
        let trace = recorded(folder, &["--check-sources"], what);
        assert_eq!(noted(&trace), notes, "{what}");
        let rule = ("memory-race-host-access".to_owned(), WAIT.to_owned());
        let expected = Vec::from_iter(is_wrong.then_some(rule));
        assert_eq!(found(&trace), expected, "{what}");
        run(&mut replay(&trace)).assert(0);
    }
}

fn nothing_is_read_again_without_the_option(folder: &Path) {
    let trace = recorded(folder, &[], "overwritten");
    assert!(noted(&trace).is_empty());
    assert!(found(&trace).is_empty());
}
