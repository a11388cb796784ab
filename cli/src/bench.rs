//! `cutape bench`: measures recorded work repeatedly and compares it with earlier measurements.
//!
//! `selection` chooses and names what to measure, `replacement` finds the kernels of `--replace`.
//! The guarded child replays the trace up to the selected calls, and criterion measures them on the
//! device's clock and the host's (`child`). `measurement` reads criterion's files, `verdict`
//! judges.

mod child;
mod measurement;
mod replacement;
mod selection;
mod settings;
mod text;
mod verdict;

use std::path::PathBuf;
use std::process::ExitCode;

use cutape_format::Trace;

use crate::guarded;
use crate::one_rank::Source;
use cutape_terminal::failure::{FOUND, Failure};
use cutape_terminal::input::{Completeness, WithState};
use cutape_terminal::library;
use cutape_terminal::progress::{Progress, Unit};

pub(crate) use child::{ChildArguments, run_child};
pub(crate) use measurement::Benchmark;
use measurement::Results;
pub(crate) use settings::Arguments;
use settings::{Comparison, FIRST_DRIVER, Settings};
use verdict::Report;

/// The hidden verb of the guarded child.
pub(crate) const CHILD: &str = "bench-child";

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    arguments.check()?;
    let source = arguments
        .rank
        .source(&arguments.trace, &arguments.guarded)?;
    let trace = cutape_terminal::input::open(source.path())?;
    let output = arguments.report.prepare()?;
    let settings = Settings::of(arguments)?;
    // Reports errors before a driver is loaded.
    let selection = selection::select(&trace, &settings)?;
    if let Comparison::Against(name) = &settings.comparison {
        selection::expect_baseline(&settings, &selection, name)?;
    }
    std::fs::create_dir_all(&settings.output).map_err(|error| {
        Failure::unusable(format!("--output {}: {error}", settings.output.display()))
    })?;
    let mut report = Report::default();
    let run = |driver: Option<&PathBuf>, comparison: &Comparison| {
        let settings = Settings {
            driver: library::driver(driver.map(PathBuf::as_path))?,
            comparison: comparison.clone(),
            ..settings.clone()
        };
        Ok::<_, Failure>((measure(&trace, &source, &settings)?, settings))
    };
    match &settings.arguments.driver[..] {
        [first, second] => {
            let name = FIRST_DRIVER.to_owned();
            let (results, before) = run(Some(first), &Comparison::Save(name.clone()))?;
            report.add(results, &before, " (first driver)");
            let (results, after) = run(Some(second), &Comparison::Against(name))?;
            report.add(results, &after, " (second driver)");
        }
        one => {
            let (results, settings) = run(one.first(), &settings.comparison)?;
            report.add(results, &settings, "");
        }
    }
    report.add_selection(selection);
    if let Comparison::Against(name) = &settings.comparison
        && report.compared() == 0
    {
        return Err(Failure::unusable(format!(
            "--baseline {name}: it contains none of these measurements; measure once with \
             --save-baseline {name}"
        )));
    }
    let mut state = Completeness::of(&trace);
    state.still_recording |= source.is_still_recording();
    let printed = text::text(&report, &settings);
    output.write(&WithState::new(&report, &state), &printed)?;
    Ok(match report.has_findings() {
        true => ExitCode::from(FOUND),
        false => ExitCode::SUCCESS,
    })
}

/// Measures on one driver, in a child process.
fn measure(trace: &Trace, source: &Source, settings: &Settings) -> Result<Results, Failure> {
    let program = library::own_path()?;
    let comparison = serde_json::to_string(&settings.comparison).unwrap_or_default();
    let mut hidden = vec![
        "--child-driver".into(),
        settings.driver.clone().into_os_string(),
        "--child-comparison".into(),
        comparison.into(),
    ];
    hidden.extend(source.for_child());
    let command = || {
        let mut command = guarded::child(&program, CHILD, &hidden);
        // Otherwise criterion looks for cargo's folders or connects to cargo-criterion.
        command.env("CRITERION_HOME", &settings.output);
        command.env_remove("CARGO_CRITERION_PORT");
        command.env_remove("CRITERION_DEBUG");
        command
    };
    let guard = settings.guarded.guard();
    let mut progress = Progress::new("measuring", Unit::Things("calls and iterations"), None);
    let measured =
        cutape_replay::rerun_guarded(trace, &command, &guard, &mut |done| progress.reach(done))
            .map_err(Failure::unusable)?;
    drop(progress);
    let benchmarks = serde_json::from_value(measured.results)
        .map_err(|error| Failure::unusable(format!("the measuring process: {error}")))?;
    Ok(Results {
        outcome: measured.outcome,
        benchmarks,
    })
}
