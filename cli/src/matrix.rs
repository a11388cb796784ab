//! `cutape matrix`: measures many traces in several processes each, and compares the results of
//! machines, drivers, libraries or commits.

mod run;

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use cutape_measure::matrix::{Comparison, History, Results, Thresholds};
use cutape_terminal::failure::{FOUND, Failure};
use cutape_terminal::overwrite::Overwrite;
use cutape_terminal::{message, output};
use serde::Serialize;

use crate::bench::{Clocks, check_numbers};
use crate::guarded::{GuardedOptions, ReportOption};

/// What `matrix` takes.
#[derive(Clone, clap::Args)]
#[command(override_usage = USAGE, after_help = EPILOGUE)]
pub(crate) struct Arguments {
    /// Traces, and folders of traces; with --compare and --history, files of results.
    #[arg(required = true, value_name = "TRACE")]
    inputs: Vec<PathBuf>,
    /// Compare files of results with the first of them.
    #[arg(long, conflicts_with_all = MEASURING)]
    compare: bool,
    /// Look for changes along files of results, or folders of them, in the order in
    /// which they were measured.
    #[arg(long, conflicts_with = "compare", conflicts_with_all = MEASURING, verbatim_doc_comment)]
    history: bool,
    /// The file of results (JSON); with --compare and --history, an HTML page.
    ///
    /// A file that is not complete is continued.
    #[arg(short, long, value_name = "FILE", required_unless_present_any = ["compare", "history"])]
    output: Option<PathBuf>,
    #[command(flatten)]
    overwrite: Overwrite,
    /// The driver to call: a path, or `null`. Default: this machine's.
    #[arg(long, value_name = "PATH")]
    driver: Option<PathBuf>,
    /// Also measure each kernel separately: its first launch of each shape.
    #[arg(long)]
    each_kernel: bool,
    /// Measure only another kernel in place of a recorded one, as in `bench`.
    #[arg(long, value_name = "KERNEL=FILE", conflicts_with = "each_kernel")]
    replace: Vec<String>,
    /// In how many processes to measure each benchmark, spread over the run.
    #[arg(long, value_name = "N", default_value_t = 5)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Which clocks to measure with.
    #[arg(long, value_enum, default_value = "both", value_name = "CLOCK")]
    clock: Clocks,
    /// How many samples each process takes, at least 10.
    #[arg(long, value_name = "N", default_value_t = 20)]
    samples: usize,
    /// How long each process measures a benchmark.
    #[arg(long, value_name = "SECONDS", default_value_t = 0.3)]
    measure_seconds: f64,
    /// How long each process warms up before a benchmark.
    #[arg(long, value_name = "SECONDS", default_value_t = 0.1)]
    warm_up_seconds: f64,
    /// Do not restore memory before each iteration.
    #[arg(long, conflicts_with = "replace")]
    no_restore: bool,
    /// End a process that takes longer; the results then say so.
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    time_limit: u64,
    /// Per cent from which a slower time on the device is a finding.
    #[arg(long, value_name = "PERCENT", default_value_t = 2.0)]
    threshold: f64,
    /// The same for times on the host, which vary more.
    #[arg(long, value_name = "PERCENT", default_value_t = 10.0)]
    host_threshold: f64,
    #[command(flatten)]
    guarded: GuardedOptions,
    #[command(flatten)]
    report: ReportOption,
}

const USAGE: &str = "\
cutape matrix [OPTIONS] --output <FILE> <TRACE>...
       cutape matrix --compare <BEFORE> <AFTER>... [OPTIONS]
       cutape matrix --history <FOLDER>... [OPTIONS]";

/// What has no meaning where nothing is measured.
const MEASURING: [&str; 10] = [
    "driver",
    "each_kernel",
    "replace",
    "rounds",
    "clock",
    "samples",
    "measure_seconds",
    "warm_up_seconds",
    "no_restore",
    "time_limit",
];

