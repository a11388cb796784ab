//! `cutape replay`: makes a trace's calls again and compares the results.

mod junit;
mod ranks;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;

use cutape_analyzer::suggestion::did_you_mean;
use cutape_cut::minimize::OtherReplay;
use cutape_format::Trace;
use cutape_replay::{
    CallImage, DigestedLaunches, HostFiles, Measuring, OneReplay, Options, Repeat, Report,
    Selection, Verdict,
};

use crate::guarded::{self, GuardedOptions, ReportOption};
use crate::one_rank::{ChildSource, RankOption, Source};
use cutape_calls::{self, CallSet};
use cutape_terminal::failure::{FOUND, Failure, UNUSABLE};
use cutape_terminal::input::{Completeness, WithState};
use cutape_terminal::library;
use cutape_terminal::output::ReportFile;
use cutape_terminal::overwrite::Overwrite;
use cutape_terminal::progress::Progress;

/// The hidden verb of the guarded child.
pub(crate) const CHILD: &str = "replay-child";

/// What `replay` takes.
#[derive(Clone, clap::Args)]
pub(crate) struct Arguments {
    /// The trace, or a folder with the traces of several ranks.
    ///
    /// Ranks are replayed together, each in a process of its own. What they share
    /// is exported and imported again. A call begins when all calls of other ranks
    /// are done that had returned before it was entered in the recording.
    #[arg(verbatim_doc_comment)]
    trace: PathBuf,
    #[command(flatten)]
    rank: RankOption,
    /// The driver to call: a path, or `null`. Default: this machine's.
    #[arg(long, value_name = "PATH")]
    driver: Option<PathBuf>,
    /// Compare only these calls, and stop after the last.
    #[arg(long, value_name = "SET", long_help = cutape_calls::help(
        "Compare only these calls, and stop after the last. Earlier calls are\n\
         re-issued too, because these depend on them."
    ))]
    calls: Option<String>,
    /// Stop before the call with this index.
    #[arg(long, value_name = "N")]
    until: Option<u64>,
    /// Measure instead of comparing bytes: each function's time in the
    /// driver, and the time from the first call to the last.
    ///
    /// With --calls, only those calls are measured. --timing=span measures only
    /// the time from the first to the last, without a clock read at each call.
    #[arg(
        long,
        value_name = "WHAT",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "calls",
        verbatim_doc_comment
    )]
    timing: Option<Timing>,
    /// Run the recorded threads concurrently instead of in lockstep.
    ///
    /// A call begins when all calls are done that had returned before it was
    /// entered in the recording.
    #[arg(long, verbatim_doc_comment)]
    threads: bool,
    /// Count divergences instead of stopping at the first.
    #[arg(long)]
    keep_going: bool,
    /// Replay N times, each in a new process, to tell the causes of divergences
    /// apart. Implies --keep-going.
    ///
    /// What differs between the replays is nondeterministic. What is equal in all
    /// of them and differs from the recording is not reproduced. The report names
    /// the first launch that leaves other device memory in some replays; if the
    /// trace has no digests of launches, N further replays look for it.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=1000),
        conflicts_with = "timing",
        verbatim_doc_comment
    )]
    repeat: u32,
    /// With --repeat: do not compare what launches write.
    #[arg(long)]
    no_launch_outputs: bool,
    /// Fill new memory with this byte (0 to 255, or 0x00 to 0xff).
    ///
    /// With --repeat, which must then be at least 3, the last replay uses the
    /// complement: what changes with the byte was read before it was written.
    #[arg(long, value_name = "BYTE", value_parser = byte, verbatim_doc_comment)]
    fill: Option<u8>,
    /// Load FILE instead of the image that call CALL loads from memory: a cubin, a
    /// fatbin or PTX. Can be given several times.
    #[arg(long, value_name = "CALL=FILE", verbatim_doc_comment)]
    replace_image: Vec<CallImage>,
    /// Re-issue also what may crash the driver: calls that never returned in the
    /// recording, and uses of destroyed objects. The report names the call in which
    /// the replay dies.
    #[arg(long, verbatim_doc_comment)]
    reissue_fatal: bool,
    /// Give a copy from host memory the bytes in FILE instead of the recorded
    /// ones: 'call 57 srcHost=FILE', or a name of --io. Can be given several
    /// times.
    ///
    /// FILE has as many bytes as the copy reads, or is a .npy file of numpy with as
    /// many bytes of elements. `x.npy:float32[128,64]` also checks type and shape.
    /// Bytes from the device that then differ are reported as changed-input and do
    /// not affect the exit status.
    #[arg(
        long,
        value_name = "INPUT=FILE",
        conflicts_with_all = ["timing", "repeat"],
        verbatim_doc_comment
    )]
    set: Vec<String>,
    /// Save the bytes that a copy writes to host memory: 'call 912 dstHost=FILE',
    /// or a name of --io. FILE must not exist, except with --overwrite. Can be given
    /// several times.
    ///
    /// A FILE that ends in .npy gets numpy's header, with the type and shape of
    /// --io, or of `y.npy:float32[128,64]`; otherwise it is an array of uint8.
    #[arg(
        long,
        value_name = "OUTPUT=FILE",
        conflicts_with_all = ["timing", "repeat"],
        verbatim_doc_comment
    )]
    save: Vec<String>,
    #[command(flatten)]
    overwrite: Overwrite,
    /// Names of inputs and outputs (TOML). Default: app.io.toml for app.cutape.
    #[arg(long, value_name = "FILE")]
    io: Option<PathBuf>,
    /// Wait for each launch, and name the one that causes an asynchronous error.
    #[arg(long)]
    sync_each: bool,
    /// Do not count divergences with these verdicts in the exit status.
    ///
    /// not-reproduced, nondeterministic, uninitialised-read, consequence; a
    /// comma joins several. host-changed and changed-input never count.
    /// Implies --keep-going.
    #[arg(
        long,
        value_name = "VERDICTS",
        value_delimiter = ',',
        value_parser = verdict,
        verbatim_doc_comment
    )]
    allow: Vec<Verdict>,
    /// If the replay of a recording that ended early agrees, exit with status 0 and
    /// not with 2.
    #[arg(long, verbatim_doc_comment)]
    allow_incomplete: bool,
    /// How to print the report.
    #[arg(long, value_enum, default_value = "text", value_name = "FORMAT")]
    format: Format,
    /// Also write the report to this file as JUnit XML.
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    #[command(flatten)]
    guarded: GuardedOptions,
    #[command(flatten)]
    report: ReportOption,
}

