//! `info FOLDER` compares the ranks of a parallel program, `export FOLDER` exports them as one,
//! `replay FOLDER` replays them together.

use std::ffi::OsStr;
use std::path::Path;

use cutape_tests::{compile, compiled, files, parts, record, root, run};
use serde_json::Value;

cutape_tests::tests![
    the_late_rank_is_named,
    collectives_in_graphs_count_when_the_graph_is_launched,
    a_rank_that_ended_is_named,
    ranks_are_compared_at_other_calls,
    processes_without_ranks_are_listed,
    ranks_are_exported_as_one_data_set,
    what_ranks_share_is_listed,
    ranks_are_replayed_together,
    a_rank_that_dies_or_hangs_is_named_by_the_others,
    how_the_memory_of_ranks_was_placed_is_kept,
    what_is_for_one_trace_is_refused_for_ranks,
];

/// Records the program of four ranks.
fn recorded(folder: &Path, arguments: &[&str]) {
    let program = folder.join("collectives");
    let driver = parts().driver_folder.join("libcuda.so.1");
    let source = root().join("tests/programs/ranks/collectives.c");
    compile(&source, &program, &[&driver, &"-pthread"]);
    let mut words = vec![program.to_str().unwrap()];
    words.extend(arguments);
    run(&mut record(&folder.join("run.cutape"), &[], &words)).assert(0);
    let traces = files(folder);
    let traces = traces
        .iter()
        .filter(|path| path.extension().is_some_and(|e| e == "cutape"));
    assert_eq!(traces.count(), 4);
}

fn info(folder: &Path, options: &[&str]) -> (String, Value) {
    let text = run(parts().cutape(&[&"info", &folder]).args(options));
    text.assert(0);
    let json = run(parts()
        .cutape(&[&"info", &"--format", &"json", &folder])
        .args(options));
    json.assert(0);
    (text.stdout, serde_json::from_str(&json.stdout).unwrap())
}

fn the_late_rank_is_named(folder: &Path) {
    recorded(folder, &["20", "2", "0"]);
    let (text, json) = info(folder, &[]);
    let ranks = &json["ranks"];
    assert_eq!(ranks["ranks"], serde_json::json!([0, 1, 2, 3]));
    assert_eq!(ranks["clocks"], "shared");
    let collective = &ranks["collectives"][0];
    assert_eq!(
        collective["kernel"],
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
    );
    assert_eq!(collective["counts"], serde_json::json!([20, 20, 20, 20]));
    assert_eq!(collective["compared"], 20);
    assert_eq!(collective["in_graphs"], serde_json::json!([0, 0, 0, 0]));
    // It sleeps for 3 ms before each.
    assert!(
        collective["median_skew_ns"].as_u64().unwrap() >= 2_000_000,
        "{collective}"
    );
    assert!(collective["last"][2].as_u64().unwrap() > 10, "{collective}");
    assert_eq!(collective["max_calls"].as_array().unwrap().len(), 4);
    assert_eq!(ranks["behind"]["rank"], 2);
    let step = &ranks["ranges"][0];
    assert_eq!(
        (&step["range"], step["counts"][0].as_u64()),
        (&"step".into(), Some(20))
    );
    assert!(text.contains("4 ranks: the ranks share a clock"), "{text}");
    assert!(text.contains("\nbehind: rank 2 was last at "), "{text}");
}

fn collectives_in_graphs_count_when_the_graph_is_launched(folder: &Path) {
    recorded(folder, &["20", "2", "0", "graph"]);
    let (text, json) = info(folder, &[]);
    let ranks = &json["ranks"];
    let collective = &ranks["collectives"][0];
    // Two nodes of each of 20 launches; the captured launches themselves do not run.
    assert_eq!(collective["counts"], serde_json::json!([40, 40, 40, 40]));
    assert_eq!(collective["in_graphs"], collective["counts"]);
    assert!(
        collective["median_skew_ns"].as_u64().unwrap() >= 2_000_000,
        "{collective}"
    );
    assert_eq!(ranks["behind"]["rank"], 2);
    assert!(text.contains("40 (40 in graphs)"), "{text}");
}

fn a_rank_that_ended_is_named(folder: &Path) {
    recorded(folder, &["10", "1", "6"]);
    let (text, json) = info(folder, &[]);
    let ranks = &json["ranks"];
    assert_eq!(
        ranks["collectives"][0]["counts"],
        serde_json::json!([10, 6, 10, 10])
    );
    assert_eq!(ranks["collectives"][0]["compared"], 6);
    assert_eq!(ranks["behind"]["rank"], 1);
    assert_eq!(ranks["behind"]["last_call"]["function"], "cuLaunchKernel");
    assert!(
        text.contains("behind: rank 1 made 6 of 10 such calls; its last call: "),
        "{text}"
    );
    assert!(text.contains("6 to 10"), "{text}");
}

