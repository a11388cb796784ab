//! `cutape trim`: writes a smaller trace that replays and checks like a part of its source.

mod choice;

use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use cutape_cut::Part;
use cutape_cut::trim::{Cut, StateReplay};
use cutape_format::Trace;
use cutape_render::quantity;
use cutape_replay::LocateError;
use cutape_terminal::failure::Failure;
use cutape_terminal::input;
use cutape_terminal::library;
use cutape_terminal::message;
use cutape_terminal::output_folder::Folder;
use cutape_terminal::overwrite::Overwrite;
use cutape_terminal::progress::Progress;

use self::choice::Choice;
use crate::guarded::GuardedOptions;
use crate::observation;
use crate::one_rank::{RankOption, Source};

/// What `trim` takes.
#[derive(clap::Args)]
#[command(after_help = EPILOGUE)]
pub(crate) struct Arguments {
    /// The trace. If a program still records to it, its calls so far.
    ///
    /// With --rank, a folder with the traces of several ranks.
    trace: PathBuf,
    #[command(flatten)]
    rank: RankOption,
    #[command(flatten)]
    choice: Choice,
    /// The trace to write; must not exist, except with --overwrite.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    #[command(flatten)]
    overwrite: Overwrite,
    /// How the part gets the memory that it reads.
    ///
    /// recorded: the calls that wrote the memory are kept, launches too.
    /// replay: the trace is replayed up to the part, and the memory that the part can
    /// reach is read and stored. Earlier calls are kept only if they create objects.
    /// This needs a driver and a GPU like the recorded ones.
    #[arg(long, value_enum, default_value = "recorded", value_name = "FROM")]
    #[arg(verbatim_doc_comment, hide_possible_values = true)]
    state: State,
    /// With --state replay: the driver, a path or `null`. Default: this machine's.
    #[arg(long, value_name = "PATH")]
    driver: Option<PathBuf>,
    /// Which code of images is kept.
    ///
    /// whole: all of it.
    /// used: only what the part runs. Fat binaries keep the code for the recorded
    /// GPUs only, and the code of kernels that no call of the part names becomes
    /// zeros, which compress well. The part then replays only on GPUs of the
    /// recorded architecture.
    #[arg(long, value_enum, default_value = "whole", value_name = "WHICH")]
    #[arg(verbatim_doc_comment, hide_possible_values = true)]
    images: ImageCode,
    #[command(flatten)]
    guarded: GuardedOptions,
}

/// The values of `--images`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum ImageCode {
    Whole,
    Used,
}

/// The values of `--state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum State {
    Recorded,
    Replay,
}

const EPILOGUE: &str = "\
The result has the chosen calls and those that they need: calls that created or
changed their objects, wrote the memory that they read, order their work, or
destroy what was created. It replays and checks like that part of the trace.
`cutape info` shows its source.";

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let source = arguments
        .rank
        .source(&arguments.trace, &arguments.guarded)?;
    let trace = input::open(source.path())?;
    let target = &arguments.output;
    arguments.overwrite.replaces(target)?;
    let chosen = arguments.choice.calls(&trace)?;
    let passes = Passes::new(&trace, arguments.state);
    let mut cut = match arguments.state {
        State::Recorded => recorded(&arguments, &passes, &chosen)?,
        State::Replay => replayed(&arguments, (&passes, &source), &chosen)?,
    };
    if arguments.images == ImageCode::Used {
        cut = cut.without_unused_code();
    }
    let summary = arguments.overwrite.write(target, |path| {
        let progress = RefCell::new(passes.next("writing"));
        cut.write(path, &|| progress.borrow_mut().step())
            .map_err(|error| Failure::cannot_write(target, &error))
    })?;
    let part = &cut.part;
    message!("{}", outcome(target, part, summary.before, summary.after));
    if arguments.state == State::Recorded
        && let Some(hint) = hint(part)
    {
        message!("{hint}");
    }
    Ok(ExitCode::SUCCESS)
}

/// What was asked for.
fn words(arguments: &Arguments) -> String {
    let mut words = format!("trim {}", arguments.choice);
    if arguments.state == State::Replay {
        words.push_str(" --state replay");
    }
    if arguments.images == ImageCode::Used {
        words.push_str(" --images used");
    }
    words
}

