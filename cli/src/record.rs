//! `cutape record`: a program's driver calls, written to a trace.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::failure::Failure;
use crate::session::{self, Recording};

/// What `record` takes.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The trace to write; must not exist. Default: PROGRAM.cutape, or PROGRAM.1.cutape and so on.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Leave the trace as it was recorded: larger, and without the names of callers.
    #[arg(long)]
    no_pack: bool,
    /// Say on stderr what was recorded.
    #[arg(short, long)]
    verbose: bool,
    #[command(flatten)]
    recording: Recording,
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let output = match &arguments.output {
        Some(path) => path.clone(),
        None => free_name(arguments.recording.program.first().map(PathBuf::from).as_deref()),
    };
    let session = session::start(&arguments.recording, &output)?;
    let ended = session.wait()?;
    if ended.traces.is_empty() {
        eprintln!(
            "cutape: nothing was recorded: the program, which {}, made no CUDA driver call that reached us",
            ended.describe()
        );
    }
    for path in &ended.traces {
        // The program's status is what the caller asked for; a trace that cannot be packed is still a trace.
        if !arguments.no_pack
            && let Err(failure) = ended.pack(path)
        {
            eprintln!("cutape: {}", failure.message);
        }
        if arguments.verbose {
            let bytes = fs::metadata(path).map_or(0, |metadata| metadata.len());
            eprintln!("cutape: {} ({bytes} bytes)", path.display());
        }
    }
    if arguments.verbose {
        eprintln!("cutape: the program {}", ended.describe());
    }
    Ok(ExitCode::from(ended.exit_code()))
}

/// The program's name with `.cutape`, or the first number that makes it new, in the current folder.
fn free_name(program: Option<&Path>) -> PathBuf {
    let stem = program
        .and_then(|path| path.file_name())
        .map_or_else(|| "program".to_owned(), |name| name.to_string_lossy().into_owned());
    let name = |number: u32| match number {
        0 => PathBuf::from(format!("{stem}.cutape")),
        _ => PathBuf::from(format!("{stem}.{number}.cutape")),
    };
    (0..u32::MAX).map(name).find(|path| path.symlink_metadata().is_err()).unwrap_or_else(|| name(0))
}
