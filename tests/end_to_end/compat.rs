//! Traces of every version of the format: each verb still reads them and says of them what
//! `traces/compat/` expects. `docs/compatibility.md` says what that promises.
//!
//! `UPDATE_GOLDEN=1` records the traces of the present version and writes expectations, where they
//! are missing. What exists is never written again.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use cutape_format::Trace;
use cutape_format::layout::{MAJOR, MINOR};
use cutape_tests::{Suite, compiled, parts, read_findings, readers, record, root, run};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Since this minor version, there are recorded traces beside the samples in
/// `format/tests/golden/`.
const RECORDED_SINCE: u32 = 12;

/// Name, program, and what it is recorded with.
type Recorded = (&'static str, &'static str, &'static [&'static str]);

const RECORDED: [Recorded; 4] = [
    (
        "nvtx_ranges",
        "clean/nvtx_ranges",
        &["--stacks=all", "--breadcrumbs=1", "--digests=sync"],
    ),
    ("link_demo", "demo/link_demo", &["--stacks=all"]),
    (
        "memory_host",
        "clean/memory_host",
        &["--check-sources", "--cassette"],
    ),
    (
        "paused",
        "clean/launch_thousand",
        &["--start-at=call:cuLaunchKernel:100", "--for=20 launches"],
    ),
];

/// What this build and later ones say of a trace.
#[derive(Deserialize, Serialize)]
struct Expectation {
    /// Exit status of each command that reads a trace.
    statuses: BTreeMap<String, i32>,
    /// `info --format json`: these members, and perhaps more.
    info: Value,
    /// The rule and the call of each finding of `check --all`, and perhaps more.
    findings: BTreeSet<String>,
    /// `dump --format json`, a call each: these members, and perhaps more. For recorded traces.
    calls: Vec<Value>,
    /// Members of `replay --format json`. For recorded traces.
    replay: Map<String, Value>,
}

/// Those of a replay that do not depend on the machine.
const OF_REPLAY: [&str; 4] = ["calls", "calls_replayed", "skipped", "divergences"];

pub(crate) fn add_to(suite: &mut Suite) {
    for minor in 0..=MINOR {
        let version = format!("{MAJOR}.{minor}");
        let short = match minor {
            0 => format!("v{MAJOR}"),
            _ => format!("v{version}"),
        };
        for (name, suffix) in [("sample", ""), ("sample-packed", "-packed")] {
            let trace = root().join(format!("format/tests/golden/{short}{suffix}.cutape"));
            let expectation = folder().join(&version).join(format!("{name}.json"));
            suite.test(format!("{version}/{name}"), move |folder: &Path| {
                check(folder, &trace, &expectation, false)
            });
        }
        if minor >= RECORDED_SINCE {
            for recorded in RECORDED {
                let trace = folder()
                    .join(&version)
                    .join(format!("{}.cutape", recorded.0));
                let expectation = trace.with_extension("json");
                suite.test(format!("{version}/{}", recorded.0), move |folder: &Path| {
                    if minor == MINOR {
                        make_if_missing(&trace, recorded)?;
                    }
                    check(folder, &trace, &expectation, true)
                });
            }
        }
    }
}

fn folder() -> PathBuf {
    root().join("traces/compat")
}

fn updates() -> bool {
    env::var_os("UPDATE_GOLDEN").is_some()
}

const COMMAND: &str =
    "UPDATE_GOLDEN=1 cargo test -p cutape-tests --test end_to_end -- compat/ writes it";

fn make_if_missing(trace: &Path, (_, program, options): Recorded) -> Result<(), String> {
    if trace.exists() || !updates() {
        return Ok(());
    }
    make_folder_of(trace)?;
    // Nothing of the machine that it is recorded on.
    let options = [options, &["--redact=environment,paths"]].concat();
    run(&mut record(trace, &options, &[&compiled(program)])).expect_code(0)
}

fn make_folder_of(path: &Path) -> Result<(), String> {
    let folder = path.parent().ok_or("no folder")?;
    fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))
}

fn check(folder: &Path, trace: &Path, expectation: &Path, is_recorded: bool) -> Result<(), String> {
    if !trace.exists() {
        let command = match is_recorded {
            true => COMMAND,
            false => "cargo run -p cutape-format --features build --example golden writes it",
        };
        return Err(format!(
            "{}: format {MAJOR}.{MINOR} has no such trace, by which later versions are tested; \
             {command}",
            trace.display()
        ));
    }
    let open = Trace::open(trace).map_err(|error| error.to_string())?;
    if let Some(damage) = open.verify().first() {
        return Err(format!("byte {}: {}", damage.position, damage.what));
    }
    drop(open);
    let found = ask(folder, trace, is_recorded)?;
    if !expectation.exists() && updates() {
        make_folder_of(expectation)?;
        let text = text_of(&found)?;
        return fs::write(expectation, text).map_err(|error| error.to_string());
    }
    let text = fs::read_to_string(expectation)
        .map_err(|error| format!("{}: {error}; {COMMAND}", expectation.display()))?;
    let expected: Expectation = serde_json::from_str(&text)
        .map_err(|error| format!("{}: {error}", expectation.display()))?;
    compare(&expected, &found).map_err(|what| {
        format!(
            "{}: {what}\nTraces of this version exist, and people know what cutape said of them. \
             If this build is right and the expectation was wrong, delete {} and write it again",
            trace.display(),
            expectation.display()
        )
    })
}

