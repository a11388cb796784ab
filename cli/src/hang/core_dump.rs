//! Core dumps of the GPU that the driver writes, if the program's environment says so: by which
//! names, the trace has in its metadata.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cutape_format::Trace;
use cutape_hang::CoreDump;
use cutape_terminal::failure::Failure;

const FILE: &str = "CUDA_COREDUMP_FILE";
const PIPE: &str = "CUDA_COREDUMP_PIPE";
const BY_USER: &str = "CUDA_ENABLE_USER_TRIGGERED_COREDUMP";
/// Any of these lets the driver write dumps.
const SWITCHES: [&str; 3] = [
    BY_USER,
    "CUDA_ENABLE_COREDUMP_ON_EXCEPTION",
    "CUDA_ENABLE_LIGHTWEIGHT_COREDUMP",
];
/// Without [`FILE`] (cuda-gdb's manual, "GPU core dump support").
const DEFAULT_FILE: &str = "core_%t_%h_%p.nvcudmp";
/// How long the driver may take; a dump of 13 MB took less than 6 s (H200, driver 580.159.04).
const PATIENCE: Duration = Duration::from_secs(60);

/// The dumps that the driver has written for the process of a trace.
pub(super) fn existing(trace: &Trace) -> Vec<PathBuf> {
    let mut switches = SWITCHES.iter().filter_map(|name| variable(trace, name));
    let is_on = switches.any(|value| value != "0");
    let pattern = variable(trace, FILE).or(is_on.then_some(DEFAULT_FILE));
    pattern.map_or_else(Vec::new, |pattern| files(trace, pattern))
}

/// What a dump says.
pub(super) fn contents(path: &Path) -> CoreDump {
    // The trace may name any file, and a pipe would block.
    let regular = |path: &Path| match fs::metadata(path)?.is_file() {
        true => File::open(path),
        false => Err(io::Error::other("it is no regular file")),
    };
    match regular(path) {
        Ok(file) => CoreDump::read(file),
        Err(error) => CoreDump {
            unreadable: Some(error.to_string()),
            ..CoreDump::default()
        },
    }
}

/// Lets the driver write a dump, and waits for it. The program is then ended.
pub(super) fn request(trace: &Trace) -> Result<(), Failure> {
    let is_on = variable(trace, BY_USER) == Some("1");
    if !is_on || variable(trace, PIPE).is_none() || variable(trace, FILE).is_none() {
        return Err(Failure::unusable(format!(
            "--core: the program was started without {BY_USER}=1, {PIPE} and {FILE}: the driver \
             writes no core dump on request"
        )));
    }
    if trace.writer().is_none() {
        return Err(Failure::unusable("--core: the program has ended"));
    }
    let pattern = variable(trace, PIPE).unwrap_or_default();
    let Some(pipe) = files(trace, pattern).into_iter().next() else {
        return Err(Failure::unusable(format!(
            "--core: {pattern}: the driver has made no such pipe; it does so when the program \
             creates a context"
        )));
    };
    let known = existing(trace);
    // A pipe without a reader would otherwise block.
    let opened = OpenOptions::new()
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(&pipe);
    let asked = opened.and_then(|mut opened| {
        // The trace may name any file.
        if !opened.metadata()?.file_type().is_fifo() {
            return Err(io::Error::other(
                "is no pipe, so the driver has not made it",
            ));
        }
        opened.write_all(b"1")
    });
    asked.map_err(|error| Failure::unusable(format!("--core: {}: {error}", pipe.display())))?;
    let begun = Instant::now();
    while existing(trace).len() == known.len() || trace.writer().is_some() {
        if begun.elapsed() > PATIENCE {
            return Err(Failure::unusable(format!(
                "--core: the driver has not finished a core dump within {} s",
                PATIENCE.as_secs()
            )));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// A variable of the program.
fn variable<'t>(trace: &'t Trace, name: &str) -> Option<&'t str> {
    trace.meta_value(&format!("environment.{name}"))
}

/// The files that a pattern names.
fn files(trace: &Trace, pattern: &str) -> Vec<PathBuf> {
    let folder = trace.meta_value("directory").unwrap_or(".");
    let path = Path::new(folder).join(pattern);
    let (Some(folder), Some(pattern)) = (path.parent(), path.file_name()) else {
        return Vec::new();
    };
    let parts = parts(&pattern.to_string_lossy(), trace.head().process);
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.filter(|entry| is_named(&entry.file_name().to_string_lossy(), &parts));
    let mut found: Vec<PathBuf> = names.map(|entry| entry.path()).collect();
    found.sort();
    found
}

/// The texts of a pattern around what is not known: `%p` is the process, `%h` the host, `%t` the
/// time.
fn parts(pattern: &str, process: u32) -> Vec<String> {
    let pattern = pattern.replace("%p", &process.to_string());
    let unknown = pattern.replace("%h", "%t");
    unknown.split("%t").map(str::to_owned).collect()
}

/// Whether a name consists of these parts, with any text between them.
fn is_named(name: &str, parts: &[String]) -> bool {
    let Some(([first], others)) = parts.split_first_chunk() else {
        return false;
    };
    let Some(mut rest) = name.strip_prefix(first.as_str()) else {
        return false;
    };
    let Some((last, middle)) = others.split_last() else {
        return rest.is_empty();
    };
    for part in middle {
        match rest.split_once(part.as_str()) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    rest.ends_with(last.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_name_files() {
        for (pattern, name, expected) in [
            ("core.%p", "core.17", true),
            ("core.%p", "core.171", false),
            ("core_%t_%h_%p.nvcudmp", "core_1700_box_17.nvcudmp", true),
            ("core_%t_%h_%p.nvcudmp", "core_1700_box_18.nvcudmp", false),
            ("core_%h", "core_", true),
            ("pipe", "pipe", true),
            ("pipe", "pipes", false),
        ] {
            let parts = parts(pattern, 17);
            assert_eq!(is_named(name, &parts), expected, "{pattern} {name}");
        }
    }
}
