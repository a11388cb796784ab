//! Running a program under the interposer, and collecting the traces that it leaves.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicI32, Ordering};
use std::{env, io};

use cutape_format::{PackSummary, Trace};

use crate::failure::Failure;
use crate::library::{self, LibraryFolder};
use crate::symbols;

/// What is kept of the bytes that are copied to and from devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Payloads {
    /// All bytes.
    All,
    /// Their number.
    None,
}

impl Payloads {
    fn word(self) -> &'static str {
        match self {
            Payloads::All => "all",
            Payloads::None => "none",
        }
    }
}

/// How a program is to be run.
#[derive(clap::Args)]
pub(crate) struct Recording {
    /// What to keep of the bytes that the program copies to devices.
    #[arg(long, value_enum, default_value = "all", value_name = "WHAT")]
    pub(crate) payloads: Payloads,
    /// What to keep of the bytes that come back.
    #[arg(long, value_enum, default_value = "all", value_name = "WHAT")]
    pub(crate) outputs: Payloads,
    /// The driver to pass the calls on to: a path, or `null`. Default: the machine's.
    #[arg(long, value_name = "PATH")]
    pub(crate) driver: Option<PathBuf>,
    /// The program and its arguments.
    #[arg(last = true, value_name = "PROGRAM", required = false)]
    pub(crate) program: Vec<OsString>,
}

/// A running program.
pub(crate) struct Session {
    child: Child,
    trace: PathBuf,
    /// Traces of that name's family that were there before.
    old: Vec<PathBuf>,
    clock: Clock,
    _folder: LibraryFolder,
}

/// A program that has ended.
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    /// Its own trace, if it called the driver; then those of other processes.
    pub(crate) traces: Vec<PathBuf>,
    ticks_per_second: Option<u64>,
}

/// A reading of the counter that stamps calls, beside the system's clock.
#[derive(Clone, Copy)]
struct Clock {
    ticks: u64,
    time: std::time::Instant,
}

impl Clock {
    fn read() -> Self {
        Self { ticks: ticks(), time: std::time::Instant::now() }
    }

    /// The counter's rate, if enough time has passed to tell.
    fn rate_since(self) -> Option<u64> {
        let now = Self::read();
        let nanoseconds = (now.time - self.time).as_nanos();
        let ticks = u128::from(now.ticks.wrapping_sub(self.ticks));
        (nanoseconds > 5_000_000).then(|| (ticks * 1_000_000_000 / nanoseconds) as u64)
    }
}

/// The processor's time stamp counter.
pub(crate) fn ticks() -> u64 {
    // SAFETY: every x86-64 processor has the instruction.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Starts the program so that it writes `trace`.
pub(crate) fn start(recording: &Recording, trace: &Path) -> Result<Session, Failure> {
    let program = recording.program.first().ok_or_else(|| {
        Failure::unusable("no program: give it and its arguments behind --, e.g. `cutape record -- ./app 1 2`")
    })?;
    let program = find_program(program)?;
    check_program(&program)?;
    let trace = writable(trace)?;
    let interposer = library::interposer()?;
    let driver = library::driver(recording.driver.as_deref())?;
    let folder = LibraryFolder::new(&interposer)?;
    let old = family(&trace);
    let mut command = Command::new(&program);
    command
        .args(&recording.program[1..])
        .env("LD_PRELOAD", with_first(&folder.library(), "LD_PRELOAD"))
        .env("LD_LIBRARY_PATH", with_first(folder.path(), "LD_LIBRARY_PATH"))
        .env("CUTAPE_TRACE", &trace)
        .env("CUTAPE_DRIVER", &driver)
        .env("CUTAPE_PAYLOADS", recording.payloads.word())
        .env("CUTAPE_OUTPUTS", recording.outputs.word());
    let clock = Clock::read();
    let child = command
        .spawn()
        .map_err(|error| Failure::unusable(format!("cannot run {}: {error}", program.display())))?;
    pass_signals_to(&child);
    Ok(Session { child, trace, old, clock, _folder: folder })
}

/// A list of paths with one more at its front.
fn with_first(path: &Path, variable: &str) -> OsString {
    let mut list = path.as_os_str().to_owned();
    if let Some(rest) = env::var_os(variable).filter(|rest| !rest.is_empty()) {
        list.push(":");
        list.push(rest);
    }
    list
}

/// The program's file: as given, or along PATH.
fn find_program(name: &OsStr) -> Result<PathBuf, Failure> {
    let missing = |what: String| Failure::unusable(what);
    let given = Path::new(name);
    if given.components().count() > 1 {
        return match given.metadata() {
            Ok(_) => Ok(given.to_owned()),
            Err(error) => Err(missing(format!("cannot run {}: {error}", given.display()))),
        };
    }
    let folders = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&folders)
        .map(|folder| folder.join(given))
        .find(|path| path.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0))
        .ok_or_else(|| missing(format!("cannot run {}: not found in PATH; for a file in this folder say ./{0}", given.display())))
}

