//! The arguments of `bench`, and the settings of one measuring process.

use std::ops::Deref;
use std::path::PathBuf;

use cutape_replay::Clock;
use serde::{Deserialize, Serialize};

use crate::guarded::{GuardedOptions, ReportOption};
use crate::one_rank::RankOption;
use cutape_terminal::failure::Failure;

/// What `bench` takes.
#[derive(Clone, clap::Args)]
pub(crate) struct Arguments {
    /// The trace; with --rank, a folder with the traces of several ranks.
    pub(super) trace: PathBuf,
    #[command(flatten)]
    pub(super) rank: RankOption,
    /// The driver to call: a path, or `null`. Default: this machine's.
    ///
    /// If given twice, the second is compared with the first.
    #[arg(long, value_name = "PATH", verbatim_doc_comment)]
    pub(super) driver: Vec<PathBuf>,
    /// Measure only these calls, after issuing the calls before them.
    #[arg(long, value_name = "SET", long_help = cutape_calls::help(
        "Measure only these calls, after issuing the calls before them."
    ))]
    pub(super) calls: Option<String>,
    /// Measure each kernel separately: its first launch of each shape.
    #[arg(long)]
    pub(super) each_kernel: bool,
    /// How many launches of each kernel and shape to measure.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) launches: usize,
    /// Launch another kernel instead of a recorded one.
    ///
    /// KERNEL is a name as in the image or demangled, with * and ?; FILE is a
    /// cubin, a fatbin or PTX. Implies --each-kernel, for these kernels.
    #[arg(long, value_name = "KERNEL=FILE", verbatim_doc_comment)]
    pub(super) replace: Vec<String>,
    /// How much a replaced kernel's results may differ: TYPE=T; a comma joins
    /// several. TYPE is f16, bf16, f32 or f64. Default: not at all.
    #[arg(long, value_name = "TYPE=T", verbatim_doc_comment)]
    pub(super) tolerance: Option<String>,
    /// Save the measurements under this name.
    #[arg(long, value_name = "NAME", conflicts_with = "baseline")]
    pub(super) save_baseline: Option<String>,
    /// Compare with the measurements saved under this name.
    #[arg(long, value_name = "NAME")]
    pub(super) baseline: Option<String>,
    /// The folder for measurements and plots.
    #[arg(long, value_name = "FOLDER", default_value = "cutape-bench")]
    pub(super) output: PathBuf,
    /// Do not draw plots.
    #[arg(long)]
    pub(super) no_plots: bool,
    /// How much slower on the device, in per cent, is a regression.
    #[arg(long, value_name = "PERCENT", default_value_t = 5.0)]
    pub(super) threshold: f64,
    /// The same for time on the host, which varies more.
    #[arg(long, value_name = "PERCENT", default_value_t = 25.0)]
    pub(super) host_threshold: f64,
    /// Which clocks to measure with.
    #[arg(long, value_enum, default_value = "both", value_name = "CLOCK")]
    pub(super) clock: Clocks,
    /// How many samples to take, at least 10.
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub(super) samples: usize,
    /// How long to measure.
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0)]
    pub(super) measure_seconds: f64,
    /// How long to warm up before each measurement.
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    pub(super) warm_up_seconds: f64,
    /// Do not restore memory before each iteration.
    #[arg(long, conflicts_with = "replace")]
    pub(super) no_restore: bool,
    #[command(flatten)]
    pub(super) guarded: GuardedOptions,
    #[command(flatten)]
    pub(super) report: ReportOption,
    /// Show criterion's output on stderr.
    #[arg(long)]
    pub(super) verbose: bool,
}

/// The folder of a clock's measurements, and its name in reports.
pub(super) fn folder_of(clock: Clock) -> &'static str {
    match clock {
        Clock::Gpu => "gpu",
        Clock::Host => "host",
    }
}

/// Which clocks to measure with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Clocks {
    Gpu,
    Host,
    Both,
}

