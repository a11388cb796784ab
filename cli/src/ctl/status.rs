//! What a recording does, for people, programs and Prometheus.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use cutape_format::Trace;
use cutape_render::quantity;
use cutape_terminal::failure::Failure;
use cutape_terminal::output;
use serde::Serialize;

use crate::live;

/// How `status` answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// For people.
    #[default]
    Text,
    /// For programs.
    Json,
    /// The text format of Prometheus.
    Prometheus,
}

/// What a recording does.
#[derive(Debug, Serialize)]
pub(super) struct Status {
    trace: PathBuf,
    process: u32,
    /// `recording` or `paused`.
    state: &'static str,
    /// Calls in the trace.
    calls: u64,
    /// Calls left out in pauses.
    left_out: u64,
    pauses: u32,
    /// Requests to the flight recorder, and how many of them it has served.
    keeps_asked: u64,
    keeps: u64,
    /// Bytes of the file, and what it takes on disk.
    bytes: u64,
    disk_bytes: u64,
    /// For how many nanoseconds calls have waited because the trace was longer than a flight recorder's
    /// bound: the sum over all threads.
    waited_ns: u64,
    /// The same for memory to be read; unknown if a flight recorder has erased some of the calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    snapshots_ns: Option<u64>,
    /// Why something is missing that was to be recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    lost: Option<String>,
}

/// A metric: name, help, kind, value.
type Metric = (
    &'static str,
    &'static str,
    &'static str,
    fn(&Status) -> Option<f64>,
);

const METRICS: [Metric; 11] = [
    (
        "recording",
        "Whether calls are recorded.",
        "gauge",
        |status| Some(f64::from(status.state == "recording")),
    ),
    ("calls_total", "Calls in the trace.", "counter", |status| {
        Some(status.calls as f64)
    }),
    (
        "calls_left_out_total",
        "Calls left out in pauses.",
        "counter",
        |status| Some(status.left_out as f64),
    ),
    ("pauses_total", "Pauses begun.", "counter", |status| {
        Some(f64::from(status.pauses))
    }),
    (
        "keeps_asked_total",
        "Requests to the flight recorder.",
        "counter",
        |status| Some(status.keeps_asked as f64),
    ),
    (
        "keeps_total",
        "Requests that the flight recorder has served.",
        "counter",
        |status| Some(status.keeps as f64),
    ),
    ("trace_bytes", "Length of the trace.", "gauge", |status| {
        Some(status.bytes as f64)
    }),
    (
        "trace_disk_bytes",
        "What the trace takes on disk.",
        "gauge",
        |status| Some(status.disk_bytes as f64),
    ),
    (
        "incomplete",
        "Whether the trace lacks what was to be recorded.",
        "gauge",
        |status| Some(f64::from(status.lost.is_some())),
    ),
    (
        "bound_wait_seconds_total",
        "For how long calls have waited because the trace was at its bound, all threads together.",
        "counter",
        |status| Some(seconds(status.waited_ns)),
    ),
    (
        "memory_snapshot_seconds_total",
        "For how long calls have waited for device memory to be read.",
        "counter",
        |status| status.snapshots_ns.map(seconds),
    ),
];

fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

impl Status {
    pub(super) fn of(path: &Path) -> Result<Self, Failure> {
        let trace = Trace::follow(path)?;
        let process = trace.writer().ok_or_else(|| live::not_recorded(path))?;
        let control = live::control_of(&trace)?;
        let left_out = trace.left_out().unwrap_or_default();
        let file = fs::metadata(path)
            .map_err(|error| Failure::unusable(format!("{}: {error}", path.display())))?;
        Ok(Self {
            trace: path.to_owned(),
            process,
            state: match control.pausing().is_paused() {
                true => "paused",
                false => "recording",
            },
            calls: trace.calls().count() as u64,
            left_out: left_out.calls,
            pauses: left_out.pauses,
            keeps_asked: control.keeps_asked(),
            keeps: control.kept(),
            bytes: file.len(),
            disk_bytes: file.blocks().saturating_mul(512),
            waited_ns: control.waited().saturating_mul(1_000_000),
            // A counter must not fall, as it would with the notes of calls that were erased.
            snapshots_ns: (!trace.has_erased()).then(|| trace.memory_snapshots().nanoseconds),
            lost: trace.shortfall().map(|shortfall| shortfall.why),
        })
    }

