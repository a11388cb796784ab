//! `cutape info`: summarises what the recorded program did.

mod facts;
mod folder;
mod page;
mod process;
mod ranks;
mod sharing;
mod tables;

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use cutape_format::Trace;
use cutape_report::summary::Summary;
use serde::Serialize;

use self::folder::Folder;
pub(crate) use self::process::end;
use cutape_terminal::failure::Failure;
use cutape_terminal::output::{self, Format};
use cutape_terminal::progress::Progress;

/// What `info` takes.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The trace, or a folder of traces to list side by side.
    trace: PathBuf,
    /// In a folder, the calls at which ranks are compared: the n-th of each rank.
    #[arg(long, value_name = "SET", long_help = cutape_calls::help(
        "In a folder, the calls at which ranks are compared: the n-th of each rank.\n\
         Default: kernel:nccl*, the collectives of NCCL."
    ))]
    align: Option<String>,
    /// Tables for people, or one JSON object with raw numbers.
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let columns = output::columns();
    if arguments.trace.is_dir() {
        let folder = Folder::of(&arguments.trace, arguments.align.as_deref())?;
        print(arguments.format, &folder, |out| folder.write(columns, out))?;
    } else if arguments.align.is_some() {
        return Err(Failure::unusable(format!(
            "--align compares ranks: give the folder of their traces instead of {}",
            arguments.trace.display()
        )));
    } else {
        let trace = cutape_terminal::input::open_for_walk(&arguments.trace)?;
        let summary = summary(&trace)?;
        print(arguments.format, &summary, |out| {
            tables::write(&summary, columns, out)
        })?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What `info` shows of a trace.
pub(crate) fn summary(trace: &Trace) -> Result<Summary, Failure> {
    let mut progress = Progress::over_calls("reading", [trace]);
    let (summary, walked) = Summary::of(trace, || progress.step())?;
    cutape_terminal::input::known_functions(trace, walked.unknown_function())?;
    Ok(summary)
}

fn print(
    format: Format,
    json: &impl Serialize,
    text: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let mut out = BufWriter::new(output::stdout());
    match format {
        Format::Text => text(&mut out)?,
        Format::Json => {
            serde_json::to_writer_pretty(&mut out, json)?;
            out.write_all(b"\n")?;
        }
    }
    out.flush()
}

#[cfg(test)]
mod tests;
