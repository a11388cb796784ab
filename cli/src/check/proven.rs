//! `check --proven`: what `race` has shown about a trace.

use std::fs;
use std::path::Path;

use cutape_analyzer::ProvenPair;
use cutape_format::Trace;
use cutape_terminal::failure::Failure;
use serde::Deserialize;

/// A report of `race`, as far as it matters here.
#[derive(Deserialize)]
struct Report {
    races: Vec<Race>,
}

#[derive(Deserialize)]
struct Race {
    first: u64,
    second: u64,
    by_calls: [Facts; 2],
    evidence: Option<String>,
}

#[derive(Deserialize)]
struct Facts {
    function: String,
}

/// The pairs that a report of `race` proves.
///
/// # Errors
/// The file cannot be read, is no such report, or is about another trace.
pub(super) fn read(path: &Path, trace: &Trace) -> Result<Vec<ProvenPair>, Failure> {
    let unusable = |why: String| {
        let path = path.display();
        Failure::unusable(format!(
            "--proven {path}: {why}; `cutape race {} --report NEW.json` writes a report",
            trace.path().display()
        ))
    };
    let text = fs::read(path).map_err(|error| unusable(error.to_string()))?;
    let report: Report = serde_json::from_slice(&text)
        .map_err(|error| unusable(format!("not a report of `race` ({error})")))?;
    let mut proven = Vec::new();
    for race in report.races {
        let Some(evidence) = race.evidence else {
            continue;
        };
        let named = [race.first, race.second].into_iter().zip(&race.by_calls);
        for (index, facts) in named {
            let call = trace.calls().find(|call| call.index == index);
            if call.is_none_or(|call| call.signature.name != facts.function) {
                return Err(unusable(format!(
                    "about another trace: call {index} is no {}",
                    facts.function.escape_debug()
                )));
            }
        }
        proven.push(ProvenPair {
            first: race.first,
            second: race.second,
            evidence,
        });
    }
    Ok(proven)
}
