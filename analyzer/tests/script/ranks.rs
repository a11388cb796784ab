//! Scripts of several processes.

#![allow(dead_code, reason = "not every test file has such scripts")]

use cutape_analyzer::ranks::{CheckedProcess, RankCheck};
use cutape_analyzer::{Finding, RecordedProcess, TraceContext};
use cutape_format::Trace;
use cutape_model::ExchangeBuilder;

use super::{number, trace};

/// What the check of several processes says. A line `pN CALL` is a call of process N; each begins
/// after the one before it has returned, unless `pN ~ CALL` lets it overlap with the next one.
pub(crate) fn findings_of_ranks(script: &str) -> Vec<Finding> {
    let mut processes: Vec<String> = Vec::new();
    for (at, text) in script.lines().enumerate() {
        let text = text.trim();
        let Some((process, call)) = text.strip_prefix('p').and_then(|text| text.split_once(' '))
        else {
            assert!(text.is_empty() || text.starts_with('#'), "{text}");
            continue;
        };
        let process = number(process) as usize;
        processes.resize_with(processes.len().max(process + 1), String::new);
        let ticks = 1000 * (at as u64 + 1);
        let (call, end) = match call.strip_prefix("~ ") {
            Some(call) => (call, ticks + 1500),
            None => (call, ticks + 500),
        };
        // The caller's address is the line.
        let lines = &mut processes[process];
        while lines.lines().count() < at {
            lines.push('\n');
        }
        lines.push_str(&format!("at {ticks} until {end} {call}\n"));
    }
    let names = (0..).map(|rank| RecordedProcess {
        trace: format!("run.rank{rank}.cutape"),
        rank: Some(rank),
    });
    let traces: Vec<Trace> = processes.iter().map(|script| trace(script)).collect();
    let checked = traces.iter().zip(names).map(|(trace, name)| {
        let mut exchanges = ExchangeBuilder::default();
        trace.calls().for_each(|call| exchanges.observe(&call));
        CheckedProcess {
            name,
            exchanges: exchanges.finish(),
        }
    });
    let mut check = RankCheck::new(checked.collect());
    let all = traces.iter().enumerate();
    let mut calls: Vec<_> = all
        .flat_map(|(process, trace)| trace.calls().map(move |call| (call.ticks, process, call)))
        .collect();
    calls.sort_by_key(|(ticks, process, _)| (*ticks, *process));
    for (_, process, call) in &calls {
        check.push(*process, &traces[*process], call);
    }
    let contexts: Vec<&dyn TraceContext> = traces
        .iter()
        .map(|trace| trace as &dyn TraceContext)
        .collect();
    check.finish(&contexts)
}
