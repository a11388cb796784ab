//! A verb in a process of its own, which may crash, hang or run out of memory.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use cutape_terminal::ending::Group;
use cutape_terminal::failure::Failure;
use cutape_terminal::private_folder::PrivateFolder;
use cutape_terminal::signals::signal_name;
use serde::de::DeserializeOwned;

/// The longest reason that results keep, in characters.
const LONGEST_REASON: usize = 500;

/// How a process ended.
pub(crate) struct Ended<R> {
    /// Its report, or why there is none.
    pub(crate) report: Result<R, String>,
    pub(crate) seconds: f64,
}

/// How long a process may take.
#[derive(Clone, Copy)]
pub(crate) struct Limit {
    pub(crate) time: Duration,
    /// The option that sets it, as ` (--time-limit)`; nothing if there is none.
    pub(crate) option: &'static str,
}

/// Runs a verb that writes JSON to the file of the option `report`, but not longer than `limit`.
pub(crate) fn run<R: DeserializeOwned>(
    program: &Path,
    words: &[OsString],
    report: &str,
    folder: &PrivateFolder,
    limit: Limit,
) -> Result<Ended<R>, Failure> {
    let option = report;
    let (report, messages) = (folder.path("report.json"), folder.path("messages"));
    let _ = fs::remove_file(&report);
    let mut command = Command::new(program);
    command
        .args(["--no-config", "--color", "never"])
        .args(words)
        .arg(option)
        .arg(&report)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(&messages)?);
    let begin = Instant::now();
    let status = Group::start(&mut command)?.wait_within(limit.time)?;
    let seconds = begin.elapsed().as_secs_f64();
    let said = String::from_utf8_lossy(&fs::read(&messages)?).into_owned();
    let said = said.lines().rfind(|line| !line.trim().is_empty());
    let read = fs::read(&report).ok();
    let read = read.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let report = read.ok_or_else(|| match status {
        None => format!("not done after {} s{}", limit.time.as_secs(), limit.option),
        Some(status) => why(status, said),
    });
    Ok(Ended { report, seconds })
}

fn why(status: std::process::ExitStatus, said: Option<&str>) -> String {
    use std::os::unix::process::ExitStatusExt;
    let reason = match (status.signal(), said) {
        (Some(signal), _) => format!("killed by {}", signal_name(signal)),
        (None, Some(said)) => said.trim_start_matches("cutape: ").to_owned(),
        (None, None) => format!("{status}, without a report"),
    };
    reason.chars().take(LONGEST_REASON).collect()
}
