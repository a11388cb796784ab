//! `cutape replay`: makes a trace's calls again and compares the results.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use cutape_format::Trace;
use cutape_replay::{Divergence, Measuring, Options, PlacementStrategy, Report, Selection, What};

use crate::call_set::CallSet;
use crate::failure::{FOUND, Failure, UNUSABLE};
use crate::guarded::{self, GuardedOptions};
use crate::library;
use crate::progress::Progress;

/// The hidden verb of the guarded child.
pub(crate) const CHILD: &str = "replay-child";

/// What `replay` takes.
#[derive(Clone, clap::Args)]
pub(crate) struct Arguments {
    /// The trace.
    trace: PathBuf,
    /// The driver to call: a path, or `null`. Default: this machine's.
    #[arg(long, value_name = "PATH")]
    driver: Option<PathBuf>,
    /// Compare only these calls, and stop after the last.
    ///
    /// Earlier calls are re-issued too, because these depend on them. SET is
    /// 120, 100..200, cuMem*, kernel:saxpy*, thread:3; a comma joins several.
    #[arg(long, value_name = "SET", verbatim_doc_comment)]
    calls: Option<String>,
    /// Stop before the call with this index.
    #[arg(long, value_name = "N")]
    until: Option<u64>,
    /// Measure instead of comparing bytes: each function's time in the
    /// driver, and the time from the first call to the last.
    ///
    /// With --calls, only those calls are measured. --timing=span measures only
    /// the time from the first to the last, without a clock read at each call.
    #[arg(
        long,
        value_name = "WHAT",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "calls",
        verbatim_doc_comment
    )]
    timing: Option<Timing>,
    /// Run the recorded threads concurrently instead of in lockstep.
    ///
    /// A call starts when all calls are complete that had returned before it
    /// was entered in the recording.
    #[arg(long, verbatim_doc_comment)]
    threads: bool,
    /// Count divergences instead of stopping at the first.
    #[arg(long)]
    keep_going: bool,
    #[command(flatten)]
    guarded: GuardedOptions,
}

/// The arguments of the guarded child.
#[derive(Clone, clap::Args)]
pub(crate) struct ChildArguments {
    /// The resolved driver.
    #[arg(long)]
    child_driver: PathBuf,
    #[command(flatten)]
    arguments: Arguments,
}

/// What `--timing` measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Timing {
    /// Each function's time in the driver, and the time from the first call to the last.
    Calls,
    /// The time from the first call to the last.
    Span,
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let trace = crate::input::open(&arguments.trace)?;
    selection(&trace, &arguments)?;
    let output = arguments.guarded.report()?;
    let driver = library::driver(arguments.driver.as_deref())?;
    let program = library::own_path()?;
    let hidden = ["--child-driver".into(), driver.into_os_string()];
    let command = || guarded::child(&program, "replay", CHILD, &hidden);
    let mut progress = Progress::new("calls");
    let plan = cutape_replay::plan(&trace);
    let guard = arguments.guarded.guard();
    let report = cutape_replay::run_guarded(&trace, &plan, &command, &guard, &mut |done| {
        progress.reach(done)
    })
    .map_err(Failure::unusable)?;
    drop(progress);
    output.write(&report, &text(&trace, &report))?;
    Ok(if report.agrees() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(FOUND)
    })
}

/// The guarded child: replays, and reports through a pipe to its parent.
pub(crate) fn run_child(child: ChildArguments) -> Result<ExitCode, Failure> {
    let arguments = &child.arguments;
    let trace = Trace::open(&arguments.trace)?;
    let options = Options {
        until: arguments.until,
        calls: selection(&trace, arguments)?,
        keep_going: arguments.keep_going,
        timing: match arguments.timing {
            None => Measuring::Nothing,
            Some(Timing::Calls) => Measuring::Calls,
            Some(Timing::Span) => Measuring::Span,
        },
        threads: arguments.threads,
        ..arguments.guarded.replay(child.child_driver.clone())
    };
    let status = cutape_replay::run_as_child(&trace, &options);
    Ok(ExitCode::from(u8::try_from(status).unwrap_or(UNUSABLE)))
}

/// The calls of `--calls` by index, because the kernel of a launch is known only in trace order.
fn selection(trace: &Trace, arguments: &Arguments) -> Result<Option<Selection>, Failure> {
    let Some(text) = &arguments.calls else {
        return Ok(None);
    };
    let mut chosen = Vec::new();
    for index in CallSet::for_trace(text, trace)?.calls(trace) {
        chosen.resize(index as usize, false);
        chosen.push(true);
    }
    if chosen.is_empty() {
        return Err(Failure::unusable(format!(
            "--calls {text}: no call of the trace matches"
        )));
    }
    Ok(Some(Arc::new(move |call| {
        chosen.get(call.index as usize) == Some(&true)
    })))
}

/// How many calls with stale addresses the text lists.
const STALE_SHOWN: usize = 20;

