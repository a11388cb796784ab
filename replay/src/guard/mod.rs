//! A replay in a child process: fixed addresses, fresh attempts, a watchdog, and a report even if
//! the driver crashes.
//!
//! ```text
//!             planned             half the watchdog's time
//!  Planning ───────────► Playing ──────────────────────────► Late ──── all of it ────┐
//!    ▲    │               │   ▲                             │  │                     │
//!    │    │               │   └────────── progress ─────────┘  │                     │
//!    │    └───────────────┴──────── the child ends ────────────┘              it is killed
//!    │                                   │                                           │
//!    │       ┌───────────────┬───────────┴───┬──────────────────┐                    │
//!    │       │ wrote an      │ wrote what    │ wrote nothing,   │ wrote nothing,     │
//!    │       │ error         │ it found      │ exited           │ by a signal        │
//!    │       ▼               ▼               ▼                  ▼                    │
//!    └──── Failed         Reported         Silent             Died ◄─────────────────┘
//!  next      │ no attempt    │               │                  │
//!  attempt   ▼ may fit       ▼               ▼                  ▼
//!        its error       its report   Error::NoReport   a report of the guard's
//! ```
//!
//! `attempt` says which child is started next, and `kept_attempts` keeps what fitted. `watchdog`
//! has the states of a child that runs (`Running`) and how it ended (`End`); one that has written
//! its message before it is killed counts as `Reported`. `child` is the child's side, `message`
//! what the two give each other. `awaited` explains what a child that is late may wait for,
//! `crash_report` is the report of one that could not write any. `group` guards several ranks at
//! once. `session` is a replay that stops at calls.

pub(crate) mod attempt;
pub(crate) mod awaited;
mod child;
pub(crate) mod crash_report;
pub(crate) mod environment;
pub(crate) mod group;
pub(crate) mod kept_attempts;
mod message;
pub(crate) mod session;
mod watchdog;

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use cutape_format::Trace;

use crate::error::Error;
use crate::guard::attempt::{Attempt, Misfits};
use crate::guard::awaited::{Surroundings, tell_of_wait};
use crate::guard::crash_report::crash_report;
use crate::guard::environment::environment;
use crate::guard::kept_attempts::{KeptAttempts, TraceIdentity};
use crate::guard::message::{Message, SESSION, unexpected};
use crate::guard::watchdog::{Company, End, Watchers, failed, one_child};
use crate::observation::job::Observed;
use crate::plan::has_address_spaces;
use crate::process::position::Page;
use crate::process::strategy::PlacementStrategy;
use crate::report::Report;

pub use crate::guard::attempt::Guard;
pub use crate::guard::child::{
    observe_as_child, rerun_as_child, run_as_child, serve_as_child, trace_as_child,
};
pub use crate::guard::message::Measurements;

/// Replays in a child process that `command` makes: normally this executable with a hidden verb
/// that calls [`run_as_child`] with the same trace and options. `progress` gets the number of calls
/// that are done.
///
/// A child that a signal kills, or that hangs, becomes a report with `died`; one whose report was
/// complete keeps it, with `teardown`.
///
/// # Errors
///
/// What the child reports before it replays anything, [`Error::Child`] if it cannot be started,
/// [`Error::NoReport`] if it exits without a report.
pub fn run_guarded(
    trace: &Trace,
    command: &dyn Fn() -> Command,
    guard: &Guard,
    progress: &mut dyn FnMut(u64),
) -> Result<Report, Error> {
    match guarded(trace, command, guard, progress, None)? {
        (Ended::Reported(Message::Report(report)), misfits) => Ok(misfits.report_in(*report)),
        (Ended::Reported(_), _) => Err(unexpected()),
        (Ended::Died(report), misfits) => Ok(misfits.report_in(*report)),
    }
}

/// As [`run_guarded`], for a child that calls [`rerun_as_child`].
///
/// # Errors
///
/// As there; and [`Error::Measure`] with the report's text if the child died or hung.
pub fn rerun_guarded(
    trace: &Trace,
    command: &dyn Fn() -> Command,
    guard: &Guard,
    progress: &mut dyn FnMut(u64),
) -> Result<Measurements, Error> {
    match guarded(trace, command, guard, progress, None)? {
        (Ended::Reported(Message::Measurements(mut measurements)), misfits) => {
            let report = &mut measurements.outcome.report;
            *report = misfits.report_in(std::mem::take(report));
            Ok(*measurements)
        }
        (Ended::Reported(_), _) => Err(unexpected()),
        (Ended::Died(report), _) => Err(died(*report, "measuring")),
    }
}