/// The arguments of the guarded child.
#[derive(Clone, clap::Args)]
pub(crate) struct ChildArguments {
    /// The resolved driver.
    #[arg(long)]
    child_driver: PathBuf,
    /// The byte of this replay, with --repeat.
    #[arg(long)]
    child_fill: Option<u8>,
    /// Which launches are digested in this replay, with --repeat: all, or the call of one.
    #[arg(long, value_parser = launches)]
    child_launches: Option<DigestedLaunches>,
    /// The parent, which makes files of what the child saves.
    #[arg(long)]
    child_of: u32,
    #[command(flatten)]
    source: ChildSource,
    #[command(flatten)]
    arguments: Arguments,
}

/// How the report is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// For people.
    Text,
    /// For programs, as --report.
    Json,
    /// For CI servers.
    Junit,
}

/// Parses `165` and `0xa5`.
fn byte(text: &str) -> Result<u8, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u8::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| "not a byte, e.g. 0xa5".to_owned())
}

/// Parses `all` and `12`.
fn launches(text: &str) -> Result<DigestedLaunches, String> {
    match text {
        "all" => Ok(DigestedLaunches::All),
        call => call
            .parse()
            .map(DigestedLaunches::One)
            .map_err(|_| "neither all nor a call".to_owned()),
    }
}

fn verdict(text: &str) -> Result<Verdict, String> {
    let known = Verdict::ALL.into_iter().find(|known| known.word() == text);
    known.ok_or_else(|| {
        let words = Verdict::ALL.map(Verdict::word);
        let suggestion = did_you_mean(text, words);
        format!("none of {}{suggestion}", words.join(", "))
    })
}

