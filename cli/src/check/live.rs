//! `cutape check -- PROGRAM`: follows the program's growing trace.
//!
//! The check runs outside the program, so that it can explain a call that kills the program.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::time::Duration;

use cutape_format::{Cursor, Trace};

use super::filter::FindingFilter;
use super::pass::{Pass, check_trace};
use super::ranges::set_ranges;
use cutape_recording::{Outcome, Recording, Reservation, Session, trace_name};
use cutape_terminal::clock::TickClock;
use cutape_terminal::failure::Failure;
use cutape_terminal::input;
use cutape_terminal::message;
use cutape_terminal::overwrite::Overwrite;
use cutape_terminal::private_folder::unforeseen_name;

const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Runs a program and checks its calls; keeps the trace if `output` names a file.
pub(super) fn check_program(
    recording: &Recording,
    program: &[OsString],
    output: Option<(&Path, Overwrite)>,
    filter: &mut FindingFilter,
) -> Result<(), Failure> {
    let (path, overwrite) = match output {
        Some((path, overwrite)) => (path.to_owned(), overwrite),
        None => {
            let name = unforeseen_name("cutape-check") + ".cutape";
            (std::env::temp_dir().join(name), Overwrite::default())
        }
    };
    let reservation = Reservation::named(&trace_name(&path), overwrite)?;
    let session = cutape_recording::start(recording, program, reservation)?;
    let mut live = LiveCheck::default();
    let clock = TickClock::start();
    while !session.has_ended() {
        std::thread::sleep(POLL_INTERVAL);
        live.poll(&session, clock.settled(), filter);
    }
    let outcome = session.wait()?;
    let keep = output.is_some();
    let checked = finish(&outcome, live, filter, keep);
    if !keep {
        for path in &outcome.traces {
            // A leftover in the temporary folder is harmless.
            let _ = fs::remove_file(path);
        }
    }
    checked
}

fn finish(
    outcome: &Outcome,
    mut live: LiveCheck,
    filter: &mut FindingFilter,
    keep: bool,
) -> Result<(), Failure> {
    if outcome.traces.is_empty() {
        message!("nothing to check: {}", outcome.why_no_trace(""));
        return Ok(());
    }
    // The trace that was followed first: until now all findings are of that.
    let followed = &outcome.first;
    let (first, others): (Vec<_>, Vec<_>) =
        outcome.traces.iter().partition(|path| *path == followed);
    for path in first.into_iter().chain(others) {
        let trace = Trace::open(path)?;
        input::say_what_is_missing(&trace);
        if path == followed {
            let status = outcome.status.code().map(|status| status.to_string());
            live.finish(&trace, filter, status.as_deref());
            set_ranges(&trace, &mut filter.list.findings, None)?;
        } else {
            check_trace(&trace, filter, &mut |_| {})?
                .1
                .report_unrecorded(&trace);
        }
        if keep {
            drop(trace);
            outcome.pack_or_warn(path);
        }
    }
    if outcome.status.code() != Some(0) {
        message!("the program {}", outcome.describe());
    }
    Ok(())
}

/// The check of a growing trace.
#[derive(Default)]
struct LiveCheck {
    trace: Option<Trace>,
    cursor: Cursor,
    pass: Pass,
}

impl LiveCheck {
    /// Checks the calls that started before `horizon` and have returned.
    fn poll(&mut self, session: &Session, horizon: u64, filter: &mut FindingFilter) {
        let Some(trace) = &mut self.trace else {
            // The file or its header may not exist yet.
            self.trace = Trace::follow(session.trace()).ok();
            return;
        };
        let Ok(horizon) = trace.refresh_before(horizon) else {
            return;
        };
        if trace.head().clock != 0 {
            // Without the processor's clock, the order of threads is known only at the end.
            return;
        }
        while let Some(call) = self.cursor.next_before(trace, horizon) {
            self.pass.push(trace, &call, filter);
        }
    }

    /// Checks the remaining calls of the complete trace.
    fn finish(&mut self, trace: &Trace, filter: &mut FindingFilter, exit_status: Option<&str>) {
        while let Some(call) = self.cursor.next(trace) {
            self.pass.push(trace, &call, filter);
        }
        self.pass.finish(trace, filter, exit_status);
        std::mem::take(&mut self.pass).report_unrecorded(trace);
    }
}
