//! `cutape trim`: writes a smaller trace that replays and checks like a part of its source.

mod choice;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use cutape_cut::{Part, Provenance, Ranges};
use cutape_format::{Bytes, Trace};
use cutape_model::Needs;

use self::choice::Choice;
use crate::failure::Failure;
use crate::progress::Progress;
use crate::{input, quantity};

/// What `trim` takes.
#[derive(clap::Args)]
#[command(after_help = EPILOGUE)]
pub(crate) struct Arguments {
    /// The trace.
    trace: PathBuf,
    #[command(flatten)]
    choice: Choice,
    /// Where to write.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

const EPILOGUE: &str = "\
The result has the chosen calls and those that they need: what created and
changed their objects, what wrote the memory that they read, what orders their
work, and what destroys what is created. It replays without divergences, and
check finds what it found in that part. `cutape info` shows its source.";

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let trace = input::open(&arguments.trace)?;
    if let Some(process) = input::writer(&trace) {
        return Err(input::still_written(&arguments.trace, process));
    }
    let target = &arguments.output;
    refuse_existing(target)?;
    let chosen = arguments.choice.calls(&trace)?;
    let needs = read_needs(&trace)?;
    let part = cutape_cut::part(&needs, &chosen);
    payloads_are_there(&trace, &part)?;
    let provenance = provenance(&trace, &part, format!("trim {}", arguments.choice))?;
    let changes = BTreeMap::new();
    let summary = cutape_cut::write(&trace, &needs, &part, &provenance, target, &changes)
        .map_err(|error| Failure::cannot_write(target, &error))?;
    eprintln!(
        "cutape: {}",
        outcome(target, &part, summary.before, summary.after)
    );
    Ok(ExitCode::SUCCESS)
}

/// Fails early if the output exists; writing never replaces it.
pub(crate) fn refuse_existing(target: &Path) -> Result<(), Failure> {
    match target.symlink_metadata() {
        Ok(_) => Err(Failure::unusable(format!(
            "cannot write {}: exists already; choose another name with -o, or remove it",
            target.display()
        ))),
        Err(_) => Ok(()),
    }
}

/// Reads what each call needs.
pub(crate) fn read_needs(trace: &Trace) -> Result<Needs, Failure> {
    let mut progress = Progress::new("calls");
    Ok(cutape_cut::needs(trace, &mut || progress.step())?)
}

/// What the new trace says about its source.
pub(crate) fn provenance(
    trace: &Trace,
    part: &Part,
    choice: String,
) -> Result<Provenance, Failure> {
    let path = trace.path();
    let name = path.file_name().unwrap_or(path.as_os_str());
    let hash = cutape_cut::source_hash(trace)
        .map_err(|error| Failure::unusable(format!("{}: {error}", path.display())))?;
    Ok(Provenance {
        source: name.to_string_lossy().into_owned(),
        hash,
        choice,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        calls: part.indices().collect::<Ranges>(),
        of: part.calls.len() as u64,
        changed: Ranges::default(),
    })
}

/// Bytes that a replay needs must be in the trace.
fn payloads_are_there(trace: &Trace, part: &Part) -> Result<(), Failure> {
    let mut calls = trace.calls();
    let missing = calls.find(|call| {
        let is_in = part.calls.get(call.index as usize) == Some(&true);
        let is_left_out = |bytes: Bytes<'_>| matches!(bytes, Bytes::Omitted(_) | Bytes::Hashed(..));
        is_in && call.snapshots().any(|snapshot| is_left_out(snapshot.bytes))
    });
    match missing {
        None => Ok(()),
        Some(call) => Err(Failure::unusable(format!(
            "{}: call {} {} is needed, and the bytes that it copied are not in the trace; record \
             with --payloads all",
            trace.path().display(),
            call.index,
            call.signature.name
        ))),
    }
}

/// What was written, in one line.
fn outcome(target: &Path, part: &Part, before: u64, after: u64) -> String {
    let count = part.count();
    let needed = match count - part.chosen {
        0 => String::new(),
        needed => format!(" ({} chosen, {needed} that these need)", part.chosen),
    };
    let of = part.calls.len();
    let [before, after] = [before, after].map(quantity::bytes);
    format!(
        "{}: {count} of {of} calls{needed}; {after}, before {before}",
        target.display()
    )
}