/// What `--timing` measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Timing {
    /// Each function's time in the driver, and the time from the first call to the last.
    Calls,
    /// The time from the first call to the last.
    Span,
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    if arguments.trace.is_dir() && !arguments.rank.is_given() {
        return ranks::run(&arguments);
    }
    let source = arguments
        .rank
        .source(&arguments.trace, &arguments.guarded)?;
    let trace = cutape_terminal::input::open(source.path())?;
    let mut state = Completeness::of(&trace);
    state.still_recording |= source.is_still_recording();
    selection(&trace, &arguments)?;
    if arguments.fill.is_some() && arguments.repeat == 2 {
        return Err(Failure::unusable(
            "--fill with --repeat 2 cannot tell nondeterministic results from reads of \
             uninitialised memory; use --repeat 3 or more",
        ));
    }
    let output = arguments.report.prepare()?;
    let junit = ReportFile::given("--junit", &arguments.junit)?;
    if output.is_stdout() && arguments.format != Format::Text {
        return Err(Failure::unusable(
            "--report - and --format both print to stdout; use --report FILE or one of them",
        ));
    }
    CallImage::read_all(&trace, &arguments.replace_image).map_err(Failure::unusable)?;
    let files = files_of(&trace, &arguments)?;
    files
        .check_outputs(&|path| match arguments.overwrite.replaces(path) {
            Ok(_) => Ok(()),
            Err(failure) => Err(failure.message),
        })
        .map_err(Failure::unusable)?;
    let mut report = replay(&trace, &source, &arguments).inspect_err(|_| files.discard())?;
    report.complete(&trace);
    let incomplete = cutape_terminal::input::junit_status(&state, arguments.allow_incomplete);
    let as_junit = || {
        let junit = junit::junit(&trace, &report, &arguments.allow, incomplete.clone());
        Ok::<_, Failure>(junit? + "\n")
    };
    let printed = match arguments.format {
        Format::Text => report.text(&trace),
        Format::Json => guarded::json(&WithState::new(&report, &state)),
        Format::Junit => as_junit()?,
    };
    if let Some(junit) = junit {
        junit.write(&as_junit()?)?;
    }
    output.write(&WithState::new(&report, &state), &printed)?;
    files
        .publish(&report, arguments.overwrite.overwrite)
        .map_err(Failure::unusable)?;
    let agrees = report.agrees_but_for(&arguments.allow);
    Ok(status(agrees, &state, &arguments))
}

/// Replays in children, once or with `--repeat` several times.
fn replay(trace: &Trace, source: &Source, arguments: &Arguments) -> Result<Report, Failure> {
    let driver = library::driver(arguments.driver.as_deref())?;
    let program = library::own_path()?;
    let command = |one: OneReplay| {
        let mut hidden = vec!["--child-driver".into(), driver.clone().into_os_string()];
        hidden.extend(["--child-of".into(), std::process::id().to_string().into()]);
        if let Some(fill) = one.fill {
            hidden.extend(["--child-fill".into(), fill.to_string().into()]);
        }
        let launches = match one.launches {
            // The latter is `diff --execute`'s.
            DigestedLaunches::None | DigestedLaunches::BeforeAndAfter => None,
            DigestedLaunches::All => Some("all".to_owned()),
            DigestedLaunches::One(call) => Some(call.to_string()),
        };
        if let Some(launches) = launches {
            hidden.extend(["--child-launches".into(), launches.into()]);
        }
        hidden.extend(source.for_child());
        guarded::child(&program, CHILD, &hidden)
    };
    let mut progress = Progress::over_calls("replaying", [trace]);
    let guard = arguments.guarded.guard();
    let reach = &mut |done| progress.reach(done);
    let report = match arguments.repeat {
        1 => {
            let fill = arguments.fill;
            let one = OneReplay {
                fill,
                ..OneReplay::default()
            };
            let command = || command(one);
            cutape_replay::run_guarded(trace, &command, &guard, reach)
        }
        count => {
            let repeat = Repeat {
                count,
                fill: arguments.fill,
                compares_launches: !arguments.no_launch_outputs && !arguments.threads,
            };
            cutape_replay::run_repeated(trace, &command, &guard, repeat, reach)
        }
    };
    report.map_err(Failure::unusable)
}

