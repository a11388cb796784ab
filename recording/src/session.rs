//! Runs a program under the interposer and collects the traces that it writes.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::AtomicU64;

use cutape_format::{MissingFileRange, PackSummary, PayloadPolicies, Trace};
use cutape_registry::RecorderSetting;
use cutape_symbols::stacks;
use cutape_terminal::clock::TickClock;
use cutape_terminal::failure::{self, Failure};
use cutape_terminal::input;
use cutape_terminal::library;
use cutape_terminal::message;
use cutape_terminal::output;
use cutape_terminal::progress::{Progress, Unit};
use cutape_terminal::signals::signal_name;

use crate::backend::{self, SelectedBackend};
use crate::bypass::{self, Target};
use crate::created::CreatedFiles;
use crate::family::{family, is_named_as_family, name_after_program, new_family};
use crate::library_folder::LibraryFolder;
use crate::options::Recording;
use crate::payloads;
use crate::program_file;
use crate::reservation::Reservation;
use crate::settings::Settings;
use crate::signalled_pauses::{self, PauseSignals};
use crate::signals;
use crate::until_dropped::UntilDropped;

/// A running program.
pub struct Session {
    child: Child,
    trace: PathBuf,
    /// Files of the trace's family that existed before.
    old: Vec<PathBuf>,
    clock: TickClock,
    backend: SelectedBackend,
    _monitor: Option<UntilDropped>,
    _pauses: Option<UntilDropped>,
    created: CreatedFiles,
    folder: LibraryFolder,
    _reservation: Reservation,
}

/// A program that has ended, and its traces.
pub struct Outcome {
    /// How it ended.
    pub status: ExitStatus,
    /// The process whose status that is.
    process: u32,
    /// The program's own trace, or if it did not call the driver, that of the first process that
    /// did; then those of other processes.
    pub traces: Vec<PathBuf>,
    /// Which of them is that of the first process that called the driver: [`Session::trace`].
    pub first: PathBuf,
    /// A trace that was created and is not there any more.
    deleted: Option<PathBuf>,
    /// Why no trace could be created for a process.
    not_recorded: Option<PathBuf>,
    /// A process that the program has started, that still runs, and that will be recorded.
    running: Option<u32>,
    ticks_per_second: Option<u64>,
}

/// Starts the program `words[0]` so that it writes the reserved trace.
///
/// # Errors
/// If the program cannot be recorded or started, or a part of cutape is missing.
pub fn start(
    recording: &Recording,
    words: &[OsString],
    reservation: Reservation,
) -> Result<Session, Failure> {
    let name = words.first().ok_or_else(|| {
        Failure::unusable(
            "no program: give it and its arguments after --, e.g. `cutape record -- ./app 1 2`",
        )
    })?;
    let recording = &recording.limited()?;
    let program = match words {
        [only] => program_file::find_alone(only)?,
        _ => program_file::find(name)?,
    };
    let loader = program_file::check(&program, "record")?;
    let trace = reservation.trace().to_owned();
    let interposer = library::interposer()?;
    let backend = backend::select(recording.backend, &program, &loader, &interposer)?;
    tracing::info!(
        "recording with backend {}: {}",
        backend.backend.word(),
        backend.reason
    );
    let driver = library::driver(recording.driver.as_deref())?;
    let folder = LibraryFolder::new(&interposer)?;
    let loader_variables = backend.loader_variables(&folder)?;
    if let Err(why) = folder.forward(&interposer, &driver) {
        message!(
            "while recording, the program cannot find driver functions that this cutape \
             does not know: {why}"
        );
    }
    reservation.clear()?;
    let old = family(&trace);
    let settings = Settings {
        recording,
        backend: &backend,
        folder: &folder,
        trace: &trace,
        driver: &driver,
    };
    let mut command = Command::new(&program);
    command.args(&words[1..]).envs(loader_variables);
    for &setting in RecorderSetting::ALL {
        if let Some(value) = settings.value(setting) {
            command.env(setting.name(), value);
        }
    }
    match nvtx_library() {
        Some(other) if !recording.no_nvtx => message!(
            "NVTX ranges and marks are not recorded: {NVTX} names another library, {}; \
             unset it to record them",
            other.display()
        ),
        Some(_) => {}
        None if recording.no_nvtx => _ = command.env_remove(NVTX),
        None => _ = command.env(NVTX, folder.library()),
    }
    let signals = PauseSignals::take(recording);
    let created = CreatedFiles::beside(&trace);
    let clock = TickClock::start();
    let child = spawn(&mut command, &program)?;
    let monitor = bypass::start(Target {
        process: child.id(),
        harmless: backend.mapped_at_start(folder.library(), &driver),
        driver,
        trace: trace.clone(),
        not_recorded: folder.not_recorded(),
        advice: backend.advice(),
    });
    let pauses = signals.and_then(|signals| signalled_pauses::start(signals, &trace, &old));
    Ok(Session {
        child,
        trace,
        old,
        clock,
        backend,
        created,
        _monitor: monitor,
        _pauses: pauses,
        folder,
        _reservation: reservation,
    })
}

