//! `cutape record`: a program's driver calls, written to a trace.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::cost;
use crate::failure::Failure;
use crate::info::quantity;
use crate::output;
use crate::payloads;
use crate::rank;
use crate::reservation::Reservation;
use crate::session::{self, Recording};
use crate::starter;

/// What `record` takes.
#[derive(clap::Args)]
#[command(override_usage = "cutape record [OPTIONS] -- PROGRAM [ARGUMENTS]...")]
pub(crate) struct Arguments {
    /// The trace to write; must not exist.
    ///
    /// Without it the trace is PROGRAM.cutape in the current folder, or
    /// PROGRAM.1.cutape and so on if there is one already.
    /// Further processes that call the driver get FILE.PID.cutape,
    /// and those of mpirun, torchrun and srun, which have a rank,
    /// FILE.rankN.cutape; `info FOLDER` shows them all.
    #[arg(short, long, value_name = "FILE", verbatim_doc_comment)]
    output: Option<PathBuf>,
    /// Leave the trace as recorded: larger, without names of callers.
    #[arg(long)]
    no_pack: bool,
    /// Say on stderr what was recorded.
    #[arg(short, long)]
    verbose: bool,
    /// Say on stderr what recording has cost: calls, bytes, and time in the
    /// recorder, which is measured by further readings of the clock.
    #[arg(
        long,
        value_enum,
        value_name = "FORMAT",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "text",
        verbatim_doc_comment
    )]
    stats: Option<cost::Format>,
    #[command(flatten)]
    recording: Recording,
    /// The program and its arguments; the -- may be left out.
    #[arg(trailing_var_arg = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

pub(crate) fn run(mut arguments: Arguments) -> Result<ExitCode, Failure> {
    if arguments.no_pack {
        payloads::can_stay_unpacked(arguments.recording.kept())?;
    }
    let trace = match &arguments.output {
        Some(path) => Reservation::named(&rank::trace_name(path))?,
        None => {
            let stem = rank::trace_name(Path::new(stem(
                arguments.program.first().map(OsString::as_os_str),
            )));
            let stem = stem.as_os_str();
            let trace = Reservation::free(stem)?;
            let attended = arguments.verbose || io::stderr().is_terminal();
            if attended && trace.trace().file_stem() != Some(stem) {
                // Or else the older trace would be looked at for this one.
                let path = output::shown(trace.trace()).to_string();
                eprintln!(
                    "cutape: {}.cutape exists already, recording to {path}",
                    stem.display()
                );
            }
            trace
        }
    };
    arguments.recording.measures_cost = arguments.stats.is_some();
    let session = session::start(&arguments.recording, &arguments.program, trace)?;
    if arguments.verbose {
        let way = session.way();
        eprintln!("cutape: recording by way of {}: {}", way.word(), way.why);
    }
    let ended = session.wait()?;
    if ended.traces.is_empty() {
        let program = arguments.program.first();
        let advice = program
            .and_then(|program| starter::advice(Path::new(program)))
            .unwrap_or_else(|| {
                "if it uses CUDA, docs/guide.md says what may be the matter".to_owned()
            });
        eprintln!(
            "cutape: nothing was recorded: the program, which {}, made no CUDA driver call that reached us; {advice}",
            ended.describe()
        );
    }
    for path in &ended.traces {
        // The program's status is what the caller asked for; a trace that cannot be packed is still a trace.
        if !arguments.no_pack {
            match ended.pack(path) {
                Ok(summary) => session::say_missing(&summary.missing),
                Err(failure) => eprintln!("cutape: {}", failure.message),
            }
        }
        if let Some(format) = arguments.stats
            && let Err(failure) = cost::report(path, format)
        {
            eprintln!("cutape: {}", failure.message);
        }
        if arguments.verbose {
            let bytes = fs::metadata(path).map_or(0, |metadata| metadata.len());
            eprintln!(
                "cutape: {} ({})",
                output::shown(path),
                quantity::bytes(bytes)
            );
        }
    }
    if arguments.verbose {
        eprintln!("cutape: the program {}", ended.describe());
    }
    Ok(ExitCode::from(ended.exit_code()))
}

/// The program's name without its folder.
fn stem(program: Option<&OsStr>) -> &OsStr {
    program
        .and_then(|program| Path::new(program).file_name())
        .unwrap_or(OsStr::new("program"))
}