const EPILOGUE: &str = "\
Exit status: 0; 1 if a trace does not replay or cannot be measured; with
--compare, if something is slower by more than the threshold, replays worse, or
can no longer be measured; with --history, if the newest change of something
made it slower, or its newest replay is worse; 2 unusable input or machine.";

impl Arguments {
    fn thresholds(&self) -> Thresholds {
        Thresholds {
            gpu: self.threshold / 100.0,
            host: self.host_threshold / 100.0,
        }
    }
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    check_numbers(
        arguments.samples,
        [arguments.measure_seconds, arguments.warm_up_seconds],
        [arguments.threshold, arguments.host_threshold],
    )?;
    let has_findings = match () {
        () if arguments.compare => compare(&arguments)?,
        () if arguments.history => history(&arguments)?,
        () => run::measure(&arguments)?,
    };
    Ok(match has_findings {
        true => ExitCode::from(FOUND),
        false => ExitCode::SUCCESS,
    })
}

fn compare(arguments: &Arguments) -> Result<bool, Failure> {
    let report = arguments.report.prepare()?;
    if arguments.inputs.len() < 2 {
        return Err(Failure::unusable(
            "--compare needs two files of results: cutape matrix --compare BEFORE AFTER",
        ));
    }
    let files: Vec<_> = arguments
        .inputs
        .iter()
        .map(|path| read(path))
        .collect::<Result<_, _>>()?;
    let comparison = Comparison::of(&files, arguments.thresholds());
    if comparison.rows.is_empty() && !comparison.has_findings() {
        return Err(Failure::unusable(
            "nothing can be compared: the files have no benchmark of the same trace",
        ));
    }
    write_page(arguments, "Comparison", &comparison)?;
    report.write(&comparison, &comparison.text())?;
    Ok(comparison.has_findings())
}

fn history(arguments: &Arguments) -> Result<bool, Failure> {
    let report = arguments.report.prepare()?;
    let mut files = Vec::new();
    for input in &arguments.inputs {
        match input.is_dir() {
            true => files.extend(results_in(input)?),
            false => files.push(read(input)?),
        }
    }
    let history = History::of(files, arguments.thresholds());
    write_page(arguments, "History", &history)?;
    report.write(&history, &history.text())?;
    Ok(history.has_findings())
}

/// Writes what was found as a page, if one is wanted.
fn write_page(arguments: &Arguments, what: &str, found: &impl Serialize) -> Result<(), Failure> {
    let Some(target) = &arguments.output else {
        return Ok(());
    };
    let title = format!("cutape matrix: {what}");
    arguments.overwrite.write(target, |path| {
        let cannot = |error: io::Error| Failure::cannot_write(target, &error);
        let mut file = File::create_new(path).map_err(cannot)?;
        cutape_report::write_matrix_page(&title, found, &mut file).map_err(cannot)
    })?;
    message!("{}: open it in a browser", output::shown(target));
    Ok(())
}

/// A file of results, with what it is called.
fn read(path: &Path) -> Result<(String, Results), Failure> {
    let results = Results::read(path).map_err(Failure::unusable)?;
    let stem = path.file_stem().unwrap_or(path.as_os_str());
    Ok((stem.to_string_lossy().into_owned(), results))
}

/// The files of results of a folder.
fn results_in(folder: &Path) -> Result<Vec<(String, Results)>, Failure> {
    let cannot = |error| Failure::unusable(format!("{}: {error}", folder.display()));
    let entries = fs::read_dir(folder).map_err(cannot)?;
    let paths = entries.map(|entry| entry.map(|entry| entry.path()));
    let paths: Vec<PathBuf> = paths.collect::<Result<_, _>>().map_err(cannot)?;
    let is_json = |path: &&PathBuf| path.extension().is_some_and(|ending| ending == "json");
    let files: Vec<_> = paths
        .iter()
        .filter(is_json)
        .map(|path| read(path))
        .collect();
    match files.is_empty() {
        true => Err(Failure::unusable(format!(
            "{}: a folder without results (*.json); give one that `cutape matrix -o` has written to",
            folder.display()
        ))),
        false => files.into_iter().collect(),
    }
}
