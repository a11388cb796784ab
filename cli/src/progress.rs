//! A progress bar on stderr for long work, if that is a terminal.

use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Work that is over sooner shows nothing.
const PATIENCE: Duration = Duration::from_millis(500);
/// How many steps are between two looks at the clock.
const STRIDE: u64 = 256;

/// How far some work is. Nothing is drawn unless stderr is a terminal and the work takes longer than half a second; what was
/// drawn goes away when this is dropped.
#[derive(Debug)]
pub(crate) struct Progress {
    /// What is being counted, e.g. `calls`.
    unit: &'static str,
    /// How many there will be, if that is known.
    total: Option<u64>,
    done: u64,
    started: Instant,
    wanted: bool,
    bar: Option<ProgressBar>,
}

impl Progress {
    /// Begins; `total` is how many steps there will be, if that is known.
    pub(crate) fn new(unit: &'static str, total: Option<u64>) -> Self {
        Self {
            unit,
            total,
            done: 0,
            started: Instant::now(),
            wanted: stderr().is_terminal(),
            bar: None,
        }
    }

    /// Never draws: for work whose results go to the same terminal.
    pub(crate) fn hidden() -> Self {
        let mut hidden = Self::new("", None);
        hidden.wanted = false;
        hidden
    }

    /// One step is done.
    #[inline]
    pub(crate) fn step(&mut self) {
        self.done += 1;
        if self.wanted && self.done.is_multiple_of(STRIDE) {
            self.draw();
        }
    }

    /// So many steps are done in all.
    pub(crate) fn reach(&mut self, done: u64) {
        self.done = done;
        if self.wanted {
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
        let template = match self.total {
            Some(_) => format!(
                "{{bar:40}} {{human_pos}}/{{human_len}} {} {{eta}}",
                self.unit
            ),
            None => format!("{{spinner}} {{human_pos}} {} {{elapsed}}", self.unit),
        };
        let bar = ProgressBar::with_draw_target(self.total, ProgressDrawTarget::stderr());
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
    fn draws_only_what_is_long_and_wanted() {
        for (wanted, long, total, drawn) in [
            (true, true, Some(1000), true),
            (true, true, None, true),
            (true, false, None, false),
            (false, true, None, false),
        ] {
            let mut progress = Progress::new("calls", total);
            progress.wanted = wanted;
            if long && let Some(earlier) = progress.started.checked_sub(2 * PATIENCE) {
                progress.started = earlier;
            }
            for _ in 0..2 * STRIDE {
                progress.step();
            }
            assert_eq!(
                progress.bar.is_some(),
                drawn,
                "wanted {wanted}, long {long}"
            );
            assert_eq!(
                progress.bar.as_ref().map(ProgressBar::position),
                drawn.then_some(2 * STRIDE)
            );
        }
        let mut hidden = Progress::hidden();
        hidden.step();
        assert!(!hidden.wanted && hidden.bar.is_none());
    }
}
