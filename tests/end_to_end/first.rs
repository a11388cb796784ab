//! `first` names the first call or node that wrote a number, or changed some bytes.

use std::fs;
use std::path::{Path, PathBuf};

use cutape_format::Trace;
use cutape_tests::{Output, compiled, names, parts, record, root, run};
use serde_json::Value;

cutape_tests::tests![
    calls_and_nodes_are_named,
    the_first_change_of_bytes_is_named,
    long_ranges_are_told_to_the_byte,
    all_that_a_call_writes_is_listed,
    memory_that_does_not_fit_is_named,
    graphs_leave_the_same_bytes_node_by_node,
    what_cannot_be_asked_is_refused,
];

fn recorded(folder: &Path) -> PathBuf {
    recorded_program(folder, "clean/float_values")
}

fn recorded_program(folder: &Path, program: &str) -> PathBuf {
    let path = folder.join("app.cutape");
    run(&mut record(&path, &[], &[&compiled(program)])).assert_code(0);
    path
}

fn first(trace: &Path, arguments: &[&str]) -> Output {
    let mut command = parts().cutape(&[&"first", &trace]);
    run(command.args(arguments).args(["--driver", "null"]))
}

fn asked(trace: &Path, arguments: &[&str]) -> Vec<Value> {
    let output = first(trace, &[arguments, &["--report", "-"]].concat());
    output.assert_code(0);
    assert_eq!(output.stderr, "", "{arguments:?}");
    let answer: Value = serde_json::from_str(&output.stdout).unwrap();
    answer["findings"].as_array().unwrap().clone()
}

/// The calls of a function.
fn calls(trace: &Path, name: &str) -> Vec<u64> {
    let all = names(&Trace::open(trace).unwrap());
    let calls = (0..).zip(&all).filter(|(_, known)| known.starts_with(name));
    calls.map(|(index, _)| index).collect()
}

