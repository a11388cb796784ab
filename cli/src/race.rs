//! `cutape race`: whether work that nothing orders gives another result in the other order.

use std::path::PathBuf;
use std::process::ExitCode;

use cutape_history::{
    Exploration, Explored, Interleaving, Outcome, Race, explore, explored_text, race_text, races,
    unordered_pairs,
};
use cutape_render::{Element, quantity};
use cutape_terminal::failure::Failure;
use cutape_terminal::{input, message};

use crate::guarded::ReportOption;
use crate::observation;
use crate::replay_options::ReplayOptions;

const EPILOGUE: &str = "\
Examples:
  cutape race app.cutape                     all pairs of calls that nothing orders
  cutape race app.cutape --between 912:930   this pair
  cutape race app.cutape --list              the pairs, without a replay
  cutape race app.cutape --explore 20        also 20 orders of more than two calls

A pair is two calls in two streams whose work touches the same bytes, of which one may
write them, with no event, wait or default stream between. The trace is replayed twice:
with the work of the first call done before the second call, and with the first call's
stream kept back until the second call's work is done. Memory that differs proves the
race; then both are replayed again, so that what differs by itself does not count.
Exit status: 1 if a race is proven.";

/// The results as JSON.
#[derive(serde::Serialize)]
struct Results {
    races: Vec<Race>,
    explored: Vec<Explored>,
}

/// What `race` takes.
#[derive(clap::Args)]
#[command(after_help = EPILOGUE)]
pub(crate) struct Arguments {
    /// The trace; with --rank, a folder with the traces of several ranks.
    trace: PathBuf,
    /// Only this pair: two calls whose work cutape need not know to touch the same bytes.
    #[arg(long, value_name = "CALL:CALL", value_parser = pair)]
    between: Option<(u64, u64)>,
    /// How many pairs are tried, those first whose bytes are known. Each is two
    /// replays, or four.
    #[arg(long, value_name = "N", default_value_t = 20, verbatim_doc_comment)]
    most: usize,
    /// Also try N other orders of calls that the pairs connect, where these are
    /// three or more.
    #[arg(long, value_name = "N", conflicts_with = "list", verbatim_doc_comment)]
    explore: Option<usize>,
    /// Which orders --explore tries: equal numbers, equal orders.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Only list the pairs.
    #[arg(long)]
    list: bool,
    /// The type of the numbers that are shown.
    #[arg(long = "type", value_name = "TYPE", value_parser = Element::parse)]
    element: Option<&'static Element>,
    #[command(flatten)]
    replay: ReplayOptions,
    #[command(flatten)]
    report: ReportOption,
}

fn pair(text: &str) -> Result<(u64, u64), String> {
    let parts = text.split_once(':');
    let parsed =
        parts.and_then(|(first, second)| Some((first.parse().ok()?, second.parse().ok()?)));
    match parsed {
        Some((first, second)) if first < second => Ok((first, second)),
        _ => Err("not CALL:CALL, e.g. 912:930, the earlier call first".to_owned()),
    }
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let source = arguments.replay.source(&arguments.trace)?;
    let trace = input::open(source.path())?;
    let output = arguments.report.prepare()?;
    let mut pairs = unordered_pairs(&trace);
    if let Some((first, second)) = arguments.between {
        if trace.calls().all(|call| call.index != second) {
            let path = arguments.trace.display();
            return Err(Failure::unusable(format!(
                "{path} has no call {second}; `cutape dump` lists its calls"
            )));
        }
        let known = pairs
            .into_iter()
            .find(|pair| (pair.first, pair.second) == (first, second));
        pairs = vec![known.unwrap_or_else(|| cutape_history::pair(first, second))];
    }
    let count = pairs.len();
    if arguments.list {
        let results = Results {
            races: cutape_history::listed(&trace, pairs),
            explored: Vec::new(),
        };
        output.write(&results, &race_text(&results.races, None))?;
        return Ok(ExitCode::SUCCESS);
    }
    let all_pairs = pairs.clone();
    pairs.truncate(arguments.most);
    if pairs.len() < count {
        let (tried, all) = (pairs.len(), quantity::count(count as u64, "pair"));
        message!("{tried} of {all} are tried; --most {count} tries all");
    }
    if count == 0 {
        message!("no two calls in different streams use the same memory without an order");
    }
    let driver = arguments.replay.driver()?;
    let guarded = &arguments.replay.guarded;
    let mut observe =
        |observation| observation::read((&trace, &source), &driver, guarded, observation);
    let races = races(&trace, pairs, &mut observe)?;
    let explored = match arguments.explore {
        None => Vec::new(),
        Some(orders) => {
            let exploration = Exploration {
                orders,
                windows: arguments.most,
                seed: arguments.seed,
            };
            explore(&trace, &all_pairs, exploration, &mut observe)?
        }
    };
    let element = arguments.element;
    let text = race_text(&races, element) + &explored_text(&explored, element);
    let results = Results { races, explored };
    output.write(&results, &text)?;
    let orders = results.explored.iter().flat_map(|explored| &explored.tried);
    let orders = orders.map(|Interleaving { outcome, .. }| outcome);
    let mut outcomes = results.races.iter().map(|race| &race.outcome).chain(orders);
    let is_proven = outcomes.any(|outcome| matches!(outcome, Outcome::Proven(_)));
    Ok(ExitCode::from(u8::from(is_proven)))
}
