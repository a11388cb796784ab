//! `cutape why`: which calls wrote some bytes, and from what.

use std::path::PathBuf;
use std::process::ExitCode;

use cutape_history::{Question, Target};
use cutape_render::Element;
use cutape_terminal::failure::Failure;
use cutape_terminal::{input, library, message};

use crate::guarded::{GuardedOptions, ReportOption};
use crate::observation;
use crate::one_rank::RankOption;

const EPILOGUE: &str = "\
Examples:
  cutape why app.cutape memory#3+0x40 --type f32     who wrote that number last
  cutape why app.cutape 0x7f0012340000+16 --at 912   before call 912
  cutape why app.cutape --result 930 --type f32      what call 930 copied to the host
  cutape why app.cutape --parameter 912:2 --depth 3  what parameter 2 of a launch points at

The trace is replayed once for each step back (--depth), and after every call that
may write the bytes are read: only calls that changed them are named.";

/// What `why` takes.
#[derive(clap::Args)]
#[command(after_help = EPILOGUE)]
#[command(override_usage = "cutape why [OPTIONS] TRACE <BYTES|--result N|--parameter CALL:N>")]
#[command(group = clap::ArgGroup::new("target").required(true))]
pub(crate) struct Arguments {
    /// The trace; with --rank, a folder with the traces of several ranks.
    trace: PathBuf,
    /// The bytes: a recorded address, or an object as `dump` calls it.
    ///
    /// 0x7f0012340000+16 is 16 bytes from that address on; memory#3+0x40 is at byte 64
    /// of that memory, memory#3+0x40+16 is 16 bytes there. Without a number of bytes
    /// one number of --type is meant, or 4 bytes.
    #[arg(value_name = "BYTES", group = "target", value_parser = Target::parse)]
    #[arg(verbatim_doc_comment)]
    bytes: Option<Target>,
    /// What call N has copied to the host.
    #[arg(long, value_name = "N", group = "target")]
    result: Option<u64>,
    /// What parameter N, from 0, of the kernel that CALL launches points at.
    #[arg(long, value_name = "CALL:N", group = "target")]
    #[arg(value_parser = Target::parse_parameter)]
    parameter: Option<Target>,
    /// Ask about the bytes before call N. Default: the call of --result or
    /// --parameter, else the end of the trace.
    #[arg(long, value_name = "N", verbatim_doc_comment)]
    at: Option<u64>,
    /// The type of the numbers: f16, bf16, f32, f64, i8 to i64, u8 to u64, and others.
    #[arg(long = "type", value_name = "TYPE", value_parser = Element::parse)]
    element: Option<&'static Element>,
    /// How many writes back: 1 is the last writer alone, 2 also who wrote what it
    /// read. Each is another replay.
    #[arg(long, value_name = "N", default_value_t = 2, verbatim_doc_comment)]
    depth: u32,
    /// How many changes of the bytes are listed, the last ones.
    #[arg(long, value_name = "N", default_value_t = 5)]
    most: usize,
    /// The driver to replay on: a path, or `null`. Default: this machine's.
    #[arg(long, value_name = "PATH")]
    driver: Option<PathBuf>,
    #[command(flatten)]
    rank: RankOption,
    #[command(flatten)]
    guarded: GuardedOptions,
    #[command(flatten)]
    report: ReportOption,
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let source = arguments
        .rank
        .source(&arguments.trace, &arguments.guarded)?;
    let trace = input::open(source.path())?;
    let output = arguments.report.prepare()?;
    let given = (arguments.result.map(Target::Result))
        .or(arguments.parameter)
        .or(arguments.bytes);
    let target = given.ok_or_else(|| Failure::unusable("no bytes are given"))?;
    let before = arguments.at.or(target.call());
    let size = arguments.element.map_or(4, |element| element.bytes);
    let (bytes, before) = target
        .resolve(&trace, before, size)
        .map_err(Failure::unusable)?;
    let question = Question {
        bytes,
        before,
        depth: arguments.depth,
        most: arguments.most,
    };
    let driver = library::driver(arguments.driver.as_deref())?;
    let mut observe = |observation| {
        observation::watch((&trace, &source), &driver, &arguments.guarded, observation)
    };
    let (answer, left_out) = cutape_history::ask(&trace, &question, &mut observe)?;
    for what in left_out {
        message!("not looked at: {what}");
    }
    output.write(&answer, &cutape_history::text(&answer, arguments.element))?;
    Ok(ExitCode::SUCCESS)
}
