//! A line of progress on stderr for long work, if stderr is a terminal: how much, how fast, how
//! long it will take.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{IsTerminal, stderr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use cutape_format::Trace;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use cutape_render::quantity::{bytes, grouped};

/// Shorter work shows nothing.
const PATIENCE: Duration = Duration::from_millis(500);
/// Steps between two reads of the clock.
const STRIDE: u64 = 256;
/// Time between two looks at a counter.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Things of this name, in the plural.
    Things(&'static str),
    /// Bytes, with a prefix.
    Bytes,
}

impl Unit {
    fn amount(self, number: u64) -> String {
        match self {
            Self::Things(name) => format!("{} {name}", grouped(number)),
            Self::Bytes => bytes(number),
        }
    }
}

/// The progress of some work. Draws only if stderr is a terminal and the work takes longer than
/// half a second; erases the line when dropped.
#[derive(Debug)]
pub struct Progress {
    /// What is done, e.g. `checking`.
    activity: Cow<'static, str>,
    unit: Unit,
    /// How much there is, if known.
    total: Option<u64>,
    done: u64,
    started: Instant,
    enabled: bool,
    bar: Option<ProgressBar>,
}

/// The progress of several that work at once, each with its own count.
#[derive(Debug)]
pub struct JointProgress(Mutex<(Progress, Vec<u64>)>);

impl JointProgress {
    /// Starts one over all calls of the traces; each of them counts its own.
    pub fn over_calls<'t>(
        activity: impl Into<Cow<'static, str>>,
        traces: impl ExactSizeIterator<Item = &'t Trace>,
    ) -> Self {
        let counts = vec![0; traces.len()];
        Self(Mutex::new((Progress::over_calls(activity, traces), counts)))
    }

    /// What one of them has done.
    pub fn reach(&self, number: usize, done: u64) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (progress, counts) = &mut *state;
        if let Some(known) = counts.get_mut(number) {
            *known = done;
        }
        progress.reach(counts.iter().sum());
    }
}

impl Progress {
    /// Starts.
    pub fn new(activity: impl Into<Cow<'static, str>>, unit: Unit, total: Option<u64>) -> Self {
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        Self {
            activity: activity.into(),
            unit,
            total: total.filter(|total| *total > 0),
            done: 0,
            started: Instant::now(),
            enabled: stderr().is_terminal() && !is_dumb,
            bar: None,
        }
    }

    /// Starts work on all calls of some traces.
    pub fn over_calls<'t>(
        activity: impl Into<Cow<'static, str>>,
        traces: impl IntoIterator<Item = &'t Trace>,
    ) -> Self {
        let counts = traces.into_iter().map(Trace::counted_calls);
        Self::new(activity, Unit::Things("calls"), counts.sum())
    }

    /// Never draws: for work that prints to the same terminal.
    pub fn hidden() -> Self {
        let mut hidden = Self::new("", Unit::Bytes, None);
        hidden.enabled = false;
        hidden
    }

    /// Counts one step.
    #[inline]
    pub fn step(&mut self) {
        self.done += 1;
        if self.enabled && self.done.is_multiple_of(STRIDE) {
            self.draw();
        }
    }

    /// Sets the number of steps done. A smaller one than before begins anew.
    pub fn reach(&mut self, done: u64) {
        if done < self.done {
            self.started = Instant::now();
            self.bar = None;
        }
        self.done = done;
        if self.enabled {
            self.draw();
        }
    }

    /// Does the work, and shows the counter that it increases meanwhile.
    pub fn watch<R>(mut self, counter: &AtomicU64, work: impl FnOnce() -> R) -> R {
        if !self.enabled {
            return work();
        }
        thread::scope(|scope| {
            let (stop, stopped) = channel::<()>();
            // Without a thread the work is done all the same.
            let _ = thread::Builder::new().spawn_scoped(scope, move || {
                while stopped.recv_timeout(POLL_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                    self.reach(counter.load(Ordering::Relaxed));
                }
            });
            let result = work();
            drop(stop);
            result
        })
    }

    #[cold]
    fn draw(&mut self) {
        if self.bar.is_none() && self.started.elapsed() >= PATIENCE {
            self.bar = Some(self.make_bar());
        }
        if let Some(bar) = &self.bar {
            bar.set_position(self.done);
        }
    }

    fn make_bar(&self) -> ProgressBar {
        let template = match self.total {
            Some(_) => "{msg} [{bar:24}] {state}",
            None => "{msg} {state}",
        };
        let bar = ProgressBar::with_draw_target(self.total, ProgressDrawTarget::stderr());
        let (unit, total, started) = (self.unit, self.total, self.started);
        let state = move |now: &ProgressState, out: &mut dyn std::fmt::Write| {
            let _ = out.write_str(&state(unit, now.pos(), total, started.elapsed()));
        };
        let bar = bar.with_message(self.activity.clone());
        match ProgressStyle::with_template(template) {
            Ok(style) => bar.with_style(style.with_key("state", state).progress_chars("=> ")),
            Err(_) => bar,
        }
    }
}

