//! `cutape pack`: rewrites a trace compressed, complete and indexed; on request without payloads.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::AtomicU64;

use cutape_format::{PayloadPolicies, PayloadPolicy};
use cutape_recording::payloads;
use cutape_render::quantity;
use cutape_symbols::stacks;
use cutape_terminal::failure::Failure;
use cutape_terminal::input;
use cutape_terminal::message;
use cutape_terminal::overwrite::Overwrite;
use cutape_terminal::progress::{Progress, Unit};

/// What `pack` takes.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The trace.
    trace: PathBuf,
    /// Where to write. Default: replace the trace.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    overwrite: Overwrite,
    /// What to keep of the bytes that the program copied to devices, if the
    /// trace has them.
    #[arg(verbatim_doc_comment)]
    #[arg(long, value_parser = payloads(), default_value = "all", value_name = "WHAT")]
    payloads: PayloadPolicy,
    /// What to keep of the bytes that the program copied from devices.
    #[arg(long, value_parser = payloads(), default_value = "all", value_name = "WHAT")]
    outputs: PayloadPolicy,
    /// Bring the bytes of data files that the trace refers to into it, so that
    /// it needs them no more.
    #[arg(long, verbatim_doc_comment)]
    embed: bool,
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let mut trace = input::open(&arguments.trace)?;
    let target = arguments.output.as_deref().unwrap_or(&arguments.trace);
    if let Some(process) = trace.writer() {
        return Err(input::still_written(&arguments.trace, process));
    }
    let symbols = cutape_symbols::of_callers(&trace);
    trace.name_addresses(stacks::sources(&trace));
    let kept = PayloadPolicies {
        payloads: arguments.payloads,
        outputs: arguments.outputs,
        embeds_files: arguments.embed,
    };
    let written = AtomicU64::new(0);
    let pack = |path: &Path| {
        let packed = Progress::new("packing", Unit::Bytes, None).watch(&written, || {
            cutape_redact::pack(&trace, path, (&[], &symbols), kept, &written)
        });
        packed.map_err(|error| Failure::cannot_write(target, &error))
    };
    // A trace is always replaced by itself.
    let summary = match arguments.overwrite.overwrite && arguments.output.is_some() {
        true => arguments.overwrite.write(target, pack)?,
        false => pack(target)?,
    };
    let repeated = match summary.duplicate_blobs {
        0 => String::new(),
        number => format!("; {} stored once", quantity::count(number, "repeated blob")),
    };
    let omitted = match summary.payloads {
        0 => String::new(),
        number => format!(
            "; {} left out ({})",
            quantity::count(number, "payload"),
            quantity::bytes(summary.payload_bytes)
        ),
    };
    cutape_recording::report_missing(&summary.missing);
    let [before, after] = [summary.before, summary.after].map(quantity::bytes);
    message!(
        "{}: {after}, before {before}{repeated}{omitted}",
        target.display()
    );
    Ok(ExitCode::SUCCESS)
}
