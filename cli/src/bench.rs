//! `cutape bench`: measures recorded work repeatedly and compares it with earlier measurements.

use std::path::PathBuf;
use std::process::ExitCode;

use cutape_format::Trace;
use cutape_measure::{Comparison, Report, Selection, Settings, UNNAMED, is_baseline_name};
use cutape_replay::{Clock, Options};

use crate::guarded::{self, GuardedOptions, ReportOption};
use crate::one_rank::{ChildSource, RankOption};
use cutape_terminal::failure::{FOUND, Failure, UNUSABLE};
use cutape_terminal::input::{Completeness, WithState};
use cutape_terminal::library;
use cutape_terminal::message;
use cutape_terminal::progress::{Progress, Unit};

/// The hidden verb of the guarded child.
pub(crate) const CHILD: &str = "bench-child";

/// What `bench` takes.
#[derive(Clone, clap::Args)]
#[command(
    after_help = "`cutape matrix` measures many traces, in several processes each, and compares drivers and GPUs."
)]
pub(crate) struct Arguments {
    /// The trace; with --rank, a folder with the traces of several ranks.
    trace: PathBuf,
    #[command(flatten)]
    rank: RankOption,
    /// The driver to call: a path, or `null`. Default: this machine's.
    ///
    /// If given twice, the second is compared with the first.
    #[arg(long, value_name = "PATH", verbatim_doc_comment)]
    driver: Vec<PathBuf>,
    /// Measure only these calls, after issuing the calls before them.
    #[arg(long, value_name = "SET", long_help = cutape_calls::help(
        "Measure only these calls, after issuing the calls before them."
    ))]
    calls: Option<String>,
    /// Measure each kernel separately: its first launch of each shape.
    #[arg(long)]
    each_kernel: bool,
    /// How many launches of each kernel and shape to measure.
    #[arg(long, value_name = "N", default_value_t = 1)]
    launches: usize,
    /// Launch another kernel instead of a recorded one.
    ///
    /// KERNEL is a name as in the image or demangled, with * and ?; FILE is a
    /// cubin, a fatbin or PTX. Implies --each-kernel, for these kernels.
    #[arg(long, value_name = "KERNEL=FILE", verbatim_doc_comment)]
    replace: Vec<String>,
    /// How much a replaced kernel's results may differ: TYPE=T; a comma joins
    /// several. TYPE is f16, bf16, f32 or f64. Default: not at all.
    #[arg(long, value_name = "TYPE=T", verbatim_doc_comment)]
    tolerance: Option<String>,
    /// Save the measurements under this name.
    #[arg(long, value_name = "NAME", conflicts_with = "baseline")]
    save_baseline: Option<String>,
    /// Compare with the measurements saved under this name.
    #[arg(long, value_name = "NAME")]
    baseline: Option<String>,
    /// The folder for measurements and plots.
    #[arg(long, value_name = "FOLDER", default_value = "cutape-bench")]
    output: PathBuf,
    /// Do not draw plots.
    #[arg(long)]
    no_plots: bool,
    /// How much slower on the device, in per cent, is a regression.
    #[arg(long, value_name = "PERCENT", default_value_t = 5.0)]
    threshold: f64,
    /// The same for time on the host, which varies more.
    #[arg(long, value_name = "PERCENT", default_value_t = 25.0)]
    host_threshold: f64,
    /// Which clocks to measure with.
    #[arg(long, value_enum, default_value = "both", value_name = "CLOCK")]
    clock: Clocks,
    /// How many samples to take, at least 10.
    #[arg(long, value_name = "N", default_value_t = 50)]
    samples: usize,
    /// How long to measure.
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0)]
    measure_seconds: f64,
    /// How long to warm up before each measurement.
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    warm_up_seconds: f64,
    /// Do not restore memory before each iteration.
    #[arg(long, conflicts_with = "replace")]
    no_restore: bool,
    #[command(flatten)]
    guarded: GuardedOptions,
    #[command(flatten)]
    report: ReportOption,
    /// Show criterion's output on stderr.
    #[arg(long)]
    verbose: bool,
}

/// The arguments of the guarded child.
#[derive(Clone, clap::Args)]
pub(crate) struct ChildArguments {
    /// The resolved driver.
    #[arg(long)]
    child_driver: PathBuf,
    /// A [`Comparison`] as JSON.
    #[arg(long)]
    child_comparison: String,
    #[command(flatten)]
    source: ChildSource,
    #[command(flatten)]
    arguments: Arguments,
}

/// Which clocks to measure with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Clocks {
    Gpu,
    Host,
    Both,
}

impl Clocks {
    pub(crate) fn clocks(self) -> &'static [Clock] {
        match self {
            Self::Gpu => &[Clock::Gpu],
            Self::Host => &[Clock::Host],
            Self::Both => &[Clock::Gpu, Clock::Host],
        }
    }
}