/// One member or call a line, so that differences can be read.
fn text_of(expectation: &Expectation) -> Result<String, String> {
    let Value::Object(members) = serde_json::to_value(expectation).map_err(|e| e.to_string())?
    else {
        return Err("not an object".into());
    };
    let members = members.iter().map(|(name, value)| match value {
        Value::Array(list) if !list.is_empty() => {
            let lines: Vec<_> = list.iter().map(|item| format!("\n  {item}")).collect();
            format!("\"{name}\": [{}]", lines.join(","))
        }
        Value::Object(object) if !object.is_empty() => {
            let lines: Vec<_> = object
                .iter()
                .map(|(name, value)| format!("\n  {}: {value}", Value::from(name.as_str())))
                .collect();
            format!("\"{name}\": {{{}}}", lines.join(","))
        }
        value => format!("\"{name}\": {value}"),
    });
    Ok(format!(
        "{{\n{}\n}}\n",
        members.collect::<Vec<_>>().join(",\n")
    ))
}

/// What this build says of a trace.
fn ask(folder: &Path, trace: &Path, is_recorded: bool) -> Result<Expectation, String> {
    // A name that the output does not depend on. `pack` rewrites it.
    let name = Path::new("sound.cutape");
    let cutape = |words: &[&OsStr]| {
        fs::copy(trace, folder.join(name)).map_err(|error| error.to_string())?;
        let output = run(Command::new(&parts().cutape)
            .args(words)
            .current_dir(folder));
        match output.code() {
            Some(code @ 0..=2) if !output.stderr.contains("panicked") => Ok((code, output)),
            _ => Err(output.describe()),
        }
    };
    let mut statuses = BTreeMap::new();
    for (number, reader) in readers().iter().enumerate() {
        let output = format!("out-{number}");
        let words: Vec<_> = reader.words_for(name, output.as_ref()).collect();
        statuses.insert(reader.name.clone(), cutape(&words)?.0);
    }
    // The status is above: that of `check` is 2 for a recording that ended early.
    let printed = |words: &str| {
        let words = words.split(' ').map(OsStr::new).chain([name.as_os_str()]);
        cutape(&words.collect::<Vec<_>>()).map(|(_, output)| output.stdout)
    };
    let json = |text: &str| -> Result<Value, String> {
        serde_json::from_str(text).map_err(|error| format!("{error}: {text}"))
    };
    let findings = read_findings(&printed("check --all --format json")?)?;
    let mut expectation = Expectation {
        statuses,
        info: json(&printed("info --format json")?)?,
        findings: findings
            .into_iter()
            .map(|finding| match finding.call {
                Some(call) => format!("{} {call}", finding.rule),
                None => finding.rule,
            })
            .collect(),
        calls: Vec::new(),
        replay: Map::new(),
    };
    if is_recorded {
        let lines = printed("dump --format json")?;
        expectation.calls = lines.lines().map(json).collect::<Result<_, _>>()?;
        let report = json(&printed("replay --driver null --format json")?)?;
        for name in OF_REPLAY {
            let value = report.get(name).ok_or_else(|| format!("no {name}"))?;
            expectation.replay.insert(name.into(), value.clone());
        }
    }
    Ok(expectation)
}

fn compare(expected: &Expectation, found: &Expectation) -> Result<(), String> {
    for (reader, status) in &expected.statuses {
        let now = found.statuses.get(reader);
        if now != Some(status) {
            return Err(format!(
                "{reader} ended with {status}, and now with {now:?}"
            ));
        }
    }
    let gone: Vec<_> = expected.findings.difference(&found.findings).collect();
    if !gone.is_empty() {
        return Err(format!("no longer found: {gone:?}"));
    }
    includes(&expected.info, &found.info, "info")?;
    let calls = |of: &Expectation| Value::Array(of.calls.clone());
    includes(&calls(expected), &calls(found), "dump")?;
    let replay = |of: &Expectation| Value::Object(of.replay.clone());
    includes(&replay(expected), &replay(found), "replay")
}

/// Members that are texts for people, or have them as names: their words may change.
const FOR_PEOPLE: [&str; 7] = [
    "changed",
    "not_taken",
    "places",
    "problem",
    "reason",
    "remarks",
    "text",
];

/// Whether a value has what is expected, and perhaps more members.
fn includes(expected: &Value, found: &Value, path: &str) -> Result<(), String> {
    match (expected, found) {
        (Value::Object(expected), Value::Object(found)) => {
            for (name, value) in expected {
                let path = format!("{path}.{name}");
                match found.get(name) {
                    Some(found) if FOR_PEOPLE.contains(&&**name) => {
                        if found.is_null() != value.is_null() {
                            return Err(format!("{path}: expected {value}, found {found}"));
                        }
                    }
                    Some(found) => includes(value, found, &path)?,
                    None => return Err(format!("{path} is missing")),
                }
            }
            Ok(())
        }
        (Value::Array(expected), Value::Array(found)) if expected.len() == found.len() => {
            let pairs = expected.iter().zip(found).enumerate();
            pairs.into_iter().try_for_each(|(at, (expected, found))| {
                includes(expected, found, &format!("{path}[{at}]"))
            })
        }
        _ if expected == found => Ok(()),
        _ => Err(format!("{path}: expected {expected}, found {found}")),
    }
}
