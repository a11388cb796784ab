//! `replay --rank N FOLDER`: one rank of several, alone.

use std::path::Path;

use cutape_tests::{Output, compile, compiled, parts, record, root, run};
use serde_json::{Value, json};

cutape_tests::tests![
    each_rank_is_replayed_alone,
    without_outputs_bytes_are_not_compared,
    exchanges_are_found_by_the_memory_that_they_reach,
    devices_of_other_ranks_need_not_be_here,
    one_trace_has_its_outputs_too,
    what_cannot_be_is_refused,
];

/// Which launches write 8 bytes where their first parameter points: those that exchange.
const OF_SHARING: (&str, &str) = ("CUTAPE_NULL_NONDETERMINISTIC", "add@*");
const OF_EXCHANGES: (&str, &str) = (
    "CUTAPE_NULL_NONDETERMINISTIC",
    "direct@2,direct@3,direct@4,direct@5,through@2",
);
const OUTPUTS: &[&str] = &["--outputs-of-exchanges"];
const NOTHING: (&str, &str) = ("LC_ALL", "C");

/// Records a program of tests/programs/ranks.
fn recorded(
    folder: &Path,
    (name, arguments): (&str, &[&str]),
    options: &[&str],
    settings: &[(&str, &str)],
) {
    let program = folder.join(name);
    let driver = parts().driver_folder.join("libcuda.so.1");
    let source = root().join(format!("tests/programs/ranks/{name}.c"));
    compile(&source, &program, &[&driver, &"-pthread"]);
    let mut words = vec![program.to_str().unwrap()];
    words.extend(arguments);
    let mut record = record(&folder.join("run.cutape"), options, &words);
    run(record.envs(settings.iter().copied())).assert_code(0);
}

fn replay(folder: &Path, rank: &str, options: &[&str], setting: (&str, &str)) -> Output {
    let mut command = parts().cutape(&[&"replay", &"--driver", &"null", &"--rank", &rank]);
    run(command.args(options).arg(folder).env(setting.0, setting.1))
}

fn report(folder: &Path, rank: &str, options: &[&str], setting: (&str, &str)) -> Value {
    let options = [&["--format", "json"], options].concat();
    let replayed = replay(folder, rank, &options, setting);
    replayed.assert(0);
    serde_json::from_str(&replayed.stdout).unwrap()
}

/// The reasons for which calls are left out that are not for exports.
fn reasons(report: &Value) -> Vec<(String, u64)> {
    let skipped = report["skipped"].as_array().unwrap().iter();
    let skipped = skipped.map(|skipped| {
        let reason = skipped["reason"].as_str().unwrap().to_owned();
        (reason, skipped["count"].as_u64().unwrap())
    });
    skipped
        .filter(|(reason, _)| !reason.starts_with("exports "))
        .collect()
}

fn each_rank_is_replayed_alone(folder: &Path) {
    recorded(folder, ("sharing", &["2"]), OUTPUTS, &[OF_SHARING]);
    for (rank, before, options) in [
        ("0", "rank 3", &[][..]),
        ("1", "rank 0", &["--threads"]),
        ("2", "rank 1", &["--placement", "granules"]),
        ("3", "rank 2", &["--placement", "none"]),
        ("0", "rank 3", &["--repeat", "2"]),
    ] {
        let report = report(folder, rank, options, NOTHING);
        let about = format!("{rank} {options:?} {report}");
        assert_eq!(report["divergence_count"], 0, "{about}");
        // The sums of two steps, and a word of the question whether kernels run.
        assert_eq!(report["bytes_compared"], 2 * 4096 + 4, "{about}");
        assert_eq!(report["bytes_not_compared"], 0, "{about}");
        assert_eq!(report["stale_addresses"], 0, "{about}");
        let exchanges = &report["exchanges"];
        assert_eq!(exchanges["stand_ins"], 5, "{about}");
        // Opened memory, memory of a pool, and physical memory.
        let bytes = 2 * 4096 + (2 << 20);
        assert_eq!(exchanges["stand_in_bytes"], bytes, "{about}");
        assert_eq!(exchanges["bytes_put"], 16, "{about}");
        assert_eq!(exchanges["first_missing"], Value::Null, "{about}");
        let launches = &exchanges["left_out"][1];
        for (member, expected) in [
            ("function", json!("cuLaunchKernel")),
            ("kernel", json!("add")),
            ("with", json!(before)),
            ("count", json!(2)),
            ("changing", json!(2)),
            ("put_back", json!(2)),
        ] {
            assert_eq!(launches[member], expected, "{member}: {about}");
        }
        let copies = &exchanges["left_out"][0];
        assert_eq!(
            (&copies["count"], &copies["changing"]),
            (&json!(6), &json!(0))
        );
        let reasons = reasons(&report);
        let shared = format!("exchanges data with {before} (memory exported at call ");
        assert!(
            reasons.iter().all(|(why, _)| why.starts_with(&shared)),
            "{about}"
        );
        let count: u64 = reasons.iter().map(|reason| reason.1).sum();
        assert_eq!(count, 8, "{about}");
    }
    let text = replay(folder, "0", &[], NOTHING);
    text.assert(0);
    for line in [
        "stand-ins for what other processes exported: 5 (2,105,344 bytes of memory)\n",
        "exchanges left out: 8 calls; what they changed was put back: 16 bytes\n",
        "): with rank 3; put back: 2 of 2\n",
    ] {
        assert!(text.stdout.contains(line), "{}", text.stdout);
    }
    // Up to a call, and some calls only.
    let early = report(folder, "0", &["--until", "30"], NOTHING);
    assert_eq!(early["exchanges"]["left_out"], json!([]));
    let some = report(folder, "0", &["--calls", "cuLaunchKernel"], NOTHING);
    assert_eq!(some["exchanges"]["bytes_put"], 16);
}

