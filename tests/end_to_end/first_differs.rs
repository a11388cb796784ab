//! `first --differs` names the first call or node that writes something else in another recording.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use cutape_tests::{Output, compile, parts, record, root, run};
use serde_json::Value;

cutape_tests::tests![
    equal_recordings_write_the_same,
    a_changed_kernel_is_the_first_difference,
    a_changed_upload_is_the_first_difference,
    a_changed_node_is_the_first_difference,
    what_is_within_the_tolerance_does_not_count,
    what_cannot_be_asked_is_refused,
];

/// The chain of launches with these macros, recorded.
fn recorded(folder: &Path, macros: &[&str]) -> PathBuf {
    recorded_program(folder, "execute/chain.c", macros)
}

fn recorded_program(folder: &Path, source: &str, macros: &[&str]) -> PathBuf {
    let name = format!("base_{}", macros.join("_").to_lowercase().replace('=', "_"));
    let (program, trace) = (folder.join(&name), folder.join(format!("{name}.cutape")));
    let driver = parts().driver_folder.join("libcuda.so.1");
    let macros: Vec<String> = macros.iter().map(|name| format!("-D{name}")).collect();
    let mut options: Vec<&dyn AsRef<OsStr>> = vec![&driver];
    options.extend(macros.iter().map(|option| option as &dyn AsRef<OsStr>));
    compile(
        &root().join("tests/programs").join(source),
        &program,
        &options,
    );
    run(&mut record(&trace, &[], &[program.to_str().unwrap()])).assert_code(0);
    trace
}

fn differs(a: &Path, b: &Path, options: &[&str]) -> Output {
    let mut command = parts().cutape(&[&"first", &a, &"--differs", &b]);
    run(command.args(["--driver", "null"]).args(options))
}

/// The report as JSON; it must have that status.
fn report(a: &Path, b: &Path, options: &[&str], status: i32) -> Value {
    let output = differs(a, b, &[options, &["--report", "-"]].concat());
    output.assert_code(status);
    assert_eq!(output.stderr, "");
    serde_json::from_str(&output.stdout).unwrap()
}

fn equal_recordings_write_the_same(folder: &Path) {
    // Other addresses, also in memory.
    let (a, b) = (recorded(folder, &[]), recorded(folder, &["MORE_MEMORY"]));
    let found = report(&a, &b, &[], 1);
    assert_eq!(
        (&found["differs"], &found["first"]),
        (&Value::Bool(false), &Value::Null)
    );
    // Six copies and memsets, 20 launches that write.
    assert_eq!(found["writes"], 26, "{found:#}");
    assert_eq!(found["only"], serde_json::json!([0, 0]));
    let text = differs(&a, &b, &[]).stdout;
    assert!(
        text.starts_with("both recordings write the same: 26 writes compared\n"),
        "{text}"
    );
}

fn a_changed_kernel_is_the_first_difference(folder: &Path) {
    let a = recorded(folder, &[]);
    let b = recorded(folder, &["CHANGED_KERNEL", "MORE_MEMORY"]);
    let found = report(&a, &b, &[], 0);
    let first = &found["first"];
    assert_eq!(
        first["writers"][0]["by_call"]["kernel"], "cutape_mix",
        "{found:#}"
    );
    assert_eq!(first["kinds"], serde_json::json!([]));
    // All launches of the kernel from the eighth on, and addresses in memory, which do not count.
    assert_eq!(found["differing"], 14);
    assert_eq!(found["dismissed"].as_array().unwrap().len(), 1);
    let memory = &first["memory"][0];
    assert_eq!(memory["mismatch"]["elements"], 256, "{found:#}");
    let text = differs(&a, &b, &["--tolerance", "f32=0"]).stdout;
    for part in [
        "written by call",
        "cutape_mix",
        "in the other one",
        "the calls are equal",
        "of 64 f32 differ",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

fn a_changed_upload_is_the_first_difference(folder: &Path) {
    let (a, b) = (
        recorded(folder, &[]),
        recorded(folder, &["CHANGED_DATA", "MORE_MEMORY"]),
    );
    let found = report(&a, &b, &[], 0);
    let first = &found["first"];
    assert_eq!(
        first["writers"][0]["by_call"]["function"], "cuMemcpyHtoD_v2",
        "{found:#}"
    );
    assert_eq!(first["kinds"], serde_json::json!(["data"]));
    let mismatch = &first["memory"][0]["mismatch"];
    assert_eq!(
        (&mismatch["differing"], &mismatch["offset"]),
        (&1.into(), &12.into())
    );
    // The same call of both recordings, in each as it is numbered there.
    let call = |side: usize| first["writers"][side]["call"].as_u64().unwrap();
    assert_eq!(call(0) + 1, call(1));
}

fn a_changed_node_is_the_first_difference(folder: &Path) {
    let program = "clean/scattered_writes.c";
    let a = recorded_program(folder, program, &[]);
    let b = recorded_program(folder, program, &["VALUE=10"]);
    let found = report(&a, &b, &[], 0);
    let first = &found["first"];
    for writer in first["writers"].as_array().unwrap() {
        let node = serde_json::json!([0, "a memset"]);
        assert_eq!(writer["by"]["node"], node, "{found:#}");
        assert_eq!(writer["by_call"]["function"], "cuGraphLaunch");
    }
    // The columns, the upload and all of it before are equal.
    assert_eq!(
        (&found["writes"], &found["differing"]),
        (&4.into(), &1.into())
    );
    // Two bytes, far apart.
    let memory = first["memory"].as_array().unwrap();
    assert_eq!(memory.len(), 2, "{found:#}");
    assert!(memory.iter().all(|one| one["mismatch"]["differing"] == 1));
}

fn what_is_within_the_tolerance_does_not_count(folder: &Path) {
    let (a, b) = (
        recorded(folder, &[]),
        recorded(folder, &["CHANGED_DATA", "MORE_MEMORY"]),
    );
    // As f32, the words of the upload are all next to 0.
    let found = report(&a, &b, &["--tolerance", "f32=1e-9", "--most", "1"], 0);
    let first = &found["first"];
    assert_eq!(
        first["writers"][0]["by_call"]["kernel"], "cutape_mix",
        "{found:#}"
    );
    let dismissed = found["dismissed"].as_array().unwrap();
    // Addresses in memory, the upload, and a copy of it.
    assert_eq!(dismissed.len(), 3, "{found:#}");
}

fn what_cannot_be_asked_is_refused(folder: &Path) {
    let a = recorded(folder, &[]);
    let missing = folder.join("missing.cutape");
    for (other, options, expected) in [
        (&a, &["--nan"][..], "cannot be used"),
        (&a, &["--tolerance", "f8=1"], "TYPE=T"),
        (&a, &["--from", "3"], "cannot be used"),
        (&missing, &[], "missing.cutape"),
    ] {
        let output = differs(&a, other, options);
        output.assert_code(2);
        assert!(
            output.stderr.contains(expected),
            "{options:?}: {}",
            output.stderr
        );
    }
}
