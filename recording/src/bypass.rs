//! Warns if calls bypass the interposer: a process has libcuda mapped, but does not record.
//!
//! Checks from outside while the program runs, through `/proc`.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use cutape_maps::{Mapping, mappings};
use cutape_registry::{RecorderSetting, asks_for_libcuda};
use cutape_terminal::message;

use crate::family::is_named_as_family;
use crate::until_dropped::UntilDropped;

/// How long a process may have the driver mapped before its first recorded call; the first
/// interval.
const PATIENCE: Duration = Duration::from_secs(1);
/// The interval doubles up to this.
const LONGEST_INTERVAL: Duration = Duration::from_secs(4);

/// What to monitor.
pub(crate) struct Target {
    /// The program's process; its descendants are checked too.
    pub(crate) process: u32,
    /// The driver that the interposer calls.
    pub(crate) driver: PathBuf,
    /// Libcuda files that may be mapped before the first call, such as the interposer.
    pub(crate) harmless: Vec<PathBuf>,
    /// The trace of the recording.
    pub(crate) trace: PathBuf,
    /// The link that exists if the interposer could not create a trace, and has said so.
    pub(crate) not_recorded: PathBuf,
    /// What to do about calls that bypass the interposer.
    pub(crate) advice: &'static str,
}

/// Monitors until dropped. Without a thread only the warning is lost.
pub(crate) fn start(target: Target) -> Option<UntilDropped> {
    UntilDropped::start("bypass-monitor", move |stopped| monitor(&target, stopped)).ok()
}

fn monitor(target: &Target, stopped: &Receiver<()>) {
    let libraries = Libraries {
        driver: Identity::of(&target.driver),
        harmless: target
            .harmless
            .iter()
            .filter_map(|path| Identity::of(path))
            .collect(),
    };
    // Processes that had the driver mapped at the last check, and those already judged.
    let (mut waiting, mut settled) = (BTreeSet::new(), BTreeSet::new());
    let mut interval = PATIENCE;
    while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(interval) {
        let mut found = BTreeMap::new();
        for process in descendants(target.process) {
            if !settled.contains(&process)
                && let Some(mapped) = MappedFiles::of(process, &libraries, &target.trace)
            {
                found.insert(process, mapped);
            }
        }
        let mut still_waiting = BTreeSet::new();
        for (process, mapped) in found {
            if mapped.is_recorded || target.not_recorded.is_symlink() {
                settled.insert(process);
            } else if waiting.contains(&process) {
                settled.insert(process);
                warn(process, &mapped.driver, advice(process, target));
            } else {
                still_waiting.insert(process);
            }
        }
        interval = match still_waiting.is_empty() {
            true => (interval * 2).min(LONGEST_INTERVAL),
            false => PATIENCE,
        };
        waiting = still_waiting;
    }
}

/// What to do about a process that does not record: the interposer may never have been loaded.
fn advice(process: u32, target: &Target) -> &'static str {
    // An unreadable environment is no evidence.
    let environment = fs::read(format!("/proc/{process}/environ"));
    let has_variables = |bytes: &[u8]| {
        bytes
            .split(|&byte| byte == 0)
            .any(|entry| RecorderSetting::Trace.is_set_by(entry))
    };
    if environment.is_ok_and(|bytes| !has_variables(&bytes)) {
        return "the command that started it replaced its environment: put that command before \
         `cutape record`";
    }
    // The process's own view of the file system.
    let root = PathBuf::from(format!("/proc/{process}/root"));
    let sees = |path: &PathBuf| {
        let inside = root.join(path.strip_prefix("/").unwrap_or(path));
        inside.symlink_metadata().is_ok()
    };
    if root.read_link().is_ok() && !target.harmless.iter().any(sees) {
        return "cutape's files do not exist where it runs: install cutape and run `cutape \
         record` there";
    }
    target.advice
}

fn warn(process: u32, path: &Path, advice: &str) {
    let name = fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
    message!(
        "no call recorded from process {process} ({}), which mapped {} at least {} s ago; \
         if it uses CUDA, its calls bypass cutape: {advice}",
        name.trim_end(),
        path.display(),
        PATIENCE.as_secs()
    );
}

/// A file's inode and name. The device is left out: on some file systems /proc and `stat` disagree
/// about it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Identity {
    inode: u64,
    name: OsString,
}

impl Identity {
    fn of(path: &Path) -> Option<Self> {
        let path = path.canonicalize().ok()?;
        Some(Self {
            inode: fs::metadata(&path).ok()?.ino(),
            name: path.file_name()?.to_owned(),
        })
    }
}

