//! What launches write, compared between replays. The null driver runs no kernel; a setting lets
//! one write something else each time.

use std::fs;
use std::path::{Path, PathBuf};

use crate::leaves::{changed, leaves, report};
use cutape_format::Trace;
use cutape_tests::{compile, compiled, names, parts, record, replay, run};
use serde_json::{Value, json};

cutape_tests::tests![
    each_row_has_its_outputs,
    what_is_left_out_has_a_reason,
    the_text_names_kernel_and_memory,
    recorded_digests_are_compared_between_replays,
    what_is_not_reproduced_is_named,
    no_launch_is_waited_for,
    memory_that_the_program_maps_is_digested,
];

const DIFFERS: &str = "CUTAPE_NULL_NONDETERMINISTIC";

/// A program of `tests/programs`, settings of the null driver, options of the replay; the launches
/// that are compared, those that differ, which call is the first, and where.
struct Row {
    program: &'static str,
    setting: Option<(&'static str, &'static str)>,
    options: &'static [&'static str],
    launches: u64,
    differing: u64,
    first: Option<(&'static str, usize)>,
    range: (u64, u64),
}

const ROWS: &[Row] = &[
    Row {
        program: "clean/streams",
        setting: None,
        options: &["--repeat", "2"],
        launches: 4,
        differing: 0,
        first: None,
        range: (0, 0),
    },
    // The later launch of `vector_add` reads what the second `fill` wrote.
    Row {
        program: "clean/streams",
        setting: Some((DIFFERS, "fill@2")),
        options: &["--repeat", "3"],
        launches: 4,
        differing: 2,
        first: Some(("cuLaunchKernel", 1)),
        range: (0, 16),
    },
    Row {
        program: "clean/streams",
        setting: Some((DIFFERS, "fill@2")),
        options: &["--repeat", "3", "--fill", "0xa5"],
        launches: 4,
        differing: 2,
        first: Some(("cuLaunchKernel", 1)),
        range: (0, 16),
    },
    // Two replays are equal, because the launch is behind their end.
    Row {
        program: "clean/streams",
        setting: Some((DIFFERS, "fill@2")),
        options: &["--repeat", "2", "--until", "26"],
        launches: 1,
        differing: 0,
        first: None,
        range: (0, 0),
    },
    // Six graph launches, and two launches that are captured.
    Row {
        program: "clean/graph",
        setting: Some((DIFFERS, "fill@2")),
        options: &["--repeat", "2"],
        launches: 6,
        differing: 4,
        first: Some(("cuGraphLaunch", 1)),
        range: (0, 16),
    },
    Row {
        program: "clean/stream_ordered",
        setting: Some((DIFFERS, "fill")),
        // What it writes is copied back.
        options: &["--repeat", "2", "--allow", "nondeterministic"],
        launches: 4,
        differing: 3,
        first: Some(("cuLaunchKernel", 0)),
        range: (0, 16),
    },
];

fn recorded(folder: &Path, program: &str) -> PathBuf {
    let trace = folder.join(format!("{}.cutape", program.replace('/', ".")));
    if !trace.exists() {
        run(&mut record(&trace, &[], &[&compiled(program)])).assert(0);
    }
    trace
}

/// The index of a call by its function and how many calls of it come before.
fn index(trace: &Path, (function, number): (&str, usize)) -> u64 {
    let calls = names(&Trace::open(trace).unwrap());
    let mut calls = calls
        .iter()
        .enumerate()
        .filter(|(_, name)| *name == function);
    calls.nth(number).unwrap().0 as u64
}

fn outputs(trace: &Path, options: &[&str], setting: Option<(&str, &str)>) -> Value {
    let output = run(replay(trace)
        .args(["--format", "json"])
        .args(options)
        .envs(setting));
    output.assert_code(0);
    let report: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(report.get("launch_values"), None, "is not for users");
    report["launch_outputs"].clone()
}

