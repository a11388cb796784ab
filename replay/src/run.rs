//! A whole replay in this process.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use cutape_format::Trace;

use crate::api::Api;
use crate::calls::events::WorkEvents;
use crate::digests;
use crate::error::Error;
use crate::lent::late_writes;
use crate::measure::timing::Measure;
use crate::observation::job::{Observation, Observed};
use crate::observation::observer::Observer;
use crate::observation::session::Served;
use crate::options::{DigestedLaunches, Options};
use crate::plan::Plan;
use crate::player::{Player, ReplayState};
use crate::process::allocator;
use crate::process::position::Position;
use crate::process::randomisation::is_randomised;
use crate::process::waiting_threads::WaitingThreads;
use crate::report::Report;
use crate::rerun::{Outcome, Rerun};
use crate::schedule::running::{READER_STACK, STACK};
use crate::schedule::threads::{self, main_thread};

/// Re-issues a trace's calls on a driver in this process, and compares.
///
/// `progress` gets the number of calls that are done, on the calling thread. What the trace leaves
/// in the driver (contexts, memory) stays until the process ends, as does what placement reserved.
/// A driver that crashes takes this process with it, and one that does not return keeps it;
/// [`run_guarded`](crate::run_guarded) is the way around both.
///
/// # Errors
///
/// [`Error::Driver`], [`Error::Machine`] (unless `force`), [`Error::Devices`], [`Error::Setup`],
/// and [`Error::Conflict`] if `refuse_conflicts` is set. Differences from the recording are no
/// errors but in the report.
pub fn replay(
    trace: &Trace,
    plan: &Plan,
    options: &Options,
    progress: &mut dyn FnMut(u64),
) -> Result<Report, Error> {
    replay_watched(
        trace,
        plan,
        options,
        &Arc::new(Position::default()),
        progress,
    )
}

/// As [`replay`], telling `position` which call is in the driver.
pub(crate) fn replay_watched(
    trace: &Trace,
    plan: &Plan,
    options: &Options,
    position: &Arc<Position>,
    progress: &mut dyn FnMut(u64),
) -> Result<Report, Error> {
    let (state, _) = play_all(trace, plan, options, position, progress, Hooks::default())?;
    Ok(state.report)
}

/// Replays for a measurement, which each call is handed to.
pub(crate) fn replay_measured(
    trace: &Trace,
    plan: &Plan,
    options: &Options,
    position: &Arc<Position>,
    rerun: Rerun,
) -> Result<Outcome, Error> {
    let hooks = Hooks {
        rerun: Some(Box::new(rerun)),
        ..Hooks::default()
    };
    let (state, rerun) = play_all(trace, plan, options, position, &mut |_| {}, hooks)?;
    let mut outcome = rerun.map(|rerun| rerun.outcome).unwrap_or_default();
    if outcome.subjects.is_empty() {
        let why = outcome.nothing_repeated();
        return Err(Error::Measure { why });
    }
    outcome.report = state.report;
    Ok(outcome)
}

/// Replays, and reads memory around chosen calls.
pub(crate) fn replay_observed(
    trace: &Trace,
    plan: &Plan,
    options: &Options,
    position: &Arc<Position>,
    job: Observation,
) -> Result<Observed, Error> {
    let observer = Some(Box::new(Observer::new(job)?));
    let hooks = Hooks {
        observer,
        ..Hooks::default()
    };
    let (mut state, _) = play_all(trace, plan, options, position, &mut |_| {}, hooks)?;
    let observed = state.observer.take().map(|observer| observer.finish());
    let observed = observed.transpose()?.unwrap_or_default();
    let api = &state.api;
    let devices = 0..api.device_count().unwrap_or(0);
    Ok(Observed {
        driver_version: api.driver_version().unwrap_or(0),
        devices: devices
            .filter_map(|device| api.device_name(device).ok())
            .collect(),
        report: state.report,
        ..observed
    })
}

/// Replays, and stops where a session asks to.
pub(crate) fn replay_served(
    trace: &Trace,
    plan: &Plan,
    options: &Options,
    position: &Arc<Position>,
    session: Served,
) -> Result<Report, Error> {
    let mut observer = Observer::new(Observation::default())?;
    observer.session = Some(session);
    let hooks = Hooks {
        observer: Some(Box::new(observer)),
        ..Hooks::default()
    };
    let (state, _) = play_all(trace, plan, options, position, &mut |_| {}, hooks)?;
    Ok(state.report)
}

/// What goes along with a replay.
#[derive(Default)]
struct Hooks {
    rerun: Option<Box<Rerun>>,
    observer: Option<Box<Observer>>,
}

