//! `cutape dump`.

use std::process::ExitCode;
use std::path::PathBuf;

use crate::failure::Failure;

/// What `dump` takes.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The trace.
    trace: PathBuf,
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let trace = cutape_format::Trace::open(&arguments.trace)?;
    for call in trace.calls() {
        println!("{} {} {:?}", call.index, call.signature.name, call.result());
    }
    Ok(ExitCode::SUCCESS)
}
