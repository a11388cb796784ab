//! `cutape diff`: what differs between two traces of one program.

mod execute;
mod execute_child;
mod execute_children;
mod json;
mod junit;
mod text;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::AtomicU64;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use cutape_diff::{Aligned, Comparison, Kind, Options};
use cutape_format::{Trace, WalkSummary};

use cutape_terminal::failure::{FOUND, Failure};
use cutape_terminal::input::{self, Completeness};
use cutape_terminal::output::{self, ReportFile};
use cutape_terminal::progress::Progress;

pub(crate) use execute_child::{CHILD, ChildArguments, run_child};
pub(crate) use execute_children::Children;

/// How many differences are listed without `--all`.
const MOST: usize = 20;
/// And with it: each needs the memory of its two calls.
const MOST_OF_ALL: usize = 10_000;

/// What `diff` takes.
#[derive(clap::Args)]
#[command(after_help = EPILOGUE)]
#[command(override_usage = "cutape diff [OPTIONS] <A> <B>")]
pub(crate) struct Arguments {
    /// The trace to compare with, e.g. of the good run.
    a: PathBuf,
    /// The other trace, e.g. of the bad run.
    #[arg(required_unless_present = "kernel")]
    b: Option<PathBuf>,
    /// List every difference, and how many calls were left out.
    ///
    /// Otherwise differences that read the same are listed once with their
    /// number, and at most 20.
    #[arg(long, verbatim_doc_comment)]
    all: bool,
    /// Leave out differences of these kinds: see below.
    #[arg(long, value_name = "KIND", value_delimiter = ',')]
    #[arg(value_parser = kinds(), hide_possible_values = true)]
    ignore: Vec<Kind>,
    /// Leave out what also differs between A and this further recording of A's program.
    ///
    /// Two runs of one program may differ: in padding of structs that are kernel
    /// parameters, in results of kernels with atomics, in how often a call is
    /// repeated. May be given several times.
    #[arg(long, value_name = "A2", verbatim_doc_comment)]
    noise: Vec<PathBuf>,
    /// Count bytes of kernel parameters too that may be unset.
    ///
    /// Bytes of structs that differ without an effect on what is copied back, such
    /// as padding, are otherwise summarised at the end and are no differences.
    #[arg(long, verbatim_doc_comment)]
    strict: bool,
    /// Compare how long calls took on the host, by function and kernel.
    ///
    /// A change is reported only outside of the noise: both traces have 20 such
    /// calls, and the middle halves of the durations do not overlap. Times do
    /// not change the exit status.
    #[arg(long, verbatim_doc_comment)]
    times: bool,
    /// How to print differences.
    #[arg(long, value_enum, default_value = "text", value_name = "FORMAT")]
    format: Format,
    /// Write the differences to this file instead of stdout.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Also write the differences to this file as JUnit XML.
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    #[command(flatten)]
    execute: execute::ExecuteOptions,
}

const EPILOGUE: &str = "\
Addresses, handles, process and thread numbers and times never count. Threads
are paired by what they do, calls by sequence alignment, objects by the calls
that create them, images by their code. The first line of the output is the
first difference.

Kinds of difference:
  call      a call in one trace only
  kernel    another kernel is launched
  shape     another grid, block, shared memory or launch attribute
  argument  another number, name, offset or kernel parameter
  object    another object than the corresponding one
  data      other bytes given to the driver
  code      other code in an image
  result    another result code
  output    other values or bytes returned
  leak      an object that only one program destroys
  order     another order of threads at a stream or event, or of calls
  thread    a thread in one trace only
  machine   other answers about driver or device; does not change the exit
            status if the traces come from different machines

Exit status: 0 no difference, 1 differences, 2 unusable input.";

/// The value of `--format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// For people.
    Text,
    /// For programs.
    Json,
    /// For CI servers.
    Junit,
}