fn play_all<'t>(
    trace: &'t Trace,
    plan: &'t Plan,
    options: &'t Options,
    position: &Arc<Position>,
    progress: &mut dyn FnMut(u64),
    hooks: Hooks,
) -> Result<(Box<ReplayState<'t>>, Option<Box<Rerun>>), Error> {
    let until = options.until.unwrap_or(u64::MAX);
    let until = match options.launches {
        DigestedLaunches::One(launch) => until.min(launch.saturating_add(1)),
        _ => until,
    };
    let (end, chosen) = match &options.calls {
        None => (until, plan.calls.min(until)),
        Some(selected) => trace
            .calls()
            .filter(|call| call.index < until && selected(call))
            .fold((0, 0), |(_, chosen), call| (call.index + 1, chosen + 1)),
    };
    position.planned.store(1, Ordering::Relaxed);
    let api = Arc::new(Api::open(&options.driver)?);
    let state = ReplayState::new(trace, plan, api, options, Arc::clone(position));
    let mut player = Player::new(Box::new(state), None);
    player.observer = hooks.observer;
    player.issuer.measure = Measure::new(options.timing, chosen);
    let tracer = options.tracer.as_ref().map(|tracer| &tracer.0);
    if let Some(tracer) = tracer {
        tracer.begins().map_err(|why| Error::Measure { why })?;
    }
    let wants_events = tracer.is_some_and(|tracer| tracer.wants_events());
    player.issuer.events = wants_events.then(WorkEvents::default);
    player.report.randomised = is_randomised();
    for (name, _) in trace.forwarded() {
        player.report.unknown(name);
    }
    // The threads of the replay, the one that reads ahead, and the one of late writes.
    let threads = player.is_natural().then(|| {
        allocator::keep_apart();
        let others = trace.thread_count() - usize::from(main_thread(trace).is_some());
        let stacks = std::iter::repeat_n(STACK, others);
        WaitingThreads::start(stacks.chain([READER_STACK, late_writes::STACK]))
    });
    let threads = threads.transpose();
    let threads = threads.map_err(|error| Error::child("starting a thread", error))?;
    let begin = Instant::now();
    player.begin()?;
    if let Some(threads) = threads {
        threads.end();
    }
    let done = || position.done.load(Ordering::Relaxed);
    let mut tell = || progress(done());
    let (mut player, rerun) = threads::play(trace, player, hooks.rerun, end, &mut tell)?;
    if let Some(tracer) = tracer {
        let waited = player.wait_for_all_work();
        let state = &mut *player;
        if let Some(mut events) = state.issuer.events.take() {
            events.read(&state.api, tracer.as_ref(), waited.is_ok());
        }
        tracer.ends();
    }
    digests::finish(&mut player);
    let (mut state, _) = player.into_parts();
    state.report.in_call_order();
    state.report.consequences = state.consequences.take();
    if options.launches != DigestedLaunches::None {
        state.report.launch_values = Some(state.launch_digests.take());
    }
    let unread = state.readbacks.give_up();
    if unread > 0 {
        state.report.bytes_not_compared += unread;
        state.report.note(
            "copies back whose arrival the recording does not prove: their bytes are not compared",
        );
    }
    let kept = &mut *state;
    kept.issuer
        .finish(&mut kept.report, trace.ticks_per_second());
    state.report.wall_seconds = begin.elapsed().as_secs_f64();
    Ok((state, rerun))
}

#[cfg(test)]
mod tests {
    use cutape_format::{NewCall, TraceBuilder};

    use super::*;

    /// The watchdog counts from when the child says so: after all that reads the trace.
    #[test]
    fn a_replay_begins_when_the_trace_has_been_read() {
        let mut builder = TraceBuilder::new(cutape_registry::SIGNATURE_TEXT);
        builder.call(NewCall {
            name: "cuInit",
            arguments: &[0],
            ..NewCall::default()
        });
        builder.leave(0, 0, &[]);
        let path = std::env::temp_dir().join(format!("cutape-begin-{}", std::process::id()));
        builder.write(&path).unwrap();
        let trace = Trace::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let position = Arc::new(Position::default());
        let mut options = Options::new("/no/driver".into());
        let selecting = Arc::clone(&position);
        options.calls = Some(Arc::new(move |_| {
            assert_eq!(selecting.planned.load(Ordering::Relaxed), 0);
            true
        }));
        let plan = Plan::default();
        let tried = replay_watched(&trace, &plan, &options, &position, &mut |_| {});
        assert!(matches!(tried, Err(Error::Driver { .. })), "{tried:?}");
        assert_eq!(position.planned.load(Ordering::Relaxed), 1);
    }
}
