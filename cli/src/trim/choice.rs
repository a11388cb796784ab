//! Which calls to keep: the options of `trim`.

use std::fmt;
use std::ops::Range;

use cutape_analyzer::decode::function_of;
use cutape_format::{Call, Trace};
use cutape_registry::{Family, GraphOp};

use cutape_calls::{self, CallSet, number_range};
use cutape_terminal::failure::Failure;

/// The options that choose calls; exactly one is given.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Choice {
    /// Keep these calls.
    #[arg(long, value_name = "SET", long_help = cutape_calls::help("Keep these calls."))]
    calls: Option<String>,
    /// Keep the last N calls.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    last: Option<u64>,
    /// Keep the calls from launch K to the one before launch L.
    ///
    /// Launches of kernels and of graphs count from 0. K..L is a range as in
    /// call sets: 3..5, 3..=4, 3.., ..5, or 3 alone.
    #[arg(long, value_name = "K..L", verbatim_doc_comment)]
    launches: Option<String>,
}

impl fmt::Display for Choice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.calls, self.last, &self.launches) {
            (Some(set), ..) => write!(formatter, "--calls {set}"),
            (_, Some(last), _) => write!(formatter, "--last {last}"),
            (.., launches) => {
                write!(
                    formatter,
                    "--launches {}",
                    launches.as_deref().unwrap_or("")
                )
            }
        }
    }
}

impl Choice {
    /// The indices of the chosen calls, in order; at least one.
    pub(crate) fn calls(&self, trace: &Trace) -> Result<Vec<u64>, Failure> {
        let chosen: Vec<u64> = match (&self.calls, self.last, &self.launches) {
            (Some(text), ..) => {
                return Ok(CallSet::for_trace(text, trace)?.some_calls(text, trace)?);
            }
            (_, Some(last), _) => {
                let count = trace.calls().count() as u64;
                (count.saturating_sub(last)..count).collect()
            }
            (.., launches) => {
                let text = launches.as_deref().unwrap_or_default();
                let range = number_range(text).map_err(|what| {
                    Failure::unusable(format!("--launches {}: {what}", text.escape_debug()))
                })?;
                launched(trace, &range, text)?
            }
        };
        match chosen.is_empty() {
            false => Ok(chosen),
            true => Err(Failure::unusable(format!(
                "{self}: no call of the trace matches; `cutape dump {}` lists its calls",
                trace.path().display()
            ))),
        }
    }
}

/// The calls from the first of these launches to the last.
fn launched(trace: &Trace, wanted: &Range<u64>, text: &str) -> Result<Vec<u64>, Failure> {
    let mut launches = 0;
    let mut found: Option<Range<u64>> = None;
    for call in trace.calls().filter(is_launch) {
        if wanted.contains(&launches) {
            let start = found.map_or(call.index, |known| known.start);
            found = Some(start..call.index + 1);
        }
        launches += 1;
    }
    let found = found.ok_or_else(|| {
        Failure::unusable(format!(
            "--launches {text}: the trace has {launches} launches, which count from 0"
        ))
    })?;
    Ok(found.collect())
}

fn is_launch(call: &Call<'_>) -> bool {
    let family = function_of(call.signature).map(|function| function.family);
    matches!(
        family,
        Some(Family::Launch(_) | Family::Graph(GraphOp::Launch))
    )
}