struct Libraries {
    driver: Option<Identity>,
    harmless: Vec<Identity>,
}

impl Libraries {
    /// Whether a mapped file is a libcuda other than the harmless ones.
    fn is_driver(&self, inode: u64, path: &Path) -> bool {
        let Some(name) = path.file_name() else {
            return false;
        };
        let is = |file: &Identity| file.inode == inode && file.name == name;
        let is_known = self.driver.as_ref().is_some_and(is);
        (is_known || asks_for_libcuda(path.as_os_str().as_bytes())) && !self.harmless.iter().any(is)
    }
}

/// What a process with a libcuda has mapped.
struct MappedFiles {
    driver: PathBuf,
    /// A trace is mapped: the interposer has seen a call.
    is_recorded: bool,
}

impl MappedFiles {
    fn of(process: u32, libraries: &Libraries, trace: &Path) -> Option<Self> {
        let maps = fs::read(format!("/proc/{process}/maps")).ok()?;
        let files = || mappings(&maps).filter_map(mapped_file);
        let (_, driver) = files().find(|(inode, path)| libraries.is_driver(*inode, path))?;
        Some(Self {
            driver: driver.to_owned(),
            is_recorded: files().any(|(_, path)| is_trace(path, trace)),
        })
    }
}

/// Whether a mapped file is a trace of the recording, which may have been deleted, or be its
/// parent's in a forked child. By name, since in a container it has another path, and its process
/// another number.
fn is_trace(path: &Path, trace: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_bytes();
    let name = name.strip_suffix(b" (deleted)").unwrap_or(name);
    is_named_as_family(trace, Path::new(OsStr::from_bytes(name)))
}

/// The file that is mapped: its number and path.
fn mapped_file(mapping: Mapping<'_>) -> Option<(u64, &Path)> {
    let path = Path::new(OsStr::from_bytes(mapping.path));
    path.is_absolute().then_some((mapping.inode, path))
}

/// A process and its descendants.
fn descendants(process: u32) -> Vec<u32> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let number = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok());
        if let Some(number) = number
            && let Ok(stat) = fs::read(entry.path().join("stat"))
            && let Some(parent) = parent(&stat)
        {
            children.entry(parent).or_default().push(number);
        }
    }
    let mut all = vec![process];
    let mut next = 0;
    while let Some(&process) = all.get(next) {
        all.extend(children.remove(&process).unwrap_or_default());
        next += 1;
    }
    all
}

/// The parent in /proc/PID/stat: number, name in parentheses (any bytes), state, parent.
fn parent(stat: &[u8]) -> Option<u32> {
    let after_name = stat.iter().rposition(|&byte| byte == b')')? + 1;
    let text = std::str::from_utf8(&stat[after_name..]).ok()?;
    text.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn which_library_is_the_driver() {
        let file = |inode, name: &str| Identity {
            inode,
            name: name.into(),
        };
        let libraries = Libraries {
            driver: Some(file(10, "libcutape_null.so")),
            harmless: vec![file(11, "libcuda.so.1")],
        };
        for (inode, path, expected) in [
            (10, "/opt/libcutape_null.so", true),
            (10, "/opt/other.so", false),
            (12, "/usr/lib/libcuda.so.580.159.04", true),
            (11, "/opt/cutape/libcuda.so.1", false),
            (12, "/usr/lib/libcudart.so.13", false),
        ] {
            assert_eq!(
                libraries.is_driver(inode, Path::new(path)),
                expected,
                "{path}"
            );
        }
    }

    #[test]
    fn mapped_traces() {
        for (path, expected) in [
            ("/t/run.cutape", true),
            ("/t/run.cutape (deleted)", true),
            ("/in/a/container/run.4711.cutape", true),
            ("/t/run.rank3.cutape", true),
            ("/t/other.cutape", false),
            ("/usr/lib/libcuda.so.1", false),
        ] {
            let trace = Path::new("/t/run.cutape");
            assert_eq!(is_trace(Path::new(path), trace), expected, "{path}");
        }
    }

    #[test]
    fn parents_and_descendants() {
        for (stat, expected) in [
            ("17 (sh) S 4 17 4", Some(4)),
            ("17 (a) R 9 b) S 5 1", Some(5)),
            ("17 (sh) S", None),
            ("", None),
        ] {
            assert_eq!(parent(stat.as_bytes()), expected, "{stat}");
        }
        let own = std::process::id();
        assert!(descendants(own).contains(&own));
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        assert!(descendants(own).contains(&child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
