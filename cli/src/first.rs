//! `cutape first`: the first call that wrote a NaN, that changed some bytes, or that writes something
//! else in another recording.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use cutape_execution_diff::Compared;
use cutape_history::{Bytes, Sought, Target, Wanted};
use cutape_render::Element;
use cutape_terminal::failure::Failure;
use cutape_terminal::{input, message};

use crate::diff::{self, Children};
use crate::guarded::ReportOption;
use crate::observation;
use crate::replay_options::ReplayOptions;
use cutape_terminal::private_folder::PrivateFolder;

const EPILOGUE: &str = "\
Examples:
  cutape first app.cutape --nan                    who wrote the first NaN
  cutape first app.cutape --inf --type f16         the first infinity, of 2-byte numbers
  cutape first app.cutape --above 1e4 --type f32 --within memory#12+0+4096
  cutape first app.cutape --changed memory#3+0x40 --from 912
  cutape first app.cutape --written-by 912         which bytes it changes
  cutape first good.cutape --differs bad.cutape    which of two runs went wrong, and where

The trace is replayed, and after every call or node of a graph that may write, the GPU
compares all device memory with what it was, in pages of 16 KiB. Nothing is guessed
from parameters. Exit status: 0 if there is such a call, 1 if there is none.";

/// What `first` takes.
#[derive(clap::Args)]
#[command(after_help = EPILOGUE)]
#[command(
    override_usage = "cutape first [OPTIONS] TRACE <--nan|--inf|--above X|--changed BYTES|--differs OTHER>"
)]
#[command(group = clap::ArgGroup::new("wanted").required(true))]
pub(crate) struct Arguments {
    /// The trace; with --rank, a folder with the traces of several ranks.
    trace: PathBuf,
    /// A number that is none.
    #[arg(long, group = "wanted")]
    nan: bool,
    /// Infinity, of either sign.
    #[arg(long, group = "wanted")]
    inf: bool,
    /// A number whose absolute value is greater than X, infinity included.
    #[arg(long, value_name = "X", group = "wanted", value_parser = limit)]
    #[arg(allow_negative_numbers = true)]
    above: Option<f64>,
    /// Another content of these bytes of device or host memory, as `cutape why` takes
    /// them: 0x7f0012340000+16, memory#3+0x40+16.
    #[arg(long, value_name = "BYTES", group = "wanted", value_parser = Target::parse)]
    #[arg(verbatim_doc_comment)]
    changed: Option<Target>,
    /// All bytes of device memory that call N changes, or each node of the graph that it
    /// launches.
    #[arg(long, value_name = "N", group = "wanted", verbatim_doc_comment)]
    #[arg(conflicts_with = "from")]
    written_by: Option<u64>,
    /// Other bytes than the corresponding call writes in this recording: of another run,
    /// driver, library or GPU. Both are replayed here.
    #[arg(long, value_name = "OTHER", group = "wanted", verbatim_doc_comment)]
    #[arg(conflicts_with_all = ["rank", "element", "within", "from"])]
    differs: Option<PathBuf>,
    /// With --differs: how much numbers may differ, as for bench, e.g. f32=1e-5,f16=1e-2.
    /// Default: bytes are compared.
    #[arg(
        long,
        value_name = "TYPE=T,...",
        requires = "differs",
        verbatim_doc_comment
    )]
    tolerance: Option<String>,
    /// The type of the numbers: f16, bf16, f32 or f64; with --changed any that `why`
    /// knows. Default: each of the four, unless the name of a kernel says one.
    #[arg(long = "type", value_name = "TYPE", value_parser = Element::parse)]
    #[arg(verbatim_doc_comment)]
    element: Option<&'static Element>,
    /// Look only at these bytes of device memory.
    #[arg(long, value_name = "BYTES", value_parser = Target::parse)]
    #[arg(conflicts_with = "changed")]
    within: Option<Target>,
    /// Leave out what calls before N write.
    #[arg(long, value_name = "N", default_value_t = 0)]
    from: u64,
    /// How many calls are listed; with --differs, how many are read in a replay. Default: 3,
    /// with --differs 10, with --written-by all.
    #[arg(long, value_name = "N", verbatim_doc_comment)]
    most: Option<usize>,
    /// With --written-by, and --changed of more than 64 KiB: of the pages that a call changes,
    /// this many bytes are read in a second replay, to tell which bytes it changes.
    /// Default: 256M.
    #[arg(long, value_name = "SIZE", verbatim_doc_comment)]
    #[arg(conflicts_with_all = ["nan", "inf", "above", "differs"])]
    #[arg(value_parser = cutape_render::quantity::parse_bytes)]
    budget: Option<u64>,
    #[command(flatten)]
    replay: ReplayOptions,
    #[command(flatten)]
    report: ReportOption,
}

