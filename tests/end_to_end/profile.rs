//! `cutape profile` on the null driver, with a library in the place of CUPTI, and with events.
//!
//! The null driver runs no kernels, so that the library says what ran and when.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use cutape_format::Trace;
use cutape_tests::{Output, compile, compiled, parts, record, root, run};
use serde_json::Value;

cutape_tests::tests![
    records_are_joined_with_calls,
    nodes_of_a_graph,
    repeated_replays_have_intervals,
    events_in_the_place_of_cupti,
    events_of_captured_and_per_thread_work,
    what_cupti_cannot_do_is_said,
    text_and_files,
    order_of_the_legacy_default_stream,
    functions_of_the_host_come_between_work,
    exports_have_gpu_times,
    what_is_no_profile_is_refused,
];

fn trace_of(folder: &Path, program: &str) -> PathBuf {
    let trace = folder
        .join(program.replace('/', "-"))
        .with_extension("cutape");
    run(&mut record(&trace, &[], &[&compiled(program)])).assert(0);
    trace
}

/// A recorded program with launches of four kernels, copies, memsets and a stream.
fn trace() -> &'static Path {
    static TRACE: OnceLock<PathBuf> = OnceLock::new();
    TRACE.get_or_init(|| {
        trace_of(
            &parts().new_folder("profile-trace"),
            "clean/launch_vector_add",
        )
    })
}

/// The library in the place of CUPTI.
fn cupti() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let library = parts().new_folder("profile-cupti").join("libcupti.so");
        let source = root().join("tests/programs/profile/cupti.c");
        compile(&source, &library, &[&"-O1", &"-fPIC", &"-shared"]);
        library
    })
}

/// The indices of the calls of some functions.
fn calls(trace: &Path, functions: &[&str]) -> Vec<u64> {
    let trace = Trace::open(trace).unwrap();
    let calls = trace
        .calls()
        .filter(|call| functions.contains(&&*call.signature.name));
    calls.map(|call| call.index).collect()
}

fn profile(trace: &Path, options: &[&str], plan: &str) -> Output {
    let mut command = parts().cutape(&[&"profile", &trace, &"--driver", &"null"]);
    if !options.contains(&"--cupti") {
        command.arg("--cupti").arg(cupti());
    }
    run(command.args(options).env("CUTAPE_TESTS_CUPTI", plan))
}

fn json(output: &Output) -> Value {
    output.assert_code(0);
    serde_json::from_str(&output.stdout).unwrap_or_else(|_| panic!("{}", output.describe()))
}

fn numbers(values: &Value, member: &str) -> Vec<u64> {
    let values = values.as_array().unwrap().iter();
    values
        .map(|value| value[member].as_u64().unwrap_or(u64::MAX))
        .collect()
}

