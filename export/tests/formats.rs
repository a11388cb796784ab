//! The formats, as their readers see them.

mod program;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cutape_export::Replayed;
use cutape_export::rows::Rows;
use cutape_export::tables::{
    JsonLines, OWN_COLUMNS, ParquetFolder, SCHEMA_VERSION, TABLES, TableSink, TableWriter,
};
use cutape_export::timeline::{ChromeTrace, TimelineSink};
use cutape_format::Trace;
use cutape_profile::{
    CallFacts, Counters, HostCall, KernelCounters, Method, Profile, Run, Stall, Work, WorkKind,
};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::RowAccessor;
use serde_json::{Value, json};

fn trace(name: &str) -> Trace {
    let mut builder = program::program();
    builder
        .meta("rank", "3")
        .meta("clock.ticks-per-second", "1000000000");
    program::open(&builder, name)
}

fn write<W: TableWriter>(traces: &[Trace], writer: W) -> W {
    let mut sink = TableSink::new(writer, true);
    for trace in traces {
        Rows::of(trace).with_findings(trace).run(&mut sink).unwrap();
    }
    sink.finish().unwrap()
}

#[test]
fn json_lines() {
    let trace = trace("lines");
    let mut bytes = Vec::new();
    let writer = JsonLines::new(&mut bytes).unwrap();
    write(&[trace], writer).finish().unwrap();
    let text = String::from_utf8(bytes).unwrap();
    let rows: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(
        rows[0],
        json!({"table": "schema", "version": SCHEMA_VERSION})
    );
    // Every column that a row of this trace has a value for is one of its table.
    for row in &rows[1..] {
        let table = TABLES
            .iter()
            .find(|table| table.name == row["table"])
            .unwrap();
        for key in row.as_object().unwrap().keys() {
            let is_known = ["table", "process", "rank"].contains(&key.as_str())
                || table.columns().any(|column| column.name == key);
            assert!(is_known, "{key} in {}", table.name);
        }
    }
    let of = |table: &str, place: usize| {
        let mut rows = rows.iter().filter(|row| row["table"] == table);
        rows.nth(place).unwrap()
    };
    let launch = of("launches", 1);
    for (key, expected) in [
        ("trace", json!("lines")),
        ("rank", json!(3)),
        ("call", json!(8)),
        ("result", json!(0)),
        ("kernel", json!("_Z4saxpPf")),
        ("kernel_source", json!("saxp(float*)")),
        ("function", json!("function#1")),
        ("module", json!("module#1")),
        ("grid_x", json!(4)),
        ("block_x", json!(32)),
        ("block_z", json!(1)),
        ("threads", json!(128)),
        ("shared_bytes", json!(0)),
        ("stream_name", json!("stream#1")),
        ("captured", json!(true)),
    ] {
        assert_eq!(launch[key], expected, "{key}");
    }
    let times = ["enter_ns", "leave_ns", "duration_ns"].map(|key| launch[key].as_u64().unwrap());
    assert_eq!(times[1] - times[0], times[2]);
    let copy = of("copies", 0);
    assert_eq!(copy["direction"], "host-to-device");
    assert_eq!(
        (&copy["source"], &copy["target"]),
        (&json!("host"), &json!("device"))
    );
    assert_eq!(
        (&copy["bytes"], &copy["async"]),
        (&json!(60), &json!(false))
    );
    let memory = of("memory", 0);
    assert_eq!(
        (&memory["change_bytes"], &memory["live_blocks"]),
        (&json!(100), &json!(1))
    );
    let arguments = of("calls", 4)["arguments"].as_str().unwrap();
    let arguments: Value = serde_json::from_str(arguments).unwrap();
    assert_eq!(arguments["ByteCount"]["value"], 60, "{arguments}");
    assert_eq!(of("ranges", 1)["path"], "train/step");
    assert_eq!(of("objects", 0)["object"], "context#1");
    assert_eq!(of("waits", 0)["waits_for"], "stream");
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => found.push(path),
        }
    }
    found.sort();
    found
}