fn without_outputs_bytes_are_not_compared(folder: &Path) {
    recorded(folder, ("sharing", &["2"]), &[], &[OF_SHARING]);
    let report = report(folder, "1", &[], NOTHING);
    assert_eq!(report["divergence_count"], 0, "{report}");
    assert_eq!(report["bytes_compared"], 0, "{report}");
    assert_eq!(report["bytes_not_compared"], 2 * 4096 + 4, "{report}");
    let exchanges = &report["exchanges"];
    let first = &exchanges["first_missing"];
    assert_eq!(first["call"], exchanges["left_out"][1]["first"], "{report}");
    let why = first["why"].as_str().unwrap();
    assert!(why.contains("record with --outputs-of-exchanges"), "{why}");
    let notes = report["notes"].as_object().unwrap();
    let note = notes.keys().next().unwrap();
    assert_eq!(notes.len(), 1);
    assert!(
        note.ends_with("bytes are not compared from there on"),
        "{note}"
    );
}

fn exchanges_are_found_by_the_memory_that_they_reach(folder: &Path) {
    recorded(folder, ("exchanges", &[]), OUTPUTS, &[OF_EXCHANGES]);
    for (rank, other) in [("0", "rank 1"), ("1", "rank 0")] {
        let report = report(folder, rank, &[], NOTHING);
        assert_eq!(report["divergence_count"], 0, "{report}");
        let exchanges = &report["exchanges"];
        let left_out = exchanges["left_out"].as_array().unwrap().iter();
        let left_out: Vec<_> = left_out
            .map(|left| {
                assert_eq!(left["with"], other, "{report}");
                let name = left["kernel"].as_str().or(left["function"].as_str());
                let number = |member: &str| left[member].as_u64().unwrap();
                let counts = ["count", "changing", "put_back"].map(number);
                (name.unwrap(), counts)
            })
            .collect();
        // One launch was refused by the driver, and one is captured.
        let expected = [
            ("direct", [8, 7, 6]),
            ("through", [1, 1, 1]),
            ("cuMemcpyDtoDAsync_v2", [1, 1, 1]),
            ("cuMemcpyDtoH_v2", [1, 0, 0]),
            ("listed", [1, 1, 1]),
        ];
        assert_eq!(left_out, expected, "{report}");
        let why = exchanges["first_missing"]["why"].as_str().unwrap();
        assert_eq!(why, "it is captured into a graph", "{report}");
        // Ten copies back before it, of what exchanges and other work wrote.
        assert_eq!(report["bytes_compared"], 10 * 256, "{report}");
        assert_eq!(report["exchanges"]["bytes_put"], 5 * 8 + 256, "{report}");
    }
}

fn devices_of_other_ranks_need_not_be_here(folder: &Path) {
    let two = ("CUTAPE_NULL_DEVICES", "2");
    let arguments = ["1", "spread"];
    recorded(folder, ("sharing", &arguments), OUTPUTS, &[OF_SHARING, two]);
    let one = ("CUTAPE_NULL_DEVICES", "1");
    // The second rank has a context of the other device only, for which the one here stands.
    for rank in ["0", "1"] {
        let report = report(folder, rank, &[], one);
        assert_eq!(report["divergence_count"], 0, "{report}");
        assert_eq!(report["bytes_compared"], 4096 + 4, "{report}");
        assert_eq!(
            report["machine"][0]["what"], "number of devices",
            "{report}"
        );
    }
}

fn one_trace_has_its_outputs_too(folder: &Path) {
    recorded(folder, ("sharing", &["2"]), OUTPUTS, &[OF_SHARING]);
    let trace = folder.join("run.rank2.cutape");
    let options: [&dyn AsRef<std::ffi::OsStr>; 5] =
        [&"replay", &"--driver", &"null", &"--format", &"json"];
    let replayed = run(parts().cutape(&options).arg(&trace));
    replayed.assert(0);
    let report: Value = serde_json::from_str(&replayed.stdout).unwrap();
    assert_eq!(report["bytes_compared"], 2 * 4096 + 4, "{report}");
    assert_eq!(report["exchanges"]["bytes_put"], 16, "{report}");
    assert_eq!(report["exchanges"]["stand_ins"], 0, "{report}");
    let check = run(&mut parts().cutape(&[&"check", &trace]));
    check.assert(0);
}

fn what_cannot_be_is_refused(folder: &Path) {
    recorded(folder, ("sharing", &["1"]), &[], &[]);
    let alone = folder.join("alone");
    std::fs::create_dir(&alone).unwrap();
    let single = alone.join("one.cutape");
    run(&mut record(&single, &[], &[&compiled("clean/events")])).assert(0);
    for (path, rank, why) in [
        (
            folder,
            "4",
            "no trace of rank 4; the folder has ranks 0, 1, 2, 3",
        ),
        (
            &alone,
            "0",
            "no trace of rank 0; none of the traces in the folder has a rank",
        ),
        (&single, "0", "--rank chooses a trace of a folder"),
        (folder, "x", "invalid value 'x' for '--rank <N>'"),
    ] {
        let refused = replay(path, rank, &[], NOTHING);
        refused.assert_code(2);
        assert!(refused.stderr.contains(why), "{}", refused.stderr);
    }
}