fn records_are_joined_with_calls(_: &Path) {
    let launches = calls(trace(), &["cuLaunchKernel"]);
    let copies = calls(trace(), &["cuMemcpyHtoD_v2"]);
    let [first, _, second, third] = launches[..] else {
        panic!("{launches:?}")
    };
    let plan = format!(
        "{}:copy:1000:3000:400000,{first}:kernel:10000:40000:7,{second}:kernel:50000:60000:13,\
         {third}:kernel:61000:62000:13,own,lost",
        copies[0]
    );
    let document = json(&profile(trace(), &["--format", "json"], &plan));
    assert_eq!(document["method"]["version"], 130_001);
    let run = &document["runs"][0];
    assert_eq!(run["lost"], 3);
    assert_eq!(run["overhead_ns"], 5000);
    let work = &run["work"];
    let order = [u64::MAX, copies[0], first, second, third];
    assert_eq!(numbers(work, "call"), order);
    let lasted: Vec<u64> = numbers(work, "begin_ns")
        .iter()
        .zip(numbers(work, "end_ns"))
        .map(|(begin, end)| end - begin)
        .collect();
    assert_eq!(lasted, [1, 2000, 30_000, 10_000, 1000]);
    // The axis is that of the host: of the first call, with the error of two clocks.
    let begin = work[2]["begin_ns"].as_u64().unwrap();
    assert!((9_000..1_000_000).contains(&begin), "{begin}");
    assert_eq!(work[2]["name"], "kernel(float*, int)");
    assert_eq!(work[2]["grid"], serde_json::json!([264, 1, 1]));
    assert_eq!(work[1]["bytes"], 400_000);
    // Streams as the trace names them.
    let stream = |at: usize| &document["streams"][work[at]["stream"].to_string()];
    assert_eq!(stream(2), "default stream");
    assert_eq!(stream(3), "stream#1");
    assert!(
        stream(0)
            .as_str()
            .unwrap()
            .starts_with("stream of the replay")
    );
    // Every call that the driver got has times, and what the trace says of it.
    let host = run["host"].as_array().unwrap();
    assert!(host.len() > 20, "{}", host.len());
    for call in host {
        assert!(call["end_ns"].as_u64() >= call["begin_ns"].as_u64());
        let facts = &document["calls"][call["call"].to_string()];
        assert!(facts["function"].as_str().unwrap().starts_with("cu"));
        assert!(facts["recorded_end_ns"].as_u64() >= facts["recorded_begin_ns"].as_u64());
    }
    let summary = &document["summary"];
    assert_eq!(summary["without_call"], 1);
    let row = &summary["work"][0];
    assert_eq!(
        (&row["count"], &row["longest_call"]),
        (&4.into(), &first.into())
    );
    // 264 blocks of 1024 threads: two to each of 132 multiprocessors.
    assert_eq!(
        (&row["occupancy"]["occupancy"], &row["occupancy"]["waves"]),
        (&1.0.into(), &1.0.into())
    );
    let timeline = &summary["timelines"][0];
    let parts = [
        "busy_ns",
        "idle_host_ns",
        "idle_launch_ns",
        "idle_device_ns",
    ];
    let sum: u64 = parts
        .iter()
        .map(|part| timeline[part].as_u64().unwrap())
        .sum();
    assert_eq!(sum, timeline["wall_ns"].as_u64().unwrap());
    let path = &summary["critical_path"];
    for parts in ["shares", "ranges"] {
        let sum: u64 = numbers(&path[parts], "total_ns").iter().sum();
        assert_eq!(sum, path["wall_ns"].as_u64().unwrap(), "{parts}");
    }
    let wall = summary["wall"].as_object().unwrap();
    let sum = wall.values().map(|part| part.as_u64().unwrap());
    assert_eq!(sum.sum::<u64>(), 2 * wall["total_ns"].as_u64().unwrap());
    assert!(wall["start_ns"].as_u64() > Some(0) && wall["finish_ns"].as_u64() > Some(0));
    assert!(wall["before_calls_ns"].as_u64() > Some(0));
    let stalls = &summary["stalls"];
    let functions: Vec<_> = stalls
        .as_array()
        .unwrap()
        .iter()
        .map(|stall| &stall["function"])
        .collect();
    assert!(
        functions.contains(&&"cuStreamSynchronize".into()),
        "{functions:?}"
    );
}

fn nodes_of_a_graph(folder: &Path) {
    let trace = trace_of(folder, "clean/graph");
    let launch = calls(&trace, &["cuGraphLaunch"])[0];
    let plan = format!("{launch}:node:1000:2000:1,{launch}:node:2000:5000:2");
    let document = json(&profile(&trace, &["--format", "json"], &plan));
    let work = &document["runs"][0]["work"];
    assert_eq!(numbers(work, "call"), [launch, launch]);
    assert_eq!(numbers(work, "node"), [1, 2]);
    assert_eq!(work[0]["name"], "node()");
}

