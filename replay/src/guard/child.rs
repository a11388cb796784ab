//! The child's side: replays as its parent has assigned, and writes what it has found.

use std::fs::File;
use std::io::Write;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use cutape_format::Trace;
use cutape_sandbox::Permissions;

use crate::error::Error;
use crate::guard::attempt::Assignment;
use crate::guard::message::{ASSIGNMENT, EXIT_REPORTED, Measurements, Message, SESSION, VARIABLE};
use crate::observation::job::Observation;
use crate::observation::session::Served;
use crate::options::Options;
use crate::plan::{Plan, plan};
use crate::process::position::{Page, Position};
use crate::ranks::peers::Peers;
use crate::rerun::{Job, Measure, Outcome, Rerun};
use crate::run::{replay_measured, replay_observed, replay_served, replay_watched};

/// The page and the pipe.
fn descriptors(text: &str) -> Option<(RawFd, RawFd)> {
    let mut parts = text.split(',');
    let mut next = || {
        parts
            .next()?
            .parse::<RawFd>()
            .ok()
            .filter(|&number| number >= 0)
    };
    Some((next()?, next()?))
}

/// The child's side of [`run_guarded`](crate::run_guarded): replays and reports through the pipe.
/// Returns the exit status for the process.
///
/// Outside of [`run_guarded`](crate::run_guarded) it returns 2 and does nothing.
pub fn run_as_child(trace: &Trace, options: &Options) -> i32 {
    as_child(trace, options, |plan, options, position| {
        let report = replay_watched(trace, plan, options, position, &mut |_| {})?;
        Ok(Message::Report(Box::new(report)))
    })
}

/// The child's side of [`rerun_guarded`](crate::rerun_guarded): replays up to the calls of the job
/// and has them measured; `results` is asked for the measurements afterwards. Returns the exit
/// status for the process.
///
/// Outside of [`rerun_guarded`](crate::rerun_guarded) it returns 2 and does nothing.
pub fn rerun_as_child(
    trace: &Trace,
    options: &Options,
    job: Job,
    measure: Measure,
    results: &dyn Fn() -> serde_json::Value,
) -> i32 {
    as_child(trace, options, |plan, options, position| {
        let rerun = Rerun::new(job, measure, Arc::clone(position));
        let outcome = replay_measured(trace, plan, options, position, rerun)?;
        let results = results();
        Ok(Message::Measurements(Box::new(Measurements {
            outcome,
            results,
        })))
    })
}

/// The child's side of [`rerun_guarded`](crate::rerun_guarded) for a trace that is replayed once,
/// with a [`Tracer`](crate::Tracer) in the options; `results` is asked for what that has measured.
/// Returns the exit status for the process.
///
/// Outside of [`rerun_guarded`](crate::rerun_guarded) it returns 2 and does nothing.
pub fn trace_as_child(
    trace: &Trace,
    options: &Options,
    results: &dyn Fn() -> serde_json::Value,
) -> i32 {
    as_child(trace, options, |plan, options, position| {
        let report = replay_watched(trace, plan, options, position, &mut |_| {})?;
        Ok(Message::Measurements(Box::new(Measurements {
            outcome: Outcome {
                report,
                ..Outcome::default()
            },
            results: results(),
        })))
    })
}

/// The child's side of [`observe_guarded`](crate::observe_guarded): replays, and reads memory
/// around the calls of the job. Returns the exit status for the process.
///
/// Each attempt writes the file of contents anew: one that an earlier child left is removed.
///
/// Outside of [`observe_guarded`](crate::observe_guarded) it returns 2 and does nothing.
pub fn observe_as_child(trace: &Trace, options: &Options, job: Observation) -> i32 {
    let mut options = options.clone();
    let folder = job.contents.parent().map(ToOwned::to_owned);
    if let (Some(permissions), Some(folder)) = (&mut options.sandbox, folder) {
        permissions.writable.push(folder);
    }
    as_child(trace, &options, |plan, options, position| {
        let _ = std::fs::remove_file(&job.contents);
        let observed = replay_observed(trace, plan, options, position, job)?;
        Ok(Message::Observed(Box::new(observed)))
    })
}

