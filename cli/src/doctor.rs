//! `cutape doctor`: checks this machine and this installation for obstacles, with advice.

mod checklist;
mod surroundings;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use cutape_analyzer::decode::text;
use cutape_registry::id;
use cutape_replay::Driver;

use self::checklist::Checklist;
use self::surroundings::{DriverFacts, Surroundings};
use cutape_recording::{LibraryFolder, forward, why_no_audit_here};
use cutape_terminal::failure::Failure;
use cutape_terminal::library;
use cutape_terminal::output::Format;

const EPILOGUE: &str = "\
What is unusual on this machine comes with what to do about it. Exit status: 0 if
cutape works here, also with advice; 2 if a part of cutape is missing, the driver
cannot be loaded or initialised, or the temporary folder is not writable.";

/// What `doctor` takes.
#[derive(clap::Args)]
#[command(after_help = EPILOGUE)]
pub(crate) struct Arguments {
    /// The driver to check: a path, or `null`. Default: this machine's.
    #[arg(long, value_name = "PATH")]
    driver: Option<PathBuf>,
    /// Lines for people, or one JSON object.
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

/// How many functions missing from an older driver are listed.
const SHOWN_MISSING: usize = 20;

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let mut sheet = Checklist::new(arguments.format, io::stdout().lock());
    sheet.line("cutape", env!("CARGO_PKG_VERSION"))?;
    let interposer = sheet.path("interposer", library::interposer())?;
    match library::audit() {
        Ok(path) => {
            sheet.line("audit library", path.display().to_string())?;
            if let Some(why) = why_no_audit_here() {
                let text = format!("record uses --backend preload: {why}");
                sheet.advise("audit backend", &text)?;
            }
        }
        Err(_) => sheet.advise("audit library", "missing: record uses --backend preload")?,
    }
    let null = sheet.path("null driver", library::null_driver())?;
    let mut facts = None;
    if let Some(path) = sheet.path("driver", library::driver(arguments.driver.as_deref()))? {
        exports(&mut sheet, &path, interposer.as_deref())?;
        let version = devices(&mut sheet, &path)?;
        if null.as_ref() != Some(&path) {
            facts = Some(DriverFacts { path, version });
        }
    }
    system(&mut sheet)?;
    let temporary = std::env::temp_dir();
    let around = Surroundings {
        root: Path::new("/"),
        variable: &|name| std::env::var(name).ok(),
        free: free_bytes(&temporary),
        temporary: &temporary,
        driver: facts.as_ref(),
    };
    if let Some(limits) = around.limits() {
        sheet.paragraph("limits", &limits)?;
    }
    for advice in around.advice() {
        sheet.advise(advice.label, &advice.text)?;
    }
    Ok(ExitCode::from(sheet.finish()?))
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
            let names = unknown.join(" ");
            sheet.advise("not found", &format!("{why}: {names}"))?;
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
    match words.is_empty() {
        true => Ok(()),
        false => sheet.paragraph(what, &words.join(" ")),
    }
}

/// Initialises the driver and lists its devices; the driver's version, if it can be asked.
fn devices(sheet: &mut Checklist<impl Write>, path: &Path) -> Result<Option<i32>, Failure> {
    let driver = match Driver::open(path) {
        Ok(driver) => driver,
        Err(error) => {
            sheet.fail("loading", format!("FAILS: {error}"))?;
            return Ok(None);
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
    let known = answer.is_empty().then_some(version);
    let shown = match known {
        Some(version) => format!("CUDA {}.{}", version / 1000, version % 1000 / 10),
        None => answer,
    };
    sheet.line("version", shown)?;
    let answer = ask(id::cuInit, &[0]);
    if !answer.is_empty() {
        sheet.fail("cuInit", format!("FAILS: {answer}"))?;
        return Ok(known);
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
    Ok(known)
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
    match allowed {
        true => sheet.line(
            "addresses",
            "randomisation can be disabled, as replay needs",
        )?,
        false => sheet.advise(
            "addresses",
            "randomisation cannot be disabled (seccomp forbids personality): replay retries in \
             new processes until addresses are free; in Docker, --security-opt \
             seccomp=unconfined permits it",
        )?,
    }
    if !can_read_itself() {
        sheet.advise(
            "seccomp",
            "process_vm_readv is forbidden: what invalid pointers point at is not recorded; in \
             Docker, --cap-add SYS_PTRACE or --security-opt seccomp=unconfined permits it",
        )?;
    }
    let source =
        fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    if let Ok(source) = source {
        let source = source.trim();
        // The kernel selects tsc only if the processor's counter is reliable.
        match source {
            "tsc" => sheet.line("clock", "tsc: calls have times")?,
            _ => sheet.advise("clock", &format!("{source}: calls may have no times"))?,
        }
    }
    let temporary = std::env::temp_dir().display().to_string();
    match LibraryFolder::new(Path::new("/nonexistent")) {
        Ok(_) => sheet.line("temporary", temporary),
        Err(_) => sheet.fail(
            "temporary",
            temporary + " NOT WRITABLE: set TMPDIR to a writable folder",
        ),
    }
}

/// Whether this process may read its own memory with process_vm_readv, as the interposer does.
fn can_read_itself() -> bool {
    let (source, mut target) = (7u8, 0u8);
    let place = |byte: *const u8| libc::iovec {
        iov_base: byte.cast_mut().cast(),
        iov_len: 1,
    };
    let (from, to) = (place(&raw const source), place(&raw mut target));
    // SAFETY: both vectors describe one byte that outlives the call; only the target is written.
    unsafe { libc::process_vm_readv(libc::getpid(), &raw const to, 1, &raw const from, 1, 0) == 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_wrapped_and_end() {
        let long = "x".repeat(90);
        let many = vec!["cuMemcpyHtoDAsync_v2_ptsz"; 50];
        for (names, most, text) in [
            (vec![], 2, Some(String::new())),
            (vec!["cuA"], 2, Some("names         cuA\n".to_owned())),
            (
                vec!["cuA", "cuB", "cuC"],
                2,
                Some("names         cuA cuB and 1 more\n".to_owned()),
            ),
            (
                vec!["cuA", &long],
                2,
                Some(format!("names         cuA\n              {long}\n")),
            ),
            (many, usize::MAX, None),
        ] {
            let mut out = Vec::new();
            let mut sheet = Checklist::new(Format::Text, &mut out);
            list(&mut sheet, "names", &names, most).unwrap();
            assert_eq!(sheet.finish().unwrap(), 0);
            let written = String::from_utf8(out).unwrap();
            match text {
                Some(text) => assert_eq!(written, text),
                None => assert!(written.lines().all(|line| line.len() <= 80), "{written}"),
            }
        }
    }
}
