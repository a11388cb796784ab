//! `cutape view`: browses a trace in the terminal.

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;

use cutape_terminal::failure::{BUG, Failure};
use cutape_terminal::output;
use cutape_view::{End, Settings};

/// What `view` takes.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The trace. One that a program is being recorded to is followed.
    trace: PathBuf,
    /// Show only these calls at first. The key f changes it.
    #[arg(long, value_name = "SET", long_help = cutape_calls::help(
        "Show only these calls at first. The key f changes it."
    ))]
    calls: Option<String>,
    /// Select call N at first.
    #[arg(long, value_name = "N")]
    at: Option<u64>,
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    #[expect(clippy::disallowed_methods, reason = "nothing is written")]
    let stdout = io::stdout();
    if !io::stdin().is_terminal() || !stdout.is_terminal() {
        return Err(Failure::unusable(format!(
            "view needs a terminal for input and output; `cutape dump {}` prints the calls",
            output::shown(&arguments.trace)
        )));
    }
    let end = cutape_view::run(&Settings {
        trace: &arguments.trace,
        calls: arguments.calls.as_deref(),
        at: arguments.at,
        is_coloured: output::coloured(),
    })?;
    Ok(ExitCode::from(match end {
        End::Quit => 0,
        // As a shell shows a program that a signal ended.
        End::Signal(signal) => u8::try_from(128 + signal).unwrap_or(BUG),
        End::Bug => BUG,
    }))
}
