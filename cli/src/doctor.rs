//! `cutape doctor`: checks this machine and this installation for obstacles, with advice.

mod surroundings;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use cutape_analyzer::decode::text;
use cutape_registry::id;
use cutape_replay::Driver;

use self::surroundings::Surroundings;
use crate::failure::{Failure, UNUSABLE};
use crate::library;
use crate::record::library_folder::LibraryFolder;
use crate::record::{backend, forward};

/// What `doctor` takes.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The driver to check: a path, or `null`. Default: this machine's.
    #[arg(long, value_name = "PATH")]
    driver: Option<PathBuf>,
}

/// The width of a line's label.
const LABEL: usize = 14;
/// The width of a line.
const WIDTH: usize = 80;
/// How many functions missing from an older driver are listed.
const SHOWN_MISSING: usize = 20;

/// Prints lines `label  value`, and remembers whether a check failed.
struct Checklist<W> {
    out: W,
    failed: bool,
}

impl<W: Write> Checklist<W> {
    fn line(&mut self, label: &str, value: impl AsRef<str>) -> Result<(), Failure> {
        Ok(writeln!(self.out, "{label:<LABEL$}{}", value.as_ref())?)
    }

    fn path(
        &mut self,
        what: &str,
        path: Result<PathBuf, Failure>,
    ) -> Result<Option<PathBuf>, Failure> {
        match path {
            Ok(path) => {
                self.line(what, path.display().to_string())?;
                Ok(Some(path))
            }
            Err(failure) => {
                self.failed = true;
                self.line(what, format!("MISSING: {}", failure.message))?;
                Ok(None)
            }
        }
    }
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let mut sheet = Checklist {
        out: io::stdout().lock(),
        failed: false,
    };
    sheet.line("cutape", env!("CARGO_PKG_VERSION"))?;
    let interposer = sheet.path("interposer", library::interposer())?;
    match library::audit() {
        Ok(path) => {
            sheet.line("audit library", path.display().to_string())?;
            if let Some(why) = backend::why_no_audit_here() {
                sheet.line("", format!("record uses --backend preload: {why}"))?;
            }
        }
        Err(_) => sheet.line("audit library", "missing: record uses --backend preload")?,
    }
    sheet.path("null driver", library::null_driver())?;
    if let Some(path) = sheet.path("driver", library::driver(arguments.driver.as_deref()))? {
        exports(&mut sheet, &path, interposer.as_deref())?;
        devices(&mut sheet, &path)?;
    }
    system(&mut sheet)?;
    let temporary = std::env::temp_dir();
    let around = Surroundings {
        root: Path::new("/"),
        variable: &|name| std::env::var(name).ok(),
        free: free_bytes(&temporary),
        temporary: &temporary,
    };
    for advice in around.advice() {
        let words: Vec<String> = advice.text.split(' ').map(str::to_owned).collect();
        for (number, line) in lines(&words, WIDTH - LABEL).iter().enumerate() {
            sheet.line(if number == 0 { advice.label } else { "" }, line)?;
        }
    }
    Ok(ExitCode::from(if sheet.failed { UNUSABLE } else { 0 }))
}

/// Bytes that an ordinary user may still write in a folder.
fn free_bytes(folder: &Path) -> Option<u64> {
    let path = std::ffi::CString::new(folder.as_os_str().as_encoded_bytes()).ok()?;
    // SAFETY: an all-zero statvfs is a value of that type; the path ends with NUL, and both outlive
    // the call.
    unsafe {
        let mut facts: libc::statvfs = std::mem::zeroed();
        let is_known = libc::statvfs(path.as_ptr(), &raw mut facts) == 0;
        is_known.then(|| facts.f_bavail.saturating_mul(facts.f_frsize))
    }
}

/// Compares the driver's exported functions with the registry.
fn exports(
    sheet: &mut Checklist<impl Write>,
    path: &Path,
    interposer: Option<&Path>,
) -> Result<(), Failure> {
    let names = match forward::exported(path) {
        Ok(names) => names,
        Err(why) => return sheet.line("exports", format!("cannot be read: {why}")),
    };
    let (known, unknown): (Vec<&str>, Vec<&str>) = names
        .iter()
        .map(String::as_str)
        .partition(|name| forward::is_known(name));
    let missing: Vec<&str> = cutape_registry::FUNCTIONS
        .iter()
        .map(|function| function.name)
        .filter(|name| known.binary_search(name).is_err())
        .collect();
    let obstacle = match interposer {
        _ if unknown.is_empty() => None,
        Some(path) => forward::interposer(path)
            .err()
            .or_else(|| forward::obstacle(&std::env::temp_dir())),
        None => Some("the interposer is missing".to_owned()),
    };
    let forwarded = match obstacle {
        None => unknown.len(),
        Some(_) => 0,
    };
    let (all, recorded) = (names.len(), known.len());
    let covered = recorded + forwarded;
    let counts = format!("{recorded} recorded, {forwarded} forwarded");
    sheet.line(
        "exports",
        format!("{covered} of {all} functions covered: {counts}"),
    )?;
    // Forwarded functions work as without cutape; the trace names their first call.
    match obstacle {
        None => list(sheet, "forwarded", &unknown, usize::MAX)?,
        Some(why) => {
            sheet.line("not found", why)?;
            list(sheet, "", &unknown, usize::MAX)?;
        }
    }
    list(sheet, "missing", &missing, SHOWN_MISSING)
}

fn list(
    sheet: &mut Checklist<impl Write>,
    what: &str,
    names: &[&str],
    most: usize,
) -> Result<(), Failure> {
    let mut words: Vec<String> = names.iter().take(most).map(|&name| name.into()).collect();
    if names.len() > most {
        words.push(format!("and {} more", names.len() - most));
    }
    for (index, line) in lines(&words, WIDTH - LABEL).iter().enumerate() {
        sheet.line(if index == 0 { what } else { "" }, line)?;
    }
    Ok(())
}

