//! `cutape play` of a program that does something else than its recording: what is accepted, and where
//! a program ends that goes on.

use std::fs;
use std::path::Path;

use cutape_tests::{play, record, run, with_macros};
use serde_json::Value;

cutape_tests::tests![
    launches_that_share_no_memory_may_change_places,
    unknown_bytes_end_the_program,
    allowed_calls_may_differ,
    what_to_record_anew_is_listed,
];

/// A launch writes other bytes each time: only the recording has those.
const WRITES: (&str, &str) = ("CUTAPE_NULL_NONDETERMINISTIC", "fill@*");

fn program(folder: &Path, macros: &[&str]) -> String {
    let name = format!("program{}", macros.concat());
    with_macros(folder, &name, "play/other_launches.c", macros)
}

/// The recording of the program with these macros, and what it printed.
fn recorded(folder: &Path, macros: &[&str]) -> (std::path::PathBuf, String) {
    let trace = folder.join(format!("recorded{}.cutape", macros.concat()));
    let _ = fs::remove_file(&trace);
    let output = run(record(&trace, &[], &[&program(folder, macros)]).env(WRITES.0, WRITES.1));
    output.assert_code(0);
    (trace, output.stdout)
}

fn launches_that_share_no_memory_may_change_places(folder: &Path) {
    let (trace, printed) = recorded(folder, &[]);
    let apart = run(&mut play(&trace, &[], &[&program(folder, &["APART"])]));
    apart.assert(0);
    assert_eq!(apart.stdout, printed);
    let shared = run(&mut play(&trace, &[], &[&program(folder, &["SHARED"])]));
    shared.assert_code(1);
    let needle = "kernel parameters at byte 8: ";
    assert!(shared.stderr.contains(needle), "{}", shared.describe());
}

fn unknown_bytes_end_the_program(folder: &Path) {
    // Macros of the recording, the one of the program, what it prints last, and why it ends there.
    let cases: &[(&[&str], &str, &str, &str)] = &[
        (
            &[],
            "PARAMETER",
            "second ",
            "a call of cuLaunchKernel differs from the recorded call",
        ),
        (
            &[],
            "ADDITIONAL",
            "second ",
            "a call of cuLaunchKernel is not in the recording",
        ),
        (&[], "LEFT_OUT", "second ", ", cuLaunchKernel, was not made"),
        (
            &[],
            "UPLOAD",
            "second ",
            "a call of cuMemcpyHtoD_v2 differs from the recorded call",
        ),
        (
            &[],
            "CODE",
            "second ",
            "a call of cuModuleLoadData differs from the recorded call",
        ),
        (
            &[],
            "COPY",
            "second ",
            "a call of cuMemcpyDtoH_v2 differs from the recorded call",
        ),
        (
            &["USES_PINNED"],
            "PINNED",
            "",
            "host-memory#1 is unknown: a call of cuLaunchKernel",
        ),
        (
            &["USES_GRAPH"],
            "GRAPH",
            "",
            "a call of cuLaunchKernel differs from the recorded call",
        ),
    ];
    for &(uses, change, last, why) in cases {
        let (trace, printed) = recorded(folder, uses);
        let changed = program(folder, &[uses, &[change]].concat());
        let output = run(&mut play(
            &trace,
            &["--on-mismatch", "unknown"],
            &[&changed],
        ));
        output.assert_code(1);
        let has = |text: &str| output.stderr.contains(text);
        assert!(
            has("the recording lacks bytes that this call brings"),
            "{}",
            output.describe()
        );
        assert!(has(why), "{change}: {why}: {}", output.describe());
        // What does not follow from the change is played.
        let played: Vec<&str> = output.stdout.lines().collect();
        assert!(
            played.last().unwrap_or(&"").starts_with(last),
            "{}",
            output.describe()
        );
        assert!(
            printed.starts_with(&output.stdout),
            "{change}: {}",
            output.describe()
        );
    }
}

fn allowed_calls_may_differ(folder: &Path) {
    let (trace, printed) = recorded(folder, &[]);
    for (allow, change) in [
        ("kernel:fil*", "PARAMETER"),
        ("kernel:fil*", "ADDITIONAL"),
        ("kernel:fil*", "LEFT_OUT"),
        ("call:cuMemcpyHtoD_v2", "UPLOAD"),
        ("call:cuModuleLoadData", "CODE"),
    ] {
        let changed = program(folder, &[change]);
        let output = run(&mut play(&trace, &["--allow", allow], &[&changed]));
        assert_eq!(output.stdout, printed, "{change}: {}", output.describe());
        let other = run(&mut play(&trace, &["--allow", "kernel:other"], &[&changed]));
        other.assert_code(1);
    }
    let wrong = run(&mut play(&trace, &["--allow", "fill"], &["/bin/true"]));
    wrong.assert_code(2);
    assert!(
        wrong.stderr.contains("give kernel:PATTERN"),
        "{}",
        wrong.describe()
    );
}

fn what_to_record_anew_is_listed(folder: &Path) {
    let (trace, _) = recorded(folder, &[]);
    let report = folder.join("report.json");
    let options = ["--update", "--report", report.to_str().unwrap()];
    let output = run(&mut play(
        &trace,
        &options,
        &[&program(folder, &["PARAMETER"])],
    ));
    output.assert_code(1);
    let line = "  1 launch of fill, the first in place of the recorded call ";
    assert!(output.stderr.contains(line), "{}", output.describe());
    let report: Value = serde_json::from_str(&fs::read_to_string(&report).unwrap()).unwrap();
    assert_eq!(report["record_anew"][0]["kernel"], "fill", "{report:#}");
    let same = run(&mut play(&trace, &["--update"], &[&program(folder, &[])]));
    same.assert_code(0);
    assert!(
        same.stderr.contains("nothing has to be recorded anew"),
        "{}",
        same.describe()
    );
}