#[test]
fn parquet_files() {
    let folder = std::env::temp_dir().join(format!("cutape-parquet-{}", std::process::id()));
    fs::create_dir(&folder).unwrap();
    let traces = [trace("one"), trace("two")];
    let process = traces[0].head().process;
    write(&traces, ParquetFolder::new(&folder))
        .finish()
        .unwrap();
    let found = files(&folder);
    // Both traces have the same process and rank.
    assert_eq!(found.len(), 2 * TABLES.len());
    for table in TABLES {
        for part in 0..2 {
            let part_name = ["", ".1"][part];
            let name = format!("{}/rank3.process{process}{part_name}.parquet", table.name);
            let reader = SerializedFileReader::new(File::open(folder.join(&name)).unwrap());
            let reader = reader.unwrap();
            let facts = reader.metadata().file_metadata();
            let columns = facts.schema_descr().columns().iter();
            let columns: Vec<_> = columns.map(|column| column.name().to_owned()).collect();
            let expected = table.columns().chain(OWN_COLUMNS);
            let expected: Vec<_> = expected.map(|column| column.name).collect();
            assert_eq!(columns, expected, "{name}");
            let mut keys = facts.key_value_metadata().unwrap().iter();
            let version = keys.find(|entry| entry.key == "cutape.schema").unwrap();
            assert_eq!(version.value.as_deref(), Some(SCHEMA_VERSION));
            let records = match table.name {
                "traces" | "images" | "waits" => 1,
                "calls" => 11,
                "launches" | "copies" | "ranges" => 2,
                "memory" => 1,
                "objects" => 5,
                "graph_launches" | "graph_kernels" => 0,
                _ => facts.num_rows(),
            };
            assert_eq!(facts.num_rows(), records, "{name}");
            // The text of another trace is not in it.
            let rows = reader.get_row_iter(None).unwrap();
            for row in rows {
                let row = row.unwrap();
                assert_eq!(row.get_string(0).unwrap(), ["one", "two"][part], "{name}");
                let [own, rank] = [row.len() - 2, row.len() - 1];
                assert_eq!(row.get_long(own).unwrap(), i64::from(process), "{name}");
                assert_eq!(row.get_long(rank).unwrap(), 3, "{name}");
            }
        }
    }
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn chrome_trace() {
    let mut bytes = Vec::new();
    let mut sink = TimelineSink::new(ChromeTrace::new(&mut bytes).unwrap());
    for trace in [trace("one"), trace("two")] {
        Rows::of(&trace)
            .with_findings(&trace)
            .run(&mut sink)
            .unwrap();
    }
    sink.finish().unwrap().finish().unwrap();
    let all: Value = serde_json::from_slice(&bytes).unwrap();
    let events = all["traceEvents"].as_array().unwrap();
    let count = |key: &str, value: &str| {
        let found = events.iter().filter(|event| event[key] == value);
        found.count()
    };
    for (key, value, expected) in [
        ("cat", "call", 22),
        ("cat", "launch", 4),
        ("cat", "copy", 4),
        ("cat", "range", 4),
        // To two launches and two copies of each trace.
        ("ph", "f", 8),
        ("name", "device memory", 2),
        ("name", "process_name", 2),
    ] {
        assert_eq!(count(key, value), expected, "{key} {value}");
    }
    let starts: Vec<_> = events.iter().filter(|event| event["ph"] == "s").collect();
    for end in events.iter().filter(|event| event["ph"] == "f") {
        let same = starts.iter().filter(|start| start["id"] == end["id"]);
        assert_eq!(same.count(), 1, "{end}");
    }
}

/// A profile of the program: its first launch is a kernel and a second piece of work beside it, its
/// later launch a graph of two nodes.
fn profile() -> Profile {
    let work = |name: &str, begin: u64, end: u64, call: Option<u64>| Work {
        name: name.into(),
        begin_ns: begin,
        end_ns: end,
        call,
        stream: 1,
        ..Work::of(WorkKind::Kernel)
    };
    let node = |node, work| Work {
        node: Some(node),
        ..work
    };
    let host = |call, begin_ns, end_ns| HostCall {
        call,
        begin_ns,
        end_ns,
        taken_ns: None,
        done_ns: None,
    };
    let facts = |function: &str, range: Option<&str>| CallFacts {
        function: function.into(),
        recorded_begin_ns: Some(500),
        range: range.map(str::to_owned),
        ..CallFacts::default()
    };
    let mut run = Run {
        work: vec![
            work("own", 5, 6, None),
            work("saxp", 100, 400, Some(6)),
            work("beside", 200, 300, Some(6)),
            node(1, work("a", 500, 600, Some(8))),
            node(2, work("b", 590, 700, Some(8))),
        ],
        host: vec![host(6, 40, 50), host(8, 60, 70)],
        ..Run::default()
    };
    run.work[1].grid = Some([4, 1, 1]);
    run.work[1].registers = Some(32);
    Profile {
        trace: "app".into(),
        driver: "driver".into(),
        method: Method::Events,
        devices: Vec::new(),
        streams: [(1, "stream#1".to_owned())].into(),
        calls: [
            (6, facts("cuLaunchKernel", Some("train/step"))),
            (8, facts("cuLaunchKernel", None)),
        ]
        .into(),
        runs: vec![run],
        counters: Some(counters()),
        notes: BTreeMap::new(),
    }
}

fn counters() -> Counters {
    let kernel = |call, name: &str| KernelCounters {
        call,
        name: name.into(),
        ..KernelCounters::default()
    };
    let state = |reason: &str, share| Stall {
        reason: reason.into(),
        share,
    };
    Counters {
        kernels: vec![
            KernelCounters {
                grid: Some([4, 1, 1]),
                duration_ns: Some(1500.5),
                dram_share: Some(0.25),
                stalls: vec![state("selected", 0.75), state("wait", 0.25)],
                ..kernel(6, "saxp")
            },
            kernel(99, "of another call"),
        ],
        ..Counters::default()
    }
}

fn chrome_with_profile(profile: Profile) -> Result<Vec<Value>, cutape_export::Error> {
    let mut bytes = Vec::new();
    let replayed = Some(Arc::new(Replayed::new(profile)));
    let writer = ChromeTrace::new(&mut bytes).unwrap();
    let mut sink = TimelineSink::new(writer).with_replay(replayed);
    Rows::of(&trace("one")).run(&mut sink)?;
    sink.finish()?.finish().unwrap();
    let all: Value = serde_json::from_slice(&bytes).unwrap();
    Ok(all["traceEvents"].as_array().unwrap().clone())
}

#[test]
fn timelines_show_a_replay_as_a_process() {
    let events = chrome_with_profile(profile()).unwrap();
    let process = |event: &Value| event["pid"].as_u64().unwrap() >= 1 << 22;
    let replay: Vec<&Value> = events.iter().filter(|event| process(event)).collect();
    let found = |key: &str, value: &str| {
        let found = replay.iter().find(|event| event[key] == value);
        *found.unwrap_or_else(|| panic!("no {key} {value} in {replay:#?}"))
    };
    // The axis begins where the recording entered the first replayed call: 500 - 40 ns.
    let saxp = found("name", "saxp");
    assert_eq!((&saxp["ts"], &saxp["dur"]), (&json!(0.56), &json!(0.3)));
    assert_eq!(
        saxp["args"],
        json!({"call": 6, "grid": "4x1x1", "registers": 32, "range": "train/step"})
    );
    assert_eq!(found("cat", "range")["name"], "train/step");
    // What overlaps is on a track of its own.
    assert_ne!(saxp["tid"], found("name", "beside")["tid"]);
    let graph = found("cat", "gpu-graph");
    assert_eq!((&graph["ts"], &graph["dur"]), (&json!(0.96), &json!(0.2)));
    assert_eq!(graph["args"], json!({"call": 8, "nodes": 2}));
    let tracks = replay.iter().filter(|event| event["name"] == "thread_name");
    let mut tracks: Vec<&str> = tracks
        .map(|event| event["args"]["name"].as_str().unwrap())
        .collect();
    tracks.sort_unstable();
    assert_eq!(
        tracks,
        [
            "GPU 0: graphs, from first to last node",
            "GPU 0: stream#1",
            "GPU 0: stream#1 (at the same time, 2)",
            "calls of thread 0, replayed",
            "ranges of thread 0: calls in them",
        ]
    );
    // From the call to each of its two pieces of work, and to the graph as a whole.
    let flows = |phase: &str| {
        let flows = replay.iter().filter(|event| event["ph"] == phase);
        let mut ids: Vec<&str> = flows.map(|event| event["id"].as_str().unwrap()).collect();
        ids.sort_unstable();
        ids
    };
    assert_eq!(flows("s").len(), 3);
    assert_eq!(flows("s"), flows("f"));
    let mut other = profile();
    other.calls.get_mut(&6).unwrap().function = "cuInit".into();
    let why = chrome_with_profile(other).unwrap_err().to_string();
    assert_eq!(
        why,
        "the profile is of another trace: its call 6 is cuInit, the trace's cuLaunchKernel"
    );
}

#[test]
fn tables_have_gpu_times() {
    let mut bytes = Vec::new();
    let writer = JsonLines::new(&mut bytes).unwrap();
    let replayed = Some(Arc::new(Replayed::new(profile())));
    let mut sink = TableSink::new(writer, false).with_replay(replayed);
    Rows::of(&trace("one")).run(&mut sink).unwrap();
    sink.finish().unwrap().finish().unwrap();
    let text = String::from_utf8(bytes).unwrap();
    let rows: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let of = |table: &'static str| rows.iter().filter(move |row| row["table"] == table);
    for call in of("calls") {
        let expected = match call["call"].as_u64().unwrap() {
            6 => [json!(100), json!(400)],
            8 => [json!(500), json!(210)],
            _ => [Value::Null, Value::Null],
        };
        assert_eq!(
            [&call["gpu_begin_ns"], &call["gpu_ns"]],
            [&expected[0], &expected[1]]
        );
    }
    let work: Vec<_> = of("gpu_work")
        .map(|row| {
            (
                &row["name"],
                &row["call"],
                &row["gpu_ns"],
                &row["stream_name"],
            )
        })
        .collect();
    assert_eq!(work.len(), 5);
    assert_eq!(
        work[1],
        (&json!("saxp"), &json!(6), &json!(300), &json!("stream#1"))
    );
    assert_eq!(work[0].1, &Value::Null, "the replay's own");
    let counters: Vec<_> = of("gpu_counters").collect();
    let [row] = counters[..] else {
        panic!("{counters:?}")
    };
    for (column, value) in [
        ("call", json!(6)),
        ("grid_x", json!(4)),
        ("duration_ns", json!(1500.5)),
        ("dram_share", json!(0.25)),
        ("l2_hit_rate", Value::Null),
        ("stall", json!("wait")),
        ("stall_share", json!(0.25)),
        ("stalls", json!(r#"{"selected":0.75,"wait":0.25}"#)),
    ] {
        assert_eq!(row[column], value, "{column}");
    }
}
