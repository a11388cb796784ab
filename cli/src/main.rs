//! Records, replays and checks the CUDA driver calls of a program.
//!
//! The only binary; one module per verb.
//!
//! Invariant: results go to stdout, messages to stderr. The exit status is 0 for clean, 1 for
//! findings or a divergence, 2 for unusable input or machine, 3 for a bug in cutape; `record` exits
//! with the program's status. All output goes through `output`: a closed or full stdout or stderr
//! never causes a panic.

#![deny(clippy::print_stdout, clippy::print_stderr)]

mod bench;
mod check;
mod command_line;
mod completions;
mod config;
mod ctl;
mod debug;
mod demo;
mod diff;
mod doctor;
mod dump;
mod explain;
mod export;
mod extract;
mod first;
mod first_look;
mod guarded;
mod hang;
mod info;
mod inspect;
#[cfg(test)]
mod interface;
mod live;
mod manual;
mod mark;
mod matrix;
mod mcp;
mod merged;
mod minimize;
mod observation;
mod one_rank;
mod option_kind;
mod pack;
mod play;
mod profile;
mod profile_file;
#[cfg(test)]
mod python_options;
mod race;
mod rank_children;
mod record;
mod redact;
mod repair;
mod replay;
mod replay_options;
mod report;
mod sql;
mod target;
mod text_table;
mod trim;
#[cfg(test)]
mod verb_lists;
mod verb_process;
mod view;
mod what_if;
mod why;

use std::panic::UnwindSafe;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anstream::{AutoStream, ColorChoice};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use tracing::Level;

use crate::command_line::CommandLine;
use crate::config::Config;
use cutape_terminal::ending;
use cutape_terminal::failure::{self, Failure};
use cutape_terminal::message;

/// Records every CUDA driver call of an unmodified program, replays the
/// recording without the program, and finds misuse of the API.
#[derive(Parser)]
#[command(name = "cutape", version, after_help = EPILOGUE, verbatim_doc_comment)]
#[command(override_usage = USAGE)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
    /// How much to log on stderr.
    #[arg(long, global = true, default_value = "warn", value_name = "LEVEL")]
    #[arg(value_parser = levels())]
    #[arg(hide_possible_values = true, long_help = LOG_HELP)]
    log: Level,
    /// When to colour output: auto is on terminals.
    #[arg(long, global = true, default_value = "auto", value_name = "WHEN")]
    #[arg(value_enum, overrides_with = "no_color", hide_default_value = true)]
    color: clap::ColorChoice,
    /// The same as --color never.
    #[arg(long, global = true, hide = true, overrides_with = "color")]
    no_color: bool,
    /// The project's file. Default: cutape.toml here or in a folder around this.
    #[arg(long, global = true, value_name = "FILE", conflicts_with = "no_config")]
    config: Option<PathBuf>,
    /// Do not read cutape.toml.
    #[arg(long, global = true)]
    no_config: bool,
}

impl Arguments {
    /// What `--color` and `--no-color` say.
    fn color(&self) -> ColorChoice {
        match self.color {
            _ if self.no_color => ColorChoice::Never,
            clap::ColorChoice::Auto => ColorChoice::Auto,
            clap::ColorChoice::Always => ColorChoice::Always,
            clap::ColorChoice::Never => ColorChoice::Never,
        }
    }
}

const USAGE: &str = "\
cutape [OPTIONS] <COMMAND>
       cutape <TRACE>";

const LOG_HELP: &str = "How much to log on stderr: error, warn, info, debug or trace";

const EPILOGUE: &str = "\
First steps:
  cutape record -- ./app --steps 10    writes app.cutape
  cutape app.cutape                    says what the trace is
  cutape check app.cutape              finds misuse of the API
  cutape replay app.cutape             re-issues the calls and compares

Exit status:
  0  clean
  1  findings, or a divergence
  2  unusable input or machine; stderr says what and what to do
  3  a bug in cutape
  `record` exits with the program's status; with 128 plus the signal's number
  if a signal killed the program.";

