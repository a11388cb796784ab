//! `cutape pack`: the same trace, compressed, complete and indexed.

use std::path::PathBuf;
use std::process::ExitCode;

use crate::failure::Failure;
use crate::info::quantity;
use crate::{session, symbols};

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
    let trace = crate::input::open(&arguments.trace)?;
    let target = arguments.output.as_deref().unwrap_or(&arguments.trace);
    if let Some(process) = session::writer(&trace) {
        return Err(session::still_written(&arguments.trace, process));
    }
    let symbols = symbols::of_callers(&trace);
    let summary = cutape_format::pack(&trace, target, &[], &symbols)
        .map_err(|error| Failure::cannot_make(target, &error))?;
    let repeated = match summary.duplicate_blobs {
        0 => String::new(),
        number => format!("; {} stored once", quantity::count(number, "repeated blob")),
    };
    session::say_missing(&summary.missing);
    let [before, after] = [summary.before, summary.after].map(quantity::bytes);
    eprintln!(
        "cutape: {}: {after}, before {before}{repeated}",
        target.display()
    );
    Ok(ExitCode::SUCCESS)
}
