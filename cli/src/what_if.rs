//! `cutape what-if`: what a change of the program's calls would gain, predicted and measured.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use cutape_format::Trace;
use cutape_measure::{
    EditSelection, EditSettings, ProfileSettings, Tried, profile, tolerance, try_as_child,
    try_edits,
};
use cutape_profile::Profile;
use cutape_render::text::shown;
use cutape_replay::Options;

use crate::guarded::{self, GuardedOptions};
use crate::one_rank::{ChildSource, RankOption};
use crate::{profile as profile_verb, profile_file};
use cutape_terminal::failure::{FOUND, Failure, UNUSABLE};
use cutape_terminal::input::{Completeness, WithState};
use cutape_terminal::library;
use cutape_terminal::message;
use cutape_terminal::output::{self, Format, ReportFile};
use cutape_terminal::progress::{Progress, Unit};

/// The hidden verb of the guarded child.
pub(crate) const CHILD: &str = "what-if-child";

const EPILOGUE: &str = "\
Examples:
  cutape what-if app.cutape --drop-sync cuStreamSynchronize
  cutape what-if app.cutape --pin-memory 'kind:copy' --drop-sync cuCtxSynchronize
  cutape what-if app.cutape --graph 'range:step*' --calls 'range:step*'
  cutape what-if app.cutape --replace-kernel saxpy=faster.cubin

SET is a set of calls, as for --calls. The calls from the first that enqueues work to
the last are issued as recorded and edited, in turns, on the same memory; what they
leave in memory and copy to the host is compared. A profile predicts both times.
Exit status: 1 if bytes differ, or the edit is not possible here.";

/// What `what-if` takes.
#[derive(Clone, clap::Args)]
#[command(after_help = EPILOGUE)]
pub(crate) struct Arguments {
    /// The trace; with --rank, a folder with the traces of several ranks.
    trace: PathBuf,
    #[command(flatten)]
    rank: RankOption,
    #[command(flatten)]
    edits: EditOptions,
    /// Measure only these calls, and all between the first and the last of them.
    #[arg(long, value_name = "SET")]
    calls: Option<String>,
    /// How often both are measured.
    #[arg(long, value_name = "N", default_value_t = 5,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,
    /// What happens between the calls: the program's own time, as recorded, or none.
    #[arg(long, value_enum, default_value = "recorded", value_name = "TIME")]
    host_time: HostTime,
    /// How much results may differ: TYPE=T; a comma joins several. TYPE is f16,
    /// bf16, f32 or f64. Default: not at all.
    #[arg(long, value_name = "TYPE=T", verbatim_doc_comment)]
    tolerance: Option<String>,
    /// Predict with what `cutape profile --format json` wrote; `none` predicts nothing.
    ///
    /// Default: the trace is profiled first.
    #[arg(long, value_name = "FILE", verbatim_doc_comment)]
    profile: Option<PathBuf>,
    /// The driver to call: a path, or `null`. Default: this machine's.
    #[arg(long, value_name = "PATH")]
    driver: Option<PathBuf>,
    /// NVIDIA's profiling library, as for `profile`: a path, or `none`.
    #[arg(long, value_name = "PATH")]
    cupti: Option<PathBuf>,
    #[command(flatten)]
    guarded: GuardedOptions,
    /// Text, or all that is known.
    #[arg(long, value_enum, default_value = "text", value_name = "FORMAT")]
    format: Format,
    /// Write to this file instead of stdout.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// The edits; each can be given several times.
#[derive(Clone, clap::Args)]
#[group(required = true, multiple = true)]
struct EditOptions {
    /// Leave out these waits of the host: for streams, contexts, events.
    #[arg(long, value_name = "SET")]
    drop_sync: Vec<String>,
    /// Let these copies use page-locked host memory.
    #[arg(long, value_name = "SET")]
    pin_memory: Vec<String>,
    /// Let this work run at the same time where only its stream orders it.
    #[arg(long, value_name = "SET")]
    overlap: Vec<String>,
    /// Join these copies where one begins at the end of the one before.
    #[arg(long, value_name = "SET")]
    batch_copies: Vec<String>,
    /// Launch this work as graphs, one for each stretch that nothing interrupts.
    #[arg(long, value_name = "SET")]
    graph: Vec<String>,
    /// Launch another kernel: a name with * and ?, and a cubin, fatbin or PTX.
    #[arg(long, value_name = "KERNEL=FILE")]
    replace_kernel: Vec<String>,
    /// Launch a kernel in another shape: blocks and threads, e.g. 264x256 or 8,8x16,16.
    #[arg(long, value_name = "KERNEL=GRIDxBLOCK")]
    launch_shape: Vec<String>,
}

/// What happens between calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum HostTime {
    Recorded,
    None,
}

