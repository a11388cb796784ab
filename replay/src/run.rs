//! A whole replay in this process: recorded threads take turns in the recorded order.

use std::collections::HashMap;
use std::fmt;
use std::iter::Peekable;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use cutape_format::{Call, Trace};

use crate::api::Api;
use crate::error::Error;
use crate::guard::{Position, is_randomised};
use crate::interpret::Player;
use crate::order::Ordered;
use crate::plan::Plan;
use crate::report::Report;
use crate::rerun::{Outcome, Rerun};

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
    /// Measure each function instead of comparing bytes.
    pub timing: bool,
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
            timing: false,
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
/// memory) stays until the process ends, as does what placement reserved. A driver that crashes takes this process with it;
/// [`run_guarded`](crate::run_guarded) is the way around that.
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
    let last = options.calls.as_ref().map(|selected| {
        trace
            .calls()
            .filter(|call| selected(call))
            .map(|call| call.index)
            .last()
    });
    let end = match (options.until, last) {
        (until, Some(last)) => until
            .unwrap_or(u64::MAX)
            .min(last.map_or(0, |last| last + 1)),
        (Some(until), None) => until,
        (None, None) => u64::MAX,
    };
    let api = Api::open(&options.driver)?;
    let mut player = Player::new(trace, plan, api, options, Arc::clone(position));
    player.report.randomised = is_randomised();
    for (name, _) in trace.forwarded() {
        player.report.unknown(name);
    }
    player.rerun = rerun;
    let begin = Instant::now();
    player.begin()?;
    let turns = Turns {
        table: Mutex::new(Table {
            player,
            calls: Ordered::new(trace, end).peekable(),
            turn: Turn::Nobody,
            done: 0,
            error: None,
        }),
        changed: Condvar::new(),
        selection: options.calls.clone(),
        keep_going: options.keep_going,
        position: Arc::clone(position),
    };
    std::thread::scope(|scope| {
        let mut threads = HashMap::new();
        let mut table = turns.lock();
        table.pass_on();
        loop {
            match table.turn {
                Turn::Over => break,
                Turn::Of(thread) => {
                    if let std::collections::hash_map::Entry::Vacant(place) = threads.entry(thread)
                    {
                        match start(scope, &turns, thread) {
                            Ok(handle) => {
                                place.insert(handle);
                            }
                            Err(source) => {
                                table.error = Some(Error::Child {
                                    what: "starting a thread",
                                    source,
                                });
                                table.turn = Turn::Over;
                                turns.changed.notify_all();
                                break;
                            }
                        }
                    }
                }
                Turn::Nobody => table.pass_on(),
            }
            progress(table.done);
            let waited = turns.changed.wait_timeout(table, PROGRESS_EVERY);
            table = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let done = table.done;
        drop(table);
        progress(done);
    });
    let mut table = turns
        .table
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    if let Some(error) = table.error {
        return Err(error);
    }
    table.player.finish();
    table.player.report.wall_seconds = begin.elapsed().as_secs_f64();
    Ok(table.player)
}

fn start<'scope, 'turns: 'scope>(
    scope: &'scope Scope<'scope, '_>,
    turns: &'turns Turns<'_>,
    thread: u32,
) -> std::io::Result<ScopedJoinHandle<'scope, ()>> {
    std::thread::Builder::new()
        .name(format!("recorded {thread}"))
        .stack_size(STACK)
        .spawn_scoped(scope, move || turns.take(thread))
}

/// Whose call is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    Nobody,
    Of(u32),
    Over,
}

/// What the threads pass around: whoever holds it plays.
struct Table<'t> {
    player: Player<'t>,
    calls: Peekable<Ordered<'t>>,
    turn: Turn,
    done: u64,
    error: Option<Error>,
}

impl Table<'_> {
    /// Gives the turn to the thread of the next call.
    fn pass_on(&mut self) {
        self.turn = self
            .calls
            .peek()
            .map_or(Turn::Over, |call| Turn::Of(call.thread));
    }
}

struct Turns<'t> {
    table: Mutex<Table<'t>>,
    changed: Condvar,
    selection: Option<Selection>,
    keep_going: bool,
    position: Arc<Position>,
}

impl<'t> Turns<'t> {
    fn lock(&self) -> MutexGuard<'_, Table<'t>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A recorded thread: plays its calls when it is its turn, until all is over.
    fn take(&self, thread: u32) {
        let mut table = self.lock();
        loop {
            while table.turn != Turn::Of(thread) {
                if table.turn == Turn::Over {
                    return;
                }
                table = self
                    .changed
                    .wait(table)
                    .unwrap_or_else(PoisonError::into_inner);
            }
            while table.turn == Turn::Of(thread) {
                self.play_next(&mut table);
            }
            self.changed.notify_all();
        }
    }

    fn play_next(&self, table: &mut Table<'t>) {
        let Some(call) = table.calls.next() else {
            table.turn = Turn::Over;
            return;
        };
        let compared = self
            .selection
            .as_ref()
            .is_none_or(|selected| selected(&call));
        table.player.comparing = compared;
        if !compared {
            table.player.report.calls_not_compared += 1;
        }
        let outcome = table.player.play(&call);
        table.done += 1;
        self.position
            .done
            .store(table.done, std::sync::atomic::Ordering::Relaxed);
        let stop = table.player.report.divergence_count > 0 && !self.keep_going;
        match outcome {
            Err(error) => {
                table.error = Some(error);
                table.turn = Turn::Over;
            }
            Ok(()) if stop => table.turn = Turn::Over,
            Ok(()) => table.pass_on(),
        }
    }
}
