//! `cutape bench`: measures recorded work repeatedly and compares it with earlier measurements.
//!
//! `selection` chooses and names what to measure, `replacement` finds the kernels of `--replace`.
//! The guarded child replays the trace up to the selected calls, and criterion measures them on the
//! device's clock and the host's (`child`). `measurement` reads criterion's files, `verdict` judges.

mod child;
mod measurement;
mod replacement;
mod selection;
mod settings;
mod text;
mod verdict;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use cutape_format::Trace;
use cutape_replay::Guard;

use crate::failure::{FOUND, Failure};
use crate::library;
use crate::output::ReportFile;
use crate::progress::Progress;
use crate::replay::{DeviceMap, device_map};

pub(crate) use child::{ChildArguments, run_child};
use measurement::Results;
use settings::{Comparison, FIRST_DRIVER, Settings, UNNAMED};
use verdict::Report;

/// The hidden verb of the guarded child.
pub(crate) const CHILD: &str = "bench-child";

/// What `bench` takes.
#[derive(Clone, clap::Args)]
pub(crate) struct Arguments {
    /// The trace.
    trace: PathBuf,
    /// The driver to call: a path, or `null`. Default: this machine's.
    ///
    /// If given twice, the second is compared with the first.
    #[arg(long, value_name = "PATH", verbatim_doc_comment)]
    driver: Vec<PathBuf>,
    /// Measure only these calls, after making the calls before them.
    ///
    /// SET is 120, 100..200, cuMem*, kernel:saxpy*, thread:3; a comma joins
    /// several.
    #[arg(long, value_name = "SET", verbatim_doc_comment)]
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
    #[arg(long, value_name = "DIR", default_value = "cutape-bench")]
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
    /// Measure even if the machine does not fit the trace.
    #[arg(long)]
    force: bool,
    /// Map recorded devices to devices of this machine: 0=1,1=0.
    #[arg(long, value_name = "MAP", value_parser = device_map)]
    devices: Option<DeviceMap>,
    /// Leave memory where the driver allocates it, and translate addresses.
    #[arg(long)]
    no_placement: bool,
    /// The longest time that one call or iteration may take.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    watchdog: u64,
    /// Write the results to this file as JSON; - is stdout, without the text.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Show criterion's output on stderr.
    #[arg(long)]
    verbose: bool,
}

/// Which clocks to measure with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Clocks {
    Gpu,
    Host,
    Both,
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    check(&arguments)?;
    let trace = crate::input::open(&arguments.trace)?;
    let file = match arguments.report.as_deref() {
        Some(path) if path.as_os_str() != "-" => Some(ReportFile::prepare(path)?),
        _ => None,
    };
    let settings = settings(&arguments)?;
    // Reports errors before a driver is loaded.
    let selection = selection::select(&trace, &settings)?;
    if let Comparison::Against(name) = &settings.comparison {
        selection::expect_baseline(&settings, &selection, name)?;
    }
    std::fs::create_dir_all(&settings.output).map_err(|error| {
        Failure::unusable(format!("--output {}: {error}", arguments.output.display()))
    })?;
    let limits = verdict::Limits {
        gpu: arguments.threshold / 100.0,
        host: arguments.host_threshold / 100.0,
    };
    let mut report = Report::default();
    match &arguments.driver[..] {
        [first, second] => {
            let drivers = [first, second].map(|driver| library::driver(Some(driver)));
            let [first, second] = drivers;
            let before = Settings {
                driver: first?,
                comparison: Comparison::Save(FIRST_DRIVER.to_owned()),
                ..settings.clone()
            };
            let results = measure(&trace, &before)?;
            report.add(results, &before, &limits, " (first driver)");
            let after = Settings {
                driver: second?,
                comparison: Comparison::Against(FIRST_DRIVER.to_owned()),
                ..settings.clone()
            };
            let results = measure(&trace, &after)?;
            report.add(results, &after, &limits, " (second driver)");
        }
        one => {
            let settings = Settings {
                driver: library::driver(one.first().map(PathBuf::as_path))?,
                ..settings.clone()
            };
            report.add(measure(&trace, &settings)?, &settings, &limits, "");
        }
    }
    report.add_selection(selection);
    if let Comparison::Against(name) = &settings.comparison
        && report.compared() == 0
    {
        return Err(Failure::unusable(format!(
            "--baseline {name}: it contains none of these measurements; measure once with --save-baseline {name}"
        )));
    }
    show(&report, &settings, &arguments, file.as_ref())?;
    Ok(match report.has_findings() {
        true => ExitCode::from(FOUND),
        false => ExitCode::SUCCESS,
    })
}

fn show(
    report: &Report,
    settings: &Settings,
    arguments: &Arguments,
    file: Option<&ReportFile>,
) -> Result<(), Failure> {
    let json = serde_json::to_string_pretty(report).unwrap_or_default() + "\n";
    let written = match (&arguments.report, file) {
        (Some(_), None) => write!(io::stdout(), "{json}"),
        (_, file) => {
            if let Some(file) = file {
                file.write(&json)?;
            }
            write!(io::stdout(), "{}", text::text(report, settings))
        }
    };
    // A closed pipe does not change the outcome.
    written.or_else(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => Ok(()),
        _ => Err(error.into()),
    })
}

