//! `replay FOLDER` of ranks that share page-locked host memory, and of flags in it that device or
//! CPU write while a stream waits.

use std::path::Path;

use cutape_tests::{compile, parts, record, root, run};
use serde_json::Value;

cutape_tests::tests![
    flags_in_shared_memory_are_written_by_whoever_wrote_them,
    changes_of_shared_memory_are_counted,
    a_wait_that_lasts_names_the_flag_and_the_rank,
    ranks_on_different_devices_need_as_many,
];

/// Records two ranks, of which one waits for flags that this one writes.
fn recorded(folder: &Path, writer: &str, options: &[&str]) {
    let program = folder.join("host_flags");
    let driver = parts().driver_folder.join("libcuda.so.1");
    let source = root().join("tests/programs/ranks/host_flags.c");
    compile(&source, &program, &[&driver, &"-pthread"]);
    let words = [program.to_str().unwrap(), "2", writer];
    let output = run(&mut record(&folder.join("run.cutape"), options, &words));
    output.assert(0);
    assert_eq!(output.stdout, "step 1: 1000\nstep 2: 2000\n");
}

/// The report of each rank.
fn replayed(folder: &Path, setting: (&str, &str), options: &[&str], status: i32) -> Vec<Value> {
    let mut command = parts().cutape(&[&"replay", &"--driver", &"null", &"--format", &"json"]);
    command.args(options).arg(folder).env(setting.0, setting.1);
    let output = run(&mut command);
    output.assert_code(status);
    // While the watchdog waits.
    let is_late = output.stderr.contains("cutape: rank 0: no progress for ");
    assert_eq!(is_late, status != 0, "{}", output.stderr);
    let json: Value = serde_json::from_str(&output.stdout).unwrap();
    let ranks = json["ranks"].as_array().unwrap();
    ranks.iter().map(|rank| rank["report"].clone()).collect()
}

const NOTHING: (&str, &str) = ("LC_ALL", "C");

fn flags_in_shared_memory_are_written_by_whoever_wrote_them(folder: &Path) {
    for (writer, options, put) in [
        ("device", &[][..], 0),
        ("device", &["--threads"], 0),
        ("device", &["--placement", "none"], 0),
        ("cpu", &[], 2),
        ("own-cpu", &["--placement", "none"], 2),
    ] {
        let folder = folder.join(format!("{writer}{}", options.len()));
        std::fs::create_dir_all(&folder).unwrap();
        recorded(&folder, writer, &[]);
        let reports = replayed(&folder, NOTHING, options, 0);
        assert_eq!(reports.len(), 2);
        for report in &reports {
            let what = format!("{writer} {options:?} {report}");
            assert_eq!(report["divergence_count"], 0, "{what}");
            assert_eq!(report["skipped"], serde_json::json!([]), "{what}");
            assert_eq!(report["bytes_not_compared"], 0, "{what}");
        }
        // What rank 1 has copied through the shared memory.
        assert_eq!(reports[0]["bytes_compared"], 2 * 4096, "{}", reports[0]);
        let flags = reports[0]["put_during_waits"].as_array();
        let flags = flags.cloned().unwrap_or_default();
        assert_eq!(flags.len(), put, "{writer} {flags:?}");
        for (step, flag) in flags.iter().enumerate() {
            assert_eq!((&flag["offset"], &flag["length"]), (&0.into(), &1.into()));
            assert_eq!(flag["made_by"], "cuMemHostRegister_v2", "{flag}");
            assert_eq!(flag["is_shared"], true, "{flag}");
            let earlier = &flags[step.saturating_sub(1)]["call"];
            assert!(flag["call"].as_u64() >= earlier.as_u64(), "{flags:?}");
        }
    }
}

fn changes_of_shared_memory_are_counted(folder: &Path) {
    recorded(folder, "cpu", &["--host-memory", "all"]);
    let text = run(&mut parts().cutape(&[&"info", &folder]));
    text.assert(0);
    let json = run(&mut parts().cutape(&[&"info", &"--format", &"json", &folder]));
    let json: Value = serde_json::from_str(&json.stdout).unwrap();
    let parts = &json["shared"]["files"][0]["registered"];
    // Data and flag of the second step at least: the first look may find those of the first.
    let changes = parts[0]["changes"].as_u64().unwrap();
    let bytes = parts[0]["changed_bytes"].as_u64().unwrap();
    assert!((2..=4).contains(&changes), "{parts:#}");
    let row = format!(
        " {changes} by rank 0 ({},{:03} bytes)  262,144\n",
        bytes / 1000,
        bytes % 1000
    );
    assert!(text.stdout.contains(&row), "{row}{}", text.stdout);
    assert_eq!(parts[1]["changes"], 0, "{parts:#}");
}

fn a_wait_that_lasts_names_the_flag_and_the_rank(folder: &Path) {
    // The trace does not say what the memory held, and rank 1 ends before it writes the flag.
    recorded(folder, "device", &["--host-memory", "off"]);
    let crash = ("CUTAPE_NULL_CRASH", "cuCtxGetStreamPriorityRange@2");
    let reports = replayed(folder, crash, &["--watchdog", "2"], 1);
    let text = reports[0]["died"].to_string();
    let call = reports[1]["died"]["call"].as_u64().unwrap();
    for part in [
        "hung in call ",
        "(cuStreamSynchronize)",
        "(cuStreamWaitValue32_v2) waits for 2 or more at offset 0x0 of /dev/shm/host_flags.",
        ": it holds 1\"",
        "rank 1, whose call ",
        &format!("it has ended after {call} calls, the last is call {call} (cuCtxGetStream"),
    ] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
}

fn ranks_on_different_devices_need_as_many(folder: &Path) {
    let program = folder.join("host_flags");
    let driver = parts().driver_folder.join("libcuda.so.1");
    let source = root().join("tests/programs/ranks/host_flags.c");
    compile(&source, &program, &[&driver, &"-pthread"]);
    let words = [program.to_str().unwrap(), "1", "device", "spread"];
    let mut command = record(&folder.join("run.cutape"), &[], &words);
    run(command.env("CUTAPE_NULL_DEVICES", "2")).assert(0);
    replayed(folder, ("CUTAPE_NULL_DEVICES", "2"), &[], 0);
    let mut command = parts().cutape(&[&"replay", &"--driver", &"null", &folder]);
    let refused = run(command.env("CUTAPE_NULL_DEVICES", "1"));
    refused.assert_code(2);
    let why = "rank 1: devices: the ranks work on 2 devices and this machine has 1";
    assert!(refused.stderr.contains(why), "{}", refused.stderr);
    assert_eq!(refused.stderr.lines().count(), 1, "{}", refused.stderr);
}