    fn text(&self) -> String {
        let mut text = format!(
            "{} (process {}): {}\n  {} recorded, {} left out in {}\n  {} ({} on disk)\n",
            self.trace.display(),
            self.process,
            self.state,
            quantity::count(self.calls, "call"),
            quantity::grouped(self.left_out),
            quantity::count(self.pauses.into(), "pause"),
            quantity::bytes(self.bytes),
            quantity::bytes(self.disk_bytes),
        );
        if self.keeps_asked > 0 {
            let asked = quantity::count(self.keeps_asked, "request");
            text += &format!("  flight recorder: {asked}, {} served\n", self.keeps);
        }
        let snapshots = self.snapshots_ns.unwrap_or(0);
        if self.waited_ns > 0 || snapshots > 0 {
            text += &format!(
                "  calls waited for {} at the bound of the trace, and for {} for memory to be read\n",
                quantity::time(self.waited_ns),
                quantity::time(snapshots)
            );
        }
        if let Some(why) = &self.lost {
            text += &format!("  incomplete: {why}\n");
        }
        text
    }
}

/// The text format of Prometheus: each metric with its help, then a line for each trace.
fn prometheus(all: &[Status]) -> String {
    let mut text = String::new();
    for (name, help, kind, value) in METRICS {
        text += &format!("# HELP cutape_{name} {help}\n# TYPE cutape_{name} {kind}\n");
        for status in all {
            let trace = label(&status.trace);
            let process = status.process;
            let Some(value) = value(status) else { continue };
            text += &format!("cutape_{name}{{trace=\"{trace}\",process=\"{process}\"}} {value}\n");
        }
    }
    text
}

/// A path as the value of a label.
fn label(path: &Path) -> String {
    let text = path.to_string_lossy();
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

fn text_of(format: Format, all: &[Status]) -> String {
    match format {
        Format::Text => all.iter().map(Status::text).collect(),
        Format::Json => format!("{}\n", serde_json::json!(all)),
        Format::Prometheus => prometheus(all),
    }
}

/// Prints what recordings do.
pub(super) fn print(format: Format, all: &[Status]) -> Result<(), Failure> {
    output::print(&text_of(format, all))
}

/// Replaces a file that the node exporter reads, which must never see half of it.
pub(super) fn write_textfile(path: &Path, all: &[Status]) -> Result<(), Failure> {
    let mut name = path.as_os_str().to_owned();
    // The node exporter reads files that end in `.prom`.
    name.push(format!(".{}", std::process::id()));
    let new = PathBuf::from(name);
    let written: io::Result<()> =
        fs::write(&new, prometheus(all)).and_then(|()| fs::rename(&new, path));
    written.map_err(|error| {
        let _ = fs::remove_file(&new);
        output::cannot_write("--textfile", path, &error)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use cutape_tests::{Members, compare_interface};

    use super::*;

    /// `tests/interface/ctl_status.txt`: members of the JSON form, metrics and their labels.
    #[test]
    fn interface_of_status_stays() {
        let all = [Status {
            snapshots_ns: Some(1_500_000_000),
            lost: Some("no space".into()),
            ..status("a")
        }];
        let mut members = Members::default();
        members.add("json", &serde_json::json!(all), &[]);
        let mut offered: BTreeSet<String> = members.lines();
        for line in prometheus(&all)
            .lines()
            .filter(|line| !line.contains("# HELP"))
        {
            let labels = "{trace=\"a\",process=\"7\"}";
            let line = match line.split_once(labels) {
                Some((name, _)) => format!("{name}{{trace,process}}"),
                None => line.to_owned(),
            };
            offered.insert(format!("prometheus {line}"));
        }
        compare_interface("ctl_status.txt", &offered).unwrap_or_else(|message| panic!("{message}"));
    }

    fn status(trace: &str) -> Status {
        Status {
            trace: PathBuf::from(trace),
            process: 7,
            state: "paused",
            calls: 12,
            left_out: 345,
            pauses: 2,
            keeps_asked: 0,
            keeps: 0,
            bytes: 4096,
            disk_bytes: 8192,
            waited_ns: 2_000_000,
            snapshots_ns: None,
            lost: None,
        }
    }

    #[test]
    fn metrics_have_a_line_for_each_trace() {
        let text = prometheus(&[status("a.cutape"), status("b \"\\\n.cutape")]);
        for line in [
            "# TYPE cutape_calls_total counter",
            "cutape_calls_total{trace=\"a.cutape\",process=\"7\"} 12",
            "cutape_recording{trace=\"a.cutape\",process=\"7\"} 0",
            "cutape_bound_wait_seconds_total{trace=\"a.cutape\",process=\"7\"} 0.002",
            "cutape_calls_left_out_total{trace=\"b \\\"\\\\\\n.cutape\",process=\"7\"} 345",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        // One metric is unknown of both.
        assert_eq!(text.lines().count(), METRICS.len() * 4 - 2);
    }

    #[test]
    fn files_are_replaced_whole() {
        let folder = std::env::temp_dir().join(format!("ctl-status-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("cutape.prom");
        for trace in ["a.cutape", "b.cutape"] {
            let all = [status(trace)];
            write_textfile(&path, &all).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), prometheus(&all));
        }
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        assert!(write_textfile(&folder.join("no/such.prom"), &[]).is_err());
        fs::remove_dir_all(&folder).unwrap();
    }
}
