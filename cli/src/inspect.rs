//! `cutape inspect`: what memory holds before or after a call.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use cutape_format::TemporaryFile;
use cutape_history::{Asked, Inspection, NumberFormat, Plan, Snapshot};
use cutape_terminal::failure::Failure;
use cutape_terminal::output::{cannot_write, shown};
use cutape_terminal::overwrite::Overwrite;
use cutape_terminal::{input, message};

use crate::guarded::ReportOption;
use crate::observation;
use crate::replay_options::ReplayOptions;
use crate::target::TargetOptions;

const EPILOGUE: &str = "\
Examples:
  cutape inspect app.cutape memory#3 --at 912 --type f32     numbers and statistics
  cutape inspect app.cutape --parameter 912:0 --before --after   what launch 912 changes
  cutape inspect app.cutape memory#3 --at 100 --and 200      what calls 100 to 199 change
  cutape inspect app.cutape --result 930 --npy out.npy       for numpy.load

Without a number of bytes, the shape says how many there are; without --shape, it is
the rest of the memory, up to 1 GiB. Memory is read in a replay.";

/// What `inspect` takes.
#[derive(clap::Args)]
#[command(after_help = EPILOGUE)]
#[command(override_usage = "cutape inspect [OPTIONS] TRACE <BYTES|--result N|--parameter CALL:N>")]
pub(crate) struct Arguments {
    /// The trace; with --rank, a folder with the traces of several ranks.
    trace: PathBuf,
    #[command(flatten)]
    target: TargetOptions,
    /// The sides of the array, the slowest one first: 128,64.
    #[arg(
        long,
        value_name = "SIDES",
        value_delimiter = ',',
        requires = "element"
    )]
    shape: Option<Vec<u64>>,
    /// How many numbers neighbours along each side are apart. Default: C order.
    #[arg(
        long,
        value_name = "NUMBERS",
        value_delimiter = ',',
        requires = "shape"
    )]
    strides: Option<Vec<u64>>,
    /// Before the call; with --after also what differs.
    #[arg(long)]
    before: bool,
    /// After the work of the call, not before it.
    #[arg(long)]
    after: bool,
    /// What differs between call N of --at and this one.
    #[arg(long, value_name = "N")]
    and: Option<u64>,
    /// How many numbers or bytes are shown; statistics are of all.
    #[arg(long, value_name = "N", default_value_t = 64)]
    most: usize,
    /// Write all numbers to this file of numpy; must not exist, except with --overwrite.
    #[arg(long, value_name = "FILE", conflicts_with = "and")]
    npy: Option<PathBuf>,
    #[command(flatten)]
    overwrite: Overwrite,
    #[command(flatten)]
    replay: ReplayOptions,
    #[command(flatten)]
    report: ReportOption,
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let source = arguments.replay.source(&arguments.trace)?;
    let trace = input::open(source.path())?;
    let output = arguments.report.prepare()?;
    let asked = Asked {
        at: arguments.target.at,
        before: arguments.before,
        after: arguments.after,
        and: arguments.and,
    };
    if let Some(file) = &arguments.npy {
        arguments.overwrite.replaces(file)?;
        if asked.before && asked.after {
            return Err(Failure::unusable(
                "--npy is of one moment: leave out --before or --after",
            ));
        }
    }
    let (element, shape) = (arguments.target.element, arguments.shape);
    let format = NumberFormat::new(element, shape, arguments.strides).map_err(Failure::unusable)?;
    let target = arguments.target.target()?;
    let plan = Plan::new(&trace, &target, &asked, &format).map_err(Failure::unusable)?;
    let driver = arguments.replay.driver()?;
    let guarded = &arguments.replay.guarded;
    let (observed, contents) =
        observation::read((&trace, &source), &driver, guarded, plan.observation())?;
    let (snapshots, notes) = plan.read(&observed, &contents).map_err(Failure::unusable)?;
    for note in notes {
        message!("{note}");
    }
    let inspection = Inspection::new(&snapshots, &format, arguments.most);
    let inspection = inspection.map_err(Failure::unusable)?;
    if let (Some(file), [snapshot]) = (&arguments.npy, &*snapshots) {
        write_npy(file, arguments.overwrite, snapshot, &format)?;
    }
    output.write(&inspection, &cutape_history::inspection_text(&inspection))?;
    Ok(ExitCode::SUCCESS)
}

/// Writes a file of numpy, and says if it lacks the type.
fn write_npy(
    file: &Path,
    overwrite: Overwrite,
    snapshot: &Snapshot,
    format: &NumberFormat,
) -> Result<(), Failure> {
    let write = |target: &Path| {
        let temporary = TemporaryFile::beside(target)?;
        let mut out = BufWriter::new(temporary.file());
        cutape_history::write_npy(snapshot, format, &mut out)?;
        out.flush()?;
        drop(out);
        temporary.publish(target)
    };
    overwrite.write(file, |target| {
        write(target).map_err(|error| cannot_write("--npy", file, &error))
    })?;
    let element = format.element;
    if let Some(element) = element.filter(|element| element.is_foreign_to_numpy()) {
        let (file, name, numpy) = (shown(file), element.name, element.numpy);
        message!("{file}: numpy has no type {name}; the numbers are {numpy}");
    }
    Ok(())
}