fn ranks_are_compared_at_other_calls(folder: &Path) {
    recorded(folder, &["3", "0", "0"]);
    let (_, json) = info(folder, &["--align", "kernel:work"]);
    assert_eq!(json["ranks"]["collectives"][0]["kernel"], "work");
    assert_eq!(json["ranks"]["collectives"][0]["compared"], 3);
    let (_, json) = info(folder, &["--align", "range:step[0]"]);
    let kernels = json["ranks"]["collectives"].as_array().unwrap();
    assert_eq!(kernels.len(), 2, "{kernels:?}");
    for (set, why) in [
        (
            "kernel:none",
            "no call of these traces matches `kernel:none`",
        ),
        (
            "cuNothing*",
            "no function of the trace's signature table matches",
        ),
        ("range:stp", "no range `stp`; the trace has step"),
        ("mark:x", "a mark is a moment"),
    ] {
        let output = run(&mut parts().cutape(&[&"info", &folder, &"--align", &set]));
        output.assert_code(2);
        assert!(output.stderr.contains(why), "{set}: {}", output.stderr);
        assert_eq!(output.stderr.lines().count(), 1, "{}", output.stderr);
    }
    let trace = folder.join("run.rank0.cutape");
    let output = run(&mut parts().cutape(&[&"info", &trace, &"--align", &"kernel:work"]));
    output.assert_code(2);
    assert!(
        output.stderr.contains("give the folder"),
        "{}",
        output.stderr
    );
}

fn processes_without_ranks_are_listed(folder: &Path) {
    let trace = folder.join("run.cutape");
    run(&mut record(&trace, &[], &[&compiled("clean/events")])).assert(0);
    let (text, json) = info(folder, &[]);
    assert_eq!(json["ranks"], Value::Null);
    assert!(!text.contains("rank:"), "{text}");
}

fn ranks_are_exported_as_one_data_set(folder: &Path) {
    recorded(folder, &["5", "1", "0"]);
    let (_, json) = info(folder, &[]);
    let traces = json["traces"].as_array().unwrap();
    let calls = traces
        .iter()
        .map(|trace| trace["calls"]["total"].as_u64().unwrap());
    let calls = calls.sum::<u64>();
    let lines = folder.join("all.jsonl");
    let output =
        run(&mut parts().cutape(&[&"export", &"--format", &"jsonl", &folder, &"-o", &lines]));
    output.assert(0);
    let said = format!("{calls} calls of 4 traces");
    assert!(
        output.stdout.replace(',', "").contains(&said),
        "{}",
        output.stdout
    );
    let text = std::fs::read_to_string(&lines).unwrap();
    let rows = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let rows: Vec<Value> = rows.collect();
    let of = |table: &str| rows.iter().filter(|row| row["table"] == table).count() as u64;
    assert_eq!(of("calls"), calls);
    // Five steps of a collective and of other work in each rank.
    for rank in 0..4 {
        let launches = rows.iter().filter(|row| {
            row["table"] == "launches"
                && row["rank"] == rank
                && row["trace"] == format!("run.rank{rank}")
        });
        let names: Vec<_> = launches
            .map(|row| row["kernel"].as_str().unwrap())
            .collect();
        let collectives = names.iter().filter(|name| name.starts_with("nccl")).count();
        assert_eq!(collectives, 5, "{names:?}");
        let ranges = rows
            .iter()
            .filter(|row| row["table"] == "ranges" && row["rank"] == rank && row["path"] == "step");
        assert_eq!(ranges.count(), 5);
    }
    let tables = folder.join("all.parquet");
    let output =
        run(&mut parts().cutape(&[&"export", &"--format", &"parquet", &folder, &"-o", &tables]));
    output.assert(0);
    for trace in traces {
        let place = format!(
            "launches/rank{}.process{}.parquet",
            trace["rank"], trace["process"]
        );
        assert!(tables.join(&place).is_file(), "{place}");
    }
}

/// Records the program whose ranks share memory.
fn record_sharing(folder: &Path) {
    let program = folder.join("sharing");
    let driver = parts().driver_folder.join("libcuda.so.1");
    let source = root().join("tests/programs/ranks/sharing.c");
    compile(&source, &program, &[&driver, &"-pthread"]);
    let words = [program.to_str().unwrap(), "2"];
    let recorded = run(&mut record(&folder.join("run.cutape"), &[], &words));
    recorded.assert(0);
    let mut lines: Vec<&str> = recorded.stdout.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines.len(), 8, "{}", recorded.stdout);
    // What rank 3 wrote, as rank 0 sees it.
    assert_eq!(lines[0], "rank 0 step 0: 1030000 1032000 1034000");
}

