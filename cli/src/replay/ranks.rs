//! `cutape replay FOLDER`: the traces of several ranks, replayed together.

use std::fmt::Write as _;
use std::process::ExitCode;

use cutape_replay::Report;
use serde::Serialize;

use super::{Arguments, CHILD, Format};
use crate::guarded;
use crate::rank_children;
use cutape_terminal::failure::Failure;
use cutape_terminal::input::Completeness;
use cutape_terminal::library;
use cutape_terminal::output::printable;
use cutape_terminal::progress::JointProgress;
use cutape_terminal::rank_folder::{Found, traces};

/// The report of several ranks. JSON keys are only ever added.
#[derive(Debug, Serialize)]
struct Reports {
    /// What some of the traces lack.
    #[serde(flatten)]
    state: Completeness,
    ranks: Vec<RankReport>,
}

#[derive(Debug, Serialize)]
struct RankReport {
    rank: Option<u64>,
    trace: String,
    #[serde(flatten)]
    state: Completeness,
    report: Report,
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    refuse_what_is_for_one(arguments)?;
    let output = arguments.report.prepare()?;
    if output.is_stdout() && arguments.format != Format::Text {
        return Err(Failure::unusable(
            "--report - and --format both print to stdout; use --report FILE or one of them",
        ));
    }
    let found = traces(&arguments.trace)?;
    let mut ranks: Vec<u64> = found.iter().filter_map(|found| found.rank).collect();
    ranks.dedup();
    arguments.guarded.expect_ranks(&ranks)?;
    let driver = library::driver(arguments.driver.as_deref())?;
    let program = library::own_path()?;
    let mut for_all = vec!["--child-driver".into(), driver.clone().into_os_string()];
    for_all.extend(["--child-of".into(), std::process::id().to_string().into()]);
    if let Some(fill) = arguments.fill {
        for_all.extend(["--child-fill".into(), fill.to_string().into()]);
    }
    let commands = rank_children::commands(&found, &program, CHILD, &for_all);
    let ranks = rank_children::ranks(&found, &arguments.guarded, &commands);
    let traces = found.iter().map(|found| &found.trace);
    let progress = JointProgress::over_calls("replaying", traces);
    let reach = |rank: usize, done: u64| progress.reach(rank, done);
    let guard = arguments.guarded.guard();
    let reports = cutape_replay::run_ranks(&ranks, &guard, &reach).map_err(Failure::unusable)?;
    drop(progress);
    let mut ranks = Vec::new();
    let mut printed = String::new();
    for (found, mut report) in found.iter().zip(reports) {
        report.complete(&found.trace);
        let _ = writeln!(printed, "{}:", printable(&found.label));
        for line in report.text(&found.trace).lines() {
            let _ = writeln!(printed, "  {line}");
        }
        ranks.push(RankReport {
            rank: found.rank,
            trace: found.path.display().to_string(),
            state: Completeness::of(&found.trace),
            report,
        });
    }
    let agree = |rank: &&RankReport| rank.report.agrees_but_for(&arguments.allow);
    let agreeing = ranks.iter().filter(agree).count();
    let _ = writeln!(printed, "{}", verdict(&found, &ranks));
    let agrees = agreeing == ranks.len();
    let mut state = Completeness::default();
    for rank in &ranks {
        state.join(rank.state.clone());
    }
    let status = super::status(agrees, &state, arguments);
    let reports = Reports { state, ranks };
    if arguments.format == Format::Json {
        printed = guarded::json(&reports);
    }
    output.write(&reports, &printed)?;
    Ok(status)
}

/// One line about all ranks.
fn verdict(found: &[Found], ranks: &[RankReport]) -> String {
    let mut words = Vec::new();
    for (found, rank) in found.iter().zip(ranks) {
        let label = printable(&found.label);
        words.extend(rank.report.problems_of_rank(&label));
        if rank.state.ended_early.is_some() {
            words.push(format!("the recording of {label} ended early"));
        }
    }
    let what = match words.is_empty() {
        true => "no divergence".to_owned(),
        false => words.join(", "),
    };
    format!("{} ranks: {what}", ranks.len())
}

fn refuse_what_is_for_one(arguments: &Arguments) -> Result<(), Failure> {
    let given = [
        (arguments.calls.is_some(), "--calls"),
        (arguments.until.is_some(), "--until"),
        (arguments.timing.is_some(), "--timing"),
        (arguments.repeat > 1, "--repeat"),
        (!arguments.replace_image.is_empty(), "--replace-image"),
        (!arguments.set.is_empty(), "--set"),
        (!arguments.save.is_empty(), "--save"),
        (arguments.io.is_some(), "--io"),
        (arguments.format == Format::Junit, "--format junit"),
    ];
    let of_replay = given.into_iter().find(|(is_given, _)| *is_given);
    let option = of_replay.map(|(_, name)| name);
    match option.or_else(|| arguments.guarded.only_for_one()) {
        None => Ok(()),
        Some(option) => Err(Failure::unusable(format!(
            "{option} cannot be used with a folder of ranks; give one of the traces in {}",
            arguments.trace.display()
        ))),
    }
}
