//! Whether the calls of a program that has the driver are arriving: looked for from outside while it runs, and told if not.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use cutape_format::recorded_process;
use cutape_registry::asks_for_libcuda;

/// How long a process may have the driver without a call that reaches us, and how often is looked at first.
const PATIENCE: Duration = Duration::from_secs(1);
/// Later it is looked at more and more rarely, down to this.
const RAREST: Duration = Duration::from_secs(4);

/// What to look for.
pub(crate) struct Subject {
    /// The program's process; its children are looked at as well.
    pub(crate) process: u32,
    /// The driver that we call.
    pub(crate) driver: PathBuf,
    /// What may be mapped without a call: our own library, which has libcuda's name.
    pub(crate) ours: Vec<PathBuf>,
    /// The traces that are being written, asked when needed.
    pub(crate) traces: Box<dyn Fn() -> Vec<PathBuf> + Send>,
    /// What to do about calls that go past us.
    pub(crate) advice: &'static str,
}

/// Looks until it is dropped.
pub(crate) struct Watch {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Begins to look.
    pub(crate) fn begin(subject: Subject) -> Self {
        let (stop, stopped) = mpsc::channel();
        let thread = thread::Builder::new()
            .name("arrival".to_owned())
            .spawn(move || watch(&subject, &stopped));
        Self {
            stop: Some(stop),
            // Without a thread nobody looks, and the recording is the same.
            thread: thread.ok(),
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn watch(subject: &Subject, stopped: &mpsc::Receiver<()>) {
    let libraries = Libraries {
        driver: Identity::of(&subject.driver),
        ours: subject
            .ours
            .iter()
            .filter_map(|path| Identity::of(path))
            .collect(),
    };
    // Processes that had the driver when last looked at, and those of which no more is to be said.
    let (mut waiting, mut settled) = (BTreeSet::new(), BTreeSet::new());
    let mut pause = PATIENCE;
    while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(pause) {
        let mut found = BTreeMap::new();
        for process in descendants(subject.process) {
            if !settled.contains(&process)
                && let Some(mapped) = Mapped::of(process, &libraries)
            {
                found.insert(process, mapped);
            }
        }
        let recorded = match found.is_empty() {
            true => Recorded::default(),
            false => Recorded::of(&(subject.traces)()),
        };
        let mut wait = BTreeSet::new();
        for (process, mapped) in found {
            if recorded.has(&numbers(process), &mapped) {
                settled.insert(process);
            } else if waiting.contains(&process) {
                settled.insert(process);
                say(process, &mapped.driver, advice(process, subject));
            } else {
                wait.insert(process);
            }
        }
        // A process that is being waited for is looked at again soon.
        pause = match wait.is_empty() {
            true => (pause * 2).min(RAREST),
            false => PATIENCE,
        };
        waiting = wait;
    }
}

/// Who writes traces.
#[derive(Default)]
struct Recorded {
    processes: BTreeSet<u32>,
    files: BTreeSet<u64>,
}

impl Recorded {
    fn of(traces: &[PathBuf]) -> Self {
        // One that is just being created is readable the next time.
        let processes = traces.iter().filter_map(|path| recorded_process(path));
        Self {
            processes: processes.collect(),
            files: traces
                .iter()
                .filter_map(|path| Some(fs::metadata(path).ok()?.ino()))
                .collect(),
        }
    }

    /// Whether calls of a process arrive: it has a trace, or is a forked child of one that has, and still has that mapped.
    fn has(&self, numbers: &[u32], mapped: &Mapped) -> bool {
        numbers.iter().any(|number| self.processes.contains(number))
            || mapped.inodes.iter().any(|inode| self.files.contains(inode))
    }
}

/// What to do about calls that do not arrive: we may not have been brought in at all.
fn advice(process: u32, subject: &Subject) -> &'static str {
    // What cannot be read is not judged.
    let environment = fs::read(format!("/proc/{process}/environ"));
    let is_told = |bytes: &[u8]| {
        bytes
            .split(|&byte| byte == 0)
            .any(|variable| variable.starts_with(b"CUTAPE_TRACE="))
    };
    if environment.is_ok_and(|bytes| !is_told(&bytes)) {
        return "what started it gave it another environment, so put that before `cutape record`";
    }
    // The process's own view of the files.
    let root = PathBuf::from(format!("/proc/{process}/root"));
    let sees = |path: &PathBuf| {
        let inside = root.join(path.strip_prefix("/").unwrap_or(path));
        inside.symlink_metadata().is_ok()
    };
    if root.read_link().is_ok() && !subject.ours.iter().any(sees) {
        return "our files are not where it runs, so run `cutape record` there (docs/guide.md, \"In a container\")";
    }
    subject.advice
}

fn say(process: u32, path: &Path, advice: &str) {
    let name = fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
    eprintln!(
        "cutape: process {process} ({}) has mapped {} for {} s or more, but no call has arrived here: if it uses CUDA, it goes past us; {advice}",
        name.trim_end(),
        path.display(),
        PATIENCE.as_secs()
    );
}

/// A file: its number and its name without folders. What /proc says of its device is not what `stat` says on every file system.
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
    ours: Vec<Identity>,
}

impl Libraries {
    /// Whether a mapped file is a libcuda: the one that we call or another one.
    fn is_driver(&self, inode: u64, path: &Path) -> bool {
        let Some(name) = path.file_name() else {
            return false;
        };
        let is = |file: &Identity| file.inode == inode && file.name == name;
        let is_known = self.driver.as_ref().is_some_and(is);
        (is_known || asks_for_libcuda(path.as_os_str().as_bytes())) && !self.ours.iter().any(is)
    }
}

/// What a process that has a libcuda has mapped.
struct Mapped {
    driver: PathBuf,
    /// Of all files.
    inodes: BTreeSet<u64>,
}

impl Mapped {
    fn of(process: u32, libraries: &Libraries) -> Option<Self> {
        let maps = fs::read(format!("/proc/{process}/maps")).ok()?;
        let files = || maps.split(|&byte| byte == b'\n').filter_map(mapped_file);
        let (_, driver) = files().find(|(inode, path)| libraries.is_driver(*inode, path))?;
        Some(Self {
            driver: driver.to_owned(),
            inodes: files().map(|(inode, _)| inode).collect(),
        })
    }
}

/// The file of a line of /proc/PID/maps: address, permissions, offset, device, inode, path (proc(5)).
fn mapped_file(line: &[u8]) -> Option<(u64, &Path)> {
    let (numbers, path) = line.split_at(line.iter().position(|&byte| byte == b'/')?);
    let numbers = std::str::from_utf8(numbers).ok()?;
    let inode = numbers.split_ascii_whitespace().nth(4)?.parse().ok()?;
    Some((inode, Path::new(OsStr::from_bytes(path))))
}

/// A process, its children, theirs and so on, as they are now.
fn descendants(process: u32) -> Vec<u32> {
    let mut parents: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let number = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok());
        if let Some(number) = number
            && let Ok(stat) = fs::read(entry.path().join("stat"))
            && let Some(parent) = parent(&stat)
        {
            parents.entry(parent).or_default().push(number);
        }
    }
    let mut all = vec![process];
    let mut next = 0;
    while let Some(&process) = all.get(next) {
        all.extend(parents.remove(&process).unwrap_or_default());
        next += 1;
    }
    all
}

