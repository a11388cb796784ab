//! `cutape pack`: the same trace, compressed, complete and indexed.

use std::path::PathBuf;
use std::process::ExitCode;

use cutape_format::Trace;

use crate::failure::Failure;
use crate::symbols;

/// What `pack` takes.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The trace.
    trace: PathBuf,
    /// Where to write; without it the trace itself is replaced.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let trace = Trace::open(&arguments.trace)?;
    let target = arguments.output.as_deref().unwrap_or(&arguments.trace);
    let symbols = symbols::of_callers(&trace);
    let summary = cutape_format::pack(&trace, target, &[], &symbols)
        .map_err(|error| Failure::unusable(format!("{}: {error}", target.display())))?;
    eprintln!(
        "cutape: {}: {} bytes, before {}; {} blobs were stored already",
        target.display(),
        summary.after,
        summary.before,
        summary.duplicate_blobs
    );
    Ok(ExitCode::SUCCESS)
}
