//! `cutape check`: finds API misuse in a trace, or in a program while it runs.

mod filter;
mod folder;
mod forked;
mod live;
mod measured;
mod pass;
mod proven;
mod ranges;
mod report;
mod selection;
mod silence;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use cutape_analyzer::output::Style;
use cutape_analyzer::{Confidence, FindingLimits, Severity, Suppressions};
use cutape_format::{Call, Trace};

pub(crate) use self::filter::{Choice, FindingFilter};
use self::measured::Measure;
use self::report::Format;
pub(crate) use self::selection::Rules;
use cutape_recording::Recording;
use cutape_registry::Stacks;
use cutape_terminal::failure::{FOUND, Failure, UNUSABLE};
use cutape_terminal::input;
use cutape_terminal::message;
use cutape_terminal::output::{self, ReportFile};
use cutape_terminal::overwrite::Overwrite;

/// What `check` takes.
#[derive(clap::Args)]
#[command(
    override_usage = "cutape check [OPTIONS] TRACE\n       cutape check [OPTIONS] FOLDER\n       cutape check [OPTIONS] -- PROGRAM [ARGUMENTS]..."
)]
pub(crate) struct Arguments {
    /// The trace; or, after --, a program to check while it runs.
    ///
    /// The traces of a folder are checked one by one, and then against each
    /// other.
    #[arg(value_name = "TRACE|FOLDER", conflicts_with = "program")]
    #[arg(verbatim_doc_comment)]
    trace: Option<PathBuf>,
    /// Only findings of these rules: link-*,memory-*; `-memory-leak` or
    /// `not peer-*` leave rules out.
    ///
    /// The terms are joined as those of --calls: a comma joins several, a space
    /// takes the rules in both.
    #[arg(long, value_name = "RULES", verbatim_doc_comment)]
    #[arg(value_parser = Rules::parse, allow_hyphen_values = true)]
    rules: Option<Rules>,
    /// Only findings at these calls of the trace, or about objects that they
    /// created and that nothing destroyed.
    #[arg(long, value_name = "SET", conflicts_with_all = ["program", "explain_silence"])]
    #[arg(verbatim_doc_comment, long_help = cutape_calls::help(
        "Only findings at these calls of the trace, or about objects that they\n\
         created and that nothing destroyed."
    ))]
    calls: Option<String>,
    /// Leave out these findings: a line of a file of --suppress, e.g.
    /// 'memory-leak kernel:warm_up*'. May be given several times.
    #[arg(long, value_name = "LINE", verbatim_doc_comment)]
    #[arg(value_parser = selection::allowed)]
    allow: Vec<Suppressions>,
    /// How to print findings.
    #[arg(long, value_enum, default_value = "text", value_name = "FORMAT")]
    format: Format,
    /// Leave out findings that this file lists.
    ///
    /// Each line names a rule; then, optionally, a function; then, optionally,
    /// more that must match: kernel:NAME, module:FILE, library:FILE, frame:NAME,
    /// result:NAME, class:NAME, message:TEXT. * stands for any characters, ? for
    /// one, and # begins a comment.
    #[arg(long, value_name = "FILE", verbatim_doc_comment)]
    suppress: Option<PathBuf>,
    /// Leave out findings that --write-baseline or --format json wrote to FILE.
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// Write the findings to this file, for --baseline of later runs.
    #[arg(long, value_name = "FILE")]
    write_baseline: Option<PathBuf>,
    /// Findings that `race --report` proved are errors.
    #[arg(long, value_name = "FILE", conflicts_with = "program")]
    proven: Option<PathBuf>,
    /// Measure what the advice of findings about performance would gain, as `what-if`
    /// does: needs a GPU, or --driver.
    #[arg(long, verbatim_doc_comment, conflicts_with = "program")]
    measure: bool,
    /// Print findings of every class: also probes, expected errors, teardown.
    /// They all affect the exit status.
    #[arg(long, verbatim_doc_comment)]
    all: bool,
    /// The program tests errors: leave out findings about calls that failed.
    #[arg(long)]
    expect_errors: bool,
    /// Print at most N findings of one mistake, and count the rest. One mistake
    /// is one rule at one place in the program, with objects that one place
    /// created.
    #[arg(long, value_name = "N", verbatim_doc_comment)]
    #[arg(default_value_t = FindingLimits::default().most_repeats)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    most_repeats: u64,
    /// Leave out findings that are less certain than this.
    #[arg(long, value_enum, default_value = "assumed", value_name = "WHAT")]
    confidence: Rests,
    /// Say why a rule has no finding at a call of the trace.
    #[arg(long, num_args = 2, value_names = ["RULE", "CALL"], conflicts_with = "program")]
    explain_silence: Option<Vec<String>>,
    /// The least severity that makes the exit status 1.
    #[arg(long, value_enum, default_value = "warning", value_name = "LEVEL")]
    fail_on: Level,
    /// If a recording that ended early has no findings, exit with status 0 and not
    /// with 2.
    #[arg(long, verbatim_doc_comment)]
    allow_incomplete: bool,
    /// Write the findings to this file instead of stdout.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Also write the findings to this file as JUnit XML.
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Also write the findings to this file as SARIF 2.1.0.
    #[arg(long, value_name = "FILE")]
    sarif: Option<PathBuf>,
    /// Keep the program's trace in this file. Default: do not keep it.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    overwrite: Overwrite,
    /// Print the whole call stack of each finding, if the trace has it: see
    /// --stacks.
    #[arg(long, verbatim_doc_comment)]
    show_stacks: bool,
    #[command(flatten)]
    recording: Recording,
    /// The program and its arguments.
    #[arg(last = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Rests {
    /// They rest on the calls alone.
    Certain,
    /// Also on recorded bytes: images, the contents of memory.
    Contents,
    /// Also on the assumption that a kernel follows its parameters as pointers.
    Assumed,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Level {
    Error,
    Warning,
    Advice,
    /// Findings do not change the exit status.
    Never,
}