fn repeated_replays_have_intervals(_: &Path) {
    let launch = calls(trace(), &["cuLaunchKernel"])[0];
    let plan = format!("{launch}:kernel:1000:3000:7");
    let document = json(&profile(
        trace(),
        &["--repeat", "3", "--format", "json"],
        &plan,
    ));
    assert_eq!(document["runs"].as_array().unwrap().len(), 3);
    let total = &document["summary"]["work"][0]["total_ns"];
    assert_eq!(
        (&total["count"], &total["median"]),
        (&3.into(), &2000.0.into())
    );
    assert_eq!(total["confidence"], 0.75);
    assert!(document["summary"]["run"].as_u64().unwrap() < 3);
}

fn events_in_the_place_of_cupti(_: &Path) {
    let document = json(&profile(
        trace(),
        &["--cupti", "none", "--format", "json"],
        "",
    ));
    assert_eq!(document["method"]["by"], "events");
    let run = &document["runs"][0];
    let functions = [
        "cuLaunchKernel",
        "cuMemcpyHtoD_v2",
        "cuMemcpyDtoH_v2",
        "cuMemcpyDtoHAsync_v2",
        "cuMemsetD8_v2",
    ];
    let mut timed = numbers(&run["work"], "call");
    timed.sort_unstable();
    assert_eq!(timed, calls(trace(), &functions));
    assert_eq!(run["not_timed"], 0);
    let kernels = run["work"].as_array().unwrap().iter();
    let names: Vec<_> = kernels
        .filter(|work| work["kind"] == "kernel")
        .map(|work| work["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["vector_add", "mark", "saxpy", "nothing"]);
    let text = profile(trace(), &["--cupti", "none"], "");
    text.assert_code(0);
    assert!(
        text.stdout.contains("by events around each call's work"),
        "{}",
        text.describe()
    );
}

/// Captured calls run nothing; contexts end before the trace does.
fn events_of_captured_and_per_thread_work(folder: &Path) {
    for (program, functions) in [
        ("clean/graph", &["cuGraphLaunch"][..]),
        ("clean/per_thread_stream", &["cuLaunchKernel_ptsz"]),
    ] {
        let trace = trace_of(folder, program);
        let document = json(&profile(
            &trace,
            &["--cupti", "none", "--format", "json"],
            "",
        ));
        let run = &document["runs"][0];
        assert_eq!(run["not_timed"], 0, "{program}");
        let timed = numbers(&run["work"], "call");
        let expected = calls(&trace, functions);
        assert!(!expected.is_empty(), "{program}");
        for call in expected {
            assert!(
                timed.contains(&call),
                "{program}: {call} is not in {timed:?}"
            );
        }
    }
}

fn what_cupti_cannot_do_is_said(folder: &Path) {
    let launch = calls(trace(), &["cuLaunchKernel"])[0];
    for (plan, why) in [
        ("old", "its version is 17, too old"),
        ("refused", "profiling needs privileges here"),
    ] {
        let output = profile(trace(), &[], plan);
        output.assert_code(2);
        assert!(output.stderr.contains(why), "{}", output.describe());
        let hint = "`--cupti none` measures with events";
        assert!(output.stderr.contains(hint), "{}", output.describe());
        assert_eq!(output.stdout, "");
    }
    let output = profile(trace(), &[], &format!("{launch}:kernel:1:2:7,short"));
    output.assert_code(0);
    let note = "note: records of kind 10 have 120 bytes";
    assert!(output.stdout.contains(note), "{}", output.describe());
    let text = folder.join("text.so");
    fs::write(&text, "no library").unwrap();
    for (path, why) in [
        (&*text, "text.so"),
        (&*parts().null_driver, "it is not CUPTI"),
        (&*folder.join("missing"), "give the path of libcupti.so"),
    ] {
        let output = profile(trace(), &["--cupti", path.to_str().unwrap()], "");
        output.assert_code(2);
        assert!(output.stderr.contains(why), "{}", output.describe());
    }
}

fn text_and_files(folder: &Path) {
    let launch = calls(trace(), &["cuLaunchKernel"])[0];
    let plan = format!("{launch}:kernel:1000:3000:7");
    let text = profile(trace(), &[], &plan);
    text.assert_code(0);
    for expected in [
        "GPU times of 1 replay, by CUPTI 130001",
        "device 0: a device of the tests",
        "kernel(float*, int)",
        "the host waited in:",
        "critical path (",
    ] {
        assert!(
            text.stdout.contains(expected),
            "{expected}: {}",
            text.describe()
        );
    }
    let file = folder.join("profile.json");
    let options = ["--format", "json", "-o", file.to_str().unwrap()];
    let output = profile(trace(), &options, &plan);
    output.assert_code(0);
    assert_eq!(output.stdout, "");
    let document: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(document["runs"][0]["work"][0]["call"], launch);
}

/// What a profile says that the work of a call comes after.
fn needs(document: &Value, call: u64) -> Vec<u64> {
    let needs = document["calls"][call.to_string()]["needs"].as_array();
    let needs = needs.into_iter().flatten();
    needs.map(|call| call.as_u64().unwrap()).collect()
}

/// Work of a blocking stream, and of a thread's default stream, comes after what the legacy default
/// stream had before.
fn order_of_the_legacy_default_stream(folder: &Path) {
    let document = json(&profile(trace(), &["--format", "json"], ""));
    let launches = calls(trace(), &["cuLaunchKernel"]);
    let copies = calls(trace(), &["cuMemcpyHtoD_v2"]);
    // On stream#1, the first after a copy by the default stream.
    assert_eq!(needs(&document, launches[2]), [*copies.last().unwrap()]);
    assert_eq!(needs(&document, launches[3]), [0; 0]);
    assert_eq!(needs(&document, launches[0]), [0; 0]);
    let trace = trace_of(folder, "clean/per_thread_stream");
    let document = json(&profile(
        &trace,
        &["--format", "json", "--cupti", "none"],
        "",
    ));
    let copy = *calls(&trace, &["cuMemcpyHtoD_v2_ptds"]).last().unwrap();
    let work = document["runs"][0]["work"].as_array().unwrap().iter();
    let legacy =
        work.filter(|work| document["streams"][work["stream"].to_string()] == "default stream");
    let legacy = legacy.map(|work| work["call"].as_u64().unwrap());
    let before = legacy.filter(|call| *call < copy).max().unwrap();
    assert_eq!(needs(&document, copy), [before]);
}

fn functions_of_the_host_come_between_work(folder: &Path) {
    let trace = trace_of(folder, "clean/host_functions");
    let document = json(&profile(
        &trace,
        &["--format", "json", "--cupti", "none"],
        "",
    ));
    let all = document["calls"].as_object().unwrap().values();
    let functions = all.filter_map(|facts| facts["host_function"].as_u64());
    let functions: Vec<u64> = functions.collect();
    assert!(!functions.is_empty());
    let known = calls(&trace, &["cuLaunchHostFunc", "cuStreamAddCallback"]);
    for call in functions {
        assert!(known.contains(&call), "{call} is not in {known:?}");
    }
}

/// A profile in a file, of the trace of these tests.
fn profile_file(folder: &Path, plan: &str) -> PathBuf {
    let file = folder.join("profile.json");
    let options = ["--format", "json", "-o", file.to_str().unwrap()];
    profile(trace(), &options, plan).assert_code(0);
    file
}

fn export(folder: &Path, profile: &Path, format: &str, name: &str) -> (Output, PathBuf) {
    let target = folder.join(name);
    let mut command = parts().cutape(&[&"export", &trace(), &"--format", &format, &"-o", &target]);
    (run(command.arg("--profile").arg(profile)), target)
}

fn exports_have_gpu_times(folder: &Path) {
    let launch = calls(trace(), &["cuLaunchKernel"])[0];
    let file = profile_file(folder, &format!("{launch}:kernel:1000:3000:7"));
    let (output, target) = export(folder, &file, "jsonl", "lines");
    output.assert_code(0);
    let text = fs::read_to_string(target).unwrap();
    let rows = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let rows: Vec<Value> = rows.filter(|row| row["gpu_ns"] == 2000).collect();
    let of: Vec<_> = rows
        .iter()
        .map(|row| (&row["table"], &row["call"]))
        .collect();
    let call = launch.into();
    assert_eq!(of, [(&"calls".into(), &call), (&"gpu_work".into(), &call)]);
    // Only the work of chosen calls.
    let target = folder.join("chosen");
    let mut command = parts().cutape(&[&"export", &trace(), &"--format", &"jsonl", &"-o", &target]);
    command.args(["--calls", "0", "--profile"]);
    run(command.arg(&file)).assert_code(0);
    let text = fs::read_to_string(target).unwrap();
    assert!(
        text.contains("cuInit") && !text.contains("gpu_work"),
        "{text}"
    );
    let (output, target) = export(folder, &file, "chrome", "chrome.json");
    output.assert_code(0);
    let document: Value = serde_json::from_str(&fs::read_to_string(target).unwrap()).unwrap();
    let events = document["traceEvents"].as_array().unwrap();
    let kernel = events
        .iter()
        .find(|event| event["cat"] == "gpu-kernel")
        .unwrap();
    assert_eq!(
        (&kernel["args"]["call"], &kernel["dur"]),
        (&call, &2.0.into())
    );
    for (format, name) in [("parquet", "tables"), ("perfetto", "timeline")] {
        let (output, _) = export(folder, &file, format, name);
        output.assert_code(0);
    }
    assert!(folder.join("tables/gpu_work").is_dir());
    let bytes = fs::read(folder.join("timeline")).unwrap();
    let text = b"GPU 0: default stream";
    assert!(bytes.windows(text.len()).any(|part| part == text));
}

fn what_is_no_profile_is_refused(folder: &Path) {
    let launch = calls(trace(), &["cuLaunchKernel"])[0];
    let file = profile_file(folder, &format!("{launch}:kernel:1000:3000:7"));
    let valid: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    let mut other = valid.clone();
    other["calls"]["0"]["function"] = "cuCtxDestroy_v2".into();
    let mut reversed = valid;
    reversed["runs"][0]["work"][0]["begin_ns"] = 3.into();
    reversed["runs"][0]["work"][0]["end_ns"] = 1.into();
    let changed = folder.join("changed.json");
    for (text, why) in [
        (
            other.to_string(),
            "--profile: the profile is of another trace: its call 0 is",
        ),
        (reversed.to_string(), "something ends at 1, begins at 3"),
        ("{}".to_owned(), "it is no profile: missing field"),
        (
            format!("{{\"x\":{}", "[".repeat(100_000)),
            "it is no profile: EOF while parsing",
        ),
    ] {
        fs::write(&changed, text).unwrap();
        let (output, target) = export(folder, &changed, "jsonl", "refused");
        output.assert_code(2);
        assert!(output.stderr.contains(why), "{}", output.describe());
        assert!(!target.exists());
        let page = folder.join("page.html");
        let mut command = parts().cutape(&[&"report", &trace(), &"-o", &page]);
        let output = run(command.arg("--profile").arg(&changed));
        output.assert_code(2);
        assert!(output.stderr.contains(why), "{}", output.describe());
    }
    let mut command = parts().cutape(&[&"export", &folder, &"--format", &"jsonl", &"-o", &"x"]);
    let output = run(command.arg("--profile").arg(&file));
    output.assert_code(2);
    let why = "a profile is of one trace";
    assert!(output.stderr.contains(why), "{}", output.describe());
}
