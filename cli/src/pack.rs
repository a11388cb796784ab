//! `cutape pack`: the same trace, compressed, complete and indexed; if asked, without the bytes that were copied.

use std::path::PathBuf;
use std::process::ExitCode;

use cutape_format::{PayloadPolicies, PayloadPolicy};

use crate::failure::Failure;
use crate::info::quantity;
use crate::{payloads, session, symbols};

/// What `pack` takes.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The trace.
    trace: PathBuf,
    /// Where to write; without it the trace itself is replaced.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// What to keep of the bytes that the program copied to devices, if the
    /// trace has them.
    #[arg(long, value_parser = payloads::words(), default_value = "all", value_name = "WHAT", verbatim_doc_comment)]
    payloads: PayloadPolicy,
    /// What to keep of the bytes that came back.
    #[arg(long, value_parser = payloads::words(), default_value = "all", value_name = "WHAT")]
    outputs: PayloadPolicy,
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let trace = crate::input::open(&arguments.trace)?;
    let target = arguments.output.as_deref().unwrap_or(&arguments.trace);
    if let Some(process) = session::writer(&trace) {
        return Err(session::still_written(&arguments.trace, process));
    }
    let symbols = symbols::of_callers(&trace);
    let kept = PayloadPolicies {
        payloads: arguments.payloads,
        outputs: arguments.outputs,
    };
    let summary = cutape_format::pack_with_policies(&trace, target, &[], &symbols, kept)
        .map_err(|error| Failure::cannot_make(target, &error))?;
    let repeated = match summary.duplicate_blobs {
        0 => String::new(),
        number => format!("; {} stored once", quantity::count(number, "repeated blob")),
    };
    let left_out = match summary.payloads {
        0 => String::new(),
        number => format!(
            "; {} left out, {} in all",
            quantity::count(number, "payload"),
            quantity::bytes(summary.payload_bytes)
        ),
    };
    session::say_missing(&summary.missing);
    let [before, after] = [summary.before, summary.after].map(quantity::bytes);
    eprintln!(
        "cutape: {}: {after}, before {before}{repeated}{left_out}",
        target.display()
    );
    Ok(ExitCode::SUCCESS)
}
