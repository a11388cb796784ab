//! The trace files of one recording: one for each process that calls the driver.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use cutape_format::rank::is_rank;
use cutape_format::{recorded_process, writer};

use crate::reservation::is_reserved;

/// The recorder appends the number of an `exec` within one process in three digits.
const PROGRAMS_OF_A_PROCESS: u64 = 1000;

/// The part between a recording's name and `.cutape` in the name of one of its further files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Infix {
    /// `run.rank3.cutape`.
    Rank,
    /// `run.4711.cutape`, `run.rank3.4711.cutape`: the process; `run.4711001.cutape` is the
    /// second program of process 4711.
    Process(u64),
}

/// The infix, if the name belongs to the family of a recording with that stem.
fn infix(stem: &[u8], name: &[u8]) -> Option<Infix> {
    let rest = name.strip_prefix(stem)?.strip_suffix(b".cutape")?;
    let digits = |text: &[u8]| std::str::from_utf8(text).ok()?.parse().ok();
    let mut words = rest.strip_prefix(b".")?.split(|&byte| byte == b'.');
    let mut word = words.next()?;
    if word.strip_prefix(b"rank").is_some_and(is_rank) {
        match words.next() {
            Some(process) => word = process,
            None => return Some(Infix::Rank),
        }
    }
    match words.next() {
        None => digits(word).map(Infix::Process),
        Some(_) => None,
    }
}

/// The name of a trace without its ending.
fn stem(trace: &Path) -> &[u8] {
    let name = trace.file_name().unwrap_or_default().as_bytes();
    name.strip_suffix(b".cutape").unwrap_or(name)
}

/// The further files of a recording: `run.4711.cutape` if the file itself names process 4711, and
/// `run.rank3.cutape` of a parallel program. `run.1.cutape` belongs to another recording.
pub(crate) fn family(trace: &Path) -> Vec<PathBuf> {
    let stem = stem(trace);
    let mut files: Vec<_> = trace
        .parent()
        .and_then(|folder| fs::read_dir(folder).ok())
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let infix = infix(stem, entry.file_name().as_bytes())?;
            Some((infix, entry.path()))
        })
        .filter(|(infix, path)| match infix {
            Infix::Rank => true,
            Infix::Process(number) => match recorded_process(path) {
                Some(process) => {
                    [*number, number / PROGRAMS_OF_A_PROCESS].contains(&u64::from(process))
                }
                // Keep unreadable files, unless another recording has reserved the name.
                None => !is_reserved(path),
            },
        })
        .map(|(_, path)| path)
        .collect();
    files.sort();
    files
}

/// Whether a file of that name, in the folder of the trace, is the trace or one of its family.
pub(crate) fn is_named_as_family(trace: &Path, name: &Path) -> bool {
    let is_own = trace.file_name() == Some(name.as_os_str());
    is_own || infix(stem(trace), name.as_os_str().as_bytes()).is_some()
}

/// The recording's own trace and the files of its family that are not among the old ones.
pub(crate) fn new_family(trace: &Path, old: &[PathBuf]) -> Vec<PathBuf> {
    let new = family(trace).into_iter().filter(|path| !old.contains(path));
    [trace.to_owned()].into_iter().chain(new).collect()
}

/// Gives the recording's name to the trace of its program, if a child called the driver before the
/// program did; the child's trace gets a name with its process. Returns where the trace is now that
/// had the name. Old files belong to other recordings.
pub(crate) fn name_after_program(
    trace: &Path,
    program: u32,
    old: &[PathBuf],
) -> io::Result<PathBuf> {
    let named = |number: u64| {
        let mut name = OsStr::from_bytes(stem(trace)).to_owned();
        name.push(format!(".{number}.cutape"));
        trace.with_file_name(name)
    };
    let own = named(program.into());
    let first = recorded_process(trace).filter(|&first| first != program);
    let (Some(first), false) = (first, old.contains(&own)) else {
        return Ok(trace.to_owned());
    };
    // A process that is still recording opens its file by name.
    if recorded_process(&own) != Some(program) || writer(trace).is_some() {
        return Ok(trace.to_owned());
    }
    let first = u64::from(first);
    let numbers = (1..PROGRAMS_OF_A_PROCESS).map(|number| first * PROGRAMS_OF_A_PROCESS + number);
    let mut names = [first].into_iter().chain(numbers).map(named);
    let free = names.find(|path| !path.exists());
    let free = free.ok_or(io::ErrorKind::AlreadyExists)?;
    fs::rename(trace, &free)?;
    fs::rename(&own, trace)?;
    Ok(free)
}

#[cfg(test)]
mod tests {
    use std::env;

    use cutape_format::{Trace, TraceBuilder};

    use super::*;
    use crate::reservation::Reservation;
    use cutape_terminal::overwrite::Overwrite;

    #[test]
    fn traces_of_one_recording() {
        let folder = env::temp_dir().join(format!("cutape-family-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        // The builder writes process 4242 into the header.
        let trace = TraceBuilder::new(cutape_registry::SIGNATURE_TEXT);
        for (name, own) in [
            ("run.4242.cutape", true),
            // Of another recording, which found run.cutape taken.
            ("run.1.cutape", false),
            ("run.cutape", false),
            ("run.x.cutape", false),
            ("run2.4242.cutape", false),
            ("other.4242.cutape", false),
        ] {
            let path = folder.join(name);
            trace.write(&path).unwrap();
            let found = family(&folder.join("run.cutape")) == [path.clone()];
            assert_eq!(found, own, "{name}");
            let opened = Trace::open(&path).unwrap();
            assert_eq!(
                opened.writer(),
                None,
                "{name}: process 4242 does not have it mapped"
            );
            fs::remove_file(&path).unwrap();
        }
        // A file that another recording is creating, then a damaged one.
        let damaged = folder.join("run.1.cutape");
        let reservation = Reservation::named(&damaged, Overwrite::default()).unwrap();
        fs::write(&damaged, "").unwrap();
        assert_eq!(family(&folder.join("run.cutape")), [] as [PathBuf; 0]);
        drop(reservation);
        assert_eq!(family(&folder.join("run.cutape")), [damaged]);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn names_of_a_family() {
        for (name, expected) in [
            ("run.4711.cutape", Some(Infix::Process(4711))),
            ("run.rank3.cutape", Some(Infix::Rank)),
            ("run.rank3.4711.cutape", Some(Infix::Process(4711))),
            ("run.cutape", None),
            ("run.rank.cutape", None),
            ("run.rankx.cutape", None),
            ("run.rank3.x.cutape", None),
            ("run.rank3.4.5.cutape", None),
            ("run2.4711.cutape", None),
            ("run.4711.json", None),
            ("other.4711.cutape", None),
        ] {
            assert_eq!(infix(b"run", name.as_bytes()), expected, "{name}");
        }
    }
}
