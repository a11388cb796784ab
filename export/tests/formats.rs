//! The formats, as their readers see them.

mod program;

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use cutape_export::rows::Rows;
use cutape_export::tables::{
    JsonLines, OWN_COLUMNS, ParquetFolder, SCHEMA_VERSION, TABLES, TableSink, TableWriter,
};
use cutape_export::timeline::{ChromeTrace, TimelineSink};
use cutape_format::Trace;
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
