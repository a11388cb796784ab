//! `cutape profile`: when the work of a trace runs on the GPU, and what bounds its time.

pub(crate) mod child;
pub(crate) mod counters;
mod ranks;

use std::path::PathBuf;
use std::process::ExitCode;

use cutape_format::Trace;
use cutape_measure::{ProfileSettings, count_as_child, profile, profile_as_child};
use cutape_profile::{Profile, Summary};
use cutape_render::text::shown;
use cutape_replay::Options;
use serde::Serialize;

use self::child::{CHILD, cupti, hidden, note_differences};
use self::counters::{CounterOptions, CountingArguments};
use crate::guarded::{self, GuardedOptions};
use crate::one_rank::{ChildSource, RankOption};
use cutape_terminal::failure::{Failure, UNUSABLE};
use cutape_terminal::input::{Completeness, WithState};
use cutape_terminal::library;
use cutape_terminal::output::{self, Format, ReportFile};
use cutape_terminal::progress::{Progress, Unit};

/// What `profile` takes.
#[derive(Clone, clap::Args)]
pub(crate) struct Arguments {
    /// The trace, or a folder with the traces of several ranks, which are replayed
    /// together; with --rank, one of them alone.
    #[arg(verbatim_doc_comment)]
    trace: PathBuf,
    #[command(flatten)]
    rank: RankOption,
    /// The driver to call: a path, or `null`. Default: this machine's.
    #[arg(long, value_name = "PATH")]
    driver: Option<PathBuf>,
    /// NVIDIA's profiling library: the path of libcupti.so, or `none`.
    ///
    /// With `none`, times come from events around each call's work: less exact, and
    /// of a graph as a whole. Default: the library in LD_LIBRARY_PATH, the CUDA
    /// toolkit or the packages of python3; `none` if there is none.
    #[arg(long, value_name = "PATH", verbatim_doc_comment)]
    cupti: Option<PathBuf>,
    /// How often to replay; tables then have medians with their intervals.
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,
    #[command(flatten)]
    counters: CounterOptions,
    #[command(flatten)]
    guarded: GuardedOptions,
    /// Tables, or all that was measured.
    #[arg(long, value_enum, default_value = "text", value_name = "FORMAT")]
    format: Format,
    /// Write to this file instead of stdout.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// The arguments of the guarded child.
#[derive(Clone, clap::Args)]
pub(crate) struct ChildArguments {
    /// The resolved driver.
    #[arg(long)]
    child_driver: PathBuf,
    /// The resolved CUPTI.
    #[arg(long)]
    child_cupti: Option<PathBuf>,
    #[command(flatten)]
    source: ChildSource,
    #[command(flatten)]
    counting: CountingArguments,
    #[command(flatten)]
    arguments: Arguments,
}

/// Guards, under `ncu`, the child that replays.
pub(crate) fn run_count(child: ChildArguments) -> Result<ExitCode, Failure> {
    let trace = Trace::open(child.source.path(&child.arguments.trace))?;
    child.counting.guard(&trace, &child.arguments.guarded)?;
    Ok(ExitCode::SUCCESS)
}

/// The profile as JSON.
#[derive(Serialize)]
struct Document<'a> {
    summary: &'a Summary,
    #[serde(flatten)]
    profile: &'a Profile,
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    if arguments.trace.is_dir() && !arguments.rank.is_given() {
        return ranks::run(&arguments);
    }
    let source = arguments
        .rank
        .source(&arguments.trace, &arguments.guarded)?;
    let trace = cutape_terminal::input::open(source.path())?;
    let file = ReportFile::given("--output", &arguments.output)?;
    let driver = library::driver(arguments.driver.as_deref())?;
    let cupti = cupti(arguments.cupti.as_deref(), &driver)?;
    let counting = arguments.counters.prepare(&trace)?;
    let settings = ProfileSettings {
        trace: shown(source.path()).to_string(),
        driver: shown(&driver).to_string(),
        repeat: arguments.repeat,
    };
    let hidden = [hidden(&driver, cupti.as_deref()), source.for_child()].concat();
    let program = library::own_path()?;
    let command = || guarded::child(&program, CHILD, &hidden);
    let mut progress = Progress::new("replaying", Unit::Things("calls"), None);
    let reach = &mut |done| progress.reach(done);
    let guard = arguments.guarded.guard();
    let measured = profile(&trace, &settings, &command, &guard, reach);
    drop(progress);
    let (mut profile, reports) = measured.map_err(Failure::unusable)?;
    note_differences(&reports, &mut profile);
    if let Some(counting) = counting {
        counting.run(&mut profile, &reports, &hidden)?;
    }
    let summary = Summary::of(&profile);
    let text = match arguments.format {
        Format::Text => summary.text(&profile),
        Format::Json => {
            let mut state = Completeness::of(&trace);
            state.still_recording |= source.is_still_recording();
            let document = Document {
                summary: &summary,
                profile: &profile,
            };
            guarded::json(&WithState::new(&document, &state))
        }
    };
    output::write(file.as_ref(), &text)?;
    Ok(ExitCode::SUCCESS)
}

/// The guarded child: replays, and reports through a pipe to its parent.
pub(crate) fn run_child(child: ChildArguments) -> Result<ExitCode, Failure> {
    let (source, alone) = (&child.source, child.source.alone()?);
    let trace = Trace::open(source.path(&child.arguments.trace))?;
    let counted = child.counting.calls()?;
    let options = Options {
        alone,
        ..child
            .arguments
            .guarded
            .replay(child.child_driver, source.rank())
    };
    let status = match counted {
        Some(calls) => count_as_child(&trace, calls, options),
        None => profile_as_child(&trace, child.child_cupti, options),
    };
    Ok(ExitCode::from(u8::try_from(status).unwrap_or(UNUSABLE)))
}