/// The variable by which NVTX finds the library that it loads.
const NVTX: &str = "NVTX_INJECTION64_PATH";

/// The library that the user has chosen for NVTX; `None` if it is cutape's, of a recording that
/// this one runs in.
fn nvtx_library() -> Option<PathBuf> {
    let path = std::env::var_os(NVTX).filter(|path| !path.is_empty())?;
    let path = PathBuf::from(path);
    (library::exports(&path, "cutape_mark") != Some(true)).then_some(path)
}

/// Starts a program, which gets the signals from now on.
pub(crate) fn spawn(command: &mut Command, program: &Path) -> Result<Child, Failure> {
    let failed = |error| Failure::unusable(format!("cannot run {}: {error}", program.display()));
    let child = command.spawn().map_err(failed)?;
    signals::forward_to(child.id());
    Ok(child)
}

/// Waits for the end of a program.
pub(crate) fn wait_for(child: &mut Child) -> Result<ExitStatus, Failure> {
    ended(child, true);
    let status = child.wait();
    status.map_err(|error| Failure::unusable(format!("cannot wait for the program: {error}")))
}

/// The status that a shell would report: the program's own, or 128 and the signal.
pub fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    code.unwrap_or(failure::UNUSABLE.into()) as u8
}

/// Whether the program has ended; `true` waits for that. It can still be waited for.
fn ended(child: &Child, waits: bool) -> bool {
    let flags = libc::WEXITED | libc::WNOWAIT | if waits { 0 } else { libc::WNOHANG };
    // SAFETY: all zeros are valid for it, and it outlives the call that fills it.
    let (result, is_told) = unsafe {
        let mut told: libc::siginfo_t = std::mem::zeroed();
        let result = loop {
            let result = libc::waitid(libc::P_PID, child.id(), &raw mut told, flags);
            let error = std::io::Error::last_os_error();
            if result == 0 || error.kind() != std::io::ErrorKind::Interrupted {
                break result;
            }
        };
        (result, told.si_pid() != 0)
    };
    let has_ended = result != 0 || is_told;
    if has_ended {
        signals::forward_no_more();
    }
    has_ended
}

impl Session {
    /// The path of the trace of the first process that calls the driver, which may not exist yet.
    pub fn trace(&self) -> &Path {
        &self.trace
    }

    /// The traces that exist now.
    pub fn traces(&self) -> Vec<PathBuf> {
        let mut traces = new_family(&self.trace, &self.old);
        traces.retain(|path| path.exists());
        traces
    }

    /// Ticks per second of the processor's clock, as far as is known.
    pub fn ticks_per_second(&self) -> Option<u64> {
        self.clock.rate()
    }

    /// The selected backend.
    pub fn backend(&self) -> &SelectedBackend {
        &self.backend
    }

    /// Whether the program has ended.
    pub fn has_ended(&self) -> bool {
        ended(&self.child, false)
    }

    /// Waits for the end of the program.
    ///
    /// # Errors
    /// If the system does not tell it.
    pub fn wait(mut self) -> Result<Outcome, Failure> {
        let status = wait_for(&mut self.child)?;
        let process = self.child.id();
        let is_deleted = |name: &PathBuf| {
            is_named_as_family(&self.trace, name) && !self.trace.with_file_name(name).exists()
        };
        let deleted = self.created.names().into_iter().find(is_deleted);
        let first = name_after_program(&self.trace, process, &self.old).unwrap_or_else(|error| {
            let trace = output::shown(&self.trace);
            message!("{trace}: cannot rename the traces: {error}; this one may be a child's");
            self.trace.clone()
        });
        let others = family(&self.trace)
            .into_iter()
            .filter(|path| !self.old.contains(path));
        let own = self.trace.exists().then(|| self.trace.clone());
        Ok(Outcome {
            status,
            process,
            traces: own.into_iter().chain(others).collect(),
            first,
            deleted,
            not_recorded: self.folder.not_recorded().read_link().ok(),
            running: self.folder.user(),
            ticks_per_second: self.clock.rate(),
        })
    }
}

