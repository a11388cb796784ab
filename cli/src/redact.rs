//! `cutape redact`: writes a trace without contents, parameters, environment, paths, names.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::AtomicU64;

use cutape_format::{Contents, PayloadPolicies, Secret, Secrets};
use cutape_recording::{contents, secrets};
use cutape_redact::Choice;
use cutape_render::quantity;
use cutape_symbols::stacks;
use cutape_terminal::failure::Failure;
use cutape_terminal::input;
use cutape_terminal::message;
use cutape_terminal::overwrite::Overwrite;
use cutape_terminal::progress::{Progress, Unit};

/// What `redact` takes.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The trace; stays unchanged.
    trace: PathBuf,
    /// The trace to write; must not exist, except with --overwrite.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    #[command(flatten)]
    overwrite: Overwrite,
    /// What to remove, separated by commas.
    #[arg(long, value_name = "WHAT", value_delimiter = ',', value_parser = secrets())]
    #[arg(default_value = "payloads,parameters,environment,paths")]
    remove: Vec<Secret>,
    /// What takes the place of bytes that were copied to devices.
    #[arg(long, value_name = "WHAT", value_parser = contents(), default_value = "zeros")]
    contents: Contents,
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let mut trace = input::open(&arguments.trace)?;
    if let Some(process) = trace.writer() {
        return Err(input::still_written(&arguments.trace, process));
    }
    let symbols = cutape_symbols::of_callers(&trace);
    trace.name_addresses(stacks::sources(&trace));
    let secrets: Secrets = arguments.remove.into_iter().collect();
    let choice = Choice {
        secrets,
        contents: arguments.contents,
        policies: PayloadPolicies::default(),
    };
    let target = &arguments.output;
    let written = AtomicU64::new(0);
    let summary = arguments.overwrite.write(target, |path| {
        let redacted = Progress::new("redacting", Unit::Bytes, None).watch(&written, || {
            cutape_redact::redact(&trace, path, (&[], &symbols), choice, &written)
        });
        redacted.map_err(|error| Failure::cannot_write(target, &error))
    })?;
    cutape_recording::report_missing(&summary.missing);
    let [before, after] = [summary.before, summary.after].map(quantity::bytes);
    message!(
        "{}: {after}, before {before}; removed: {}",
        target.display(),
        secrets.words().replace(',', ", ")
    );
    Ok(ExitCode::SUCCESS)
}
