//! The recorded corpus in `traces/`: each trace opens, is whole, and is found to break exactly the rules that its manifest
//! entry names. These were recorded on real hardware by earlier versions, and every later version must read them.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use cutape_format::Trace;
use cutape_tests::{parts, read_findings, run};
use libtest_mimic::{Arguments, Failed, Trial};
use serde::Deserialize;

/// A trace in a repository is to stay small.
const LARGEST: u64 = 1 << 20;

/// `traces/manifest.toml`.
#[derive(Deserialize)]
struct Manifest {
    trace: Vec<Entry>,
}

/// What is known of a trace.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    /// Path below `traces/`.
    file: String,
    /// The program's source, and how it was compiled.
    program: String,
    /// Day of the recording.
    date: String,
    /// Version of the driver, as the driver's library names itself.
    driver: String,
    /// Name of the GPU.
    gpu: String,
    /// How many calls it has.
    calls: u64,
    /// The call that the program died in.
    in_flight: Option<String>,
    /// Ids of the rules that are found to be broken.
    findings: Vec<String>,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../traces")
}

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let manifest = fs::read_to_string(folder().join("manifest.toml"))
        .map_err(|error| format!("traces/manifest.toml: {error}"))
        .and_then(|text| toml::from_str::<Manifest>(&text).map_err(|error| error.to_string()));
    let trials = match manifest {
        Ok(manifest) => {
            let files = manifest.trace.clone();
            let mut trials = vec![Trial::test("every_file_is_listed", move || {
                listed(&files).map_err(Failed::from)
            })];
            trials.extend(manifest.trace.into_iter().map(|entry| {
                Trial::test(entry.file.clone(), move || {
                    check(&entry).map_err(Failed::from)
                })
            }));
            trials
        }
        Err(error) => vec![Trial::test("manifest", move || {
            Err(Failed::from(error.clone()))
        })],
    };
    let listing = arguments.list;
    let conclusion = libtest_mimic::run(&arguments, trials);
    if !listing {
        parts().clean_up();
    }
    conclusion.exit_code()
}

/// The manifest and the folder name the same files.
fn listed(entries: &[Entry]) -> Result<(), String> {
    let named: BTreeSet<String> = entries.iter().map(|entry| entry.file.clone()).collect();
    let mut there = BTreeSet::new();
    for group in ["clean", "misuse", "compat"] {
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
    if entry.date.len() != 10 || !entry.program.contains(".c") {
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
    // The other readers must get through it, too.
    for verb in ["dump", "info"] {
        run(&mut parts().cutape(&[&verb, &path])).expect(0)?;
    }
    replayed(&path)
}

/// The null driver is no machine for it; who insists finds that it answers every call as the real one did.
fn replayed(path: &Path) -> Result<(), String> {
    let output = run(&mut parts().cutape(&[&"replay", &"--driver", &"null", &path]));
    output.expect_code(2)?;
    let reason = "driver: recorded the real one, here the null driver";
    if !output.stderr.contains(reason) {
        return Err(format!("not refused for its driver\n{}", output.describe()));
    }
    let options = [&"--force" as &dyn AsRef<OsStr>, &"--keep-going", &path];
    run(parts()
        .cutape(&[&"replay", &"--driver", &"null"])
        .args(options.map(AsRef::as_ref)))
    .expect(0)
}
