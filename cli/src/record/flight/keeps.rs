//! The traces that a flight recorder writes when something happens.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use cutape_cut::window::{Held, Window};
use cutape_format::Trace;
use cutape_recording::{TICKS_PER_SECOND, pack_in_place};
use cutape_render::quantity;
use cutape_terminal::clock;
use cutape_terminal::message;
use cutape_terminal::output;

use super::keep_on::KeepOn;
use super::limit::Limits;
use super::live_checks::{FoundMistake, LiveChecks};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Why something is kept.
#[derive(Clone, Debug)]
pub(super) struct Reason {
    /// The place of the option; `None` if a user has asked.
    pub(super) option: Option<usize>,
    /// In words.
    pub(super) text: String,
    /// When it happened, in ticks.
    pub(super) ticks: u64,
}

impl Reason {
    /// `cutape ctl keep`.
    pub(super) fn asked() -> Self {
        Self {
            option: None,
            text: "asked for".to_owned(),
            ticks: clock::ticks(),
        }
    }
}

/// What is kept, and the traces written so far.
#[derive(Debug)]
pub(super) struct Keeps {
    pub(super) limits: Limits,
    pub(super) keep_on: Vec<KeepOn>,
    /// With `--keep-on finding`, while the program runs.
    pub(super) checks: Option<LiveChecks>,
    budget: u64,
    /// When traces were written, and their bytes.
    written: VecDeque<(Instant, u64)>,
    /// How often something happened and the budget was spent.
    pub(super) not_kept: u64,
}

impl Keeps {
    pub(super) fn new(limits: Limits, keep_on: Vec<KeepOn>, budget: u64) -> Self {
        let is_checked = keep_on.iter().any(KeepOn::needs_check);
        Self {
            limits,
            keep_on,
            checks: is_checked.then(LiveChecks::start),
            budget,
            written: VecDeque::new(),
            not_kept: 0,
        }
    }

    /// The findings since the last time.
    pub(super) fn new_findings(&self) -> Vec<FoundMistake> {
        let checks = self.checks.as_ref();
        checks.map(LiveChecks::take).unwrap_or_default()
    }

    /// The process of a trace has ended.
    pub(super) fn end_check(&self, path: &Path) {
        if let Some(checks) = &self.checks {
            checks.forget(path);
        }
    }

    /// The program has ended.
    pub(super) fn end_checks(&mut self) {
        if let Some(checks) = self.checks.take() {
            checks.end(self.limits.ticks_per_second);
        }
    }

    /// Writes the last calls of a trace to one of its own. `held` is left of the
    /// calls before its last window.
    pub(super) fn keep(&mut self, path: &Path, reason: &Reason, held: &Held) {
        let (shown, why) = (output::shown(path), &reason.text);
        self.written.retain(|(when, _)| when.elapsed() < DAY);
        let spent: u64 = self.written.iter().map(|(_, bytes)| bytes).sum();
        if spent >= self.budget {
            self.not_kept += 1;
            if self.not_kept == 1 {
                let budget = quantity::bytes(self.budget);
                message!("{shown}: {why}; it is not kept: --keep-budget {budget} is spent");
            }
            return;
        }
        match self.write(path, reason, held) {
            Ok((target, calls)) => {
                let bytes = std::fs::metadata(&target).map_or(0, |metadata| metadata.len());
                self.written.push_back((Instant::now(), bytes));
                let (calls, target) = (quantity::count(calls, "call"), output::shown(&target));
                message!("{shown}: {why}; kept the last {calls} in {target}");
            }
            Err(error) => message!("{shown}: {why}; it cannot be kept: {error}"),
        }
    }

    fn write(&self, path: &Path, reason: &Reason, held: &Held) -> Result<(PathBuf, u64), String> {
        let trace = Trace::open_damaged(path).map_err(|error| error.to_string())?;
        let from = self.limits.window_start(&trace, reason.ticks, held.until);
        let window = Window::of(&trace, from, held, &|thread| has_thread(&trace, thread));
        let target = free_name(path);
        let written = window.write(&trace, &target, &meta(&window, &reason.text));
        let calls = written.map_err(|error| format!("{}: {error}", target.display()))?;
        let rate = self.limits.ticks_per_second;
        let rate = rate.map(|rate| (TICKS_PER_SECOND.to_owned(), rate.to_string()));
        let kept = Trace::open(&target).map_err(|error| error.to_string())?;
        pack_in_place(kept, rate.into_iter().collect()).map_err(|failure| failure.message)?;
        Ok((target, calls))
    }
}

/// Whether the process of a trace still has a thread.
pub(super) fn has_thread(trace: &Trace, thread: u32) -> bool {
    let process = trace.head().process;
    Path::new(&format!("/proc/{process}/task/{thread}")).exists()
}

/// What a kept trace says about itself.
pub(super) fn meta(window: &Window, reason: &str) -> Vec<(String, String)> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    [
        ("kept.reason", reason.to_owned()),
        ("kept.time", now.unwrap_or_default().as_secs().to_string()),
        ("kept.earlier-calls", window.earlier().to_string()),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .to_vec()
}

/// `run.keep1.cutape`, or the next number that is free.
fn free_name(path: &Path) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default();
    let named = |number: u64| {
        let mut name = stem.to_os_string();
        name.push(format!(".keep{number}.cutape"));
        path.with_file_name(name)
    };
    let mut names = (1..).map(named);
    let free = names.find(|path| std::fs::symlink_metadata(path).is_err());
    free.unwrap_or_default()
}
