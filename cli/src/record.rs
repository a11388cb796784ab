//! `cutape record`: runs a program and writes its driver calls to a trace.

mod flight;

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use cutape_format::Trace;
use cutape_recording::{Cost, Outcome, Recording, Reservation, Session, trace_name};
use cutape_registry::OTHER_LIBRARIES;
use cutape_render::quantity;
use cutape_report::summary::Exchanges;
use cutape_terminal::failure::Failure;
use cutape_terminal::input;
use cutape_terminal::message;
use cutape_terminal::output::{self, Format};
use cutape_terminal::overwrite::Overwrite;

use self::flight::{FlightOptions, FlightRecorder};

/// How many traces are named at the end.
const MOST_NAMES: usize = 4;

/// What `record` takes.
#[derive(clap::Args)]
#[command(override_usage = "cutape record [OPTIONS] -- PROGRAM [ARGUMENTS]...")]
#[command(after_long_help = NOT_RECORDED)]
pub(crate) struct Arguments {
    /// The trace to write; must not exist, except with --overwrite.
    ///
    /// Default: PROGRAM.cutape in the current folder, or PROGRAM.1.cutape and
    /// so on if that exists.
    /// FILE is the trace of PROGRAM; if it does not call the driver, that of the
    /// first process that does. Further processes write FILE.PID.cutape;
    /// processes with a rank (mpirun, torchrun, srun) write
    /// FILE.rankN.cutape. `info FOLDER` shows them all.
    #[arg(short, long, value_name = "FILE", verbatim_doc_comment)]
    output: Option<PathBuf>,
    #[command(flatten)]
    overwrite: Overwrite,
    /// Leave the trace unpacked: larger, without the names of callers.
    #[arg(long)]
    no_pack: bool,
    /// Record also what `play` needs and a replay does not: what the program can
    /// see in page-locked and managed memory while the device writes it, in
    /// ranges of more than 64 MiB, and in managed variables.
    #[arg(long, verbatim_doc_comment)]
    cassette: bool,
    /// Report on stderr what is recorded.
    #[arg(short, long)]
    verbose: bool,
    /// On a terminal, leave out the lines that name the trace.
    #[arg(short, long, conflicts_with = "verbose")]
    quiet: bool,
    /// Report on stderr what recording cost: calls, bytes, and time in the
    /// recorder (measuring it reads the clock more often).
    #[arg(
        long,
        value_enum,
        value_name = "FORMAT",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "text",
        verbatim_doc_comment
    )]
    stats: Option<Format>,
    #[command(flatten)]
    flight: FlightOptions,
    #[command(flatten)]
    recording: Recording,
    /// The program and its arguments; the -- is optional.
    #[arg(trailing_var_arg = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

const NOT_RECORDED: &str = "\
If nothing was recorded:
  - The program did not use CUDA in this run.
  - It starts the real work with another environment (sudo, env -i) or in a
    container, or lets a daemon do it. Record there:
    sudo cutape record -- ./app
  - It reaches libcuda in a way that this backend does not catch: try
    --backend audit, preload or gum. -v says which one was used.
Never recorded are statically linked programs, programs for musl, programs with
raised rights (set-user-id, set-group-id, file capabilities), and calls into a
copy of libcuda under another name.";

/// Names the libraries whose answers `play` does not give.
fn name_other_libraries(trace: &Trace) {
    let files = trace.mappings().iter();
    let files = files.filter_map(|mapping| Path::new(&mapping.path).file_name()?.to_str());
    let is_other = |file: &&str| {
        let mut names = OTHER_LIBRARIES.iter();
        names.any(|name| file.starts_with(name))
    };
    let others: BTreeSet<&str> = files.filter(is_other).collect();
    if !others.is_empty() {
        let others: Vec<&str> = others.into_iter().collect();
        message!(
            "the program has loaded {}: what these libraries answer is not recorded, and `play` leaves \
             their calls to the machine it runs on",
            others.join(", ")
        );
    }
}