#[derive(Subcommand)]
enum Verb {
    /// Run a program and write its driver calls to a trace.
    Record(record::Arguments),
    /// Re-issue a trace's calls and compare the results.
    Replay(replay::Arguments),
    /// Run the program again without a GPU, on the answers of a trace.
    Play(play::Arguments),
    /// Find API misuse in a trace, or in a program while it runs.
    Check(check::Arguments),
    /// Explain a rule of `check`, or list all rules.
    Explain(explain::Arguments),
    /// Measure a trace's calls repeatedly, and compare.
    Bench(bench::Arguments),
    /// Replay and measure many traces, and compare drivers, GPUs and libraries.
    Matrix(matrix::Arguments),
    /// Measure when a trace's work runs on the GPU, and what bounds its time.
    Profile(profile::Arguments),
    /// Measure what a change of the program's calls would gain.
    WhatIf(what_if::Arguments),
    /// Say what differs between two traces of one program.
    Diff(diff::Arguments),
    /// Print calls with their arguments, one per line.
    Dump(dump::Arguments),
    /// Summarise what the recorded program did.
    Info(info::Arguments),
    /// Write a trace as one HTML page: timeline, memory, kernels, findings.
    Report(report::Arguments),
    /// Browse calls, objects and findings in the terminal.
    View(view::Arguments),
    /// Say which work hangs or has failed, and what waits for what.
    Hang(hang::Arguments),
    /// Put a mark into a recording while the program runs.
    Mark(mark::Arguments),
    /// Start, stop and ask about the recording of a running program.
    Ctl(ctl::Arguments),
    /// Write images, or launches as programs that check themselves.
    Extract(extract::Arguments),
    /// Write what a trace shows for Perfetto, DuckDB, Spark and others.
    Export(export::Arguments),
    /// Answer a question about traces in SQL, with DuckDB.
    Sql(sql::Arguments),
    /// Let an assistant ask about traces: a server of the Model Context Protocol.
    Mcp(mcp::Arguments),
    /// Check this machine and this installation.
    Doctor(doctor::Arguments),
    /// Write a smaller trace with some calls and what they need.
    Trim(trim::Arguments),
    /// Show what memory holds before or after a call, as bytes or numbers.
    Inspect(inspect::Arguments),
    /// Say which calls wrote some bytes, and from what.
    Why(why::Arguments),
    /// Find the first call that wrote a NaN, or that changed some bytes.
    First(first::Arguments),
    /// Replay work that nothing orders in both orders, and compare.
    Race(race::Arguments),
    /// Move through the calls of a trace, forward and back, and look at memory.
    Debug(debug::Arguments),
    /// Write the smallest trace that still shows a finding, divergence, crash or error.
    Minimize(minimize::Arguments),
    /// Rewrite a trace: compressed, complete and indexed.
    Pack(pack::Arguments),
    /// Write a trace without contents, environment, paths, names.
    Redact(redact::Arguments),
    /// Copy the readable part of a damaged trace.
    Repair(repair::Arguments),
    /// Record, check and replay a small program that has a bug.
    Demo(demo::Arguments),
    /// Print the completion script of a shell.
    Completions(completions::Arguments),
    /// Write the manual pages into a folder.
    Manual(manual::Arguments),
    /// The process in which `replay` issues the calls.
    #[command(name = replay::CHILD, hide = true)]
    ReplayChild(replay::ChildArguments),
    /// The process that reads memory around calls.
    #[command(name = observation::CHILD, hide = true)]
    ObserveChild(observation::ChildArguments),
    /// The process in which `diff --execute` replays.
    #[command(name = diff::CHILD, hide = true)]
    ExecuteChild(diff::ChildArguments),
    /// The process that stops at calls.
    #[command(name = debug::CHILD, hide = true)]
    DebugChild(debug::ChildArguments),
    /// The process in which `bench` measures.
    #[command(name = bench::CHILD, hide = true)]
    BenchChild(bench::ChildArguments),
    /// The process in which `profile` replays.
    #[command(name = profile::child::CHILD, hide = true)]
    ProfileChild(profile::ChildArguments),
    /// The process in which `what-if` replays.
    #[command(name = what_if::CHILD, hide = true)]
    WhatIfChild(what_if::ChildArguments),
    /// The process under `ncu`, which guards the one that replays.
    #[command(name = profile::counters::GUARD, hide = true)]
    ProfileCount(profile::ChildArguments),
}