/// Wraps words into lines of at most `width` characters; a longer word gets its own line.
fn lines(words: &[String], width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in words {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.clone()),
        }
    }
    lines
}

/// Initialises the driver and lists its devices.
fn devices(sheet: &mut Checklist<impl Write>, path: &Path) -> Result<(), Failure> {
    let driver = match Driver::open(path) {
        Ok(driver) => driver,
        Err(error) => {
            sheet.failed = true;
            return sheet.line("loading", format!("FAILS: {error}"));
        }
    };
    let ask = |function: u16, arguments: &[u64]| -> String {
        // SAFETY: the calls below pass the arguments that these functions take; their outputs are
        // valid for writes.
        match unsafe { driver.call(function, arguments) } {
            Ok(0) => String::new(),
            Ok(code) => {
                cutape_registry::result_name(code).map_or_else(|| code.to_string(), str::to_owned)
            }
            Err(error) => error.to_string(),
        }
    };
    let (mut version, mut count) = (0i32, 0i32);
    let answer = ask(id::cuDriverGetVersion, &[(&raw mut version) as u64]);
    let version = match answer.is_empty() {
        true => format!("CUDA {}.{}", version / 1000, version % 1000 / 10),
        false => answer,
    };
    sheet.line("version", version)?;
    let answer = ask(id::cuInit, &[0]);
    if !answer.is_empty() {
        sheet.failed = true;
        return sheet.line("cuInit", format!("FAILS: {answer}"));
    }
    ask(id::cuDeviceGetCount, &[(&raw mut count) as u64]);
    for ordinal in 0..count.clamp(0, 64) {
        let mut name = [0u8; 256];
        let (mut memory, mut major, mut minor) = (0u64, 0i32, 0i32);
        let device = ordinal as u64;
        ask(
            id::cuDeviceGetName,
            &[name.as_mut_ptr() as u64, name.len() as u64, device],
        );
        ask(id::cuDeviceTotalMem_v2, &[(&raw mut memory) as u64, device]);
        for (attribute, value) in [(75, &raw mut major), (76, &raw mut minor)] {
            ask(id::cuDeviceGetAttribute, &[value as u64, attribute, device]);
        }
        let name = text(&name);
        let gigabytes = memory as f64 / f64::from(1 << 30);
        sheet.line(
            &format!("device {ordinal}"),
            format!("{name}, compute capability {major}.{minor}, {gigabytes:.1} GiB"),
        )?;
    }
    Ok(())
}

/// Checks what the system allows.
fn system(sheet: &mut Checklist<impl Write>) -> Result<(), Failure> {
    // SAFETY: reads the personality, sets one flag and restores it; single-threaded here.
    let allowed = unsafe {
        let now = libc::personality(0xffff_ffff);
        let fixed =
            now >= 0 && libc::personality((now | libc::ADDR_NO_RANDOMIZE) as libc::c_ulong) >= 0;
        if fixed {
            libc::personality(now as libc::c_ulong);
        }
        fixed
    };
    sheet.line(
        "addresses",
        if allowed {
            "randomisation can be disabled, as replay needs"
        } else {
            "randomisation cannot be disabled: replay retries in new processes until addresses are \
             free"
        },
    )?;
    let source =
        fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    if let Ok(source) = source {
        let source = source.trim();
        // The kernel selects tsc only if the processor's counter is reliable.
        let meaning = match source {
            "tsc" => "calls have times",
            _ => "calls may have no times",
        };
        sheet.line("clock", format!("{source}: {meaning}"))?;
    }
    let mut temporary = std::env::temp_dir().display().to_string();
    if LibraryFolder::new(Path::new("/nonexistent")).is_err() {
        sheet.failed = true;
        temporary += " NOT WRITABLE: set TMPDIR to a writable folder";
    }
    sheet.line("temporary", temporary)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text of a checklist.
    fn printed(
        write: impl FnOnce(&mut Checklist<Vec<u8>>) -> Result<(), Failure>,
    ) -> (String, bool) {
        let mut sheet = Checklist {
            out: Vec::new(),
            failed: false,
        };
        write(&mut sheet).unwrap();
        (String::from_utf8(sheet.out).unwrap(), sheet.failed)
    }

    #[test]
    fn lists_are_wrapped_and_end() {
        let long = "x".repeat(90);
        for (names, most, text) in [
            (vec![], 2, String::new()),
            (vec!["cuA"], 2, "names         cuA\n".to_owned()),
            (
                vec!["cuA", "cuB", "cuC"],
                2,
                "names         cuA cuB and 1 more\n".to_owned(),
            ),
            (
                vec!["cuA", &long],
                2,
                format!("names         cuA\n              {long}\n"),
            ),
        ] {
            let (written, bad) = printed(|sheet| list(sheet, "names", &names, most));
            assert_eq!((written, bad), (text, false));
        }
        let names = vec!["cuMemcpyHtoDAsync_v2_ptsz"; 50];
        let (written, _) = printed(|sheet| list(sheet, "names", &names, usize::MAX));
        assert!(written.lines().all(|line| line.len() <= WIDTH), "{written}");
    }

    #[test]
    fn missing_files_fail() {
        for (path, bad) in [
            (Ok(PathBuf::from("/lib/x.so")), false),
            (Err(Failure::unusable("why")), true),
        ] {
            let (written, is_bad) = printed(|sheet| sheet.path("driver", path).map(|_| ()));
            assert_eq!(is_bad, bad, "{written}");
            assert_eq!(written.contains("MISSING: why"), bad, "{written}");
        }
    }
}