/// The report for people.
fn text(trace: &Trace, report: &Report) -> String {
    let mut out = String::new();
    let verdict = match (&report.died, report.divergence_count) {
        (Some(died), _) => format!("the replay {}", died.text),
        (None, 0) => "no divergence".to_owned(),
        (None, 1) => "1 divergence".to_owned(),
        (None, count) => format!("{count} divergences"),
    };
    let emulated: u64 = report.calls_emulated.values().sum();
    let _ = writeln!(
        out,
        "{}: {} of {} calls replayed in {:.2} s: {verdict}",
        trace.path().display(),
        report.calls_replayed + emulated,
        report.calls,
        report.wall_seconds
    );
    for thread in report.died.iter().flat_map(|died| &died.threads) {
        let state = match thread.in_driver {
            true => "in the driver",
            false => "waiting for calls of other threads",
        };
        let _ = writeln!(
            out,
            "  thread {}: call {} {}: {state}",
            thread.thread, thread.call, thread.function
        );
    }
    for divergence in &report.divergences {
        describe(&mut out, divergence);
    }
    if report.divergence_count > report.divergences.len() as u64 {
        let more = report.divergence_count - report.divergences.len() as u64;
        let _ = writeln!(out, "  and {more} more");
    }
    let placed = report.placed;
    if placed.allocations > 0 {
        let _ = writeln!(
            out,
            "memory: {} of {} allocations at their recorded address{}",
            placed.at_recorded_address,
            placed.allocations,
            match placed.strategy {
                PlacementStrategy::Natural | PlacementStrategy::None => "",
                PlacementStrategy::Granules => ", in granules",
            }
        );
    }
    for translated in &report.translated {
        let _ = writeln!(
            out,
            "  call {} {}: {:#x} is {:#x} here ({} bytes): {}",
            translated.call,
            translated.function,
            translated.recorded,
            translated.replayed,
            translated.length,
            translated.reason
        );
    }
    for stale in report.stale.iter().take(STALE_SHOWN) {
        let _ = writeln!(
            out,
            "  call {} {}: {} words contain recorded addresses that replay does not translate, the \
             first {:#x}: {}",
            stale.call, stale.function, stale.words, stale.address, stale.memory
        );
    }
    if report.stale.len() > STALE_SHOWN {
        let _ = writeln!(
            out,
            "  and {} more such calls (--report lists them)",
            report.stale.len() - STALE_SHOWN
        );
    }
    let by_hash = match report.bytes_compared_by_hash {
        0 => String::new(),
        bytes => format!(" ({bytes} by hash)"),
    };
    let _ = writeln!(
        out,
        "returned bytes: {} compared{by_hash}, {} not",
        report.bytes_compared, report.bytes_not_compared
    );
    for difference in &report.machine {
        let forced = if difference.fatal { "warning: " } else { "" };
        let _ = writeln!(out, "{forced}machine: {}", difference.text());
    }
    if !report.skipped.is_empty() {
        let _ = writeln!(out, "not re-issued:");
        for skipped in &report.skipped {
            let _ = writeln!(
                out,
                "  {} x {} (first: call {}): {}",
                skipped.count, skipped.function, skipped.first, skipped.reason
            );
        }
    }
    guarded::write_notes(&mut out, &report.notes);
    let micros = |nanoseconds: u64| nanoseconds as f64 / 1000.0;
    if let Some(span) = &report.span {
        let inside = span.driver_nanoseconds.map(micros);
        let inside =
            inside.map_or_else(String::new, |time| format!(", in the driver {time:.1} µs"));
        let _ = writeln!(
            out,
            "calls {} to {}, {} measured: {:.1} µs{inside}; recorded {:.1} µs",
            span.first,
            span.last,
            span.calls,
            micros(span.nanoseconds),
            micros(span.recorded_nanoseconds)
        );
    }
    if !report.timing.is_empty() {
        let mut rows: Vec<_> = report.timing.iter().collect();
        rows.sort_by_key(|(_, timing)| std::cmp::Reverse(timing.nanoseconds));
        let _ = writeln!(
            out,
            "{:>12} {:>14} {:>14}  function",
            "calls", "here, µs", "recorded, µs"
        );
        for (name, timing) in rows {
            let _ = writeln!(
                out,
                "{:>12} {:>14.1} {:>14.1}  {name}",
                timing.calls,
                micros(timing.nanoseconds),
                micros(timing.recorded_nanoseconds)
            );
        }
    }
    out
}

fn describe(out: &mut String, divergence: &Divergence) {
    let what = match divergence.what {
        What::Result => "result".to_owned(),
        What::OutParameter | What::Bytes | What::Text => match &divergence.parameter {
            Some(parameter) => format!("what {parameter} points at"),
            None => "bytes".to_owned(),
        },
    };
    let _ = writeln!(
        out,
        "divergence: call {} {}: {what} differs",
        divergence.call, divergence.function
    );
    let _ = writeln!(out, "  expected {}", divergence.expected);
    let _ = writeln!(out, "  received {}", divergence.received);
    if let (Some(first), Some(count)) =
        (divergence.first_differing_byte, divergence.differing_bytes)
    {
        let _ = writeln!(out, "  {count} bytes differ, the first at offset {first}");
    }
    if let Some(call) = divergence.enqueued_by {
        let _ = writeln!(out, "  enqueued by call {call}");
    }
    for line in &divergence.history {
        let _ = writeln!(out, "  {line}");
    }
}