/// Rejects numbers of samples, seconds to measure and to warm up, and thresholds on the device and
/// on the host that are out of range.
pub(crate) fn check_numbers(
    samples: usize,
    [measure, warm_up]: [f64; 2],
    [threshold, host_threshold]: [f64; 2],
) -> Result<(), Failure> {
    if samples < 10 {
        return Err(Failure::unusable(format!(
            "--samples {samples}: too few; give at least 10"
        )));
    }
    let seconds = (0.001..=3600.0, "0.001 to 3600");
    let per_cent = (0.0..=1e6, "per cent from 0");
    for (option, value, (range, allowed)) in [
        ("--measure-seconds", measure, &seconds),
        ("--warm-up-seconds", warm_up, &seconds),
        ("--threshold", threshold, &per_cent),
        ("--host-threshold", host_threshold, &per_cent),
    ] {
        if !range.contains(&value) {
            let why = format!("{option} {value}: out of range; give {allowed}");
            return Err(Failure::unusable(why));
        }
    }
    Ok(())
}

impl Arguments {
    /// Rejects values at which criterion would panic, and conflicting options.
    fn check(&self) -> Result<(), Failure> {
        let reject = |message: String| Err(Failure::unusable(message));
        check_numbers(
            self.samples,
            [self.measure_seconds, self.warm_up_seconds],
            [self.threshold, self.host_threshold],
        )?;
        for (option, name) in [
            ("--save-baseline", &self.save_baseline),
            ("--baseline", &self.baseline),
        ] {
            if let Some(name) = name
                && !is_baseline_name(name)
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

    fn settings(&self) -> Result<Settings, Failure> {
        let output = std::path::absolute(&self.output)
            .map_err(|error| Failure::unusable(format!("--output: {error}")))?;
        Ok(Settings {
            calls: self.calls.clone(),
            each_kernel: self.each_kernel,
            launches: self.launches,
            replace: self.replace.clone(),
            tolerance: self.tolerance.clone(),
            comparison: match (&self.save_baseline, &self.baseline) {
                (Some(name), _) => Comparison::Save(name.clone()),
                (_, Some(name)) => Comparison::Against(name.clone()),
                _ if !self.replace.is_empty() => Comparison::AgainstRecorded,
                _ => Comparison::Save(UNNAMED.to_owned()),
            },
            output,
            plots: !self.no_plots,
            threshold: self.threshold,
            host_threshold: self.host_threshold,
            clocks: self.clock.clocks(),
            samples: self.samples,
            measure_seconds: self.measure_seconds,
            warm_up_seconds: self.warm_up_seconds,
            restore: !self.no_restore,
            verbose: self.verbose,
        })
    }
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    arguments.check()?;
    let source = arguments
        .rank
        .source(&arguments.trace, &arguments.guarded)?;
    let trace = cutape_terminal::input::open(source.path())?;
    let output = arguments.report.prepare()?;
    let settings = arguments.settings()?;
    // Reports errors before a driver is loaded.
    let selection = Selection::of(&trace, &settings).map_err(Failure::unusable)?;
    selection
        .expect_baseline(&settings)
        .map_err(Failure::unusable)?;
    std::fs::create_dir_all(&settings.output).map_err(|error| {
        Failure::unusable(format!("--output {}: {error}", settings.output.display()))
    })?;
    let program = library::own_path()?;
    let guard = arguments.guarded.guard();
    let mut report = Report::default();
    let rounds = settings.rounds(arguments.driver.len());
    for (index, round) in rounds.iter().enumerate() {
        let driver = library::driver(arguments.driver.get(index).map(PathBuf::as_path))?;
        let comparison = serde_json::to_string(&round.comparison).unwrap_or_default();
        let mut hidden = vec![
            "--child-driver".into(),
            driver.clone().into_os_string(),
            "--child-comparison".into(),
            comparison.into(),
        ];
        hidden.extend(source.for_child());
        let command = || guarded::child(&program, CHILD, &hidden);
        let mut progress = Progress::new("measuring", Unit::Things("calls and iterations"), None);
        let reach = &mut |done| progress.reach(done);
        let results = cutape_measure::measure(&trace, &settings, &command, &guard, reach);
        drop(progress);
        report.add(
            results.map_err(Failure::unusable)?,
            &settings,
            round,
            &driver,
        );
    }
    report
        .finish(selection, &settings)
        .map_err(Failure::unusable)?;
    let mut state = Completeness::of(&trace);
    state.still_recording |= source.is_still_recording();
    output.write(&WithState::new(&report, &state), &report.text(&settings))?;
    Ok(match report.has_findings() {
        true => ExitCode::from(FOUND),
        false => ExitCode::SUCCESS,
    })
}

/// The guarded child: measures, and reports through a pipe to its parent.
pub(crate) fn run_child(child: ChildArguments) -> Result<ExitCode, Failure> {
    let (source, alone) = (&child.source, child.source.alone()?);
    let settings = Settings {
        comparison: serde_json::from_str(&child.child_comparison)
            .map_err(|_| Failure::unusable("bench-child is internal; use `cutape bench`"))?,
        ..child.arguments.settings()?
    };
    let trace = Trace::open(source.path(&child.arguments.trace))?;
    let guarded = &child.arguments.guarded;
    let mut options = Options {
        alone,
        ..guarded.replay(child.child_driver, source.rank())
    };
    if let Some(permissions) = &mut options.sandbox {
        permissions.writable.push(settings.output.clone());
    }
    let status = cutape_measure::measure_as_child(&trace, settings, options, |line| {
        message!("{line}");
    });
    let status = status.map_err(Failure::unusable)?;
    Ok(ExitCode::from(u8::try_from(status).unwrap_or(UNUSABLE)))
}