fn each_row_has_its_outputs(folder: &Path) {
    for row in ROWS {
        let name = format!("{} {:?} {:?}", row.program, row.setting, row.options);
        let trace = recorded(folder, row.program);
        let outputs = outputs(&trace, row.options, row.setting);
        assert_eq!(outputs["problem"], Value::Null, "{name}: {outputs}");
        assert_eq!(outputs["replays"].to_string(), row.options[1], "{name}");
        assert_eq!(outputs["launches"], row.launches, "{name}: {outputs}");
        assert_eq!(outputs["differing"], row.differing, "{name}: {outputs}");
        let first = &outputs["first_differing"];
        match row.first {
            None => assert_eq!(*first, Value::Null, "{name}"),
            Some(call) => {
                assert_eq!(first["call"], index(&trace, call), "{name}: {first}");
                assert_eq!(first["function"], call.0, "{name}");
                let kernel = match call.0 {
                    "cuLaunchKernel" => json!("fill"),
                    _ => Value::Null,
                };
                assert_eq!(first["kernel"], kernel, "{name}");
                let range = &first["ranges"][0];
                assert_eq!(range["offset"], row.range.0, "{name}: {first}");
                assert_eq!(range["length"], row.range.1, "{name}: {first}");
            }
        }
    }
}

fn what_is_left_out_has_a_reason(folder: &Path) {
    let trace = recorded(folder, "clean/streams");
    let off = outputs(&trace, &["--repeat", "2", "--no-launch-outputs"], None);
    assert_eq!(off, Value::Null);
    let chosen = outputs(
        &trace,
        &["--repeat", "2", "--calls", "kernel:vector_add"],
        None,
    );
    assert_eq!(chosen["launches"], 1, "{chosen}");
    assert_eq!(chosen["not_digested"]["the selection leaves them out"], 2);
    let program = leaves(folder);
    let trace = folder.join("leaves.cutape");
    run(&mut record(&trace, &[], &[&program])).assert(0);
    // The program creates no stream and records no event: only the digests do.
    let refused = ("CUTAPE_NULL_FAIL", "cuStreamCreate=2");
    let refused = outputs(&trace, &["--repeat", "2"], Some(refused));
    assert_eq!(refused["launches"], 0, "{refused}");
    let reason = "the driver refused to prepare their context";
    assert_eq!(refused["not_digested"][reason], 2, "{refused}");
    let crash = ("CUTAPE_NULL_CRASH", "cuEventRecord");
    let crash = outputs(&trace, &["--repeat", "2"], Some(crash));
    let problem = crash["problem"].as_str().unwrap();
    assert!(
        problem.contains("a replay that digested launches died by signal 11 in call "),
        "{problem}"
    );
}

fn the_text_names_kernel_and_memory(folder: &Path) {
    let trace = recorded(folder, "clean/streams");
    let differs = [(DIFFERS, "vector_add@1")];
    let output = run(replay(&trace).args(["--repeat", "2"]).envs(differs));
    // It differs from no recorded value: nothing is copied back behind it.
    let launch = index(&trace, ("cuLaunchKernel", 2));
    for text in [
        "launch outputs: 4 launches in 2 replays: ".to_owned(),
        format!(
            "first launch that differs between replays: call {launch} cuLaunchKernel (kernel vector_add)\n  bytes 0 to 15 of memory 0x"
        ),
        ", created by cuMemAlloc_v2 at call ".to_owned(),
    ] {
        assert!(
            output.stdout.contains(&text),
            "no {text:?} in {}",
            output.stdout
        );
    }
}

fn recorded_digests_are_compared_between_replays(folder: &Path) {
    let trace = folder.join("t.cutape");
    let options = ["--digests=launch"];
    run(&mut record(&trace, &options, &[&leaves(folder)])).assert(0);
    let equal = outputs(&trace, &["--repeat", "2"], None);
    assert_eq!(
        (&equal["launches"], &equal["differing"]),
        (&json!(2), &json!(0))
    );
    let output = run(replay(&trace)
        .args(["--repeat", "2", "--format", "json"])
        .env(DIFFERS, "vector_add"));
    output.assert_code(1);
    let report: Value = serde_json::from_str(&output.stdout).unwrap();
    let outputs = &report["launch_outputs"];
    let launch = index(&trace, ("cuLaunchKernel", 1));
    assert_eq!(outputs["differing"], 1, "{outputs}");
    assert_eq!(outputs["first_differing"]["call"], launch);
    assert_eq!(outputs["first_differing"]["kernel"], "vector_add");
    assert_eq!(outputs["first_differing"]["ranges"][0]["length"], 16);
    assert_eq!(outputs["first_not_reproduced"], Value::Null);
    assert_eq!(report["divergences"][0]["verdict"], "nondeterministic");
}

