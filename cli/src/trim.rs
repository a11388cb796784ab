//! `cutape trim`: writes a smaller trace that replays and checks like a part of its source.

mod choice;
mod state;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use cutape_cut::{MemoryState, Part};
use cutape_format::{Bytes, Provenance, Ranges, StateOrigin, Trace, file_hash};
use cutape_model::Needs;
use cutape_render::quantity;

use self::choice::Choice;
use crate::guarded::GuardedOptions;
use crate::one_rank::{RankOption, Source};
use cutape_terminal::failure::Failure;
use cutape_terminal::message;
use cutape_terminal::overwrite::Overwrite;
use cutape_terminal::progress::Progress;
use cutape_terminal::{input, output_folder};

/// What `trim` takes.
#[derive(clap::Args)]
#[command(after_help = EPILOGUE)]
pub(crate) struct Arguments {
    /// The trace. If a program still records to it, its calls so far.
    ///
    /// With --rank, a folder with the traces of several ranks.
    trace: PathBuf,
    #[command(flatten)]
    rank: RankOption,
    #[command(flatten)]
    choice: Choice,
    /// The trace to write; must not exist, except with --overwrite.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    #[command(flatten)]
    overwrite: Overwrite,
    /// How the part gets the memory that it reads.
    ///
    /// recorded: the calls that wrote the memory are kept, launches too.
    /// replay: the trace is replayed up to the part, and the memory that the part can
    /// reach is read and stored. Earlier calls are kept only if they create objects.
    /// This needs a driver and a GPU like the recorded ones.
    #[arg(long, value_enum, default_value = "recorded", value_name = "FROM")]
    #[arg(verbatim_doc_comment, hide_possible_values = true)]
    state: State,
    /// With --state replay: the driver, a path or `null`. Default: this machine's.
    #[arg(long, value_name = "PATH")]
    driver: Option<PathBuf>,
    /// Which code of images is kept.
    ///
    /// whole: all of it.
    /// used: only what the part runs. Fat binaries keep the code for the recorded
    /// GPUs only, and the code of kernels that no call of the part names becomes
    /// zeros, which compress well. The part then replays only on GPUs of the
    /// recorded architecture.
    #[arg(long, value_enum, default_value = "whole", value_name = "WHICH")]
    #[arg(verbatim_doc_comment, hide_possible_values = true)]
    images: ImageCode,
    #[command(flatten)]
    guarded: GuardedOptions,
}

/// The values of `--images`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum ImageCode {
    Whole,
    Used,
}

/// The values of `--state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum State {
    Recorded,
    Replay,
}

/// A part of a trace, ready to be written.
struct Cut {
    part: Part,
    needs: Needs,
    state: Option<(MemoryState, StateOrigin)>,
}

const EPILOGUE: &str = "\
The result has the chosen calls and those that they need: calls that created or
changed their objects, wrote the memory that they read, order their work, or
destroy what was created. It replays and checks like that part of the trace.
`cutape info` shows its source.";

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let source = arguments
        .rank
        .source(&arguments.trace, &arguments.guarded)?;
    let trace = input::open(source.path())?;
    let target = &arguments.output;
    arguments.overwrite.replaces(target)?;
    let chosen = arguments.choice.calls(&trace)?;
    let cut = match arguments.state {
        State::Recorded => recorded(&arguments, &trace, &chosen)?,
        State::Replay => replayed(&arguments, (&trace, &source), &chosen)?,
    };
    let mut choice = format!("trim {}", arguments.choice);
    if arguments.state == State::Replay {
        choice.push_str(" --state replay");
    }
    if arguments.images == ImageCode::Used {
        choice.push_str(" --images used");
    }
    let Cut { part, needs, state } = cut;
    let mut provenance = provenance(&trace, &part, choice)?;
    let changes = match arguments.images {
        ImageCode::Whole => BTreeMap::new(),
        ImageCode::Used => cutape_cut::image_changes(&trace, &part),
    };
    provenance.changed = changes.keys().copied().collect();
    let (state, origin) = state.unzip();
    if origin.is_some() {
        provenance.state = origin;
    }
    let state = state.as_ref();
    let summary = arguments.overwrite.write(target, |path| {
        cutape_cut::write(&trace, &needs, &part, &provenance, state, path, &changes)
            .map_err(|error| Failure::cannot_write(target, &error))
    })?;
    message!("{}", outcome(target, &part, summary.before, summary.after));
    if arguments.state == State::Recorded
        && let Some(hint) = hint(&part)
    {
        message!("{hint}");
    }
    Ok(ExitCode::SUCCESS)
}

/// The part with the calls that wrote its memory.
fn recorded(arguments: &Arguments, trace: &Trace, chosen: &[u64]) -> Result<Cut, Failure> {
    if arguments.driver.is_some() {
        let text = "--driver is the driver of --state replay: give both or none";
        return Err(Failure::unusable(text));
    }
    let needs = read_needs(trace)?;
    let part = cutape_cut::part(&needs, chosen);
    payloads_are_there(trace, |call| part.calls.get(call as usize) == Some(&true))?;
    Ok(Cut {
        part,
        needs,
        state: None,
    })
}

/// The part with what its memory holds.
fn replayed(
    arguments: &Arguments,
    (trace, source): (&Trace, &Source),
    chosen: &[u64],
) -> Result<Cut, Failure> {
    output_folder::hold_signals();
    let driver = arguments.driver.as_deref();
    let source = (trace, source);
    let taken = state::take(
        source,
        (&arguments.output, arguments.overwrite),
        chosen,
        driver,
        &arguments.guarded,
    )?;
    Ok(Cut {
        part: taken.part,
        needs: taken.needs,
        state: Some((taken.state, taken.origin)),
    })
}

/// Says that another option gives a smaller trace, if most calls are there for others.
fn hint(part: &Part) -> Option<String> {
    let (count, of) = (part.count(), part.calls.len() as u64);
    let is_large = count > 2 * of / 5 && part.chosen < count / 4 && count - part.chosen > 100;
    is_large.then(|| {
        let percent = 100 * count / of.max(1);
        format!(
            "the part keeps {percent} % of the source's calls, since earlier ones wrote the \
             memory that it reads; --state replay stores what the memory held instead"
        )
    })
}

/// Reads what each call needs.
pub(crate) fn read_needs(trace: &Trace) -> Result<Needs, Failure> {
    let mut progress = Progress::over_calls("reading", [trace]);
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
    let hash = file_hash(trace.path())
        .map_err(|error| Failure::unusable(format!("{}: {error}", path.display())))?;
    Ok(Provenance {
        source: name.to_string_lossy().into_owned(),
        hash,
        choice,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        calls: part.indices().collect::<Ranges>(),
        of: part.calls.len() as u64,
        changed: Ranges::default(),
        // The contents of memory that the source has are still there.
        state: Provenance::of(trace).and_then(|source| source.state),
    })
}

/// Bytes that a replay needs must be in the trace.
fn payloads_are_there(trace: &Trace, is_needed: impl Fn(u64) -> bool) -> Result<(), Failure> {
    let mut calls = trace.calls();
    let missing = calls.find(|call| {
        let is_left_out = |bytes: Bytes<'_>| matches!(bytes, Bytes::Omitted(_) | Bytes::Hashed(..));
        is_needed(call.index) && call.snapshots().any(|snapshot| is_left_out(snapshot.bytes))
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