fn what_ranks_share_is_listed(folder: &Path) {
    record_sharing(folder);
    let (text, json) = info(folder, &[]);
    let shared = &json["shared"];
    let objects = shared["objects"].as_array().unwrap();
    let of_rank_2: Vec<_> = objects
        .iter()
        .filter(|object| object["exported"]["rank"] == 2)
        .map(|object| {
            assert_eq!(object["imported"].as_array().unwrap().len(), 1, "{object}");
            assert_eq!(object["imported"][0]["rank"], 3, "{object}");
            let word = |value: &Value| value.as_str().unwrap().to_owned();
            (
                word(&object["kind"]),
                object["bytes"].as_u64(),
                word(&object["known_by"]),
                word(&object["exported"]["function"]),
                word(&object["imported"][0]["function"]),
            )
        })
        .collect();
    let expected = [
        (
            "memory",
            Some(4096),
            "handle",
            "cuIpcGetMemHandle",
            "cuIpcOpenMemHandle_v2",
        ),
        (
            "event",
            None,
            "handle",
            "cuIpcGetEventHandle",
            "cuIpcOpenEventHandle",
        ),
        (
            "allocation",
            Some(2 << 20),
            "file",
            "cuMemExportToShareableHandle",
            "cuMemImportFromShareableHandle",
        ),
        (
            "pool",
            None,
            "file",
            "cuMemPoolExportToShareableHandle",
            "cuMemPoolImportFromShareableHandle",
        ),
        (
            "pool memory",
            Some(4096),
            "handle",
            "cuMemPoolExportPointer",
            "cuMemPoolImportPointer",
        ),
    ];
    let expected = expected
        .map(|(kind, bytes, by, from, to)| (kind.into(), bytes, by.into(), from.into(), to.into()));
    assert_eq!(of_rank_2, expected);
    assert_eq!(shared["unmatched"], serde_json::json!([]));
    let file = &shared["files"][0];
    let parts: Vec<_> = file["registered"]
        .as_array()
        .unwrap()
        .iter()
        .map(|part| {
            (
                part["rank"].as_u64().unwrap(),
                part["offset"].as_u64().unwrap(),
            )
        })
        .collect();
    assert_eq!(parts, [(0, 0), (1, 4096), (2, 8192), (3, 12288)], "{file}");
    assert!(
        text.contains("shared between processes: 20 objects"),
        "{text}"
    );
    assert!(text.contains("pool memory  rank 2 call "), "{text}");
    assert!(text.contains("registered shared host memory"), "{text}");
    // One trace alone has imports without exports.
    for rank in 0..3 {
        std::fs::remove_file(folder.join(format!("run.rank{rank}.cutape"))).unwrap();
    }
    let (text, json) = info(folder, &[]);
    assert_eq!(json["shared"]["unmatched"].as_array().unwrap().len(), 5);
    assert!(
        text.contains("imports of what none of these processes exported: 5"),
        "{text}"
    );
}

/// Replays the ranks of a folder; the report.
fn replay_together(folder: &Path, setting: (&str, &str), options: &[&str], status: i32) -> Value {
    let mut command = parts().cutape(&[&"replay", &"--driver", &"null", &"--format", &"json"]);
    command.args(options).arg(folder).env(setting.0, setting.1);
    let replayed = run(&mut command);
    replayed.assert_code(status);
    serde_json::from_str(&replayed.stdout).unwrap()
}

const NOTHING: (&str, &str) = ("LC_ALL", "C");

fn ranks_are_replayed_together(folder: &Path) {
    record_sharing(folder);
    for options in [&[][..], &["--threads"], &["--placement", "none"]] {
        let json = replay_together(folder, NOTHING, options, 0);
        let ranks = json["ranks"].as_array().unwrap();
        assert_eq!(ranks.len(), 4);
        for (number, rank) in ranks.iter().enumerate() {
            assert_eq!(rank["rank"], number);
            let report = &rank["report"];
            assert_eq!(
                report["skipped"],
                serde_json::json!([]),
                "{options:?} {report}"
            );
            assert_eq!(report["divergence_count"], 0, "{options:?} {report}");
            // Three copies of each step from what another rank has written, one of the sums; and
            // a word of the question whether kernels run.
            assert_eq!(
                report["bytes_compared"],
                2 * 4 * 4096 + 4,
                "{options:?} {report}"
            );
            assert_eq!(
                report["notes"],
                serde_json::json!({}),
                "{options:?} {report}"
            );
        }
    }
    // Alone, a rank has none of it.
    let alone = folder.join("run.rank1.cutape");
    let alone = run(&mut parts().cutape(&[&"replay", &"--driver", &"null", &alone]));
    alone.assert(0);
    let expected = "1 x cuIpcOpenMemHandle_v2 (first: call ";
    assert!(alone.stdout.contains(expected), "{}", alone.stdout);
}

