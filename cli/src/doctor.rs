//! `cutape doctor`: checks this machine and this installation for obstacles, with advice.

use std::path::PathBuf;
use std::process::ExitCode;

use cutape_doctor::Checklist;
use cutape_terminal::failure::Failure;
use cutape_terminal::output::{self, Format};

const EPILOGUE: &str = "\
What is unusual on this machine comes with what to do about it. Exit status: 0 if
cutape works here, also with advice; 2 if a part of cutape is missing, the driver
cannot be loaded or initialised, or the temporary folder is not writable.";

/// What `doctor` takes.
#[derive(clap::Args)]
#[command(after_help = EPILOGUE)]
pub(crate) struct Arguments {
    /// A trace: also say which published defects of the driver its program would meet.
    trace: Option<PathBuf>,
    /// The driver to check: a path, or `null`. Default: this machine's.
    #[arg(long, value_name = "PATH")]
    driver: Option<PathBuf>,
    /// Lines for people, or one JSON object.
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let mut list = Checklist::new(arguments.format, output::stdout());
    let driver = arguments.driver.as_deref();
    cutape_doctor::examine(&mut list, driver, arguments.trace.as_deref())?;
    Ok(ExitCode::from(list.finish()?))
}
