//! Running a program under the interposer, and collecting the traces that it leaves.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicI32, Ordering};

use cutape_format::rank::is_rank;
use cutape_format::{
    MissingFileRange, PackSummary, PayloadPolicies, PayloadPolicy, Trace, recorded_process,
};

use crate::arrival::{Subject, Watch};
use crate::failure::Failure;
use crate::library::{self, LibraryFolder};
use crate::mover::{self, Moving};
use crate::output;
use crate::payloads;
use crate::program_file;
use crate::reservation::{Reservation, is_reserved};
use crate::symbols;
use crate::via::{self, Via, Way};

/// Which host memory that the device reads without a copy is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum HostMemory {
    /// None.
    Off,
    /// What a call's arguments or a kernel's parameters point into.
    Reachable,
    /// All of it, at every launch.
    All,
}

impl HostMemory {
    fn word(self) -> &'static str {
        match self {
            HostMemory::Off => "off",
            HostMemory::Reachable => "reachable",
            HostMemory::All => "all",
        }
    }
}

/// How a program is to be recorded.
#[derive(clap::Args)]
pub(crate) struct Recording {
    /// What to keep of the bytes that the program copies to devices.
    #[arg(long, value_parser = payloads::words(), default_value = "all", value_name = "WHAT")]
    pub(crate) payloads: PayloadPolicy,
    /// What to keep of the bytes that come back.
    #[arg(long, value_parser = payloads::words(), default_value = "all", value_name = "WHAT")]
    pub(crate) outputs: PayloadPolicy,
    /// Pinned and managed host memory that kernels see: record changes of
    /// what their parameters point into, of all of it, or none.
    #[arg(
        long,
        value_enum,
        default_value = "reachable",
        value_name = "WHICH",
        verbatim_doc_comment
    )]
    pub(crate) host_memory: HostMemory,
    /// The driver to call: a path, or `null`. Default: the machine's.
    #[arg(long, value_name = "PATH")]
    pub(crate) driver: Option<PathBuf>,
    /// How the program's calls reach us.
    #[arg(long, value_enum, default_value = "auto", value_name = "WAY")]
    pub(crate) via: Via,
    /// What recording costs is measured, which costs a little itself.
    #[arg(skip)]
    pub(crate) measures_cost: bool,
}

impl Recording {
    /// What is kept of payloads when the trace is packed.
    pub(crate) fn kept(&self) -> PayloadPolicies {
        PayloadPolicies {
            payloads: self.payloads,
            outputs: self.outputs,
        }
    }
}

/// A running program.
pub(crate) struct Session {
    child: Child,
    trace: PathBuf,
    /// Traces of that name's family that were there before.
    old: Vec<PathBuf>,
    clock: Clock,
    way: Way,
    _watch: Watch,
    moving: Option<Moving>,
    _folder: LibraryFolder,
    _reservation: Reservation,
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
        Self {
            ticks: ticks(),
            time: std::time::Instant::now(),
        }
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

/// Starts the program, its name first, so that it writes `trace`.
pub(crate) fn start(
    recording: &Recording,
    words: &[OsString],
    trace: Reservation,
) -> Result<Session, Failure> {
    let name = words.first().ok_or_else(|| {
        Failure::unusable(
            "no program: give it and its arguments behind --, e.g. `cutape record -- ./app 1 2`",
        )
    })?;
    let program = program_file::find(name)?;
    let loader = program_file::check(&program)?;
    let reservation = trace;
    let trace = reservation.trace().to_owned();
    let interposer = library::interposer()?;
    let way = via::choose(recording.via, &loader, &interposer)?;
    tracing::info!("recording by way of {}: {}", way.word(), way.why);
    let driver = library::driver(recording.driver.as_deref())?;
    let folder = LibraryFolder::new(&interposer)?;
    if let Err(why) = folder.forward(&interposer, &driver) {
        eprintln!(
            "cutape: functions that the driver has and cutape does not know are not found while recording: {why}"
        );
    }
    let old = family(&trace);
    let mut command = Command::new(&program);
    command
        .args(&words[1..])
        .envs(way.environment(&folder))
        .env("CUTAPE_TRACE", &trace)
        .env("CUTAPE_DRIVER", &driver)
        .env("CUTAPE_PAYLOADS", recording.payloads.word())
        .env("CUTAPE_OUTPUTS", recording.outputs.word())
        .env("CUTAPE_HOST_MEMORY", recording.host_memory.word());
    if recording.measures_cost {
        command.env("CUTAPE_COST", "1");
    }
    let moves = mover::is_worth_it();
    let clock = Clock::read();
    let child = command
        .spawn()
        .map_err(|error| Failure::unusable(format!("cannot run {}: {error}", program.display())))?;
    pass_signals_to(&child);
    let (asked, known) = (trace.clone(), old.clone());
    let watch = Watch::begin(Subject {
        process: child.id(),
        ours: way.mapped_at_start(folder.library(), &driver),
        driver,
        traces: Box::new(move || begun(&asked, &known)),
        advice: way.next(),
    });
    let (asked, known) = (trace.clone(), old.clone());
    let moving = moves.then(|| Moving::begin(move || begun(&asked, &known)));
    Ok(Session {
        child,
        trace,
        old,
        clock,
        way,
        _watch: watch,
        moving,
        _folder: folder,
        _reservation: reservation,
    })
}

/// Programs that one process may become and record, as the recorder counts them.
const PROGRAMS_OF_A_PROCESS: u64 = 1000;

/// What stands between a recording's name and `.cutape` in the name of one of its further files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relative {
    /// `run.rank3.cutape`.
    Rank,
    /// `run.4711.cutape`, `run.rank3.4711.cutape`: the process; `run.4711001.cutape` is its second program.
    Process(u64),
}