fn kinds() -> impl TypedValueParser<Value = Kind> {
    let words = Kind::ALL.map(|kind| PossibleValue::new(kind.key()));
    PossibleValuesParser::new(words).map(|word| {
        let known = Kind::ALL.into_iter().find(|kind| kind.key() == word);
        known.unwrap_or(Kind::Call)
    })
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    if arguments.execute.is_given() {
        return execute::run(&arguments);
    }
    let file = arguments.report.as_deref().map(ReportFile::prepare);
    let file = file.transpose()?;
    let junit = ReportFile::given("--junit", &arguments.junit)?;
    // Without B there is --kernel, which needs --execute.
    let path_b = arguments.b.as_deref().unwrap_or(&arguments.a);
    let paths = [arguments.a.as_path(), path_b];
    let (a, b) = (open(paths[0])?, open(paths[1])?);
    let found = compared(&arguments, [&a, &b], false)?;
    let report = &found.report;
    let text = match arguments.format {
        Format::Text => text::text(paths, report, arguments.all),
        Format::Json => {
            let states = [Completeness::of(&a), Completeness::of(&b)];
            format!("{:#}\n", json::json(paths, &states, report))
        }
        Format::Junit => junit::junit(paths, report)?,
    };
    if let Some(junit) = junit {
        junit.write(&junit::junit(paths, report)?)?;
    }
    output::write(file.as_ref(), &text)?;
    Ok(ExitCode::from(if report.differs() { FOUND } else { 0 }))
}

/// Compares the calls of two traces; with `aligned`, says which correspond.
fn compared(
    arguments: &Arguments,
    [a, b]: [&Trace; 2],
    aligned: bool,
) -> Result<Comparison, Failure> {
    let noise = arguments.noise.iter().map(|path| open(path));
    let noise = noise.collect::<Result<Vec<Trace>, Failure>>()?;
    let options = Options {
        noise: &noise,
        ignored: arguments.ignore.clone(),
        all: arguments.all,
        most: if arguments.all { MOST_OF_ALL } else { MOST },
        strict: arguments.strict,
        times: arguments.times,
        aligned,
        read: None,
    };
    compared_with(&options, [a, b])
}

/// Which calls of two traces correspond.
pub(crate) fn aligned(traces: [&Trace; 2]) -> Result<Aligned, Failure> {
    let options = Options {
        noise: &[],
        ignored: Vec::new(),
        all: false,
        most: MOST,
        strict: false,
        times: false,
        aligned: true,
        read: None,
    };
    let found = compared_with(&options, traces)?;
    Ok(found.aligned.unwrap_or_default())
}

fn compared_with(options: &Options<'_>, [a, b]: [&Trace; 2]) -> Result<Comparison, Failure> {
    let read = AtomicU64::new(0);
    let options = Options {
        read: Some(&read),
        ..options.clone()
    };
    let traces = || [a, b].into_iter().chain(options.noise);
    let progress = Progress::over_calls("comparing", traces());
    let found = progress.watch(&read, || cutape_diff::compare(a, b, &options))?;
    for (trace, walked) in traces().zip(&found.walked) {
        check_sound(trace, walked)?;
    }
    Ok(found)
}

/// Opens a trace whose blobs are sound.
pub(crate) fn open(path: &Path) -> Result<Trace, Failure> {
    let trace = input::open_for_walk(path)?;
    match trace.verify_blobs().first() {
        Some(damage) => Err(damaged(path, damage)),
        None => Ok(trace),
    }
}

fn damaged(path: &Path, damage: &cutape_format::Damage) -> Failure {
    Failure::unusable(format!(
        "{}: damaged at byte {}: {}; `cutape repair {0} -o FILE` keeps the readable part",
        path.display(),
        damage.position,
        damage.what
    ))
}

/// Fails if the walk did not see every call. A repaired trace lists its losses itself.
fn check_sound(trace: &Trace, walked: &WalkSummary) -> Result<(), Failure> {
    input::known_functions(trace, walked.unknown_function())?;
    let is_repaired = trace.meta_value("repair.0").is_some();
    match walked.damage(trace).first().filter(|_| !is_repaired) {
        Some(damage) => Err(damaged(trace.path(), damage)),
        None => Ok(()),
    }
}