/// The child's side of [`Session`](crate::Session): replays, and stops where it is asked to.
/// Returns the exit status for the process.
///
/// Outside of a session it returns 2 and does nothing.
pub fn serve_as_child(trace: &Trace, options: &Options) -> i32 {
    let variable = std::env::var(SESSION).ok();
    let Some(end) = variable.and_then(|text| text.parse::<RawFd>().ok()) else {
        return 2;
    };
    // SAFETY: no other thread of this process has been started by us yet.
    unsafe { std::env::remove_var(SESSION) };
    // SAFETY: the guarding parent left this descriptor open for this process; nothing else uses it.
    let stream = UnixStream::from(unsafe { OwnedFd::from_raw_fd(end) });
    let Ok(session) = Served::new(stream) else {
        return 2;
    };
    as_child(trace, options, |plan, options, position| {
        let report = replay_served(trace, plan, options, position, session)?;
        Ok(Message::Report(Box::new(report)))
    })
}

/// Enters the sandbox. A tool that the user has loaded into this process may need what it forbids.
fn restrict(permissions: &Permissions) {
    if let Some(variable) = cutape_sandbox::tool_in_process() {
        tracing::warn!("the replay is not sandboxed, for the tool that {variable} loads into it");
        return;
    }
    for layer in cutape_sandbox::enter(permissions) {
        tracing::info!("sandbox: {layer}");
    }
}

fn as_child(
    trace: &Trace,
    options: &Options,
    work: impl FnOnce(&Plan, &Options, &Arc<Position>) -> Result<Message, Error>,
) -> i32 {
    let variable = |name| std::env::var(name).ok();
    let given = variable(VARIABLE).and_then(|text| descriptors(&text));
    let assignment = variable(ASSIGNMENT).and_then(|text| serde_json::from_str(&text).ok());
    let (Some((page, pipe)), Some(assignment)) = (given, assignment) else {
        return 2;
    };
    let Assignment {
        strategy,
        lessons,
        waiting_launches,
        is_last,
    } = assignment;
    // What the driver starts must not take itself for a child of ours.
    // SAFETY: no other thread of this process has been started by us yet.
    unsafe {
        std::env::remove_var(VARIABLE);
        std::env::remove_var(ASSIGNMENT);
    }
    // SAFETY: as above; the variable is the guarding parent's.
    let Ok(peers) = (unsafe { Peers::from_environment() }) else {
        return 2;
    };
    // SAFETY: the guarding parent left these two descriptors open for this process; nothing else
    // uses them.
    let (page, pipe) = unsafe { (OwnedFd::from_raw_fd(page), OwnedFd::from_raw_fd(pipe)) };
    let Ok(page) = Page::map(page) else { return 2 };
    if let Some(permissions) = &options.sandbox {
        restrict(&Permissions {
            has_peers: peers.is_some(),
            ..permissions.clone()
        });
    }
    let plan: Plan = plan(trace);
    if let Some(mode) = plan.loading_mode {
        // The program may have set it for itself.
        // SAFETY: as above; planning starts no thread.
        unsafe { std::env::set_var("CUDA_MODULE_LOADING", mode) };
    }
    let options = Options {
        placement: strategy,
        lessons,
        waiting_launches,
        refuse_conflicts: !is_last,
        peers: peers.map(Arc::new),
        ..options.clone()
    };
    let position = Arc::new(Position::Shared(page));
    let message = match work(&plan, &options, &position) {
        Ok(message) => message,
        Err(error) => Message::Failed(error),
    };
    let Ok(text) = serde_json::to_vec(&message) else {
        return 2;
    };
    let peers = options
        .peers
        .as_ref()
        .filter(|_| !matches!(message, Message::Failed(_)));
    if let Some(peers) = peers {
        peers.finish();
    }
    if File::from(pipe).write_all(&text).is_err() {
        return 2;
    }
    if let Some(peers) = peers {
        peers.wait_for_release(&position);
    }
    EXIT_REPORTED
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_childs_descriptors_are_read() {
        for (text, expected) in [
            ("3,4", Some((3, 4))),
            ("3", None),
            ("3,-4", None),
            ("", None),
            ("a,b", None),
        ] {
            assert_eq!(descriptors(text), expected, "{text}");
        }
    }
}