impl Outcome {
    /// Why there is no trace, for people; `advice` is for a program whose calls were not seen.
    pub fn why_no_trace(&self, advice: &str) -> String {
        if let Some(why) = &self.not_recorded {
            return output::shown(why).to_string();
        }
        if let Some(name) = &self.deleted {
            return format!(
                "{} was deleted while the program ran; record it again",
                name.display()
            );
        }
        let ended = self.describe();
        match self.running {
            Some(process) => format!(
                "no CUDA driver call reached cutape until the program {ended}; process {process}, \
                 which it started, still runs and will be recorded to {}",
                output::shown(&self.first)
            ),
            None => {
                format!("no CUDA driver call of the program reached cutape (it {ended}){advice}")
            }
        }
    }

    /// The status that a shell would report: the program's own, or 128 and the signal.
    pub fn exit_code(&self) -> u8 {
        exit_code(self.status)
    }

    /// `exited with status 3`, `was killed by signal 11 (SIGSEGV)`.
    pub fn describe(&self) -> String {
        match (self.status.code(), self.status.signal()) {
            (Some(code), _) => format!("exited with status {code}"),
            (_, Some(signal)) => format!("was killed by signal {signal}{}", signal_name(signal)),
            _ => "ended".to_owned(),
        }
    }

    /// As `pack`; what is missing or goes wrong is reported on stderr, because an
    /// unpacked trace is still usable.
    pub fn pack_or_warn(&self, path: &Path) {
        match self.pack(path) {
            Ok(summary) => report_missing(&summary.missing),
            Err(failure) => message!("{}", failure.message),
        }
    }

    /// Packs a trace in place; adds the exit status, and the clock's rate if the trace lacks it.
    fn pack(&self, path: &Path) -> Result<PackSummary, Failure> {
        let trace = Trace::open(path)?;
        if let Some(process) = trace.writer() {
            return Err(input::still_written(path, process));
        }
        let mut meta = Vec::new();
        if let Some(code) = self.status.code() {
            meta.push(("exit.status".to_owned(), code.to_string()));
        }
        if let Some(signal) = self.status.signal() {
            meta.push(("exit.signal".to_owned(), signal.to_string()));
        }
        meta.push(("exit.process".to_owned(), self.process.to_string()));
        if let Some(rate) = self.ticks_per_second {
            meta.push((TICKS_PER_SECOND.to_owned(), rate.to_string()));
        }
        pack_in_place(trace, meta)
    }
}

/// The metadata with the rate of the clock.
pub const TICKS_PER_SECOND: &str = "clock.ticks-per-second";

/// Packs a trace in place, with the names of callers and the sources of stacks. Adds `meta`.
///
/// # Errors
/// If it cannot be written; then it stays as it was.
pub fn pack_in_place(
    mut trace: Trace,
    mut meta: Vec<(String, String)>,
) -> Result<PackSummary, Failure> {
    // A counter that is no clock has no rate.
    meta.retain(|(key, _)| key != TICKS_PER_SECOND || trace.head().clock == 0);
    trace.name_addresses(stacks::sources(&trace));
    let symbols = cutape_symbols::of_callers(&trace);
    let kept = PayloadPolicies::default();
    let written = AtomicU64::new(0);
    let path = trace.path();
    let packed = Progress::new("packing", Unit::Bytes, None).watch(&written, || {
        cutape_redact::pack(&trace, path, (&meta, &symbols), kept, &written)
    });
    packed.map_err(|error| {
        let unhashed = match payloads::await_hashing(&trace) {
            _ if !cutape_redact::asked(&trace).is_empty() => {
                " and holds what was to be redacted; `cutape pack` redacts it"
            }
            true => " with all payload bytes; `cutape pack` replaces them with hashes",
            false => "",
        };
        Failure::unusable(format!(
            "cannot pack the trace: {error} ({}); it stays unpacked{unhashed}",
            path.display()
        ))
    })
}

/// Reports on stderr the bytes that packing could not find.
pub fn report_missing(missing: &[MissingFileRange]) {
    for part in missing {
        message!(
            "{} bytes of {} are not in the trace: {}",
            part.length,
            if part.is_payload {
                "a payload"
            } else {
                "an image"
            },
            part.why
        );
    }
}