pub(crate) fn run(mut arguments: Arguments) -> Result<ExitCode, Failure> {
    let on_terminal = !arguments.quiet && io::stderr().is_terminal();
    if arguments.no_pack {
        arguments.recording.check_no_pack()?;
    }
    let trace = match &arguments.output {
        Some(path) => Reservation::named(&trace_name(path), arguments.overwrite)?,
        None => {
            let stem = trace_name(Path::new(stem(
                arguments.program.first().map(OsString::as_os_str),
            )));
            let stem = stem.as_os_str();
            let trace = Reservation::free(stem)?;
            if (arguments.verbose || on_terminal) && trace.trace().file_stem() != Some(stem) {
                // The user would otherwise open the older trace.
                let path = output::shown(trace.trace()).to_string();
                message!("{}.cutape exists, recording to {path}", stem.display());
            }
            trace
        }
    };
    arguments.recording.cassette = arguments.cassette;
    arguments.recording.measures_cost = arguments.stats.is_some();
    arguments.recording.memory_interval = arguments.flight.snapshot_interval();
    arguments.recording.deep = arguments.flight.deep();
    let session = cutape_recording::start(&arguments.recording, &arguments.program, trace)?;
    if arguments.verbose {
        let backend = session.backend();
        message!(
            "recording with backend {}: {}",
            backend.backend.word(),
            backend.reason
        );
    }
    let outcome = match arguments.flight.is_wanted() {
        true => follow(session, &arguments.flight)?,
        false => session.wait()?,
    };
    if outcome.traces.is_empty() {
        let program = arguments.program.first();
        let advice = program
            .and_then(|program| cutape_recording::advice(Path::new(program), "record"))
            .unwrap_or_else(|| {
                "if it uses CUDA, `cutape record --help` lists possible causes".to_owned()
            });
        let why = outcome.why_no_trace(&format!("; {advice}"));
        message!("nothing was recorded: {why}");
    }
    for path in &outcome.traces {
        // The exit status stays the program's.
        if !arguments.no_pack {
            outcome.pack_or_warn(path);
        }
        // The recorder may have had no stderr to say it on.
        if let Ok(trace) = Trace::open_indexed(path) {
            input::say_what_is_missing(&trace);
            if arguments.cassette {
                name_other_libraries(&trace);
            }
        }
        if let Some(format) = arguments.stats
            && let Err(failure) = report_cost(path, format)
        {
            message!("{}", failure.message);
        }
        if arguments.verbose {
            let bytes = fs::metadata(path).map_or(0, |metadata| metadata.len());
            message!("{} ({})", output::shown(path), quantity::bytes(bytes));
        }
    }
    if arguments.recording.outputs_of_exchanges.is_some() {
        report_exchanges(&outcome.traces);
    }
    if arguments.verbose {
        message!("the program {}", outcome.describe());
    }
    if on_terminal && let Some(first) = outcome.traces.first() {
        let what = what_was_recorded(&outcome.traces);
        let next = what_to_check(first);
        message!(
            "{what}; next: cutape check {}",
            output::quoted(next.as_os_str())
        );
    }
    Ok(ExitCode::from(outcome.exit_code()))
}

/// Keeps only the last calls until the program ends.
fn follow(session: Session, options: &FlightOptions) -> Result<Outcome, Failure> {
    let mut flight = FlightRecorder::new(options);
    flight.follow(&session);
    let outcome = session.wait()?;
    flight.finish(&outcome)?;
    Ok(outcome)
}

/// Reports on stderr what recording one process cost.
fn report_cost(path: &Path, format: Format) -> Result<(), Failure> {
    let cost = Cost::of(&Trace::open(path)?, path);
    match format {
        Format::Text => message!("{}: {}", output::shown(path), cost.text()),
        Format::Json => output::stderr_line(format_args!("{}", serde_json::json!(cost))),
    }
    Ok(())
}

/// Says if there were no exchanges, and what is missing of those that there were.
fn report_exchanges(traces: &[PathBuf]) {
    let mut calls = 0;
    for path in traces {
        let Ok(trace) = Trace::open_indexed(path) else {
            continue;
        };
        let exchanges = Exchanges::of(&trace);
        calls += exchanges.calls;
        let gaps = exchanges.gaps();
        if !gaps.is_empty() {
            message!(
                "{}: of {} exchanges with other processes: {}",
                output::shown(path),
                quantity::grouped(exchanges.calls),
                gaps.join("; ")
            );
        }
    }
    if calls == 0 && !traces.is_empty() {
        message!(
            "--outputs-of-exchanges kept nothing: no launch or copy reached memory that a \
             process exported or imported"
        );
    }
}

/// `40 calls of 2 processes in a.cutape and a.4711.cutape`.
fn what_was_recorded(traces: &[PathBuf]) -> String {
    let mut calls = 0;
    let mut processes = BTreeSet::new();
    // What cannot be opened has been reported.
    for trace in traces.iter().flat_map(|path| Trace::open_indexed(path)) {
        let counted = trace.counted_calls();
        calls += counted.unwrap_or_else(|| trace.calls().count() as u64);
        processes.insert(trace.head().process);
    }
    let processes = match processes.len() {
        1 => "1 process".to_owned(),
        several => format!("{several} processes"),
    };
    let (shown, rest) = traces.split_at(traces.len().min(MOST_NAMES));
    let mut names: Vec<String> = shown.iter().map(|t| output::shown(t).to_string()).collect();
    if !rest.is_empty() {
        names.push(quantity::count(rest.len() as u64, "other file"));
    }
    let last = names.pop().unwrap_or_default();
    let names = match names.is_empty() {
        true => last,
        false => format!("{} and {last}", names.join(", ")),
    };
    format!(
        "{} of {processes} in {names}",
        quantity::count(calls, "call")
    )
}

/// The trace; of a process with a rank the folder, whose traces are also checked against each other.
fn what_to_check(trace: &Path) -> &Path {
    let has_rank = |trace: &Trace| {
        let known = ["rank", "rank.local"].into_iter();
        known
            .filter_map(|key| trace.meta_value(key))
            .next()
            .is_some()
    };
    if !Trace::open_indexed(trace).is_ok_and(|opened| has_rank(&opened)) {
        return trace;
    }
    let here = std::env::current_dir().ok();
    let folder = trace.parent().filter(|folder| *folder != Path::new(""));
    folder
        .filter(|folder| here.as_deref() != Some(*folder))
        .unwrap_or(Path::new("."))
}

/// The program's name without its folder.
fn stem(program: Option<&OsStr>) -> &OsStr {
    program
        .and_then(|program| Path::new(program).file_name())
        .unwrap_or(OsStr::new("program"))
}