/// The parent in /proc/PID/stat: number, name in parentheses, state, parent. The name may hold anything.
fn parent(stat: &[u8]) -> Option<u32> {
    let behind = stat.iter().rposition(|&byte| byte == b')')? + 1;
    let text = std::str::from_utf8(&stat[behind..]).ok()?;
    text.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// The numbers that a process has: ours for it, and those of the namespaces that it lives in, where a container is.
fn numbers(process: u32) -> Vec<u32> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let inner = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    let inner = inner.unwrap_or_default().split_ascii_whitespace();
    [process]
        .into_iter()
        .chain(inner.filter_map(|number| number.parse().ok()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_maps() {
        let line = |text: &'static str| mapped_file(text.as_bytes());
        let path = Path::new("/usr/lib/x86_64-linux-gnu/libcuda.so.580.159.04");
        for (text, expected) in [
            (
                "7f1c2a000000-7f1c2a400000 r-xp 00100000 08:01 1234 /usr/lib/x86_64-linux-gnu/libcuda.so.580.159.04",
                Some((1234, path)),
            ),
            (
                "7f1c2a000000-7f1c2a400000 r-xp 00100000 fd:0a 99                         /a folder/x",
                Some((99, Path::new("/a folder/x"))),
            ),
            ("7ffd0-7ffd1 rw-p 00000000 00:00 0 [stack]", None),
            ("7ffd0-7ffd1 rw-p 00000000 00:00 0", None),
            ("", None),
            ("/", None),
        ] {
            assert_eq!(line(text), expected, "{text}");
        }
    }

    #[test]
    fn which_library_is_the_driver() {
        let file = |inode, name: &str| Identity {
            inode,
            name: name.into(),
        };
        let libraries = Libraries {
            driver: Some(file(10, "libcutape_null.so")),
            ours: vec![file(11, "libcuda.so.1")],
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
    fn whose_calls_arrive() {
        let recorded = Recorded {
            processes: [17].into(),
            files: [1000].into(),
        };
        for (numbers, inodes, expected) in [
            (&[17][..], &[5][..], true),
            // In a container it has another number.
            (&[4711, 17], &[5], true),
            (&[18], &[5, 1000], true),
            (&[18], &[5], false),
        ] {
            let mapped = Mapped {
                driver: PathBuf::new(),
                inodes: inodes.iter().copied().collect(),
            };
            assert_eq!(
                recorded.has(numbers, &mapped),
                expected,
                "{numbers:?} {inodes:?}"
            );
        }
    }

    #[test]
    fn families_of_processes() {
        for (stat, expected) in [
            ("17 (sh) S 4 17 4", Some(4)),
            ("17 (a) R 9 b) S 5 1", Some(5)),
            ("17 (sh) S", None),
            ("", None),
        ] {
            assert_eq!(parent(stat.as_bytes()), expected, "{stat}");
        }
        let own = std::process::id();
        assert!(numbers(own).contains(&own));
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