impl From<Rests> for Confidence {
    fn from(least: Rests) -> Self {
        match least {
            Rests::Certain => Self::Certain,
            Rests::Contents => Self::Contents,
            Rests::Assumed => Self::Assumed,
        }
    }
}

impl Level {
    /// `None` for never.
    fn severity(self) -> Option<Severity> {
        match self {
            Self::Error => Some(Severity::Error),
            Self::Warning => Some(Severity::Warning),
            Self::Advice => Some(Severity::Advice),
            Self::Never => None,
        }
    }
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let file = arguments.report.as_deref().map(ReportFile::prepare);
    let file = file.transpose()?;
    let others = [
        ("--write-baseline", &arguments.write_baseline, Format::Json),
        ("--junit", &arguments.junit, Format::Junit),
        ("--sarif", &arguments.sarif, Format::Sarif),
    ]
    .map(|(option, path, format)| Ok((ReportFile::given(option, path)?, format)));
    let others = others.into_iter().collect::<Result<Vec<_>, Failure>>()?;
    let format = arguments.format;
    let choice = Choice {
        rules: arguments.rules.as_ref(),
        calls: arguments.calls.as_deref(),
        allow: &arguments.allow,
        suppress: arguments.suppress.as_deref(),
        baseline: arguments.baseline.as_deref(),
        expects_errors: arguments.expect_errors,
        limits: FindingLimits {
            all: arguments.all,
            confidence: arguments.confidence.into(),
            most_repeats: arguments.most_repeats,
        },
    };
    let mut filter = FindingFilter::new(
        &choice,
        format == Format::Text && file.is_none(),
        Style {
            stacks: arguments.show_stacks,
            width: output::columns(),
            ..match output::coloured() {
                true => Style::COLOUR,
                false => Style::PLAIN,
            }
        },
    )?;
    filter.allows_incomplete = arguments.allow_incomplete;
    filter.proven.clone_from(&arguments.proven);
    filter.measure = arguments.measure.then(|| Measure {
        driver: arguments.recording.driver.clone(),
    });
    if arguments.output.is_some() && arguments.program.is_empty() {
        return Err(Failure::unusable(
            "-o keeps the trace of a program given after --; to write findings to a file use \
             --report FILE",
        ));
    }
    if let Some(words) = &arguments.explain_silence {
        return silence::explain(arguments.trace.as_deref(), words, &choice);
    }
    let mut is_complete = true;
    let name = match (&arguments.trace, arguments.program.first()) {
        (Some(path), _) if path.is_dir() => {
            is_complete = folder::check_folder(path, &mut filter)?;
            path.display().to_string()
        }
        (Some(path), _) => {
            let trace = check_file(path, &mut filter, &mut |_| {})?;
            forked::check_children(path, &trace, &mut filter)?;
            path.display().to_string()
        }
        (None, Some(program)) => {
            let output = arguments.output.as_deref();
            let output = output.map(|path| (path, arguments.overwrite));
            // A finding is to name the program's own line.
            let recording = Recording {
                stacks: arguments.recording.stacks.or(Some(Stacks::Some)),
                ..arguments.recording
            };
            live::check_program(&recording, &arguments.program, output, &mut filter)?;
            program.to_string_lossy().into_owned()
        }
        (None, None) => {
            return Err(Failure::unusable(
                "nothing to check: give a trace, or a program after --, e.g. `cutape check -- \
                 ./app 1 2`",
            ));
        }
    };
    filter.expect_calls()?;
    match &file {
        Some(file) => file.write(&report::whole(format, &name, &filter)?)?,
        None => {
            filter.print(&report::trailer(format, &name, &filter)?);
            filter.finish()?;
        }
    }
    for (file, format) in others {
        if let Some(file) = file {
            file.write(&report::whole(format, &name, &filter)?)?;
        }
    }
    let level = arguments.fail_on.severity();
    let fails = level.is_some_and(|level| filter.list.findings.iter().any(|f| f.severity >= level));
    let is_complete =
        is_complete && (filter.allows_incomplete || filter.state.ended_early.is_none());
    Ok(ExitCode::from(match (is_complete, fails) {
        (false, true) if filter.state.ended_early.is_some() => FOUND,
        (false, _) => UNUSABLE,
        (true, true) => FOUND,
        (true, false) => 0,
    }))
}

/// Checks a trace, and shows each of its calls to `observe`; prints no finding of a damaged one,
/// which may mislead.
fn check_file(
    path: &Path,
    filter: &mut FindingFilter,
    observe: &mut dyn FnMut(&Call<'_>),
) -> Result<Trace, Failure> {
    let trace = input::open_for_walk(path)?;
    // Rules read the content of blobs.
    input::expect_undamaged(&trace, &trace.verify_blobs())?;
    filter.choose_calls(&trace);
    filter.hold();
    let (walked, checked) = pass::check_trace(&trace, filter, observe)?;
    input::known_functions(&trace, walked.unknown_function())?;
    input::expect_undamaged(&trace, &walked.damage(&trace))?;
    if input::is_repaired(&trace) {
        message!(
            "{}: this trace was repaired; misuse in the lost parts is not found",
            path.display()
        );
    }
    for part in walked.missing_file_ranges(&trace) {
        message!(
            "not checked: {} bytes of an image: {}",
            part.length,
            part.why
        );
    }
    filter.measure_findings(path)?;
    filter.release();
    checked.report_unrecorded(&trace);
    Ok(trace)
}
