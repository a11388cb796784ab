//! `cutape repair`: copies the readable part of a damaged trace.

use std::path::PathBuf;
use std::process::ExitCode;

use cutape_format::Trace;

use cutape_render::quantity;
use cutape_terminal::failure::Failure;
use cutape_terminal::input;
use cutape_terminal::message;
use cutape_terminal::overwrite::Overwrite;

/// What `repair` takes.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The damaged trace; stays unchanged.
    trace: PathBuf,
    /// The trace to write; must not exist, except with --overwrite.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    #[command(flatten)]
    overwrite: Overwrite,
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let trace = Trace::open_damaged(&arguments.trace)?;
    input::say_what_is_missing(&trace);
    let target = &arguments.output;
    let summary = arguments.overwrite.write(target, |path| {
        cutape_format::repair(&trace, path).map_err(|error| Failure::cannot_write(target, &error))
    })?;
    for damage in &summary.damage {
        message!(
            "{}: byte {}: {}",
            arguments.trace.display(),
            damage.position,
            damage.what
        );
    }
    message!(
        "{}: {} kept, {} of them in flight",
        target.display(),
        quantity::count(summary.calls, "call"),
        quantity::grouped(summary.in_flight)
    );
    Ok(ExitCode::SUCCESS)
}
