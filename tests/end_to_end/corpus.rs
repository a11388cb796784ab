//! The traces in `traces/`, recorded on real hardware by earlier versions: each opens, is
//! undamaged, and has exactly the findings that its entry in the manifest names. `compat.rs` has
//! those of the null driver in `traces/compat/`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use cutape_format::Trace;
use cutape_tests::{Suite, parts, read_findings, replay, root, run};
use serde::Deserialize;

/// Traces in the repository stay small.
const LARGEST: u64 = 1 << 20;

/// `traces/manifest.toml`.
#[derive(Deserialize)]
struct Manifest {
    trace: Vec<Entry>,
}

/// A trace of the manifest.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    /// Path in `traces/`.
    file: String,
    /// The program's source, and how it was compiled.
    program: String,
    /// Date of the recording.
    date: String,
    /// Version of the driver: the end of its file name.
    driver: String,
    /// Name of the GPU.
    gpu: String,
    /// Number of calls.
    calls: u64,
    /// The call in which the program died.
    in_flight: Option<String>,
    /// Ids of the rules that `check` finds broken.
    findings: Vec<String>,
    /// What the null driver answers differs, and a replay there says so.
    #[serde(default)]
    diverges: bool,
}

fn folder() -> PathBuf {
    root().join("traces")
}

pub(crate) fn add_to(suite: &mut Suite) {
    let text = fs::read_to_string(folder().join("manifest.toml")).unwrap();
    let manifest: Manifest = toml::from_str(&text).expect("traces/manifest.toml");
    let files = manifest.trace.clone();
    suite.test("every_file_is_listed", move |_| listed(&files));
    for entry in manifest.trace {
        suite.test(entry.file.clone(), move |_| check(&entry));
    }
}

/// The manifest and the folder name the same files.
fn listed(entries: &[Entry]) -> Result<(), String> {
    let named: BTreeSet<String> = entries.iter().map(|entry| entry.file.clone()).collect();
    let mut there = BTreeSet::new();
    for group in ["clean", "misuse", "frameworks", "perf", "played"] {
        let Ok(files) = fs::read_dir(folder().join(group)) else {
            continue;
        };
        for file in files.flatten() {
            there.insert(format!("{group}/{}", file.file_name().to_string_lossy()));
        }
    }
    if named == there {
        return Ok(());
    }
    let missing: Vec<_> = named.difference(&there).collect();
    let unnamed: Vec<_> = there.difference(&named).collect();
    Err(format!(
        "in the manifest alone: {missing:?}; in the folder alone: {unnamed:?}"
    ))
}

fn check(entry: &Entry) -> Result<(), String> {
    let path = folder().join(&entry.file);
    let length = fs::metadata(&path)
        .map_err(|error| format!("{}: {error}", path.display()))?
        .len();
    if length > LARGEST {
        return Err(format!("{} bytes, more than {LARGEST}", length));
    }
    let trace = Trace::open(&path).map_err(|error| error.to_string())?;
    if let Some(damage) = trace.verify().first() {
        return Err(format!("byte {}: {}", damage.position, damage.what));
    }
    let calls: Vec<_> = trace.calls().collect();
    let in_flight: Vec<_> = calls
        .iter()
        .filter(|call| call.leave.is_none())
        .map(|call| call.signature.name.clone())
        .collect();
    if calls.len() as u64 != entry.calls || in_flight != Vec::from_iter(entry.in_flight.clone()) {
        return Err(format!("{} calls, in flight: {in_flight:?}", calls.len()));
    }
    let gpu = trace.meta_value("device.0.name").unwrap_or("none");
    let driver = trace.meta_value("driver.path").unwrap_or("none");
    if gpu != entry.gpu || !driver.ends_with(&entry.driver) {
        return Err(format!("recorded on {gpu} with {driver}"));
    }
    if entry.date.len() != 10
        || ![".c", ".py"]
            .iter()
            .any(|kind| entry.program.contains(kind))
    {
        return Err("date or program cannot be right".into());
    }
    let output = run(&mut parts().cutape(&[&"check", &"--format", &"json", &path]));
    let found: BTreeSet<String> = read_findings(&output.stdout)?
        .into_iter()
        .map(|finding| finding.rule)
        .collect();
    let expected: BTreeSet<String> = entry.findings.iter().cloned().collect();
    if found != expected {
        return Err(format!(
            "found {found:?}, expected {expected:?}; to see it: cutape check traces/{}",
            entry.file
        ));
    }
    // The other verbs read it without an error.
    for verb in ["dump", "info"] {
        run(&mut parts().cutape(&[&verb, &path])).expect(0)?;
    }
    replayed(&path, entry.diverges)
}

/// `replay` refuses the null driver for a trace of a real one; with `--force` it finds that the
/// null driver answers the same.
fn replayed(path: &Path, diverges: bool) -> Result<(), String> {
    let output = run(&mut replay(path));
    output.expect_code(2)?;
    let reason = "driver: recorded the real one, here the null driver";
    if !output.stderr.contains(reason) {
        return Err(format!("expected `{reason}`\n{}", output.describe()));
    }
    run(replay(path).args(["--force", "--keep-going"])).expect(diverges.into())
}