fn a_rank_that_dies_or_hangs_is_named_by_the_others(folder: &Path) {
    record_sharing(folder);
    let only_rank_2 = "cuCtxGetStreamPriorityRange";
    let slow = format!("{only_rank_2}=20s");
    for (setting, options, how) in [
        (
            ("CUTAPE_NULL_CRASH", only_rank_2),
            &[][..],
            "died by signal 11",
        ),
        (
            ("CUTAPE_NULL_DELAY", &*slow),
            &["--watchdog", "1"],
            "hung in call ",
        ),
    ] {
        let json = replay_together(folder, setting, options, 1);
        let report = |rank: usize| &json["ranks"][rank]["report"];
        let died = report(2)["died"]["text"].as_str().unwrap();
        assert!(died.contains(how) && died.contains(only_rank_2), "{died}");
        for rank in [0, 1, 3] {
            assert_eq!(report(rank)["died"], Value::Null, "{rank}");
            assert_eq!(report(rank)["divergence_count"], 0, "{rank}");
            let notes = report(rank)["notes"].to_string();
            assert!(notes.contains("rank 2 ended after "), "{rank}: {notes}");
        }
        // Only the next rank imports from it.
        let skipped = |rank: usize| report(rank)["skipped"].to_string();
        assert_eq!(skipped(0), "[]");
        let why = "imports from another rank: rank 2 ended before its call ";
        assert!(skipped(3).contains(why), "{}", skipped(3));
        assert!(
            skipped(3).contains("(cuMemPoolExportPointer)"),
            "{}",
            skipped(3)
        );
    }
}

fn how_the_memory_of_ranks_was_placed_is_kept(folder: &Path) {
    record_sharing(folder);
    let kept = folder.join("kept.json");
    let replay = |traces: &Path| {
        let options: [&dyn AsRef<OsStr>; 5] =
            [&"replay", &"--driver", &"null", &"--keep-placement", &kept];
        run(parts().cutape(&options).arg(traces))
    };
    let read = || -> Value {
        let text = std::fs::read_to_string(&kept).unwrap();
        serde_json::from_str(&text).unwrap()
    };
    replay(folder).assert(0);
    let first = read();
    let traces = (0..4).map(|rank| folder.join(format!("run.rank{rank}.cutape")));
    let calls = traces.map(|trace| {
        let info = run(&mut parts().cutape(&[&"info", &"--format", &"json", &trace]));
        let info: Value = serde_json::from_str(&info.stdout).unwrap();
        info["calls"]["total"].clone()
    });
    let known = first.as_array().unwrap().iter();
    let known: Vec<_> = known.map(|rank| rank["trace"]["calls"].clone()).collect();
    assert_eq!(known, calls.collect::<Vec<_>>(), "{first}");
    replay(folder).assert(0);
    assert_eq!(read(), first);
    // What is kept of ranks is not for a trace alone, and the other way round.
    replay(&folder.join("run.rank0.cutape")).assert(0);
    assert_eq!(read()["trace"], first[0]["trace"]);
    replay(folder).assert(0);
    assert_eq!(read(), first);
    std::fs::write(&kept, "[{}]").unwrap();
    let replaced = replay(folder);
    replaced.assert_code(0);
    let why = "kept.json: not used, and replaced: no kept placement of this version: ";
    assert!(replaced.stderr.contains(why), "{}", replaced.stderr);
    assert_eq!(read(), first);
    std::fs::write(&kept, "notes").unwrap();
    let refused = replay(folder);
    refused.assert_code(2);
    let why = "kept.json: the kept placement cannot be read: ";
    assert!(refused.stderr.contains(why), "{}", refused.stderr);
}

fn what_is_for_one_trace_is_refused_for_ranks(folder: &Path) {
    std::fs::create_dir(folder.join("none")).unwrap();
    for (options, why) in [
        (
            &["--until", "3"][..],
            "--until cannot be used with a folder of ranks",
        ),
        (
            &["--repeat", "2"],
            "--repeat cannot be used with a folder of ranks",
        ),
        (
            &["--placement", "granules"],
            "--placement granules cannot be used",
        ),
        (&[], "a folder without traces"),
    ] {
        let mut command = parts().cutape(&[&"replay", &"--driver", &"null"]);
        let refused = run(command.args(options).arg(folder.join("none")));
        refused.assert_code(2);
        assert!(refused.stderr.contains(why), "{}", refused.stderr);
        assert_eq!(refused.stderr.lines().count(), 1, "{}", refused.stderr);
    }
}