/// The arguments of the guarded child.
#[derive(Clone, clap::Args)]
pub(crate) struct ChildArguments {
    /// The resolved driver.
    #[arg(long)]
    child_driver: PathBuf,
    /// The resolved CUPTI, of a child that profiles.
    #[arg(long)]
    child_cupti: Option<PathBuf>,
    /// Profile.
    #[arg(long)]
    child_profiles: bool,
    #[command(flatten)]
    source: ChildSource,
    #[command(flatten)]
    arguments: Arguments,
}

impl Arguments {
    fn settings(&self) -> EditSettings {
        let edits = self.edits.clone();
        EditSettings {
            drop_sync: edits.drop_sync,
            pin_memory: edits.pin_memory,
            overlap: edits.overlap,
            batch_copies: edits.batch_copies,
            graph: edits.graph,
            replace_kernel: edits.replace_kernel,
            launch_shape: edits.launch_shape,
            calls: self.calls.clone(),
            tolerance: self.tolerance.clone(),
            host_time: self.host_time == HostTime::Recorded,
            rounds: self.repeat,
        }
    }
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let source = arguments
        .rank
        .source(&arguments.trace, &arguments.guarded)?;
    let trace = cutape_terminal::input::open(source.path())?;
    let file = ReportFile::given("--output", &arguments.output)?;
    let settings = arguments.settings();
    // Reports errors before a driver is loaded.
    let selection = EditSelection::of(&trace, &settings).map_err(Failure::unusable)?;
    tolerance(settings.tolerance.as_deref()).map_err(Failure::unusable)?;
    let driver = library::driver(arguments.driver.as_deref())?;
    let program = library::own_path()?;
    let mut hidden = vec!["--child-driver".into(), driver.clone().into_os_string()];
    hidden.extend(source.for_child());
    let guard = arguments.guarded.guard();
    let child = |more: &[OsString]| guarded::child(&program, CHILD, &[&hidden, more].concat());
    let cupti = profile_verb::child::cupti(arguments.cupti.as_deref(), &driver)?;
    let profile = match arguments.profile.as_deref() {
        Some(path) if path.as_os_str() == "none" => None,
        Some(path) => {
            let profile = profile_file::read(path)?;
            profile_file::expect_of(&profile, &trace)?;
            Some(profile)
        }
        None => measured_profile(&arguments, &trace, &driver, cupti, child)
            .inspect_err(|why| message!("no prediction: {why}"))
            .ok(),
    };
    let command = || child(&[]);
    let mut progress = Progress::new("measuring", Unit::Things("calls and iterations"), None);
    let reach = &mut |done| progress.reach(done);
    let tried = try_edits(
        &trace,
        &selection,
        profile.as_ref(),
        &command,
        &guard,
        reach,
    );
    drop(progress);
    let tried = tried.map_err(Failure::unusable)?;
    let text = match arguments.format {
        Format::Text => tried.text(),
        Format::Json => {
            let mut state = Completeness::of(&trace);
            state.still_recording |= source.is_still_recording();
            guarded::json(&WithState::new(&tried, &state))
        }
    };
    output::write(file.as_ref(), &text)?;
    Ok(status(&tried))
}

fn status(tried: &Tried) -> ExitCode {
    match tried.is_valid() {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(FOUND),
    }
}

/// Profiles the trace, in a child that `child` starts with further options.
fn measured_profile(
    arguments: &Arguments,
    trace: &Trace,
    driver: &Path,
    cupti: Option<PathBuf>,
    child: impl Fn(&[OsString]) -> Command,
) -> Result<Profile, String> {
    let mut options = vec!["--child-profiles".into()];
    if let Some(cupti) = cupti {
        options.extend(["--child-cupti".into(), cupti.into_os_string()]);
    }
    let settings = ProfileSettings {
        trace: shown(trace.path()).to_string(),
        driver: shown(driver).to_string(),
        repeat: 1,
    };
    let command = || child(&options);
    let mut progress = Progress::new("profiling", Unit::Things("calls"), None);
    let reach = &mut |done| progress.reach(done);
    let measured = profile(
        trace,
        &settings,
        &command,
        &arguments.guarded.guard(),
        reach,
    );
    drop(progress);
    measured
        .map(|(profile, _)| profile)
        .map_err(|error| error.to_string())
}

/// The guarded child: measures, and reports through a pipe to its parent.
pub(crate) fn run_child(child: ChildArguments) -> Result<ExitCode, Failure> {
    let (source, alone) = (&child.source, child.source.alone()?);
    let trace = Trace::open(source.path(&child.arguments.trace))?;
    let options = Options {
        alone,
        ..child
            .arguments
            .guarded
            .replay(child.child_driver, source.rank())
    };
    let status = if child.child_profiles {
        cutape_measure::profile_as_child(&trace, child.child_cupti, options)
    } else {
        let settings = child.arguments.settings();
        let selection = EditSelection::of(&trace, &settings).map_err(Failure::unusable)?;
        let tolerance = tolerance(settings.tolerance.as_deref()).map_err(Failure::unusable)?;
        try_as_child(&trace, selection, tolerance, options)
    };
    Ok(ExitCode::from(u8::try_from(status).unwrap_or(UNUSABLE)))
}