/// Refuses what the loader would not let us into, instead of recording nothing.
fn check_program(path: &Path) -> Result<(), Failure> {
    let cannot = |why: &str| Err(Failure::unusable(format!("cannot record {}: {why}", path.display())));
    let Ok(metadata) = path.metadata() else { return cannot("it cannot be looked at") };
    if !metadata.is_file() {
        return cannot("not a file");
    }
    if metadata.mode() & 0o111 == 0 {
        return cannot("not executable");
    }
    // SAFETY: no memory is involved.
    let user = unsafe { libc::geteuid() };
    if metadata.mode() & 0o4000 != 0 && metadata.uid() != user {
        return cannot("it is set-user-id, and the loader preloads nothing into such programs");
    }
    let mut bytes = Vec::new();
    // Headers come first; a script or an unreadable file is the system's to judge.
    let read = fs::File::open(path).and_then(|file| file.take(1 << 20).read_to_end(&mut bytes));
    if read.is_err() || !bytes.starts_with(b"\x7fELF") {
        return Ok(());
    }
    if bytes.get(4) != Some(&2) || bytes.get(18..20) != Some(&[62, 0]) {
        return cannot("it is not a 64-bit x86-64 program");
    }
    let header = |at: usize| bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map(u64::from_le_bytes);
    let (Some(start), Some(count)) = (header(32), bytes.get(56).copied()) else { return Ok(()) };
    const PT_INTERP: [u8; 4] = [3, 0, 0, 0];
    let dynamic = (0..u64::from(count)).any(|index| {
        let at = start.saturating_add(index * 56) as usize;
        bytes.get(at..at.saturating_add(4)) == Some(&PT_INTERP)
    });
    if !dynamic {
        return cannot("it is linked statically, so it has no loader that could bring our library in");
    }
    Ok(())
}

/// The trace's absolute path, if a file can be made there.
fn writable(trace: &Path) -> Result<PathBuf, Failure> {
    let absolute = std::path::absolute(trace)
        .map_err(|error| Failure::unusable(format!("{}: {error}", trace.display())))?;
    if absolute.symlink_metadata().is_ok() {
        return Err(Failure::unusable(format!(
            "{} exists already; choose another name with -o, or remove it",
            trace.display()
        )));
    }
    let folder = absolute.parent().unwrap_or(Path::new("/"));
    let failed = |error: io::Error| {
        Failure::unusable(format!("cannot write into {}: {error}; choose another place with -o", folder.display()))
    };
    if !folder.metadata().map_err(failed)?.is_dir() {
        return Err(failed(io::ErrorKind::NotADirectory.into()));
    }
    // Made and removed, because permissions alone do not tell (read-only file systems, quotas).
    let probe = folder.join(format!(".cutape-{}", std::process::id()));
    fs::OpenOptions::new().write(true).create_new(true).open(&probe).map_err(failed)?;
    fs::remove_file(&probe).map_err(failed)?;
    Ok(absolute)
}

