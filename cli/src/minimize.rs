//! `cutape minimize`: writes the smallest trace that still shows something.

mod interrupt;
mod keep;

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use cutape_cut::Error;
use cutape_cut::minimize::{Environment, OtherReplay, Outcome, Search, Stop, Wanted};
use cutape_format::Trace;
use cutape_render::quantity;
use cutape_replay::{CallImage, Guard, Report};
use cutape_terminal::failure::{FOUND, Failure};
use cutape_terminal::input;
use cutape_terminal::library;
use cutape_terminal::message;
use cutape_terminal::overwrite::Overwrite;
use cutape_terminal::progress::{Progress, Unit};

use self::keep::Keep;
use crate::guarded::SandboxOption;
use crate::replay;

/// What `minimize` takes.
#[derive(clap::Args)]
#[command(after_help = EPILOGUE)]
pub(crate) struct Arguments {
    /// The trace.
    trace: PathBuf,
    #[command(flatten)]
    keep: Keep,
    /// The trace to write; must not exist, except with --overwrite.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    #[command(flatten)]
    overwrite: Overwrite,
    /// The driver of replays: a path, or `null`. Default: this machine's.
    #[arg(long, value_name = "PATH")]
    driver: Option<PathBuf>,
    /// In all replays, load FILE instead of the image that call CALL of the trace
    /// loads: a cubin, a fatbin or PTX. Can be given several times.
    ///
    /// With --keep-divergence the divergence is kept that the image causes: a replay
    /// with the recorded images agrees.
    #[arg(long, value_name = "CALL=FILE", verbatim_doc_comment)]
    replace_image: Vec<CallImage>,
    #[command(flatten)]
    sandbox: SandboxOption,
    /// End a replay in which no call begins or ends for this long.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    watchdog: u64,
    /// Stop after this time, with the smallest trace so far.
    #[arg(long, value_name = "SECONDS")]
    time_limit: Option<u64>,
}

const EPILOGUE: &str = "\
Calls are left out, with those that cannot be made without them, as long as the
rest still shows it. Then payloads are left out, launches and copies become
smaller, and fat binaries lose the entries that the recorded devices do not load.
Each attempt is a trace that check, a guarded replay or the command judges, and
one more run judges the result. When the time is over, or after Ctrl-C (then
without that run), the smallest trace so far is written, and the same command
goes on from the folder OUTPUT.minimize.";

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let trace = input::open(&arguments.trace)?;
    if let Some(process) = trace.writer() {
        return Err(input::still_written(&arguments.trace, process));
    }
    let kept = arguments.keep.checked()?;
    let is_of_replays = kept.is_of_replays();
    if !is_of_replays && !arguments.replace_image.is_empty() {
        return Err(Failure::unusable(
            "--replace-image: only replays load other images; use it with --keep-divergence, \
             --keep-crash or --keep-error",
        ));
    }
    let environment = Terminal {
        driver: match is_of_replays {
            true => library::driver(arguments.driver.as_deref())?,
            false => PathBuf::new(),
        },
        program: library::own_path()?,
        sandbox: arguments.sandbox,
        watchdog: Duration::from_secs(arguments.watchdog.max(1)),
        overwrite: arguments.overwrite,
        progress: RefCell::new(Progress::new("trying", Unit::Things("attempts"), None)),
    };
    let wanted = Wanted {
        kept,
        images: arguments.replace_image,
        target: &arguments.output,
        time_limit: arguments.time_limit.map(Duration::from_secs),
    };
    let search = Search::new(&trace, wanted, &environment).map_err(failure)?;
    interrupt::watch();
    let outcome = search.run().map_err(failure)?;
    Ok(tell(&outcome, &trace, &arguments.output))
}

fn failure(error: Error) -> Failure {
    match error {
        Error::Write { path, source } => Failure::cannot_write(&path, &source),
        error => Failure::unusable(error),
    }
}

/// What the search gets from this process.
struct Terminal {
    driver: PathBuf,
    program: PathBuf,
    sandbox: SandboxOption,
    watchdog: Duration,
    overwrite: Overwrite,
    progress: RefCell<Progress>,
}

impl Environment for Terminal {
    fn open(&self, path: &Path) -> Result<Trace, Error> {
        input::open(path).map_err(|failure| Error::Unusable(failure.message))
    }

    fn replay(&self, trace: &Trace, other: &OtherReplay) -> Result<Report, Error> {
        let command = || {
            let mut child = replay::child_for(&self.program, &self.driver, other);
            child.args(self.sandbox.for_child());
            child.arg("--").arg(trace.path());
            if other.is_quiet {
                child.stderr(Stdio::null());
            }
            child
        };
        let guard = Guard {
            watchdog: self.watchdog,
            ..Guard::default()
        };
        cutape_replay::run_guarded(trace, &command, &guard, &mut |_| {})
            .map_err(|error| Error::Unusable(error.to_string()))
    }

    fn may_replace(&self, target: &Path) -> Result<(), Error> {
        let replaces = self.overwrite.replaces(target);
        replaces
            .map(drop)
            .map_err(|failure| Error::Unusable(failure.message))
    }

    fn walk(&self, trace: &Trace) -> Box<dyn FnMut()> {
        let mut progress = Progress::over_calls("reading", [trace]);
        Box::new(move || progress.step())
    }

    fn begins_attempt(&self, number: u64) {
        self.progress.borrow_mut().reach(number);
    }

    fn goes_on(&self, folder: &Path, calls: u64) {
        let calls = quantity::count(calls, "call");
        message!("goes on from {} with {calls}", folder.display());
    }

    fn is_interrupted(&self) -> bool {
        interrupt::came()
    }
}

/// Says what was found.
fn tell(outcome: &Outcome, source: &Trace, target: &Path) -> ExitCode {
    let Outcome { calls, of, .. } = outcome;
    let length = |path: &Path| std::fs::metadata(path).map_or(0, |file| file.len());
    let [length, before] = [target, source.path()].map(|path| quantity::bytes(length(path)));
    let target = target.display();
    message!(
        "{target}: {calls} of {of} calls after {}; {length}, before {before}",
        quantity::count(outcome.attempts, "attempt"),
    );
    if !outcome.is_verified {
        message!(
            "the last run of the result did not show it: {}; it is nondeterministic",
            outcome.absence
        );
        return ExitCode::from(FOUND);
    }
    if !outcome.replay_options.is_empty() {
        message!(
            "`cutape replay {target}{}` shows it",
            outcome.replay_options
        );
    }
    if let Some(why) = outcome.stopped.map(Stop::words) {
        message!("{why}; the same command goes on");
    }
    ExitCode::SUCCESS
}
