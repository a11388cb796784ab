//! `cutape diff --execute` names the first launch that computes something else, and where that is
//! from.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use cutape_format::Trace;
use cutape_tests::{Output, compile, names, parts, record, root, run};
use serde_json::Value;

cutape_tests::tests![
    equal_traces_have_no_difference,
    a_changed_kernel_is_named_as_introduced,
    other_data_are_named_with_their_copy,
    another_parameter_is_no_change_of_the_kernel,
    a_changed_kernel_is_found_where_inputs_differ,
    what_differs_in_a_itself_does_not_count,
    what_nothing_explains_is_introduced,
    a_rebuilt_kernel_is_compared_with_its_trace,
    bad_input,
];

const NOTHING: (&str, &str) = ("LC_ALL", "C");

/// The program with these macros, recorded.
fn recorded(folder: &Path, macros: &[&str]) -> PathBuf {
    let name = match macros {
        [] => "base".to_owned(),
        _ => macros.join("_").to_lowercase(),
    };
    let (program, trace) = (folder.join(&name), folder.join(format!("{name}.cutape")));
    let driver = parts().driver_folder.join("libcuda.so.1");
    let macros: Vec<String> = macros.iter().map(|name| format!("-D{name}")).collect();
    let mut options: Vec<&dyn AsRef<OsStr>> = vec![&driver];
    options.extend(macros.iter().map(|option| option as &dyn AsRef<OsStr>));
    let source = root().join("tests/programs/execute/chain.c");
    compile(&source, &program, &options);
    run(&mut record(&trace, &[], &[program.to_str().unwrap()])).assert_code(0);
    trace
}

fn execute(traces: &[&Path], options: &[&str], setting: (&str, &str)) -> Output {
    let mut command = parts().cutape(&[&"diff"]);
    let command = command.args(traces).args(["--execute", "--driver", "null"]);
    run(command.args(options).env(setting.0, setting.1))
}

/// The report as JSON; it must have that status.
fn report(traces: &[&Path], options: &[&str], setting: (&str, &str), status: i32) -> Value {
    let output = execute(traces, &[options, &["--format", "json"]].concat(), setting);
    output.assert_code(status);
    assert_eq!(output.stderr, "");
    serde_json::from_str(&output.stdout).unwrap()
}

/// The call index of a launch by its number.
fn launch(trace: &Path, number: usize) -> u64 {
    let all = names(&Trace::open(trace).unwrap());
    let launches = all.iter().enumerate();
    let mut launches = launches.filter(|(_, name)| *name == "cuLaunchKernel");
    launches.nth(number).unwrap().0 as u64
}

fn first<'r>(report: &'r Value, trace: &Path) -> (&'r str, u64) {
    let first = &report["first"];
    let call = first["launches"][0]["call"].as_u64().unwrap();
    let number = first["launches"][0]["launch"].as_u64().unwrap();
    assert_eq!(launch(trace, number as usize), call);
    (first["verdict"].as_str().unwrap(), number)
}

fn equal_traces_have_no_difference(folder: &Path) {
    let (a, b) = (recorded(folder, &[]), recorded(folder, &["MORE_MEMORY"]));
    let found = report(&[&a, &b], &[], NOTHING, 0);
    assert_eq!(found["launches"], 40, "{found:#}");
    assert_eq!(
        (&found["differs"], &found["first"]),
        (&Value::Bool(false), &Value::Null)
    );
    let text = execute(&[&a, &b], &[], NOTHING).stdout;
    assert!(
        text.starts_with("no differences: 40 launches compared\n"),
        "{text}"
    );
}