/// The exit status: that of a recording that ended early is 0 only if asked for.
fn status(agrees: bool, state: &Completeness, arguments: &Arguments) -> ExitCode {
    let is_complete = arguments.allow_incomplete || state.ended_early.is_none();
    match (agrees, is_complete) {
        (true, true) => ExitCode::SUCCESS,
        (true, false) => ExitCode::from(UNUSABLE),
        (false, _) => ExitCode::from(FOUND),
    }
}

/// The command of a child that replays another trace than this process was given; `--` and that
/// trace are to follow.
pub(crate) fn child_for(program: &Path, driver: &Path, other: &OtherReplay) -> Command {
    let mut command = Command::new(program);
    command.args([CHILD, "--child-of", &std::process::id().to_string()]);
    command.arg("--child-driver").arg(driver);
    if other.keeps_going {
        command.arg("--keep-going");
    }
    if other.reissues_fatal {
        command.arg("--reissue-fatal");
    }
    for image in &other.images {
        command.arg("--replace-image").arg(image.to_argument());
    }
    command
}

/// The guarded child: replays, and reports through a pipe to its parent.
pub(crate) fn run_child(child: ChildArguments) -> Result<ExitCode, Failure> {
    let arguments = &child.arguments;
    let trace = Trace::open(child.source.path(&arguments.trace))?;
    let files = files_of(&trace, arguments)?;
    let mut options = Options {
        until: arguments.until,
        calls: selection(&trace, arguments)?,
        keep_going: arguments.keep_going || arguments.repeat > 1 || !arguments.allow.is_empty(),
        sync_each: arguments.sync_each,
        reissue_fatal: arguments.reissue_fatal,
        fill: child.child_fill,
        launches: child.child_launches.unwrap_or_default(),
        images: CallImage::read_all(&trace, &arguments.replace_image).map_err(Failure::unusable)?,
        inputs: files.inputs().map_err(Failure::unusable)?,
        outputs: files.outputs(child.child_of),
        timing: match arguments.timing {
            None => Measuring::Nothing,
            Some(Timing::Calls) => Measuring::Calls,
            Some(Timing::Span) => Measuring::Span,
        },
        threads: arguments.threads,
        alone: child.source.alone()?,
        ..arguments
            .guarded
            .replay(child.child_driver.clone(), child.source.rank())
    };
    if let Some(permissions) = &mut options.sandbox {
        permissions.writable.extend(files.output_folders());
    }
    let status = cutape_replay::run_as_child(&trace, &options);
    Ok(ExitCode::from(u8::try_from(status).unwrap_or(UNUSABLE)))
}

/// The files of `--set` and `--save`.
fn files_of(trace: &Trace, arguments: &Arguments) -> Result<HostFiles, Failure> {
    let calls_of = |set: &str| Ok(CallSet::parse(set)?.resolve(trace)?.calls(trace).collect());
    let (set, save, io) = (&arguments.set, &arguments.save, arguments.io.as_deref());
    HostFiles::of(trace, set, save, io, &calls_of).map_err(Failure::unusable)
}

/// The calls of `--calls` by index, because the kernel of a launch is known only in trace order.
fn selection(trace: &Trace, arguments: &Arguments) -> Result<Option<Selection>, Failure> {
    let Some(text) = &arguments.calls else {
        return Ok(None);
    };
    let mut chosen = Vec::new();
    for index in CallSet::for_trace(text, trace)?.some_calls(text, trace)? {
        chosen.resize(index as usize, false);
        chosen.push(true);
    }
    Ok(Some(Arc::new(move |call| {
        chosen.get(call.index as usize) == Some(&true)
    })))
}
