//! A progress bar on stderr for long work, if stderr is a terminal.

use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Shorter work shows no bar.
const PATIENCE: Duration = Duration::from_millis(500);
/// Steps between two reads of the clock.
const STRIDE: u64 = 256;

/// The progress of some work. Draws only if stderr is a terminal and the work takes longer than
/// half a second; erases the bar when dropped.
#[derive(Debug)]
pub(crate) struct Progress {
    /// What is counted, e.g. `calls`.
    unit: &'static str,
    done: u64,
    started: Instant,
    enabled: bool,
    bar: Option<ProgressBar>,
}

impl Progress {
    /// Starts.
    pub(crate) fn new(unit: &'static str) -> Self {
        Self {
            unit,
            done: 0,
            started: Instant::now(),
            enabled: stderr().is_terminal(),
            bar: None,
        }
    }

    /// Never draws: for work that prints to the same terminal.
    pub(crate) fn hidden() -> Self {
        let mut hidden = Self::new("");
        hidden.enabled = false;
        hidden
    }

    /// Counts one step.
    #[inline]
    pub(crate) fn step(&mut self) {
        self.done += 1;
        if self.enabled && self.done.is_multiple_of(STRIDE) {
            self.draw();
        }
    }

    /// Sets the number of steps done.
    pub(crate) fn reach(&mut self, done: u64) {
        self.done = done;
        if self.enabled {
            self.draw();
        }
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
        let template = format!("{{spinner}} {{human_pos}} {} {{elapsed}}", self.unit);
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        match ProgressStyle::with_template(&template) {
            Ok(style) => bar.with_style(style),
            Err(_) => bar,
        }
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

    #[test]
    fn draws_only_long_enabled_work() {
        for (enabled, long, drawn) in [
            (true, true, true),
            (true, false, false),
            (false, true, false),
        ] {
            let mut progress = Progress::new("calls");
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
        }
        let mut hidden = Progress::hidden();
        hidden.step();
        assert!(!hidden.enabled && hidden.bar.is_none());
    }
}