fn a_changed_kernel_is_named_as_introduced(folder: &Path) {
    let a = recorded(folder, &[]);
    let b = recorded(folder, &["CHANGED_KERNEL", "MORE_MEMORY"]);
    let found = report(&[&a, &b], &[], NOTHING, 1);
    // Two launches for each step.
    assert_eq!(first(&found, &a), ("introduced", 14), "{found:#}");
    assert_eq!(found["first"]["launches"][0]["kernel"], "cutape_mix");
    let output = &found["first"]["outputs"][0];
    assert_eq!(output["parameters"], serde_json::json!([0]));
    assert_eq!(output["mismatch"]["elements"], 256);
    let kernels = found["kernels"].as_array().unwrap();
    assert_eq!(kernels.len(), 1, "{found:#}");
    assert_eq!(kernels[0]["first"], launch(&a, 14));
    // All later steps differ, and begin with other inputs.
    assert_eq!(
        (&found["differing"], &found["introduced"]),
        (&13.into(), &1.into())
    );
    let text = execute(&[&a, &b], &["--tolerance", "f32=0"], NOTHING).stdout;
    let line = text.lines().next().unwrap();
    assert!(
        line.ends_with(": cutape_mix: introduced: equal inputs, other outputs"),
        "{text}"
    );
    for part in [
        "writes memory#",
        "(parameter 0)",
        "of 64 f32 differ",
        "introduced by",
        "main",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

fn other_data_are_named_with_their_copy(folder: &Path) {
    let (a, b) = (recorded(folder, &[]), recorded(folder, &["CHANGED_DATA"]));
    let found = report(&[&a, &b], &[], NOTHING, 1);
    assert_eq!(first(&found, &a), ("inherited", 0), "{found:#}");
    assert_eq!(
        found["first"]["inputs"][0]["parameters"],
        serde_json::json!([1])
    );
    let origin = &found["first"]["origin"];
    assert_eq!(origin["function"], "cuMemcpyHtoD_v2");
    let all = names(&Trace::open(&a).unwrap());
    let call = origin["call"].as_u64().unwrap() as usize;
    assert_eq!(all[call + 1], "cuMemcpyDtoD_v2");
    assert_eq!(found["kernels"], Value::Array(vec![]));
    let text = execute(&[&a, &b], &[], NOTHING).stdout;
    assert!(text.contains("other input data from call"), "{text}");
}

fn another_parameter_is_no_change_of_the_kernel(folder: &Path) {
    let (a, b) = (
        recorded(folder, &[]),
        recorded(folder, &["CHANGED_SEED", "MORE_MEMORY"]),
    );
    let found = report(&[&a, &b], &[], NOTHING, 1);
    assert_eq!(first(&found, &a), ("inherited", 10), "{found:#}");
    assert_eq!(found["first"]["inputs"], Value::Array(vec![]));
    assert_eq!(
        found["first"]["arguments"],
        serde_json::json!(["parameter 3 0x5 → 0x63"])
    );
    assert_eq!(found["introduced"], 0);
}

fn a_changed_kernel_is_found_where_inputs_differ(folder: &Path) {
    let a = recorded(folder, &[]);
    let b = recorded(folder, &["CHANGED_DATA", "CHANGED_KERNEL"]);
    let found = report(&[&a, &b], &[], NOTHING, 1);
    assert_eq!(first(&found, &a), ("inherited", 0), "{found:#}");
    // By running it on A's inputs.
    let kernels = found["kernels"].as_array().unwrap();
    assert_eq!(kernels.len(), 1, "{found:#}");
    assert_eq!(kernels[0]["first"], launch(&a, 14));
    assert_eq!(kernels[0]["was_run"], true);
    let text = execute(&[&a, &b], &[], NOTHING).stdout;
    assert!(
        text.contains("cutape_mix  (run on A's inputs)  memory#"),
        "{text}"
    );
}

fn what_differs_in_a_itself_does_not_count(folder: &Path) {
    let (a, b) = (recorded(folder, &[]), recorded(folder, &["MORE_MEMORY"]));
    let varies = ("CUTAPE_NULL_NONDETERMINISTIC", "step@3");
    let found = report(&[&a, &b], &[], varies, 0);
    assert_eq!(found["first"], Value::Null, "{found:#}");
    let varying = &found["not_reproducible"];
    assert_eq!(varying["first"]["call"], launch(&a, 5));
    assert_eq!(varying["launches"], 1);
}

fn what_nothing_explains_is_introduced(folder: &Path) {
    let (a, b) = (recorded(folder, &[]), recorded(folder, &["MORE_LAUNCHES"]));
    // The last launch of B, which has one more.
    let last = ("CUTAPE_NULL_NONDETERMINISTIC", "step@21");
    let found = report(&[&a, &b], &[], last, 1);
    assert_eq!(first(&found, &a), ("introduced", 39), "{found:#}");
    assert_eq!(found["only"], serde_json::json!([0, 1]));
    assert_eq!(found["kernels"][0]["kernel"], "step");
}

fn a_rebuilt_kernel_is_compared_with_its_trace(folder: &Path) {
    let (a, changed) = (recorded(folder, &[]), recorded(folder, &["CHANGED_KERNEL"]));
    let images = folder.join("images");
    let mut extract = parts().cutape(&[&"extract", &changed, &"--images", &images]);
    run(&mut extract).assert_code(0);
    let files = fs::read_dir(&images)
        .unwrap()
        .flatten()
        .map(|entry| entry.path());
    let is_image = |path: &PathBuf| path.extension() == Some(OsStr::new("ptx"));
    let rebuilt = files.filter(is_image);
    let is_changed = |path: &PathBuf| fs::read_to_string(path).unwrap().contains(".maxntid");
    let (rebuilt, same): (Vec<_>, Vec<_>) = rebuilt.partition(is_changed);
    let kernel = |path: &Path| ["--kernel".to_owned(), path.to_str().unwrap().to_owned()];
    // The kernels of both modules are replaced.
    let options = kernel(&rebuilt[0]);
    let found = report(&[&a], &options.each_ref().map(String::as_str), NOTHING, 1);
    assert_eq!(first(&found, &a), ("introduced", 0), "{found:#}");
    let options = kernel(&same[0]);
    let found = report(&[&a], &options.each_ref().map(String::as_str), NOTHING, 0);
    assert_eq!(found["launches"], 40);
}

fn bad_input(folder: &Path) {
    let a = recorded(folder, &[]);
    let text = folder.join("text.ptx");
    fs::write(&text, "no image").unwrap();
    let text = text.to_str().unwrap();
    for (traces, options, why) in [
        (&[&*a][..], &[][..], "required"),
        (&[&*a], &["--kernel", text], "no call of"),
        (&[&*a, &*a], &["--kernel", text], "cannot be used with"),
        (&[&*a, &*a], &["--tolerance", "f8=1"], "TYPE=T"),
        (&[&*a, &*a], &["--format", "junit"], "not JUnit"),
    ] {
        let output = execute(traces, options, NOTHING);
        output.assert_code(2);
        assert!(output.stderr.contains(why), "{why}: {}", output.stderr);
    }
}
