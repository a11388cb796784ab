//! `cutape why`: which calls wrote some bytes, and from what.

use std::path::PathBuf;
use std::process::ExitCode;

use cutape_history::Question;
use cutape_terminal::failure::Failure;
use cutape_terminal::{input, message};

use crate::guarded::ReportOption;
use crate::observation;
use crate::replay_options::ReplayOptions;
use crate::target::TargetOptions;

const EPILOGUE: &str = "\
Examples:
  cutape why app.cutape memory#3+0x40 --type f32     who wrote that number last
  cutape why app.cutape 0x7f0012340000+16 --at 912   before call 912
  cutape why app.cutape --result 930 --type f32      what call 930 copied to the host
  cutape why app.cutape --parameter 912:2 --depth 3  what parameter 2 of a launch points at

Without a number of bytes one number of --type is meant, or 4 bytes.
The trace is replayed once for each step back (--depth), and after every call that
may write the bytes are read: only calls that changed them are named.";

/// What `why` takes.
#[derive(clap::Args)]
#[command(after_help = EPILOGUE)]
#[command(override_usage = "cutape why [OPTIONS] TRACE <BYTES|--result N|--parameter CALL:N>")]
pub(crate) struct Arguments {
    /// The trace; with --rank, a folder with the traces of several ranks.
    trace: PathBuf,
    #[command(flatten)]
    target: TargetOptions,
    /// How many writes back: 1 is the last writer alone, 2 also who wrote what it
    /// read. Each is another replay.
    #[arg(long, value_name = "N", default_value_t = 2, verbatim_doc_comment)]
    depth: u32,
    /// How many changes of the bytes are listed, the last ones.
    #[arg(long, value_name = "N", default_value_t = 5)]
    most: usize,
    #[command(flatten)]
    replay: ReplayOptions,
    #[command(flatten)]
    report: ReportOption,
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let source = arguments.replay.source(&arguments.trace)?;
    let trace = input::open(source.path())?;
    let output = arguments.report.prepare()?;
    let target = arguments.target.target()?;
    let element = arguments.target.element;
    let before = arguments.target.at.or(target.call());
    let size = element.map_or(4, |element| element.bytes);
    let place = target.resolve(&trace, before).map_err(Failure::unusable)?;
    let question = Question {
        bytes: place.bytes(size),
        before: place.before,
        depth: arguments.depth,
        most: arguments.most,
    };
    let driver = arguments.replay.driver()?;
    let mut observe = |observation| {
        observation::watch(
            (&trace, &source),
            &driver,
            &arguments.replay.guarded,
            observation,
        )
    };
    let (answer, left_out) = cutape_history::ask(&trace, &question, &mut observe)?;
    for what in left_out {
        message!("not looked at: {what}");
    }
    output.write(&answer, &cutape_history::text(&answer, element))?;
    Ok(ExitCode::SUCCESS)
}