/// As [`run_guarded`], for a child that calls [`observe_as_child`].
///
/// # Errors
///
/// As there; and [`Error::Measure`] with the report's text if the child died or hung.
pub fn observe_guarded(
    trace: &Trace,
    command: &dyn Fn() -> Command,
    guard: &Guard,
    progress: &mut dyn FnMut(u64),
) -> Result<Observed, Error> {
    match guarded(trace, command, guard, progress, None)? {
        (Ended::Reported(Message::Observed(mut observed)), misfits) => {
            observed.report = misfits.report_in(observed.report);
            Ok(*observed)
        }
        (Ended::Reported(_), _) => Err(unexpected()),
        (Ended::Died(report), _) => Err(died(*report, "replaying")),
    }
}

pub(crate) fn died(report: Report, what: &str) -> Error {
    Error::Measure {
        why: report.died.map_or_else(String::new, |died| {
            format!("the {what} process {}", died.text)
        }),
    }
}

/// How the last child ended.
enum Ended {
    Reported(Message),
    Died(Box<Report>),
}

/// How children are talked to while they replay.
struct Talk<'a> {
    /// Makes the end of the next child.
    connect: &'a mut dyn FnMut() -> io::Result<OwnedFd>,
    /// Set if the child is to be ended.
    cancel: &'a AtomicBool,
}

impl Talk<'_> {
    fn is_over(&self) -> bool {
        self.cancel.load(Ordering::Relaxed)
    }
}

/// Tries children until one fits; with those that did not.
fn guarded(
    trace: &Trace,
    command: &dyn Fn() -> Command,
    guard: &Guard,
    progress: &mut dyn FnMut(u64),
    mut talk: Option<Talk<'_>>,
) -> Result<(Ended, Misfits), Error> {
    let automatic = || match has_address_spaces(trace) {
        true => PlacementStrategy::Natural,
        false => PlacementStrategy::Granules,
    };
    let strategy = guard.placement.unwrap_or_else(automatic);
    let kept = KeptAttempts::read(guard)?;
    let identity = guard.keep_placement.as_ref();
    let identity = identity.map(|_| TraceIdentity::of(trace));
    let kept = kept.zip(identity.as_ref());
    let kept = kept.and_then(|(kept, identity)| kept.attempt(None, identity, guard));
    let mut next = kept.unwrap_or_else(|| Attempt::first(strategy, guard));
    let mut misfits = Misfits::default();
    loop {
        let mut command = command();
        command.envs(environment(trace));
        let page = Page::create().map_err(failed("sharing a page"))?;
        let mut awaited = Vec::new();
        let mut watchers = Watchers {
            progress,
            late: &mut |process, lasts| {
                awaited = awaited::explain(trace, &page, process, &Surroundings::none());
                tell_of_wait(guard, "", &page, lasts, &awaited);
            },
        };
        let mut company = Company::none(&page);
        if let Some(talk) = &mut talk {
            let end = (talk.connect)().map_err(failed("making a socket"))?;
            company.variables = vec![(SESSION, end.as_raw_fd().to_string())];
            company.given = vec![end];
            company.cancel = talk.cancel;
        }
        match one_child(command, guard, &next, company, &mut watchers)? {
            End::Failed(error) => {
                misfits.add(&error);
                next = next.after(error, guard)?;
            }
            End::Reported(mut message) => {
                if let Some(report) = message.report_mut() {
                    next.learn(report);
                }
                if let Some(identity) = identity {
                    KeptAttempts::of_trace(identity, &next).write(guard)?;
                }
                return Ok((Ended::Reported(message), misfits));
            }
            End::Died { .. } if talk.as_ref().is_some_and(Talk::is_over) => {
                return Ok((Ended::Died(Box::default()), misfits));
            }
            End::Died { status, hung } => {
                let report = crash_report(trace, status, &page, hung.then_some(awaited));
                return Ok((Ended::Died(Box::new(report)), misfits));
            }
            End::Silent(status) => {
                return Err(Error::NoReport {
                    how: status.to_string(),
                });
            }
        }
    }
}