/// Files that processes of one recording write: `run.cutape`, `run.4711.cutape`.
fn family(trace: &Path) -> Vec<PathBuf> {
    let stem = trace.file_name().and_then(OsStr::to_str).unwrap_or_default();
    let stem = stem.strip_suffix(".cutape").unwrap_or(stem);
    let of_family = |name: &str| {
        name.strip_prefix(stem)
            .and_then(|rest| rest.strip_prefix('.'))
            .and_then(|rest| rest.strip_suffix(".cutape"))
            .is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
    };
    let mut files: Vec<_> = trace
        .parent()
        .and_then(|folder| fs::read_dir(folder).ok())
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.file_name().to_str().is_some_and(of_family))
        .map(|entry| entry.path())
        .collect();
    files.sort();
    files
}

static PROGRAM: AtomicI32 = AtomicI32::new(0);

extern "C" fn pass_on(signal: libc::c_int) {
    // SAFETY: kill may be called in a signal handler.
    unsafe { libc::kill(PROGRAM.load(Ordering::Relaxed), signal) };
}

/// An interrupt from the terminal reaches the program by itself; we live on to collect its trace. What is sent to us alone
/// is passed on.
fn pass_signals_to(child: &Child) {
    PROGRAM.store(child.id() as i32, Ordering::Relaxed);
    // SAFETY: the handlers touch an atomic and call kill.
    unsafe {
        libc::signal(libc::SIGINT, libc::SIG_IGN);
        libc::signal(libc::SIGQUIT, libc::SIG_IGN);
        libc::signal(libc::SIGTERM, pass_on as *const () as libc::sighandler_t);
        libc::signal(libc::SIGHUP, pass_on as *const () as libc::sighandler_t);
    }
}

impl Session {
    /// Where the program's own trace is going to be.
    pub(crate) fn trace(&self) -> &Path {
        &self.trace
    }

    /// Whether the program has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits for the end of the program.
    pub(crate) fn wait(mut self) -> Result<Ended, Failure> {
        let status = self
            .child
            .wait()
            .map_err(|error| Failure::unusable(format!("cannot wait for the program: {error}")))?;
        let others = family(&self.trace).into_iter().filter(|path| !self.old.contains(path));
        let own = self.trace.exists().then(|| self.trace.clone());
        Ok(Ended {
            status,
            traces: own.into_iter().chain(others).collect(),
            ticks_per_second: self.clock.rate_since(),
        })
    }
}

impl Ended {
    /// The status that the program would have given its parent: its own, or 128 and the signal.
    pub(crate) fn exit_code(&self) -> u8 {
        let code = self.status.code().or(self.status.signal().map(|signal| 128 + signal));
        code.unwrap_or(crate::failure::UNUSABLE.into()) as u8
    }

    /// `exited with status 3`, `was ended by signal 11 (SIGSEGV)`.
    pub(crate) fn describe(&self) -> String {
        match (self.status.code(), self.status.signal()) {
            (Some(code), _) => format!("exited with status {code}"),
            (_, Some(signal)) => format!("was ended by signal {signal}{}", signal_name(signal)),
            _ => "ended".to_owned(),
        }
    }

    /// Packs a trace in place, with what is known now.
    pub(crate) fn pack(&self, path: &Path) -> Result<PackSummary, Failure> {
        let trace = Trace::open(path)?;
        let mut meta = Vec::new();
        if let Some(code) = self.status.code() {
            meta.push(("exit.status".to_owned(), code.to_string()));
        }
        if let Some(signal) = self.status.signal() {
            meta.push(("exit.signal".to_owned(), signal.to_string()));
        }
        if trace.head().clock == 0
            && let Some(rate) = self.ticks_per_second
        {
            meta.push(("clock.ticks-per-second".to_owned(), rate.to_string()));
        }
        cutape_format::pack(&trace, path, &meta, &symbols::of_callers(&trace))
            .map_err(|error| Failure::unusable(format!("cannot pack {}: {error}; it stays as it was recorded", path.display())))
    }
}

fn signal_name(signal: i32) -> &'static str {
    match signal {
        libc::SIGABRT => " (SIGABRT)",
        libc::SIGBUS => " (SIGBUS)",
        libc::SIGFPE => " (SIGFPE)",
        libc::SIGILL => " (SIGILL)",
        libc::SIGINT => " (SIGINT)",
        libc::SIGKILL => " (SIGKILL)",
        libc::SIGSEGV => " (SIGSEGV)",
        libc::SIGTERM => " (SIGTERM)",
        _ => "",
    }
}
