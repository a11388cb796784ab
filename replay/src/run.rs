//! A whole replay in this process.

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use cutape_format::{Call, Trace};

use crate::api::Api;
use crate::error::Error;
use crate::guard::{Position, is_randomised};
use crate::issue::player::Player;
use crate::measure::timing::{Measure, Measuring};
use crate::plan::Plan;
use crate::report::Report;
use crate::rerun::{Outcome, Rerun};
use crate::schedule::threads;

/// Which calls are compared; all that come before the last of them are re-issued, since later ones depend on them.
pub type Selection = Arc<dyn Fn(&Call<'_>) -> bool + Send + Sync>;

/// How to replay.
#[derive(Clone)]
pub struct Options {
    /// The libcuda to use.
    pub driver: PathBuf,
    /// Stop before the call of that index.
    pub until: Option<u64>,
    /// Compare only these calls, and stop behind the last of them.
    pub calls: Option<Selection>,
    /// Go on after a divergence.
    pub keep_going: bool,
    /// Measure instead of comparing bytes; the calls in `calls` if there are such.
    pub timing: Measuring,
    /// Let recorded threads run at once as far as they did when recorded, instead of taking turns.
    pub threads: bool,
    /// Go on although the machine does not fit.
    pub force: bool,
    /// How long one call may take before the guard ends the process.
    pub watchdog: Duration,
    /// Put memory at its recorded address.
    pub placement: bool,
    /// Devices by ordinal, recorded and here; the others are matched by what they are.
    pub devices: Vec<(u32, u32)>,
    /// Give up at once if an address range is taken, so that a fresh process can try.
    pub refuse_conflicts: bool,
}

impl Options {
    /// Everything as recorded, on that driver.
    pub fn new(driver: PathBuf) -> Self {
        Self {
            driver,
            until: None,
            calls: None,
            keep_going: false,
            timing: Measuring::Nothing,
            threads: false,
            force: false,
            watchdog: Duration::from_secs(60),
            placement: true,
            devices: Vec::new(),
            refuse_conflicts: false,
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Options")
            .field("driver", &self.driver)
            .field("until", &self.until)
            .field("calls", &self.calls.is_some())
            .field("keep_going", &self.keep_going)
            .field("timing", &self.timing)
            .field("threads", &self.threads)
            .field("force", &self.force)
            .field("watchdog", &self.watchdog)
            .field("placement", &self.placement)
            .field("devices", &self.devices)
            .finish_non_exhaustive()
    }
}

/// Stack of a replaying thread: drivers compile on the calling thread.
const STACK: usize = 16 << 20;
/// How often `progress` is told.
const PROGRESS_EVERY: Duration = Duration::from_millis(100);

/// Re-issues a trace's calls on a driver in this process, and compares.
///
/// `progress` is told how many calls are done, from the calling thread. What the trace leaves behind on the driver (contexts,
/// memory) stays until the process ends, as does what placement reserved. A driver that crashes takes this process with it,
/// and one that does not return keeps it; [`run_guarded`](crate::run_guarded) is the way around both.
///
/// # Errors
///
/// [`Error::Driver`], [`Error::Machine`] (unless `force`), [`Error::Devices`], [`Error::Setup`], and [`Error::Conflict`] if
/// `refuse_conflicts` is set. Differences from the recording are no errors but in the report.
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
    let player = play_all(trace, plan, options, position, progress, None)?;
    Ok(player.report)
}

/// Replays for a measurement, which each call is handed to.
pub(crate) fn replay_measured(
    trace: &Trace,
    plan: &Plan,
    options: &Options,
    position: &Arc<Position>,
    rerun: Rerun,
) -> Result<Outcome, Error> {
    let rerun = Some(Box::new(rerun));
    let player = play_all(trace, plan, options, position, &mut |_| {}, rerun)?;
    let mut outcome = player.rerun.map(|rerun| rerun.outcome).unwrap_or_default();
    outcome.report = player.report;
    Ok(outcome)
}

fn play_all<'t>(
    trace: &'t Trace,
    plan: &'t Plan,
    options: &Options,
    position: &Arc<Position>,
    progress: &mut dyn FnMut(u64),
    rerun: Option<Box<Rerun>>,
) -> Result<Player<'t>, Error> {
    let until = options.until.unwrap_or(u64::MAX);
    let (end, chosen) = match &options.calls {
        None => (until, plan.calls.min(until)),
        Some(selected) => trace
            .calls()
            .filter(|call| call.index < until && selected(call))
            .fold((0, 0), |(_, chosen), call| (call.index + 1, chosen + 1)),
    };
    let api = Arc::new(Api::open(&options.driver)?);
    let mut player = Player::new(trace, plan, api, options, Arc::clone(position));
    player.measure = Measure::new(options.timing, chosen);
    player.report.randomised = is_randomised();
    for (name, _) in trace.forwarded() {
        player.report.unknown(name);
    }
    player.rerun = rerun;
    let begin = Instant::now();
    player.begin()?;
    let done = || position.done.load(Ordering::Relaxed);
    let mut tell = || progress(done());
    let mut player = threads::play(trace, player, options, end, &mut tell)?;
    player.finish();
    player.report.wall_seconds = begin.elapsed().as_secs_f64();
    Ok(player)
}

/// Whether a call is compared, or measured.
pub(crate) fn is_selected(options: &Options, call: &Call<'_>) -> bool {
    options.calls.as_ref().is_none_or(|selected| selected(call))
}

/// Starts the thread that plays what a recorded thread did.
pub(crate) fn start<'scope>(
    scope: &'scope Scope<'scope, '_>,
    thread: u32,
    work: impl FnOnce() + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, ()>, Error> {
    std::thread::Builder::new()
        .name(format!("recorded {thread}"))
        .stack_size(STACK)
        .spawn_scoped(scope, work)
        .map_err(|source| Error::Child {
            what: "starting a thread",
            source,
        })
}

/// How many threads of a replay run.
#[derive(Debug, Default)]
pub(crate) struct Running {
    count: Mutex<usize>,
    none: Condvar,
}

/// One of them, while it lives.
pub(crate) struct Runner<'r>(&'r Running);

impl Running {
    fn lock(&self) -> MutexGuard<'_, usize> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Another thread is about to run.
    pub(crate) fn enter(&self) -> Runner<'_> {
        *self.lock() += 1;
        Runner(self)
    }

    /// Waits until none runs, calling `tell` now and then.
    pub(crate) fn wait(&self, tell: &mut dyn FnMut()) {
        let mut count = self.lock();
        while *count > 0 {
            let waited = self.none.wait_timeout(count, PROGRESS_EVERY);
            count = waited.unwrap_or_else(PoisonError::into_inner).0;
            tell();
        }
    }
}

impl Drop for Runner<'_> {
    fn drop(&mut self) {
        let mut count = self.0.lock();
        *count -= 1;
        if *count == 0 {
            self.0.none.notify_all();
        }
    }
}