impl Verb {
    /// Whether a signal ends it at once, and what it was writing is removed.
    fn cleans_up(&self) -> bool {
        match self {
            // They wait for a program, which gets the signal, or restore the terminal.
            Self::Record(_) | Self::Play(_) | Self::Check(_) | Self::View(_) | Self::Demo(_) => {
                false
            }
            // Their parents end them.
            Self::ReplayChild(_)
            | Self::ObserveChild(_)
            | Self::ExecuteChild(_)
            | Self::DebugChild(_)
            | Self::BenchChild(_)
            | Self::ProfileChild(_)
            | Self::WhatIfChild(_)
            | Self::ProfileCount(_) => false,
            _ => true,
        }
    }
}

/// A replay keeps its own memory apart from the program's.
#[global_allocator]
static ALLOCATOR: cutape_replay::Allocator = cutape_replay::Allocator;

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    if let (Some(only), None) = (words.next(), words.next())
        && first_look::is_trace(&only)
    {
        start_log(Level::WARN);
        return guarded(|| status_of(first_look::run(Path::new(&only))));
    }
    let arguments = match parse() {
        Ok(Ok(arguments)) => arguments,
        Ok(Err(failure)) => return status_of(Err(failure)),
        Err(error) => {
            // Help and version are results, the rest is unusable input.
            let status = if error.use_stderr() {
                failure::UNUSABLE
            } else {
                0
            };
            return match without_hidden(error).print() {
                Err(error) if status == 0 => status_of(Err(error.into())),
                _ => ExitCode::from(status),
            };
        }
    };
    arguments.color().write_global();
    start_log(arguments.log);
    ending::survive_files();
    if arguments.verb.cleans_up() {
        ending::clean_up_on_signals();
        if !matches!(arguments.verb, Verb::Manual(_)) {
            // What they write is as private as traces. Others start programs, which inherit the mask.
            // SAFETY: no memory is involved.
            unsafe { libc::umask(0o077) };
        }
    }
    guarded(|| run(arguments.verb))
}

/// Parses the command line, with the options of the project's file.
fn parse() -> Result<Result<Arguments, Failure>, clap::Error> {
    let command = Arguments::command();
    let mut line = CommandLine::of(&command, std::env::args_os());
    let matches = command.clone().try_get_matches()?;
    let arguments = Arguments::from_arg_matches(&matches)?;
    let verb = matches.subcommand().filter(|(name, _)| {
        let known = command.find_subcommand(name);
        !arguments.no_config && known.is_some_and(|known| !known.is_hide_set())
    });
    let Some((verb, given)) = verb else {
        line.make_current();
        return Ok(Ok(arguments));
    };
    let added = Config::find(arguments.config.as_deref()).and_then(|config| {
        let added = config.map(|config| config.options(&command, verb, given));
        added.transpose()
    });
    match added {
        Ok(added) => line.add(added.into_iter().flatten()),
        Err(failure) => return Ok(Err(failure)),
    }
    let matches = command.try_get_matches_from(line.words())?;
    line.make_current();
    Arguments::from_arg_matches(&matches).map(Ok)
}

/// Clap suggests hidden commands, too, instead of a misspelt one.
fn without_hidden(mut error: clap::Error) -> clap::Error {
    let Some(ContextValue::Strings(mut names)) = error.remove(ContextKind::SuggestedSubcommand)
    else {
        return error;
    };
    let command = Arguments::command();
    let is_hidden = |name: &str| {
        let known = command.find_subcommand(name);
        known.is_some_and(clap::Command::is_hide_set)
    };
    names.retain(|name| !is_hidden(name));
    if !names.is_empty() {
        error.insert(
            ContextKind::SuggestedSubcommand,
            ContextValue::Strings(names),
        );
    }
    error
}

