//! Which calls to keep: the options of `trim`.

use std::fmt;

use cutape_calls::{self, CallSet, number_range};
use cutape_cut::trim::calls_of_launches;
use cutape_format::Trace;
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
                let counted = trace.counted_calls();
                let counted = counted.filter(|_| trace.damage().is_empty());
                let count = counted.unwrap_or_else(|| trace.calls().count() as u64);
                (count.saturating_sub(last)..count).collect()
            }
            (.., launches) => {
                let text = launches.as_deref().unwrap_or_default();
                let range = number_range(text).map_err(|what| {
                    Failure::unusable(format!("--launches {}: {what}", text.escape_debug()))
                })?;
                let calls = calls_of_launches(trace, &range)
                    .map_err(|error| Failure::unusable(format!("--launches {text}: {error}")))?;
                calls.collect()
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