fn what_is_not_reproduced_is_named(folder: &Path) {
    let trace = changed(folder, "--digests=launch");
    let (output, report) = report(&trace, &["--repeat", "2"]);
    output.assert_code(1);
    let outputs = &report["launch_outputs"];
    assert_eq!(outputs["differing"], 0, "{outputs}");
    assert_eq!(outputs["not_reproduced"], 1, "{outputs}");
    let first = &outputs["first_not_reproduced"];
    assert_eq!(first["call"], index(&trace, ("cuLaunchKernel", 1)));
    assert_eq!(first["kernel"], "vector_add");
    let range = &first["ranges"][0];
    assert_eq!(
        (&range["offset"], &range["length"]),
        (&json!(0), &json!(4096))
    );
    let output = run(replay(&trace).args(["--repeat", "2"]));
    let text = "first launch that differs from the recording in each replay: call ";
    assert!(output.stdout.contains(text), "{}", output.stdout);
}

/// A kernel may wait for something that a later call does.
fn no_launch_is_waited_for(folder: &Path) {
    let trace = folder.join("t.cutape");
    let options = ["--digests=launch"];
    run(&mut record(&trace, &options, &[&leaves(folder)])).assert(0);
    let end = index(&trace, ("cuStreamSynchronize", 0)).to_string();
    for function in ["cuCtxSynchronize", "cuEventSynchronize"] {
        let fails = format!("{function}@*=719");
        let output = run(replay(&trace)
            .args(["--format", "json", "--until", &end])
            .env("CUTAPE_NULL_FAIL", fails));
        output.assert_code(0);
        let report: Value = serde_json::from_str(&output.stdout).unwrap();
        let digests = &report["digests"];
        assert_eq!(
            digests["equal"], digests["recorded"],
            "{function}: {digests}"
        );
        assert_eq!(digests["equal"], 3, "{digests}");
    }
}

/// Launches `fill` on memory that is mapped twice, the second time without access.
const MAPS: &str = r#"
#include "program.h"

int main(void)
{
    begin();
    CUmemAllocationProp properties;
    memset(&properties, 0, sizeof properties);
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = device;
    size_t size = 0;
    CHECK(cuMemGetAllocationGranularity(&size, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    CUdeviceptr range = 0;
    CUmemGenericAllocationHandle memory;
    CHECK(cuMemAddressReserve(&range, 3 * size, 0, 0, 0));
    CHECK(cuMemCreate(&memory, size, &properties, 0));
    CUmemAccessDesc access;
    memset(&access, 0, sizeof access);
    access.location = properties.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CHECK(cuMemMap(range + size, size, 0, memory, 0));
    CHECK(cuMemMap(range + 2 * size, size, 0, memory, 0));
    CHECK(cuMemSetAccess(range + size, size, &access, 1));
    CUfunction fill = function_of(load_ptx(PTX_THREE), "fill");
    uint32_t zero = 0, count = 1024;
    for (int i = 0; i < 3; i++) {
        CUdeviceptr place = range + i * size + 256;
        void *parameters[] = {&place, &zero, &count};
        launch(fill, 4, 256, NULL, parameters);
    }
    CHECK(cuCtxSynchronize());
    return success();
}
"#;

fn memory_that_the_program_maps_is_digested(folder: &Path) {
    let (source, program) = (folder.join("maps.c"), folder.join("maps"));
    fs::write(&source, MAPS).unwrap();
    compile(
        &source,
        &program,
        &[&parts().driver_folder.join("libcuda.so.1")],
    );
    let trace = folder.join("t.cutape");
    run(&mut record(&trace, &[], &[&program.display().to_string()])).assert(0);
    let outputs = outputs(&trace, &["--repeat", "2"], Some((DIFFERS, "fill@2")));
    // The first launch has an address that nothing is mapped at, the third one without access.
    assert_eq!(outputs["launches"], 1, "{outputs}");
    let reason = "they have no parameter that points into device memory";
    assert_eq!(outputs["not_digested"][reason], 2, "{outputs}");
    let range = &outputs["first_differing"]["ranges"][0];
    assert_eq!(range["offset"], 0, "{outputs}");
    let memory = range["memory"].as_str().unwrap();
    assert!(memory.contains("created by cuMemMap at call "), "{memory}");
}