/// Rejects values at which criterion would panic, and conflicting options.
fn check(arguments: &Arguments) -> Result<(), Failure> {
    let reject = |message: String| Err(Failure::unusable(message));
    if arguments.samples < 10 {
        return reject(format!(
            "--samples {}: too few; give at least 10",
            arguments.samples
        ));
    }
    for (option, value) in [
        ("--measure-seconds", arguments.measure_seconds),
        ("--warm-up-seconds", arguments.warm_up_seconds),
    ] {
        if !(0.001..=3600.0).contains(&value) {
            return reject(format!(
                "{option} {value}: out of range; give 0.001 to 3600"
            ));
        }
    }
    for (option, value) in [
        ("--threshold", arguments.threshold),
        ("--host-threshold", arguments.host_threshold),
    ] {
        if !(0.0..=1e6).contains(&value) {
            return reject(format!(
                "{option} {value}: out of range; give per cent from 0"
            ));
        }
    }
    for (option, name) in [
        ("--save-baseline", &arguments.save_baseline),
        ("--baseline", &arguments.baseline),
    ] {
        if let Some(name) = name
            && !is_name(name)
        {
            return reject(format!(
                "{option} {name:?}: not a valid name; use letters, digits, `-`, `_` and `.`, no leading `.`, and not `new`, `change` or `report`"
            ));
        }
    }
    if arguments.driver.len() > 2 {
        return reject("--driver: given more than twice; give at most two drivers".to_owned());
    }
    let baseline = arguments.baseline.is_some() || arguments.save_baseline.is_some();
    if arguments.driver.len() == 2 && (baseline || !arguments.replace.is_empty()) {
        return reject(
            "--driver given twice compares the two drivers: remove --baseline, --save-baseline and --replace"
                .to_owned(),
        );
    }
    if arguments.tolerance.is_some() && arguments.replace.is_empty() {
        return reject(
            "--tolerance applies only to --replace: remove it, or add --replace".to_owned(),
        );
    }
    Ok(())
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

fn settings(arguments: &Arguments) -> Result<Settings, Failure> {
    let output = std::path::absolute(&arguments.output)
        .map_err(|error| Failure::unusable(format!("--output: {error}")))?;
    let comparison = match (&arguments.save_baseline, &arguments.baseline) {
        (Some(name), _) => Comparison::Save(name.clone()),
        (_, Some(name)) => Comparison::Against(name.clone()),
        _ if !arguments.replace.is_empty() => Comparison::AgainstRecorded,
        _ => Comparison::Save(UNNAMED.to_owned()),
    };
    Ok(Settings {
        trace: arguments.trace.clone(),
        driver: PathBuf::new(),
        calls: arguments.calls.clone(),
        each_kernel: arguments.each_kernel || !arguments.replace.is_empty(),
        launches: arguments.launches.max(1),
        replace: arguments.replace.clone(),
        tolerance: arguments.tolerance.clone(),
        comparison,
        output,
        gpu: arguments.clock != Clocks::Host,
        host: arguments.clock != Clocks::Gpu,
        samples: arguments.samples,
        measure_seconds: arguments.measure_seconds,
        warm_up_seconds: arguments.warm_up_seconds,
        restore: !arguments.no_restore,
        force: arguments.force,
        devices: arguments.devices.clone().map_or_else(Vec::new, |map| map.0),
        placement: !arguments.no_placement,
        watchdog: arguments.watchdog.max(1),
        plots: !arguments.no_plots,
        verbose: arguments.verbose,
    })
}

/// Measures on one driver, in a child process.
fn measure(trace: &Trace, settings: &Settings) -> Result<Results, Failure> {
    let program = std::env::current_exe().map_err(|error| {
        Failure::unusable(format!(
            "cannot read the path of cutape's own executable: {error}"
        ))
    })?;
    let word = serde_json::to_string(settings)
        .map_err(|error| Failure::unusable(format!("a path is not UTF-8: {error}")))?;
    let guard = Guard {
        watchdog: Duration::from_secs(settings.watchdog),
        ..Guard::default()
    };
    let command = || child_command(&program, &word, &settings.output);
    let plan = cutape_replay::plan(trace);
    let mut progress = Progress::new("calls and iterations", None);
    let measured = cutape_replay::rerun_guarded(trace, &plan, &command, &guard, &mut |done| {
        progress.reach(done)
    })
    .map_err(Failure::unusable)?;
    drop(progress);
    let benchmarks = serde_json::from_value(measured.results)
        .map_err(|error| Failure::unusable(format!("the measuring process: {error}")))?;
    Ok(Results {
        outcome: measured.outcome,
        benchmarks,
    })
}

fn child_command(program: &Path, settings: &str, output: &Path) -> Command {
    let mut command = Command::new(program);
    command.arg(CHILD).arg(settings);
    // Otherwise criterion looks for cargo's folders or connects to cargo-criterion.
    command.env("CRITERION_HOME", output);
    command.env_remove("CARGO_CRITERION_PORT");
    command.env_remove("CRITERION_DEBUG");
    command
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
