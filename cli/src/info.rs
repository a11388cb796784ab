//! `cutape info`: summarises what the recorded program did.

mod copies;
mod folder;
mod images;
mod interest;
mod objects;
mod summary;
mod tables;

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use self::folder::Folder;
use self::summary::Summary;
use crate::failure::Failure;
use crate::output::{self, Format};
use crate::progress::Progress;

/// What `info` takes.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The trace, or a folder of traces to list side by side.
    trace: PathBuf,
    /// Tables for people, or one JSON object with raw numbers.
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    if arguments.trace.is_dir() {
        let folder = Folder::of(&arguments.trace)?;
        let mut out = BufWriter::new(io::stdout().lock());
        match arguments.format {
            Format::Text => folder.write(output::columns(), &mut out)?,
            Format::Json => {
                serde_json::to_writer_pretty(&mut out, &folder).map_err(io::Error::from)?;
                out.write_all(b"\n")?;
            }
        }
        out.flush()?;
        return Ok(ExitCode::SUCCESS);
    }
    let trace = crate::input::open_for_walk(&arguments.trace)?;
    let summary = Summary::of(&trace, &mut Progress::new("calls", None))?;
    let mut out = BufWriter::new(io::stdout().lock());
    match arguments.format {
        Format::Text => tables::write(&summary, output::columns(), &mut out)?,
        Format::Json => {
            serde_json::to_writer_pretty(&mut out, &summary).map_err(io::Error::from)?;
            out.write_all(b"\n")?;
        }
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}