/// Runs; a panic is a bug, and its message is on stderr already.
fn guarded(run: impl FnOnce() -> ExitCode + UnwindSafe) -> ExitCode {
    std::panic::catch_unwind(run).unwrap_or_else(|_| {
        message!("bug in cutape; please report the command and the lines above");
        ExitCode::from(failure::BUG)
    })
}

fn run(verb: Verb) -> ExitCode {
    let outcome = match verb {
        Verb::Record(arguments) => record::run(arguments),
        Verb::Replay(arguments) => replay::run(arguments),
        Verb::Play(arguments) => play::run(arguments),
        Verb::Check(arguments) => check::run(arguments),
        Verb::Explain(arguments) => explain::run(arguments),
        Verb::Diff(arguments) => diff::run(arguments),
        Verb::Dump(arguments) => dump::run(arguments),
        Verb::Info(arguments) => info::run(arguments),
        Verb::Report(arguments) => report::run(arguments),
        Verb::Extract(arguments) => extract::run(arguments),
        Verb::Export(arguments) => export::run(arguments),
        Verb::Sql(arguments) => sql::run(arguments),
        Verb::Mcp(arguments) => mcp::run(arguments, &Arguments::command()),
        Verb::Doctor(arguments) => doctor::run(arguments),
        Verb::View(arguments) => view::run(arguments),
        Verb::Hang(arguments) => hang::run(arguments),
        Verb::Mark(arguments) => mark::run(arguments),
        Verb::Ctl(arguments) => ctl::run(arguments),
        Verb::Trim(arguments) => trim::run(arguments),
        Verb::Inspect(arguments) => inspect::run(arguments),
        Verb::Why(arguments) => why::run(arguments),
        Verb::First(arguments) => first::run(arguments),
        Verb::Race(arguments) => race::run(arguments),
        Verb::Debug(arguments) => debug::run(arguments),
        Verb::Minimize(arguments) => minimize::run(arguments),
        Verb::Pack(arguments) => pack::run(arguments),
        Verb::Redact(arguments) => redact::run(arguments),
        Verb::Repair(arguments) => repair::run(arguments),
        Verb::Demo(arguments) => demo::run(arguments),
        Verb::Completions(arguments) => completions::run(arguments, &Arguments::command()),
        Verb::Manual(arguments) => manual::run(arguments, Arguments::command()),
        Verb::ReplayChild(arguments) => replay::run_child(arguments),
        Verb::Bench(arguments) => bench::run(arguments),
        Verb::Matrix(arguments) => matrix::run(arguments),
        Verb::Profile(arguments) => profile::run(arguments),
        Verb::ProfileChild(arguments) => profile::run_child(arguments),
        Verb::WhatIf(arguments) => what_if::run(arguments),
        Verb::WhatIfChild(arguments) => what_if::run_child(arguments),
        Verb::ProfileCount(arguments) => profile::run_count(arguments),
        Verb::ObserveChild(arguments) => observation::run_child(arguments),
        Verb::ExecuteChild(arguments) => diff::run_child(arguments),
        Verb::BenchChild(arguments) => bench::run_child(arguments),
        Verb::DebugChild(arguments) => debug::run_child(arguments),
    };
    status_of(outcome)
}

/// The exit status; the message of a failure goes to stderr.
fn status_of(outcome: Result<ExitCode, Failure>) -> ExitCode {
    match outcome {
        Ok(code) => code,
        Err(Failure { status, .. }) if status == failure::QUIET => ExitCode::SUCCESS,
        Err(failure) => {
            message!("{}", failure.message);
            ExitCode::from(failure.status)
        }
    }
}

fn levels() -> impl TypedValueParser<Value = Level> {
    PossibleValuesParser::new(["error", "warn", "info", "debug", "trace"])
        .map(|word| word.parse().unwrap_or(Level::WARN))
}

fn start_log(level: Level) {
    let log = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_ansi(AutoStream::choice(&std::io::stderr()) != ColorChoice::Never)
        // It would tell stderr that stderr cannot be written, and panic.
        .log_internal_errors(false)
        .with_writer(std::io::stderr);
    // Fails only if a subscriber exists, which a binary excludes.
    let _ = log.without_time().try_init();
}