/// Whether a name is of the family of a recording with that stem.
fn relative(stem: &[u8], name: &[u8]) -> Option<Relative> {
    let rest = name.strip_prefix(stem)?.strip_suffix(b".cutape")?;
    let digits = |text: &[u8]| std::str::from_utf8(text).ok()?.parse().ok();
    let mut words = rest.strip_prefix(b".")?.split(|&byte| byte == b'.');
    let mut word = words.next()?;
    if word.strip_prefix(b"rank").is_some_and(is_rank) {
        match words.next() {
            Some(process) => word = process,
            None => return Some(Relative::Rank),
        }
    }
    match words.next() {
        None => digits(word).map(Relative::Process),
        Some(_) => None,
    }
}

/// Files that processes of one recording write beside its first: `run.4711.cutape`, where 4711 is the process that the
/// file itself names; `run.1.cutape` of another recording is not among them. Of a parallel program, `run.rank3.cutape`.
fn family(trace: &Path) -> Vec<PathBuf> {
    let stem = trace.file_name().unwrap_or_default().as_bytes();
    let stem = stem.strip_suffix(b".cutape").unwrap_or(stem);
    let mut files: Vec<_> = trace
        .parent()
        .and_then(|folder| fs::read_dir(folder).ok())
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let relative = relative(stem, entry.file_name().as_bytes())?;
            Some((relative, entry.path()))
        })
        .filter(|(relative, path)| match relative {
            Relative::Rank => true,
            Relative::Process(number) => match recorded_process(path) {
                Some(process) => {
                    [*number, number / PROGRAMS_OF_A_PROCESS].contains(&u64::from(process))
                }
                // What cannot be read is not known to be another's, unless that one is about to write it.
                None => !is_reserved(path),
            },
        })
        .map(|(_, path)| path)
        .collect();
    files.sort();
    files
}

/// The traces that a recording has begun, before which the family was as it is given.
fn begun(trace: &Path, old: &[PathBuf]) -> Vec<PathBuf> {
    let new = family(trace).into_iter().filter(|path| !old.contains(path));
    [trace.to_owned()].into_iter().chain(new).collect()
}