fn limit(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number >= 0.0 => Ok(number),
        Ok(_) => Err("absolute values are compared: give a number from 0".to_owned()),
        Err(_) => Err("not a number".to_owned()),
    }
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    if let Some(other) = &arguments.differs {
        return differs(&arguments, other);
    }
    let source = arguments.replay.source(&arguments.trace)?;
    let trace = input::open(source.path())?;
    let output = arguments.report.prepare()?;
    let size = arguments.element.map_or(4, |element| element.bytes);
    let before = Some(arguments.from).filter(|&from| from > 0);
    let bytes = |target: Target| -> Result<Bytes, Failure> {
        let place = target.resolve(&trace, before);
        Ok(place.map_err(Failure::unusable)?.bytes(size))
    };
    let wanted = match (arguments.above, arguments.changed, arguments.written_by) {
        (Some(limit), ..) => Wanted::Above(limit),
        (_, Some(target), _) => Wanted::Changed(bytes(target)?),
        (.., Some(call)) => Wanted::WrittenBy(call),
        _ if arguments.nan => Wanted::Nan,
        _ => Wanted::Infinity,
    };
    let most = match wanted {
        Wanted::WrittenBy(_) => usize::MAX,
        _ => 3,
    };
    let sought = Sought {
        wanted,
        element: arguments.element,
        within: arguments.within.map(bytes).transpose()?,
        from: arguments.from,
        most: arguments.most.unwrap_or(most).max(1),
        budget: arguments.budget.unwrap_or(cutape_history::BUDGET),
    };
    let driver = arguments.replay.driver()?;
    let guarded = &arguments.replay.guarded;
    let mut observe =
        |observation| observation::watch((&trace, &source), &driver, guarded, observation);
    let answer = cutape_history::first(&trace, &sought, Failure::unusable, &mut observe)?;
    for what in &answer.not_looked_at {
        message!("not looked at: {what}");
    }
    let text = cutape_history::first_text(&answer, arguments.element);
    output.write(&answer, &text)?;
    Ok(ExitCode::from(u8::from(answer.findings.is_empty())))
}

/// The first call that writes something else than in another recording.
fn differs(arguments: &Arguments, other: &Path) -> Result<ExitCode, Failure> {
    let tolerance = cutape_measure::tolerance(arguments.tolerance.as_deref());
    let tolerance = tolerance.map_err(Failure::unusable)?;
    let (a, b) = (diff::open(&arguments.trace)?, diff::open(other)?);
    let output = arguments.report.prepare()?;
    let folder = PrivateFolder::create("differs")?;
    let driver = arguments.replay.driver()?;
    let guarded = &arguments.replay.guarded;
    let mut replays = Children::new([&a, &b], driver, guarded, &folder)?;
    let compared = Compared {
        traces: [&a, &b],
        aligned: &diff::aligned([&a, &b])?,
        image: None,
        tolerance,
        most: arguments.most.unwrap_or(10),
        folder: folder.path(""),
    };
    let report = cutape_execution_diff::first_write(&compared, &mut replays);
    let report = report.map_err(Failure::unusable)?;
    for what in &report.not_looked_at {
        message!("not looked at: {what}");
    }
    output.write(&report, &cutape_execution_diff::first_write_text(&report))?;
    Ok(ExitCode::from(u8::from(!report.differs)))
}