/// How much is done, how much of it in a second, and how long the rest will take.
fn state(unit: Unit, done: u64, total: Option<u64>, elapsed: Duration) -> String {
    let rate = done as f64 / elapsed.as_secs_f64().max(1e-3);
    let mut text = match total {
        Some(total) => {
            let percent = 100.0 * done as f64 / total as f64;
            format!("{:.0}% of {}", percent.min(100.0), unit.amount(total))
        }
        None => unit.amount(done),
    };
    let shown = match unit {
        Unit::Things(_) if rate >= 10.0 => grouped(rate as u64),
        Unit::Things(_) => format!("{rate:.1}"),
        Unit::Bytes => bytes(rate as u64),
    };
    // Writing to a String never fails.
    let _ = write!(text, ", {shown}/s");
    let left = total.and_then(|total| total.checked_sub(done));
    let _ = match left.filter(|_| rate > 0.0) {
        Some(left) => write!(text, ", {} left", clock(left as f64 / rate)),
        None => write!(text, ", {}", clock(elapsed.as_secs_f64())),
    };
    text
}

/// `42 s`, `3:05`, `1:02:05`.
fn clock(seconds: f64) -> String {
    let seconds = seconds.ceil() as u64;
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{minutes}:{:02}", seconds % 60),
        _ => format!("{hours}:{minutes:02}:{:02}", seconds % 60),
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALLS: Unit = Unit::Things("calls");

    #[test]
    fn draws_only_long_enabled_work() {
        for (enabled, long, drawn) in [
            (true, true, true),
            (true, false, false),
            (false, true, false),
        ] {
            let mut progress = Progress::new("checking", CALLS, None);
            progress.enabled = enabled;
            if long && let Some(earlier) = progress.started.checked_sub(2 * PATIENCE) {
                progress.started = earlier;
            }
            for _ in 0..2 * STRIDE {
                progress.step();
            }
            assert_eq!(
                progress.bar.is_some(),
                drawn,
                "enabled {enabled}, long {long}"
            );
            assert_eq!(
                progress.bar.as_ref().map(ProgressBar::position),
                drawn.then_some(2 * STRIDE)
            );
            progress.reach(1);
            assert!(progress.bar.is_none(), "what begins anew is short so far");
        }
        let mut hidden = Progress::hidden();
        hidden.step();
        assert!(!hidden.enabled && hidden.bar.is_none());
    }

    #[test]
    fn states() {
        for (unit, done, total, seconds, expected) in [
            (CALLS, 50_000, None, 5, "50,000 calls, 10,000/s, 5 s"),
            (CALLS, 5, None, 10, "5 calls, 0.5/s, 10 s"),
            (
                CALLS,
                1_000_000,
                Some(4_000_000),
                1,
                "25% of 4,000,000 calls, 1,000,000/s, 3 s left",
            ),
            (CALLS, 8, Some(7), 1, "100% of 7 calls, 8.0/s, 1 s"),
            (CALLS, 0, Some(7), 1, "0% of 7 calls, 0.0/s, 1 s"),
            (Unit::Bytes, 8 << 20, None, 4, "8.0 MiB, 2.0 MiB/s, 4 s"),
        ] {
            let elapsed = Duration::from_secs(seconds);
            assert_eq!(state(unit, done, total, elapsed), expected);
        }
        for (seconds, expected) in [(0.2, "1 s"), (60.0, "1:00"), (3725.0, "1:02:05")] {
            assert_eq!(clock(seconds), expected);
        }
    }

    #[test]
    fn watched_work_gives_its_result() {
        let counter = AtomicU64::new(0);
        for enabled in [true, false] {
            let mut progress = Progress::new("packing", Unit::Bytes, None);
            progress.enabled = enabled;
            let work = || counter.fetch_add(7, Ordering::Relaxed) + 1;
            assert_eq!(progress.watch(&counter, work) % 7, 1);
        }
    }
}
