//! Records, replays and checks the CUDA driver calls of a program.
//!
//! The only binary; one file a verb. Invariant: results go to stdout, messages to stderr; the exit status is 0 for clean,
//! 1 for findings or divergence, 2 for unusable input or machine, 3 for a bug of ours; `record` passes on the program's.

mod call_set;
mod check;
mod dump;
mod failure;
mod info;
mod library;
mod pack;
mod progress;
mod record;
mod repair;
mod replay;
mod session;
mod symbols;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::failure::Failure;

/// Records every CUDA driver call of an unmodified program, replays the recording without the program, and explains misuse.
#[derive(Parser)]
#[command(name = "cutape", version, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
    /// What to say on stderr about the work itself: error, warn, info, debug, trace.
    #[arg(long, global = true, default_value = "warn", value_name = "LEVEL")]
    log: String,
}

#[derive(Subcommand)]
enum Verb {
    /// Run a program and write every driver call that it makes to a trace.
    Record(record::Arguments),
    /// Re-issue a trace's calls on a driver and compare what comes back.
    Replay(replay::Arguments),
    /// Look for API misuse in a trace, or in a program while it runs.
    Check(check::Arguments),
    /// Print calls with their arguments, one a line.
    Dump(dump::Arguments),
    /// Say what the recorded program did.
    Info(info::Arguments),
    /// Rewrite a trace compressed, complete and indexed.
    Pack(pack::Arguments),
    /// Keep what is good of a damaged trace.
    Repair(repair::Arguments),
    /// Re-issues calls on behalf of `replay`, which watches over it.
    #[command(name = replay::CHILD, hide = true)]
    ReplayChild(replay::Arguments),
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help and version are results; anything else is unusable input.
            let status = if error.use_stderr() { failure::UNUSABLE } else { 0 };
            let _ = error.print();
            return ExitCode::from(status);
        }
    };
    start_log(&arguments.log);
    let outcome = match arguments.verb {
        Verb::Record(arguments) => record::run(arguments),
        Verb::Replay(arguments) => replay::run(arguments),
        Verb::Check(arguments) => check::run(arguments),
        Verb::Dump(arguments) => dump::run(arguments),
        Verb::Info(arguments) => info::run(arguments),
        Verb::Pack(arguments) => pack::run(arguments),
        Verb::Repair(arguments) => repair::run(arguments),
        Verb::ReplayChild(arguments) => replay::run_child(arguments),
    };
    match outcome {
        Ok(code) => code,
        Err(Failure { status, .. }) if status == failure::QUIET => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("cutape: {}", failure.message);
            ExitCode::from(failure.status)
        }
    }
}

fn start_log(level: &str) {
    let filter = tracing_subscriber::EnvFilter::try_new(level)
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn"));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // A second subscriber cannot be there: this is the only binary.
    let _ = log.without_time().try_init();
}