/// The part with the calls that wrote its memory.
fn recorded<'t>(
    arguments: &Arguments,
    passes: &Passes<'t>,
    chosen: &[u64],
) -> Result<Cut<'t>, Failure> {
    if arguments.driver.is_some() {
        let text = "--driver is the driver of --state replay: give both or none";
        return Err(Failure::unusable(text));
    }
    let walks = |_: &Trace| passes.reading();
    Cut::with_calls(passes.trace, chosen, words(arguments), &walks).map_err(Failure::unusable)
}

/// The part with what its memory holds.
fn replayed<'t>(
    arguments: &Arguments,
    (passes, source): (&Passes<'t>, &Source),
    chosen: &[u64],
) -> Result<Cut<'t>, Failure> {
    let trace = passes.trace;
    let guarded = &arguments.guarded;
    let driver = usable_driver(trace, arguments.driver.as_deref(), guarded)?;
    let folder = Folder::for_file(&arguments.output, arguments.overwrite)?;
    let replay = StateReplay {
        driver: &driver,
        is_null_driver: library::is_null_driver(&driver),
        is_forced: guarded.is_forced(),
        takes_all: false,
        contents: &folder.path("contents"),
        observe: &observation::observer((trace, source), &driver, guarded, || {
            passes.next("replaying")
        }),
    };
    let walks = |_: &Trace| passes.reading();
    Cut::with_memory(trace, chosen, words(arguments), &walks, &replay).map_err(Failure::unusable)
}

/// The driver, unless the result could not be what the recorded program had in memory.
fn usable_driver(
    trace: &Trace,
    given: Option<&Path>,
    guarded: &GuardedOptions,
) -> Result<PathBuf, Failure> {
    let is_of_null = trace.meta_value("driver.kind") == Some("null");
    let advice = "take the state on a machine with a GPU like the recorded one, or leave \
                  --state replay out";
    let path = match given {
        None if is_of_null => library::null_driver()?,
        None if matches!(cutape_replay::locate(), Err(LocateError::NotFound)) => {
            return Err(Failure::unusable(format!(
                "--state replay: no CUDA driver found, and the kernels of {} have to run; {advice}",
                trace.path().display()
            )));
        }
        given => library::driver(given)?,
    };
    match library::is_null_driver(&path) && !is_of_null && !guarded.is_forced() {
        false => Ok(path),
        true => Err(Failure::unusable(format!(
            "--state replay: the null driver runs no kernels, so that memory would not hold what \
             it held in {}; {advice} (--force takes it nevertheless)",
            trace.path().display()
        ))),
    }
}

/// Shows the progress of passes over a trace, call by call: reading, with `--state replay` a replay,
/// and writing.
struct Passes<'t> {
    trace: &'t Trace,
    of: u32,
    pass: Cell<u32>,
}

impl<'t> Passes<'t> {
    fn new(trace: &'t Trace, state: State) -> Self {
        let of = match state {
            State::Recorded => 2,
            State::Replay => 3,
        };
        let pass = Cell::new(1);
        Self { trace, of, pass }
    }

    fn progress(&self, activity: &str) -> Progress {
        let activity = format!("pass {} of {}: {activity}", self.pass.get(), self.of);
        Progress::over_calls(activity, [self.trace])
    }

    /// A walk over the trace, which some traces need more than once.
    fn reading(&self) -> Box<dyn FnMut()> {
        let mut progress = self.progress("reading");
        Box::new(move || progress.step())
    }

    /// The next pass.
    fn next(&self, activity: &str) -> Progress {
        self.pass.update(|pass| pass + 1);
        self.progress(activity)
    }
}

/// Says that another option gives a smaller trace, if most calls are there for others.
fn hint(part: &Part) -> Option<String> {
    let (count, of) = (part.count(), part.calls.len() as u64);
    let is_large = count > 2 * of / 5 && part.chosen < count / 4 && count - part.chosen > 100;
    is_large.then(|| {
        let percent = 100 * count / of.max(1);
        format!(
            "the part keeps {percent} % of the source's calls, since earlier ones wrote the \
             memory that it reads; --state replay stores what the memory held instead"
        )
    })
}

/// What was written, in one line.
fn outcome(target: &Path, part: &Part, before: u64, after: u64) -> String {
    let count = part.count();
    let needed = match count - part.chosen {
        0 => String::new(),
        needed => format!(" ({} chosen, {needed} that these need)", part.chosen),
    };
    let of = part.calls.len();
    let [before, after] = [before, after].map(quantity::bytes);
    format!(
        "{}: {count} of {of} calls{needed}; {after}, before {before}",
        target.display()
    )
}