/// The process that still writes a trace: one that has the file mapped.
pub(crate) fn writer(trace: &Trace) -> Option<u32> {
    let process = trace.head().process;
    let inode = fs::metadata(trace.path()).ok()?.ino().to_string();
    // address, permissions, offset, device, inode, path
    let maps = fs::read(format!("/proc/{process}/maps")).ok()?;
    let maps = String::from_utf8_lossy(&maps);
    let maps_it = |line: &str| line.split_ascii_whitespace().nth(4) == Some(&inode);
    maps.lines().any(maps_it).then_some(process)
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

    /// By which way calls are to reach us.
    pub(crate) fn way(&self) -> &Way {
        &self.way
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
        // Before anybody reads what is there.
        drop(self.moving);
        let others = family(&self.trace)
            .into_iter()
            .filter(|path| !self.old.contains(path));
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
        let code = self
            .status
            .code()
            .or(self.status.signal().map(|signal| 128 + signal));
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
        if let Some(process) = writer(&trace) {
            return Err(still_written(path, process));
        }
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
        cutape_format::pack(&trace, path, &meta, &symbols::of_callers(&trace)).map_err(|error| {
            let still_whole = match payloads::are_to_be_hashed(&trace) {
                true => ", with all bytes in it: `cutape pack` makes hashes of them",
                false => "",
            };
            Failure::unusable(format!(
                "cannot pack {}: {error}; it stays as it was recorded{still_whole}",
                path.display()
            ))
        })
    }
}

/// Says on stderr what `pack` has not found.
pub(crate) fn say_missing(missing: &[MissingFileRange]) {
    for part in missing {
        eprintln!(
            "cutape: not packed: {} bytes of an image: {}",
            part.length, part.why
        );
    }
}

/// Why a trace cannot be packed yet.
pub(crate) fn still_written(path: &Path, process: u32) -> Failure {
    Failure::unusable(format!(
        "{0}: process {process} still runs and records into it; `cutape pack {0}` when that has ended",
        output::shown(path)
    ))
}

pub(crate) fn signal_name(signal: i32) -> &'static str {
    match signal {
        libc::SIGABRT => " (SIGABRT)",
        libc::SIGALRM => " (SIGALRM)",
        libc::SIGBUS => " (SIGBUS)",
        libc::SIGFPE => " (SIGFPE)",
        libc::SIGHUP => " (SIGHUP)",
        libc::SIGILL => " (SIGILL)",
        libc::SIGINT => " (SIGINT)",
        libc::SIGKILL => " (SIGKILL)",
        libc::SIGPIPE => " (SIGPIPE)",
        libc::SIGQUIT => " (SIGQUIT)",
        libc::SIGSEGV => " (SIGSEGV)",
        libc::SIGSYS => " (SIGSYS)",
        libc::SIGTERM => " (SIGTERM)",
        libc::SIGTRAP => " (SIGTRAP)",
        libc::SIGXCPU => " (SIGXCPU)",
        libc::SIGXFSZ => " (SIGXFSZ)",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use std::env;

    use cutape_format::TraceBuilder;

    use super::*;

    #[test]
    fn traces_of_one_recording() {
        let folder = env::temp_dir().join(format!("cutape-family-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        // The builder says that process 4242 wrote it.
        let trace = TraceBuilder::new(cutape_registry::SIGNATURE_TEXT);
        for (name, own) in [
            ("run.4242.cutape", true),
            // Another recording's, which found run.cutape taken.
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
                writer(&opened),
                None,
                "{name}: nobody has it mapped as 4242"
            );
            fs::remove_file(&path).unwrap();
        }
        // One that another recording is just creating, and one that is damaged.
        let begun = folder.join("run.1.cutape");
        let reservation = Reservation::named(&begun).unwrap();
        fs::write(&begun, "").unwrap();
        assert_eq!(family(&folder.join("run.cutape")), [] as [PathBuf; 0]);
        drop(reservation);
        assert_eq!(family(&folder.join("run.cutape")), [begun]);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn names_of_a_family() {
        for (name, expected) in [
            ("run.4711.cutape", Some(Relative::Process(4711))),
            ("run.rank3.cutape", Some(Relative::Rank)),
            ("run.rank3.4711.cutape", Some(Relative::Process(4711))),
            ("run.cutape", None),
            ("run.rank.cutape", None),
            ("run.rankx.cutape", None),
            ("run.rank3.x.cutape", None),
            ("run.rank3.4.5.cutape", None),
            ("run2.4711.cutape", None),
            ("run.4711.json", None),
            ("other.4711.cutape", None),
        ] {
            assert_eq!(relative(b"run", name.as_bytes()), expected, "{name}");
        }
    }
}