impl Arguments {
    /// Rejects values at which criterion would panic, and conflicting options.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let reject = |message: String| Err(Failure::unusable(message));
        if self.samples < 10 {
            return reject(format!(
                "--samples {}: too few; give at least 10",
                self.samples
            ));
        }
        let seconds = (0.001..=3600.0, "0.001 to 3600");
        let per_cent = (0.0..=1e6, "per cent from 0");
        for (option, value, (range, allowed)) in [
            ("--measure-seconds", self.measure_seconds, &seconds),
            ("--warm-up-seconds", self.warm_up_seconds, &seconds),
            ("--threshold", self.threshold, &per_cent),
            ("--host-threshold", self.host_threshold, &per_cent),
        ] {
            if !range.contains(&value) {
                return reject(format!("{option} {value}: out of range; give {allowed}"));
            }
        }
        for (option, name) in [
            ("--save-baseline", &self.save_baseline),
            ("--baseline", &self.baseline),
        ] {
            if let Some(name) = name
                && !is_name(name)
            {
                return reject(format!(
                    "{option} {name:?}: not a valid name; use letters, digits, `-`, `_` and `.`, \
                     no leading `.`, and not `new`, `change` or `report`"
                ));
            }
        }
        if self.driver.len() > 2 {
            return reject("--driver: given more than twice; give at most two drivers".to_owned());
        }
        let baseline = self.baseline.is_some() || self.save_baseline.is_some();
        if self.driver.len() == 2 && (baseline || !self.replace.is_empty()) {
            return reject(
                "--driver given twice compares the two drivers: remove --baseline, --save-baseline \
                 and --replace"
                    .to_owned(),
            );
        }
        if self.tolerance.is_some() && self.replace.is_empty() {
            return reject(
                "--tolerance applies only to --replace: remove it, or add --replace".to_owned(),
            );
        }
        Ok(())
    }

    /// The clocks to measure with.
    pub(super) fn clocks(&self) -> &'static [Clock] {
        match self.clock {
            Clocks::Gpu => &[Clock::Gpu],
            Clocks::Host => &[Clock::Host],
            Clocks::Both => &[Clock::Gpu, Clock::Host],
        }
    }

    /// Whether to measure each kernel separately.
    pub(super) fn by_kernel(&self) -> bool {
        self.each_kernel || !self.replace.is_empty()
    }
}

/// Whether a baseline can have a name: it becomes a folder beside criterion's own.
fn is_name(name: &str) -> bool {
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
pub(super) enum Comparison {
    /// Nothing: they are saved under a name.
    Save(String),
    /// Those saved under a name.
    Against(String),
    /// For a replaced kernel, the recorded one, measured by the same process.
    AgainstRecorded,
}

/// The name for runs that the user did not name.
pub(super) const UNNAMED: &str = "last";
/// The names for the recorded kernel and the first driver.
pub(super) const RECORDED: &str = "recorded-kernel";
pub(super) const FIRST_DRIVER: &str = "first-driver";

/// The settings of one measuring process.
#[derive(Clone)]
pub(super) struct Settings {
    pub arguments: Arguments,
    pub driver: PathBuf,
    pub comparison: Comparison,
    /// Absolute.
    pub output: PathBuf,
}

impl Settings {
    /// The settings before a driver is known.
    pub(super) fn of(arguments: Arguments) -> Result<Self, Failure> {
        let output = std::path::absolute(&arguments.output)
            .map_err(|error| Failure::unusable(format!("--output: {error}")))?;
        let comparison = match (&arguments.save_baseline, &arguments.baseline) {
            (Some(name), _) => Comparison::Save(name.clone()),
            (_, Some(name)) => Comparison::Against(name.clone()),
            _ if !arguments.replace.is_empty() => Comparison::AgainstRecorded,
            _ => Comparison::Save(UNNAMED.to_owned()),
        };
        Ok(Self {
            arguments,
            driver: PathBuf::new(),
            comparison,
            output,
        })
    }
}

impl Deref for Settings {
    type Target = Arguments;

    fn deref(&self) -> &Arguments {
        &self.arguments
    }
}

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
            assert_eq!(is_name(name), good, "{name:?}");
        }
    }
}
