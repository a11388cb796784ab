//! Recordings that start and pause when cutape gets a signal, through the control chunks of their
//! traces.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use cutape_format::{LiveControl, Trace};
use cutape_render::quantity;
use cutape_terminal::message;

use crate::family::new_family;
use crate::options::Recording;
use crate::signals::UserSignal;
use crate::until_dropped::UntilDropped;

/// Between two looks whether a signal has come.
const POLL: Duration = Duration::from_millis(20);
/// Between two looks whether there are new traces.
const LIST: Duration = Duration::from_millis(500);

/// Which signals start and pause recordings.
#[derive(Clone, Copy)]
pub(crate) struct PauseSignals {
    start: Option<UserSignal>,
    stop: Option<UserSignal>,
}

impl PauseSignals {
    /// Those that the options name, which are not sent to the program from now on; `None` if they
    /// name none.
    pub(crate) fn take(recording: &Recording) -> Option<Self> {
        let (start, stop) = (recording.start_signal, recording.stop_signal);
        for signal in start.iter().chain(&stop) {
            signal.take();
        }
        (start.is_some() || stop.is_some()).then_some(Self { start, stop })
    }
}

/// Starts and pauses until dropped, for the processes that write to the family of a trace; `old` are
/// its files that existed before.
pub(crate) fn start(signals: PauseSignals, trace: &Path, old: &[PathBuf]) -> Option<UntilDropped> {
    let mut pauses = Pauses {
        signals,
        trace: trace.to_owned(),
        old: old.to_owned(),
        // One may have come already.
        seen: [0; 2],
        recording: None,
        told: BTreeSet::new(),
    };
    UntilDropped::start("signalled-pauses", move |ended| pauses.follow(ended))
        .inspect_err(|error| {
            message!("--start-signal and --stop-signal have no effect: {error}");
        })
        .ok()
}

struct Pauses {
    signals: PauseSignals,
    trace: PathBuf,
    old: Vec<PathBuf>,
    /// When the signals came that have had their effect.
    seen: [u64; 2],
    /// Whether the last one has started recording, and when it came; `None` before the first.
    recording: Option<(bool, u64)>,
    /// Traces whose recorders know that.
    told: BTreeSet<PathBuf>,
}

impl Pauses {
    fn follow(&mut self, ended: &Receiver<()>) {
        let mut listed = Instant::now();
        while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(POLL) {
            if let Some(signal) = self.next_signal() {
                self.told.clear();
                let changed = self.apply();
                self.say(signal, changed);
            } else if self.recording.is_some() && listed.elapsed() >= LIST {
                // Processes that have called the driver since.
                self.apply();
                listed = Instant::now();
            }
        }
    }

    /// A signal that has come; from then on it is known whether calls are to be recorded.
    fn next_signal(&mut self) -> Option<UserSignal> {
        let PauseSignals { start, stop } = self.signals;
        let last = [start, stop].map(|signal| signal.map_or(0, UserSignal::last));
        let seen = std::mem::replace(&mut self.seen, last);
        let came = |at: usize| (last[at] != seen[at]).then_some(last[at]);
        let (is_start, ticks) = match (came(0), came(1)) {
            // One signal for both changes what there is.
            (Some(ticks), Some(_)) if start == stop => {
                // `--start-signal` begins with a pause.
                let is_recording = self.recording.is_some_and(|(is_recording, _)| is_recording);
                (!is_recording, ticks)
            }
            (Some(started), Some(stopped)) => (started > stopped, started.max(stopped)),
            (Some(started), None) => (true, started),
            (None, Some(stopped)) => (false, stopped),
            (None, None) => return None,
        };
        self.recording = Some((is_start, ticks));
        if is_start { start } else { stop }
    }

    /// Tells the recorders that do not know it yet. Returns how many recordings that has changed, if
    /// there are any.
    fn apply(&mut self) -> Option<u64> {
        let (is_start, ticks) = self.recording?;
        let mut changed = None;
        for path in new_family(&self.trace, &self.old) {
            if self.told.contains(&path) {
                continue;
            }
            // A process may be about to write its beginning.
            let Ok(trace) = Trace::follow(&path) else {
                continue;
            };
            if trace.writer().is_none() {
                continue;
            }
            let Ok(control) = LiveControl::open(&trace) else {
                continue;
            };
            // Another clock is known to the recorder alone.
            let ticks = if trace.head().clock == 0 { ticks } else { 0 };
            let has_changed = match is_start {
                true => control.resume(ticks),
                false => control.pause(ticks),
            };
            *changed.get_or_insert(0) += u64::from(has_changed);
            self.told.insert(path);
        }
        changed
    }

    fn say(&self, signal: UserSignal, changed: Option<u64>) {
        let is_start = self.recording.is_some_and(|(is_start, _)| is_start);
        let what = if is_start { "starts" } else { "pauses" };
        match changed {
            None => message!("{signal}: recording {what} when a process calls the driver"),
            Some(0) if is_start => message!("{signal}: no recording is paused"),
            Some(0) => message!("{signal}: all recordings are paused already"),
            Some(changed) => {
                let traces = quantity::count(changed, "trace");
                message!("{signal}: recording {what} ({traces})");
            }
        }
    }
}
