//! What to measure, how, and what to compare it with.

use std::path::PathBuf;

use cutape_replay::Clock;
use serde::{Deserialize, Serialize};

/// The settings of a measurement, as options of `bench` say them.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The calls to measure, as `--calls` has them; all if `None`.
    pub calls: Option<String>,
    /// Measure each kernel separately; `replace` implies it.
    pub each_kernel: bool,
    /// How many launches of each kernel and shape to measure.
    pub launches: usize,
    /// Kernels to launch instead of recorded ones: KERNEL=FILE.
    pub replace: Vec<String>,
    /// How much the results of a replacement may differ: TYPE=T, joined by commas.
    pub tolerance: Option<String>,
    /// What to compare the measurements with.
    pub comparison: Comparison,
    /// The folder for measurements and plots, absolute.
    pub output: PathBuf,
    /// Draw plots.
    pub plots: bool,
    /// How much slower on the device, in per cent, is a regression.
    pub threshold: f64,
    /// The same on the host.
    pub host_threshold: f64,
    /// The clocks to measure with.
    pub clocks: &'static [Clock],
    /// How many samples to take; at fewer than 10, criterion panics.
    pub samples: usize,
    /// How long to measure.
    pub measure_seconds: f64,
    /// How long to warm up before each measurement.
    pub warm_up_seconds: f64,
    /// Restore memory before each iteration.
    pub restore: bool,
    /// Let criterion print.
    pub verbose: bool,
}

impl Settings {
    /// Whether to measure each kernel separately.
    pub(crate) fn by_kernel(&self) -> bool {
        self.each_kernel || !self.replace.is_empty()
    }

    /// A round for each of one or two drivers: with two, the second is compared with the first.
    pub fn rounds(&self, drivers: usize) -> Vec<Round> {
        let round = |comparison, driver| Round { comparison, driver };
        let first = FIRST_DRIVER.to_owned();
        match drivers {
            2 => vec![
                round(Comparison::Save(first.clone()), " (first driver)"),
                round(Comparison::Against(first), " (second driver)"),
            ],
            _ => vec![round(self.comparison.clone(), "")],
        }
    }
}

/// All measurements on one driver.
#[derive(Clone, Debug)]
pub struct Round {
    /// What to compare the measurements with.
    pub comparison: Comparison,
    /// Which of two drivers, for people.
    pub(crate) driver: &'static str,
}

/// The folder of a clock's measurements, and its name in reports.
pub(crate) fn folder_of(clock: Clock) -> &'static str {
    match clock {
        Clock::Gpu => "gpu",
        Clock::Host => "host",
    }
}

/// Whether a baseline can have a name: it becomes a folder beside criterion's own.
pub fn is_baseline_name(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let taken = ["new", "change", "report"].contains(&name);
    !name.is_empty()
        && name.len() <= 64
        && name.chars().all(allowed)
        && !name.starts_with('.')
        && !taken
}

/// What to compare the measurements with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Comparison {
    /// Nothing: they are saved under a name.
    Save(String),
    /// Those saved under a name.
    Against(String),
    /// For a replaced kernel, the recorded one, measured by the same process.
    AgainstRecorded,
}

/// The name for runs that the user did not name.
pub const UNNAMED: &str = "last";
/// The names for the recorded kernel and the first driver.
pub(crate) const RECORDED: &str = "recorded-kernel";
pub(crate) const FIRST_DRIVER: &str = "first-driver";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn baseline_names() {
        for (name, good) in [
            ("base", true),
            ("driver-580.159", true),
            ("", false),
            ("new", false),
            ("change", false),
            ("report", false),
            (".hidden", false),
            ("..", false),
            ("a/b", false),
            ("a b", false),
        ] {
            assert_eq!(is_baseline_name(name), good, "{name:?}");
        }
    }
}
