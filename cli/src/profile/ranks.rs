//! `cutape profile FOLDER`: the ranks of a folder, replayed together.

use std::process::ExitCode;

use cutape_analyzer::RecordedProcess;
use cutape_analyzer::ranks::{CheckedProcess, ProcessEnd, RankCheck};
use cutape_format::Trace;
use cutape_measure::{ProfileSettings, ProfiledRank, profile_ranks};
use cutape_model::ExchangeBuilder;
use cutape_profile::{Collective, RankProfile, RanksSummary};
use cutape_render::text::shown;
use cutape_symbols::{Resolver, SymbolContext};
use cutape_terminal::failure::Failure;
use cutape_terminal::input::Completeness;
use cutape_terminal::output::{self, ReportFile};
use cutape_terminal::progress::JointProgress;
use cutape_terminal::rank_folder::{Found, traces};
use cutape_terminal::{library, message};
use serde::Serialize;

use super::{Arguments, Format};
use crate::guarded;
use crate::merged::{Merged, have_common_clock};
use crate::profile::child::{CHILD, cupti, hidden, note_differences};
use crate::rank_children;

/// The profiles as JSON.
#[derive(Serialize)]
struct Document<'a> {
    /// What some of the traces lack.
    #[serde(flatten)]
    state: Completeness,
    summary: &'a RanksSummary,
    ranks: &'a [RankProfile],
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    refuse_what_is_for_one(arguments)?;
    let found = traces(&arguments.trace)?;
    let file = ReportFile::given("--output", &arguments.output)?;
    let mut ranks: Vec<u64> = found.iter().filter_map(|found| found.rank).collect();
    ranks.dedup();
    arguments.guarded.expect_ranks(&ranks)?;
    let driver = library::driver(arguments.driver.as_deref())?;
    // With CUPTI, ranks that replay without a divergence diverged or hung (two H200).
    let cupti = match &arguments.cupti {
        Some(given) => cupti(Some(given), &driver)?,
        None => None,
    };
    let program = library::own_path()?;
    let for_all = hidden(&driver, cupti.as_deref());
    let commands = rank_children::commands(&found, &program, CHILD, &for_all);
    let replayed = rank_children::ranks(&found, &arguments.guarded, &commands);
    let profiled = found.iter().map(|found| ProfiledRank {
        rank: found.rank,
        settings: ProfileSettings {
            trace: shown(&found.path).to_string(),
            driver: shown(&driver).to_string(),
            repeat: 1,
        },
    });
    let traces = found.iter().map(|found| &found.trace);
    let progress = JointProgress::over_calls("replaying", traces);
    let reach = |rank: usize, done: u64| progress.reach(rank, done);
    let guard = arguments.guarded.guard();
    let measured = profile_ranks(&replayed, profiled.collect(), &guard, &reach);
    let (mut ranks, reports) = measured.map_err(Failure::unusable)?;
    drop(progress);
    for (rank, report) in ranks.iter_mut().zip(&reports) {
        note_differences([report], &mut rank.profile);
    }
    let summary = RanksSummary::of(&ranks, &collectives(&found));
    let text = match arguments.format {
        Format::Text => text(&shown(&arguments.trace).to_string(), &summary, &ranks),
        Format::Json => {
            let mut state = Completeness::default();
            for found in &found {
                state.join(Completeness::of(&found.trace));
            }
            guarded::json(&Document {
                state,
                summary: &summary,
                ranks: &ranks,
            })
        }
    };
    output::write(file.as_ref(), &text)?;
    Ok(ExitCode::SUCCESS)
}

/// The tables about all ranks, and the notes about each.
fn text(folder: &str, summary: &RanksSummary, ranks: &[RankProfile]) -> String {
    let mut text = summary.text(folder);
    for rank in ranks {
        for note in rank.profile.notes.keys() {
            text += &format!("note: {}: {note}\n", rank.label);
        }
    }
    text
}

/// Which launches of the ranks belong together; none if their clocks differ, so that their calls
/// have no order.
fn collectives(found: &[Found]) -> Vec<Collective> {
    let traces = || found.iter().map(|found| &found.trace);
    if !have_common_clock(traces()) {
        message!("the traces do not share a clock: no collectives are known");
        return Vec::new();
    }
    let process = |(trace, found): (&Trace, &Found)| {
        let mut exchanges = ExchangeBuilder::default();
        trace.calls().for_each(|call| exchanges.observe(&call));
        CheckedProcess {
            name: RecordedProcess {
                trace: found.label.clone(),
                rank: found.rank,
            },
            exchanges: exchanges.finish(),
            end: ProcessEnd::Unknown,
        }
    };
    let mut check = RankCheck::new(traces().zip(found).map(process).collect());
    let resolvers: Vec<Resolver> = found.iter().map(|_| Resolver::default()).collect();
    let contexts: Vec<SymbolContext<'_>> = traces()
        .zip(&resolvers)
        .map(|(trace, resolver)| SymbolContext::new(trace, resolver))
        .collect();
    let mut merged = Merged::of(traces());
    while let Some((process, call)) = merged.next() {
        if let Some(context) = contexts.get(process) {
            check.push(process, context, &call);
        }
    }
    let collectives = check.collectives().into_iter();
    collectives
        .map(|collective| Collective {
            kernel: collective.kernel,
            launches: collective.launches,
        })
        .collect()
}

fn refuse_what_is_for_one(arguments: &Arguments) -> Result<(), Failure> {
    let given = [
        (arguments.counters.is_given(), "--counters"),
        (arguments.repeat > 1, "--repeat"),
    ];
    let of_profile = given.into_iter().find(|(is_given, _)| *is_given);
    let option = of_profile.map(|(_, name)| name);
    match option.or_else(|| arguments.guarded.only_for_one()) {
        None => Ok(()),
        Some(option) => Err(Failure::unusable(format!(
            "{option} cannot be used with a folder of ranks; give one of the traces in {}, or \
             --rank N",
            arguments.trace.display()
        ))),
    }
}