fn calls_and_nodes_are_named(folder: &Path) {
    let trace = recorded(folder);
    let memset = calls(&trace, "cuMemsetD32")[0];
    let copy = calls(&trace, "cuMemcpyDtoDAsync")[0];
    let upload = calls(&trace, "cuMemcpyHtoD")[1];
    let launch = calls(&trace, "cuGraphLaunch")[0];
    let index = |finding: &Value| finding["call"].as_u64().unwrap();
    // The second memset writes what is there.
    let found = asked(&trace, &["--nan", "--type", "f32"]);
    assert_eq!(found.iter().map(index).collect::<Vec<_>>(), [memset, copy]);
    assert_eq!(found[0]["hit"]["value"], 0x7fc0_0000);
    assert_eq!(found[0]["hit"]["count"], 1);
    let label = found[0]["label"].as_str().unwrap();
    assert!(label.ends_with("+0x4e20"), "{label}");
    assert!(found[1]["label"].as_str().unwrap().ends_with("+0xe20"));
    // No kernel says of which type its numbers are.
    let found = asked(&trace, &["--nan"]);
    assert!(found.iter().any(|finding| finding["hit"]["type"] == "f32"));
    assert!(
        found
            .iter()
            .all(|finding| finding["hit"]["is_certain"] == false)
    );
    let found = asked(&trace, &["--above", "1e8", "--type", "f32"]);
    assert_eq!(found.iter().map(index).collect::<Vec<_>>(), [upload]);
    let found = asked(&trace, &["--inf", "--type", "f16"]);
    assert_eq!(index(&found[0]), launch);
    assert_eq!(found[0]["by"]["node"], serde_json::json!([1, "a memset"]));
    let later = (copy + 1).to_string();
    let none = first(&trace, &["--nan", "--type", "f32", "--from", &later]);
    none.assert_code(1);
    assert_eq!(none.stdout, "no call of the replay wrote that\n");
    let elsewhere = format!("{label}+4");
    let within = ["--nan", "--type", "f32", "--within", &elsewhere];
    assert_eq!(asked(&trace, &within).len(), 1);
    let text = first(&trace, &["--nan", "--type", "f32", "--most", "1"]).stdout;
    for part in [
        &format!("written by call {memset} cuMemsetD32"),
        "f32 NaN at memory#",
        "1 such in that page",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

fn the_first_change_of_bytes_is_named(folder: &Path) {
    let trace = recorded(folder);
    let label = asked(&trace, &["--nan", "--type", "f32"])[0]["label"].clone();
    let label = label.as_str().unwrap();
    let uploads = calls(&trace, "cuMemcpyHtoD");
    let memset = calls(&trace, "cuMemsetD32")[0];
    let changed = |from: u64| {
        let from = from.to_string();
        let found = asked(
            &trace,
            &["--changed", label, "--from", &from, "--type", "f32"],
        );
        found[0]["call"].as_u64().unwrap()
    };
    assert_eq!(changed(uploads[0]), uploads[0]);
    assert_eq!(changed(uploads[0] + 1), memset);
    assert_eq!(changed(memset + 1), uploads[1]);
    let after = memset.to_string();
    let text = first(
        &trace,
        &["--changed", label, "--from", &after, "--type", "f32"],
    )
    .stdout;
    assert!(text.contains("+0: 8.5 -> NaN"), "{text}");
}

fn long_ranges_are_told_to_the_byte(folder: &Path) {
    let trace = recorded_program(folder, "clean/scattered_writes");
    let whole = "memory#1+0+4000000";
    let [memset, columns, upload, launch] = [
        calls(&trace, "cuMemsetD8")[0],
        calls(&trace, "cuMemsetD2D8")[0],
        calls(&trace, "cuMemcpyHtoD")[0],
        calls(&trace, "cuGraphLaunch")[0],
    ];
    let changed = ["--changed", whole, "--from"];
    let from = |call: u64| asked(&trace, &[&changed[..], &[&*call.to_string()]].concat());
    // The first one that is listed writes all of it.
    let found = from(0);
    let parts = |finding: &Value| -> Vec<(u64, u64)> {
        serde_json::from_value(finding["change"]["parts"].clone()).unwrap()
    };
    let index = |finding: &Value| finding["call"].as_u64().unwrap();
    let listed: Vec<u64> = found.iter().map(index).collect();
    assert_eq!(listed, [memset, columns, upload]);
    assert_eq!(
        parts(&found[0]).iter().map(|part| part.1).sum::<u64>(),
        4_000_000
    );
    let rows: Vec<(u64, u64)> = (0..40).map(|row| (100_000 * row + 7, 3)).collect();
    assert_eq!(parts(&found[1]), rows);
    assert_eq!(parts(&found[2]), [(65_535, 2)]);
    assert!(
        found
            .iter()
            .all(|finding| finding["change"]["in_pages"] == false)
    );
    // A node of a graph, asked for alone.
    let found = from(upload + 1);
    assert_eq!(found.len(), 1);
    assert_eq!(index(&found[0]), launch);
    assert_eq!(found[0]["by"]["node"], serde_json::json!([0, "a memset"]));
    assert_eq!(parts(&found[0]), [(100_000, 1), (200_000, 1)]);
    // Without a budget only pages are known.
    let from = columns.to_string();
    let text = first(
        &trace,
        &[&changed[..], &[&from, "--budget", "0", "--most", "1"]].concat(),
    );
    text.assert_code(0);
    for part in [
        "40 pages of 16 KiB, the first at +0",
        "whole pages of 16 KiB that were not compared",
    ] {
        assert!(text.stdout.contains(part), "{part}: {}", text.stdout);
    }
    let text = first(&trace, &[&changed[..], &[&from, "--most", "1"]].concat()).stdout;
    assert!(
        text.contains("120 bytes in 40 parts: +7 3, +100007 3,"),
        "{text}"
    );
}

fn all_that_a_call_writes_is_listed(folder: &Path) {
    let trace = recorded_program(folder, "clean/scattered_writes");
    let parts = |finding: &Value| -> Vec<(u64, u64)> {
        serde_json::from_value(finding["change"]["parts"].clone()).unwrap()
    };
    let written_by = |name: &str| {
        let call = calls(&trace, name)[0].to_string();
        let found = asked(&trace, &["--written-by", &call]);
        assert_eq!(found.len(), 1, "{name}: {found:#?}");
        let found = found.into_iter().next().unwrap();
        assert_eq!(found["call"].to_string(), call);
        assert_eq!(found["change"]["in_pages"], false);
        found
    };
    let columns = written_by("cuMemsetD2D8");
    let rows: Vec<(u64, u64)> = (0..40).map(|row| (100_000 * row + 7, 3)).collect();
    assert_eq!(parts(&columns), rows);
    let label = columns["label"].as_str().unwrap();
    assert!(label.starts_with("memory#1"), "{label}");
    assert_eq!(parts(&written_by("cuMemcpyHtoD")), [(65_535, 2)]);
    let node = written_by("cuGraphLaunch");
    assert_eq!(node["by"]["node"], serde_json::json!([0, "a memset"]));
    assert_eq!(parts(&node), [(100_000, 1), (200_000, 1)]);
    // It reads.
    let call = calls(&trace, "cuMemcpyDtoH")[0].to_string();
    first(&trace, &["--written-by", &call]).assert_code(1);
}

fn memory_that_does_not_fit_is_named(folder: &Path) {
    let trace = recorded_program(folder, "clean/scattered_writes");
    for question in [&["--nan"][..], &["--changed", "memory#1+0+4000000"]] {
        let mut command = parts().cutape(&[&"first", &trace]);
        command.args(question).args(["--driver", "null"]);
        // The table of pages has memory of its own.
        let output = run(command.env("CUTAPE_NULL_FAIL", "cuMemCreate@*=2"));
        output.assert_code(1);
        let expected = "looking at it ";
        let lines = output.stderr.lines();
        let line = lines.clone().find(|line| line.contains(expected));
        let line = line.unwrap_or_else(|| panic!("{question:?}: {}", output.stderr));
        assert!(line.contains("4000000 bytes"), "{line}");
        assert!(line.contains("CUDA_ERROR_OUT_OF_MEMORY"), "{line}");
    }
}

fn graphs_leave_the_same_bytes_node_by_node(folder: &Path) {
    let programs = fs::read_dir(root().join("tests/programs/clean")).unwrap();
    let programs = programs.map(|entry| entry.unwrap().path());
    let mut count = 0;
    for program in programs {
        if !fs::read_to_string(&program)
            .unwrap()
            .contains("cuGraphLaunch")
        {
            continue;
        }
        let name = program.file_stem().unwrap().to_str().unwrap();
        // Digests wait for its graph, which waits for what the program does next.
        if name == "graph_awaits_cpu" {
            continue;
        }
        let trace = folder.join(format!("{name}.cutape"));
        let program = compiled(&format!("clean/{name}"));
        let mut record = record(&trace, &["--digests=launch"], &[&program]);
        run(&mut record).assert_code(0);
        let output = first(&trace, &["--inf", "--type", "f64", "--from", "0"]);
        assert!(
            matches!(output.code(), Some(0 | 1)),
            "{name}: {}",
            output.stderr
        );
        for line in output.stderr.lines() {
            let is_whole = line.contains("as a whole")
                && !line.contains("host memory")
                && !line.contains("and kernels");
            let is_wrong = is_whole || line.contains("the replay differs");
            assert!(!is_wrong, "{name}: {line}");
        }
        count += 1;
    }
    assert!(count > 5, "{count}");
}

fn what_cannot_be_asked_is_refused(folder: &Path) {
    let trace = recorded(folder);
    for (arguments, expected) in [
        (
            &["--nan", "--type", "i32"][..],
            "i32 has no such numbers; one of f16, bf16, f32, f64",
        ),
        (&["--above", "-1"], "give a number from 0"),
        (&["--above", "many"], "not a number"),
        (&["--changed", "memory#99"], "memory#99"),
        (&[], "required"),
        (&["--nan", "--inf"], "cannot be used"),
    ] {
        let output = first(&trace, arguments);
        output.assert_code(2);
        assert!(
            output.stderr.contains(expected),
            "{arguments:?}: {}",
            output.stderr
        );
    }
    fs::remove_file(&trace).unwrap();
    first(&trace, &["--nan"]).assert_code(2);
}
